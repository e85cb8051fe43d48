// Sequences that decode together on the emulated device: the tests of shared steps over it, with a
// cuBLASLt whose bits depend on the rows of a product, and what a step costs in launches and
// copies.
#include "backend/cuda/cuda_backend.h"
#include "cuda/attention_plan.h"
#include "unit/engine/shared_steps_test.h"

namespace blend::test {
namespace {

StepsCase emulated(std::string name, simt::Schedule schedule, simt::Gemm gemm) {
  StepsCase c;
  c.name = std::move(name);
  c.step_rows = 32;
  c.forms = {WeightForm::packed};
  c.slow = true;
  c.make = [schedule, gemm](ThreadPool& pool) {
    simt::Machine machine;
    machine.schedule = schedule;
    machine.gemm = gemm;
    simt::set_machine(machine);
    return cuda::CudaBackend::create(0, pool);
  };
  return c;
}

INSTANTIATE_TEST_SUITE_P(Emulated, SharedStepsTest,
                         testing::Values(emulated("Random", simt::Schedule::random,
                                                  simt::Gemm::by_rows)),
                         [](const auto& tested) { return tested.param.name; });

// Cost of everything that a step issues.
struct Cost {
  uint64_t launches = 0, products = 0, to_device = 0, to_host = 0;
  bool operator==(const Cost&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Cost& c) {
  return out << c.launches << " launches, " << c.products << " products, " << c.to_device
             << " copies to the device, " << c.to_host << " from it";
}
Cost now() {
  return {simt::kernel_launches(), simt::gemm_calls(), simt::copies_to_device(),
          simt::copies_to_host()};
}

class CudaSteps : public EngineTest {
 protected:
  static constexpr uint32_t kLayers = 3;

  void SetUp() override {}
  void TearDown() override { simt::set_machine({}); }

