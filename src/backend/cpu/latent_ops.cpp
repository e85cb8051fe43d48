#include "backend/cpu/latent_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/expert_ops.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/weights.h"
#include "cpu/rms_norm.h"

namespace blend::cpu {
namespace {

// Floats that heads' products are put apart in at once, unless one head has more.
constexpr size_t kMostFloats = size_t{4} << 20;

}  // namespace

Result<std::unique_ptr<Weight>> CpuLatentOps::load(std::span<const TensorView> heads,
                                                   WeightForm form) {
  std::vector<std::unique_ptr<CpuMatrix>> matrices;
  for (const TensorView& head : heads) {
    const TensorView* const parts[] = {&head};
    BLEND_ASSIGN(std::unique_ptr<CpuMatrix> matrix, load_matrix_(parts, form));
    matrices.push_back(std::move(matrix));
  }
  return std::unique_ptr<Weight>(new CpuExperts(std::move(matrices)));
}

Status CpuLatentOps::norm(Tensor rows, const Weight& weight, float eps) {
  const auto& w = static_cast<const CpuVector&>(weight);
  const auto cols = static_cast<size_t>(rows.cols), n = static_cast<size_t>(w.size());
  if (n > cols) {
    return make_error(BLEND_E_INTERNAL, "norm: %zu of %zu elements", n, cols);
  }
  auto* const data = static_cast<float*>(rows.data);
  pool_.parallel_for(static_cast<size_t>(rows.rows), row_grain(n),
                     [&](size_t i, size_t end, uint32_t) {
                       for (; i < end; ++i) {
                         float* const c = data + (i + 1) * cols - n;
                         kernels::rms_norm(c, w.data(), eps, n, c);
                       }
                     });
  return Status::ok();
}

Status CpuLatentOps::multiply(const Weight& heads, size_t rows, bool steps, Part from, Part to) {
  const auto& matrices = static_cast<const CpuExperts&>(heads);
  const size_t n_heads = matrices.size(), of_head = rows * (from.n + to.n);
  if (n_heads == 0 || rows == 0) return Status::ok();
  const CpuMatrix& one = matrices.matrix(0);
  if (static_cast<size_t>(one.in()) != from.n || static_cast<size_t>(one.out()) != to.n) {
    return make_error(BLEND_E_INTERNAL, "heads of [%lld, %lld] for %zu and %zu elements",
                      static_cast<long long>(one.out()), static_cast<long long>(one.in()), from.n,
                      to.n);
  }
  const size_t step = std::clamp<size_t>(kMostFloats / of_head, 1, n_heads);
  BLEND_ASSIGN(auto scratch, scratch_.take(step * of_head * sizeof(float)));
  auto* const in = reinterpret_cast<float*>(scratch.data());  // [step][rows][from.n]
  float* const out = in + step * rows * from.n;               // [step][rows][to.n]
  std::vector<Gemm::Product> products;
  for (size_t first = 0; first < n_heads; first += step) {
    const size_t n = std::min(step, n_heads - first);
    pool_.parallel_for(rows * n, row_grain(from.n), [&](size_t i, size_t end, uint32_t) {
      for (; i < end; ++i) {
        const size_t row = i / n, head = i % n;
        const float* const at = from.data + (row * n_heads + first + head) * from.dim + from.first;
        std::memcpy(in + (head * rows + row) * from.n, at, from.n * sizeof(float));
      }
    });
    products.clear();
    for (size_t head = 0; head < n; ++head) {
      products.push_back({&matrices.matrix(static_cast<uint32_t>(first + head)),
                          in + head * rows * from.n, static_cast<int64_t>(rows),
                          out + head * rows * to.n, steps});
    }
    BLEND_RETURN_IF_ERROR(gemm_.run_each(products));
    pool_.parallel_for(rows * n, row_grain(to.n), [&](size_t i, size_t end, uint32_t) {
      for (; i < end; ++i) {
        const size_t row = i / n, head = i % n;
        float* const at = to.data + (row * n_heads + first + head) * to.dim + to.first;
        std::memcpy(at, out + (head * rows + row) * to.n, to.n * sizeof(float));
      }
    });
  }
  return Status::ok();
}

Status CpuLatentOps::ask(const Latent& latent, const Weight& keys, Tensor heads, Tensor q) {
  const auto rows = static_cast<size_t>(q.rows),
             n_heads = static_cast<size_t>(q.cols / latent.row());
  const auto* const from = static_cast<const float*>(heads.data);
  auto* const to = static_cast<float*>(q.data);
  pool_.parallel_for(rows * n_heads, row_grain(latent.rope), [&](size_t i, size_t end, uint32_t) {
    for (; i < end; ++i) {
      std::memcpy(to + i * latent.row(), from + i * latent.q_dim() + latent.nope,
                  latent.rope * sizeof(float));
    }
  });
  return multiply(keys, rows, heads.steps,
                  {static_cast<float*>(heads.data), latent.q_dim(), 0, latent.nope},
                  {to, latent.row(), latent.rope, latent.rank});
}

Status CpuLatentOps::values(const Latent& latent, const Weight& values, Tensor mean, Tensor out) {
  return multiply(values, static_cast<size_t>(mean.rows), mean.steps,
                  {static_cast<float*>(mean.data), latent.row(), latent.rope, latent.rank},
                  {static_cast<float*>(out.data), latent.value, 0, latent.value});
}

}  // namespace blend::cpu
