// TermList: which tokens a chunk has and how often each, in about two bytes a distinct token.
//
// The distinct token ids ascend, read as unsigned numbers. Each is a variable-length number: twice
// the distance from the id before it, plus 1 if the token occurs more than once; then its count
// follows. Most tokens of a chunk occur once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/threads/guarded.h"

namespace blend {

// Move-only. Constant after it was made, so that threads may share it.
class TermList {
 public:
  static constexpr size_t kMaxTokens = size_t{1} << 28;  // so that bytes() fits 32 bits

  TermList() = default;
  // Any ids, negative ones included; at most kMaxTokens of them. bad_alloc without memory.
  explicit TermList(std::span<const int32_t> tokens);

  uint32_t size() const { return n_terms_; }  // distinct tokens
  uint32_t bytes() const { return n_bytes_; }

  // visit(token, count) for every distinct token, ascending as uint32_t. Not analysed: `visit` runs
  // under the locks of the caller.
  template <typename Visit>
  void for_each(Visit&& visit) const BLEND_NO_THREAD_SAFETY_ANALYSIS {
    const uint8_t* at = bytes_.get();
    uint32_t token = 0;
    for (uint32_t i = 0; i < n_terms_; ++i) {
      const uint64_t distance = read(at);
      token += static_cast<uint32_t>(distance >> 1);
      visit(token, (distance & 1) != 0 ? static_cast<uint32_t>(read(at)) : 1U);
    }
  }

 private:
  // Seven bits a byte, the lowest first; the highest bit says that more follow.
  static uint64_t read(const uint8_t*& at) {
    uint64_t value = *at & 0x7FU;
    for (uint32_t shift = 7; (*at++ & 0x80U) != 0; shift += 7) {
      value |= static_cast<uint64_t>(*at & 0x7FU) << shift;
    }
    return value;
  }

  std::unique_ptr<uint8_t[]> bytes_;
  uint32_t n_terms_ = 0;
  uint32_t n_bytes_ = 0;
};

}  // namespace blend
