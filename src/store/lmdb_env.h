// LmdbEnv: the one LMDB environment that a process has of a data file, and its transactions.
//
// LMDB's rules that are kept here: one environment per process, device and inode (a registry; a
// second one would drop the first one's file locks); nothing is touched after fork; the map is only
// enlarged while no transaction of this process is active; readers that died are cleared.
#pragma once

#include <lmdb.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/status.h"

namespace blend {

class LmdbEnv;

// Code and sentence for an LMDB or errno code; the detail is `rc`.
Status lmdb_error(int rc, const std::string& what);

inline MDB_val to_val(std::span<const std::byte> s) {
  return {s.size(), const_cast<std::byte*>(s.data())};
}
inline std::span<const std::byte> to_span(const MDB_val& v) {
  return {static_cast<const std::byte*>(v.mv_data), v.mv_size};
}

// Where the data file is mapped, seen by one transaction. LMDB's own pointers are only followed
// inside it.
struct MapView {
  const std::byte* base = nullptr;
  uint64_t bytes = 0;  // of the file
  uint32_t page_size = 0;

  bool contains(std::span<const std::byte> s) const {
    const auto at = reinterpret_cast<uintptr_t>(s.data());
    const auto first = reinterpret_cast<uintptr_t>(base);
    return at >= first && at - first <= bytes && s.size() <= bytes - (at - first);
  }
  // The header in front of a value that fills pages of its own names its pages; LMDB frees what the
  // header says. True for values that live inside a tree page.
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
  // Gives LMDB's code, for callers that act on some of them.
  int commit();
  // CORRUPT if the data file is shorter than this transaction needs. In a write transaction: call
  // it before the first change.
  Result<MapView> map_view() const;

 private:
  std::shared_ptr<LmdbEnv> env_;
  MDB_txn* txn_ = nullptr;
};

// Thread-safe.
class LmdbEnv : public std::enable_shared_from_this<LmdbEnv> {
 public:
  // Opens the environment in directory `path` or shares the one that this process has. Creates the
  // databases and the format record if `create`. The map gets at least `map_bytes`.
  static Result<std::shared_ptr<LmdbEnv>> acquire(const std::string& path, bool create,
                                                  bool read_only, uint64_t map_bytes);
  ~LmdbEnv();
  LmdbEnv(const LmdbEnv&) = delete;
  LmdbEnv& operator=(const LmdbEnv&) = delete;

  Status check_fork() const;  // FORKED in a child of the process that opened it
  bool forked() const;
  bool writable() const { return writable_; }
  const std::string& path() const { return path_; }
  int data_fd() const;
  uint64_t file_bytes() const;

  Result<Txn> begin_read() { return begin(MDB_RDONLY); }
  // Waits for the writer of this or another process. One per thread.
  Result<Txn> begin_write() { return begin(0); }

  // Enlarges the map to `bytes` when no transaction is active, now or later.
  void want_map(uint64_t bytes);
  // After MDB_MAP_FULL: waits until a pending enlargement is done. False: there was none.
  bool grow_map();

  MDB_dbi chunks() const { return chunks_; }
  MDB_dbi meta() const { return meta_; }
  MDB_dbi info() const { return info_; }
  // The next three are there in stores that were ever opened for writing (evict/use_index.h).
  bool has_use_tables() const { return has_use_tables_; }
  MDB_dbi uses() const { return uses_; }
  MDB_dbi order() const { return order_; }
  MDB_dbi tenants() const { return tenants_; }

  // Runs `fn` on the environment while a read transaction keeps its map.
  Status copy(const std::function<Status(MDB_env*)>& fn);
  // Runs `fn` on the store in `path`, opened without locks: the caller sees to it that nobody else
  // has it open. CORRUPT.
  static Status copy_unlocked(const std::string& path, uint32_t page_size,
                              const std::function<Status(MDB_env*)>& fn);
  // Keeps everybody of this process from opening the data file while it lives. BUSY: it is open.
  static Result<std::shared_ptr<void>> reserve(const std::pair<uint64_t, uint64_t>& identity,
                                               const std::string& path);

  // How the pages of large new values are written (place_value.h): by LMDB's commit, or placed
  // before it. The first ones that are placed are on the heap as well, until a commit has shown
  // that it leaves them alone. Of concern to write transactions only.
  enum class Placing { off, on_trial, on };
  Placing placing() const { return placing_.load(std::memory_order_relaxed); }
  void set_placing(Placing placing) { placing_.store(placing, std::memory_order_relaxed); }
  uint32_t page_size() const { return page_size_; }

  // Clears readers of processes that died: they would keep freed pages from being used again.
  void clear_dead_readers();

 private:
  friend class Txn;
  LmdbEnv() = default;
  Status open(const std::string& path, bool create, bool read_only, uint64_t map_bytes,
              uint32_t page_size);
  static Result<std::shared_ptr<LmdbEnv>> acquire_once(const std::string& path, bool create,
                                                       bool read_only, uint64_t map_bytes);
  Status check_pages();
  Status open_databases(bool create);
  Status open_use_tables(bool create);
  Result<Txn> begin(unsigned flags);
  void leave();
  void apply_wanted_map();  // gate_mutex_ held, active_ == 0

  MDB_env* env_ = nullptr;
  pid_t pid_ = 0;
  bool writable_ = false;
  uint32_t page_size_ = 0;
  std::string path_;
  MDB_dbi chunks_ = 0, meta_ = 0, info_ = 0;
  MDB_dbi uses_ = 0, order_ = 0, tenants_ = 0;
  std::atomic<bool> has_use_tables_{false};
  std::atomic<Placing> placing_{Placing::off};
  std::mutex use_tables_mutex_;  // LMDB opens databases in one transaction at a time

  std::mutex gate_mutex_;
  std::condition_variable gate_;
  uint64_t active_ = 0;      // transactions begun or being begun; gate_mutex_
  uint64_t map_bytes_ = 0;   // gate_mutex_
  uint64_t wanted_map_ = 0;  // gate_mutex_
};

}  // namespace blend
