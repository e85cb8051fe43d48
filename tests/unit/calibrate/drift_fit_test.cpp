#include "calibrate/drift_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "profile/drift.h"
#include "support/random_model.h"

namespace blend {
namespace {

using test::SplitMix;

constexpr uint32_t kKvDim = 6;
constexpr size_t kOut = 2 * kKvDim;
constexpr uint32_t kLayers = 5;
constexpr uint32_t kCheck = 1;

// Rows whose drift at layer l is exactly `truth[l]` applied to their inputs, and some noise.
class Rows {
 public:
  Rows(DriftInputs inputs, size_t true_rank, double noise, uint64_t seed)
      : inputs_(inputs), noise_(noise), rng_(seed) {
    const size_t n_in = inputs.size(kKvDim);
    for (uint32_t l = kCheck + 1; l < kLayers; ++l) {
      std::vector<double> map(kOut * n_in, 0.0);
      for (size_t r = 0; r < true_rank; ++r) {
        std::vector<double> left(kOut), right(n_in);
        for (double& e : left) e = rng_.normal();
        for (double& e : right) e = rng_.normal();
        for (size_t o = 0; o < kOut; ++o) {
          for (size_t i = 0; i < n_in; ++i) map[o * n_in + i] += left[o] * right[i];
        }
      }
      truth.push_back(std::move(map));
    }
  }

  void add_to(DriftFit& fit, size_t n_rows) {
    for (size_t row = 0; row < n_rows; ++row) {
      std::vector<std::vector<float>> fresh(kLayers), stored(kLayers);
      for (uint32_t l = 0; l < kLayers; ++l) {
        for (size_t i = 0; i < kOut; ++i) {
          fresh[l].push_back(static_cast<float>(rng_.normal()));
          stored[l].push_back(static_cast<float>(rng_.normal()));
        }
      }
      std::vector<double> x;
      for (size_t i = 0; i < kOut; ++i) {
        x.push_back(static_cast<double>(fresh[kCheck][i]) - static_cast<double>(stored[kCheck][i]));
      }
      if (inputs_.fresh) x.insert(x.end(), fresh[kCheck].begin(), fresh[kCheck].end());
      if (inputs_.constant) x.push_back(1);
      for (uint32_t l = kCheck + 1; l < kLayers; ++l) {
        for (size_t o = 0; o < kOut; ++o) {
          double y = noise_ * rng_.normal();
          for (size_t i = 0; i < x.size(); ++i) y += truth[l - kCheck - 1][o * x.size() + i] * x[i];
          fresh[l][o] = stored[l][o] + static_cast<float>(y);
        }
      }
      fit.add([&](uint32_t l) { return fresh[l].data(); },
              [&](uint32_t l) { return stored[l].data(); });
    }
  }

  std::vector<std::vector<double>> truth;  // [layers after the check layer][kOut, n_in]

 private:
  DriftInputs inputs_;
  double noise_;
  SplitMix rng_;
};

// [n_out, n_in] of map i, whatever its rank and type.
std::vector<double> whole(const DriftMaps& maps, uint32_t i) {
  const auto value = [&](const TensorView& t, int64_t at) -> double {
    if (t.dtype == DType::f32) {
      float f = 0;
      std::memcpy(&f, t.data + 4 * at, 4);
      return f;
    }
    uint16_t h = 0;
    std::memcpy(&h, t.data + 2 * at, 2);
    return f16_to_f32(h);
  };
  const std::vector<TensorView> matrices = maps.matrices(i);
  const auto in = static_cast<int64_t>(maps.n_in()), out = static_cast<int64_t>(maps.n_out());
  std::vector<double> map(static_cast<size_t>(in * out), 0.0);
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = 0; k < in; ++k) {
      double& sum = map[static_cast<size_t>(o * in + k)];
      if (maps.rank == 0) {
        sum = value(matrices[0], o * in + k);
        continue;
      }
      for (int64_t r = 0; r < maps.rank; ++r) {
        sum += value(matrices[1], o * maps.rank + r) * value(matrices[0], r * in + k);
      }
    }
  }
  return map;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return a.size() == b.size() ? most : INFINITY;
}

