// BLEND_POLICY_ATTENTION through the C ABI: the rows that the question attends to in the middle
// layers over the stored rows, against the float64 reference, and what asking costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "conformance/expect.h"
#include "conformance/host.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

// Seven layers, of which 1 to 5 are asked. The first chunk, rows 0 to 6, is exact; then one of 40
// rows, one of a single one, a text of 3, a chunk of 20 and a question of 6.
class AttentionPolicy : public testing::Test {
 protected:
  AttentionPolicy()
      : path_(write_random_model(spec_, dir_.file("model.gguf"))),
        reference_(path_),
        ctx_(make_ctx(2, &log_)),
        model_(open_model(ctx_, path_)),
        store_(open_store(ctx_, dir_.file("store"))) {
    SplitMix rng(11);
    const auto add = [&](uint32_t kind, size_t n) {
      prompt_.push_back({kind, random_tokens(rng, spec_.n_vocab, n), false});
    };
    add(BLEND_SEGMENT_CHUNK, 7);
    add(BLEND_SEGMENT_CHUNK, 40);
    add(BLEND_SEGMENT_CHUNK, 1);
    add(BLEND_SEGMENT_TEXT, 3);
    add(BLEND_SEGMENT_CHUNK, 20);
    add(BLEND_SEGMENT_QUESTION, 6);
    precompute_all(model_, store_, prompt_, {});
  }

  static FuseCase attention(double ratio) {
    return {.policy = BLEND_POLICY_ATTENTION, .ratio = ratio, .on_miss = BLEND_MISS_FAIL};
  }
  Fusion fuse_by(const FuseCase& how) { return fuse(model_, store_, prompt_, how); }

  // Operations, 2 a multiply-add, of K and V; of all else of a layer; of the scores alone.
  double kv_of(double rows) const {
    return rows * 2 * spec_.d_model * 2 * spec_.n_kv_heads * spec_.head_dim;
  }
  double rest_of(const std::vector<uint32_t>& rows) const {
    const double d = spec_.d_model, q = spec_.n_heads * spec_.head_dim;
    return static_cast<double>(rows.size()) * 2 * (2 * d * q + 3 * d * spec_.d_ff) +
           2 * scores_of(rows);
  }
  double scores_of(const std::vector<uint32_t>& rows) const {
    double pairs = 0;
    for (const uint32_t row : rows) pairs += row + 1;
    return pairs * 2 * spec_.n_heads * spec_.head_dim;
  }
  double logits_of() const { return 2.0 * spec_.d_model * spec_.n_vocab; }

  static std::vector<uint32_t> range(uint32_t first, uint32_t end) {
    std::vector<uint32_t> rows;
    for (uint32_t row = first; row < end; ++row) rows.push_back(row);
    return rows;
  }
  static std::vector<uint32_t> joined(std::vector<uint32_t> a, const std::vector<uint32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::sort(a.begin(), a.end());
    return a;
  }

  const RandomModelSpec spec_{.n_layers = 7};
  TempDir dir_;
  std::string path_;
  ReferenceModel reference_;
  LogCount log_;
  Ctx ctx_;
  Model model_;
  Store store_;
  Prompt prompt_;
};

TEST_F(AttentionPolicy, ChoosesTheRowsOfAnIndependentComputation) {
  for (const double ratio : {0.02, 0.05, 0.15, 0.3, 0.6, 0.9}) {
    const FuseCase how = attention(ratio);
    SCOPED_TRACE(how);
    const Fusion fusion = fuse_by(how);
    expect_like_reference(reference_, fusion, prompt_, how);
    EXPECT_GE(selected(fusion).front(), 7u) << "the first chunk is exact";
  }
}

TEST_F(AttentionPolicy, ShiftsChunksUnlessItIsToldNotTo) {
  FuseCase how = attention(0.15);
  const Fusion fusion = fuse_by(how);
  EXPECT_GT(info(fusion).n_rows_shifted, 0u);
  how.correction = BLEND_CORRECTION_SHIFT;
  EXPECT_EQ(logits(fuse_by(how)), logits(fusion));
  how.correction = BLEND_CORRECTION_OFF;
  const Fusion as_stored = fuse_by(how);
  expect_like_reference(reference_, as_stored, prompt_, how);
  EXPECT_EQ(info(as_stored).n_rows_shifted, 0u);
  EXPECT_GT(max_difference(logits(as_stored), logits(fusion)), 10 * kLogitTolerance);
  EXPECT_EQ(selected(as_stored), selected(fusion));
  // A policy that chooses rows by what they moved by shifts nothing.
  FuseCase moved{.ratio = 0.15};
  const Fusion plain = fuse_by(moved);
  moved.correction = BLEND_CORRECTION_SHIFT;
  const Fusion same = fuse_by(moved);
  EXPECT_EQ(info(same).n_rows_shifted, 0u);
  EXPECT_EQ(logits(same), logits(plain));
}

