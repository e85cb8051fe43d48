// Every policy, union and schedule through the C ABI against the float64 reference: random models,
// chunk counts and orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr size_t kMaxRows = 160;  // the reference is slow

// Far from the deviation's order, and with all rows distinct.
double callback_score(uint32_t row, double deviation) {
  return std::sin(static_cast<double>(row) * 12.9898) + 1e-3 * std::min(deviation, 1.0);
}

bool asks_the_question(const std::vector<blend_policy_term>& terms) {
  return std::any_of(terms.begin(), terms.end(), [](const blend_policy_term& term) {
    return term.policy == BLEND_POLICY_PROBE || term.policy == BLEND_POLICY_CASCADE ||
           term.policy == BLEND_POLICY_ATTENTION;
  });
}

class PolicyProperty : public testing::TestWithParam<int> {
 protected:
  PolicyProperty()
      : rng_(0x51ed270bu * static_cast<uint64_t>(GetParam() + 1)),
        spec_(several_layers(random_spec(rng_))),
        path_(write_random_model(spec_, dir_.file("model.gguf"))),
        reference_(path_),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)),
        random_(random_prompt(rng_, spec_.n_vocab, kMaxRows)),
        store_(open_store(ctx_, dir_.file("store"))) {
    precompute_all(model_, store_, random_.prompt, random_.chunk_prefix);
  }

  static RandomModelSpec several_layers(RandomModelSpec spec) {
    spec.n_layers = std::max(spec.n_layers, 3u);
    return spec;
  }
  bool has_question() const { return random_.prompt.back().kind == BLEND_SEGMENT_QUESTION; }
  uint32_t any_layer() { return static_cast<uint32_t>(1 + rng_.below(spec_.n_layers - 1)); }

  FuseCase with(FuseCase how) {
    how.chunk_prefix = random_.chunk_prefix;
    how.on_miss = BLEND_MISS_FAIL;
    how.score = callback_score;
    how.seed = rng_.next();
    how.metric = static_cast<uint32_t>(1 + rng_.below(3));
    if (rng_.below(2) == 0) how.metric += BLEND_METRIC_V_WEIGHED - BLEND_METRIC_V;
    how.norm = static_cast<uint32_t>(rng_.below(2));
    how.relative = static_cast<uint32_t>(rng_.below(2));
    return how;
  }

  // Every policy and some unions, at the ratio.
  std::vector<FuseCase> policies(double ratio) {
    std::vector<FuseCase> all;
    for (const uint32_t policy :
         {BLEND_POLICY_HKVD, BLEND_POLICY_FIRST_K, BLEND_POLICY_RANDOM, BLEND_POLICY_CALLBACK,
          BLEND_POLICY_QUESTION, BLEND_POLICY_CONTEXT_IMPACT}) {
      if (policy == BLEND_POLICY_QUESTION && !has_question()) continue;
      all.push_back(with({.policy = policy, .check_layer = any_layer(), .ratio = ratio}));
    }
    for (const uint32_t policy :
         {BLEND_POLICY_PROBE, BLEND_POLICY_CASCADE, BLEND_POLICY_ATTENTION}) {
      if (!has_question()) continue;
      all.push_back(with({.policy = policy, .check_layer = any_layer(), .ratio = ratio}));
    }
    const std::vector<std::vector<blend_policy_term>> unions = {
        {{BLEND_POLICY_FIRST_K, 1.0}, {BLEND_POLICY_RANDOM, 2.0}},
        {{BLEND_POLICY_HKVD, 0.3}, {BLEND_POLICY_FIRST_K, 0.7}},
        {{BLEND_POLICY_RANDOM, 1.0}, {BLEND_POLICY_CALLBACK, 5.0}, {BLEND_POLICY_HKVD, 1.0}},
        {{BLEND_POLICY_HKVD, 1.0}, {BLEND_POLICY_HKVD, 1.0}},
        {{BLEND_POLICY_CONTEXT_IMPACT, 1.0}, {BLEND_POLICY_FIRST_K, 1.0}},
        {{BLEND_POLICY_APE, 2.0}, {BLEND_POLICY_HKVD, 1.0}, {BLEND_POLICY_RANDOM, 1.0}},
        {{BLEND_POLICY_CASCADE, 2.0}, {BLEND_POLICY_FIRST_K, 1.0}},
        {{BLEND_POLICY_PROBE, 1.0}, {BLEND_POLICY_CASCADE, 1.0}},
        {{BLEND_POLICY_CONTEXT_IMPACT, 1.0}, {BLEND_POLICY_PROBE, 1.0}},
        {{BLEND_POLICY_ATTENTION, 2.0}, {BLEND_POLICY_FIRST_K, 1.0}},
        {{BLEND_POLICY_APE, 1.0}, {BLEND_POLICY_ATTENTION, 1.0}},
        {{BLEND_POLICY_APE, 1.0}, {BLEND_POLICY_PROBE, 1.0}}};
    for (const auto& terms : unions) {
      if (asks_the_question(terms) && !has_question()) continue;
      all.push_back(
          with({.policy = BLEND_POLICY_UNION, .check_layer = any_layer(), .ratio = ratio}));
      all.back().terms = terms;
    }
    return all;
  }

  TempDir dir_;
  SplitMix rng_;
  RandomModelSpec spec_;
  std::string path_;
  ReferenceModel reference_;
  Ctx ctx_;
  Model model_;
  RandomPrompt random_;
  Store store_;
};