  void open(const RandomModelSpec& spec) {
    const Runtime::MakeBackend make = [](ThreadPool& pool) {
      simt::Machine machine;
      machine.gemm = simt::Gemm::by_rows;
      simt::set_machine(machine);
      return cuda::CudaBackend::create(0, pool);
    };
    model_ = load_on(make, spec, 2, {});
    ASSERT_NE(model_, nullptr);
  }
  std::vector<std::unique_ptr<Sequence>> begin(size_t n, size_t n_prompt) {
    std::vector<std::unique_ptr<Sequence>> all;
    for (size_t i = 0; i < n; ++i) {
      auto s = Sequence::create(model_, static_cast<uint32_t>(n_prompt + 16));
      EXPECT_TRUE(s.is_ok()) << s.status().message();
      EXPECT_TRUE(s.value()->append(tokens(n_prompt, i), {}).is_ok());
      all.push_back(std::move(*s));
    }
    return all;
  }
  // The cost of one step of all of them.
  Cost step(const std::vector<std::unique_ptr<Sequence>>& all) {
    std::vector<Sequence::Append> appends;
    for (const auto& s : all) appends.push_back({s.get(), 300, {}, nullptr, Status::ok(), {}});
    const Cost before = now();
    Sequence::append_each(appends);
    const Cost after = now();
    for (const auto& a : appends) EXPECT_TRUE(a.status.is_ok()) << a.status.message();
    return {after.launches - before.launches, after.products - before.products,
            after.to_device - before.to_device, after.to_host - before.to_host};
  }
};

// A layer: norm, Q | K | V, their places, attention, its product, norm, gate | up, SwiGLU, down. A
// step: the tokens' upload and the embedding, the layers, the last norm and the logits, which come
// back by one copy. However many rows there are.
TEST_F(CudaSteps, ALayerIsNineLaunchesForAnyNumberOfRows) {
  RandomModelSpec spec;
  spec.n_layers = kLayers;
  ASSERT_NO_FATAL_FAILURE(open(spec));
  const Cost want{9 * kLayers + 4, 4 * kLayers + 1, 0, 1};
  for (const size_t n : {size_t{2}, size_t{8}, size_t{32}}) {
    const auto all = begin(n, 5);
    EXPECT_EQ(step(all), want) << n << " rows";
  }
  // By itself, issued: its position is uploaded, too.
  EXPECT_EQ(step(begin(1, 5)), (Cost{9 * kLayers + 5, 4 * kLayers + 1, 0, 1}));
}

// Long caches: the keys of some are split, and one more kernel puts the parts together.
TEST_F(CudaSteps, SplitKeysAreOneLaunchMore) {
  RandomModelSpec spec;
  spec.n_layers = kLayers;
  spec.n_heads = spec.n_kv_heads = 1;
  spec.head_dim = spec.d_model = 16;
  spec.d_ff = 32;
  spec.context = 600;
  ASSERT_NO_FATAL_FAILURE(open(spec));
  ASSERT_GT(kernels::cuda::plan_attention(1, 1, 1, spec.head_dim, 520, 4).splits, 1u);
  auto all = begin(1, 520);
  for (auto& s : begin(7, 3)) all.push_back(std::move(s));
  EXPECT_EQ(step(all), (Cost{10 * kLayers + 4, 4 * kLayers + 1, 0, 1}));
}

// A row alone in its step: the second and all after it run from its recording, whose bits are those
// of shared steps.
TEST_F(CudaSteps, ARowAloneIsRecordedAndGivesTheSameBits) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  const std::vector<int32_t> answer = tokens(9, 7);
  const auto decode = [&](Sequence& s, bool shared) {
    const auto beside = begin(1, 6);
    std::vector<std::vector<float>> all;
    for (const int32_t token : answer) {
      std::vector<Sequence::Append> appends;
      appends.push_back({&s, token, {}, nullptr, Status::ok(), {}});
      // In turn: alone, together.
      if (shared && all.size() % 2 == 1) {
        appends.push_back({beside[0].get(), token, {}, nullptr, Status::ok(), {}});
      }
      Sequence::append_each(appends);
      for (const auto& a : appends) EXPECT_TRUE(a.status.is_ok()) << a.status.message();
      all.push_back(s.logits());
    }
    return all;
  };
  const auto want = decode(*begin(1, 11)[0], false);
  EXPECT_EQ(simt::graph_launches(), answer.size() - 1);
  const auto mixed = begin(1, 11);
  const uint64_t before = simt::graph_launches();
  EXPECT_EQ(decode(*mixed[0], true), want);
  EXPECT_EQ(simt::graph_launches() - before, 4u) << "of the five that it is alone in";
  const auto issued = begin(1, 11);
  issued[0]->issue_every_step();
  EXPECT_EQ(decode(*issued[0], true), want);
}

// Each allocation of a step fails in turn: who is told of it has what it had, and goes on; nothing
// is left behind.
TEST_F(CudaSteps, FailingAllocations) {
  RandomModelSpec spec;
  spec.n_layers = 2;
  ASSERT_NO_FATAL_FAILURE(open(spec));
  std::vector<std::vector<float>> want;
  const auto reference = begin(3, 5);
  step(reference);
  for (const auto& s : reference) want.push_back(s->logits());
  int n_failed = 0, n_passed = 0;
  for (int64_t n = 0; n < 20; ++n) {
    SCOPED_TRACE(n);
    auto all = begin(3, 5);
    std::vector<Sequence::Append> appends;
    for (const auto& s : all) appends.push_back({s.get(), 300, {}, nullptr, Status::ok(), {}});
    simt::fail_allocation(n);
    Sequence::append_each(appends);
    simt::fail_allocation(-1);
    for (size_t i = 0; i < all.size(); ++i) {
      if (appends[i].status.is_ok()) {
        ++n_passed;
      } else {
        ++n_failed;
        ASSERT_EQ(appends[i].status.code(), BLEND_E_OUT_OF_MEMORY) << appends[i].status.message();
        ASSERT_EQ(all[i]->n_rows(), 5u);
        const int32_t token = 300;
        ASSERT_TRUE(all[i]->append({&token, 1}, {}).is_ok());
      }
      ASSERT_EQ(all[i]->logits(), want[i]);
    }
  }
  EXPECT_GT(n_failed, 0);
  EXPECT_GT(n_passed, 0);
  model_.reset();
}

}  // namespace
}  // namespace blend::test
