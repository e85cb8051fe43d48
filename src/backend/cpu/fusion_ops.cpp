// Deviation, the choice of rows and the drift correction.
#include "backend/cpu/fusion_ops.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/grain.h"
#include "backend/drift_share.h"
#include "cpu/convert.h"
#include "cpu/deviation.h"
#include "cpu/drift.h"
#include "cpu/top_k.h"

namespace blend::cpu {

Status CpuFusionOps::deviation(Tensor kv, std::span<const StoredRun> runs,
                               const DeviationRule& rule, float* out) {
  const size_t kv_dim = static_cast<size_t>(kv.cols) / 2;
  const bool with_k = rule.metric != DeviationMetric::v, with_v = rule.metric != DeviationMetric::k;
  const kernels::Norm norm =
      rule.norm == DeviationNorm::l2 ? kernels::Norm::squares : kernels::Norm::magnitudes;
  const float* const data = static_cast<const float*>(kv.data);
  for (const StoredRun& run : runs) {
    if (static_cast<int64_t>(run.first) + run.n_rows > kv.rows) {
      return make_error(BLEND_E_INTERNAL, "deviation: rows %u..%u of %lld", run.first,
                        run.first + run.n_rows, static_cast<long long>(kv.rows));
    }
    const size_t row_bytes = kv_dim * static_cast<size_t>(dtype_size(run.dtype));
    pool_.parallel_for(run.n_rows, row_grain(2 * kv_dim), [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) {
        const float* fresh = data + (run.first + i) * 2 * kv_dim;
        const std::byte *k = run.k + i * row_bytes, *v = run.v + i * row_bytes;
        float sum = 0, size = 0;
        if (with_k) sum += kernels::row_distance(fresh, k, run.dtype, kv_dim, norm);
        if (with_v) sum += kernels::row_distance(fresh + kv_dim, v, run.dtype, kv_dim, norm);
        if (rule.relative) {
          if (with_k) size += kernels::row_size(k, run.dtype, kv_dim, norm);
          if (with_v) size += kernels::row_size(v, run.dtype, kv_dim, norm);
          // Relative to a stored row of zeros, deviation is unbounded, unless the fresh is zero
          // too.
          sum /= std::max(size, std::numeric_limits<float>::min());
        }
        out[run.first + i] = sum;
      }
    });
  }
  return Status::ok();
}

Status CpuFusionOps::drift_inputs(Tensor kv, std::span<const StoredRun> runs, DriftInputs inputs,
                                  Tensor out) {
  const size_t kv_dim = static_cast<size_t>(kv.cols) / 2, n_in = inputs.size(kv_dim);
  if (out.rows != kv.rows || static_cast<size_t>(out.cols) != n_in) {
    return make_error(BLEND_E_INTERNAL, "drift_inputs: %lld columns for %zu inputs",
                      static_cast<long long>(out.cols), n_in);
  }
  const float* const data = static_cast<const float*>(kv.data);
  float* const result = static_cast<float*>(out.data);
  for (const StoredRun& run : runs) {
    if (static_cast<int64_t>(run.first) + run.n_rows > kv.rows) {
      return make_error(BLEND_E_INTERNAL, "drift_inputs: rows %u..%u of %lld", run.first,
                        run.first + run.n_rows, static_cast<long long>(kv.rows));
    }
    const size_t row_bytes = kv_dim * static_cast<size_t>(dtype_size(run.dtype));
    pool_.parallel_for(run.n_rows, row_grain(n_in), [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) {
        const float* const fresh = data + (run.first + i) * 2 * kv_dim;
        float* at = result + (run.first + i) * n_in;
        kernels::difference(fresh, run.k + i * row_bytes, run.dtype, kv_dim, at);
        kernels::difference(fresh + kv_dim, run.v + i * row_bytes, run.dtype, kv_dim, at + kv_dim);
        at += 2 * kv_dim;
        if (inputs.fresh) at = std::copy_n(fresh, 2 * kv_dim, at);
        if (inputs.constant) *at = 1;
      }
    });
  }
  return Status::ok();
}

