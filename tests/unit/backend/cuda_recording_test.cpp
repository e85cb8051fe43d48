// Steps of one token that are recorded and run again, on the emulated device: to the bit what
// issuing every one of them gives, and honest where nothing can be recorded.
#include <gtest/gtest.h>

#include <thread>

#include "backend/cuda/cuda_backend.h"
#include "cuda/attention_plan.h"
#include "engine/sequence.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::cuda {
namespace {

class CudaRecording : public testing::Test {
 protected:
  void TearDown() override { simt::set_machine({}); }

  Result<std::shared_ptr<const Model>> load(const simt::Machine& machine,
                                            const test::RandomModelSpec& spec,
                                            const Model::Options& options) {
    simt::set_machine(machine);
    BLEND_ASSIGN(auto runtime, Runtime::create(2, {}, [](ThreadPool& pool) {
                   return CudaBackend::create(0, pool);
                 }));
    const std::string path = test::write_random_model(spec, dir_.file("model.gguf"));
    return Model::load(runtime, path, options, {});
  }
  void open(const simt::Machine& machine, const test::RandomModelSpec& spec = {}) {
    auto model = load(machine, spec, {});
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    model_ = *model;
  }
  std::vector<int32_t> tokens(size_t n, uint64_t seed) const {
    test::SplitMix random(seed);
    std::vector<int32_t> out;
    for (size_t i = 0; i < n; ++i) {
      out.push_back(static_cast<int32_t>(259 + random.below(model_->config().n_vocab - 259)));
    }
    return out;
  }
  std::unique_ptr<Sequence> begin(uint32_t capacity, const std::vector<int32_t>& prompt,
                                  bool issues_every_step) {
    auto s = Sequence::create(model_, capacity);
    EXPECT_TRUE(s.is_ok()) << s.status().message();
    if (issues_every_step) s.value()->issue_every_step();
    EXPECT_TRUE(s.value()->append(prompt, {}).is_ok());
    return std::move(s.value());
  }
  // The logits after every step.
  static std::vector<std::vector<float>> decode(Sequence& s, const std::vector<int32_t>& answer,
                                                const Watch& watch = {}) {
    std::vector<std::vector<float>> all;
    for (const int32_t token : answer) {
      const Status status = s.append({&token, 1}, watch);
      EXPECT_TRUE(status.is_ok()) << status.message();
      all.push_back(s.logits());
    }
    return all;
  }

  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
};

TEST_F(CudaRecording, FormsOfWeightsThatTheDeviceHasNotAreNamed) {
  for (const auto& [form, name] : {std::pair{WeightForm::mapped, "in the mapped file"},
                                   std::pair{WeightForm::int8, "as 8-bit integers"}}) {
    const auto refused = load({}, {}, {.weights = form});
    ASSERT_EQ(refused.status().code(), BLEND_E_UNSUPPORTED);
    EXPECT_NE(refused.status().message().find(name), std::string::npos)
        << refused.status().message();
  }
}

TEST_F(CudaRecording, StepsRunAgainAreThoseThatAreIssued) {
#if defined(__SANITIZE_ADDRESS__)
  const std::vector<simt::Schedule> schedules = {simt::Schedule::random};
#else
  const std::vector<simt::Schedule> schedules = {simt::Schedule::late, simt::Schedule::early,
                                                 simt::Schedule::random};
#endif
  for (const auto schedule : schedules) {
    simt::Machine machine;
    machine.schedule = schedule;
    ASSERT_NO_FATAL_FAILURE(open(machine));
    const auto prompt = tokens(11, 1), answer = tokens(9, 2);
    const auto want = decode(*begin(40, prompt, true), answer);
    EXPECT_EQ(simt::graph_launches(), 0u);
    const auto recorded = begin(40, prompt, false);
    const uint64_t before = simt::kernel_launches();
    const auto got = decode(*recorded, answer);
    EXPECT_EQ(got, want);
    EXPECT_EQ(simt::graph_launches(), answer.size() - 1) << "the first one is issued";
    // And besides, a step, the kernel that writes the token and its position.
    const uint64_t first_step = simt::kernel_launches() - before;
    const auto more = tokens(3, 3);
    decode(*recorded, more);
    EXPECT_EQ(simt::kernel_launches() - before, first_step + more.size());
  }
}

// The number of parts that attention splits the keys into grows with them; a recording holds
// up to there and is made again.
TEST_F(CudaRecording, ANewPartOfTheKeysIsRecordedAnew) {
  test::RandomModelSpec spec;
  spec.n_layers = 2;
  spec.n_heads = spec.n_kv_heads = 1;
  spec.head_dim = 16;
  spec.d_model = 16;
  spec.d_ff = 32;
  spec.context = 600;
#if defined(__SANITIZE_ADDRESS__)
  const std::vector<uint32_t> windows = {460};  // some hundred rows take their time there
#else
  const std::vector<uint32_t> windows = {0, 460};
#endif
  for (const uint32_t window : windows) {
    spec.architecture = window == 0 ? "llama" : "gemma2";
    spec.window = window;
    ASSERT_NO_FATAL_FAILURE(open({}, spec));
    const auto plan = [&](uint32_t pos) {
      return kernels::cuda::plan_attention(1, 1, 1, spec.head_dim, pos, 4);
    };
    ASSERT_NE(plan(447).splits, plan(448).splits);
    const auto prompt = tokens(443, 4), answer = tokens(10, 5);
    const auto want = decode(*begin(500, prompt, true), answer);
    const auto got = decode(*begin(500, prompt, false), answer);
    EXPECT_EQ(got, want) << "window " << window;
    EXPECT_EQ(simt::graph_launches(), answer.size() - 1);
  }
}

// The kernel that joins the parts is first launched in a recording, which may load none.
TEST_F(CudaRecording, TheFirstPartsAreJoinedByAKernelThatIsThere) {
  test::RandomModelSpec spec;
  spec.n_layers = 1;
  spec.n_heads = spec.n_kv_heads = 1;
  spec.head_dim = spec.d_model = 16;
  spec.d_ff = 32;
  spec.context = 600;
  ASSERT_NO_FATAL_FAILURE(open({}, spec));
  uint32_t pos = 1;
  while (kernels::cuda::plan_attention(1, 1, 1, spec.head_dim, pos, 4).splits == 1) ++pos;
  const auto answer = tokens(6, 5);
  decode(*begin(500, tokens(pos - 3, 4), false), answer);
  EXPECT_EQ(simt::graph_launches(), answer.size() - 1);
}

TEST_F(CudaRecording, ACacheThatMovesIsRecordedAnew) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  const auto prompt = tokens(11, 1), answer = tokens(4, 2), instead = tokens(2, 6);
  const auto all = [&](bool issues_every_step) {
    const auto s = begin(20, prompt, issues_every_step);
    auto logits = decode(*s, answer);
    EXPECT_TRUE(s->reserve(60).is_ok());
    // The old cache's memory is somebody else's now.
    const auto other = Sequence::create(model_, 20);
    for (const auto& step : decode(*s, answer)) logits.push_back(step);
    // Back to an earlier position, by an edit.
    EXPECT_TRUE(s->replace(2, 7, instead, {}).is_ok());
    for (const auto& step : decode(*s, answer)) logits.push_back(step);
    return logits;
  };
  const auto want = all(true);
  EXPECT_EQ(all(false), want);
}

