#include "fusion/correct/corrector.h"

#include <algorithm>

#include "fusion/correct/places.h"

namespace blend {

Corrector::Corrector(Backend& backend, CorrectorMaps maps, uint32_t kv_dim, uint32_t capacity,
                     bool guarded)
    : backend_(backend),
      maps_(std::move(maps)),
      n_out_(2 * size_t{kv_dim}),
      guarded_(guarded),
      row_of_slot_(capacity, Correction::kNone) {}

Result<std::unique_ptr<DeviceBuffer>> Corrector::allocate(size_t rows, size_t cols) const {
  return backend_.allocate(rows * cols * static_cast<size_t>(backend_.traits().activation_bytes));
}

void Corrector::leave_out(std::vector<uint32_t> rows, std::vector<StoredFeatures> features) {
  left_ = std::move(rows);
  features_ = std::move(features);
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
  BLEND_ASSIGN(inputs_, allocate(fresh.rows.size(), maps_.check->n_in()));
  const Tensor all = view(*inputs_, fresh.rows.size(), maps_.check->n_in());
  BLEND_RETURN_IF_ERROR(
      backend_.fusion().drift_inputs(fresh.kv, fresh.runs, maps_.check->inputs(), all));
  return backend_.gather(all, places.data(), view(*inputs_, places.size(), maps_.check->n_in()));
}

Status Corrector::keep(const std::vector<uint8_t>& computed) {
  if (maps_.check == nullptr) return Status::ok();
  rows_.clear();
  judges_.clear();
  std::vector<uint32_t> places, judging;
  for (uint32_t i = 0; i < measured_.size(); ++i) {
    const bool is_computed = computed[measured_[i]] != 0;
    (is_computed ? judging : places).push_back(i);
    (is_computed ? judges_ : rows_).push_back(measured_[i]);
  }
  if (!guarded_ || rows_.empty()) judges_.clear();
  if (rows_.empty()) return Status::ok();
  const size_t n = rows_.size() + judges_.size();
  BLEND_ASSIGN(kept_, allocate(n, maps_.check->n_in()));
  const Tensor inputs = view(*inputs_, measured_.size(), maps_.check->n_in());
  const Tensor kept = view(*kept_, n, maps_.check->n_in());
  const auto n_rows = static_cast<int64_t>(rows_.size());
  BLEND_RETURN_IF_ERROR(backend_.gather(inputs, places.data(), kept.slice(0, n_rows)));
  if (judges_.empty()) return Status::ok();
  return backend_.gather(inputs, judging.data(),
                         kept.slice(n_rows, static_cast<int64_t>(judges_.size())));
}

Result<DriftShare> Corrector::judge(Tensor foretold, const FreshRows& fresh,
                                    const std::vector<uint32_t>& places) {
  BLEND_ASSIGN(const auto drift, allocate(fresh.rows.size(), n_out_));
  const Tensor all = view(*drift, fresh.rows.size(), n_out_);
  BLEND_RETURN_IF_ERROR(backend_.fusion().drift_inputs(fresh.kv, fresh.runs, {}, all));
  const Tensor known = view(*drift, places.size(), n_out_);
  BLEND_RETURN_IF_ERROR(backend_.gather(all, places.data(), known));
  DriftShare share;
  BLEND_RETURN_IF_ERROR(backend_.fusion().drift_share(foretold, known, &share));
  return share;
}

Status Corrector::scale(Tensor kv, DriftShare share) {
  if (share.k == 1 && share.v == 1) return Status::ok();
  return backend_.fusion().scale_kv(kv, share);
}

Result<DriftShare> Corrector::correct_measured(uint32_t layer, const FreshRows& fresh) {
  const Drift& maps = *maps_.check;
  const size_t n = rows_.size() + judges_.size();
  const auto n_rows = static_cast<int64_t>(rows_.size());
  std::unique_ptr<DeviceBuffer> low;
  if (maps.rank() > 0) {
    BLEND_ASSIGN(low, allocate(n, maps.rank()));
  }
  const Tensor scratch = low == nullptr ? Tensor{} : view(*low, n, maps.rank());
  const Tensor out = view(*out_, n, n_out_);
  BLEND_RETURN_IF_ERROR(maps.apply(layer, view(*kept_, n, maps.n_in()), scratch, out));
  flops_ += maps.flops() * static_cast<double>(n);
  for (size_t i = 0; i < rows_.size(); ++i) row_of_slot_[rows_[i]] = static_cast<uint32_t>(i);
  DriftShare share;
  if (!judges_.empty()) {
    BLEND_ASSIGN(const std::vector<uint32_t> places,  // of the judges in fresh.kv
                 places_among(judges_, fresh.rows));
    const Tensor foretold = out.slice(n_rows, static_cast<int64_t>(judges_.size()));
    BLEND_ASSIGN(share, judge(foretold, fresh, places));
  }
  BLEND_RETURN_IF_ERROR(scale(out.slice(0, n_rows), share));
  return share;
}

Result<DriftShare> Corrector::correct_left(uint32_t layer, const FreshRows& fresh,
                                           const StoredOf& stored_of, int64_t first) {
  const Drift& maps = *maps_.stored;
  std::vector<uint32_t> places;  // of the judges in fresh.kv
  std::vector<uint32_t> list = left_;
  if (guarded_) {
    for (const StoredRun& run : fresh.runs) {
      for (uint32_t i = run.first; i < run.first + run.n_rows; ++i) {
        places.push_back(i);
        list.push_back(fresh.rows[i]);
      }
    }
    std::inplace_merge(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(left_.size()),
                       list.end());
  }
  std::vector<StoredFeatures> features;
  features.reserve(list.size());
  for (const uint32_t row : list) features.push_back(features_[row]);
  std::unique_ptr<DeviceBuffer> low;
  BLEND_ASSIGN(const auto inputs, allocate(list.size(), maps.n_in()));
  if (maps.rank() > 0) {
    BLEND_ASSIGN(low, allocate(list.size(), maps.rank()));
  }
  const Tensor x = view(*inputs, list.size(), maps.n_in());
  const Tensor scratch = low == nullptr ? Tensor{} : view(*low, list.size(), maps.rank());
  const auto n = static_cast<int64_t>(list.size());
  const Tensor out = view(*out_, static_cast<size_t>(first) + list.size(), n_out_).slice(first, n);
  BLEND_RETURN_IF_ERROR(backend_.fusion().stored_inputs(stored_of(list), features.data(), x));
  BLEND_RETURN_IF_ERROR(maps.apply(layer, x, scratch, out));
  flops_ += maps.flops() * static_cast<double>(list.size());
  std::vector<uint32_t> judging;  // the judges' places in the list
  for (size_t i = 0, at = 0; i < list.size(); ++i) {
    if (at < left_.size() && left_[at] == list[i]) {
      row_of_slot_[list[i]] = static_cast<uint32_t>(static_cast<size_t>(first) + i);
      ++at;
    } else {
      judging.push_back(static_cast<uint32_t>(i));
    }
  }
  DriftShare share;
  if (!judging.empty()) {
    BLEND_ASSIGN(const auto judged, allocate(judging.size(), n_out_));
    const Tensor foretold = view(*judged, judging.size(), n_out_);
    BLEND_RETURN_IF_ERROR(backend_.gather(out, judging.data(), foretold));
    BLEND_ASSIGN(share, judge(foretold, fresh, places));
  }
  BLEND_RETURN_IF_ERROR(scale(out, share));
  return share;
}

Result<const Correction*> Corrector::at(uint32_t layer, const FreshRows& fresh,
                                        const StoredOf& stored_of) {
  share_ = {};
  flops_ = 0;
  const bool measured =
      maps_.check != nullptr && layer > maps_.check->check_layer() && !rows_.empty();
  const bool left = leaves_out(layer);
  if (!measured && !left) return static_cast<const Correction*>(nullptr);
  std::fill(row_of_slot_.begin(), row_of_slot_.end(), Correction::kNone);
  const size_t n_measured = measured ? rows_.size() + judges_.size() : 0;
  const size_t n_left = left ? left_.size() + fresh.rows.size() : 0;
  BLEND_ASSIGN(out_, allocate(n_measured + n_left, n_out_));
  DriftShare of_measured, of_left;
  if (measured) {
    BLEND_ASSIGN(of_measured, correct_measured(layer, fresh));
  }
  if (left) {
    BLEND_ASSIGN(of_left, correct_left(layer, fresh, stored_of, static_cast<int64_t>(n_measured)));
  }
  const float a = measured ? static_cast<float>(rows_.size()) : 0.0f;
  const float b = left ? static_cast<float>(left_.size()) : 0.0f;
  share_ = {(a * of_measured.k + b * of_left.k) / (a + b),
            (a * of_measured.v + b * of_left.v) / (a + b)};
  sum_ += static_cast<double>(share_.k) + static_cast<double>(share_.v);
  ++n_layers_;
  if (share_.k == 0 && share_.v == 0) return static_cast<const Correction*>(nullptr);
  correction_ = {view(*out_, n_measured + n_left, n_out_), row_of_slot_.data()};
  return static_cast<const Correction*>(&correction_);
}

}  // namespace blend
