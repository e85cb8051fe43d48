// Models whose layers do not all keep K and V of one width: layers that do not attend (LFM2
// convolves, Qwen3.5 has Gated DeltaNets, Granite 4 H Mamba-2s, Falcon-H1 those beside attention),
// layers that share K and V or have heads of their own (Gemma 3n, Gemma 4), and layers that keep
// latent rows (DeepSeek). Beyond what
// families_test.cpp asks of every family: turns, forks, batches, saved fusions, drafts, records in
// context, codecs, embeddings, profiles; and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "blend/batch.h"
#include "blend/embed.h"
#include "blend/precompute.h"
#include "blend/profile.h"
#include "conformance/expect.h"
#include "model/model_source.h"
#include "support/hf_writer.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

RandomModelSpec spec_of(const std::string& name) {
  for (const RandomFamily& family : random_families()) {
    if (family.name == name) return family.spec;
  }
  return {};
}

class OneModel {
 protected:
  explicit OneModel(const std::string& family)
      : spec_(spec_of(family)),
        path_(write_random_model(spec_, dir_.file("model.gguf"))),
        reference_(path_),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)),
        store_(open_store(ctx_, dir_.file("store"))) {
    SplitMix rng(5);
    for (const size_t n : {25u, 1u, 30u, 2u, 18u}) {
      prompt_.push_back({BLEND_SEGMENT_CHUNK, tokens(rng, n), false});
    }
    prompt_.push_back({BLEND_SEGMENT_QUESTION, tokens(rng, 7), false});
    turn_ = {{BLEND_SEGMENT_CHUNK, tokens(rng, 12), false},
             {BLEND_SEGMENT_QUESTION, tokens(rng, 4), false}};
    more_ = tokens(rng, 9);
  }
  std::vector<int32_t> tokens(SplitMix& rng, size_t n) const {
    std::vector<int32_t> out;
    for (size_t i = 0; i < n; ++i) {
      out.push_back(static_cast<int32_t>(3 + rng.below(spec_.n_vocab - 3)));
    }
    return out;
  }
  std::vector<double> full(const std::vector<int32_t>& all) const {
    return reference_.prefill(all).logits.back();
  }

  // A profile of two prompts; of one policy, or the usual ones.
  Profile calibrated(uint32_t policy) {
    std::vector<Prompt> prompts = {prompt_, {prompt_[2], prompt_[0], prompt_[5]}};
    std::vector<std::vector<blend_segment>> segments;
    for (const Prompt& prompt : prompts) segments.push_back(segments_of(prompt));
    std::vector<blend_sample> samples;
    for (const auto& list : segments) {
      blend_sample sample{};
      sample.struct_size = sizeof sample;
      sample.segments = list.data();
      sample.n_segments = list.size();
      samples.push_back(sample);
    }
    blend_calibrate_options options;
    EXPECT_EQ(blend_calibrate_options_init(&options, sizeof options), BLEND_OK);
    const double ratios[] = {0, 0.3, 1};
    options.ratios = ratios;
    options.n_ratios = 3;
    options.score_tokens = 3;
    if (policy != BLEND_POLICY_AUTO) {
      options.policies = &policy;
      options.n_policies = 1;
    }
    blend_error* error = nullptr;
    const std::string path = dir_.file("profile");
    const int32_t code = blend_calibrate(model_.get(), samples.data(), samples.size(), &options,
                                         path.c_str(), &error);
    const Outcome made = outcome(code, error);
    EXPECT_GE(made.code, 0) << made.message;
    blend_profile* raw = nullptr;
    EXPECT_EQ(blend_profile_open(&raw, model_.get(), path.c_str(), nullptr), BLEND_OK);
    return Profile(raw);
  }

  // A host's cache of K and V has no place for what this model keeps: steps and imports are
  // refused.
  void expect_no_host_kv(const std::string& word) {
    blend_layerwise* layerwise = nullptr;
    const FuseCase hkvd{.on_miss = BLEND_MISS_COMPUTE};
    const blend_fuse_options options = options_of(hkvd);
    const std::vector<blend_segment> segments = segments_of(prompt_);
    blend_error* error = nullptr;
    int32_t code = blend_layerwise_create(&layerwise, model_.get(), store_.get(), segments.data(),
                                          segments.size(), &options, &error);
    const Outcome steps = outcome(code, error);
    EXPECT_EQ(steps.code, BLEND_E_UNSUPPORTED);
    EXPECT_NE(steps.message.find("own engine"), std::string::npos) << steps.message;

    std::vector<float> rows(size_t{3} * spec_.n_kv_heads * spec_.head_dim);
    blend_kv_view view{};
    view.struct_size = sizeof view;
    view.k = view.v = rows.data();
    const std::vector<blend_kv_view> views(spec_.n_layers, view);
    const std::vector<int32_t> three = {3, 4, 5};
    code = blend_chunk_put(model_.get(), store_.get(), three.data(), three.size(), views.data(),
                           views.size(), 0, nullptr, nullptr, &error);
    const Outcome put = outcome(code, error);
    EXPECT_EQ(put.code, BLEND_E_UNSUPPORTED);
    EXPECT_NE(put.message.find(word), std::string::npos) << put.message;
  }

  TempDir dir_;
  RandomModelSpec spec_;
  std::string path_;
  ReferenceModel reference_;
  Ctx ctx_;
  Model model_;
  Store store_;
  Prompt prompt_, turn_;
  std::vector<int32_t> more_;
};