TEST_P(PolicyProperty, EveryPolicyIsTheReference) {
  for (const FuseCase& how : policies(0.05 + 0.1 * static_cast<double>(rng_.below(6)))) {
    SCOPED_TRACE(how);
    expect_like_reference(reference_, fuse(model_, store_, random_.prompt, how), random_.prompt,
                          how);
  }
}

TEST_P(PolicyProperty, RatioOneIsFullPrefill) {
  const Fusion full = fuse(model_, store_, random_.prompt, with({.policy = BLEND_POLICY_FULL}));
  ASSERT_TRUE(full);
  for (const FuseCase& how : policies(1.0)) {
    SCOPED_TRACE(how);
    const Fusion fusion = fuse(model_, store_, random_.prompt, how);
    ASSERT_TRUE(fusion);
    EXPECT_LE(max_difference(logits(fusion), logits(full)), kLogitTolerance);
  }
}

// A policy that measures nothing computes nothing at ratio 0 that reuse does not. One that measures
// keeps the fresh K, V that it measured with: reuse after the check layer.
TEST_P(PolicyProperty, RatioZeroIsReuse) {
  const Fusion reuse = fuse(model_, store_, random_.prompt, with({.policy = BLEND_POLICY_REUSE}));
  ASSERT_TRUE(reuse);
  for (const FuseCase& how : policies(0.0)) {
    SCOPED_TRACE(how);
    const Fusion fusion = fuse(model_, store_, random_.prompt, how);
    ASSERT_TRUE(fusion);
    EXPECT_TRUE(selected(fusion).empty());
    // In the cascade the probe is the first; the rows it let through are computed up to the second.
    const uint32_t first =
        info(fusion).n_check_layers == 2 ? how.check_layer : info(fusion).check_layer;
    if (!reference_measures(reference_options(how, DType::f32))) {
      EXPECT_EQ(first, 0u);
      // APE's term is the reuse that it is.
      const bool tempers = std::any_of(
          how.terms.begin(), how.terms.end(),
          [](const blend_policy_term& term) { return term.policy == BLEND_POLICY_APE; });
      FuseCase ape = how;
      ape.policy = BLEND_POLICY_APE;
      ape.terms.clear();
      const Fusion want = tempers ? fuse(model_, store_, random_.prompt, ape) : nullptr;
      EXPECT_EQ(logits(fusion), logits(tempers ? want : reuse)) << "to the last bit";
    }
    for (uint32_t l = first + 1; l < spec_.n_layers; ++l) {
      EXPECT_EQ(layer_info(fusion, l).rows_kv, layer_info(reuse, l).rows_kv);
      EXPECT_EQ(layer_info(fusion, l).rows_placed, layer_info(reuse, l).rows_placed);
    }
  }
}

