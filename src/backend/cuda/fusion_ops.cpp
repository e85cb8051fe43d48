// Deviation, the choice of rows and the drift correction.
#include "backend/cuda/fusion_ops.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "backend/cuda/plain_rows.h"
#include "backend/drift_share.h"
#include "cuda/selection.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

Status check_runs(const char* op, std::span<const StoredRun> runs, const Tensor& kv) {
  for (const StoredRun& run : runs) {
    if (static_cast<int64_t>(run.first) + run.n_rows > kv.rows) {
      return make_error(BLEND_E_INTERNAL, "%s: rows %u..%u of %lld", op, run.first,
                        run.first + run.n_rows, static_cast<long long>(kv.rows));
    }
  }
  return Status::ok();
}

}  // namespace

Status CudaFusionOps::deviation(Tensor kv, std::span<const StoredRun> runs,
                                const DeviationRule& rule, float* out) {
  BLEND_RETURN_IF_ERROR(check_runs("deviation", runs, kv));
  if (runs.empty()) return Status::ok();
  const auto scope = core_.enter();
  const size_t kv_dim = static_cast<size_t>(kv.cols) / 2, rows = static_cast<size_t>(kv.rows);
  const k::DeviationTerms terms{rule.metric != DeviationMetric::v,
                                rule.metric != DeviationMetric::k, rule.norm == DeviationNorm::l2,
                                rule.relative};
  BLEND_ASSIGN(const Memory sums, core_.device().allocate(rows * sizeof(float)));
  {
    BLEND_ASSIGN(const Stager::Rows staged, core_.stager().stage(runs, kv_dim));
    for (size_t i = 0; i < runs.size(); ++i) {
      BLEND_ASSIGN(const PlainRows plain, plain_rows(core_, staged, i, runs[i], kv_dim));
      const k::StoredRows stored{plain.k, plain.v, runs[i].dtype, runs[i].n_rows, runs[i].first};
      k::deviation(static_cast<const float*>(kv.data), kv_dim, stored, terms, sums.as<float>(),
                   core_.stream());
    }
    BLEND_RETURN_IF_ERROR(check_launch("deviation"));
  }
  std::vector<float> all(rows);
  BLEND_RETURN_IF_ERROR(core_.fetch(all.data(), sums.as<void>(), rows * sizeof(float)));
  for (const StoredRun& run : runs) {
    std::copy_n(all.begin() + run.first, run.n_rows, out + run.first);
  }
  return Status::ok();
}

Status CudaFusionOps::drift_inputs(Tensor kv, std::span<const StoredRun> runs, DriftInputs inputs,
                                   Tensor out) {
  const size_t kv_dim = static_cast<size_t>(kv.cols) / 2, n_in = inputs.size(kv_dim);
  if (out.rows != kv.rows || static_cast<size_t>(out.cols) != n_in) {
    return make_error(BLEND_E_INTERNAL, "drift_inputs: %lld columns for %zu inputs",
                      static_cast<long long>(out.cols), n_in);
  }
  BLEND_RETURN_IF_ERROR(check_runs("drift_inputs", runs, kv));
  if (runs.empty()) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Stager::Rows staged, core_.stager().stage(runs, kv_dim));
  for (size_t i = 0; i < runs.size(); ++i) {
    BLEND_ASSIGN(const PlainRows plain, plain_rows(core_, staged, i, runs[i], kv_dim));
    const k::StoredRows stored{plain.k, plain.v, runs[i].dtype, runs[i].n_rows, runs[i].first};
    k::drift_inputs(static_cast<const float*>(kv.data), kv_dim, stored, inputs.fresh,
                    inputs.constant, static_cast<float*>(out.data), core_.stream());
  }
  return check_launch("drift_inputs");
}

Status CudaFusionOps::stored_inputs(std::span<const StoredRun> runs, const StoredFeatures* features,
                                    Tensor out) {
  constexpr size_t kScales = StoredFeatures::kScales, kCount = StoredFeatures::kCount;
  const auto n_in = static_cast<size_t>(out.cols), kv_dim = (n_in - kCount) / (2 * kScales);
  if (n_in != DriftInputs::of_stored().size(kv_dim)) {
    return make_error(BLEND_E_INTERNAL, "stored_inputs: %zu columns", n_in);
  }
  BLEND_RETURN_IF_ERROR(check_runs("stored_inputs", runs, out));
  if (runs.empty()) return Status::ok();
  const auto scope = core_.enter();
  static_assert(sizeof(StoredFeatures) == kCount * sizeof(float));
  BLEND_ASSIGN(const Memory values, core_.stager().upload(features->values.data(),
                                                          static_cast<size_t>(out.rows) * kCount));
  BLEND_ASSIGN(const Stager::Rows staged, core_.stager().stage(runs, kv_dim));
  for (size_t i = 0; i < runs.size(); ++i) {
    BLEND_ASSIGN(const PlainRows plain, plain_rows(core_, staged, i, runs[i], kv_dim));
    const k::StoredRows stored{plain.k, plain.v, runs[i].dtype, runs[i].n_rows, runs[i].first};
    k::stored_inputs(kv_dim, stored, values.as<float>(), kCount, kScales,
                     static_cast<float*>(out.data), core_.stream());
  }
  return check_launch("stored_inputs");
}

Status CudaFusionOps::drift_share(Tensor predicted, Tensor drift, DriftShare* share) {
  if (predicted.rows != drift.rows || predicted.cols != drift.cols) {
    return make_error(BLEND_E_INTERNAL, "drift_share: %lld rows for %lld",
                      static_cast<long long>(predicted.rows), static_cast<long long>(drift.rows));
  }
  const auto rows = static_cast<size_t>(predicted.rows);
  std::vector<k::DriftSums> sums(2 * rows);
  if (rows > 0) {
    const auto scope = core_.enter();
    const size_t bytes = sums.size() * sizeof sums[0];
    BLEND_ASSIGN(const Memory on_device, core_.device().allocate(bytes));
    k::drift_sums(static_cast<const float*>(predicted.data), static_cast<const float*>(drift.data),
                  static_cast<size_t>(predicted.cols) / 2, rows, on_device.as<k::DriftSums>(),
                  core_.stream());
    BLEND_RETURN_IF_ERROR(check_launch("drift_share"));
    BLEND_RETURN_IF_ERROR(core_.fetch(sums.data(), on_device.as<void>(), bytes));
  }
  *share = share_of(sums.data(), rows);
  return Status::ok();
}

Status CudaFusionOps::scale_kv(Tensor kv, DriftShare share) {
  const auto scope = core_.enter();
  k::scale_kv(static_cast<float*>(kv.data), static_cast<size_t>(kv.cols) / 2,
              static_cast<size_t>(kv.rows), share.k, share.v, core_.stream());
  return check_launch("scale_kv");
}

Status CudaFusionOps::top_k(std::span<const float> scores, size_t count, uint32_t* out) {
  if (count > scores.size() || scores.size() > std::numeric_limits<int32_t>::max()) {
    return make_error(BLEND_E_INTERNAL, "top_k: %zu of %zu scores", count, scores.size());
  }
  if (count == 0) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Memory values, core_.stager().upload(scores.data(), scores.size()));
  BLEND_ASSIGN(const Memory chosen, core_.device().allocate(count * sizeof(uint32_t)));
  k::top_k(values.as<float>(), static_cast<uint32_t>(scores.size()), static_cast<uint32_t>(count),
           chosen.as<uint32_t>(), core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("top_k"));
  return core_.fetch(out, chosen.as<void>(), count * sizeof(uint32_t));
}

}  // namespace blend::cuda
