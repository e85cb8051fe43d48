#include "calibrate/linear_algebra.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/random_model.h"

namespace blend {
namespace {

using test::SplitMix;

class LinearAlgebra : public ::testing::TestWithParam<size_t> {
 protected:
  LinearAlgebra() : n_(GetParam()), pool_(std::move(*ThreadPool::create(2))) {}

  std::vector<double> random(size_t n, size_t m) {
    std::vector<double> out(n * m);
    for (double& e : out) e = rng_.normal();
    return out;
  }
  // B B^T + n 1: symmetric, positive definite.
  std::vector<double> positive_definite() {
    const std::vector<double> b = random(n_, n_);
    std::vector<double> a(n_ * n_);
    for (size_t i = 0; i < n_; ++i) {
      for (size_t j = 0; j < n_; ++j) {
        for (size_t k = 0; k < n_; ++k) a[i * n_ + j] += b[i * n_ + k] * b[j * n_ + k];
      }
      a[i * n_ + i] += static_cast<double>(n_);
    }
    return a;
  }

  const size_t n_;
  std::unique_ptr<ThreadPool> pool_;
  SplitMix rng_{7};
};

TEST_P(LinearAlgebra, DotIsTheSum) {
  const std::vector<double> a = random(1, n_), b = random(1, n_);
  double sum = 0;
  for (size_t i = 0; i < n_; ++i) sum += a[i] * b[i];
  EXPECT_NEAR(dot(a.data(), b.data(), n_), sum, 1e-12 * static_cast<double>(n_));
}

TEST_P(LinearAlgebra, ProductIsAdded) {
  for (const size_t rows : {1u, 4u, 7u, 30u}) {
    const size_t m = n_ + 3;
    const std::vector<double> x = random(rows, n_), y = random(rows, m);
    std::vector<double> out = random(n_, m), expected = out;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < n_; ++i) {
        for (size_t j = 0; j < m; ++j) expected[i * m + j] += x[r * n_ + i] * y[r * m + j];
      }
    }
    add_product(*pool_, x.data(), n_, y.data(), m, rows, out.data());
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-11) << rows;
  }
}

TEST_P(LinearAlgebra, CholeskySolves) {
  const size_t m = 2 * n_ + 5;
  const std::vector<double> a = positive_definite(), x = random(n_, m);
  std::vector<double> b(n_ * m, 0.0);
  for (size_t i = 0; i < n_; ++i) {
    for (size_t k = 0; k < n_; ++k) {
      for (size_t c = 0; c < m; ++c) b[i * m + c] += a[i * n_ + k] * x[k * m + c];
    }
  }
  std::vector<double> factor = a;
  ASSERT_TRUE(cholesky(*pool_, factor, n_).is_ok());
  cholesky_solve(*pool_, factor, n_, b, m);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(b[i], x[i], 1e-9);
}

TEST_P(LinearAlgebra, EigenvectorsReproduceTheMatrix) {
  const std::vector<double> a = positive_definite();
  Result<Eigen> eigen = symmetric_eigen(a, n_);
  ASSERT_TRUE(eigen.is_ok());
  for (size_t i = 0; i + 1 < n_; ++i) EXPECT_GE(eigen->values[i], eigen->values[i + 1]);
  for (size_t i = 0; i < n_; ++i) {
    for (size_t j = 0; j < n_; ++j) {
      double sum = 0, product = 0;
      for (size_t k = 0; k < n_; ++k) {
        sum += eigen->values[k] * eigen->vectors[k * n_ + i] * eigen->vectors[k * n_ + j];
        product += eigen->vectors[i * n_ + k] * eigen->vectors[j * n_ + k];
      }
      ASSERT_NEAR(sum, a[i * n_ + j], 1e-9 * static_cast<double>(n_ * n_));
      ASSERT_NEAR(product, i == j ? 1 : 0, 1e-11);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearAlgebra, ::testing::Values(1, 2, 3, 8, 17, 64));

TEST(LinearAlgebraBad, SingularAndNaNAreErrors) {
  const auto pool = std::move(*ThreadPool::create(1));
  std::vector<double> singular = {1, 1, 1, 1};
  EXPECT_EQ(cholesky(*pool, singular, 2).code(), BLEND_E_NUMERIC);
  std::vector<double> nan = {1, 0, std::nan(""), 1};
  EXPECT_EQ(cholesky(*pool, nan, 2).code(), BLEND_E_NUMERIC);
  EXPECT_EQ(symmetric_eigen({1, std::nan(""), std::nan(""), 1}, 2).status().code(),
            BLEND_E_NUMERIC);
}

}  // namespace
}  // namespace blend