class Fit : public ::testing::Test {
 protected:
  Result<DriftMaps> solve(Rows& rows, DriftInputs inputs, size_t n_rows, double ridge,
                          uint32_t rank) {
    DriftFit fit(*pool_, inputs, kKvDim, kCheck, kLayers);
    rows.add_to(fit, n_rows);
    EXPECT_EQ(fit.n_rows(), n_rows);
    return fit.solve(ridge, rank, {});
  }
  std::unique_ptr<ThreadPool> pool_ = std::move(*ThreadPool::create(2));
};

TEST_F(Fit, RecoversTheMapOfEveryKindOfInput) {
  for (const bool fresh : {false, true}) {
    for (const bool constant : {false, true}) {
      const DriftInputs inputs{fresh, constant};
      Rows rows(inputs, kOut, 0, 3);
      Result<DriftMaps> maps = solve(rows, inputs, 333, 0, 0);
      ASSERT_TRUE(maps.is_ok()) << maps.status().message();
      EXPECT_EQ(maps->first_layer, kCheck + 1);
      ASSERT_EQ(maps->n_maps, kLayers - kCheck - 1);
      for (uint32_t i = 0; i < maps->n_maps; ++i) {
        // f16 keeps 11 bits of values up to about 8.
        EXPECT_LT(largest_difference(whole(*maps, i), rows.truth[i]), 8.0 / 2048);
        EXPECT_GT(maps->explained_k[i], 0.9999f);
        EXPECT_GT(maps->explained_v[i], 0.9999f);
      }
    }
  }
}

TEST_F(Fit, LowRankRecoversAMapOfThatRankAndHalfOfAnother) {
  Rows exact({}, 3, 0, 5);
  Result<DriftMaps> maps = solve(exact, {}, 200, 0, 3);
  ASSERT_TRUE(maps.is_ok());
  EXPECT_EQ(maps->rank, 3u);
  EXPECT_EQ(maps->data.size(), maps->n_maps * 3 * (kOut + kOut) * 2);
  for (uint32_t i = 0; i < maps->n_maps; ++i) {
    EXPECT_LT(largest_difference(whole(*maps, i), exact.truth[i]), 0.03);
  }
  // A lower rank explains less, but never less than its best direction does.
  float before = 1;
  for (const uint32_t rank : {8u, 4u, 2u, 1u}) {
    Rows rows({}, kOut, 0, 6);
    Result<DriftMaps> low = solve(rows, {}, 400, 0, rank);
    ASSERT_TRUE(low.is_ok());
    const float explained = low->explained_k[0] + low->explained_v[0];
    EXPECT_LT(explained, 2 * before);
    EXPECT_GT(explained, 2.0f * static_cast<float>(rank) / kOut);
    before = explained / 2;
  }
}

TEST_F(Fit, RankAtOrAboveTheWidthIsTheWholeMatrix) {
  Rows rows({}, kOut, 0, 3);
  Result<DriftMaps> maps = solve(rows, {}, 100, 0, kOut);
  ASSERT_TRUE(maps.is_ok());
  EXPECT_EQ(maps->rank, 0u);
}

TEST_F(Fit, RidgeShrinksEachInputByItsOwnSize) {
  // Inputs are independent with mean 0, so X^T X is nearly diagonal: the map shrinks by 1 / (1 +
  // r).
  Rows rows({}, kOut, 0, 9);
  Result<DriftMaps> maps = solve(rows, {}, 20000, 1.0, 0);
  ASSERT_TRUE(maps.is_ok());
  std::vector<double> half = rows.truth[0];
  for (double& e : half) e /= 2;
  EXPECT_LT(largest_difference(whole(*maps, 0), half), 0.25);
  EXPECT_NEAR(static_cast<double>(maps->explained_v[0]), 0.75, 0.02);
}

TEST_F(Fit, RidgeLeavesTheConstantAlone) {
  const DriftInputs inputs{false, true};
  Rows rows(inputs, kOut, 0, 12);
  const Result<DriftMaps> fitted = solve(rows, inputs, 20000, 1.0, 0);
  ASSERT_TRUE(fitted.is_ok());
  const size_t n_in = inputs.size(kKvDim);
  const std::vector<double> map = whole(fitted.value(), 0);
  for (size_t o = 0; o < kOut; ++o) {
    EXPECT_NEAR(map[o * n_in + n_in - 1], rows.truth[0][o * n_in + n_in - 1], 0.3);
  }
}

