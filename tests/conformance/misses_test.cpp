// Missing chunks: computed in the prompt's own pass, and stored after it
// (BLEND_MISS_COMPUTE_STORE).
#include <gtest/gtest.h>

#include <cstring>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

class Misses : public testing::Test {
 protected:
  Misses()
      : path_(write_random_model({}, dir_.file("model.gguf"))),
        ctx_(make_ctx(2, &log_)),
        model_(open_model(ctx_, path_)),
        store_(open_store(ctx_, dir_.file("store"))) {
    SplitMix rng(17);
    prompt_.push_back({BLEND_SEGMENT_PREFIX, random_tokens(rng, 320, 5), false});
    for (const size_t n : {30u, 12u, 25u}) {
      prompt_.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, 320, n), false});
    }
    prompt_.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, 320, 6), false});
  }

  Outcome flush() {
    blend_error* error = nullptr;
    const int32_t code = blend_store_flush(store_.get(), &error);
    return outcome(code, error);
  }
  FuseCase how(uint32_t on_miss) const {
    FuseCase how{.policy = BLEND_POLICY_HKVD, .ratio = 0.2, .on_miss = on_miss};
    how.chunk_prefix = {7, 8};
    return how;
  }

  TempDir dir_;
  std::string path_;
  LogCount log_;
  Ctx ctx_;
  Model model_;
  Store store_;
  Prompt prompt_;
};

TEST_F(Misses, AreComputedInThePassAndFoundByTheNext) {
  precompute(model_, store_, prompt_[2].tokens, {7, 8});
  const Fusion computed = fuse(model_, store_, prompt_, how(BLEND_MISS_COMPUTE));
  const Fusion first = fuse(model_, store_, prompt_, how(BLEND_MISS_COMPUTE_STORE));
  ASSERT_TRUE(computed && first);
  EXPECT_EQ(logits(first), logits(computed)) << "what is stored behind it changes nothing";
  EXPECT_EQ(info(first).n_hits, 1u);
  EXPECT_EQ(info(first).n_misses, 3u);
  EXPECT_EQ(info(first).n_misses_queued, 3u);
  for (const size_t s : {0u, 1u, 3u}) {
    EXPECT_EQ(segment_info(first, s).source, BLEND_SOURCE_COMPUTED) << s;
  }
  EXPECT_EQ(info(computed).n_misses_queued, 0u);

  ASSERT_EQ(flush().code, BLEND_OK);
  const Fusion second = fuse(model_, store_, prompt_, how(BLEND_MISS_FAIL));
  ASSERT_TRUE(second);
  // The stored chunk was prefilled after its chunk prefix and nothing else of the prompt.
  expect_like_reference(ReferenceModel(path_), second, prompt_, how(BLEND_MISS_FAIL));
  const blend_segment_info stored = segment_info(second, 3), named = segment_info(first, 3);
  EXPECT_EQ(stored.source, BLEND_SOURCE_STORE);
  EXPECT_EQ(std::memcmp(stored.id.bytes, named.id.bytes, sizeof stored.id.bytes), 0);
  EXPECT_EQ(log_.n, 0);
}

TEST_F(Misses, AreWaitedForByTheirIds) {
  {
    const Fusion fusion = fuse(model_, store_, prompt_, how(BLEND_MISS_COMPUTE_STORE));
    ASSERT_TRUE(fusion);
    // Neither the fusion nor the model need live until they are stored.
    model_.reset();
    for (const size_t s : {3u, 0u, 1u, 2u}) {
      const blend_chunk_id id = segment_info(fusion, s).id;
      blend_error* error = nullptr;
      const int32_t code = blend_store_wait(store_.get(), &id, -1, &error);
      EXPECT_EQ(outcome(code, error).code, BLEND_OK) << s;
    }
    store_.reset();
  }
  EXPECT_EQ(log_.n, 0) << "nothing was left to give up";
  model_ = open_model(ctx_, path_);
  store_ = open_store(ctx_, dir_.file("store"));
  EXPECT_TRUE(fuse(model_, store_, prompt_, how(BLEND_MISS_FAIL)));
}

