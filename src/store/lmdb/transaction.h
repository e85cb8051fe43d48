// Txn: a transaction of an LMDB environment; MapView: the map of its pages in memory.
#pragma once

#include <lmdb.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"

namespace blend {

class LmdbEnv;

inline MDB_val to_val(std::span<const std::byte> s) {
  return {s.size(), const_cast<std::byte*>(s.data())};
}
inline std::span<const std::byte> to_span(const MDB_val& v) {
  return {static_cast<const std::byte*>(v.mv_data), v.mv_size};
}

// The map of the data file as one transaction may read it. A pointer from LMDB is followed
// only if it is inside: a damaged file may have sent it anywhere.
struct MapView {
  const std::byte* base = nullptr;
  uint64_t bytes = 0;  // of the file
  uint32_t page_size = 0;

  bool contains(std::span<const std::byte> s) const {
    const auto at = reinterpret_cast<uintptr_t>(s.data());
    const auto first = reinterpret_cast<uintptr_t>(base);
    return at >= first && at - first <= bytes && s.size() <= bytes - (at - first);
  }
  // Whether the header before an overflow value names the value's pages: LMDB frees those that
  // the header names. True for values that lie in a tree page.
  bool header_is_sound(std::span<const std::byte> value) const;
};

// A transaction; ends (aborts) with the object, except in a forked child, which must not touch it.
// Used by one thread at a time; a read transaction may move between threads.
class Txn {
 public:
  Txn() = default;
  Txn(std::shared_ptr<LmdbEnv> env, MDB_txn* txn) : env_(std::move(env)), txn_(txn) {}
  Txn(Txn&& other) noexcept
      : env_(std::move(other.env_)), txn_(std::exchange(other.txn_, nullptr)) {}
  Txn& operator=(Txn&&) = delete;
  ~Txn();

  MDB_txn* get() const { return txn_; }
  LmdbEnv& env() const { return *env_; }
  // Returns LMDB's code, for callers that act on some of them.
  int commit();
  // CORRUPT if the data file is shorter than this transaction needs. In a write transaction: call
  // it before the first change.
  Result<MapView> map_view() const;

 private:
  std::shared_ptr<LmdbEnv> env_;
  MDB_txn* txn_ = nullptr;
};

}  // namespace blend
