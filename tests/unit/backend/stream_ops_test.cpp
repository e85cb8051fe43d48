// Operations on rows of several streams against plain loops in double precision.
#include <algorithm>
#include <cmath>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

using Rows = std::vector<std::vector<float>>;  // by stream: [rows * cols]

std::vector<double> coefficients(const std::vector<float>& w, const float* scores, size_t n) {
  std::vector<double> out(w.size() / n);
  for (size_t k = 0; k < out.size(); ++k) {
    for (size_t i = 0; i < n; ++i) {
      out[k] += static_cast<double>(w[k * n + i]) * std::tanh(static_cast<double>(scores[i]));
    }
  }
  return out;
}

double size_of(const float* row, size_t n, double least) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  return std::sqrt(std::max(sum / static_cast<double>(n), least));
}

}  // namespace

TEST_P(BackendOps, PredictsAndCorrectsStreams) {
  Backend& b = *backend_;
  if (b.streams() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  for (int round = 0; round < rounds(10); ++round) {
    // A row has several pieces of 256 elements, or a part of one.
    const size_t n = number(2, 5), rows = number(1, 12), cols = number(1, 700), all = rows * cols;
    Rows x;
    std::vector<Owned> owned;
    std::vector<Tensor> others;
    for (size_t s = 0; s < n; ++s) {
      x.push_back(normal(all));
      owned.push_back(make_tensor(x[s], static_cast<int64_t>(rows), static_cast<int64_t>(cols)));
      if (s > 0) others.push_back(owned[s].tensor);
    }
    const StreamRows streams{owned[0].tensor, others};
    const std::vector<float> scores = normal(rows * n), old = normal(all);
    const Owned given = make_tensor(scores, static_cast<int64_t>(rows), static_cast<int64_t>(n));
    const Owned before = make_tensor(old, static_cast<int64_t>(rows), static_cast<int64_t>(cols));
    const auto p = make_stored("p", normal(n * n * n),
                               {static_cast<int64_t>(n * n), static_cast<int64_t>(n)}, DType::f32);
    const auto c = make_stored("c", normal(n * n),
                               {static_cast<int64_t>(n), static_cast<int64_t>(n)}, DType::f32);
    const auto load = [&](const StoredTensor& stored) {
      const TensorView* const parts[] = {&stored.view};
      auto w = b.load_vector(parts, 0);
      EXPECT_TRUE(w.is_ok());
      return std::move(*w);
    };
    const auto predicts = load(*p), corrects = load(*c);

    std::vector<std::vector<double>> want(n, std::vector<double>(all));
    for (size_t i = 0; i < rows; ++i) {
      const std::vector<double> k = coefficients(p->values, &scores[i * n], n);
      for (size_t at = i * cols; at < (i + 1) * cols; ++at) {
        for (size_t s = 0; s < n; ++s) {
          want[s][at] = static_cast<double>(x[s][at]);
          for (size_t t = 0; t < n; ++t) {
            want[s][at] += k[s * n + t] * static_cast<double>(x[t][at]);
          }
        }
      }
    }
    ASSERT_TRUE(b.streams()->predict(*predicts, given.tensor, streams).is_ok());
    for (size_t s = 0; s < n; ++s) expect_near(host(owned[s].tensor), want[s]);

    for (size_t i = 0; i < rows; ++i) {
      const std::vector<double> k = coefficients(c->values, &scores[i * n], n);
      for (size_t at = i * cols; at < (i + 1) * cols; ++at) {
        const auto was = static_cast<double>(old[at]);
        const double news = want[0][at] - was;
        want[0][at] = was + (1 + k[0]) * news;
        for (size_t s = 1; s < n; ++s) want[s][at] += (1 + k[s]) * news;
      }
    }
    ASSERT_TRUE(b.streams()->correct(*corrects, given.tensor, before.tensor, streams).is_ok());
    for (size_t s = 0; s < n; ++s) expect_near(host(owned[s].tensor), want[s]);

    EXPECT_EQ(b.streams()->predict(*corrects, given.tensor, streams).code(), BLEND_E_INTERNAL);
    EXPECT_EQ(b.streams()->correct(*predicts, given.tensor, before.tensor, streams).code(),
              BLEND_E_INTERNAL);
  }
}

TEST_P(BackendOps, ScalesRowsToTheSizeOfOthers) {
  Backend& b = *backend_;
  if (b.streams() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  constexpr size_t kRows = 4, kCols = 75;
  std::vector<float> x = normal(kRows * kCols), y = normal(kRows * kCols);
  for (size_t i = 0; i < kCols; ++i) {
    y[kCols + i] *= 1e-4f;  // smaller than what is divided by
    x[2 * kCols + i] *= 30;
    y[3 * kCols + i] = 0;
  }
  std::vector<double> want;
  for (size_t i = 0; i < kRows; ++i) {
    const double factor = size_of(&x[i * kCols], kCols, 0) / size_of(&y[i * kCols], kCols, 1e-5);
    for (size_t e = 0; e < kCols; ++e) {
      want.push_back(static_cast<double>(y[i * kCols + e]) * factor);
    }
  }
  const Owned of_x = make_tensor(x, kRows, kCols), of_y = make_tensor(y, kRows, kCols);
  ASSERT_TRUE(b.streams()->match(of_x.tensor, of_y.tensor).is_ok());
  expect_near(host(of_y.tensor), want);
}

TEST_P(BackendOps, WeighsTheElementsOfRows) {
  Backend& b = *backend_;
  if (b.streams() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  constexpr size_t kRows = 3, kCols = 21;
  const std::vector<float> x = normal(kRows * kCols);
  const auto by = make_stored("w", normal(kCols), {kCols}, DType::f32);
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) {
    want.push_back(static_cast<double>(x[i]) * static_cast<double>(by->values[i % kCols]));
  }
  const TensorView* const parts[] = {&by->view};
  auto weight = b.load_vector(parts, 0);
  ASSERT_TRUE(weight.is_ok());
  const Owned from = make_tensor(x, kRows, kCols), to = make_empty(kRows, kCols);
  ASSERT_TRUE(b.streams()->weigh(from.tensor, **weight, to.tensor).is_ok());
  expect_near(host(to.tensor), want);
  const Owned other = make_tensor(normal(8), 1, 8);
  EXPECT_EQ(b.streams()->weigh(other.tensor, **weight, other.tensor).code(), BLEND_E_INTERNAL);
}

}  // namespace blend::test
