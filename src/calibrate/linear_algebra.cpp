#include "calibrate/linear_algebra.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace blend {
namespace {

// Columns that a thread takes at once in the triangular solve: its part of a row stays in L1.
constexpr size_t kColumnBlock = 256;

// Rotates columns p and q of a and rows p and q, so that a[p][q] becomes zero; the same for the
// rows of `vectors`. (Golub & Van Loan, Matrix Computations, 8.5.2.)
void rotate(std::vector<double>& a, std::vector<double>& vectors, size_t n, size_t p, size_t q) {
  const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
  const double t = (theta >= 0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  for (size_t i = 0; i < n; ++i) {
    const double x = a[p * n + i], y = a[q * n + i];
    a[p * n + i] = c * x - s * y;
    a[q * n + i] = s * x + c * y;
  }
  for (size_t i = 0; i < n; ++i) {
    const double x = a[i * n + p], y = a[i * n + q];
    a[i * n + p] = c * x - s * y;
    a[i * n + q] = s * x + c * y;
  }
  for (size_t i = 0; i < n; ++i) {
    const double x = vectors[p * n + i], y = vectors[q * n + i];
    vectors[p * n + i] = c * x - s * y;
    vectors[q * n + i] = s * x + c * y;
  }
}

}  // namespace

double dot(const double* a, const double* b, size_t n) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  }
  double sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const double s : sums) sum += s;
  return sum;
}

void add_product(ThreadPool& pool, const double* x, size_t n, const double* y, size_t m,
                 size_t rows, double* out) {
  pool.parallel_for(
      n, std::max<size_t>(1, 65536 / (m + 1)), [&](size_t begin, size_t end, uint32_t) {
        for (size_t a = begin; a < end; ++a) {
          double* const sum = out + a * m;
          size_t r = 0;
          // Four rows at once: a row of `out` is read and written a quarter as often.
          for (; r + 4 <= rows; r += 4) {
            const double x0 = x[r * n + a], x1 = x[(r + 1) * n + a];
            const double x2 = x[(r + 2) * n + a], x3 = x[(r + 3) * n + a];
            const double* const y0 = y + r * m;
            for (size_t b = 0; b < m; ++b) {
              sum[b] += (x0 * y0[b] + x1 * y0[m + b]) + (x2 * y0[2 * m + b] + x3 * y0[3 * m + b]);
            }
          }
          for (; r < rows; ++r) {
            const double x0 = x[r * n + a];
            for (size_t b = 0; b < m; ++b) sum[b] += x0 * y[r * m + b];
          }
        }
      });
}

Status cholesky(ThreadPool& pool, std::span<double> a, size_t n) {
  for (size_t j = 0; j < n; ++j) {
    double* const row = &a[j * n];
    const double pivot = row[j] - dot(row, row, j);
    if (!(pivot > 0)) {
      return make_error(BLEND_E_NUMERIC,
                        "the normal equations are singular at input %zu: give more sample prompts, "
                        "or a larger ridge",
                        j);
    }
    row[j] = std::sqrt(pivot);
    const double inverse = 1 / row[j];
    pool.parallel_for(n - j - 1, std::max<size_t>(16, 65536 / (j + 1)),
                      [&](size_t begin, size_t end, uint32_t) {
                        for (size_t i = j + 1 + begin; i < j + 1 + end; ++i) {
                          double* const below = &a[i * n];
                          below[j] = (below[j] - dot(below, row, j)) * inverse;
                        }
                      });
  }
  return Status::ok();
}

void cholesky_solve(ThreadPool& pool, std::span<const double> l, size_t n, std::span<double> b,
                    size_t m) {
  const size_t n_blocks = (m + kColumnBlock - 1) / kColumnBlock;
  pool.parallel_for(n_blocks, 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t block = begin; block < end; ++block) {
      const size_t first = block * kColumnBlock, width = std::min(kColumnBlock, m - first);
      for (size_t i = 0; i < n; ++i) {
        double* const row = &b[i * m + first];
        for (size_t k = 0; k < i; ++k) {
          const double factor = l[i * n + k];
          const double* const above = &b[k * m + first];
          for (size_t c = 0; c < width; ++c) row[c] -= factor * above[c];
        }
        for (size_t c = 0; c < width; ++c) row[c] /= l[i * n + i];
      }
      for (size_t i = n; i-- > 0;) {
        double* const row = &b[i * m + first];
        for (size_t k = i + 1; k < n; ++k) {
          const double factor = l[k * n + i];
          const double* const below = &b[k * m + first];
          for (size_t c = 0; c < width; ++c) row[c] -= factor * below[c];
        }
        for (size_t c = 0; c < width; ++c) row[c] /= l[i * n + i];
      }
    }
  });
}

Result<Eigen> symmetric_eigen(std::vector<double> a, size_t n) {
  constexpr int kMaxSweeps = 60;  // ten are usual
  std::vector<double> vectors(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  double norm = 0;
  for (const double e : a) norm += e * e;
  bool converged = false;
  for (int sweep = 0; sweep < kMaxSweeps && !converged; ++sweep) {
    double off = 0;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) off += a[p * n + q] * a[p * n + q];
    }
    converged = off <= 1e-28 * norm;
    if (converged) break;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] != 0) rotate(a, vectors, n, p, q);
      }
    }
  }
  if (!converged) {
    return Status{BLEND_E_NUMERIC, "the eigenvalues of a drift map did not converge"};
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t k) { return a[i * n + i] > a[k * n + k]; });
  Eigen out;
  out.vectors.reserve(n * n);
  for (const size_t i : order) {
    out.values.push_back(a[i * n + i]);
    out.vectors.insert(out.vectors.end(), vectors.begin() + static_cast<std::ptrdiff_t>(i * n),
                       vectors.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
  }
  return out;
}

}  // namespace blend
