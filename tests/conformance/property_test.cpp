// Random models, random prompts: the library through its C ABI against the float64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr size_t kMaxRows = 220;  // the reference is slow

class Property : public testing::TestWithParam<int> {
 protected:
  Property()
      : rng_(0x9e3779b9u * static_cast<uint64_t>(GetParam() + 1)),
        spec_(random_spec(rng_)),
        path_(write_random_model(spec_, dir_.file("model.gguf"))),
        reference_(path_),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)),
        random_(random_prompt(rng_, spec_.n_vocab, kMaxRows)) {}

  // Every policy that this model can run, with random parameters; ratios over the whole range.
  std::vector<FuseCase> cases() {
    std::vector<FuseCase> all;
    all.push_back({.policy = BLEND_POLICY_FULL});
    all.push_back({.policy = BLEND_POLICY_REUSE});
    if (spec_.n_layers > 1) {
      for (const double ratio : {0.0, 0.05, 0.15, 0.5, 1.0}) {
        FuseCase c{.policy = BLEND_POLICY_HKVD, .ratio = ratio};
        c.metric = static_cast<uint32_t>(1 + rng_.below(3));
        c.check_layer = static_cast<uint32_t>(1 + rng_.below(spec_.n_layers - 1));
        all.push_back(c);
      }
    }
    for (FuseCase& c : all) c.chunk_prefix = random_.chunk_prefix;
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
};

TEST_P(Property, EveryPolicyIsTheReference) {
  const Store store = open_store(ctx_, dir_.file("store"));
  precompute_all(model_, store, random_.prompt, random_.chunk_prefix);
  std::vector<float> full;
  for (FuseCase how : cases()) {
    SCOPED_TRACE(testing::Message()
                 << "policy " << how.policy << ", ratio " << how.ratio << ", metric " << how.metric
                 << ", check layer " << how.check_layer);
    how.on_miss = BLEND_MISS_FAIL;
    const Fusion fusion = fuse(model_, store, random_.prompt, how);
    ASSERT_TRUE(fusion);
    expect_like_reference(reference_, fusion, random_.prompt, how);
    if (how.policy == BLEND_POLICY_FULL) full = logits(fusion);
    if (how.policy == BLEND_POLICY_HKVD && how.ratio == 1.0) {
      EXPECT_LE(max_difference(logits(fusion), full), kLogitTolerance) << "ratio 1 is full prefill";
    }
    if (how.policy != BLEND_POLICY_FULL) {
      const blend_fusion_report i = info(fusion);
      EXPECT_EQ(i.n_misses, 0u);
      EXPECT_EQ(i.bytes_loaded > 0, i.n_hits > 0);
    }
  }
}

// A chunk that is missing is prefilled, rounded as the store would and fused: the answer must not
// depend on whether it was there, to the last bit.
TEST_P(Property, MissAndHitGiveTheSameBits) {
  uint64_t stored = 0;
  for (const ReferenceSegment& s : random_.prompt) {
    stored += s.kind == BLEND_SEGMENT_CHUNK || s.kind == BLEND_SEGMENT_PREFIX ? 1 : 0;
  }
  int round = 0;
  for (const uint32_t kv : {BLEND_DTYPE_F32, BLEND_DTYPE_F16, BLEND_DTYPE_BF16}) {
    const std::string dir = dir_.file("store" + std::to_string(kv));
    FuseCase how{.policy = spec_.n_layers > 1 ? BLEND_POLICY_HKVD : BLEND_POLICY_REUSE,
                 .ratio = 0.2};
    how.chunk_prefix = random_.chunk_prefix;
    Store store = open_store(ctx_, dir, kv);
    const Fusion miss = fuse(model_, store, random_.prompt, how);
    ASSERT_TRUE(miss);
    EXPECT_EQ(info(miss).n_misses > 0, stored > 0);
    if (++round == 2) {  // from the disk of an earlier process, and from the queue of this one
      store.reset();
      store = open_store(ctx_, dir, kv);
    }
    const Fusion hit = fuse(model_, store, random_.prompt, how);
    ASSERT_TRUE(hit);
    EXPECT_EQ(info(hit).n_hits, stored);
    EXPECT_EQ(info(hit).n_misses, 0u);
    EXPECT_EQ(logits(hit), logits(miss)) << "KV dtype " << kv;
    EXPECT_EQ(selected(hit), selected(miss));
    EXPECT_EQ(deviation(hit), deviation(miss));
    decode(hit, {5, 6});
    decode(miss, {5, 6});
    EXPECT_EQ(logits(hit), logits(miss)) << "after decode, KV dtype " << kv;
  }
}