// However far the prefills have come, each chunk is stored or counted.
TEST_F(Misses, AreStoredOrGivenUpWhenTheStoreIsClosed) {
  const Fusion fusion = fuse(model_, store_, prompt_, how(BLEND_MISS_COMPUTE_STORE));
  ASSERT_TRUE(fusion);
  ASSERT_EQ(info(fusion).n_misses_queued, 4u);
  double left = -1;
  const auto find = [](void* user, const char* name, const char*, const char*, uint32_t,
                       double value) -> int32_t {
    if (std::strcmp(name, "blend_store_prefills_left") == 0) *static_cast<double*>(user) = value;
    return 0;
  };
  ASSERT_EQ(blend_store_list_metrics(store_.get(), find, &left, nullptr), BLEND_OK);
  EXPECT_GE(left, 0) << "there is a metric of it";
  store_.reset();
  store_ = open_store(ctx_, dir_.file("store"));
  blend_store_report stat{};
  stat.struct_size = sizeof stat;
  ASSERT_EQ(blend_store_get_report(store_.get(), &stat, nullptr), BLEND_OK);
  EXPECT_EQ(log_.n, stat.n_chunks < 4 ? 1 : 0);
  if (log_.n > 0) {
    EXPECT_EQ(log_.last_code, BLEND_E_CANCELLED);
  }
}

TEST_F(Misses, AChunkThatStandsTwiceIsStoredOnce) {
  prompt_.insert(prompt_.begin() + 2, prompt_[3]);
  const Fusion fusion = fuse(model_, store_, prompt_, how(BLEND_MISS_COMPUTE_STORE));
  ASSERT_TRUE(fusion);
  EXPECT_EQ(info(fusion).n_misses_queued, 5u) << "each of the misses is taken care of";
  ASSERT_EQ(flush().code, BLEND_OK);
  blend_store_report stat{};
  stat.struct_size = sizeof stat;
  blend_error* error = nullptr;
  ASSERT_EQ(blend_store_get_report(store_.get(), &stat, &error), BLEND_OK);
  EXPECT_EQ(stat.n_chunks, 4u);
  EXPECT_EQ(stat.written, 4u);
}

TEST_F(Misses, NothingIsStoredWhereNothingCanBe) {
  store_.reset();
  blend_store_options options;
  ASSERT_EQ(blend_store_options_init(&options, sizeof options), BLEND_OK);
  options.flags = BLEND_STORE_READ_ONLY;
  options.quota_bytes = 256u << 20;
  blend_store* read_only = nullptr;
  ASSERT_EQ(blend_store_open(&read_only, ctx_.get(), dir_.file("store").c_str(), &options, nullptr),
            BLEND_OK);
  store_.reset(read_only);
  const Fusion fusion = fuse(model_, store_, prompt_, how(BLEND_MISS_COMPUTE_STORE));
  ASSERT_TRUE(fusion);
  EXPECT_EQ(info(fusion).n_misses_queued, 0u);
  EXPECT_EQ(flush().code, BLEND_OK);
}

TEST_F(Misses, ThatCannotBeStoredAreToldByTheFlush) {
  // A prefix of another size than the model's context allows for the chunk alone: the pass has
  // room, the chunk after its chunk prefix has not.
  FuseCase long_prefix = how(BLEND_MISS_COMPUTE_STORE);
  long_prefix.chunk_prefix.assign(500, 9);  // the context is 512
  const Fusion fusion = fuse(model_, store_, prompt_, long_prefix);
  ASSERT_TRUE(fusion) << "the answer is there all the same";
  const Outcome told = flush();
  EXPECT_EQ(told.code, BLEND_E_CONTEXT_LENGTH);
  EXPECT_NE(told.message.find("the deferred prefill of chunk"), std::string::npos) << told.message;
  EXPECT_EQ(log_.n, 2) << "12 tokens fit, 30 and 25 do not";
  const blend_chunk_id id = segment_info(fusion, 3).id;
  blend_error* error = nullptr;
  const int32_t code = blend_store_wait(store_.get(), &id, 0, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_E_CONTEXT_LENGTH);
  EXPECT_EQ(flush().code, BLEND_OK) << "once";
}