class UnlikeLayers : public testing::TestWithParam<const char*>, protected OneModel {
 protected:
  UnlikeLayers() : OneModel(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(All, UnlikeLayers,
                         testing::Values("lfm2", "qwen35", "qwen35moe", "qwen3next", "granite4_h",
                                         "granite4_h_moe", "nemotron_h", "nemotron_3",
                                         "nemotron_3_latent", "falcon_h1", "gemma4", "gemma4_31b",
                                         "gemma4_26b", "gemma3n", "deepseek2_lite", "deepseek3",
                                         "glm4_7_flash"),
                         [](const auto& test) { return std::string(test.param); });

// Those of them in which some layers do not attend.
class RowMixers : public testing::TestWithParam<const char*>, protected OneModel {
 protected:
  RowMixers() : OneModel(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(All, RowMixers,
                         testing::Values("lfm2", "qwen35", "qwen35moe", "qwen3next", "granite4_h",
                                         "falcon_h1"),
                         [](const auto& test) { return std::string(test.param); });

class SharedKv : public testing::TestWithParam<const char*>, protected OneModel {
 protected:
  SharedKv() : OneModel(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(All, SharedKv, testing::Values("gemma4", "gemma3n"),
                         [](const auto& test) { return std::string(test.param); });

class Gemma4File : public testing::Test, protected OneModel {
 protected:
  Gemma4File() : OneModel("gemma4") {}
};

// Chunks of one and two tokens are shorter than the convolutions reach: a row reads rows of several
// chunks before it.
TEST_P(UnlikeLayers, FuseShortChunksByEveryPolicy) {
  for (const uint32_t policy :
       {BLEND_POLICY_REUSE, BLEND_POLICY_HKVD, BLEND_POLICY_FIRST_K, BLEND_POLICY_RANDOM,
        BLEND_POLICY_PROBE, BLEND_POLICY_CASCADE, BLEND_POLICY_ATTENTION, BLEND_POLICY_QUESTION,
        BLEND_POLICY_CONTEXT_IMPACT, BLEND_POLICY_APE}) {
    for (const double ratio : {0.2, 1.0}) {
      const FuseCase how{.policy = policy, .metric = BLEND_METRIC_KV, .ratio = ratio};
      SCOPED_TRACE(testing::Message() << how);
      const Fusion fusion = fuse(model_, store_, prompt_, how);
      ASSERT_TRUE(fusion);
      ReferenceFusion want = expect_like_reference(reference_, fusion, prompt_, how);
      decode(fusion, more_);
      reference_decode(reference_, want, more_);
      EXPECT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance);
    }
  }
}

TEST_P(UnlikeLayers, ChunksAfterAHeadAreExactThere) {
  std::vector<int32_t> head(more_.begin(), more_.begin() + 5);
  Prompt prompt = prompt_;
  prompt.insert(prompt.begin(), {BLEND_SEGMENT_PREFIX, head, false});
  for (const double ratio : {0.0, 0.3, 1.0}) {
    const FuseCase how{.metric = BLEND_METRIC_KV, .ratio = ratio, .chunk_prefix = head};
    SCOPED_TRACE(testing::Message() << how);
    const Fusion fusion = fuse(model_, store_, prompt, how);
    ASSERT_TRUE(fusion);
    expect_like_reference(reference_, fusion, prompt, how);
    EXPECT_EQ(segment_info(fusion, 1).exact, 1u);
  }
}

TEST_P(UnlikeLayers, TurnsForksAndSavedFusionsGoOnAsFullPrefillDoes) {
  const FuseCase how{.ratio = 1.0, .reserve_tokens = 64};
  const Fusion fusion = fuse(model_, store_, prompt_, how);
  ASSERT_TRUE(fusion);
  std::vector<int32_t> all = flatten(prompt_);
  blend_error* error = nullptr;
  blend_chunk_id id{};
  ASSERT_EQ(
      outcome(blend_fusion_save(fusion.get(), store_.get(), nullptr, nullptr, &id, &error), 0).code,
      BLEND_OK);
  ASSERT_EQ(blend_store_flush(store_.get(), nullptr), BLEND_OK);
  blend_fusion* raw = nullptr;
  ASSERT_EQ(blend_fusion_fork(&raw, fusion.get(), nullptr), BLEND_OK);
  const Fusion fork(raw);
  ASSERT_EQ(try_extend(fusion, store_, turn_, how).message, "");
  std::vector<int32_t> longer = all;
  for (const auto& s : turn_) longer.insert(longer.end(), s.tokens.begin(), s.tokens.end());
  EXPECT_LE(max_difference(logits(fusion), full(longer)), kLogitTolerance);
  // The fork and the saved fusion know nothing of the turn.
  decode(fork, more_);
  raw = nullptr;
  ASSERT_EQ(
      blend_fusion_restore(&raw, model_.get(), store_.get(), &id, nullptr, 64, nullptr, nullptr),
      BLEND_OK);
  const Fusion restored(raw);
  EXPECT_LE(max_difference(logits(restored), full(all)), kLogitTolerance);
  for (const int32_t token : more_) decode(restored, {token});
  all.insert(all.end(), more_.begin(), more_.end());
  EXPECT_LE(max_difference(logits(fork), full(all)), kLogitTolerance);
  EXPECT_LE(max_difference(logits(restored), full(all)), kLogitTolerance);
}

// What replaces the end of a prompt is computed on what precedes it: a full prefill again.
TEST_P(UnlikeLayers, AnotherEndIsComputedOnWhatPrecedesIt) {
  const Fusion fusion = fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_FULL});
  ASSERT_TRUE(fusion);
  std::vector<int32_t> all = flatten(prompt_);
  const size_t first = all.size() - 11;
  replace(fusion, first, 11, more_);
  all.resize(first);
  all.insert(all.end(), more_.begin(), more_.end());
  EXPECT_LE(max_difference(logits(fusion), full(all)), kLogitTolerance);
  // And without an end.
  replace(fusion, first + 1, more_.size() - 1, {});
  all.resize(first + 1);
  EXPECT_LE(max_difference(logits(fusion), full(all)), kLogitTolerance);
}

TEST_P(UnlikeLayers, ABatchIsItsPromptsOneByOne) {
  Prompt other = {prompt_[2], prompt_[0], prompt_[5]};
  const FuseCase how{.ratio = 0.3};
  const blend_fuse_options options = options_of(how);
  std::vector<std::vector<blend_segment>> segments = {segments_of(prompt_), segments_of(other)};
  std::vector<blend_fuse_request> requests(2);
  for (size_t i = 0; i < 2; ++i) {
    requests[i] = blend_fuse_request{}, requests[i].struct_size = sizeof requests[i];
    requests[i].segments = segments[i].data();
    requests[i].n_segments = segments[i].size();
    requests[i].options = &options;
  }
  std::vector<blend_fusion*> out(2, nullptr);
  ASSERT_EQ(blend_fuse_batch(out.data(), nullptr, model_.get(), store_.get(), requests.data(), 2,
                             nullptr),
            BLEND_OK);
  const Fusion first(out[0]), second(out[1]);
  const Fusion alone_first = fuse(model_, store_, prompt_, how),
               alone_second = fuse(model_, store_, other, how);
  EXPECT_EQ(logits(first), logits(alone_first));
  EXPECT_EQ(logits(second), logits(alone_second));
}

// Drafts that are rejected leave nothing in the cache that a later row reads.
TEST_P(UnlikeLayers, PromptLookupChangesNoToken) {
  const auto answer = [&](uint32_t match) {
    const Fusion fusion =
        fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_FULL, .reserve_tokens = 200});
    blend_generate_options options;
    EXPECT_EQ(blend_generate_options_init(&options, sizeof options), BLEND_OK);
    options.max_tokens = 150;
    options.temperature = 0;
    options.draft_match = std::max(1u, match);
    options.draft_tokens = match == 0 ? 0 : 7;
    std::vector<int32_t> got;
    const blend_token_fn take = [](void* user, int32_t token, const char*, size_t) -> int32_t {
      static_cast<std::vector<int32_t>*>(user)->push_back(token);
      return 0;
    };
    EXPECT_GE(blend_fusion_generate(fusion.get(), &options, take, &got, nullptr, nullptr), 0);
    return got;
  };
  const std::vector<int32_t> plain = answer(0);
  EXPECT_GT(plain.size(), 8u);
  EXPECT_EQ(answer(1), plain);
  EXPECT_EQ(answer(2), plain);
}

TEST_P(UnlikeLayers, RecordsInContextFuse) {
  blend_precompute_options options;
  ASSERT_EQ(blend_precompute_options_init(&options, sizeof options), BLEND_OK);
  const blend_context_passage passages[] = {{prompt_[2].tokens.data(), prompt_[2].tokens.size()},
                                            {prompt_[4].tokens.data(), prompt_[4].tokens.size()}};
  options.contexts = passages;
  options.n_contexts = 2;
  blend_error* error = nullptr;
  const int32_t code = blend_precompute(model_.get(), store_.get(), prompt_[0].tokens.data(),
                                        prompt_[0].tokens.size(), &options, nullptr, &error);
  ASSERT_EQ(outcome(code, error).message, "");
  ASSERT_EQ(blend_store_flush(store_.get(), nullptr), BLEND_OK);
  Prompt prompt = {prompt_[2], prompt_[0], prompt_[5]};
  const Fusion reuse = fuse(model_, store_, prompt, {.policy = BLEND_POLICY_REUSE});
  EXPECT_EQ(segment_info(reuse, 1).source, BLEND_SOURCE_STORE);
  for (const float l : logits(reuse)) ASSERT_TRUE(std::isfinite(l));
  const Fusion one = fuse(model_, store_, prompt, {.ratio = 1.0});
  EXPECT_LE(max_difference(logits(one), full(flatten(prompt))), kLogitTolerance);
}

// Rounding costs about what it costs elsewhere, more where it sends a row to another expert, and
// nothing where everything is recomputed.
TEST_P(UnlikeLayers, CodecsRoundTheirRows) {
  const Fusion exact = fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_REUSE});
  for (const uint32_t codec :
       {BLEND_CODEC_ZSTD, BLEND_CODEC_INT8, BLEND_CODEC_INT4, BLEND_CODEC_RANS}) {
    SCOPED_TRACE(codec);
    blend_store_options options;
    ASSERT_EQ(blend_store_options_init(&options, sizeof options), BLEND_OK);
    options.codec = codec;
    options.kv_dtype = BLEND_DTYPE_F32;
    blend_store* raw = nullptr;
    const std::string path = dir_.file("codec" + std::to_string(codec));
    ASSERT_EQ(blend_store_open(&raw, ctx_.get(), path.c_str(), &options, nullptr), BLEND_OK);
    const Store store(raw);
    precompute_all(model_, store, prompt_, {});
    const Fusion rounded = fuse(model_, store, prompt_, {.policy = BLEND_POLICY_REUSE});
    const double off = max_difference(logits(exact), logits(rounded));
    if (codec == BLEND_CODEC_ZSTD) {
      EXPECT_LE(off, kLogitTolerance);
    } else {
      const double most = spec_.n_experts == 0 ? 0.5 : 2;
      EXPECT_LE(off, codec == BLEND_CODEC_INT8 ? most : 10);
      EXPECT_GT(off, 1e-5);
    }
    // After some text no chunk is exact, so all rows are recomputed.
    Prompt later = prompt_;
    later.insert(later.begin(), {BLEND_SEGMENT_TEXT, more_, false});
    const Fusion one = fuse(model_, store, later, {.ratio = 1.0});
    EXPECT_LE(max_difference(logits(one), full(flatten(later))), kLogitTolerance);
  }
}