// 16-bit storage rounds K and V; the rest of the computation is the reference's. An element may
// round the other way in f64, hence the wider tolerance.
TEST_P(Property, SixteenBitStoreIsTheReferenceRounded) {
  for (const auto& [kv, dtype, tolerance] : {std::tuple{BLEND_DTYPE_F16, DType::f16, 4e-3},
                                             std::tuple{BLEND_DTYPE_BF16, DType::bf16, 3e-2}}) {
    const Store store = open_store(ctx_, dir_.file("store" + std::to_string(kv)), kv);
    for (const uint32_t policy : {BLEND_POLICY_REUSE, BLEND_POLICY_HKVD}) {
      if (policy == BLEND_POLICY_HKVD && spec_.n_layers == 1) continue;
      FuseCase how{.policy = policy, .ratio = 0.3};
      how.chunk_prefix = random_.chunk_prefix;
      const Fusion fusion = fuse(model_, store, random_.prompt, how);
      expect_like_reference(reference_, fusion, random_.prompt, how, dtype, tolerance);
    }
  }
}

// Misses that are computed inline are new text: exact, outside the budget, nothing stored.
TEST_P(Property, InlineMissesAreNewText) {
  FuseCase how{.policy = spec_.n_layers > 1 ? BLEND_POLICY_HKVD : BLEND_POLICY_REUSE,
               .ratio = 0.25,
               .on_miss = BLEND_MISS_COMPUTE};
  how.chunk_prefix = random_.chunk_prefix;
  const Fusion full = fuse(model_, Store(), random_.prompt, {.policy = BLEND_POLICY_FULL});
  const Fusion all_missing = fuse(model_, Store(), random_.prompt, how);
  ASSERT_TRUE(full && all_missing);
  EXPECT_LE(max_difference(logits(all_missing), logits(full)), kLogitTolerance);

  const Store store = open_store(ctx_, dir_.file("store"));
  Prompt prompt = random_.prompt;
  std::vector<std::vector<int32_t>> kept;
  for (ReferenceSegment& s : prompt) {
    if (s.kind != BLEND_SEGMENT_CHUNK && s.kind != BLEND_SEGMENT_PREFIX) continue;
    const bool keep = rng_.below(2) == 0 && s.kind == BLEND_SEGMENT_CHUNK;
    if (keep) {
      precompute(model_, store, s.tokens, random_.chunk_prefix);
      kept.push_back(s.tokens);
    }
  }
  for (ReferenceSegment& s : prompt) {  // a chunk may stand in the prompt twice
    const bool in_store = s.kind == BLEND_SEGMENT_CHUNK &&
                          std::find(kept.begin(), kept.end(), s.tokens) != kept.end();
    s.computed = (s.kind == BLEND_SEGMENT_CHUNK || s.kind == BLEND_SEGMENT_PREFIX) && !in_store;
  }
  const Fusion fusion = fuse(model_, store, prompt, how);
  expect_like_reference(reference_, fusion, prompt, how);
  const Fusion again = fuse(model_, store, prompt, how);
  EXPECT_EQ(info(again).n_misses, info(fusion).n_misses) << "an inline miss must not be stored";
}