TEST_P(PolicyProperty, SchedulesAreTheReference) {
  for (FuseCase how : policies(0.3)) {
    const bool measures = reference_measures(reference_options(how, DType::f32));
    // Some of the layers, the ratios falling, sometimes staying.
    double ratio = 0.5 + 0.1 * static_cast<double>(rng_.below(6));
    const bool probes = how.policy == BLEND_POLICY_PROBE || how.policy == BLEND_POLICY_CASCADE ||
                        how.policy == BLEND_POLICY_ATTENTION || asks_the_question(how.terms);
    for (uint32_t l = measures && !probes ? 1 : 0; l < spec_.n_layers; ++l) {
      if (rng_.below(3) == 0 && !(probes && l == 0)) continue;
      how.check_layers.push_back({l, ratio});
      ratio *= rng_.below(4) == 0 ? 1.0 : 0.6;
    }
    if (how.check_layers.empty()) how.check_layers.push_back({1, ratio});
    SCOPED_TRACE(how);
    expect_like_reference(reference_, fuse(model_, store_, random_.prompt, how), random_.prompt,
                          how);
  }
}

// APE recomputes nothing; rows that were not computed are attended to at its temperature, by
// decoded rows and after edits too.
TEST_P(PolicyProperty, ApeIsTheReference) {
  FuseCase how = with({.policy = BLEND_POLICY_APE});
  how.ape_temperature = 0.6 + 0.1 * static_cast<double>(rng_.below(8));
  how.ape_scale = 0.7 + 0.1 * static_cast<double>(rng_.below(6));
  const Fusion fusion = fuse(model_, store_, random_.prompt, how);
  ReferenceFusion want = expect_like_reference(reference_, fusion, random_.prompt, how);
  ASSERT_TRUE(fusion);
  EXPECT_TRUE(selected(fusion).empty());

  const std::vector<int32_t> answer = random_tokens(rng_, spec_.n_vocab, 3);
  decode(fusion, {answer[0]});
  decode(fusion, {answer[1], answer[2]});
  reference_decode(reference_, want, answer);
  EXPECT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance) << "decoded";

  std::vector<int32_t> all = tokens_of(fusion);
  const size_t first = rng_.below(all.size() - 1), n_old = rng_.below(all.size() - first);
  const std::vector<int32_t> fresh = random_tokens(rng_, spec_.n_vocab, rng_.below(4));
  reference_replace(reference_, want, all, first, n_old, fresh);
  replace(fusion, first, n_old, fresh);
  if (n_old + fresh.size() > 0) {
    EXPECT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance) << "edited";
  }
}

TEST_P(PolicyProperty, ApeOfNothingIsReuse) {
  FuseCase how = with({.policy = BLEND_POLICY_APE});
  how.ape_temperature = how.ape_scale = 1.0;
  const Fusion reuse = fuse(model_, store_, random_.prompt, with({.policy = BLEND_POLICY_REUSE}));
  const Fusion ape = fuse(model_, store_, random_.prompt, how);
  ASSERT_TRUE(reuse && ape);
  EXPECT_LE(max_difference(logits(ape), logits(reuse)), kLogitTolerance);
  EXPECT_EQ(layer_info(ape, 0).rows_kv, layer_info(reuse, 0).rows_kv);
}

