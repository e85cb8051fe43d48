#include "calibrate/drift_fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace blend {
namespace {

constexpr size_t kBlock = 64;  // rows added at once
// Used where there is only one prompt to fit on, so that none is left to choose a ridge with.
constexpr double kRidgeOfOnePrompt = 1;

bool fits_f16(std::span<const RidgeMap> maps) {
  constexpr double kLargest = 65504;
  for (const RidgeMap& map : maps) {
    for (const std::vector<double>& matrix : map.matrices) {
      for (const double e : matrix) {
        if (!(std::abs(e) <= kLargest)) return false;
      }
    }
  }
  return true;
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

// Puts the solved layers into `maps`.
void put_maps(std::span<const RidgeMap> solved, DriftMaps& maps) {
  maps.dtype = fits_f16(solved) ? DType::f16 : DType::f32;
  maps.data.reserve(maps.n_maps * maps.layer_bytes());
  for (const RidgeMap& map : solved) {
    maps.explained_k.push_back(static_cast<float>(map.explained[0]));
    maps.explained_v.push_back(static_cast<float>(map.explained[1]));
    for (const std::vector<double>& matrix : map.matrices) append(matrix, maps.dtype, maps.data);
  }
}

Status no_rows() {
  return {BLEND_E_INVALID_ARGUMENT,
          "no reused row to fit the drift correction on: give prompts of two chunks or more"};
}

bool has_rows(const RidgeSums& sums) {
  return std::any_of(sums.gram.begin(), sums.gram.end(), [](double e) { return e != 0; });
}

// The ridge itself, or the one that cross-validation chooses.
Result<double> ridge_of(double ridge, ThreadPool& pool, std::span<const RidgeSums> halves,
                        bool constant, const Watch& watch) {
  if (ridge >= 0) return ridge;
  if (!has_rows(halves[0]) || !has_rows(halves[1])) return kRidgeOfOnePrompt;
  return choose_ridge(pool, halves, constant, watch);
}

void put_drift(const float* fresh, const float* stored, size_t n, double* y) {
  for (size_t i = 0; i < n; ++i) {
    y[i] = static_cast<double>(fresh[i]) - static_cast<double>(stored[i]);
  }
}

}  // namespace

// ---- After a check layer

DriftFit::DriftFit(ThreadPool& pool, DriftInputs inputs, uint32_t kv_dim, uint32_t check_layer,
                   uint32_t n_layers)
    : pool_(pool),
      inputs_(inputs),
      kv_dim_(kv_dim),
      first_layer_(check_layer + 1),
      n_maps_(n_layers - check_layer - 1),
      n_in_(inputs.size(kv_dim)),
      n_out_(2 * size_t{kv_dim}),
      halves_{{n_in_, n_out_, n_maps_}, {n_in_, n_out_, n_maps_}},
      x_(kBlock * n_in_),
      y_(n_maps_, std::vector<double>(kBlock * n_out_)) {}

void DriftFit::begin_prompt() {
  flush();
  half_ = 1 - half_;
}

void DriftFit::begin_row(const float* fresh, const float* stored) {
  double* x = &x_[n_waiting_ * n_in_];
  put_drift(fresh, stored, n_out_, x);
  x += n_out_;
  if (inputs_.fresh) x = std::copy_n(fresh, n_out_, x);
  if (inputs_.constant) *x = 1;
}

void DriftFit::add_drift(uint32_t map, const float* fresh, const float* stored) {
  put_drift(fresh, stored, n_out_, &y_[map][n_waiting_ * n_out_]);
}

void DriftFit::end_row() {
  ++n_rows_;
  if (++n_waiting_ == kBlock) flush();
}

void DriftFit::flush() {
  halves_[half_].add(pool_, x_.data(), y_, n_waiting_);
  n_waiting_ = 0;
}

Result<DriftMaps> DriftFit::solve(double ridge, uint32_t rank, const Watch& watch) {
  flush();
  if (n_rows_ == 0) return no_rows();
  DriftMaps maps;
  maps.inputs = inputs_;
  maps.kv_dim = kv_dim_;
  maps.first_layer = first_layer_;
  maps.n_maps = n_maps_;
  maps.rank = rank >= n_out_ ? 0 : rank;
  BLEND_ASSIGN(maps.ridge, ridge_of(ridge, pool_, halves_, inputs_.constant, watch));
  RidgeSums all = halves_[0];
  all += halves_[1];
  BLEND_ASSIGN(const auto solved,
               solve_ridge(pool_, all, inputs_.constant, maps.ridge, maps.rank, watch));
  put_maps(solved, maps);
  return maps;
}

// ---- Stored rows

StoredFit::StoredFit(ThreadPool& pool, uint32_t kv_dim, uint32_t n_layers)
    : pool_(pool),
      kv_dim_(kv_dim),
      n_maps_(n_layers - 1),
      n_in_(DriftInputs::of_stored().size(kv_dim)),
      n_out_(2 * size_t{kv_dim}),
      halves_{{n_maps_, {n_in_, n_out_, 1}}, {1, {n_in_, n_out_, 1}}},
      x_(n_maps_, std::vector<double>(kBlock * n_in_)),
      y_(n_maps_, std::vector<double>(kBlock * n_out_)) {}

void StoredFit::begin_prompt() {
  flush();
  half_ = 1 - half_;
}

void StoredFit::add_layer(uint32_t map, const StoredFeatures& features, const float* fresh,
                          const float* stored) {
  double* x = &x_[map][n_waiting_ * n_in_];
  for (size_t s = 0; s < StoredFeatures::kScales; ++s) {
    for (size_t i = 0; i < n_out_; ++i) {
      *x++ = static_cast<double>(features.values[s]) * static_cast<double>(stored[i]);
    }
  }
  std::copy(features.values.begin(), features.values.end(), x);
  put_drift(fresh, stored, n_out_, &y_[map][n_waiting_ * n_out_]);
}

void StoredFit::end_row() {
  ++n_rows_;
  if (++n_waiting_ == kBlock) flush();
}

void StoredFit::flush() {
  for (uint32_t i = 0; i < n_maps_; ++i) {
    const uint32_t half = i == 0 ? half_ : 0;
    halves_[half][i].add(pool_, x_[i].data(), {&y_[i], 1}, n_waiting_);
  }
  n_waiting_ = 0;
}

Result<DriftMaps> StoredFit::solve(double ridge, uint32_t rank, const Watch& watch) {
  flush();
  if (n_rows_ == 0) return no_rows();
  DriftMaps maps;
  maps.inputs = DriftInputs::of_stored();
  maps.kv_dim = kv_dim_;
  maps.first_layer = 1;
  maps.n_maps = n_maps_;
  maps.rank = rank >= n_out_ ? 0 : rank;
  std::vector<RidgeMap> solved;
  if (n_maps_ > 0) {
    // Any layer will do.
    const RidgeSums first[2] = {halves_[0][0], halves_[1][0]};
    BLEND_ASSIGN(maps.ridge, ridge_of(ridge, pool_, first, false, watch));
    halves_[0][0] += halves_[1][0];
  }
  for (const RidgeSums& all : halves_[0]) {
    BLEND_ASSIGN(auto map, solve_ridge(pool_, all, false, maps.ridge, maps.rank, watch));
    solved.push_back(std::move(map.front()));
  }
  put_maps(solved, maps);
  return maps;
}

}  // namespace blend
