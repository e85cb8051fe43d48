#include "corpus/term_list.h"

#include <algorithm>
#include <vector>

namespace blend {
namespace {

void append(std::vector<uint8_t>& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<uint8_t>(value | 0x80));
  bytes.push_back(static_cast<uint8_t>(value));
}

}  // namespace

TermList::TermList(std::span<const int32_t> tokens) {
  std::vector<uint32_t> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<uint8_t> bytes;
  bytes.reserve(2 * sorted.size());
  uint32_t before = 0;
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[i]) ++end;
    const uint64_t count = end - i;
    append(bytes, static_cast<uint64_t>(sorted[i] - before) << 1 | (count > 1 ? 1 : 0));
    if (count > 1) append(bytes, count);
    before = sorted[i];
    ++n_terms_;
    i = end;
  }
  n_bytes_ = static_cast<uint32_t>(bytes.size());
  bytes_.reset(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), bytes_.get());
}

}  // namespace blend
