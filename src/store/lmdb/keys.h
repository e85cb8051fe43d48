// Keys of the store's databases (FORMAT.md) in LMDB's form: they point into the objects they are
// made from.
#pragma once

#include <lmdb.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "base/hash.h"

namespace blend {

// `info`
inline constexpr std::string_view kFormatKey = "format", kCountersKey = "counters",
                                  kTotalsKey = "uses", kTextTotalsKey = "texts";
inline constexpr std::string_view kNoteKey = "note:";  // then the note's name
inline MDB_val name_val(std::string_view name) {
  return {name.size(), const_cast<char*>(name.data())};
}

// `meta`, `uses`
inline MDB_val id_val(const Sha256& id) { return {id.size(), const_cast<uint8_t*>(id.data())}; }

// `chunks`: id, then the piece's number big-endian, so that LMDB keeps a chunk's pieces in order.
struct PieceKey {
  std::array<uint8_t, 36> bytes;

  PieceKey(const Sha256& id, uint32_t piece) {
    std::copy(id.begin(), id.end(), bytes.begin());
    for (size_t i = 0; i < 4; ++i) bytes[32 + i] = static_cast<uint8_t>(piece >> (24 - 8 * i));
  }
  MDB_val val() { return {bytes.size(), bytes.data()}; }
};

}  // namespace blend
