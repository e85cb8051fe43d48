// Records that end with a checksum of all their bytes before (FORMAT.md: sealed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/wire.h"

namespace blend {

inline constexpr size_t kTrailerBytes = 8;

inline std::string with_checksum(ByteWriter out) {
  out.put<uint64_t>(checksum64(out.view().data(), out.view().size()));
  return out.take();
}

// Whether the record is whole and unchanged.
inline bool checksum_holds(std::span<const std::byte> record) {
  if (record.size() < kTrailerBytes) return false;
  ByteReader tail(record.last(kTrailerBytes));
  return tail.get<uint64_t>() == checksum64(record.data(), record.size() - kTrailerBytes);
}

}  // namespace blend