TEST_F(Fit, NoiseIsNotExplained) {
  Rows rows({}, 0, 1, 4);
  Result<DriftMaps> maps = solve(rows, {}, 5000, 1e-3, 0);
  ASSERT_TRUE(maps.is_ok());
  EXPECT_LT(maps->explained_k[0], 0.02f);
  EXPECT_LT(largest_difference(whole(*maps, 0), rows.truth[0]), 0.1);
}

TEST_F(Fit, FewRowsNeedARidgeAndNoneIsAnError) {
  Rows rows({}, kOut, 0, 8);
  EXPECT_TRUE(solve(rows, {}, 3, 1e-2, 0).is_ok());
  DriftFit empty(*pool_, {}, kKvDim, kCheck, kLayers);
  EXPECT_EQ(empty.solve(1e-3, 0, {}).status().code(), BLEND_E_INVALID_ARGUMENT);
}

// Two prompts of few rows and much noise ask for more ridge than thousands of rows without any.
TEST_F(Fit, CrossValidationHoldsBackWhatFewRowsCannotTell) {
  const auto chosen = [&](size_t n_rows, double noise) {
    Rows rows({}, kOut, noise, 21);
    DriftFit fit(*pool_, {}, kKvDim, kCheck, kLayers);
    for (int prompt = 0; prompt < 2; ++prompt) {
      fit.begin_prompt();
      rows.add_to(fit, n_rows);
    }
    Result<DriftMaps> maps = fit.solve(kRidgeAuto, 0, {});
    EXPECT_TRUE(maps.is_ok()) << maps.status().message();
    return maps.is_ok() ? maps->ridge : -1;
  };
  EXPECT_LE(chosen(2000, 0), 1e-3);
  EXPECT_GE(chosen(14, 20), 1);
  // One prompt leaves none to choose by.
  Rows rows({}, kOut, 0, 22);
  DriftFit fit(*pool_, {}, kKvDim, kCheck, kLayers);
  fit.begin_prompt();
  rows.add_to(fit, 100);
  EXPECT_EQ(fit.solve(kRidgeAuto, 0, {})->ridge, 1);
}

TEST_F(Fit, TheMapsOfStoredRowsAreFoundLayerByLayer) {
  StoredFit fit(*pool_, kKvDim, kLayers);
  SplitMix rng(5);
  for (int row = 0; row < 4000; ++row) {
    if (row % 1000 == 0) fit.begin_prompt();
    const float outside = static_cast<float>(std::abs(rng.normal()) / 4);
    std::vector<std::vector<float>> stored(kLayers), fresh(kLayers);
    for (uint32_t l = 0; l < kLayers; ++l) {
      for (size_t i = 0; i < kOut; ++i) stored[l].push_back(static_cast<float>(rng.normal()));
      // Drift of element i at layer l: outside * l * the element after it.
      for (size_t i = 0; i < kOut; ++i) {
        fresh[l].push_back(stored[l][i] +
                           outside * static_cast<float>(l) * stored[l][(i + 1) % kOut]);
      }
    }
    fit.add(
        StoredFeatures::of(static_cast<float>(std::abs(rng.normal()) / 4), outside, row % 50),
        [&](uint32_t l) { return fresh[l].data(); }, [&](uint32_t l) { return stored[l].data(); });
  }
  Result<DriftMaps> maps = fit.solve(1e-4, 0, {});
  ASSERT_TRUE(maps.is_ok()) << maps.status().message();
  EXPECT_EQ(maps->first_layer, 1u);
  ASSERT_EQ(maps->n_maps, kLayers - 1);
  const size_t n_in = maps->n_in();
  for (uint32_t l = 1; l < kLayers; ++l) {
    EXPECT_GT(maps->explained_k[l - 1], 0.99f);
    const std::vector<double> map = whole(*maps, l - 1);
    for (size_t o = 0; o < kOut; ++o) {
      const double at_outside = map[o * n_in + kOut + (o + 1) % kOut];
      EXPECT_NEAR(at_outside, static_cast<double>(l), 0.05) << l;
    }
  }
}