// The choice does not depend on threads, on where the chunks came from, or on the run.
TEST_P(PolicyProperty, TheSameRowsEveryTime) {
  const Ctx other_ctx = make_ctx(3);
  const Model other_model = open_model(other_ctx, path_);
  const Store other_store = open_store(other_ctx, dir_.file("other"));
  for (FuseCase how : policies(0.2)) {
    SCOPED_TRACE(how);
    const Fusion one = fuse(model_, store_, random_.prompt, how);
    how.on_miss = BLEND_MISS_PRECOMPUTE;
    const Fusion two = fuse(other_model, other_store, random_.prompt, how);
    ASSERT_TRUE(one && two);
    EXPECT_EQ(selected(one), selected(two));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PolicyProperty, testing::Range(0, 10));

// One model, one prompt, made to be looked at.
class Policies : public testing::Test {
 protected:
  Policies()
      : path_(write_random_model({}, dir_.file("model.gguf"))),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)),
        store_(open_store(ctx_, dir_.file("store"))) {
    SplitMix rng(3);
    for (const size_t n : {7u, 40u, 1u, 20u, 10u}) {  // the first is exact
      prompt_.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, 320, n), false});
    }
    prompt_.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, 320, 6), false});
  }
  Outcome outcome_of(const FuseCase& how) { return try_fuse(model_, store_, prompt_, how).outcome; }
  std::vector<uint32_t> rows_of(const FuseCase& how) {
    return selected(fuse(model_, store_, prompt_, how));
  }

  TempDir dir_;
  std::string path_;
  Ctx ctx_;
  Model model_;
  Store store_;
  Prompt prompt_;
};

TEST_F(Policies, FirstKTakesTheFirstRowsOfEveryDeferredChunk) {
  // 78 reused rows; 10 % are 8: of 71 candidates 40, 1, 20 and 10.
  EXPECT_EQ(rows_of({.policy = BLEND_POLICY_FIRST_K, .ratio = 0.1}),
            (std::vector<uint32_t>{7, 8, 9, 10, 47, 48, 49, 68}));
  const Fusion fusion =
      fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_FIRST_K, .ratio = 0.1});
  EXPECT_EQ(layer_info(fusion, 0).rows_kv, 8u + 6u) << "nothing else is computed, at any layer";
}

TEST_F(Policies, RandomFollowsTheSeed) {
  FuseCase how{.policy = BLEND_POLICY_RANDOM, .ratio = 0.25, .seed = 5};
  const std::vector<uint32_t> rows = rows_of(how);
  EXPECT_EQ(rows.size(), 20u);
  EXPECT_EQ(rows_of(how), rows);
  how.seed = 6;
  EXPECT_NE(rows_of(how), rows);
  // A smaller budget of the same seed is a part of the larger one.
  how = {.policy = BLEND_POLICY_RANDOM, .ratio = 0.1, .seed = 5};
  const std::vector<uint32_t> fewer = rows_of(how);
  EXPECT_TRUE(std::includes(rows.begin(), rows.end(), fewer.begin(), fewer.end()));
}

TEST_F(Policies, RandomTakesEveryRowEquallyOften) {
  std::vector<size_t> times(84, 0);
  for (uint64_t seed = 0; seed < 150; ++seed) {
    for (const uint32_t row :
         rows_of({.policy = BLEND_POLICY_RANDOM, .ratio = 0.5, .seed = seed})) {
      ++times[row];
    }
  }
  // 39 of 71 candidates, 150 times: 82 +- 6 each.
  for (uint32_t row = 0; row < 84; ++row) {
    const bool candidate = row >= 7 && row < 78;
    EXPECT_GE(times[row], candidate ? 55u : 0u) << row;
    EXPECT_LE(times[row], candidate ? 110u : 0u) << row;
  }
}

TEST_F(Policies, TheCallbackIsObeyed) {
  FuseCase how{.policy = BLEND_POLICY_CALLBACK, .ratio = 0.05};
  how.score = [](uint32_t row, double) { return row == 12 || row == 50 || row == 77 ? 1.0 : 0.0; };
  EXPECT_EQ(rows_of(how), (std::vector<uint32_t>{7, 12, 50, 77})) << "then the earliest";
}

int32_t refuse(void* user, uint32_t, const uint32_t*, const float*, size_t, float*) {
  return *static_cast<int32_t*>(user);
}
int32_t poison(void*, uint32_t, const uint32_t*, const float*, size_t n, float* scores) {
  scores[n - 1] = std::numeric_limits<float>::quiet_NaN();
  return 0;
}