TEST_P(UnlikeLayers, EmbedAsFullPrefillDoes) {
  blend_embed_options options;
  ASSERT_EQ(blend_embed_options_init(&options, sizeof options), BLEND_OK);
  options.pooling = BLEND_POOLING_LAST;
  options.unnormalized = 1;
  const std::vector<int32_t> all = flatten(prompt_);
  const size_t lengths[] = {10, all.size() - 10};
  std::vector<float> vectors(2 * size_t{spec_.d_model});
  ASSERT_EQ(blend_model_embed_tokens(model_.get(), all.data(), lengths, 2, &options, vectors.data(),
                                     vectors.size(), nullptr),
            BLEND_OK);
  const std::vector<int32_t> first(all.begin(), all.begin() + 10),
      second(all.begin() + 10, all.end());
  for (size_t i = 0; i < 2; ++i) {
    const auto at = vectors.begin() + static_cast<int64_t>(i * spec_.d_model);
    EXPECT_LE(max_difference(std::vector<float>(at, at + spec_.d_model),
                             reference_.prefill(i == 0 ? first : second).hidden.back()),
              1e-4);
  }
}

TEST_P(UnlikeLayers, SayHowManyBytesATokenTakes) {
  blend_model_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_model_get_info(model_.get(), &info, nullptr), BLEND_OK);
  uint64_t elements = 0;
  for (uint32_t i = 0; i < spec_.n_layers; ++i) {
    elements += spec_.kept_of(i);
  }
  EXPECT_EQ(info.kv_bytes_per_token, elements * sizeof(float));
  blend_chunk_id id{};
  ASSERT_EQ(precompute(model_, store_, prompt_[0].tokens, {}, &id), BLEND_OK);
  uint64_t bytes = 0;
  const blend_chunk_fn sum = [](void* user, const blend_chunk_info* chunk, const char*) -> int32_t {
    *static_cast<uint64_t*>(user) += chunk->bytes;
    return 0;
  };
  ASSERT_GE(blend_store_list(store_.get(), nullptr, nullptr, 0, sum, &bytes, nullptr), 0);
  EXPECT_EQ(bytes, elements * sizeof(float) * prompt_[0].tokens.size());
}

// Greedy answers of forks that part, one of them with drafts: neither knows of the other.
TEST_P(UnlikeLayers, ForksDecodeByThemselves) {
  const Fusion fusion = fuse(model_, store_, prompt_, {.ratio = 0.3, .reserve_tokens = 64});
  ASSERT_TRUE(fusion);
  decode(fusion, {more_[0]});
  blend_fusion* raw = nullptr;
  ASSERT_EQ(blend_fusion_fork(&raw, fusion.get(), nullptr), BLEND_OK);
  const Fusion fork(raw);
  const Fusion alone = fuse(model_, store_, prompt_, {.ratio = 0.3, .reserve_tokens = 64});
  decode(alone, {more_[0]});
  for (size_t i = 1; i < more_.size(); ++i) {
    decode(fork, {more_[more_.size() - i]});
    decode(fusion, {more_[i]});
    decode(alone, {more_[i]});
    ASSERT_EQ(logits(fusion), logits(alone)) << i;
  }
  const Fusion other = fuse(model_, store_, prompt_, {.ratio = 0.3, .reserve_tokens = 64});
  decode(other, {more_[0]});
  for (size_t i = 1; i < more_.size(); ++i) decode(other, {more_[more_.size() - i]});
  EXPECT_EQ(logits(fork), logits(other));
}

// A row in the middle is another one: what follows must not be computed on what it was.
TEST_P(UnlikeLayers, AnEditBetweenTokensIsSeen) {
  const Fusion fusion =
      fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_FULL, .reserve_tokens = 64});
  decode(fusion, {more_[0]});
  replace(fusion, 20, 3, {more_[1], more_[2]});
  blend_error* error = nullptr;
  blend_chunk_id id{};
  ASSERT_EQ(
      outcome(blend_fusion_save(fusion.get(), store_.get(), nullptr, nullptr, &id, &error), 0).code,
      BLEND_OK);
  ASSERT_EQ(blend_store_flush(store_.get(), nullptr), BLEND_OK);
  blend_fusion* raw = nullptr;
  ASSERT_EQ(
      blend_fusion_restore(&raw, model_.get(), store_.get(), &id, nullptr, 64, nullptr, nullptr),
      BLEND_OK);
  const Fusion restored(raw);  // with nothing but rows
  for (const int32_t token : more_) {
    decode(fusion, {token});
    decode(restored, {token});
    ASSERT_LE(max_difference(logits(fusion), logits(restored)), kLogitTolerance);
  }
}

// Drift maps are fitted only where all layers keep as much, and the profile that is written fuses.
TEST_P(UnlikeLayers, AreCalibrated) {
  const Profile profile = calibrated(BLEND_POLICY_AUTO);
  blend_profile_info info_of{};
  info_of.struct_size = sizeof info_of;
  ASSERT_EQ(blend_profile_get_info(profile.get(), &info_of, nullptr), BLEND_OK);
  const bool alike = spec_.latent_rank != 0;
  EXPECT_EQ(info_of.n_fitted, alike ? 1u : 0u);
  EXPECT_EQ(info_of.drift_inputs != 0, alike);
  const Fusion fusion = fuse(model_, store_, prompt_, {.ratio = 0.3, .profile = profile.get()});
  ASSERT_TRUE(fusion);
  EXPECT_TRUE(alike || info(fusion).n_rows_corrected == 0);
}

