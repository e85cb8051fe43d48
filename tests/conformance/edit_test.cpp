// Rows taken out of a fused prompt or put into it, against the float64 reference: later rows
// keep K before RoPE and V, the new ones and the last are decoded.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr size_t kMaxRows = 120;  // the reference is slow
constexpr uint32_t kReserve = 64;

class Edit : public testing::TestWithParam<int> {
 protected:
  Edit()
      : rng_(0x51ed2701u * static_cast<uint64_t>(GetParam() + 1)),
        spec_(random_spec(rng_)),
        path_(write_model()),
        reference_(path_),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)) {}

  // Every third model has linear scaling, a kind of RoPE that the others lack.
  std::string write_model() {
    GgufWriter w = random_model(spec_);
    if (GetParam() % 3 == 0) {
      w.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4.0f);
    }
    return w.write(dir_.file("model.gguf"));
  }
  FuseCase some_policy(const RandomPrompt& random) {
    FuseCase how{.policy = spec_.n_layers > 1 ? BLEND_POLICY_HKVD : BLEND_POLICY_REUSE,
                 .ratio = 0.2,
                 .reserve_tokens = kReserve};
    how.chunk_prefix = random.chunk_prefix;
    return how;
  }
  std::vector<int32_t> some_tokens(size_t most) {
    return random_tokens(rng_, spec_.n_vocab, rng_.below(most + 1));
  }

  TempDir dir_;
  SplitMix rng_;
  RandomModelSpec spec_;
  std::string path_;
  ReferenceModel reference_;
  Ctx ctx_;
  Model model_;
};

// Edits of every kind one after another, decoding between them.
TEST_P(Edit, IsTheReference) {
  const RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  const Store store = open_store(ctx_, dir_.file("store"));
  const FuseCase how = some_policy(random);
  const Fusion fusion = fuse(model_, store, random.prompt, how);
  ASSERT_TRUE(fusion);
  ReferenceFusion want = expect_like_reference(reference_, fusion, random.prompt, how);
  std::vector<int32_t> all = flatten(random.prompt);
  const size_t capacity = all.size() + kReserve;
  for (int round = 0; round < 8; ++round) {
    const size_t first = rng_.below(all.size() + 1);
    size_t n_old = rng_.below(std::min<size_t>(all.size() - first, 40) + 1);
    std::vector<int32_t> tokens = some_tokens(6);
    if (round % 4 == 0) tokens.clear();                                   // erase
    if (round % 4 == 1) n_old = 0;                                        // insert
    if (round % 4 == 2) n_old = std::min(all.size() - first, size_t{3});  // short moves
    if (n_old + (tokens.empty() ? 1 : 0) > all.size()) continue;
    if (all.size() - n_old + tokens.size() + 2 > capacity) continue;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << n_old << " rows from " << first
                                    << " of " << all.size() << " by " << tokens.size());
    const std::vector<float> before = logits(fusion);
    replace(fusion, first, n_old, tokens);
    if (n_old == 0 && tokens.empty()) {
      EXPECT_EQ(logits(fusion), before);
      continue;
    }
    reference_replace(reference_, want, all, first, n_old, tokens);
    EXPECT_EQ(tokens_of(fusion), all);
    ASSERT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance);
    const std::vector<int32_t> next = some_tokens(2);
    decode(fusion, next);
    reference_decode(reference_, want, next);
    all.insert(all.end(), next.begin(), next.end());
    ASSERT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance) << "after a decode";
  }
}

// After full prefill every row is what its tokens give: the same tokens change nothing, and at the
// end any tokens give what their prefill gives.
TEST_P(Edit, OfAFullPrefillIsExactWhereNothingBehindItChanges) {
  const auto tokens = random_tokens(rng_, spec_.n_vocab, 50);
  const FuseCase full{.policy = BLEND_POLICY_FULL};
  const Fusion fusion = fuse(model_, Store(), {{BLEND_SEGMENT_TEXT, tokens, false}}, full);
  ASSERT_TRUE(fusion);
  const std::vector<float> want = logits(fusion);
  const auto span = [&](size_t first, size_t n) {
    return std::vector<int32_t>(tokens.begin() + static_cast<int64_t>(first),
                                tokens.begin() + static_cast<int64_t>(first + n));
  };
  for (const auto& [first, n] : {std::pair<size_t, size_t>{44, 6}, {0, 50}, {17, 20}, {49, 1}}) {
    replace(fusion, first, n, span(first, n));
    EXPECT_LE(max_difference(logits(fusion), want), kLogitTolerance) << first << ", " << n;
  }
  replace(fusion, 20, 30, {});
  const Fusion shorter = fuse(model_, Store(), {{BLEND_SEGMENT_TEXT, span(0, 20), false}}, full);
  EXPECT_LE(max_difference(logits(fusion), logits(shorter)), kLogitTolerance);
}

