#include "fusion/corrector.h"

#include <algorithm>

namespace blend {

Corrector::Corrector(Backend& backend, std::shared_ptr<const Drift> drift, uint32_t kv_dim,
                     uint32_t capacity, bool guarded)
    : backend_(backend),
      drift_(std::move(drift)),
      n_out_(2 * size_t{kv_dim}),
      guarded_(guarded),
      row_of_slot_(capacity, Correction::kNone) {}

Result<std::unique_ptr<DeviceBuffer>> Corrector::allocate(size_t rows, size_t cols) const {
  return backend_.allocate(rows * cols * static_cast<size_t>(backend_.activation_bytes()));
}

Status Corrector::measure(const FreshRows& fresh) {
  std::vector<uint32_t> places;  // of the measured rows in fresh.kv
  measured_.clear();
  for (const StoredRun& run : fresh.runs) {
    for (uint32_t i = run.first; i < run.first + run.n_rows; ++i) {
      places.push_back(i);
      measured_.push_back(fresh.rows[i]);
    }
  }
  if (measured_.empty()) return Status::ok();
  BLEND_ASSIGN(inputs_, allocate(fresh.rows.size(), drift_->n_in()));
  const Tensor all = view(*inputs_, fresh.rows.size(), drift_->n_in());
  BLEND_RETURN_IF_ERROR(backend_.drift_inputs(fresh.kv, fresh.runs, drift_->inputs(), all));
  return backend_.gather(all, places.data(), view(*inputs_, places.size(), drift_->n_in()));
}

Status Corrector::keep(const std::vector<uint8_t>& computed) {
  rows_.clear();
  judges_.clear();
  std::fill(row_of_slot_.begin(), row_of_slot_.end(), Correction::kNone);
  std::vector<uint32_t> places, judging;
  for (uint32_t i = 0; i < measured_.size(); ++i) {
    if (computed[measured_[i]] != 0) {
      judging.push_back(i);
      judges_.push_back(measured_[i]);
      continue;
    }
    row_of_slot_[measured_[i]] = static_cast<uint32_t>(places.size());
    places.push_back(i);
    rows_.push_back(measured_[i]);
  }
  if (!guarded_ || rows_.empty()) judges_.clear();
  if (rows_.empty()) return Status::ok();
  const size_t n = rows_.size() + judges_.size();
  BLEND_ASSIGN(kept_, allocate(n, drift_->n_in()));
  BLEND_ASSIGN(out_, allocate(n, n_out_));
  if (drift_->rank() > 0) {
    BLEND_ASSIGN(low_, allocate(n, drift_->rank()));
  }
  const Tensor inputs = view(*inputs_, measured_.size(), drift_->n_in());
  const Tensor kept = view(*kept_, n, drift_->n_in());
  const auto n_rows = static_cast<int64_t>(rows_.size());
  BLEND_RETURN_IF_ERROR(backend_.gather(inputs, places.data(), kept.slice(0, n_rows)));
  if (judges_.empty()) return Status::ok();
  return backend_.gather(inputs, judging.data(),
                         kept.slice(n_rows, static_cast<int64_t>(judges_.size())));
}

// The drift of the judges at this layer, against what the map made of them.
Status Corrector::judge(Tensor foretold, const FreshRows& fresh) {
  BLEND_ASSIGN(const auto drift, allocate(fresh.rows.size(), n_out_));
  const Tensor all = view(*drift, fresh.rows.size(), n_out_);
  BLEND_RETURN_IF_ERROR(backend_.drift_inputs(fresh.kv, fresh.runs, {}, all));
  std::vector<uint32_t> places;  // of the judges in fresh.kv
  places.reserve(judges_.size());
  for (const uint32_t row : judges_) {
    const auto at = std::lower_bound(fresh.rows.begin(), fresh.rows.end(), row);
    if (at == fresh.rows.end() || *at != row) {
      return make_error(BLEND_E_INTERNAL, "row %u judges the drift correction and is not fresh",
                        row);
    }
    places.push_back(static_cast<uint32_t>(at - fresh.rows.begin()));
  }
  const Tensor known = view(*drift, judges_.size(), n_out_);
  BLEND_RETURN_IF_ERROR(backend_.gather(all, places.data(), known));
  return backend_.drift_share(foretold, known, &share_);
}

Result<const Correction*> Corrector::at(uint32_t layer, const FreshRows& fresh) {
  share_ = {};
  if (rows_.empty()) return static_cast<const Correction*>(nullptr);
  const size_t n = rows_.size() + judges_.size();
  const auto n_rows = static_cast<int64_t>(rows_.size());
  const Tensor low = low_ == nullptr ? Tensor{} : view(*low_, n, drift_->rank());
  const Tensor out = view(*out_, n, n_out_);
  BLEND_RETURN_IF_ERROR(drift_->apply(layer, view(*kept_, n, drift_->n_in()), low, out));
  correction_ = {out.slice(0, n_rows), row_of_slot_.data()};
  if (!judges_.empty()) {
    BLEND_RETURN_IF_ERROR(judge(out.slice(n_rows, static_cast<int64_t>(judges_.size())), fresh));
  }
  sum_ += static_cast<double>(share_.k) + static_cast<double>(share_.v);
  ++n_layers_;
  if (share_.k == 0 && share_.v == 0) return static_cast<const Correction*>(nullptr);
  if (share_.k != 1 || share_.v != 1) {
    BLEND_RETURN_IF_ERROR(backend_.scale_kv(correction_.kv, share_));
  }
  return static_cast<const Correction*>(&correction_);
}

}  // namespace blend
