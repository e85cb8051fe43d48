// The controller's arithmetic: the paper's two examples, and what must hold of any numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "base/rate_meter.h"
#include "control/advise.h"
#include "control/cost_model.h"

namespace blend {
namespace {

// CacheBlend, section 5.1: 4 K tokens, 15 %, K and V in 16 bits on one NVMe disk.
//
//   Llama-7B   recomputing 15 % of a layer takes 3 ms, so all of it 20 ms; 32 layers.
//              K and V of a layer: 2 * 4096 dims * 2 bytes * 4096 tokens = 64 MiB, read in 16 ms,
//              which makes the disk 64 MiB / 16 ms = 4.19 GB/s.
//   Llama-70B  15 % takes 7 ms, all of it 46.7 ms; 80 layers. With 8 KV heads of 128 K and V of a
//              layer are 16 MiB: 4 ms from the same disk, as the paper has it.
constexpr double kLeast = 0.15;  // r*
constexpr uint64_t kRows = 4096;
constexpr double kDisk = 64.0 * 1048576 / 16e-3;  // bytes/s

// Nothing but the rows' own work, so that the model's shape does not matter: attention to half of
// 4 K rows left out.
struct Example {
  ModelConfig config;
  double token_bytes = 0;  // in a layer
  double layer_s = 0;      // computing all of it
  PrefillTimes times = *PrefillTimes::create({{1, 1}});
  Pace pace;

