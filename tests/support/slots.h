// Lists of consecutive slots of a KV cache.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace blend::test {

inline std::vector<uint32_t> slots_from(uint32_t first, size_t n) {
  std::vector<uint32_t> slots(n);
  std::iota(slots.begin(), slots.end(), first);
  return slots;
}

}  // namespace blend::test
