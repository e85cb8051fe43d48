#include "store/codec/row_shifts.h"

#include <algorithm>
#include <cmath>

namespace blend {
namespace {

// Attention of later questions differs somewhat from that of the chunk's own rows.
constexpr double kTrust = 0.8;
constexpr double kLeast = 1e-6;
constexpr double kMostShift = 3;

}  // namespace

std::vector<uint8_t> row_shifts(std::span<const RowImpact> impact) {
  double mean = 0;
  for (const RowImpact& row : impact) mean += std::log2(row.inside + kLeast);
  mean /= static_cast<double>(std::max<size_t>(1, impact.size()));
  std::vector<uint8_t> shifts;
  shifts.reserve(impact.size());
  for (const RowImpact& row : impact) {
    const double octaves = std::nearbyint(kTrust * (mean - std::log2(row.inside + kLeast)));
    shifts.push_back(static_cast<uint8_t>(std::clamp(kUsualShift + octaves, 0.0, kMostShift)));
  }
  return shifts;
}

}  // namespace blend
