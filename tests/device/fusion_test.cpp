// Fusion, editing and generation on a CUDA device through the C ABI, against the float64 reference
// and the CPU backend. BLEND_TEST_BACKEND names the device ("cuda" by default); where
// BLEND_CUDA_MODULE names the module that computes on the emulated device, that is what runs.
//
// The device rounds weights, operands and the cache to bf16, which the reference does not: logits
// of a standard deviation of about 2.5 may be off by some hundredths. What tells a wrong row, mask
// or position from rounding is that those move a logit by whole numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr double kTolerance = 0.4;       // of any logit
constexpr double kMeanTolerance = 0.08;  // of all, on average
constexpr size_t kMaxRows = 90;          // the reference is slow

std::string backend_name() {
  const char* const name = std::getenv("BLEND_TEST_BACKEND");
  return name == nullptr ? "cuda" : name;
}

// A context on the device; null with the reason where there is none.
Ctx device_ctx(std::string* why, uint64_t device_bytes = 0) {
  blend_ctx_options options{};
  options.struct_size = sizeof options;
  options.device_bytes = device_bytes;
  const std::string name = backend_name();
  options.n_threads = 2;
  options.backend = name.c_str();
  blend_ctx* ctx = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_ctx_create(&ctx, &options, &error);
  const Outcome o = outcome(code, error);
  *why = o.message;
  return Ctx(ctx);
}

Store open_packed_store(const Ctx& ctx, const std::string& path, uint32_t codec) {
  blend_store_options options;
  EXPECT_EQ(blend_store_options_init(&options, sizeof options), BLEND_OK);
  options.quota_bytes = 256u << 20;
  options.kv_dtype = BLEND_DTYPE_BF16;
  options.codec = codec;
  blend_store* store = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_store_open(&store, ctx.get(), path.c_str(), &options, &error);
  const Outcome o = outcome(code, error);
  EXPECT_EQ(o.code, BLEND_OK) << o.message;
  return Store(store);
}

double mean_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<double>(a[i]) - b[i]);
  return sum / static_cast<double>(a.size());
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LE(max_difference(got, want), kTolerance);
  EXPECT_LE(mean_difference(got, want), kMeanTolerance);
}

class DeviceFusion : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string why;
    ctx_ = device_ctx(&why);
    ASSERT_NE(ctx_, nullptr) << why;
    rng_ = SplitMix(0x51ed270bu * static_cast<uint64_t>(GetParam() + 1));
    spec_ = random_spec(rng_);
    // Weights that bf16 holds, and heads of the sizes that models have.
    spec_.dtype = DType::bf16;
    if (GetParam() % 3 == 0) spec_.head_dim = GetParam() % 2 == 0 ? 64 : 32;
    spec_.rotary_dim = std::min(spec_.rotary_dim, spec_.head_dim);
    path_ = write_random_model(spec_, dir_.file("model.gguf"));
    model_ = open_model(ctx_, path_);
    store_ = open_store(ctx_, dir_.file("store"));
  }

  TempDir dir_;
  SplitMix rng_{0};
  RandomModelSpec spec_;
  std::string path_;
  Ctx ctx_;
  Model model_;
  Store store_;
};