TEST_P(Property, DecodeIsPrefill) {
  const Store store = open_store(ctx_, dir_.file("store"));
  FuseCase how{.policy = spec_.n_layers > 1 ? BLEND_POLICY_HKVD : BLEND_POLICY_REUSE};
  how.chunk_prefix = random_.chunk_prefix;
  const std::vector<int32_t> more = random_tokens(rng_, spec_.n_vocab, 7);

  // After a fusion: one by one, all at once, and the reference.
  const Fusion one_by_one = fuse(model_, store, random_.prompt, how);
  const Fusion at_once = fuse(model_, store, random_.prompt, how);
  ASSERT_TRUE(one_by_one && at_once);
  ReferenceFusion want = expect_like_reference(reference_, one_by_one, random_.prompt, how);
  for (const int32_t token : more) {
    decode(one_by_one, {token});
    reference_decode(reference_, want, {token});
    EXPECT_LE(max_difference(logits(one_by_one), want.logits), kLogitTolerance);
  }
  decode(at_once, more);
  EXPECT_LE(max_difference(logits(at_once), want.logits), kLogitTolerance);

  // After a full prefill: decoding is prefilling, from the first token on.
  const std::vector<int32_t> tokens = flatten(random_.prompt);
  const ReferencePrefill prefill = reference_.prefill(tokens);
  const size_t n = std::min<size_t>(tokens.size(), 20);
  const Fusion grown = fuse(model_, Store(), {{BLEND_SEGMENT_QUESTION, {tokens[0]}, false}},
                            {.policy = BLEND_POLICY_FULL});
  ASSERT_TRUE(grown);
  EXPECT_LE(max_difference(logits(grown), prefill.logits[0]), kLogitTolerance);
  for (size_t i = 1; i < n; ++i) {
    decode(grown, {tokens[i]});
    EXPECT_LE(max_difference(logits(grown), prefill.logits[i]), kLogitTolerance) << "row " << i;
  }
}

// A chunk stored after exactly what precedes it is reused without loss: full reuse of such a prompt
// is full prefill.
TEST_P(Property, ChunkAfterItsOwnPrefixIsExact) {
  const Store store = open_store(ctx_, dir_.file("store"));
  const std::vector<int32_t> system = random_tokens(rng_, spec_.n_vocab, 1 + rng_.below(30));
  const std::vector<int32_t> chunk = random_tokens(rng_, spec_.n_vocab, 1 + rng_.below(40));
  const Prompt prompt = {{BLEND_SEGMENT_PREFIX, system, false},
                         {BLEND_SEGMENT_CHUNK, chunk, false},
                         {BLEND_SEGMENT_QUESTION, random_tokens(rng_, spec_.n_vocab, 5), false}};
  FuseCase how{.policy = BLEND_POLICY_REUSE};
  how.chunk_prefix = system;
  const Fusion reuse = fuse(model_, store, prompt, how);
  const Fusion full = fuse(model_, store, prompt, {.policy = BLEND_POLICY_FULL});
  ASSERT_TRUE(reuse && full);
  EXPECT_EQ(info(reuse).n_rows_exact, system.size() + chunk.size());
  EXPECT_LE(max_difference(logits(reuse), logits(full)), kLogitTolerance);

  // One token less in front and it is another chunk in another context.
  Prompt shorter = prompt;
  shorter[0].tokens.push_back(3);
  const Fusion inexact = fuse(model_, store, shorter, how);
  ASSERT_TRUE(inexact);
  EXPECT_EQ(segment_info(inexact, 0).exact, 1u);
  EXPECT_EQ(segment_info(inexact, 1).exact, 0u);
}

