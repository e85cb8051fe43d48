// Mixtures of experts on the CPU: the choice of experts, the order of rows, and the products of
// groups of rows, all against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/routing.h"
#include "cpu/block_decode.h"
#include "support/random_blocks.h"
#include "support/random_model.h"
#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// What a row's choice must be, by sorting.
struct Choice {
  std::vector<uint32_t> experts;
  std::vector<double> weights;
};
Choice choice_of(const Experts& e, const std::vector<float>& logits,
                 const std::vector<float>& bias) {
  std::vector<double> p(logits.begin(), logits.end());
  const double most = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (const double x : p) sum += std::exp(x - most);
  for (double& x : p) x = e.sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x - most) / sum;
  std::vector<uint32_t> order(e.count);
  std::iota(order.begin(), order.end(), 0u);
  const auto score = [&](uint32_t i) {
    return p[i] + (bias.empty() ? 0.0 : static_cast<double>(bias[i]));
  };
  if (e.groups > 1) {
    const uint32_t size = e.count / e.groups;
    std::vector<uint32_t> groups(e.groups);
    std::iota(groups.begin(), groups.end(), 0u);
    const auto of_group = [&](uint32_t g) {
      std::vector<double> all;
      for (uint32_t i = g * size; i < (g + 1) * size; ++i) all.push_back(score(i));
      std::sort(all.rbegin(), all.rend());
      return all[0] + (e.groups_by_best ? 0 : all[1]);
    };
    std::stable_sort(groups.begin(), groups.end(),
                     [&](uint32_t a, uint32_t b) { return of_group(a) > of_group(b); });
    groups.resize(e.used_groups);
    std::erase_if(order, [&](uint32_t i) {
      return std::find(groups.begin(), groups.end(), i / size) == groups.end();
    });
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return score(a) > score(b); });
  order.resize(e.used);
  std::sort(order.begin(), order.end());
  Choice out{order, {}};
  double chosen = 0;
  for (const uint32_t i : order) chosen += p[i];
  for (const uint32_t i : order) {
    const auto scale = static_cast<double>(e.scale);
    out.weights.push_back(p[i] * scale / (e.normalised ? chosen : 1));
  }
  return out;
}

TEST(Routing, ChoosesTheBestAndWeighsThem) {
  SplitMix rng(3);
  for (int round = 0; round < 200; ++round) {
    Experts e;
    e.count = static_cast<uint32_t>(1 + rng.below(40));
    e.used = static_cast<uint32_t>(1 + rng.below(e.count));
    e.normalised = rng.below(2) == 1;
    e.scale = rng.below(2) == 1 ? 2.5f : 1.0f;
    e.sigmoid = rng.below(2) == 1;
    if (rng.below(2) == 1) {
      const auto size = static_cast<uint32_t>(2 + rng.below(6));
      e.groups = static_cast<uint32_t>(1 + rng.below(6));
      e.used_groups = static_cast<uint32_t>(1 + rng.below(e.groups));
      e.groups_by_best = rng.below(2) == 1;
      e.count = e.groups * size;
      e.used = static_cast<uint32_t>(1 + rng.below(uint64_t{e.used_groups} * size));
    }
    std::vector<float> logits(e.count), bias;
    for (float& x : logits) x = static_cast<float>(3 * rng.normal());
    if (rng.below(2) == 1) {
      for (uint32_t i = 0; i < e.count; ++i) bias.push_back(static_cast<float>(rng.normal()));
    }
    const Choice want = choice_of(e, logits, bias);
    std::vector<uint32_t> chosen(e.used);
    std::vector<float> weights(e.used);
    cpu::choose_experts(e, logits.data(), bias.empty() ? nullptr : bias.data(), chosen.data(),
                        weights.data());
    EXPECT_EQ(chosen, want.experts) << round;
    for (size_t i = 0; i < e.used; ++i) EXPECT_NEAR(weights[i], want.weights[i], 1e-5) << round;
  }
}