TEST_P(DeviceFusion, EveryPolicyIsAsTheReferenceHasIt) {
  const ReferenceModel reference(path_);
  const RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  const uint32_t policies[] = {BLEND_POLICY_FULL,    BLEND_POLICY_REUSE,  BLEND_POLICY_HKVD,
                               BLEND_POLICY_FIRST_K, BLEND_POLICY_RANDOM, BLEND_POLICY_QUESTION};
  for (const uint32_t policy : policies) {
    if (policy == BLEND_POLICY_QUESTION &&
        (random.prompt.empty() || random.prompt.back().kind != BLEND_SEGMENT_QUESTION)) {
      continue;
    }
    FuseCase how{.policy = policy,
                 .metric = GetParam() % 2 == 0 ? BLEND_METRIC_V : BLEND_METRIC_KV,
                 .ratio = policy == BLEND_POLICY_HKVD && GetParam() % 2 == 0 ? 1.0 : 0.25};
    how.chunk_prefix = random.chunk_prefix;
    SCOPED_TRACE(testing::Message() << how);
    Fused fused = try_fuse(model_, store_, random.prompt, how);
    ASSERT_EQ(fused.outcome.code, BLEND_OK) << fused.outcome.message;
    ReferenceFuseOptions options = reference_options(how, DType::f32);
    options.forced_selection = selected(fused.fusion);
    const ReferenceFusion want = reference_fuse(reference, random.prompt, options);
    ASSERT_NO_FATAL_FAILURE(expect_near(logits(fused.fusion), want.logits));
    // Deviations: of K and V that come of bf16 operands.
    const std::vector<float> got = deviation(fused.fusion);
    ASSERT_EQ(got.size(), want.deviation.size());
    double largest = 1e-3;
    for (const double d : want.deviation) largest = std::max(largest, d);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(got[i]), want.deviation[i], 0.05 * largest) << "row " << i;
    }
  }
}

TEST_P(DeviceFusion, RatioOneIsFullPrefill) {
  const RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  FuseCase full{.policy = BLEND_POLICY_FULL}, one{.policy = BLEND_POLICY_HKVD, .ratio = 1.0};
  full.chunk_prefix = one.chunk_prefix = random.chunk_prefix;
  const Fusion a = fuse(model_, store_, random.prompt, full);
  const Fusion b = fuse(model_, store_, random.prompt, one);
  ASSERT_TRUE(a && b);
  // The same sums, but for what was rounded to bf16 in another grouping of rows.
  EXPECT_LE(max_difference(logits(a), logits(b)), 0.1);
}

// One model is enough: the emulated device takes seconds for it.
class DeviceDefault : public DeviceFusion {};
INSTANTIATE_TEST_SUITE_P(One, DeviceDefault, testing::Values(0));

// By default a prompt that a device computes in the time of one row is not approximated.
TEST_P(DeviceDefault, ShortPromptsAreComputedInFull) {
  const auto policy_of = [&](size_t n_tokens) {
    const Prompt prompt = {
        {BLEND_SEGMENT_CHUNK, random_tokens(rng_, spec_.n_vocab, n_tokens), false},
        {BLEND_SEGMENT_QUESTION, random_tokens(rng_, spec_.n_vocab, 6), false}};
    const FuseCase how{.policy = BLEND_POLICY_AUTO, .ratio = BLEND_RATIO_FIDELITY};
    const Fusion fused = fuse(model_, store_, prompt, how);
    return info(fused).policy;
  };
  EXPECT_EQ(policy_of(250), BLEND_POLICY_FULL);
  EXPECT_NE(policy_of(251), BLEND_POLICY_FULL);
}

TEST_P(DeviceFusion, DecodingEditingAndTurnsAreAsOnTheCpu) {
  const Ctx cpu = make_ctx();
  const Model cpu_model = open_model(cpu, path_);
  const RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  const std::vector<int32_t> answer = random_tokens(rng_, spec_.n_vocab, 5);
  const std::vector<int32_t> instead = random_tokens(rng_, spec_.n_vocab, 3);
  const Prompt turn = {{BLEND_SEGMENT_CHUNK, random_tokens(rng_, spec_.n_vocab, 20), false},
                       {BLEND_SEGMENT_QUESTION, random_tokens(rng_, spec_.n_vocab, 4), false}};
  FuseCase how{.policy = BLEND_POLICY_FIRST_K, .ratio = 0.3};  // chooses without measuring
  how.chunk_prefix = random.chunk_prefix;
  const auto all = [&](const Model& model) {
    std::vector<std::vector<float>> out;
    // Both backends share the store: what is missing is made by the one that comes first.
    const Fusion fusion = fuse(model, store_, random.prompt, how);
    if (!fusion) return out;
    out.push_back(logits(fusion));
    for (const int32_t token : answer) {
      decode(fusion, {token});
      out.push_back(logits(fusion));
    }
    replace(fusion, 1, 2, instead);
    out.push_back(logits(fusion));
    const Outcome extended = try_extend(fusion, store_, turn, how);
    EXPECT_EQ(extended.code, BLEND_OK) << extended.message;
    out.push_back(logits(fusion));
    return out;
  };
  const auto got = all(model_), want = all(cpu_model);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "after step " << i);
    ASSERT_NO_FATAL_FAILURE(expect_near(got[i], {want[i].begin(), want[i].end()}));
  }
}