TEST_F(CudaRecording, SequencesOfSeveralThreadsDoNotMix) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  std::vector<std::vector<std::vector<float>>> want(3), got(3);
  Watch apart;  // told of progress, they do not go in one step
  apart.progress = [](uint64_t, uint64_t) { return 0; };
  const auto one = [&](size_t i, bool issues_every_step) {
    return decode(*begin(40, tokens(5 + i, i), issues_every_step), tokens(6, 10 + i), apart);
  };
  for (size_t i = 0; i < 3; ++i) want[i] = one(i, true);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { got[i] = one(i, false); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got, want);
  EXPECT_EQ(simt::graph_launches(), 3u * 5);
}

TEST_F(CudaRecording, WhereNothingCanBeRecordedEveryStepIsIssued) {
  for (const int64_t operations : {0, 1, 7}) {
    simt::Machine machine;
    machine.captured_operations = operations;
    ASSERT_NO_FATAL_FAILURE(open(machine));
    const auto prompt = tokens(11, 1), answer = tokens(4, 2);
    const auto want = decode(*begin(20, prompt, true), answer);
    EXPECT_EQ(decode(*begin(20, prompt, false), answer), want);
    EXPECT_EQ(simt::graph_launches(), 0u);
  }
}

// Device memory that runs out while a step is recorded: it is issued instead, or the step fails and
// the sequence is as it was; nothing is left behind.
TEST_F(CudaRecording, FailingAllocations) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  const auto prompt = tokens(11, 1), answer = tokens(4, 2);
  const auto want = decode(*begin(20, prompt, true), answer);
  const std::vector<int32_t> first(answer.begin(), answer.begin() + 1);
  int n_failed = 0;
  for (int64_t n = 0; n < 40; ++n) {
    const auto s = begin(20, prompt, false);
    decode(*s, first);
    simt::fail_allocation(n);
    const Status status = s->append({&answer[1], 1}, {});
    simt::fail_allocation(-1);
    if (!status.is_ok()) {
      ++n_failed;
      ASSERT_EQ(status.code(), BLEND_E_OUT_OF_MEMORY) << status.message();
      ASSERT_EQ(s->n_rows(), prompt.size() + 1);
      ASSERT_TRUE(s->append({&answer[1], 1}, {}).is_ok());
    }
    ASSERT_EQ(s->logits(), want[1]) << n;
    const auto rest = decode(*s, {answer[2], answer[3]});
    ASSERT_EQ(rest.back(), want[3]) << n;
  }
  EXPECT_GT(n_failed, 0);
  EXPECT_LT(n_failed, 40) << "a recording needs little";
  model_.reset();
  EXPECT_EQ(simt::bytes_in_use(), 0u);
}