Status CpuFusionOps::stored_inputs(std::span<const StoredRun> runs, const StoredFeatures* features,
                                   Tensor out) {
  constexpr size_t kScales = StoredFeatures::kScales, kCount = StoredFeatures::kCount;
  const auto n_in = static_cast<size_t>(out.cols), kv_dim = (n_in - kCount) / (2 * kScales);
  if (n_in != DriftInputs::of_stored().size(kv_dim)) {
    return make_error(BLEND_E_INTERNAL, "stored_inputs: %zu columns", n_in);
  }
  auto* const result = static_cast<float*>(out.data);
  for (const StoredRun& run : runs) {
    if (static_cast<int64_t>(run.first) + run.n_rows > out.rows) {
      return make_error(BLEND_E_INTERNAL, "stored_inputs: rows %u..%u of %lld", run.first,
                        run.first + run.n_rows, static_cast<long long>(out.rows));
    }
    const size_t row_bytes = kv_dim * static_cast<size_t>(dtype_size(run.dtype));
    pool_.parallel_for(run.n_rows, row_grain(n_in), [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) {
        const StoredFeatures& row = features[run.first + i];
        // The last copy holds the plain row until the others are made from it.
        float* const first = result + (run.first + i) * n_in;
        float* const last = first + (kScales - 1) * 2 * kv_dim;
        kernels::decode(run.k + i * row_bytes, run.dtype, kv_dim, last);
        kernels::decode(run.v + i * row_bytes, run.dtype, kv_dim, last + kv_dim);
        for (size_t s = 0; s < kScales; ++s) {
          float* const at = first + s * 2 * kv_dim;
          for (size_t e = 0; e < 2 * kv_dim; ++e) at[e] = row.values[s] * last[e];
        }
        std::copy(row.values.begin(), row.values.end(), last + 2 * kv_dim);
      }
    });
  }
  return Status::ok();
}

Status CpuFusionOps::drift_share(Tensor predicted, Tensor drift, DriftShare* share) {
  if (predicted.rows != drift.rows || predicted.cols != drift.cols) {
    return make_error(BLEND_E_INTERNAL, "drift_share: %lld rows for %lld",
                      static_cast<long long>(predicted.rows), static_cast<long long>(drift.rows));
  }
  const size_t rows = static_cast<size_t>(predicted.rows);
  const size_t kv_dim = static_cast<size_t>(predicted.cols) / 2;
  const auto* const y = static_cast<const float*>(predicted.data);
  const auto* const d = static_cast<const float*>(drift.data);
  BLEND_ASSIGN(auto scratch, scratch_.take(2 * rows * sizeof(kernels::DriftSums)));
  auto* const sums = reinterpret_cast<kernels::DriftSums*>(scratch.data());
  pool_.parallel_for(2 * rows, row_grain(kv_dim), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      sums[i] = kernels::drift_sums(y + i * kv_dim, d + i * kv_dim, kv_dim);
    }
  });
  *share = share_of(sums, rows);
  return Status::ok();
}

Status CpuFusionOps::scale_kv(Tensor kv, DriftShare share) {
  const size_t kv_dim = static_cast<size_t>(kv.cols) / 2;
  auto* const data = static_cast<float*>(kv.data);
  const auto halves = static_cast<size_t>(kv.rows) * 2;
  pool_.parallel_for(halves, row_grain(kv_dim), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      const float factor = i % 2 == 0 ? share.k : share.v;
      for (size_t e = i * kv_dim; e < (i + 1) * kv_dim; ++e) data[e] *= factor;
    }
  });
  return Status::ok();
}

Status CpuFusionOps::top_k(std::span<const float> scores, size_t k, uint32_t* out) {
  if (k > scores.size() || scores.size() > std::numeric_limits<uint32_t>::max()) {
    return make_error(BLEND_E_INTERNAL, "top_k: %zu of %zu scores", k, scores.size());
  }
  if (k == 0) return Status::ok();
  BLEND_ASSIGN(auto scratch, scratch_.take(scores.size() * sizeof(uint64_t)));
  kernels::top_k(scores.data(), scores.size(), k, reinterpret_cast<uint64_t*>(scratch.data()), out);
  return Status::ok();
}

}  // namespace blend::cpu
