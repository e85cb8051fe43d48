#include "store/chunk/row_impact.h"

#include <bit>

namespace blend {
namespace {

// Whether x is a share of attention, up to rounding.
bool is_mass(float x) { return x >= 0.0f && x <= 1.001f; }

}  // namespace

void put_impact(ByteWriter& out, const std::vector<RowImpact>& impact) {
  for (const RowImpact& row : impact) {
    out.put<uint32_t>(std::bit_cast<uint32_t>(row.outside));
    out.put<uint32_t>(std::bit_cast<uint32_t>(row.inside));
  }
}

bool get_impact(ByteReader& in, uint32_t n_tokens, std::vector<RowImpact>& impact) {
  impact.resize(n_tokens);
  for (RowImpact& row : impact) {
    row.outside = std::bit_cast<float>(in.get<uint32_t>());
    row.inside = std::bit_cast<float>(in.get<uint32_t>());
    if (!is_mass(row.outside) || !is_mass(row.inside)) return false;
  }
  return true;
}

}  // namespace blend