TEST_P(RowMixers, WhatIsRefusedIsNamed) {
  // Of an LFM2, layers 2 and 5 attend, and 5 is the first whose K and V depend on rows far away; of
  // a Qwen3.5 and a Granite 4 H it is 3 of 3 and 7, of a Falcon-H1 2 of 0, 2, 4 and 6.
  const bool scans = spec_.scans(), paired = spec_.paired;
  const uint32_t first = paired ? 2 : scans ? 3 : 5;
  EXPECT_EQ(info(fuse(model_, store_, prompt_, {.check_layer = 1})).check_layer, first);
  EXPECT_EQ(info(fuse(model_, store_, prompt_, {.check_layer = first})).check_layer, first);
  if (scans && !paired) {
    EXPECT_EQ(info(fuse(model_, store_, prompt_, {.check_layer = 4})).check_layer, 7u);
  } else {
    const Outcome late =
        try_fuse(model_, store_, prompt_, {.check_layer = paired ? 7u : 6u}).outcome;
    EXPECT_EQ(late.code, BLEND_E_UNSUPPORTED) << late.message;
  }
  const uint32_t attends = scans && !paired ? 3 : 2, mixes = paired ? 5 : 4;
  const Outcome listed =
      try_fuse(model_, store_, prompt_, {.check_layers = {{attends, 0.5}, {mixes, 0.2}}}).outcome;
  EXPECT_EQ(listed.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(listed.message.find("layer " + std::to_string(mixes)), std::string::npos)
      << listed.message;
  EXPECT_NE(listed.message.find(paired  ? "2, 4, 6"
                                : scans ? "3, 7"
                                        : "2, 5"),
            std::string::npos)
      << listed.message;
  const uint32_t last = paired ? 6 : scans ? 7 : 5;
  EXPECT_TRUE(fuse(model_, store_, prompt_, {.check_layers = {{attends, 0.5}, {last, 0.2}}}));

  expect_no_host_kv("do not attend");
}

// Layers 0 to 5 of eight keep K and V.
TEST_P(SharedKv, IsNeitherStoredNorLoadedNorAskedFor) {
  blend_chunk_id id{};
  ASSERT_EQ(precompute(model_, store_, prompt_[0].tokens, {}, &id), BLEND_OK);
  uint32_t layers = 0;
  const blend_chunk_fn look = [](void* user, const blend_chunk_info* chunk,
                                 const char*) -> int32_t {
    *static_cast<uint32_t*>(user) = chunk->n_layers;
    return 0;
  };
  ASSERT_GE(blend_store_list(store_.get(), nullptr, nullptr, 0, look, &layers, nullptr), 0);
  EXPECT_EQ(layers, 6u);
  EXPECT_EQ(info(fuse(model_, store_, prompt_, {.ratio = 0.3})).n_layers, 6u);
  const Outcome late = try_fuse(model_, store_, prompt_, {.check_layer = 6}).outcome;
  EXPECT_EQ(late.code, BLEND_E_INVALID_ARGUMENT) << late.message;
  EXPECT_TRUE(fuse(model_, store_, prompt_, {.check_layers = {{1, 0.5}, {5, 0.2}}}));
}

// Rows that are left at layer 4 are stale from layer 5 on: layer 6 attends over layer 4's rows,
// which are not, and layer 7 over layer 5's.
TEST_P(SharedKv, IsTemperedWhereRowsAreStaleInTheLayerThatKeepsThem) {
  FuseCase how{.policy = BLEND_POLICY_UNION, .check_layers = {{4, 0.3}}};
  how.terms = {{BLEND_POLICY_HKVD, 1.0}, {BLEND_POLICY_APE, 1.0}};
  how.ape_temperature = 0.5;
  const Fusion fusion = fuse(model_, store_, prompt_, how);
  ASSERT_TRUE(fusion);
  ReferenceFusion want = expect_like_reference(reference_, fusion, prompt_, how);
  decode(fusion, more_);
  reference_decode(reference_, want, more_);
  // Its embeddings by layer are scaled up; with AVX2 the difference is 1.3e-4.
  EXPECT_LE(max_difference(logits(fusion), want.logits), 2 * kLogitTolerance);
}

TEST_P(SharedKv, WhatIsRefusedIsNamed) { expect_no_host_kv("share"); }

class LatentRows : public testing::Test, protected OneModel {
 protected:
  LatentRows() : OneModel("deepseek3") {}
};

TEST_F(LatentRows, WhatIsRefusedIsNamed) { expect_no_host_kv("latent"); }

// Their one KV head has all query heads, so threads share those out.
TEST_F(LatentRows, HaveTheSameBitsOnAnyNumberOfThreads) {
  RandomModelSpec spec = spec_;
  spec.n_heads = 20;
  const std::string path = write_random_model(spec, dir_.file("heads.gguf"));
  std::vector<float> prompt, answer;
  for (const uint32_t threads : {1u, 2u, 4u}) {
    const Ctx ctx = make_ctx(threads);
    const Model model = open_model(ctx, path);
    const Fusion fusion = fuse(model, Store(), prompt_, {.policy = BLEND_POLICY_FULL});
    ASSERT_TRUE(fusion);
    if (threads == 1) prompt = logits(fusion);
    EXPECT_EQ(logits(fusion), prompt) << threads;
    for (const int32_t token : more_) decode(fusion, {token});
    if (threads == 1) answer = logits(fusion);
    EXPECT_EQ(logits(fusion), answer) << threads;
  }
}

// The halves of latent rows drift, are measured and are corrected as K and V are.
TEST_F(LatentRows, AreCorrectedByDriftMaps) {
  const Profile profile = calibrated(BLEND_POLICY_HKVD);
  blend_profile_info info_of{};
  info_of.struct_size = sizeof info_of;
  ASSERT_EQ(blend_profile_get_info(profile.get(), &info_of, nullptr), BLEND_OK);
  EXPECT_EQ(info_of.n_fitted, 1u);
  const FuseCase how{.policy = BLEND_POLICY_HKVD,
                     .ratio = 0.3,
                     .profile = profile.get(),
                     .correction = BLEND_CORRECTION_ON};
  const Fusion fusion = fuse(model_, store_, prompt_, how);
  ASSERT_TRUE(fusion);
  EXPECT_GT(info(fusion).n_rows_corrected, 0u);
  for (const float l : logits(fusion)) ASSERT_TRUE(std::isfinite(l));
  const Fusion one = fuse(model_, store_, prompt_, {.ratio = 1.0, .profile = profile.get()});
  EXPECT_LE(max_difference(logits(one), full(flatten(prompt_))), kLogitTolerance);
}

TEST_F(Gemma4File, IsReadAsConvertersWriteThemAndRefusedByName) {
  const auto open = [&](GgufWriter writer, Model* model = nullptr) {
    blend_model* raw = nullptr;
    blend_error* error = nullptr;
    const std::string path = writer.write(dir_.file("other.gguf"));
    const int32_t code = blend_model_open(&raw, ctx_.get(), path.c_str(), nullptr, &error);
    Model owned(raw);
    if (model != nullptr) *model = std::move(owned);
    return outcome(code, error);
  };
  // Converters keep K and V of layers that do not use them.
  GgufWriter more = random_model(spec_);
  for (const char* const name :
       {"blk.6.attn_k.weight", "blk.6.attn_v.weight", "blk.6.attn_k_norm.weight"}) {
    more.tensor(name, kGgmlF32, {1}, std::string(4, '\0'));
  }
  Model model;
  ASSERT_EQ(open(std::move(more), &model).message, "");
  const FuseCase whole{.policy = BLEND_POLICY_FULL};
  EXPECT_EQ(logits(fuse(model, Store(), prompt_, whole)),
            logits(fuse(model_, Store(), prompt_, whole)));

  const auto expect = [&](int32_t code, const std::string& word, GgufWriter writer) {
    const Outcome got = open(std::move(writer));
    EXPECT_EQ(got.code, code) << got.message;
    EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
  };
  const std::string a = "gemma4.attention.";
  const auto changed = [&] { return random_model(spec_); };
  expect(BLEND_E_FORMAT, "shared_kv_layers", changed().u32(a + "shared_kv_layers", 8));
  expect(BLEND_E_FORMAT, "shares the K and V", changed().u32(a + "shared_kv_layers", 6));
  expect(BLEND_E_FORMAT, "sliding_window", changed().erase_key(a + "sliding_window"));
  expect(BLEND_E_FORMAT, "sliding_window_pattern", changed().u32(a + "sliding_window_pattern", 3));
  expect(BLEND_E_FORMAT, "key_length_swa", changed().erase_key(a + "key_length_swa"));
  expect(BLEND_E_FORMAT, "entries", changed().i32s(a + "head_count_kv", {2, 2}));
  expect(BLEND_E_FORMAT, "head_count", changed().i32s(a + "head_count_kv", std::vector(8, 3)));
  expect(BLEND_E_FORMAT, "feed_forward_length",
         changed().i32s("gemma4.feed_forward_length", std::vector(8, -1)));
  expect(BLEND_E_FORMAT, "per_layer_token_embd",
         changed().u32("gemma4.embedding_length_per_layer_input", 4));
  expect(BLEND_E_FORMAT, "blk.3.proj", changed().erase_tensor("blk.3.proj.weight"));
  expect(BLEND_E_FORMAT, "expert_used_count", changed().u32("gemma4.expert_count", 8));
  expect(BLEND_E_UNSUPPORTED, "blk.1.attn_q.bias",
         changed().tensor("blk.1.attn_q.bias", kGgmlF32, {64}, std::string(256, '\0')));
  expect(BLEND_E_UNSUPPORTED, "'bloom'",
         random_model(spec_).string("general.architecture", "bloom"));
}

// Changed files of a family's random model.
class MixerFile : public testing::Test {
 protected:
  Outcome opened(GgufWriter writer) {
    blend_model* raw = nullptr;
    blend_error* error = nullptr;
    const std::string path = writer.write(dir_.file("other.gguf"));
    const int32_t code = blend_model_open(&raw, ctx_.get(), path.c_str(), nullptr, &error);
    const Model model(raw);
    return outcome(code, error);
  }
  void expect(int32_t code, const std::string& word, GgufWriter writer) {
    const Outcome got = opened(std::move(writer));
    EXPECT_EQ(got.code, code) << got.message;
    EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
  }
  TempDir dir_;
  Ctx ctx_ = make_ctx();
};

// The list of KV heads says which layers convolve.
TEST_F(MixerFile, AnLfm2ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("lfm2");
  const std::string kv = "lfm2.attention.head_count_kv", taps = "lfm2.shortconv.l_cache";
  const std::vector<int32_t> good = {0, 0, 2, 0, 0, 2, 0, 0};
  EXPECT_EQ(opened(random_model(spec).i32s(kv, good)).message, "");
  expect(BLEND_E_FORMAT, "entries", random_model(spec).i32s(kv, {0, 2}));
  expect(BLEND_E_UNSUPPORTED, "alike", random_model(spec).i32s(kv, {0, 0, 2, 0, 0, 1, 0, 0}));
  expect(BLEND_E_UNSUPPORTED, "attends", random_model(spec).i32s(kv, std::vector<int32_t>(8, 0)));
  // Layer 1 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.1.attn_q", random_model(spec).i32s(kv, {0, 2, 2, 0, 0, 2, 0, 0}));
  expect(BLEND_E_FORMAT, taps, random_model(spec).erase_key(taps));
  expect(BLEND_E_FORMAT, "shortconv.conv", random_model(spec).u32(taps, 4));
  expect(BLEND_E_FORMAT, "shortconv.in_proj",
         random_model(spec).erase_tensor("blk.0.shortconv.in_proj.weight"));
}

TEST_F(MixerFile, AQwen35ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("qwen35");
  const std::string layers = "qwen35.attention.recurrent_layers";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(std::string("qwen35.") + key, value);
  };
  const std::vector<int32_t> good = {1, 1, 1, 0, 1, 1, 1, 0};
  EXPECT_EQ(opened(random_model(spec).i32s(layers, good)).message, "");
  EXPECT_EQ(opened(random_model(spec).erase_key("qwen35.full_attention_interval")).message, "");
  expect(BLEND_E_FORMAT, "entries", random_model(spec).i32s(layers, {1, 0}));
  expect(BLEND_E_UNSUPPORTED, "attends",
         random_model(spec).i32s(layers, std::vector<int32_t>(8, 1)));
  expect(BLEND_E_UNSUPPORTED, "attend",
         random_model(spec).i32s(layers, std::vector<int32_t>(8, 0)));
  // Layer 1 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.1.attn_q", random_model(spec).i32s(layers, {1, 0, 1, 0, 1, 1, 1, 0}));
  expect(BLEND_E_FORMAT, "ssm_conv1d", file("ssm.conv_kernel", 3));
  expect(BLEND_E_FORMAT, "ssm.inner_size", file("ssm.inner_size", 95));
  expect(BLEND_E_FORMAT, "no multiple", file("ssm.group_count", 3));
  expect(BLEND_E_FORMAT, "attn_qkv", file("ssm.state_size", 12));
  expect(BLEND_E_FORMAT, "ssm.conv_kernel", random_model(spec).erase_key("qwen35.ssm.conv_kernel"));
  for (const char* name : {"ssm_a", "ssm_dt.bias", "ssm_norm.weight", "attn_gate.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(std::string("blk.0.") + name));
  }
}

TEST_F(MixerFile, AQwen3NextThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("qwen3next");
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(std::string("qwen3next.") + key, value);
  };
  const auto without = [&](const char* name) {
    return random_model(spec).erase_tensor(std::string("blk.1.") + name);
  };
  EXPECT_EQ(opened(random_model(spec)).message, "");
  for (const char* name : {"ssm_ba.weight", "attn_gate.weight", "ffn_gate_inp_shexp.weight",
                           "ffn_up_shexp.weight", "ffn_gate_inp.weight"}) {
    expect(BLEND_E_FORMAT, name, without(name));
  }
  // Four value heads give b and a eight rows.
  const std::string bytes(size_t{6} * 48 * 4, '\0');
  expect(BLEND_E_FORMAT, "'blk.1.ssm_ba.weight' has the shape [6, 48]",
         random_model(spec).tensor("blk.1.ssm_ba.weight", kGgmlF32, {48, 6}, bytes));
  expect(BLEND_E_FORMAT, "'blk.1.ssm_ba.weight' has the shape [384]",
         random_model(spec).tensor("blk.1.ssm_ba.weight", kGgmlF32, {384},
                                   std::string(size_t{384} * 4, '\0')));
  expect(BLEND_E_FORMAT, "no multiple", file("ssm.group_count", 3));
  expect(BLEND_E_FORMAT, "expert_count' is 0", file("expert_count", 0));
  expect(BLEND_E_FORMAT, "1 to the 8", file("expert_used_count", 9));
  expect(BLEND_E_FORMAT, "ffn_gate_shexp", file("expert_shared_feed_forward_length", 25));
  expect(BLEND_E_UNSUPPORTED, "shexp", file("expert_shared_feed_forward_length", 0));
  // A Qwen3.5 has no place for what stands by key head.
  RandomModelSpec tiled = spec;
  tiled.architecture = "qwen35moe";
  const std::string eight(size_t{8} * 48 * 4, '\0');
  expect(BLEND_E_FORMAT, "blk.1.ssm_beta",
         random_model(tiled)
             .erase_tensor("blk.1.ssm_beta.weight")
             .tensor("blk.1.ssm_ba.weight", kGgmlF32, {48, 8}, eight));
}

