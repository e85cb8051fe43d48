#include "calibrate/ridge_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "calibrate/linear_algebra.h"

namespace blend {
namespace {

// out = a b; a: [n, k], b: [k, m].
std::vector<double> multiply(ThreadPool& pool, const std::vector<double>& a, size_t n, size_t k,
                             const std::vector<double>& b, size_t m) {
  std::vector<double> out(n * m, 0.0);
  pool.parallel_for(n, 8, [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      for (size_t j = 0; j < k; ++j) {
        const double factor = a[i * k + j];
        for (size_t c = 0; c < m; ++c) out[i * m + c] += factor * b[j * m + c];
      }
    }
  });
  return out;
}

std::vector<double> transposed(const std::vector<double>& a, size_t n, size_t m) {
  std::vector<double> out(n * m);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < m; ++j) out[j * n + i] = a[i * m + j];
  }
  return out;
}

// The lower triangle of the Cholesky factor of X^T X + ridge * diag(X^T X).
Result<std::vector<double>> factor_of(ThreadPool& pool, const RidgeSums& sums, bool constant,
                                      double ridge) {
  const size_t n = sums.n_in;
  std::vector<double> factor = sums.gram;
  double largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, sums.gram[i * n + i]);
  for (size_t i = 0; i < n; ++i) {
    double& d = factor[i * n + i];
    // An input that never varies (a head that ignores preceding text) gets no weight, rather
    // than a pivot of zero.
    d += (constant && i + 1 == n ? 0 : ridge * d) + 1e-12 * largest;
  }
  BLEND_RETURN_IF_ERROR(cholesky(pool, factor, n));
  return factor;
}

// |Y - X A|^2 = |Y|^2 - 2 A.(X^T Y) + A.(X^T X A), of the first and the second half of the columns;
// power: the same of Y alone.
void left_by(ThreadPool& pool, const RidgeSums& sums, size_t map, const std::vector<double>& a,
             double (&left)[2], double (&power)[2]) {
  const size_t n_in = sums.n_in, n_out = sums.n_out;
  const std::vector<double> gram_a = multiply(pool, sums.gram, n_in, n_in, a, n_out);
  for (size_t c = 0; c < n_out; ++c) {
    const size_t half = c < n_out / 2 ? 0 : 1;
    double residual = sums.power[map][c];
    for (size_t r = 0; r < n_in; ++r) {
      residual += a[r * n_out + c] * (gram_a[r * n_out + c] - 2 * sums.cross[map][r * n_out + c]);
    }
    power[half] += sums.power[map][c];
    left[half] += residual;
  }
}

// Rotations of every pair of rows take minutes for a thousand of them.
constexpr size_t kJacobi = 192;

// Rows that span nearly the same space as the first `rank` eigenvectors of the symmetric m:
// [n, n], up to small differences in eigenvalue: subspace iteration. [rank, n], orthonormal.
std::vector<double> span_of_first(ThreadPool& pool, const std::vector<double>& m, size_t n,
                                  size_t rank) {
  constexpr int kRounds = 40;
  std::vector<double> q(rank * n);
  uint64_t state = 1;
  for (double& e : q) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    e = static_cast<double>(state >> 40) / static_cast<double>(1ull << 24) - 0.5;
  }
  for (int round = 0; round < kRounds; ++round) {
    q = multiply(pool, q, rank, n, m, n);
    // Gram-Schmidt, twice over the rows before each.
    for (size_t i = 0; i < rank; ++i) {
      double* const row = &q[i * n];
      for (int pass = 0; pass < 2; ++pass) {
        for (size_t j = 0; j < i; ++j) {
          const double along = dot(row, &q[j * n], n);
          for (size_t c = 0; c < n; ++c) row[c] -= along * q[j * n + c];
        }
      }
      const double size = std::sqrt(dot(row, row, n));
      for (size_t c = 0; c < n; ++c) row[c] = size > 0 ? row[c] / size : 0;
    }
  }
  return q;
}

// The directions of the output that the fit explains best: the first eigenvectors of
// A^T (X^T X + R) A = A^T X^T Y. [rank, n_out]
Result<std::vector<double>> first_directions(ThreadPool& pool, const std::vector<double>& a,
                                             const std::vector<double>& cross, size_t n_in,
                                             size_t n_out, size_t rank) {
  std::vector<double> m(n_out * n_out, 0.0);
  add_product(pool, a.data(), n_out, cross.data(), n_out, n_in, m.data());
  for (size_t r = 0; r < n_out; ++r) {
    for (size_t c = 0; c < r; ++c) {
      m[r * n_out + c] = m[c * n_out + r] = (m[r * n_out + c] + m[c * n_out + r]) / 2;
    }
  }
  if (n_out > kJacobi && 4 * rank <= n_out) return span_of_first(pool, m, n_out, rank);
  BLEND_ASSIGN(Eigen eigen, symmetric_eigen(std::move(m), n_out));
  eigen.vectors.resize(rank * n_out);
  return std::move(eigen.vectors);
}

}  // namespace

