// Sealed records (FORMAT.md): they end with the checksum of all their bytes before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/wire.h"

namespace blend {

inline constexpr size_t kSealBytes = 8;

inline std::string seal(ByteWriter out) {
  out.put<uint64_t>(checksum64(out.view().data(), out.view().size()));
  return out.take();
}

// Whether the record is whole.
inline bool sealed(std::span<const std::byte> record) {
  if (record.size() < kSealBytes) return false;
  ByteReader tail(record.last(kSealBytes));
  return tail.get<uint64_t>() == checksum64(record.data(), record.size() - kSealBytes);
}

}  // namespace blend