TEST_F(Misses, ALayerwiseFusePrecomputes) {
  const std::vector<blend_segment> segments = segments_of(prompt_);
  const FuseCase c = how(BLEND_MISS_COMPUTE_STORE);
  const blend_fuse_options options = options_of(c);
  blend_layerwise* layerwise = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_layerwise_create(&layerwise, model_.get(), store_.get(),
                                              segments.data(), segments.size(), &options, &error);
  const Outcome o = outcome(code, error);
  EXPECT_EQ(o.code, BLEND_OK) << o.message;
  blend_layerwise_close(layerwise);
  EXPECT_EQ(flush().code, BLEND_OK);
  const Fusion after = fuse(model_, store_, prompt_, how(BLEND_MISS_FAIL));
  ASSERT_TRUE(after) << "all is stored, as with PRECOMPUTE";
}

TEST_F(Misses, WithApeALayerwiseFuseAndASaveAreRefused) {
  FuseCase ape = how(BLEND_MISS_PRECOMPUTE);
  ape.policy = BLEND_POLICY_APE;
  const std::vector<blend_segment> segments = segments_of(prompt_);
  const blend_fuse_options options = options_of(ape);
  blend_layerwise* layerwise = nullptr;
  blend_error* error = nullptr;
  int32_t code = blend_layerwise_create(&layerwise, model_.get(), store_.get(), segments.data(),
                                        segments.size(), &options, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_E_UNSUPPORTED);

  const Fusion fusion = fuse(model_, store_, prompt_, ape);
  ASSERT_TRUE(fusion);
  error = nullptr;
  code = blend_fusion_save(fusion.get(), store_.get(), nullptr, nullptr, nullptr, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_E_UNSUPPORTED);
}

// A chunk whose K and V the host computed has no statistics of its rows.
TEST_F(Misses, ContextImpactNeedsItsStatistics) {
  const Fusion fusion = fuse(model_, store_, prompt_, how(BLEND_MISS_PRECOMPUTE));
  ASSERT_TRUE(fusion);
  ASSERT_EQ(flush().code, BLEND_OK);
  blend_model_info shape{};
  shape.struct_size = sizeof shape;
  ASSERT_EQ(blend_model_get_info(model_.get(), &shape, nullptr), BLEND_OK);
  const size_t n = prompt_[3].tokens.size();
  std::vector<float> zeros(n * shape.n_kv_heads * shape.head_dim, 0.0f);
  std::vector<blend_kv_view> layers(shape.n_layers);
  for (blend_kv_view& view : layers) {
    view = blend_kv_view{}, view.struct_size = sizeof view;
    view.flags = BLEND_KV_VIEW_UNROTATED;
    view.k = view.v = zeros.data();
  }
  blend_precompute_options put{};
  put.struct_size = sizeof put;
  const std::vector<int32_t> prefix = {7, 8};
  put.chunk_prefix = prefix.data();
  put.n_chunk_prefix = prefix.size();
  ASSERT_EQ(blend_chunk_put(model_.get(), store_.get(), prompt_[3].tokens.data(), n, layers.data(),
                            layers.size(), 0, &put, nullptr, nullptr),
            BLEND_OK);
  FuseCase impact = how(BLEND_MISS_FAIL);
  impact.policy = BLEND_POLICY_CONTEXT_IMPACT;
  const Outcome o = try_fuse(model_, store_, prompt_, impact).outcome;
  EXPECT_EQ(o.code, BLEND_E_NOT_FOUND);
  EXPECT_NE(o.message.find("precompute it again"), std::string::npos) << o.message;
  EXPECT_NE(o.message.find("hkvd, or auto"), std::string::npos) << o.message;
  // By name the cascade refuses it too; the default needs no statistics.
  Prompt asks = prompt_;
  if (asks.back().kind != BLEND_SEGMENT_QUESTION) asks.push_back({BLEND_SEGMENT_QUESTION, {5, 6}});
  impact.policy = BLEND_POLICY_CASCADE;
  EXPECT_EQ(try_fuse(model_, store_, asks, impact).outcome.code, BLEND_E_NOT_FOUND);
  impact.policy = BLEND_POLICY_AUTO;
  EXPECT_EQ(info(fuse(model_, store_, asks, impact)).policy, BLEND_POLICY_ATTENTION);
}

}  // namespace
}  // namespace blend::test
