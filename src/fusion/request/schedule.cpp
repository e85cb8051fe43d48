#include "fusion/request/schedule.h"

#include <algorithm>

namespace blend {
namespace {

// Maximum distance of a falling schedule's first ratio from the mean, relative to the mean.
constexpr double kFall = 0.5;

// Number of layers for which the choice of check i holds. The last layer does not count: after it
// only the prompt's last row is needed.
uint32_t width(std::span<const CheckLayer> schedule, size_t i, uint32_t n_layers) {
  const uint32_t end = i + 1 < schedule.size() ? schedule[i + 1].layer : n_layers - 1;
  return end > schedule[i].layer ? end - schedule[i].layer : 0;
}

double weighted_mean(std::span<const CheckLayer> schedule, uint32_t n_layers) {
  double sum = 0, layers = 0;
  for (size_t i = 0; i < schedule.size(); ++i) {
    const uint32_t w = width(schedule, i, n_layers);
    sum += schedule[i].ratio * w;
    layers += w;
  }
  return layers > 0 ? sum / layers : schedule.front().ratio;
}

}  // namespace

Status check_schedule(std::span<const CheckLayer> schedule, uint32_t first_layer,
                      uint32_t n_layers) {
  for (size_t i = 0; i < schedule.size(); ++i) {
    const CheckLayer& at = schedule[i];
    if (!(at.ratio >= 0.0 && at.ratio <= 1.0)) {  // NaN fails too
      return make_error(BLEND_E_INVALID_ARGUMENT, "check_layers %zu: ratio %g must lie in [0, 1]",
                        i, at.ratio);
    }
    if (at.layer < first_layer || at.layer >= n_layers) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "check_layers %zu: layer %u must lie in %u .. %u for this model and policy",
                        i, at.layer, first_layer, n_layers - 1);
    }
    if (i == 0) continue;
    if (at.layer <= schedule[i - 1].layer) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "check_layers %zu: layer %u does not come after layer %u; give them in "
                        "rising order, each once",
                        i, at.layer, schedule[i - 1].layer);
    }
    if (at.ratio > schedule[i - 1].ratio) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "check_layers %zu: ratio %g is more than the %g before it; rows that were "
                        "left out cannot come back",
                        i, at.ratio, schedule[i - 1].ratio);
    }
  }
  return Status::ok();
}

double mean_ratio(std::span<const CheckLayer> schedule, uint32_t n_layers) {
  return weighted_mean(schedule, n_layers);
}

Schedule falling_schedule(double ratio, uint32_t first_layer, uint32_t n_checks,
                          uint32_t n_layers) {
  const uint32_t behind = first_layer + 1 < n_layers ? n_layers - 1 - first_layer : 1;
  const uint32_t n = std::clamp(n_checks, 1u, behind);
  // First the shape: from +1 to -1, with its mean over the layers subtracted.
  Schedule schedule;
  for (uint32_t i = 0; i < n; ++i) {
    const auto layer = first_layer + static_cast<uint32_t>(uint64_t{i} * behind / n);
    schedule.push_back({layer, n > 1 ? 1.0 - 2.0 * i / (n - 1) : 0.0});
  }
  const double mean = weighted_mean(schedule, n_layers);
  double fall = kFall;
  if (ratio > 0 && mean < 1) fall = std::min(fall, (1.0 / ratio - 1.0) / (1.0 - mean));
  for (CheckLayer& at : schedule) {
    at.ratio = std::clamp(ratio * (1.0 + fall * (at.ratio - mean)), 0.0, 1.0);
  }
  return schedule;
}

const CheckLayer* first_measured(const Schedule& schedule) {
  for (const CheckLayer& check : schedule) {
    if (check.layer > 0) return &check;
  }
  return schedule.empty() ? nullptr : &schedule.front();
}

}  // namespace blend