// A chunk that was stored after some text and is given by its id is a prefix hit only after that
// text, whatever else has the same length.
TEST_P(Property, ChunkByIdIsExactOnlyAfterItsOwnPrefix) {
  const Store store = open_store(ctx_, dir_.file("store"));
  const std::vector<int32_t> own = random_tokens(rng_, spec_.n_vocab, 1 + rng_.below(20));
  std::vector<int32_t> other = own;
  other.back() = (other.back() + 1) % static_cast<int32_t>(spec_.n_vocab);
  const std::vector<int32_t> chunk = random_tokens(rng_, spec_.n_vocab, 1 + rng_.below(40));
  const std::vector<int32_t> question = random_tokens(rng_, spec_.n_vocab, 5);
  blend_chunk_id id;
  precompute(model_, store, chunk, own, &id);
  for (const bool same : {true, false}) {
    const std::vector<int32_t>& before = same ? own : other;
    blend_segment s[3];
    for (blend_segment& segment : s)
      segment = blend_segment{}, segment.struct_size = sizeof segment;
    s[0].kind = BLEND_SEGMENT_TEXT;
    s[0].tokens = before.data();
    s[0].n_tokens = before.size();
    s[1].kind = BLEND_SEGMENT_CHUNK;
    s[1].id = &id;
    s[2].kind = BLEND_SEGMENT_QUESTION;
    s[2].tokens = question.data();
    s[2].n_tokens = question.size();
    for (const uint32_t policy : {BLEND_POLICY_REUSE, BLEND_POLICY_FULL}) {
      blend_fuse_options options;
      ASSERT_EQ(blend_fuse_options_init(&options, sizeof options), BLEND_OK);
      options.policy = policy;
      options.chunk_prefix = before.data();
      options.n_chunk_prefix = before.size();
      blend_fusion* raw = nullptr;
      blend_error* error = nullptr;
      const Outcome o =
          outcome(blend_fuse(&raw, model_.get(), store.get(), s, 3, &options, &error), error);
      const Fusion fusion(raw);
      ASSERT_EQ(o.code, BLEND_OK) << o.message;
      const std::vector<int32_t> all =
          flatten({{0, before, false}, {0, chunk, false}, {0, question, false}});
      const bool should_be_full = same || policy == BLEND_POLICY_FULL;
      if (policy == BLEND_POLICY_REUSE) {
        EXPECT_EQ(segment_info(fusion, 1).exact, same ? 1u : 0u);
        EXPECT_EQ(info(fusion).n_rows_exact, same ? chunk.size() : 0u);
      }
      if (should_be_full) {
        EXPECT_LE(max_difference(logits(fusion), reference_.prefill(all).logits.back()),
                  kLogitTolerance);
      }
    }
  }
}

// Longer than any block that a kernel works in, with heads as wide as real models have them.
TEST(LongPrompt, EveryPolicyIsTheReference) {
  const TempDir dir;
  SplitMix rng(5);
  RandomModelSpec spec;
  spec.n_layers = 3;
  spec.d_model = 96;
  spec.n_heads = 4;
  spec.n_kv_heads = 2;
  spec.head_dim = 128;
  spec.context = 1500;
  const std::string path = write_random_model(spec, dir.file("model.gguf"));
  const ReferenceModel reference(path);
  const Ctx ctx = make_ctx();
  const Model model = open_model(ctx, path);
  const Store store = open_store(ctx, dir.file("store"));
  Prompt prompt;
  for (const size_t n : {300u, 1u, 257u, 128u, 311u}) {
    prompt.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, spec.n_vocab, n), false});
  }
  prompt.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, spec.n_vocab, 33), false});
  for (const FuseCase& how :
       {FuseCase{.policy = BLEND_POLICY_FULL}, FuseCase{.policy = BLEND_POLICY_REUSE},
        FuseCase{.policy = BLEND_POLICY_HKVD, .metric = BLEND_METRIC_KV}}) {
    expect_like_reference(reference, fuse(model, store, prompt, how), prompt, how);
  }
}

// One layer has nothing to check: its K and V depend on the row's own token only.
TEST(OneLayer, FullReuseIsFullPrefill) {
  const TempDir dir;
  SplitMix rng(11);
  RandomModelSpec spec;
  spec.n_layers = 1;
  const Ctx ctx = make_ctx();
  const Model model = open_model(ctx, write_random_model(spec, dir.file("model.gguf")));
  const Store store = open_store(ctx, dir.file("store"));
  const Prompt prompt = random_prompt(rng, spec.n_vocab, kMaxRows).prompt;
  const Fusion full = fuse(model, store, prompt, {.policy = BLEND_POLICY_FULL});
  const Fusion reuse = fuse(model, store, prompt, {.policy = BLEND_POLICY_REUSE});
  ASSERT_TRUE(full && reuse);
  EXPECT_LE(max_difference(logits(reuse), logits(full)), kLogitTolerance);
  // The default policy has no layer to check here: it may refuse or be exact, never be wrong.
  const Fused hkvd = try_fuse(model, store, prompt, {.policy = BLEND_POLICY_HKVD});
  if (hkvd.outcome.code == BLEND_OK) {
    EXPECT_LE(max_difference(logits(hkvd.fusion), logits(full)), kLogitTolerance);
  } else {
    EXPECT_EQ(hkvd.outcome.code, BLEND_E_INVALID_ARGUMENT);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Property, testing::Range(0, 24));

}  // namespace
}  // namespace blend::test