TEST(Routing, TakesTheFirstOfEquals) {
  Experts e;
  e.count = 6;
  e.used = 3;
  std::vector<float> logits = {1, 2, 1, 1, 2, 1};
  std::vector<uint32_t> chosen(3);
  std::vector<float> weights(3);
  cpu::choose_experts(e, logits.data(), nullptr, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<uint32_t>{0, 1, 4}));
}

// Activations may overflow; then the logits say so, and no expert beyond the last may be asked.
TEST(Routing, ChoosesExistingExpertsOfNoNumbers) {
  Experts e;
  e.count = 5;
  e.used = 4;
  std::vector<float> logits = {NAN, 1, NAN, INFINITY, -INFINITY};
  std::vector<uint32_t> chosen(4);
  std::vector<float> weights(4);
  cpu::choose_experts(e, logits.data(), nullptr, chosen.data(), weights.data());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_LT(chosen[i], 5u);
    if (i > 0) {
      EXPECT_LT(chosen[i - 1], chosen[i]);
    }
  }
}

TEST(Routing, ChoosesExistingGroupsOfNoNumbers) {
  Experts e;
  e.count = 6;
  e.used = 3;
  e.groups = 3;
  e.used_groups = 2;
  for (const float x : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> logits(6, x);
    std::vector<uint32_t> chosen(3);
    std::vector<float> weights(3);
    cpu::choose_experts(e, logits.data(), nullptr, chosen.data(), weights.data());
    EXPECT_EQ(chosen, (std::vector<uint32_t>{0, 1, 2})) << x;
  }
}

TEST(Routing, SortsRowsByExpert) {
  const std::vector<uint32_t> chosen = {0, 3, 1, 3, 0, 1};  // of three rows
  std::vector<uint32_t> first(6), row(6), place(6);
  cpu::sort_by_expert(chosen.data(), 3, 2, 5, {first.data(), row.data(), place.data()});
  EXPECT_EQ(first, (std::vector<uint32_t>{0, 2, 4, 4, 6, 6}));
  EXPECT_EQ(row, (std::vector<uint32_t>{0, 2, 1, 2, 0, 1}));
  EXPECT_EQ(place, (std::vector<uint32_t>{0, 4, 2, 5, 1, 3}));
}

