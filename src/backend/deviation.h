// How the deviation of a row is computed.
#pragma once

#include <cstdint>

namespace blend {

enum class DeviationMetric : uint32_t { v = 1, k = 2, kv = 3 };  // = BLEND_METRIC_*
enum class DeviationNorm : uint32_t { l2, l1 };                  // = BLEND_NORM_*

// l2 sums squares (the paper's), l1 magnitudes.
struct DeviationRule {
  DeviationMetric metric = DeviationMetric::v;
  DeviationNorm norm = DeviationNorm::l2;
  bool relative = false;  // divided by the same sum over the stored row alone
};

}  // namespace blend
