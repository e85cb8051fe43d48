#include "calibrate/drift_fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "calibrate/linear_algebra.h"

namespace blend {
namespace {

constexpr size_t kBlock = 64;  // rows added at once

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

bool fits_f16(const std::vector<std::vector<double>>& values) {
  constexpr double kLargest = 65504;
  return std::all_of(values.begin(), values.end(), [](const std::vector<double>& list) {
    return std::all_of(list.begin(), list.end(), [](double e) { return std::abs(e) <= kLargest; });
  });
}

void append(const std::vector<double>& values, DType dtype, std::vector<std::byte>& out) {
  for (const double value : values) {
    const auto f = static_cast<float>(value);
    const uint16_t half = f32_to_f16(f);
    const void* const bytes = dtype == DType::f16 ? static_cast<const void*>(&half) : &f;
    const auto* const first = static_cast<const std::byte*>(bytes);
    out.insert(out.end(), first, first + dtype_size(dtype));
  }
}

}  // namespace

DriftFit::DriftFit(ThreadPool& pool, DriftInputs inputs, uint32_t kv_dim, uint32_t check_layer,
                   uint32_t n_layers)
    : pool_(pool),
      inputs_(inputs),
      kv_dim_(kv_dim),
      first_layer_(check_layer + 1),
      n_maps_(n_layers - check_layer - 1),
      n_in_(inputs.size(kv_dim)),
      n_out_(2 * size_t{kv_dim}),
      gram_(n_in_ * n_in_, 0.0),
      cross_(n_maps_, std::vector<double>(n_in_ * n_out_, 0.0)),
      power_(n_maps_, std::vector<double>(n_out_, 0.0)),
      x_(kBlock * n_in_),
      y_(n_maps_, std::vector<double>(kBlock * n_out_)) {}

void DriftFit::begin_row(const float* fresh, const float* stored) {
  double* x = &x_[n_waiting_ * n_in_];
  for (size_t i = 0; i < n_out_; ++i) {
    *x++ = static_cast<double>(fresh[i]) - static_cast<double>(stored[i]);
  }
  if (inputs_.fresh) x = std::copy_n(fresh, n_out_, x);
  if (inputs_.constant) *x = 1;
}

void DriftFit::add_drift(uint32_t map, const float* fresh, const float* stored) {
  double* const y = &y_[map][n_waiting_ * n_out_];
  for (size_t i = 0; i < n_out_; ++i) {
    y[i] = static_cast<double>(fresh[i]) - static_cast<double>(stored[i]);
    power_[map][i] += y[i] * y[i];
  }
}

void DriftFit::end_row() {
  ++n_rows_;
  if (++n_waiting_ == kBlock) flush();
}

void DriftFit::flush() {
  add_product(pool_, x_.data(), n_in_, x_.data(), n_in_, n_waiting_, gram_.data());
  for (uint32_t i = 0; i < n_maps_; ++i) {
    add_product(pool_, x_.data(), n_in_, y_[i].data(), n_out_, n_waiting_, cross_[i].data());
  }
  n_waiting_ = 0;
}

Result<DriftMaps> DriftFit::solve(double ridge, uint32_t rank, const Watch& watch) {
  flush();
  if (n_rows_ == 0) {
    return Status{
        BLEND_E_INVALID_ARGUMENT,
        "no reused row to fit the drift correction on: give prompts of two chunks or more"};
  }
  DriftMaps maps;
  maps.inputs = inputs_;
  maps.kv_dim = kv_dim_;
  maps.first_layer = first_layer_;
  maps.n_maps = n_maps_;
  maps.rank = rank >= n_out_ ? 0 : rank;

  std::vector<double> factor = gram_;
  double largest = 0;
  for (size_t i = 0; i < n_in_; ++i) largest = std::max(largest, gram_[i * n_in_ + i]);
  for (size_t i = 0; i < n_in_; ++i) {
    const bool constant = inputs_.constant && i + 1 == n_in_;
    double& d = factor[i * n_in_ + i];
    // An input that never varies (a head that ignores what is before it) gets no weight, rather
    // than a pivot of zero.
    d += (constant ? 0 : ridge * d) + 1e-12 * largest;
  }
  BLEND_RETURN_IF_ERROR(cholesky(pool_, factor, n_in_));

  std::vector<std::vector<double>> solved;  // in the order in which the file has them
  for (uint32_t i = 0; i < n_maps_; ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    std::vector<double> a = cross_[i];  // [n_in, n_out]
    cholesky_solve(pool_, factor, n_in_, a, n_out_);
    std::vector<double> basis;  // [rank, n_out]
    if (maps.rank > 0) {
      // The directions of the output that the fit explains most: the first eigenvectors of
      // A^T (X^T X + R) A = A^T X^T Y.
      std::vector<double> m(n_out_ * n_out_, 0.0);
      add_product(pool_, a.data(), n_out_, cross_[i].data(), n_out_, n_in_, m.data());
      for (size_t r = 0; r < n_out_; ++r) {
        for (size_t c = 0; c < r; ++c) {
          m[r * n_out_ + c] = m[c * n_out_ + r] = (m[r * n_out_ + c] + m[c * n_out_ + r]) / 2;
        }
      }
      BLEND_ASSIGN(Eigen eigen, symmetric_eigen(std::move(m), n_out_));
      basis.assign(eigen.vectors.begin(),
                   eigen.vectors.begin() + static_cast<std::ptrdiff_t>(maps.rank * n_out_));
      const std::vector<double> in =
          multiply(pool_, a, n_in_, n_out_, transposed(basis, maps.rank, n_out_), maps.rank);
      a = multiply(pool_, in, n_in_, maps.rank, basis, n_out_);
      solved.push_back(transposed(basis, maps.rank, n_out_));  // [n_out, rank]
      solved.push_back(transposed(in, n_in_, maps.rank));      // [rank, n_in]
    } else {
      solved.push_back(transposed(a, n_in_, n_out_));  // [n_out, n_in]
    }
    // |Y - X A|^2 = |Y|^2 - 2 A.(X^T Y) + A.(X^T X A), by column.
    const std::vector<double> gram_a = multiply(pool_, gram_, n_in_, n_in_, a, n_out_);
    double power[2] = {}, left[2] = {};  // K, V
    for (size_t c = 0; c < n_out_; ++c) {
      const size_t half = c < kv_dim_ ? 0 : 1;
      double residual = power_[i][c];
      for (size_t r = 0; r < n_in_; ++r) {
        residual += a[r * n_out_ + c] * (gram_a[r * n_out_ + c] - 2 * cross_[i][r * n_out_ + c]);
      }
      power[half] += power_[i][c];
      left[half] += residual;
    }
    maps.explained_k.push_back(power[0] > 0 ? static_cast<float>(1 - left[0] / power[0]) : 0.0f);
    maps.explained_v.push_back(power[1] > 0 ? static_cast<float>(1 - left[1] / power[1]) : 0.0f);
  }
  maps.dtype = fits_f16(solved) ? DType::f16 : DType::f32;
  maps.data.reserve(n_maps_ * maps.layer_bytes());
  for (const std::vector<double>& matrix : solved) append(matrix, maps.dtype, maps.data);
  return maps;
}

}  // namespace blend
