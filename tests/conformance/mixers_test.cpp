// Models whose layers do not all keep K and V of one width: layers that do not attend (LFM2
// convolves, Qwen3.5 has Gated DeltaNets, Granite 4 H Mamba-2s, Falcon-H1 those beside attention),
// layers that share K and V or have heads of their own (Gemma 3n, Gemma 4), and layers that keep
// latent rows (DeepSeek). Beyond what families_test.cpp asks of every family: turns, forks,
// batches, saved fusions, drafts, records in context, codecs, embeddings, profiles; and what such a
// model cannot do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "blend/batch.h"
#include "blend/embed.h"
#include "blend/precompute.h"
#include "blend/profile.h"
#include "conformance/expect.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

class OneModel {
 protected:
  explicit OneModel(const std::string& family)
      : spec_(random_family(family)),
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

}  // namespace
}  // namespace blend::test