// The experts of one layer, as a model file would hold them.
class ExpertsOp : public testing::Test {
 protected:
  void make(uint32_t n_experts, uint32_t used, uint32_t d_model, uint32_t d_ff) {
    config_.d_model = d_model;
    config_.activation = Activation::silu;
    config_.experts = {};
    config_.experts.count = n_experts;
    config_.experts.used = used;
    config_.experts.d_ff = d_ff;
    config_.experts.normalised = true;
  }
  std::vector<float> normal(size_t n, double scale) {
    std::vector<float> v(n);
    for (float& x : v) x = static_cast<float>(scale * rng_.normal());
    return v;
  }
  // A matrix of some expert; of `blocks` where those are not none.
  const TensorView* matrix(int64_t rows, int64_t cols, DType dtype, BlockType blocks) {
    const auto n = static_cast<size_t>(rows * cols);
    const double scale = 1 / std::sqrt(static_cast<double>(cols));
    stored_.push_back(make_stored("w", normal(n, scale), {rows, cols}, dtype));
    StoredTensor& t = *stored_.back();
    if (blocks == BlockType::none) return &t.view;
    const std::string bytes = random_blocks(blocks, n, scale, rng_);
    t.bytes.resize(bytes.size());
    std::memcpy(t.bytes.data(), bytes.data(), bytes.size());
    t.view.data = t.bytes.data();
    t.view.dtype = DType::f32;
    t.view.blocks = blocks;
    kernels::decode_blocks(blocks, t.view.data, n, t.values.data());
    return &t.view;
  }
  void make_weights(DType dtype, BlockType blocks) {
    const int64_t d = config_.expert_dim(), d_ff = config_.experts.d_ff;
    const bool gated = config_.ffn_matrices() == 3;
    stored_.clear();
    gate_up_bias_.clear();
    down_bias_.clear();
    gate_up_.clear();
    down_.clear();
    for (uint32_t e = 0; e < config_.experts.count; ++e) {
      std::vector<const TensorView*>& in = gate_up_.emplace_back();
      in.push_back(matrix(d_ff, d, dtype, blocks));
      if (gated) in.push_back(matrix(d_ff, d, dtype, blocks));
      down_.push_back({matrix(d, d_ff, dtype, blocks)});
    }
  }
  void make_biases() {
    gate_up_bias_ = normal(size_t{2} * config_.experts.count * config_.experts.d_ff, 1);
    down_bias_ = normal(size_t{config_.experts.count} * config_.d_model, 1);
  }
  void make_rows(uint32_t n_rows) {
    n_rows_ = n_rows;
    x_ = normal(size_t{n_rows} * config_.expert_dim(), 1);
    logits_ = normal(size_t{n_rows} * config_.experts.count, 2);
    // The last expert gets nearly every row, and the first none.
    for (uint32_t i = 0; i < n_rows; ++i) {
      logits_[size_t{i + 1} * config_.experts.count - 1] += 5;
      logits_[size_t{i} * config_.experts.count] = -50;
    }
  }
  std::vector<float> run(WeightForm form, uint32_t n_threads) {
    auto pool = ThreadPool::create(n_threads);
    EXPECT_TRUE(pool.is_ok());
    auto backend = make_cpu_backend(**pool);
    EXPECT_TRUE(backend.is_ok());
    ExpertOps& ops = *(*backend)->experts();
    auto gate_up = ops.load(gate_up_, form), down = ops.load(down_, form);
    EXPECT_TRUE(gate_up.is_ok() && down.is_ok());
    EXPECT_EQ((*gate_up)->bytes() == 0, form == WeightForm::mapped);
    auto scratch = (*backend)->allocate(ops.scratch_bytes(config_, n_rows_));
    EXPECT_TRUE(scratch.is_ok());
    std::vector<float> x = x_, scores = logits_, y(x.size(), NAN);
    ExpertLayer layer{gate_up->get(), down->get()};
    const auto load = [&](const std::vector<float>& values) -> std::unique_ptr<Weight> {
      if (values.empty()) return nullptr;
      const auto n = static_cast<int64_t>(values.size());
      const auto stored = make_stored("bias", values, {n}, DType::f32);
      const TensorView* const parts[] = {&stored->view};
      return std::move((*backend)->load_vector(parts, 0).value());
    };
    const auto gate_up_bias = load(gate_up_bias_), down_bias = load(down_bias_);
    layer.gate_up_bias = gate_up_bias.get();
    layer.down_bias = down_bias.get();
    const auto scale = load(scale_);
    layer.scale = scale.get();
    const Status status = ops.run(layer, config_, {x.data(), n_rows_, config_.expert_dim()},
                                  {scores.data(), n_rows_, config_.experts.count},
                                  {y.data(), n_rows_, config_.expert_dim()}, **scratch);
    EXPECT_TRUE(status.is_ok()) << status.message();
    return y;
  }
  static std::vector<double> multiply(const StoredTensor& w, const double* x) {
    const size_t cols = static_cast<size_t>(w.view.shape[1]), rows = w.values.size() / cols;
    std::vector<double> y(rows, 0.0);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < cols; ++c) {
        y[r] += static_cast<double>(w.values[r * cols + c]) * x[c];
      }
    }
    return y;
  }
  std::vector<double> want() const {
    const size_t d = config_.expert_dim(), n = config_.experts.count;
    const bool gated = config_.ffn_matrices() == 3;
    std::vector<double> out(x_.size(), 0.0);
    for (size_t i = 0; i < n_rows_; ++i) {
      const auto row = logits_.begin() + static_cast<int64_t>(i * n);
      const Choice choice = choice_of(config_.experts, {row, row + static_cast<int64_t>(n)}, {});
      const std::vector<double> x(x_.begin() + static_cast<int64_t>(i * d),
                                  x_.begin() + static_cast<int64_t>((i + 1) * d));
      for (size_t j = 0; j < choice.experts.size(); ++j) {
        const size_t at = size_t{config_.ffn_matrices()} * choice.experts[j];  // gate, up, down
        std::vector<double> gate = multiply(*stored_[at], x.data());
        std::vector<double> up = gated ? multiply(*stored_[at + 1], x.data()) : gate;
        const size_t d_ff = gate.size(), e = choice.experts[j];
        for (size_t c = 0; c < d_ff && !gate_up_bias_.empty(); ++c) {
          gate[c] += static_cast<double>(gate_up_bias_[2 * e * d_ff + c]);
          up[c] += static_cast<double>(gate_up_bias_[(2 * e + 1) * d_ff + c]);
        }
        for (size_t c = 0; c < d_ff; ++c) {
          if (config_.activation == Activation::clamped_silu) {
            const double g = std::min(gate[c], 7.0), u = std::clamp(up[c], -7.0, 7.0);
            gate[c] = g / (1 + std::exp(-1.702 * g)) * (u + 1);
          } else if (!gated) {
            gate[c] = std::max(up[c], 0.0) * std::max(up[c], 0.0);
          } else {
            gate[c] *= up[c] / (1 + std::exp(-gate[c]));
          }
        }
        std::vector<double> y = multiply(*stored_[at + (gated ? 2 : 1)], gate.data());
        for (size_t c = 0; c < d && !down_bias_.empty(); ++c) {
          y[c] += static_cast<double>(down_bias_[e * d + c]);
        }
        const double scale = scale_.empty() ? 1 : static_cast<double>(scale_[e]);
        for (size_t c = 0; c < d; ++c) out[i * d + c] += choice.weights[j] * scale * y[c];
      }
    }
    return out;
  }
  void expect_right(WeightForm form, double tolerance) {
    const std::vector<double> wanted = want();
    const std::vector<float> one = run(form, 1);
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(one[i], wanted[i], tolerance) << i / config_.expert_dim();
    }
    // Whoever computes a row, its sum has one order.
    for (const uint32_t n_threads : {2u, 3u, 5u}) EXPECT_EQ(run(form, n_threads), one) << n_threads;
  }

  SplitMix rng_{9};
  ModelConfig config_;
  std::vector<std::unique_ptr<StoredTensor>> stored_;
  std::vector<std::vector<const TensorView*>> gate_up_, down_;
  uint32_t n_rows_ = 0;
  std::vector<float> x_, logits_;
  std::vector<float> gate_up_bias_, down_bias_;  // of one expert after another; empty: none
  std::vector<float> scale_;                     // of each; empty: none
};

