#include "fusion/corrector.h"

#include <algorithm>

namespace blend {

Corrector::Corrector(Backend& backend, std::shared_ptr<const Drift> drift, uint32_t kv_dim,
                     uint32_t capacity)
    : backend_(backend),
      drift_(std::move(drift)),
      n_out_(2 * size_t{kv_dim}),
      row_of_slot_(capacity, Correction::kNone) {}

Result<std::unique_ptr<DeviceBuffer>> Corrector::allocate(size_t rows, size_t cols) const {
  return backend_.allocate(rows * cols * static_cast<size_t>(backend_.activation_bytes()));
}

Status Corrector::measure(Tensor kv, std::span<const StoredRun> runs,
                          std::span<const uint32_t> active) {
  std::vector<uint32_t> places;  // of the measured rows in kv
  measured_.clear();
  for (const StoredRun& run : runs) {
    for (uint32_t i = run.first; i < run.first + run.n_rows; ++i) {
      places.push_back(i);
      measured_.push_back(active[i]);
    }
  }
  if (measured_.empty()) return Status::ok();
  BLEND_ASSIGN(inputs_, allocate(active.size(), drift_->n_in()));
  const Tensor all = view(*inputs_, active.size(), drift_->n_in());
  BLEND_RETURN_IF_ERROR(backend_.drift_inputs(kv, runs, drift_->inputs(), all));
  return backend_.gather(all, places.data(), view(*inputs_, places.size(), drift_->n_in()));
}

Status Corrector::keep(const std::vector<uint8_t>& computed) {
  rows_.clear();
  std::fill(row_of_slot_.begin(), row_of_slot_.end(), Correction::kNone);
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < measured_.size(); ++i) {
    if (computed[measured_[i]] != 0) continue;
    row_of_slot_[measured_[i]] = static_cast<uint32_t>(places.size());
    places.push_back(i);
    rows_.push_back(measured_[i]);
  }
  if (rows_.empty()) return Status::ok();
  BLEND_ASSIGN(kept_, allocate(rows_.size(), drift_->n_in()));
  BLEND_ASSIGN(out_, allocate(rows_.size(), n_out_));
  if (drift_->rank() > 0) {
    BLEND_ASSIGN(low_, allocate(rows_.size(), drift_->rank()));
  }
  return backend_.gather(view(*inputs_, measured_.size(), drift_->n_in()), places.data(),
                         view(*kept_, rows_.size(), drift_->n_in()));
}

Result<const Correction*> Corrector::at(uint32_t layer) {
  if (rows_.empty()) return static_cast<const Correction*>(nullptr);
  const Tensor low = low_ == nullptr ? Tensor{} : view(*low_, rows_.size(), drift_->rank());
  correction_ = {view(*out_, rows_.size(), n_out_), row_of_slot_.data()};
  BLEND_RETURN_IF_ERROR(
      drift_->apply(layer, view(*kept_, rows_.size(), drift_->n_in()), low, correction_.kv));
  return static_cast<const Correction*>(&correction_);
}

}  // namespace blend
