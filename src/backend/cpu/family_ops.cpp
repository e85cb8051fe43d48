#include "backend/cpu/family_ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/gate.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/weights.h"
#include "cpu/kv_layout.h"
#include "cpu/rms_norm.h"

namespace blend::cpu {

Status CpuFamilyOps::norm_values(Tensor kv, uint32_t n_heads, uint32_t head_dim, float eps) {
  const size_t cols = static_cast<size_t>(kv.cols), n = size_t{n_heads} * head_dim;
  if (n > cols) {
    return make_error(BLEND_E_INTERNAL, "norm_values: %u heads of %u elements in %zu", n_heads,
                      head_dim, cols);
  }
  float* const data = static_cast<float*>(kv.data);
  const std::vector<float> ones(head_dim, 1.0f);
  pool_.parallel_for(static_cast<size_t>(kv.rows), row_grain(n),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         float* head = data + (i + 1) * cols - n;
                         for (uint32_t h = 0; h < n_heads; ++h, head += head_dim) {
                           kernels::rms_norm(head, ones.data(), eps, head_dim, head);
                         }
                       }
                     });
  return Status::ok();
}

// Blocks of a quantized table that lie partly outside are decoded beside it.
Status CpuFamilyOps::embed_part(const Weight& table, const int32_t* tokens, uint32_t first,
                                Tensor out) {
  const TensorView& view = static_cast<const CpuTable&>(table).view();
  const size_t n = static_cast<size_t>(out.cols), whole = static_cast<size_t>(view.cols());
  if (first > whole || n > whole - first) {
    return make_error(BLEND_E_INTERNAL, "embed_part: %zu elements from %u on of %zu", n, first,
                      whole);
  }
  const size_t block = block_elements(view.blocks);
  const size_t begins = first / block * block;
  const size_t decoded = kernels::round_up(first + n, block) - begins;
  const size_t offset = weight_row_bytes(view.dtype, view.blocks, begins);
  BLEND_ASSIGN(auto scratch, scratch_.take(decoded * pool_.n_threads() * sizeof(float)));
  float* const to = static_cast<float*>(out.data);
  pool_.parallel_for(static_cast<size_t>(out.rows), row_grain(decoded),
                     [&](size_t begin, size_t end, uint32_t thread) {
                       float* const beside =
                           reinterpret_cast<float*>(scratch.data()) + decoded * thread;
                       for (size_t i = begin; i < end; ++i) {
                         const std::byte* const from = view.row(tokens[i]) + offset;
                         if (decoded == n) {
                           decode(view, from, n, to + i * n);
                           continue;
                         }
                         decode(view, from, decoded, beside);
                         std::copy_n(beside + (first - begins), n, to + i * n);
                       }
                     });
  return Status::ok();
}

Status CpuFamilyOps::cut(Tensor x, uint32_t n, float deviations) {
  constexpr size_t kParts = 8;  // of a sum, so that a compiler may use vectors
  const size_t cols = static_cast<size_t>(x.cols);
  if (n == 0 || n > cols) {
    return make_error(BLEND_E_INTERNAL, "cut: %u elements of %zu", n, cols);
  }
  const auto total = [n](const auto& part) {
    double sums[kParts] = {};
    for (size_t i = 0; i < n; ++i) sums[i % kParts] += part(i);
    double sum = 0;
    for (const double s : sums) sum += s;
    return sum / n;
  };
  float* const data = static_cast<float*>(x.data);
  pool_.parallel_for(
      static_cast<size_t>(x.rows), row_grain(3 * n), [&](size_t begin, size_t end, uint32_t) {
        for (size_t i = begin; i < end; ++i) {
          float* const row = data + i * cols;
          const double mean = total([&](size_t e) { return static_cast<double>(row[e]); });
          const double variance = total([&](size_t e) {
            const double off = static_cast<double>(row[e]) - mean;
            return off * off;
          });
          const auto least =
              static_cast<float>(mean + std::sqrt(variance) * static_cast<double>(deviations));
          // A NaN is above nothing, and stays.
          for (size_t e = 0; e < n; ++e) row[e] = row[e] <= least ? 0.0f : row[e] - least;
        }
      });
  return Status::ok();
}

Status CpuFamilyOps::gate(Activation activation, Tensor x, Tensor by) {
  const size_t cols = static_cast<size_t>(x.cols);
  float* const to = static_cast<float*>(x.data);
  const float* const from = static_cast<const float*>(by.data);
  gate_rows(pool_, static_cast<size_t>(x.rows), cols, gate_of(activation), to, from, cols, to);
  return Status::ok();
}

Status CpuFamilyOps::scale_part(Tensor x, uint32_t first, uint32_t n, float factor) {
  const size_t cols = static_cast<size_t>(x.cols);
  if (first > cols || n > cols - first) {
    return make_error(BLEND_E_INTERNAL, "scale_part: %u elements from %u on of %zu", n, first,
                      cols);
  }
  float* const data = static_cast<float*>(x.data);
  pool_.parallel_for(static_cast<size_t>(x.rows), row_grain(n),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         float* const row = data + i * cols + first;
                         for (size_t c = 0; c < n; ++c) row[c] *= factor;
                       }
                     });
  return Status::ok();
}

}  // namespace blend::cpu