// One row, few rows an expert, and more sorted rows than there is scratch for at once.
TEST_F(ExpertsOp, IsTheSumOfTheChosen) {
  make(7, 3, 40, 24);
  for (const DType dtype : kDTypes) {
    make_weights(dtype, BlockType::none);
    for (const uint32_t n_rows : {1u, 2u, 20u, 700u}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << n_rows << " rows");
      make_rows(n_rows);
      expect_right(WeightForm::packed, 1e-5);
      expect_right(WeightForm::mapped, 1e-5);
    }
  }
}

// Experts of two matrices, which read rows of another width than the model's.
TEST_F(ExpertsOp, MayHaveNoGate) {
  make(7, 3, 40, 24);
  config_.activation = Activation::relu2;
  for (const uint32_t latent : {0u, 17u}) {
    config_.experts.latent = latent;
    make_weights(DType::f32, BlockType::none);
    for (const uint32_t n_rows : {1u, 20u, 700u}) {
      SCOPED_TRACE(testing::Message() << latent << ", " << n_rows << " rows");
      make_rows(n_rows);
      expect_right(WeightForm::packed, 2e-5);
      expect_right(WeightForm::mapped, 2e-5);
    }
  }
}

TEST_F(ExpertsOp, ReadsEveryTypeOfBlockFromTheFile) {
  make(5, 2, 256, 256);
  for (const BlockType blocks : {BlockType::q4_0, BlockType::q8_0, BlockType::q4_k, BlockType::q6_k,
                                 BlockType::iq4_xs, BlockType::mxfp4}) {
    make_weights(DType::f32, blocks);
    for (const uint32_t n_rows : {1u, 90u}) {
      SCOPED_TRACE(testing::Message() << block_type_name(blocks) << ", " << n_rows << " rows");
      make_rows(n_rows);
      expect_right(WeightForm::mapped, 1e-4);
    }
  }
}

