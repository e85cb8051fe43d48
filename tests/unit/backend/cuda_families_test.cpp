// Models of every family on the emulated device, beside the CPU: what a family adds to a layer
// (biases, norms of heads, windows, tables of RoPE by layer) is where it belongs in all of the ways
// that a layer is computed.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/cuda_backend.h"
#include "engine/forward.h"
#include "engine/sequence.h"
#include "support/lora_writer.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::cuda {
namespace {

class CudaFamilies : public testing::TestWithParam<test::RandomFamily> {
 protected:
  void SetUp() override {
    simt::set_machine({});
    test::RandomModelSpec spec = GetParam().spec;
    if (spec.blocks.empty()) spec.dtype = DType::bf16;
    const std::string path = test::write_random_model(spec, dir_.file("model.gguf"));
    const auto load = [&](const std::function<Result<std::unique_ptr<Backend>>(ThreadPool&)>& make,
                          std::shared_ptr<const Model>& to) {
      auto runtime = Runtime::create(2, {}, make);
      ASSERT_TRUE(runtime.is_ok());
      auto model =
          Model::load(*runtime, path, {.weights = WeightForm::packed, .loras = loras(spec)}, {});
      ASSERT_TRUE(model.is_ok()) << model.status().message();
      to = *model;
    };
    ASSERT_NO_FATAL_FAILURE(
        load([](ThreadPool& pool) { return CudaBackend::create(0, pool); }, device_));
    ASSERT_NO_FATAL_FAILURE(load([](ThreadPool& pool) { return make_cpu_backend(pool); }, cpu_));
    test::SplitMix random(spec.seed);
    for (int i = 0; i < 33; ++i) {
      tokens_.push_back(static_cast<int32_t>(259 + random.below(spec.n_vocab - 259)));
    }
  }
  void TearDown() override { simt::set_machine({}); }
  virtual std::vector<LoraOptions> loras(const test::RandomModelSpec& /*spec*/) { return {}; }

  // Logits of rows at once, and of steps after them: issued, recorded, run again.
  std::vector<float> logits(const std::shared_ptr<const Model>& model) const {
    auto sequence = Sequence::create(model, 40);
    EXPECT_TRUE(sequence.is_ok()) << sequence.status().message();
    Sequence& s = **sequence;
    std::vector<float> all;
    const std::span<const int32_t> tokens(tokens_);
    for (const auto& [first, n] :
         {std::pair{0, 29}, std::pair{29, 1}, std::pair{30, 1}, std::pair{31, 1}}) {
      const Status status =
          s.append(tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(n)), {});
      EXPECT_TRUE(status.is_ok()) << status.message();
      all.insert(all.end(), s.logits().begin(), s.logits().end());
    }
    return all;
  }

  // Of the device beside the CPU's, as a share of their size.
  double off() const {
    const auto got = logits(device_), want = logits(cpu_);
    EXPECT_EQ(got.size(), want.size());
    double sum = 0, squares = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const auto g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
      sum += (g - w) * (g - w);
      squares += w * w;
    }
    return std::sqrt(sum / squares);
  }

  test::TempDir dir_;
  std::shared_ptr<const Model> device_, cpu_;
  std::vector<int32_t> tokens_;
};

TEST_P(CudaFamilies, AreThoseOfTheCpu) {
  // Operands are rounded to bf16 on one side; other weights, a bias or a norm left out give 0.1
  // and more.
  EXPECT_LT(off(), 0.03);
}

// With an adapter of every matrix, Q, K and V are no longer one product.
class CudaLora : public CudaFamilies {
 protected:
  std::vector<LoraOptions> loras(const test::RandomModelSpec& spec) override {
    return {{test::gguf_lora(test::random_lora(spec, 5)).write(dir_.file("lora.gguf")), 0.8}};
  }
};

TEST_P(CudaLora, IsThatOfTheCpu) {
  // Q and the feed-forward's rows are rounded once more, where the adapter is added.
  EXPECT_LT(off(), 0.06);
}