TEST_F(AttentionPolicy, NeedsNoStatisticsOfTheChunks) {
  // A chunk that the host puts has no statistics.
  const Store other = open_store(ctx_, dir_.file("other"));
  for (const ReferenceSegment& s : prompt_) {
    if (s.kind != BLEND_SEGMENT_CHUNK) continue;
    const ReferenceKv kv = reference_.chunk(s.tokens, {}, DType::f32);
    std::vector<HostLayer> layers;
    std::vector<blend_kv_view> views;
    layers.reserve(spec_.n_layers);
    for (uint32_t l = 0; l < spec_.n_layers; ++l) {
      layers.emplace_back(reference_.config(), s.tokens.size(), HostLayout::rows_first);
      for (size_t row = 0; row < s.tokens.size(); ++row) {
        const size_t at = row * reference_.kv_dim();
        layers[l].set(row, &kv.k[l][at], &kv.v[l][at]);
      }
      views.push_back(layers[l].view(BLEND_KV_VIEW_UNROTATED));
    }
    blend_error* error = nullptr;
    const int32_t code =
        blend_chunk_put(model_.get(), other.get(), s.tokens.data(), s.tokens.size(), views.data(),
                        views.size(), 0, nullptr, nullptr, &error);
    ASSERT_EQ(outcome(code, error).code, BLEND_OK);
  }
  const Fusion put = fuse(model_, other, prompt_, attention(0.15));
  EXPECT_EQ(selected(put), selected(fuse_by(attention(0.15))));
  EXPECT_EQ(try_fuse(model_, other, prompt_, {.policy = BLEND_POLICY_PROBE}).outcome.code,
            BLEND_E_NOT_FOUND);
}

TEST_F(AttentionPolicy, RatioZeroIsReuseAndAsksNobody) {
  const Fusion reuse = fuse_by({.policy = BLEND_POLICY_REUSE});
  const Fusion none = fuse_by(attention(0));
  EXPECT_EQ(logits(none), logits(reuse)) << "to the last bit";
  EXPECT_EQ(info(none).flops, info(reuse).flops);
  EXPECT_TRUE(selected(none).empty());
}

TEST_F(AttentionPolicy, RatioOneIsFullPrefillAndAsksNobody) {
  const Fusion full = fuse_by({.policy = BLEND_POLICY_FULL});
  const Fusion all = fuse_by(attention(1));
  EXPECT_LE(max_difference(logits(all), logits(full)), kLogitTolerance);
  EXPECT_LT(info(all).flops, info(full).flops) << "the exact chunk is not computed";
  EXPECT_EQ(selected(all).size(), 61u);
}

// The nine rows that are always computed go through layers 0 to 4 and have K, V at 5; the question
// asks at 1 to 5. Then all layers, with the rows that were chosen.
TEST_F(AttentionPolicy, TheAccountHasWhatAskingTook) {
  const Fusion fusion = fuse_by(attention(0.15));
  const std::vector<uint32_t> always = joined(range(48, 51), range(71, 77));
  const std::vector<uint32_t> chosen = selected(fusion);
  ASSERT_EQ(chosen.size(), 11u);  // of 68
  ASSERT_LT(chosen.front(), 48u) << "or the text is not computed again";
  const std::vector<uint32_t> active = joined(always, chosen), question = range(71, 77);
  const double q = spec_.n_heads * spec_.head_dim;
  const double asking =
      6 * kv_of(9) + 5 * rest_of(always) + 5 * scores_of(question) + 6.0 * 2 * spec_.d_model * q;
  const double rest = 7 * kv_of(20) + 6 * rest_of(active) + rest_of({76}) + logits_of();
  EXPECT_NEAR(info(fusion).flops, asking + rest, 1);
  for (uint32_t l = 0; l < 7; ++l) {
    const blend_layer_info layer = layer_info(fusion, l);
    EXPECT_EQ(layer.rows_kv, 20u) << l;
    EXPECT_EQ(layer.rows_full, l == 6 ? 1u : 20u) << l;
    EXPECT_EQ(layer.rows_placed, 57u) << l;
    EXPECT_EQ(layer.rows_asked, l < 6 ? 9u : 0u) << l;
  }
  const blend_fusion_report i = info(fusion);
  EXPECT_EQ(i.first_asked_layer, 1u);
  EXPECT_EQ(i.last_asked_layer, 5u);
  EXPECT_GT(i.select_ns, 0u);
  EXPECT_EQ(i.plan_ns + i.miss_ns + i.prepare_ns + i.wait_ns + i.place_ns + i.select_ns +
                i.compute_ns + i.other_ns,
            i.ttft_ns);
}