RidgeSums::RidgeSums(size_t n_inputs, size_t n_outputs, size_t n_maps)
    : n_in(n_inputs),
      n_out(n_outputs),
      gram(n_inputs * n_inputs, 0.0),
      cross(n_maps, std::vector<double>(n_inputs * n_outputs, 0.0)),
      power(n_maps, std::vector<double>(n_outputs, 0.0)) {}

void RidgeSums::add(ThreadPool& pool, const double* x, std::span<const std::vector<double>> y,
                    size_t rows) {
  add_product(pool, x, n_in, x, n_in, rows, gram.data());
  for (size_t i = 0; i < cross.size(); ++i) {
    add_product(pool, x, n_in, y[i].data(), n_out, rows, cross[i].data());
    for (size_t at = 0; at < rows * n_out; ++at) power[i][at % n_out] += y[i][at] * y[i][at];
  }
}

RidgeSums& RidgeSums::operator+=(const RidgeSums& other) {
  const auto add_to = [](std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  };
  add_to(gram, other.gram);
  for (size_t i = 0; i < cross.size(); ++i) {
    add_to(cross[i], other.cross[i]);
    add_to(power[i], other.power[i]);
  }
  return *this;
}

Result<double> choose_ridge(ThreadPool& pool, std::span<const RidgeSums> halves, bool constant,
                            const Watch& watch) {
  // From the need of thousands of rows to that of a handful of prompts.
  constexpr double kTried[] = {1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0};
  double best = -1, least = std::numeric_limits<double>::infinity();
  Status failed;
  for (const double ridge : kTried) {
    double share = 0;
    bool fitted = true;
    for (size_t h = 0; h < 2 && fitted; ++h) {
      BLEND_RETURN_IF_ERROR(watch.check());
      const RidgeSums &on = halves[h], &other = halves[1 - h];
      auto factor = factor_of(pool, on, constant, ridge);
      fitted = factor.is_ok();
      if (!fitted) failed = factor.status();
      for (size_t i = 0; i < on.cross.size() && fitted; ++i) {
        std::vector<double> a = on.cross[i];
        cholesky_solve(pool, *factor, on.n_in, a, on.n_out);
        double left[2] = {}, power[2] = {};
        left_by(pool, other, i, a, left, power);
        for (const int half : {0, 1}) {
          if (power[half] > 0) share += left[half] / power[half];
        }
      }
    }
    if (!fitted || !(share < least)) continue;
    least = share;
    best = ridge;
  }
  if (best < 0) return failed;
  return best;
}

Result<std::vector<RidgeMap>> solve_ridge(ThreadPool& pool, const RidgeSums& sums, bool constant,
                                          double ridge, size_t rank, const Watch& watch) {
  const size_t n_in = sums.n_in, n_out = sums.n_out;
  BLEND_ASSIGN(const std::vector<double> factor, factor_of(pool, sums, constant, ridge));
  std::vector<RidgeMap> maps(sums.cross.size());
  for (size_t i = 0; i < maps.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    std::vector<double> a = sums.cross[i];  // [n_in, n_out]
    cholesky_solve(pool, factor, n_in, a, n_out);
    if (rank > 0) {
      BLEND_ASSIGN(const std::vector<double> basis,
                   first_directions(pool, a, sums.cross[i], n_in, n_out, rank));
      const std::vector<double> out = transposed(basis, rank, n_out);  // [n_out, rank]
      const std::vector<double> in = multiply(pool, a, n_in, n_out, out, rank);
      a = multiply(pool, in, n_in, rank, basis, n_out);
      maps[i].matrices = {out, transposed(in, n_in, rank)};
    } else {
      maps[i].matrices = {transposed(a, n_in, n_out)};
    }
    double left[2] = {}, power[2] = {};
    left_by(pool, sums, i, a, left, power);
    for (const int half : {0, 1}) {
      maps[i].explained[half] = power[half] > 0 ? 1 - left[half] / power[half] : 0;
    }
  }
  return maps;
}

}  // namespace blend