// The first files of a Qwen3-Next have q, k, v and z of each key head in one tensor.
TEST_F(MixerFile, AQwen3NextMayHaveOneProjection) {
  const RandomModelSpec spec = spec_of("qwen3next");
  GgufWriter old = random_model(spec);
  auto source = open_model_source(random_model(spec).write(dir_.file("new.gguf")));
  ASSERT_TRUE(source.is_ok());
  const RowMixer& m = (*source)->config().mixer;
  const int64_t k = m.k_dim, v = int64_t{m.v_heads} / m.k_heads * m.v_dim;
  for (uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    if (!m.has(layer)) continue;
    const TensorView& qkv = (*source)->tensor(TensorRole::delta_qkv, layer);
    const TensorView& z = (*source)->tensor(TensorRole::delta_z, layer);
    std::string rows;
    const auto append = [&](const TensorView& from, int64_t first, int64_t n) {
      rows.append(reinterpret_cast<const char*>(from.row(first)),
                  static_cast<size_t>(n) * from.row_bytes());
    };
    for (int64_t head = 0; head < m.k_heads; ++head) {
      append(qkv, head * k, k);
      append(qkv, (m.k_heads + head) * k, k);
      append(qkv, 2 * m.k_heads * k + head * v, v);
      append(z, head * v, v);
    }
    const std::string blk = "blk." + std::to_string(layer) + ".";
    old.erase_tensor(blk + "attn_qkv.weight").erase_tensor(blk + "attn_gate.weight");
    old.tensor(blk + "ssm_in.weight", kGgmlF32, {48, rows.size() / (48 * 4)}, rows);
  }
  const Model one = open_model(ctx_, dir_.file("new.gguf")),
              other = open_model(ctx_, old.write(dir_.file("old.gguf")));
  ASSERT_TRUE(one && other);
  SplitMix rng(3);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(3 + rng.below(297)));
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, tokens, false}};
  const FuseCase full{.policy = BLEND_POLICY_FULL};
  EXPECT_EQ(logits(fuse(one, Store(), prompt, full)), logits(fuse(other, Store(), prompt, full)));
}