// As gpt-oss has them; x is so large that both bounds are met.
TEST_F(ExpertsOp, HaveBiasesAndAClampedSwiglu) {
  make(7, 3, 40, 24);
  make_weights(DType::f32, BlockType::none);
  make_biases();
  config_.activation = Activation::clamped_silu;
  for (const uint32_t n_rows : {1u, 20u, 700u}) {
    make_rows(n_rows);
    for (float& x : x_) x *= 6;
    expect_right(WeightForm::packed, 1e-4);
  }
}

TEST_F(ExpertsOp, MayEachHaveAFactor) {
  make(7, 3, 40, 24);
  make_weights(DType::f32, BlockType::none);
  scale_ = normal(7, 1);
  for (const uint32_t n_rows : {1u, 20u}) {
    make_rows(n_rows);
    expect_right(WeightForm::packed, 1e-5);
  }
}

// Over widths around a whole number of sums.
TEST_F(ExpertsOp, WeighRowsByASigmoid) {
  for (const int64_t d : {1, 15, 16, 17, 40, 200}) {
    for (const int64_t n_rows : {1, 3, 300}) {
      const int64_t cols = 24;
      const auto count = [](int64_t n) { return static_cast<size_t>(n); };
      const std::vector<float> by = normal(count(n_rows * d), 1),
                               x = normal(count(n_rows * cols), 1);
      const auto vector = make_stored("w", normal(count(d), 0.5), {d}, DType::f32);
      for (const uint32_t n_threads : {1u, 3u}) {
        auto pool = ThreadPool::create(n_threads);
        ASSERT_TRUE(pool.is_ok());
        auto backend = make_cpu_backend(**pool);
        ASSERT_TRUE(backend.is_ok());
        const TensorView* const parts[] = {&vector->view};
        auto weight = (*backend)->load_vector(parts, 0);
        ASSERT_TRUE(weight.is_ok());
        std::vector<float> rows = by, got = x;
        const Status status = (*backend)->experts()->weigh(**weight, {rows.data(), n_rows, d},
                                                           {got.data(), n_rows, cols});
        ASSERT_TRUE(status.is_ok()) << status.message();
        for (int64_t i = 0; i < n_rows; ++i) {
          double sum = 0;
          for (int64_t c = 0; c < d; ++c) {
            sum += static_cast<double>(by[count(i * d + c)]) *
                   static_cast<double>(vector->values[count(c)]);
          }
          for (int64_t c = 0; c < cols; ++c) {
            const double want = static_cast<double>(x[count(i * cols + c)]) / (1 + std::exp(-sum));
            ASSERT_NEAR(got[count(i * cols + c)], want, 1e-5) << d << " " << i;
          }
        }
        // Another number of rows or columns is the caller's mistake.
        EXPECT_EQ((*backend)
                      ->experts()
                      ->weigh(**weight, {rows.data(), n_rows, d}, {got.data(), n_rows + 1, cols})
                      .code(),
                  BLEND_E_INTERNAL);
      }
    }
  }
}

TEST_F(ExpertsOp, RoundsWeightsToBytesWhereAsked) {
  make(6, 2, 128, 64);
  make_weights(DType::f32, BlockType::none);
  for (const uint32_t n_rows : {1u, 120u}) {
    make_rows(n_rows);
    expect_right(WeightForm::int8, 0.08);
  }
}

}  // namespace
}  // namespace blend::test