// With many outputs the directions are found by iteration: they span the same.
TEST_F(Fit, LowRankOfManyOutputs) {
  constexpr size_t kIn = 20, kMany = 260, kRank = 3, kRows = 64;
  SplitMix rng(31);
  std::vector<double> left(kIn * kRank), right(kRank * kMany);
  for (double& e : left) e = rng.normal();
  for (double& e : right) e = rng.normal();
  RidgeSums sums(kIn, kMany, 1);
  std::vector<double> x(kRows * kIn), y(kRows * kMany, 0.0);
  for (double& e : x) e = rng.normal();
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t r = 0; r < kRank; ++r) {
      double low = 0;
      for (size_t i = 0; i < kIn; ++i) low += x[row * kIn + i] * left[i * kRank + r];
      for (size_t c = 0; c < kMany; ++c) y[row * kMany + c] += low * right[r * kMany + c];
    }
  }
  sums.add(*pool_, x.data(), {&y, 1}, kRows);
  auto exact = solve_ridge(*pool_, sums, false, 1e-9, kRank, {});
  ASSERT_TRUE(exact.is_ok());
  EXPECT_GT((*exact)[0].explained[0], 0.9999);
  EXPECT_GT((*exact)[0].explained[1], 0.9999);
  auto less = solve_ridge(*pool_, sums, false, 1e-9, 1, {});
  ASSERT_TRUE(less.is_ok());
  EXPECT_LT((*less)[0].explained[0], 0.95);
}

TEST_F(Fit, ValuesTooLargeForF16BecomeF32) {
  Rows rows({}, kOut, 0, 3);
  for (auto& map : rows.truth) {
    for (double& e : map) e *= 1e5;
  }
  Result<DriftMaps> maps = solve(rows, {}, 100, 0, 0);
  ASSERT_TRUE(maps.is_ok());
  EXPECT_EQ(maps->dtype, DType::f32);
  EXPECT_LT(largest_difference(whole(*maps, 0), rows.truth[0]), 2.0);
}

TEST_F(Fit, CancelStops) {
  CancelToken cancel;
  cancel.request();
  DriftFit fit(*pool_, {}, kKvDim, kCheck, kLayers);
  Rows rows({}, kOut, 0, 3);
  rows.add_to(fit, 100);
  EXPECT_EQ(fit.solve(0, 0, Watch{&cancel, {}}).status().code(), BLEND_E_CANCELLED);
}

// The packed maps give what the matrices say.
TEST_F(Fit, AppliedMapsAreTheMatrices) {
  const auto backend = std::move(*make_cpu_backend(*pool_));
  for (const uint32_t rank : {0u, 4u}) {
    const DriftInputs inputs{true, true};
    Rows rows(inputs, kOut, 0.1, 3);
    Result<DriftMaps> maps = solve(rows, inputs, 200, 1e-3, rank);
    ASSERT_TRUE(maps.is_ok());
    auto drift = Drift::load(*backend, *maps);
    ASSERT_TRUE(drift.is_ok()) << drift.status().message();
    const size_t n_rows = 5, n_in = maps->n_in();
    std::vector<float> x(n_rows * n_in), low(n_rows * kOut), out(n_rows * kOut);
    SplitMix rng(1);
    for (float& e : x) e = static_cast<float>(rng.normal());
    const auto tensor = [&](std::vector<float>& v, size_t cols) {
      return Tensor{v.data(), static_cast<int64_t>(n_rows), static_cast<int64_t>(cols), 4};
    };
    for (uint32_t i = 0; i < maps->n_maps; ++i) {
      ASSERT_TRUE(
          (*drift)
              ->apply(maps->first_layer + i, tensor(x, n_in), tensor(low, rank), tensor(out, kOut))
              .is_ok());
      const std::vector<double> map = whole(*maps, i);
      for (size_t r = 0; r < n_rows; ++r) {
        for (size_t o = 0; o < kOut; ++o) {
          double sum = 0;
          for (size_t k = 0; k < n_in; ++k) {
            sum += map[o * n_in + k] * static_cast<double>(x[r * n_in + k]);
          }
          ASSERT_NEAR(static_cast<double>(out[r * kOut + o]), sum, 1e-4);
        }
      }
    }
    EXPECT_EQ((*drift)->apply(kCheck, tensor(x, n_in), tensor(low, rank), tensor(out, kOut)).code(),
              BLEND_E_INTERNAL);
    EXPECT_EQ(
        (*drift)->apply(kLayers, tensor(x, n_in), tensor(low, rank), tensor(out, kOut)).code(),
        BLEND_E_INTERNAL);
  }
}

}  // namespace
}  // namespace blend