// Chunks in int8 and int4 come to the device packed; the CPU backend's reader decodes the same
// bytes. Measurements use packed rows too.
TEST_P(DeviceFusion, PackedChunksAreAsOnTheCpu) {
  const Ctx cpu = make_ctx();
  const Model cpu_model = open_model(cpu, path_);
  for (const uint32_t codec : {BLEND_CODEC_INT8, BLEND_CODEC_INT4}) {
    const std::string path = dir_.file(codec == BLEND_CODEC_INT8 ? "int8" : "int4");
    const RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
    {
      const Store store = open_packed_store(cpu, path, codec);
      precompute_all(cpu_model, store, random.prompt, random.chunk_prefix);
    }
    for (const uint32_t policy : {BLEND_POLICY_REUSE, BLEND_POLICY_HKVD}) {
      FuseCase how{.policy = policy, .metric = BLEND_METRIC_KV, .ratio = 0.25};
      how.chunk_prefix = random.chunk_prefix;
      SCOPED_TRACE(testing::Message() << how << " codec " << codec);
      std::vector<float> got, want, got_deviation, want_deviation;
      {
        const Store store = open_packed_store(ctx_, path, codec);
        const Fusion fusion = fuse(model_, store, random.prompt, how);
        ASSERT_TRUE(fusion);
        EXPECT_EQ(info(fusion).n_misses, 0u) << "nothing was made here";
        got = logits(fusion);
        got_deviation = deviation(fusion);
      }
      {
        const Store store = open_packed_store(cpu, path, codec);
        const Fusion fusion = fuse(cpu_model, store, random.prompt, how);
        ASSERT_TRUE(fusion);
        want = logits(fusion);
        want_deviation = deviation(fusion);
      }
      if (policy == BLEND_POLICY_REUSE) {  // no choice that a rounding could tip
        ASSERT_NO_FATAL_FAILURE(expect_near(got, {want.begin(), want.end()}));
      }
      double largest = 1e-3;
      for (const float d : want_deviation) largest = std::max(largest, static_cast<double>(d));
      ASSERT_EQ(got_deviation.size(), want_deviation.size());
      for (size_t i = 0; i < got_deviation.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(got_deviation[i]), static_cast<double>(want_deviation[i]),
                    0.05 * largest)
            << "row " << i;
      }
    }
  }
}