TEST_F(Policies, ACallbackThatRefusesStopsTheFuse) {
  blend_segment s[2];
  for (size_t i = 0; i < 2; ++i) {
    s[i] = blend_segment{}, s[i].struct_size = sizeof s[i];
    s[i].kind = BLEND_SEGMENT_CHUNK;
    s[i].tokens = prompt_[i].tokens.data();
    s[i].n_tokens = prompt_[i].tokens.size();
  }
  blend_fuse_options options;
  ASSERT_EQ(blend_fuse_options_init(&options, sizeof options), BLEND_OK);
  options.policy = BLEND_POLICY_CALLBACK;
  options.on_miss = BLEND_MISS_PRECOMPUTE;
  int32_t value = 77;
  blend_selection_options selection;
  ASSERT_EQ(blend_selection_options_init(&selection, sizeof selection), BLEND_OK);
  selection.score = refuse;
  selection.score_user = &value;
  options.selection = &selection;
  const auto fuse_it = [&] {
    blend_fusion* fusion = nullptr;
    blend_error* error = nullptr;
    const int32_t code = blend_fuse(&fusion, model_.get(), store_.get(), s, 2, &options, &error);
    EXPECT_EQ(fusion, nullptr);
    return outcome(code, error);
  };
  Outcome o = fuse_it();
  EXPECT_EQ(o.code, BLEND_E_CALLBACK);
  EXPECT_EQ(o.detail, 77);
  selection.score = poison;
  o = fuse_it();
  EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(o.message.find("NaN for row 45"), std::string::npos) << o.message;
}

TEST_F(Policies, AUnionTakesFromEveryTerm) {
  FuseCase how{.policy = BLEND_POLICY_UNION, .ratio = 0.2};  // 16 rows
  how.terms = {{BLEND_POLICY_FIRST_K, 1.0}, {BLEND_POLICY_HKVD, 1.0}};
  const std::vector<uint32_t> both = rows_of(how);
  EXPECT_EQ(both.size(), 16u);
  const std::vector<uint32_t> first = rows_of({.policy = BLEND_POLICY_FIRST_K, .ratio = 0.1});
  EXPECT_TRUE(std::includes(both.begin(), both.end(), first.begin(), first.end()));
  // The highest deviation is among them, and what HKVD alone would have taken fills the rest.
  const std::vector<uint32_t> top = rows_of({.policy = BLEND_POLICY_HKVD, .ratio = 0.1});
  EXPECT_TRUE(std::includes(both.begin(), both.end(), top.begin(), top.end()));
}

TEST_F(Policies, ATermThatAsksTwiceGoesFurtherDownItsList) {
  FuseCase how{.policy = BLEND_POLICY_UNION, .ratio = 0.2};
  how.terms = {{BLEND_POLICY_HKVD, 1.0}, {BLEND_POLICY_HKVD, 3.0}};
  EXPECT_EQ(rows_of(how), rows_of({.policy = BLEND_POLICY_HKVD, .ratio = 0.2}));
}

TEST_F(Policies, ApeInAUnionTakesNoneOfTheBudget) {
  FuseCase how{.policy = BLEND_POLICY_UNION, .ratio = 0.2};
  how.terms = {{BLEND_POLICY_APE, 9.0}, {BLEND_POLICY_HKVD, 1.0}};
  const Fusion both = fuse(model_, store_, prompt_, how);
  EXPECT_EQ(selected(both), rows_of({.policy = BLEND_POLICY_HKVD, .ratio = 0.2}));
  EXPECT_EQ(info(both).n_rows_tempered, 71u - 16u);
  how.terms = {{BLEND_POLICY_APE, 1.0}};
  const Fusion alone = fuse(model_, store_, prompt_, how);
  EXPECT_TRUE(selected(alone).empty());
  EXPECT_EQ(logits(alone), logits(fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_APE})));
}

TEST_F(Policies, ApeWithoutStaleRowsIsFullPrefill) {
  prompt_.erase(prompt_.begin() + 1, prompt_.end() - 1);  // one exact chunk and the question
  const Fusion ape = fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_APE});
  EXPECT_EQ(info(ape).n_rows_tempered, 0u);
  EXPECT_EQ(logits(ape), logits(fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_REUSE})));
}