// The account against the places of the rows, found one by one.
TEST_P(Edit, TheAccountMovesAlong) {
  const RandomPrompt random = random_prompt(rng_, spec_.n_vocab, 200);
  const Store store = open_store(ctx_, dir_.file("store"));
  const Fusion fusion = fuse(model_, store, random.prompt, some_policy(random));
  ASSERT_TRUE(fusion);
  const std::vector<uint32_t> selected_before = selected(fusion);
  const std::vector<float> deviation_before = deviation(fusion);
  const blend_fusion_report info_before = info(fusion);
  std::vector<blend_segment_info> segments_before;
  for (size_t s = 0; s < random.prompt.size(); ++s) {
    segments_before.push_back(segment_info(fusion, s));
  }
  decode(fusion, {7, 8, 9, 10});

  std::vector<std::optional<uint32_t>> origin(tokens_of(fusion).size());  // of each row now
  std::iota(origin.begin(), origin.end(), 0u);
  std::vector<size_t> owner(origin.size(), SIZE_MAX);  // segment of each row now
  for (size_t s = 0; s < segments_before.size(); ++s) {
    const auto first = owner.begin() + static_cast<int64_t>(segments_before[s].first_row);
    std::fill_n(first, segments_before[s].n_rows, s);
  }
  for (int round = 0; round < 6; ++round) {
    const size_t first = rng_.below(origin.size());
    const size_t n_old = rng_.below(std::min<size_t>(origin.size() - first, 25) + 1);
    const std::vector<int32_t> tokens = some_tokens(4);
    if (n_old == origin.size() && tokens.empty()) continue;
    replace(fusion, first, n_old, tokens);
    const auto at = origin.begin() + static_cast<int64_t>(first);
    origin.insert(origin.erase(at, at + static_cast<int64_t>(n_old)), tokens.size(), std::nullopt);
    const auto owners = owner.begin() + static_cast<int64_t>(first);
    const auto behind = owner.erase(owners, owners + static_cast<int64_t>(n_old));
    const bool inside = first > 0 && behind != owner.end() && *behind == *(behind - 1);
    owner.insert(behind, tokens.size(), inside ? *behind : SIZE_MAX);
  }

  std::vector<uint32_t> selected_now;
  for (uint32_t i = 0; i < origin.size(); ++i) {
    if (origin[i] && std::binary_search(selected_before.begin(), selected_before.end(), *origin[i]))
      selected_now.push_back(i);
  }
  EXPECT_EQ(selected(fusion), selected_now);
  const std::vector<float> deviation_now = deviation(fusion);
  ASSERT_LE(deviation_now.size(), origin.size());
  for (size_t i = 0; i < origin.size(); ++i) {
    const bool of_prompt = origin[i] && *origin[i] < deviation_before.size();
    const float want = of_prompt ? deviation_before[*origin[i]] : 0.0f;
    EXPECT_TRUE(i < deviation_now.size() || !of_prompt) << i;
    EXPECT_EQ(i < deviation_now.size() ? deviation_now[i] : 0.0f, want) << i;
  }
  for (size_t s = 0; s < segments_before.size(); ++s) {
    const blend_segment_info &was = segments_before[s], now = segment_info(fusion, s);
    std::vector<uint32_t> left;  // rows of it, where they are now
    for (uint32_t i = 0; i < origin.size(); ++i) {
      if (owner[i] == s) left.push_back(i);
    }
    SCOPED_TRACE(testing::Message() << "segment " << s << " of " << was.n_rows << " rows");
    if (left.empty()) {
      EXPECT_EQ(now.n_rows, 0u);
      EXPECT_EQ(now.n_rows_selected, 0u);
      continue;
    }
    EXPECT_EQ(now.first_row, left.front());
    EXPECT_EQ(now.n_rows, left.back() - left.front() + 1);
    EXPECT_EQ(now.n_rows_selected, static_cast<uint64_t>(std::count_if(
                                       selected_now.begin(), selected_now.end(), [&](uint32_t row) {
                                         return row >= left.front() && row <= left.back();
                                       })));
    EXPECT_EQ(now.source, was.source);
    EXPECT_EQ(now.exact, was.exact);
  }
  const blend_fusion_report info_now = info(fusion);
  EXPECT_EQ(info_now.flags, info_before.flags | BLEND_FUSION_EDITED);
  EXPECT_EQ(info_now.n_rows, info_before.n_rows);
  EXPECT_EQ(info_now.n_rows_selected, info_before.n_rows_selected);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Edit, testing::Range(0, 12));

// A conversation that is kept inside a window for long: each turn of K rounds it once more.
TEST(EditForLong, RoundingStaysRounding) {
  const TempDir dir;
  RandomModelSpec spec;
  spec.n_layers = 3;
  const std::string path = write_random_model(spec, dir.file("model.gguf"));
  const ReferenceModel reference(path);
  const Ctx ctx = make_ctx();
  const Model model = open_model(ctx, path);
  SplitMix rng(5);
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, random_tokens(rng, spec.n_vocab, 24), false}};
  const FuseCase how{.policy = BLEND_POLICY_FULL};
  const Fusion fusion = fuse(model, Store(), prompt, how);
  ASSERT_TRUE(fusion);
  ReferenceFusion want = reference_fuse(reference, prompt, reference_options(how, DType::f32));
  std::vector<int32_t> all = prompt[0].tokens;
  for (int turn = 0; turn < 150; ++turn) {
    // Two out, two in, of which the row that stays longest is turned twelve times.
    const auto next = random_tokens(rng, spec.n_vocab, 2);
    decode(fusion, next);
    reference_decode(reference, want, next);
    all.insert(all.end(), next.begin(), next.end());
    replace(fusion, 1, 2, {});
    reference_replace(reference, want, all, 1, 2, {});
    ASSERT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance) << "turn " << turn;
  }
  EXPECT_EQ(tokens_of(fusion), all);
}

}  // namespace
}  // namespace blend::test