// Layers that an earlier fuse left in device memory: nothing is loaded, and every bit is the same.
// A chunk that was put again in another codec is not the one that is kept.
TEST_P(DeviceFusion, ChunksInDeviceMemoryAreThoseOfTheStore) {
  if (GetParam() > 2) return;
  std::string why;
  const Ctx keeping = device_ctx(&why, 64u << 20);
  ASSERT_NE(keeping, nullptr) << why;
  const Model kept_model = open_model(keeping, path_);
  RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  const bool packed = GetParam() % 2 == 1;
  const std::string path = dir_.file("kept");
  {
    const Store store = open_packed_store(ctx_, path, packed ? BLEND_CODEC_INT4 : BLEND_CODEC_NONE);
    precompute_all(model_, store, random.prompt, random.chunk_prefix);
  }
  for (const uint32_t policy : {BLEND_POLICY_REUSE, BLEND_POLICY_HKVD}) {
    FuseCase how{.policy = policy, .metric = BLEND_METRIC_KV, .ratio = 0.25};
    how.chunk_prefix = random.chunk_prefix;
    SCOPED_TRACE(testing::Message() << how);
    const Store plain_store = open_packed_store(ctx_, path, BLEND_CODEC_NONE);
    const Fusion plain = fuse(model_, plain_store, random.prompt, how);
    const Store store = open_packed_store(keeping, path, BLEND_CODEC_NONE);
    // The second has all that the first loaded.
    const Fusion first = fuse(kept_model, store, random.prompt, how);
    const Fusion second = fuse(kept_model, store, random.prompt, how);
    ASSERT_TRUE(plain && first && second);
    EXPECT_EQ(logits(first), logits(plain));
    EXPECT_EQ(logits(second), logits(plain));
    EXPECT_EQ(deviation(second), deviation(plain));
    EXPECT_EQ(info(plain).bytes_from_device, 0u);
    EXPECT_EQ(info(second).bytes_loaded + info(second).bytes_shared, 0u);
    EXPECT_EQ(info(second).bytes_from_device, info(plain).bytes_loaded + info(plain).bytes_shared);
    EXPECT_EQ(info(second).n_rows_from_device, info(second).n_rows_from_memory);
    if (info(plain).bytes_loaded > 0) {
      EXPECT_GT(info(second).n_rows_from_device, 0u);
    }
  }
  // The same chunks in another codec: other bytes under the same ids.
  const std::string other = dir_.file("other");
  {
    const Store store =
        open_packed_store(ctx_, other, packed ? BLEND_CODEC_NONE : BLEND_CODEC_INT4);
    precompute_all(model_, store, random.prompt, random.chunk_prefix);
  }
  FuseCase how{.policy = BLEND_POLICY_REUSE};
  how.chunk_prefix = random.chunk_prefix;
  const Store plain_store = open_packed_store(ctx_, other, BLEND_CODEC_NONE);
  const Fusion plain = fuse(model_, plain_store, random.prompt, how);
  const Store store = open_packed_store(keeping, other, BLEND_CODEC_NONE);
  const Fusion again = fuse(kept_model, store, random.prompt, how);
  ASSERT_TRUE(plain && again);
  EXPECT_EQ(logits(again), logits(plain));
}

TEST_P(DeviceFusion, FusesAtTheSameTimeDoNotMix) {
  if (GetParam() > 1) return;  // two of them are enough
  std::vector<RandomPrompt> prompts;
  std::vector<std::vector<float>> alone, together(3);
  for (size_t i = 0; i < 3; ++i) {
    prompts.push_back(random_prompt(rng_, spec_.n_vocab, kMaxRows));
    FuseCase how{.policy = BLEND_POLICY_HKVD, .ratio = 0.2};
    how.chunk_prefix = prompts[i].chunk_prefix;
    (void)fuse(model_, store_, prompts[i].prompt, how);  // all chunks are in the store
    const Fusion fusion = fuse(model_, store_, prompts[i].prompt, how);
    ASSERT_TRUE(fusion);
    alone.push_back(logits(fusion));
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      FuseCase how{.policy = BLEND_POLICY_HKVD, .ratio = 0.2};
      how.chunk_prefix = prompts[i].chunk_prefix;
      const Fused fused = try_fuse(model_, store_, prompts[i].prompt, how);
      if (fused.fusion) together[i] = logits(fused.fusion);
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(together[i], alone[i]) << i;
}

#if defined(__SANITIZE_ADDRESS__)
INSTANTIATE_TEST_SUITE_P(Seeds, DeviceFusion, testing::Range(0, 1));
#else
INSTANTIATE_TEST_SUITE_P(Seeds, DeviceFusion, testing::Range(0, 5));
#endif

}  // namespace
}  // namespace blend::test