TEST_F(Policies, ContextImpactMeasuresNothing) {
  const FuseCase how{.policy = BLEND_POLICY_CONTEXT_IMPACT, .ratio = 0.1};
  const Fusion fusion = fuse(model_, store_, prompt_, how);
  EXPECT_EQ(layer_info(fusion, 0).rows_kv, 8u + 6u) << "rows that are left out cost nothing";
  // It is of the chunk, wherever and beside whatever it stands.
  std::swap(prompt_[1], prompt_[3]);
  const std::vector<uint32_t> rows = selected(fusion);
  std::vector<uint32_t> moved;
  for (const uint32_t row : rows) {
    const uint32_t chunk = row < 47 ? 1 : row == 47 ? 2 : row < 68 ? 3 : 4;
    moved.push_back(chunk == 1 ? row + 21 : chunk == 2 ? row - 20 : chunk == 3 ? row - 41 : row);
  }
  std::sort(moved.begin(), moved.end());
  EXPECT_EQ(rows_of(how), moved);
}

// The early layers' K, V stay fresh for every row that was still computed there.
TEST_F(Policies, EachCheckLetsItsShareThrough) {
  FuseCase how{.policy = BLEND_POLICY_HKVD};
  how.check_layers = {{1, 0.5}, {2, 0.2}};
  const Fusion fusion = fuse(model_, store_, prompt_, how);
  const uint64_t want[] = {71 + 6, 71 + 6, 39 + 6, 16 + 6};  // of 78 reused rows; 4 layers
  for (uint32_t l = 0; l < 4; ++l) EXPECT_EQ(layer_info(fusion, l).rows_kv, want[l]) << l;
  EXPECT_DOUBLE_EQ(info(fusion).ratio, 0.35) << "the mean over layers 2 and 3";
  EXPECT_EQ(info(fusion).n_check_layers, 2u);
}

TEST_F(Policies, WhatDoesNotGoTogetherIsRefused) {
  const auto refused = [&](const FuseCase& how, const std::string& sentence) {
    const Outcome o = outcome_of(how);
    EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT) << how;
    EXPECT_NE(o.message.find(sentence), std::string::npos) << o.message;
  };
  const auto with_checks = [](uint32_t policy, std::vector<blend_check_layer> checks) {
    FuseCase how{.policy = policy};
    how.check_layers = std::move(checks);
    return how;
  };
  const auto with_terms = [](std::vector<blend_policy_term> terms) {
    FuseCase how{.policy = BLEND_POLICY_UNION};
    how.terms = std::move(terms);
    return how;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused({.policy = 14}, "policy 14");
  refused({.policy = BLEND_POLICY_CALLBACK}, "needs a score callback");
  refused({.norm = 2}, "norm 2");
  refused({.relative = 2}, "relative 2");
  refused(with_terms({}), "needs 1 to 16 terms");
  refused(with_terms(std::vector<blend_policy_term>(17, {BLEND_POLICY_HKVD, 1.0})),
          "17 were given");
  refused(with_terms({{BLEND_POLICY_UNION, 1.0}}), "term 0: policy 8");
  refused(with_terms({{BLEND_POLICY_CASCADE, 1.0}, {BLEND_POLICY_HKVD, 1.0}}),
          "term 1: policy 3 measures at a check layer");
  refused(with_terms({{BLEND_POLICY_ATTENTION, 1.0}, {BLEND_POLICY_QUESTION, 1.0}}),
          "term 1: policy 6 measures at a check layer");
  refused(with_terms({{BLEND_POLICY_ATTENTION, 1.0}, {BLEND_POLICY_PROBE, 1.0}}),
          "a union asks once");
  refused(with_checks(BLEND_POLICY_ATTENTION, {{1, 0.1}}), "the first must be 0");
  refused(with_terms({{BLEND_POLICY_HKVD, 1.0}, {BLEND_POLICY_REUSE, 1.0}}), "term 1: policy 2");
  refused(with_terms({{BLEND_POLICY_HKVD, 0.0}}), "share 0");
  refused(with_terms({{BLEND_POLICY_HKVD, nan}}), "share nan");
  refused(with_terms({{BLEND_POLICY_HKVD, 1e300}}), "share 1e+300");
  refused({.policy = BLEND_POLICY_APE, .ape_temperature = -1.0}, "ape_temperature -1 must lie in");
  refused({.policy = BLEND_POLICY_APE, .ape_scale = nan}, "ape_scale nan must lie in");
  refused(with_checks(BLEND_POLICY_APE, {{1, 0.1}}), "chooses no rows");
  refused(with_terms({{BLEND_POLICY_CALLBACK, 1.0}}), "needs a score callback");
  FuseCase terms_without_union{.policy = BLEND_POLICY_HKVD};
  terms_without_union.terms = {{BLEND_POLICY_HKVD, 1.0}};
  refused(terms_without_union, "the policy is not BLEND_POLICY_UNION");
  refused(with_checks(BLEND_POLICY_REUSE, {{1, 0.1}}), "chooses no rows");
  refused(with_checks(BLEND_POLICY_HKVD, {{0, 0.1}}), "layer 0 must lie in 1 .. 3");
  refused(with_checks(BLEND_POLICY_HKVD, {{4, 0.1}}), "layer 4 must lie in 1 .. 3");
  refused(with_checks(BLEND_POLICY_HKVD, {{1, 1.5}}), "ratio 1.5");
  refused(with_checks(BLEND_POLICY_HKVD, {{1, nan}}), "ratio nan");
  refused(with_checks(BLEND_POLICY_HKVD, {{2, 0.2}, {1, 0.1}}), "rising order");
  refused(with_checks(BLEND_POLICY_HKVD, {{1, 0.2}, {1, 0.1}}), "rising order");
  refused(with_checks(BLEND_POLICY_HKVD, {{1, 0.2}, {2, 0.3}}), "cannot come back");
  prompt_.back().kind = BLEND_SEGMENT_TEXT;
  refused({.policy = BLEND_POLICY_ATTENTION}, "needs a prompt whose last segment is a question");
  refused({.policy = BLEND_POLICY_QUESTION}, "needs a prompt whose last segment is a question");
}