TEST_F(CudaRecording, AStepIsCancelledAndWatchedAsAnyOther) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  const auto s = begin(20, tokens(5, 1), false);
  const auto answer = tokens(4, 2);
  decode(*s, answer);
  Watch watch;
  watch.progress = [](uint64_t, uint64_t) { return 3; };
  EXPECT_EQ(s->append({answer.data(), 1}, watch).code(), BLEND_E_CALLBACK);
  EXPECT_EQ(s->n_rows(), 9u);
}

// Tries every position.
TEST(AttentionPlan, LastsUpToTheLastPositionOfItsKind) {
  using kernels::cuda::plan_attention;
  for (const uint32_t n_sms : {4u, 20u, 132u}) {
    for (const uint32_t n_kv_heads : {1u, 2u, 8u}) {
      for (const uint32_t head_dim : {64u, 256u}) {
        for (const uint32_t window : {0u, 1u, 300u, 700u}) {
          const auto at = [&](uint32_t pos) {
            const uint32_t seen = window == 0 ? pos : std::min(pos, window - 1);
            return plan_attention(1, 4, n_kv_heads, head_dim, seen, n_sms);
          };
          for (uint32_t pos = 0; pos < 3000; pos += 37) {
            const uint32_t last = kernels::cuda::plan_lasts(at(pos), window);
            ASSERT_GE(last, pos);
            for (uint32_t p = pos; p < 5000; ++p) {
              ASSERT_EQ(at(p).splits == at(pos).splits, p <= last) << pos << " " << p;
              if (p > last) break;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace blend::cuda
