// The error of rows whose position is outside a cache or a RoPE table.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace blend {

// `at`: a slot of a cache, the position of a row, or the end of a run of them.
inline Status outside(const char* operation, uint64_t at, uint32_t limit) {
  return make_error(BLEND_E_INTERNAL, "%s: position %llu of %u", operation,
                    static_cast<unsigned long long>(at), limit);
}

}  // namespace blend
