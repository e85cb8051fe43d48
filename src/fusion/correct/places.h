// The places of some rows among others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace blend {

// Where each of `rows` stands in `among`; both ascending. INTERNAL: one of them is not there.
inline Result<std::vector<uint32_t>> places_among(std::span<const uint32_t> rows,
                                                  std::span<const uint32_t> among) {
  std::vector<uint32_t> places;
  places.reserve(rows.size());
  size_t at = 0;
  for (const uint32_t row : rows) {
    while (at < among.size() && among[at] < row) ++at;
    if (at == among.size() || among[at] != row) {
      return make_error(BLEND_E_INTERNAL, "row %u is not among the %zu rows that are computed", row,
                        among.size());
    }
    places.push_back(static_cast<uint32_t>(at));
  }
  return places;
}

}  // namespace blend