TEST_F(Policies, OneTokenChunksAndAPromptThatEndsInAChunk) {
  SplitMix rng(9);
  prompt_.clear();
  for (int i = 0; i < 12; ++i) {
    prompt_.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, 320, 1), false});
  }
  for (const uint32_t policy : {BLEND_POLICY_HKVD, BLEND_POLICY_FIRST_K, BLEND_POLICY_RANDOM}) {
    const FuseCase how{.policy = policy, .ratio = 0.5};
    // 12 reused rows, 6 chosen; the first is exact and the last computed anyway.
    const std::vector<uint32_t> rows = rows_of(how);
    EXPECT_EQ(rows.size(), 6u) << how;
    EXPECT_GE(rows.front(), 1u);
    EXPECT_LE(rows.back(), 10u);
  }
  prompt_.push_back({BLEND_SEGMENT_CHUNK, {}, false});
  EXPECT_EQ(outcome_of({}).code, BLEND_E_INVALID_ARGUMENT) << "an empty chunk is left out";
}

TEST_F(Policies, DefaultCheckLayersAreAccepted) {
  blend_check_layer checks[3];
  size_t n = 3;
  const auto code_of = [&](double ratio, uint32_t first_layer, blend_check_layer* out) {
    blend_error* error = nullptr;
    const int32_t code =
        blend_model_default_check_layers(model_.get(), ratio, first_layer, out, &n, &error);
    return outcome(code, error).code;
  };
  ASSERT_EQ(code_of(0.2, 1, checks), BLEND_OK);
  EXPECT_EQ(n, 2u) << "layers 1 and 2 of four: behind the last there is nothing to choose for";
  FuseCase how{.policy = BLEND_POLICY_HKVD};
  how.check_layers.assign(checks, checks + n);
  EXPECT_NEAR(info(fuse(model_, store_, prompt_, how)).ratio, 0.2, 1e-12);

  EXPECT_EQ(code_of(2, 1, checks), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(0.2, 4, checks), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(0.2, 1, nullptr), BLEND_E_INVALID_ARGUMENT);
  n = 0;
  EXPECT_EQ(code_of(0.2, 1, checks), BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend::test