// Rows that stand before the first that was chosen see no fresh row.
TEST_F(AttentionPolicy, WhatStandsBeforeTheFirstChosenRowIsComputedOnce) {
  SplitMix rng(5);
  prompt_[0] = {BLEND_SEGMENT_CHUNK, random_tokens(rng, spec_.n_vocab, 30), true};  // missing
  FuseCase how = attention(0.15);
  how.on_miss = BLEND_MISS_COMPUTE;
  const Fusion fusion = fuse_by(how);
  expect_like_reference(reference_, fusion, prompt_, how);
  const std::vector<uint32_t> chosen = selected(fusion);
  ASSERT_GE(chosen.front(), 30u);
  const std::vector<uint32_t> always = joined(range(0, 30), joined(range(71, 74), range(94, 100)));
  const std::vector<uint32_t> active = joined(always, chosen), question = range(94, 100);
  std::vector<uint32_t> again;
  for (const uint32_t row : active) {
    if (row >= chosen.front()) again.push_back(row);
  }
  const double q = spec_.n_heads * spec_.head_dim;
  const double asking =
      6 * kv_of(39) + 5 * rest_of(always) + 5 * scores_of(question) + 6.0 * 2 * spec_.d_model * q;
  const double rest = 5 * (kv_of(static_cast<double>(again.size())) + rest_of(again)) +
                      2 * kv_of(static_cast<double>(active.size())) + rest_of(active) +
                      rest_of({99}) + logits_of();
  EXPECT_NEAR(info(fusion).flops, asking + rest, 1);
}

// A chunk whose bytes changed on the disk shows when a middle layer is asked; it is prefilled and
// the question asked again.
TEST_F(AttentionPolicy, ADamagedChunkIsReplaced) {
  const std::vector<float> sound = logits(fuse_by(attention(0.15)));
  const std::vector<uint32_t> rows = selected(fuse_by(attention(0.15)));
  const ReferenceKv kv = reference_.chunk(prompt_[1].tokens, {}, DType::f32);
  store_.reset();
  const std::string path = dir_.file("store") + "/data.mdb";
  std::ifstream in(path, std::ios::binary);
  std::string data((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  // The record's own bytes: V of a row at layer 3, as near as the reference has them.
  const size_t kv_dim = reference_.kv_dim();
  const double* const want = &kv.v[3][5 * kv_dim];
  size_t found = 0;
  for (size_t at = 0; at + kv_dim * sizeof(float) <= data.size(); at += sizeof(float)) {
    float row[4];
    std::memcpy(row, data.data() + at, sizeof row);
    if (!std::equal(row, row + 4, want, [](float a, double b) {
          return std::abs(static_cast<double>(a) - b) < 1e-5;
        })) {
      continue;
    }
    data[at] = static_cast<char>(data[at] ^ 1);
    ++found;
  }
  ASSERT_EQ(found, 1u);
  std::ofstream(path, std::ios::binary) << data;
  store_ = open_store(ctx_, dir_.file("store"));
  const int before = log_.n;
  FuseCase how = attention(0.15);
  how.on_miss = BLEND_MISS_PRECOMPUTE;
  const Fusion fusion = fuse_by(how);
  ASSERT_TRUE(fusion);
  EXPECT_EQ(log_.n, before + 1);
  EXPECT_EQ(segment_info(fusion, 1).source, BLEND_SOURCE_PRECOMPUTED);
  EXPECT_EQ(selected(fusion), rows);
  EXPECT_EQ(logits(fusion), sound);
}

}  // namespace
}  // namespace blend::test