// Q that was made with K and V is used for its own rows and its own layer alone, whatever is asked
// in between.
TEST_P(CudaFamilies, QIsOfTheRowsThatAreAskedFor) {
  const auto rows = static_cast<uint32_t>(tokens_.size());
  auto forward = Forward::create(*device_, rows);
  auto ropes = device_->ropes(rows);
  auto cache = device_->backend().make_kv_cache(device_->config(), rows);
  ASSERT_TRUE(forward.is_ok() && ropes.is_ok() && cache.is_ok());
  Forward& f = **forward;
  std::vector<uint32_t> pos(rows);
  for (uint32_t i = 0; i < rows; ++i) pos[i] = i;
  const Tensor x = f.x(rows), kv = f.kv(0, rows);
  // All rows after the layer, computed for all or only the last, after another call.
  const auto run = [&](bool by_one, bool asks, bool narrows) {
    EXPECT_TRUE(f.embed(tokens_.data(), x).is_ok());
    if (by_one) {
      EXPECT_TRUE(f.compute_qkv(0, **cache, **ropes, x, pos.data(), kv, {}).is_ok());
    } else {
      EXPECT_TRUE(f.compute_kv(0, x, kv, {}).is_ok());
      EXPECT_TRUE(
          device_->backend().write_kv(**cache, 0, (*ropes)->keys(0), kv, pos.data()).is_ok());
    }
    std::vector<float> mass(rows);
    if (asks) {
      EXPECT_TRUE(f.attention_mass(0, **cache, **ropes, x.slice(rows - 5, 5), pos.data() + rows - 5,
                                   mass.data(), {})
                      .is_ok());
    }
    const uint32_t first = narrows ? rows - 1 : 0;
    EXPECT_TRUE(
        f.finish_layer(0, **cache, **ropes, x.slice(first, rows - first), pos.data() + first, {})
            .is_ok());
    std::vector<float> out(rows * device_->config().d_model);
    EXPECT_TRUE(device_->backend().download(x, out.data()).is_ok());
    return out;
  };
  for (const auto& [asks, narrows] : {std::pair{false, false}, std::pair{true, false},
                                      std::pair{false, true}, std::pair{true, true}}) {
    const std::vector<float> want = run(false, false, narrows), got = run(true, asks, narrows);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const auto g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
      sum += (g - w) * (g - w);
      squares += w * w;
    }
    EXPECT_LT(std::sqrt(sum / squares), 0.01) << asks << narrows;
  }
}

// Those that the device runs, or those for which it lacks an operation.
std::vector<test::RandomFamily> families(bool runs) {
  std::vector<test::RandomFamily> out;
  for (const test::RandomFamily& f : test::random_families()) {
    const test::RandomModelSpec& s = f.spec;
    if ((s.n_experts == 0 && s.conv_taps == 0 && !s.gemma4() && s.n_streams == 1) == runs)
      out.push_back(f);
  }
  return out;
}

// A model must not run without its experts, or with attention where it convolves.
TEST(CudaFamily, IsRefusedWhereAnOperationIsMissing) {
  simt::set_machine({});
  const test::TempDir dir;
  std::vector<test::RandomFamily> refused = families(false);
  refused.push_back({"latent rows", test::random_family("glm4_7_flash")});
  refused.back().spec.n_experts = 0;
  for (const test::RandomFamily& family : refused) {
    const std::string path = test::write_random_model(family.spec, dir.file("model.gguf"));
    auto runtime =
        Runtime::create(2, {}, [](ThreadPool& pool) { return CudaBackend::create(0, pool); });
    ASSERT_TRUE(runtime.is_ok());
    const auto model = Model::load(*runtime, path, {}, {});
    ASSERT_FALSE(model.is_ok()) << family.name;
    EXPECT_EQ(model.status().code(), BLEND_E_UNSUPPORTED);
    const char* const what = family.spec.n_experts != 0     ? "mixtures of experts"
                             : family.spec.gemma4()         ? "share K and V"
                             : family.spec.n_streams > 1    ? "several streams"
                             : family.spec.delta_dim != 0   ? "Gated DeltaNets"
                             : family.spec.ssm_state != 0   ? "Mamba-2s"
                             : family.spec.latent_rank != 0 ? "latent rows"
                                                            : "convolve";
    EXPECT_NE(model.status().message().find(what), std::string::npos) << model.status().message();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, CudaFamilies, testing::ValuesIn(families(true)),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Random, CudaLora, testing::ValuesIn(families(true)),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace blend::cuda
