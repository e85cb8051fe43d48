#include "backend/cpu/stream_ops.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/grain.h"
#include "backend/cpu/weights.h"
#include "model/limits.h"

namespace blend::cpu {
namespace {

constexpr size_t kMost = kMaxStreams;
// Elements of a row that are joined at a time: those of all streams fit the first-level cache.
constexpr size_t kPiece = 256;

struct StreamPlaces {
  std::array<float*, kMost> of = {};
  size_t count = 0;
  size_t cols = 0;

  explicit StreamPlaces(const StreamRows& rows)
      : count(rows.count()), cols(static_cast<size_t>(rows.x.cols)) {
    of[0] = static_cast<float*>(rows.x.data);
    for (size_t s = 1; s < count; ++s) of[s] = static_cast<float*>(rows.others[s - 1].data);
  }
};

Status check_streams(const char* name, const Weight& coefficients, size_t n, Tensor scores,
                     const StreamRows& rows) {
  const auto size = static_cast<const CpuVector&>(coefficients).size();
  if (rows.count() <= kMost && size == static_cast<int64_t>(n) && scores.rows == rows.x.rows &&
      scores.cols == static_cast<int64_t>(rows.count())) {
    return Status::ok();
  }
  return make_error(BLEND_E_INTERNAL, "%s: %lld coefficients of %zu streams", name,
                    static_cast<long long>(size), rows.count());
}

// out = W tanh(scores); W: [n, count].
void coefficients_of(const float* w, const float* scores, size_t count, size_t n, float* out) {
  std::array<float, kMost> m = {};
  for (size_t i = 0; i < count; ++i) m[i] = std::tanh(scores[i]);
  for (size_t k = 0; k < n; ++k) {
    float sum = 0;
    for (size_t i = 0; i < count; ++i) sum += w[k * count + i] * m[i];
    out[k] = sum;
  }
}

double mean_square(const float* row, size_t n) {
  std::array<double, 8> sums = {};  // so that a compiler may use vectors
  size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size()) {
    for (size_t k = 0; k < sums.size(); ++k) {
      sums[k] += static_cast<double>(row[i + k]) * static_cast<double>(row[i + k]);
    }
  }
  for (; i < n; ++i) sums[0] += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum / static_cast<double>(n);
}

}  // namespace

Status CpuStreamOps::predict(const Weight& coefficients, Tensor scores, const StreamRows& rows) {
  const StreamPlaces streams(rows);
  const size_t n = streams.count, cols = streams.cols;
  BLEND_RETURN_IF_ERROR(check_streams("predict", coefficients, n * n * n, scores, rows));
  const float* const w = elements_of(&coefficients);
  const float* const all_scores = static_cast<const float*>(scores.data);
  pool_.parallel_for(static_cast<size_t>(rows.x.rows), row_grain(n * n * cols),
                     [&](size_t begin, size_t end, uint32_t) {
                       std::array<float, kMost* kMost> c = {};
                       std::array<std::array<float, kPiece>, kMost> sums = {};
                       for (size_t i = begin; i < end; ++i) {
                         coefficients_of(w, all_scores + i * n, n, n * n, c.data());
                         for (size_t at = 0; at < cols; at += kPiece) {
                           const size_t m = std::min(kPiece, cols - at);
                           for (size_t s = 0; s < n; ++s) {
                             float* const sum = sums[s].data();
                             std::copy_n(streams.of[s] + i * cols + at, m, sum);
                             for (size_t t = 0; t < n; ++t) {
                               const float* const x = streams.of[t] + i * cols + at;
                               const float factor = c[s * n + t];
                               for (size_t e = 0; e < m; ++e) sum[e] += factor * x[e];
                             }
                           }
                           for (size_t s = 0; s < n; ++s) {
                             std::copy_n(sums[s].data(), m, streams.of[s] + i * cols + at);
                           }
                         }
                       }
                     });
  return Status::ok();
}

Status CpuStreamOps::correct(const Weight& coefficients, Tensor scores, Tensor before,
                             const StreamRows& rows) {
  const StreamPlaces streams(rows);
  const size_t n = streams.count, cols = streams.cols;
  BLEND_RETURN_IF_ERROR(check_streams("correct", coefficients, n * n, scores, rows));
  const float* const w = elements_of(&coefficients);
  const float* const all_scores = static_cast<const float*>(scores.data);
  const float* const all_before = static_cast<const float*>(before.data);
  pool_.parallel_for(static_cast<size_t>(rows.x.rows), row_grain(n * cols),
                     [&](size_t begin, size_t end, uint32_t) {
                       std::array<float, kMost> c = {};
                       std::array<float, kPiece> news = {};
                       for (size_t i = begin; i < end; ++i) {
                         coefficients_of(w, all_scores + i * n, n, n, c.data());
                         for (size_t at = 0; at < cols; at += kPiece) {
                           const size_t m = std::min(kPiece, cols - at);
                           const float* const old = all_before + i * cols + at;
                           float* const x = streams.of[0] + i * cols + at;
                           for (size_t e = 0; e < m; ++e) news[e] = x[e] - old[e];
                           for (size_t e = 0; e < m; ++e) x[e] = old[e] + (1 + c[0]) * news[e];
                           for (size_t s = 1; s < n; ++s) {
                             float* const other = streams.of[s] + i * cols + at;
                             const float factor = 1 + c[s];
                             for (size_t e = 0; e < m; ++e) other[e] += factor * news[e];
                           }
                         }
                       }
                     });
  return Status::ok();
}

Status CpuStreamOps::match(Tensor x, Tensor y) {
  constexpr double kLeast = 1e-5;
  const size_t cols = static_cast<size_t>(x.cols);
  const float* const wanted = static_cast<const float*>(x.data);
  float* const to = static_cast<float*>(y.data);
  pool_.parallel_for(
      static_cast<size_t>(x.rows), row_grain(2 * cols), [&](size_t begin, size_t end, uint32_t) {
        for (size_t i = begin; i < end; ++i) {
          float* const row = to + i * cols;
          const double size = std::max(mean_square(row, cols), kLeast);
          const auto factor =
              static_cast<float>(std::sqrt(mean_square(wanted + i * cols, cols) / size));
          for (size_t e = 0; e < cols; ++e) row[e] *= factor;
        }
      });
  return Status::ok();
}

Status CpuStreamOps::weigh(Tensor x, const Weight& weight, Tensor out) {
  const auto& vector = static_cast<const CpuVector&>(weight);
  if (vector.size() != x.cols) return make_error(BLEND_E_INTERNAL, "weigh: of another size");
  const size_t cols = static_cast<size_t>(x.cols);
  const float* const by = vector.data();
  const float* const from = static_cast<const float*>(x.data);
  float* const to = static_cast<float*>(out.data);
  pool_.parallel_for(static_cast<size_t>(x.rows), row_grain(cols),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         for (size_t e = 0; e < cols; ++e) {
                           to[i * cols + e] = from[i * cols + e] * by[e];
                         }
                       }
                     });
  return Status::ok();
}

}  // namespace blend::cpu