// Rows of blocks are put in order as those of elements are.
TEST_F(MixerFile, AQwen3NextMayBeQuantized) {
  RandomModelSpec spec = spec_of("qwen3next");
  spec.n_layers = 4;
  spec.blocks = {BlockType::q4_0, BlockType::q8_0};
  spec.d_model = spec.d_ff = spec.expert_d_ff = spec.shared_d_ff = 64;
  spec.head_dim = spec.delta_dim = 32;
  const Model file = open_model(ctx_, write_random_model(spec, dir_.file("blocks.gguf"))),
              directory = open_model(ctx_, write_random_hf(spec, dir_.file("hf")));
  ASSERT_TRUE(file && directory);
  SplitMix rng(3);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(3 + rng.below(297)));
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, tokens, false}};
  const FuseCase full{.policy = BLEND_POLICY_FULL};
  EXPECT_LE(max_difference(logits(fuse(file, Store(), prompt, full)),
                           logits(fuse(directory, Store(), prompt, full))),
            kLogitTolerance);
}

TEST_F(MixerFile, AGemma4WithExpertsThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("gemma4_26b");
  EXPECT_EQ(opened(random_model(spec)).message, "");
  for (const char* name :
       {"ffn_gate_inp.scale", "ffn_down_exps.scale", "pre_ffw_norm_2.weight",
        "post_ffw_norm_1.weight", "post_ffw_norm_2.weight", "ffn_gate_inp.weight",
        "ffn_gate.weight", "ffn_down.weight", "ffn_down_exps.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(std::string("blk.1.") + name));
  }
  expect(BLEND_E_FORMAT, "1 to the 8", random_model(spec).u32("gemma4.expert_used_count", 9));
  // Without experts their tensors have no place.
  expect(BLEND_E_UNSUPPORTED, "blk.0.", random_model(spec).erase_key("gemma4.expert_count"));
}

TEST_F(MixerFile, AGemma3nThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("gemma3n");
  const std::string a = "gemma3n.attention.", cuts = "gemma3n.activation_sparsity_scale";
  const auto changed = [&] { return random_model(spec); };
  EXPECT_EQ(opened(changed()).message, "");
  // Converters keep K and V of layers that do not use them.
  EXPECT_EQ(
      opened(changed().tensor("blk.7.attn_k.weight", kGgmlF32, {1}, std::string(4, '\0'))).message,
      "");
  EXPECT_EQ(opened(changed().i32s("gemma3n.feed_forward_length", std::vector(8, 80))).message, "");
  expect(BLEND_E_FORMAT, "shared_kv_layers", changed().u32(a + "shared_kv_layers", 8));
  expect(BLEND_E_FORMAT, "shares the K and V", changed().u32(a + "shared_kv_layers", 7));
  expect(BLEND_E_FORMAT, "sliding_window", changed().erase_key(a + "sliding_window"));
  expect(BLEND_E_FORMAT, "sliding_window_pattern", changed().u32(a + "sliding_window_pattern", 2));
  expect(BLEND_E_FORMAT, "embedding_length_per_layer_input",
         changed().erase_key("gemma3n.embedding_length_per_layer_input"));
  expect(BLEND_E_FORMAT, "per_layer_token_embd",
         changed().u32("gemma3n.embedding_length_per_layer_input", 4));
  expect(BLEND_E_FORMAT, "altup.num_inputs", changed().erase_key("gemma3n.altup.num_inputs"));
  expect(BLEND_E_FORMAT, "altup.num_inputs", changed().u32("gemma3n.altup.num_inputs", 17));
  expect(BLEND_E_UNSUPPORTED, "altup.num_inputs", changed().u32("gemma3n.altup.num_inputs", 1));
  expect(BLEND_E_UNSUPPORTED, "altup.active_idx", changed().u32("gemma3n.altup.active_idx", 1));
  expect(BLEND_E_FORMAT, "altup_proj", changed().u32("gemma3n.altup.num_inputs", 3));
  expect(BLEND_E_FORMAT, cuts, changed().erase_key(cuts));
  expect(BLEND_E_FORMAT, cuts, changed().f32s(cuts, {1, 2}));
  expect(BLEND_E_FORMAT, cuts,
         changed().f32s(cuts, std::vector(8, std::numeric_limits<float>::infinity())));
  expect(BLEND_E_FORMAT, cuts,
         changed().f32s(cuts, std::vector(8, std::numeric_limits<float>::quiet_NaN())));
  // A mean and some deviations below it cut too, and nothing is another model.
  const float none = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(opened(changed().f32s(cuts, std::vector(8, none))).message, "");
  EXPECT_EQ(opened(changed().f32s(cuts, std::vector(8, -0.5f))).message, "");
  for (const char* name :
       {"blk.0.laurel_l.weight", "blk.3.laurel_r.weight", "blk.3.laurel_post_norm.weight",
        "blk.3.altup_router.weight", "blk.3.altup_router_norm.weight",
        "blk.3.altup_predict_coef.weight", "blk.3.altup_correct_coef.weight",
        "blk.3.altup_correct_scale.weight", "blk.3.inp_gate.weight", "altup_proj.weight",
        "altup_unembd_proj.weight"}) {
    expect(BLEND_E_FORMAT, name, changed().erase_tensor(name));
  }
  expect(BLEND_E_FORMAT, "blk.0.laurel_l.weight",
         changed().tensor("blk.0.laurel_l.weight", kGgmlF32, {48}, std::string(192, '\0')));
  expect(BLEND_E_UNSUPPORTED, "layer_output_scale",
         changed().tensor("blk.0.layer_output_scale.weight", kGgmlF32, {1}, std::string(4, '\0')));
}

TEST_F(MixerFile, ANemotronHThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("nemotron_h");  // M-M*-MM-*-M-
  const std::string kv = "nemotron_h.attention.head_count_kv",
                    ff = "nemotron_h.feed_forward_length";
  const auto heads = [&](std::vector<int32_t> list) { return random_model(spec).i32s(kv, list); };
  const auto widths = [&](std::vector<int32_t> list) { return random_model(spec).i32s(ff, list); };
  const std::vector<int32_t> good = {0, 80, 0, 0, 80, 0, 0, 80, 0, 80, 0, 80};
  EXPECT_EQ(opened(widths(good)).message, "");
  expect(BLEND_E_FORMAT, "entries", widths({0, 80}));
  expect(BLEND_E_UNSUPPORTED, "nextn_predict_layers",
         random_model(spec).u32("nemotron_h.nextn_predict_layers", 1));
  expect(BLEND_E_FORMAT, "feed_forward_length", random_model(spec).erase_key(ff).u32(ff, 80));
  expect(BLEND_E_FORMAT, "entries", random_model(spec).erase_key(kv));
  expect(BLEND_E_FORMAT, "entries", heads({0, 2}));
  expect(BLEND_E_FORMAT, "feed_forward_length", widths(std::vector<int32_t>(12, 0)));
  expect(BLEND_E_UNSUPPORTED, "alike", widths({0, 80, 0, 0, 80, 0, 0, 80, 0, 80, 0, 40}));
  expect(BLEND_E_UNSUPPORTED, "alike", widths({0, 80, 0, 0, -1, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_UNSUPPORTED, "has both", widths({0, 80, 0, 80, 80, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_UNSUPPORTED, "layer 0 is a feed-forward",
         widths({80, 0, 0, 0, 80, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_UNSUPPORTED, "layer 2 is a feed-forward",
         widths({0, 80, 80, 0, 80, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_FORMAT, "head_count_kv", heads(std::vector<int32_t>(12, 0)));
  // Layer 10 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.10.attn_q", heads({0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 2, 0}));
  for (const char* name :
       {"blk.11.attn_norm.weight", "blk.11.ffn_up.weight", "blk.4.ffn_down.weight",
        "blk.5.attn_norm.weight", "blk.5.ssm_in.weight", "blk.3.attn_v.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(name));
  }
  expect(BLEND_E_UNSUPPORTED, "blk.1.ffn_gate",
         random_model(spec).tensor("blk.1.ffn_gate.weight", kGgmlF32, {1}, std::string(4, '\0')));
}

TEST_F(MixerFile, ANemotron3ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("nemotron_3_latent");  // MEMEM*EMME*E
  const std::string at = "nemotron_h_moe.";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(at + key, value);
  };
  EXPECT_EQ(opened(random_model(spec)).message, "");
  // Each of these is a file's own number of a layer.
  for (const char* name :
       {"blk.1.attn_norm.weight", "blk.1.ffn_gate_inp.weight", "blk.3.ffn_up_exps.weight",
        "blk.6.ffn_down_exps.weight", "blk.9.ffn_up_shexp.weight", "blk.11.ffn_down_shexp.weight",
        "blk.11.ffn_latent_down.weight", "blk.3.ffn_latent_up.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(name));
  }
  // The first layer with experts speaks for all.
  expect(BLEND_E_UNSUPPORTED, "blk.3.exp_probs_b.bias",
         random_model(spec).erase_tensor("blk.1.exp_probs_b.bias"));
  expect(BLEND_E_FORMAT, "blk.3.exp_probs_b.bias",
         random_model(spec).erase_tensor("blk.3.exp_probs_b.bias"));
  expect(
      BLEND_E_UNSUPPORTED, "blk.1.ffn_gate_exps",
      random_model(spec).tensor("blk.1.ffn_gate_exps.weight", kGgmlF32, {1}, std::string(4, '\0')));
  // Experts without gates have no biases; two of them were read as three.
  expect(
      BLEND_E_UNSUPPORTED, "blk.1.ffn_gate_exps.bias",
      random_model(spec).tensor("blk.1.ffn_gate_exps.bias", kGgmlF32, {1}, std::string(4, '\0')));
  expect(BLEND_E_FORMAT, "'blk.1.ffn_latent_down.weight' has the shape [24, 48]",
         file("moe_latent_size", 23));
  expect(BLEND_E_FORMAT, "'blk.1.ffn_up_exps.weight' has the shape [8, 40, 24]",
         random_model(spec).erase_key(at + "moe_latent_size"));
  expect(BLEND_E_FORMAT, "expert_count' is 0", file("expert_count", 0));
  expect(BLEND_E_FORMAT, "1 to the 8", file("expert_used_count", 9));
  expect(BLEND_E_FORMAT, "ffn_up_shexp", file("expert_shared_feed_forward_length", 55));
  expect(BLEND_E_UNSUPPORTED, "alike",
         random_model(spec).i32s(at + "feed_forward_length",
                                 {0, 40, 0, 40, 0, 0, 39, 0, 0, 40, 0, 40}));
  expect(BLEND_E_UNSUPPORTED, "nextn_predict_layers", file("nextn_predict_layers", 1));
}

TEST_F(MixerFile, AFalconH1ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("falcon_h1");
  const std::string at = "falcon-h1.";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(at + key, value);
  };
  EXPECT_EQ(opened(random_model(spec)).message, "");
  for (const char* name :
       {"attn_norm.weight", "attn_q.weight", "attn_v.weight", "attn_output.weight", "ssm_in.weight",
        "ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_dt.bias", "ssm_out.weight", "ffn_norm",
        "ffn_gate.weight", "ffn_down.weight"}) {
    const std::string of_last = std::string("blk.3.") + name;
    expect(BLEND_E_FORMAT, of_last, random_model(spec).erase_tensor(of_last));
  }
  for (const char* key : {"conv_kernel", "state_size", "group_count", "time_step_rank"}) {
    expect(BLEND_E_FORMAT, key, random_model(spec).erase_key(at + "ssm." + key));
  }
  expect(BLEND_E_FORMAT, "does not divide it", file("ssm.inner_size", 81));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("ssm.inner_size", 160));
  expect(BLEND_E_UNSUPPORTED, "without a window", file("attention.sliding_window", 9));
  expect(BLEND_E_FORMAT, "blk.4.attn_norm", file("block_count", 5));
  expect(BLEND_E_UNSUPPORTED, "blk.3.", file("block_count", 3));
  expect(BLEND_E_FORMAT, "block_count", file("block_count", 40000));
  // Where the first layer has a norm of y, all have.
  expect(BLEND_E_FORMAT, "blk.1.ssm_norm.weight",
         random_model(spec).tensor("blk.0.ssm_norm.weight", kGgmlF32, {40, 2},
                                   std::string(size_t{80} * 4, '\0')));
  expect(BLEND_E_UNSUPPORTED, "blk.1.ssm_norm.weight",
         random_model(spec).tensor("blk.1.ssm_norm.weight", kGgmlF32, {40, 2},
                                   std::string(size_t{80} * 4, '\0')));
  // A file whose Mamba-2s have one.
  RandomModelSpec normed = spec;
  normed.ssm_norm = true;
  EXPECT_EQ(opened(random_model(normed)).message, "");
}

TEST_F(MixerFile, AGranite4HThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("granite4_h");
  const std::string kv = "granitehybrid.attention.head_count_kv";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(std::string("granitehybrid.ssm.") + key, value);
  };
  EXPECT_EQ(opened(random_model(spec).i32s(kv, {0, 0, 0, 2, 0, 0, 0, 2})).message, "");
  expect(BLEND_E_FORMAT, "entries", random_model(spec).i32s(kv, {0, 2}));
  expect(BLEND_E_UNSUPPORTED, "alike", random_model(spec).i32s(kv, {0, 0, 0, 2, 0, 0, 0, 1}));
  expect(BLEND_E_UNSUPPORTED, "attends", random_model(spec).i32s(kv, std::vector<int32_t>(8, 0)));
  // Layer 1 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.1.attn_q", random_model(spec).i32s(kv, {0, 2, 0, 2, 0, 0, 0, 2}));
  expect(BLEND_E_FORMAT, "ssm_conv1d", file("conv_kernel", 3));
  expect(BLEND_E_FORMAT, "ssm.conv_kernel", file("conv_kernel", 65));
  expect(BLEND_E_FORMAT, "does not divide it", file("inner_size", 95));
  expect(BLEND_E_FORMAT, "ssm.inner_size", file("inner_size", 0));
  expect(BLEND_E_FORMAT, "no multiple", file("group_count", 3));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("group_count", 1));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("state_size", 16384));
  expect(BLEND_E_FORMAT, "states of",
         file("state_size", 16384).u32("granitehybrid.ssm.inner_size", 4 * 16384));
  // Columns of states are kept by tiles of 16, however few a head has.
  expect(BLEND_E_FORMAT, "states of 65536 times 512",
         file("state_size", 512)
             .u32("granitehybrid.ssm.inner_size", 4096)
             .u32("granitehybrid.ssm.time_step_rank", 4096));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("inner_size", 192));
  expect(BLEND_E_UNSUPPORTED, "odd number",
         file("time_step_rank", 1).u32("granitehybrid.ssm.group_count", 1));
  for (const char* key : {"conv_kernel", "state_size", "group_count", "time_step_rank"}) {
    expect(BLEND_E_FORMAT, key,
           random_model(spec).erase_key(std::string("granitehybrid.ssm.") + key));
  }
  for (const char* name : {"ssm_in.weight", "ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_dt.bias",
                           "ssm_norm.weight", "ssm_out.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(std::string("blk.0.") + name));
  }
  // Where the first layer's convolution has a bias, all have.
  expect(BLEND_E_FORMAT, "blk.1.ssm_conv1d.bias",
         random_model(spec).erase_tensor("blk.1.ssm_conv1d.bias"));
  expect(BLEND_E_UNSUPPORTED, "blk.1.ssm_conv1d.bias",
         random_model(spec).erase_tensor("blk.0.ssm_conv1d.bias"));
  expect(BLEND_E_UNSUPPORTED, "ssm_in.bias",
         random_model(spec).tensor("blk.0.ssm_in.bias", kGgmlF32, {1}, std::string(4, '\0')));
}

TEST_F(MixerFile, ADeepSeekThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = spec_of("deepseek3");
  const std::string a = "deepseek2.attention.", rotates = "deepseek2.rope.dimension_count";
  const auto file = [&] { return random_model(spec); };
  EXPECT_EQ(opened(file().u32(a + "head_count_kv", spec.n_heads)).message, "");
  expect(BLEND_E_UNSUPPORTED, "head_count_kv", file().u32(a + "head_count_kv", 2));
  for (const char* const key : {"kv_lora_rank", "value_length_mla"}) {
    expect(BLEND_E_FORMAT, key, file().erase_key(a + key));
  }
  expect(BLEND_E_FORMAT, "dimension_count", file().erase_key(rotates));
  expect(BLEND_E_FORMAT, "a part of it", file().u32(a + "key_length_mla", 8));
  expect(BLEND_E_FORMAT, "attn_kv_a_mqa", file().u32(a + "kv_lora_rank", 30));
  expect(BLEND_E_UNSUPPORTED, "even numbers", file().u32(a + "kv_lora_rank", 31));
  expect(BLEND_E_UNSUPPORTED, "even numbers", file().u32(rotates, 7));
  // No more elements may rotate than not.
  expect(BLEND_E_UNSUPPORTED, "even numbers", file().u32(a + "kv_lora_rank", 6));
  expect(BLEND_E_FORMAT, "attn_q.weight", file().u32(a + "q_lora_rank", 0));
  expect(BLEND_E_FORMAT, "attn_output", file().u32(a + "value_length_mla", 15));
  expect(BLEND_E_UNSUPPORTED, "temperature_scale", file().f32(a + "temperature_scale", 0.1f));
  for (const char* name :
       {"attn_q_a.weight", "attn_q_a_norm.weight", "attn_q_b.weight", "attn_kv_a_mqa.weight",
        "attn_kv_a_norm.weight", "attn_v_b.weight", "attn_output.weight"}) {
    expect(BLEND_E_FORMAT, name, file().erase_tensor(std::string("blk.3.") + name));
  }
  expect(BLEND_E_FORMAT, "attn_k_b.weight", file().erase_tensor("blk.3.attn_k_b.weight"));
  expect(BLEND_E_FORMAT, "attn_kv_b.weight",
         file().erase_tensor("blk.3.attn_k_b.weight").erase_tensor("blk.3.attn_v_b.weight"));
  const RandomModelSpec old = spec_of("glm4_7_flash");
  EXPECT_EQ(opened(random_model(old)).message, "");
  expect(BLEND_E_FORMAT, "attn_q_b.weight", random_model(old).u32(a + "key_length", 23));
  GgufWriter other = random_model(old);
  other.erase_tensor("blk.3.attn_kv_b.weight")
      .tensor("blk.3.attn_kv_b.weight", kGgmlF32, {32, 4}, std::string(512, '\0'));
  expect(BLEND_E_FORMAT, "attn_kv_b.weight", std::move(other));
}

// In an older file the matrix of all heads is cut, and what is turned over becomes f16.
TEST_F(MixerFile, ADeepSeekMayBeQuantized) {
  for (const char* const name : {"deepseek3", "glm4_7_flash"}) {
    RandomModelSpec spec = spec_of(name);
    spec.n_layers = 4;
    spec.blocks = {BlockType::q4_0, BlockType::q8_0};
    spec.d_model = spec.d_ff = spec.expert_d_ff = spec.shared_d_ff = 64;
    spec.latent_q_rank = spec.latent_nope = spec.latent_value = 32;
    const Model file = open_model(ctx_, write_random_model(spec, dir_.file("blocks.gguf"))),
                directory = open_model(ctx_, write_random_hf(spec, dir_.file(name)));
    ASSERT_TRUE(file && directory) << name;
    SplitMix rng(3);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(3 + rng.below(297)));
    const Prompt prompt = {{BLEND_SEGMENT_QUESTION, tokens, false}};
    const FuseCase full{.policy = BLEND_POLICY_FULL};
    EXPECT_LE(max_difference(logits(fuse(file, Store(), prompt, full)),
                             logits(fuse(directory, Store(), prompt, full))),
              spec.old_latent ? 0.02 : kLogitTolerance)
        << name;
  }
}

// What such a file leaves to its reader.
TEST_F(MixerFile, ADeepSeekSaysSomeThingsByItsTensors) {
  const RandomModelSpec spec = spec_of("deepseek3");
  const auto answer = [&](GgufWriter writer) {
    const Model model = open_model(ctx_, writer.write(dir_.file("other.gguf")));
    const Prompt prompt = {{BLEND_SEGMENT_QUESTION, {5, 9, 11, 8, 70, 33, 21, 105}, false}};
    return logits(fuse(model, Store(), prompt, {.policy = BLEND_POLICY_FULL}));
  };
  const std::vector<float> usual = answer(random_model(spec));
  // Experts with a bias are chosen by sigmoid.
  EXPECT_EQ(answer(random_model(spec).erase_key("deepseek2.expert_gating_func")), usual);
  EXPECT_NE(answer(random_model(spec).u32("deepseek2.expert_gating_func", 1)), usual);
  // Some converters kept what they cut.
  GgufWriter more = random_model(spec);
  more.tensor("blk.0.attn_kv_b.weight", kGgmlF32, {1}, std::string(4, '\0'));
  EXPECT_EQ(answer(std::move(more)), usual);
  // YaRN's factor on scores, and which elements rotate.
  EXPECT_NE(answer(random_model(spec).erase_key("deepseek2.rope.scaling.yarn_log_multiplier")),
            usual);
}

}  // namespace
}  // namespace blend::test