  AdvisedPrompt prompt() { return {&config, {&times, &pace}, kRows, kRows, token_bytes, 0}; }
};

std::unique_ptr<Example> example(uint32_t n_layers, uint64_t layer_bytes, double layer_ms_at_15) {
  auto e = std::make_unique<Example>();
  e->config.n_layers = n_layers;
  e->config.d_model = 4096;
  e->config.n_heads = e->config.n_kv_heads = 32;
  e->config.head_dim = 128;
  e->config.d_ff = 11008;
  e->token_bytes = static_cast<double>(layer_bytes) / kRows;
  e->layer_s = layer_ms_at_15 * 1e-3 / 0.15;
  e->times = *PrefillTimes::create({{kRows, static_cast<uint64_t>(1e9 * n_layers * e->layer_s)}});
  return e;
}
std::unique_ptr<Example> llama_7b() { return example(32, 64u << 20, 3); }
std::unique_ptr<Example> llama_70b() { return example(80, 16u << 20, 7); }

// In the paper loading a layer takes as long during a pass as alone; here it is estimated slower.
constexpr double kAlone = kDisk * kReadsBeside;

TEST(PaperExamples, TimesAreThePapers) {
  const auto small = llama_7b(), large = llama_70b();
  const Storage disk[] = {{kAlone, 1e-4}};
  const Advice for_small = advise(small->prompt(), 0.15, disk);
  EXPECT_NEAR(for_small.recompute_s / 32, 3e-3, 0.02e-3);
  EXPECT_NEAR(for_small.storages[0].load_s / 32, 16e-3, 1e-9);
  const Advice for_large = advise(large->prompt(), 0.15, disk);
  EXPECT_NEAR(for_large.recompute_s / 80, 7e-3, 0.02e-3);
  EXPECT_NEAR(for_large.storages[0].load_s / 80, 4e-3, 1e-9);
}

// 7B waits for the disk: recomputing 16 / 20 of the rows would cost no time. The controller takes
// less, because computing may be slower than estimated. 70B does not wait: only 4 / 46.7 would cost
// no time, which is less than the 15 % that quality needs.
TEST(PaperExamples, RatioIsWhatHidesButNeverBelowTheLeast) {
  const auto small = llama_7b(), large = llama_70b();
  const Storage disk[] = {{kAlone, 1e-4}};
  const StorageAdvice for_small = advise(small->prompt(), kLeast, disk).storages[0];
  EXPECT_NEAR(for_small.hidden_ratio, 0.8, 0.04);
  EXPECT_NEAR(for_small.ratio, 0.8 / 1.375, 0.04);
  const StorageAdvice for_large = advise(large->prompt(), kLeast, disk).storages[0];
  EXPECT_NEAR(for_large.hidden_ratio, 4 * 0.15 / 7, 0.01);
  EXPECT_EQ(for_large.ratio, kLeast);
}

// The paper's other question: which storage is fast enough at 15 %? For 70B 4/7 of the disk's speed
// is enough, so the disk is. 7B needs 16/3 of that speed: only memory is fast enough.
TEST(PaperExamples, CheapestDeviceThatAddsNoDelay) {
  const std::vector<Storage> storages = {
      {100e9, 4e-3},          // memory
      {kAlone, 1e-4},         // the disk
      {kAlone * 0.59, 5e-5},  // a slower one: 4 / 0.59 = 6.8 ms a layer of 70B
      {kAlone * 0.55, 2e-5},  // 7.3 ms
      {0.2e9, 1e-5},          // an object store
  };
  const auto small = llama_7b(), large = llama_70b();
  const Advice for_large = advise(large->prompt(), kLeast, storages);
  ASSERT_TRUE(for_large.cheapest);
  EXPECT_EQ(*for_large.cheapest, 2u);
  EXPECT_FALSE(for_large.storages[3].hides);
  EXPECT_NEAR(for_large.storages[2].cost_per_hour, 1.342177 * 5e-5, 1e-9);  // 1.25 GiB
  const Advice for_small = advise(small->prompt(), kLeast, storages);
  ASSERT_TRUE(for_small.cheapest);
  EXPECT_EQ(*for_small.cheapest, 0u);
  EXPECT_EQ(for_small.storages[0].ratio, kLeast);
  EXPECT_FALSE(for_small.storages[1].slower_than_prefill);
  EXPECT_TRUE(for_small.storages[4].slower_than_prefill);  // 335 ms a layer against 20
  EXPECT_EQ(for_small.storages[4].ratio, 1.0);
  const Advice none = advise(small->prompt(), kLeast, {&storages[1], 1});
  EXPECT_FALSE(none.cheapest);
}

// AttentionStore's question (3.2.1): how far must the reader be ahead. A fuse begins to load and to
// compute at the same time, so without a head start a deeper ring gains nothing, whichever of the
// two is slower: 7B waits for every layer, 70B for none.
TEST(PaperExamples, RingIsDeepOnlyWhereTheReaderCanRunAhead) {
  constexpr uint64_t kPlenty = 1ull << 40;
  const auto layers = [](size_t n, double load_ms, double compute_ms) {
    return std::vector<LayerCost>(n, {load_ms * 1e-3, compute_ms * 1e-3});
  };
  EXPECT_EQ(ring_depth(layers(32, 16, 3), 64u << 20, kPlenty), 3u);
  EXPECT_EQ(ring_depth(layers(80, 4, 7), 16u << 20, kPlenty), 3u);
  // Layers 0 and 1 of 7B are computed for all rows, 20 ms each, from a storage of 4 ms a layer:
  // while they are, ten layers come in, which the ring must hold, or the reader falls behind for
  // good.
  std::vector<LayerCost> seven = layers(32, 4, 3);
  seven[0] = {0, 20e-3};
  seven[1].compute_s = 20e-3;
  const uint32_t depth = ring_depth(seven, 64u << 20, kPlenty);
  EXPECT_GE(depth, 9u);
  EXPECT_LE(depth, 12u);
  EXPECT_NEAR(pass_seconds(seven, depth), 2 * 20e-3 + 30 * 3e-3, 4e-3);
  EXPECT_GT(pass_seconds(seven, 3), pass_seconds(seven, depth) + 20e-3);
  EXPECT_EQ(ring_depth(seven, 64u << 20, 512u << 20), 8u);  // the budget's
  EXPECT_EQ(ring_depth(seven, 64u << 20, 1), 2u);           // never less than two
  EXPECT_EQ(ring_depth(layers(2, 4, 7), 1, kPlenty), 2u);
  EXPECT_EQ(ring_depth(layers(4, 0, 7), 0, kPlenty), 2u);  // nothing is loaded
}

TEST(CostModel, APassIsAsLongAsTheLongerOfLoadingAndComputing) {
  std::vector<LayerCost> layers(10, {2.0, 1.0});
  EXPECT_EQ(pass_seconds(layers, 2), 10 * 2.0 + 1.0);  // the last one's compute comes after
  for (LayerCost& l : layers) l = {1.0, 2.0};
  EXPECT_EQ(pass_seconds(layers, 2), 1.0 + 10 * 2.0);  // the first one's load before
  for (LayerCost& l : layers) l = {0.0, 2.0};
  EXPECT_EQ(pass_seconds(layers, 2), 20.0);
  EXPECT_EQ(pass_seconds({}, 2), 0.0);
  // One slot: the next layer is read when the rows of this one are placed, not when it is computed.
  for (LayerCost& l : layers) l = {1.0, 1.0};
  EXPECT_EQ(pass_seconds(layers, 1), 11.0);
  // No ring is worse than a shallower one.
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = {0.1 * static_cast<double>(i * 7 % 5), 0.1 * static_cast<double>(i * 3 % 7)};
  }
  for (uint32_t depth = 1; depth < 10; ++depth) {
    EXPECT_GE(pass_seconds(layers, depth), pass_seconds(layers, depth + 1)) << depth;
  }
}

TEST(PrefillTimes, LinesBetweenAndAParabolaBehind) {
  auto times = PrefillTimes::create({{100, 1000000}, {200, 3000000}});
  ASSERT_TRUE(times.is_ok());
  EXPECT_NEAR(times->seconds(50), 0.5e-3, 1e-12);
  EXPECT_NEAR(times->seconds(100), 1e-3, 1e-12);
  EXPECT_NEAR(times->seconds(150), 2e-3, 1e-12);
  EXPECT_NEAR(times->seconds(200), 3e-3, 1e-12);
  // a + b * 100 = 10 us, a + b * 200 = 15 us: a = 5 us, b = 0.05 us.
  EXPECT_NEAR(times->seconds(400), 400 * (5e-6 + 0.05e-6 * 400), 1e-12);
  EXPECT_EQ(times->seconds(0), 0.0);
  // Noise may make the longer one cheaper a token: then a line, never back.
  auto noisy = PrefillTimes::create({{100, 2000000}, {200, 3000000}});
  EXPECT_NEAR(noisy->seconds(400), 6e-3, 1e-12);
  EXPECT_NEAR(PrefillTimes::create({{100, 2000000}})->seconds(400), 8e-3, 1e-12);

  EXPECT_FALSE(PrefillTimes::create({}).is_ok());
  EXPECT_FALSE(PrefillTimes::create({{100, 1}, {100, 2}}).is_ok());
  EXPECT_FALSE(PrefillTimes::create({{100, 0}}).is_ok());
  EXPECT_FALSE(PrefillTimes::create({{0, 5}}).is_ok());
}

// A chunk of 512 tokens in a prompt of 8192, at the paper's ratio, of 16 layers.
TEST(Missing, IsPrefilledFirstOnlyWhereAttentionToALongPromptCosts) {
  ModelConfig config;
  config.n_layers = 16;
  config.d_model = 2048;
  config.n_heads = 32;
  config.n_kv_heads = 8;
  config.head_dim = 64;
  config.d_ff = 8192;
  const auto sooner = [&](uint64_t n_tokens, double ratio, const PrefillTimes& by,
                          uint64_t n_rows = 8192) {
    return prefill_first_is_sooner(n_tokens, n_rows, Schedule{{1, ratio}}, config, by);
  };
  const auto times = [](double a, double b) {
    std::vector<PrefillTimes::Point> points;
    for (const uint64_t n : {128u, 512u, 2048u, 8192u}) {
      const auto length = static_cast<double>(n);
      points.push_back({n, static_cast<uint64_t>(1e3 * (a * length + b * length * length))});
    }
    return *PrefillTimes::create(points);
  };
  // All dense work: by itself it would be computed once, and a fifth of it again.
  EXPECT_FALSE(sooner(512, 0.15, times(1, 0)));
  // All attention: by itself to 512 rows, in the prompt to 8192.
  EXPECT_TRUE(sooner(512, 0.15, times(0, 1)));
  EXPECT_FALSE(sooner(512, 1.0, times(0, 1))) << "all is computed again";
  EXPECT_FALSE(sooner(8192, 0.15, times(0, 1))) << "it is the prompt";
  // a + 512 b < (a + 8192 b) * 15/16 * 0.85.
  EXPECT_FALSE(sooner(512, 0.15, times(1, 2e-5)));
  EXPECT_TRUE(sooner(512, 0.15, times(1, 5e-5)));
  EXPECT_FALSE(sooner(512, 0.15, times(0, 1), 0));
  // If nothing is recomputed, the chunk costs its prefill only.
  EXPECT_TRUE(prefill_first_is_sooner(512, 8192, {}, config, times(0, 1)));
}

TEST(Pace, IsThatOfTheFusesBesideTheTimes) {
  Pace pace;
  EXPECT_EQ(pace.compute(0.5), 1.0);
  EXPECT_EQ(pace.place_s(), 0.0);
  pace.add_computed(1, 1000, 2500);
  pace.add_placed(100, 5000);
  EXPECT_NEAR(pace.compute(1), 2.5, 1e-9);
  EXPECT_NEAR(pace.place_s(), 50e-9, 1e-15);
}

// If only one of the two is known, it is used for both.
TEST(Pace, OfFewRowsAndOfManyIsNotOne) {
  Pace pace;
  pace.add_computed(0.1, 1000, 2000);
  EXPECT_NEAR(pace.compute(0.1), 2, 1e-9);
  EXPECT_NEAR(pace.compute(0.9), 2, 1e-9);
  pace.add_computed(0.9, 1000, 1200);
  EXPECT_NEAR(pace.compute(0.1), 2, 1e-9);
  EXPECT_NEAR(pace.compute(0.5), 1.6, 1e-9);
  EXPECT_NEAR(pace.compute(0.9), 1.2, 1e-9);
  Pace many;
  many.add_computed(0.9, 1000, 3000);
  EXPECT_NEAR(many.compute(0.1), 3, 1e-9);
}

TEST(RateMeter, FollowsTheDeviceButNotOneOddRead) {
  RateMeter meter;
  EXPECT_EQ(meter.per_second(), 0.0);
  meter.add(0, 5);
  meter.add(5, 0);
  EXPECT_EQ(meter.per_second(), 0.0);
  meter.add(1000, 1000);
  EXPECT_NEAR(meter.per_second(), 1e9, 1);
  meter.add(100000, 1000);
  EXPECT_LT(meter.per_second(), 30e9);
  for (int i = 0; i < 20; ++i) meter.add(1000, 2000);
  EXPECT_NEAR(meter.per_second(), 0.5e9, 0.2e9);
}

}  // namespace
}  // namespace blend
