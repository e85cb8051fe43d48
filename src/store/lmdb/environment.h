// LmdbEnv: the LMDB environment of a data file, shared by all stores of this process that have the
// file open (registry.h).
//
// It keeps LMDB's rules: nothing is touched after fork; the map is only enlarged while no
// transaction of this process is active; readers that died are cleared.
#pragma once

#include <lmdb.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/threads/guarded.h"
#include "base/threads/process.h"
#include "store/lmdb/databases.h"
#include "store/lmdb/directory.h"
#include "store/lmdb/transaction.h"

namespace blend {

// Thread-safe.
class LmdbEnv : public std::enable_shared_from_this<LmdbEnv> {
 public:
  // Opens the environment in directory `path` or shares the one that this process has. `create`:
  // creates missing parts with these modes, databases and format record too; null: nothing.
  // The map gets at least `map_bytes`. BUSY: see the message.
  static Result<std::shared_ptr<LmdbEnv>> acquire(const std::string& path, const StoreModes* create,
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

  // Enlarges the map to `bytes`: now, or as soon as no transaction is active.
  void want_map(uint64_t bytes);
  // After MDB_MAP_FULL: waits until a pending enlargement is done. False: there was none.
  bool grow_map();

  MDB_dbi chunks() const { return databases_.chunks; }
  MDB_dbi meta() const { return databases_.meta; }
  MDB_dbi info() const { return databases_.info; }
  // The next three exist in stores that were ever opened for writing (lru_index.h).
  bool has_use_tables() const { return has_use_tables_; }
  MDB_dbi uses() const { return databases_.uses; }
  MDB_dbi order() const { return databases_.order; }
  MDB_dbi tenants() const { return databases_.tenants; }
  // In stores opened for writing since it exists (text_index.h).
  bool has_texts() const { return has_texts_; }
  MDB_dbi texts() const { return databases_.texts; }

  // Runs `fn` on the environment while a read transaction keeps its map.
  Status copy(const std::function<Status(MDB_env*)>& fn);
  // Runs `fn` on the store in `path`, opened without locks: the caller ensures that nobody else
  // has it open. CORRUPT.
  static Status copy_unlocked(const std::string& path, uint32_t page_size,
                              const std::function<Status(MDB_env*)>& fn);

  // How the pages of large new values are written (direct_page_writer.h). off: by LMDB's commit.
  // on: placed before the commit. on_trial: placed, and filled on the heap too, until a commit has
  // shown that it leaves placed pages alone. For write transactions only.
  enum class Placing { off, on_trial, on };
  Placing placing() const { return placing_.load(std::memory_order_relaxed); }
  void set_placing(Placing placing) { placing_.store(placing, std::memory_order_relaxed); }
  uint32_t page_size() const { return page_size_; }

  // Clears the readers of processes that died: their snapshots keep freed pages from being reused.
  void clear_dead_readers();

 private:
  friend class Txn;
  LmdbEnv() = default;
  // Not analysed: nobody else has the environment yet.
  Status open(const std::string& path, bool create, bool read_only, uint64_t map_bytes,
              uint32_t page_size) BLEND_NO_THREAD_SAFETY_ANALYSIS;
  static Result<std::shared_ptr<LmdbEnv>> acquire_once(const std::string& path,
                                                       const StoreModes* create, bool read_only,
                                                       uint64_t map_bytes);
  Status check_pages();
  Status open_use_tables(bool create);
  Status check_files() const;
  Status check_is_there() const;
  bool has_readers_table() const;
  Result<Txn> begin(unsigned flags);
  void leave();
  // active_ is 0.
  void apply_wanted_map() BLEND_REQUIRES(gate_mutex_);

  MDB_env* env_ = nullptr;
  const ProcessMark process_;
  bool writable_ = false;
  uint32_t page_size_ = 0;
  std::string path_;
  std::string lock_file_;
  Databases databases_;
  std::atomic<bool> has_use_tables_{false};
  std::atomic<bool> has_texts_{false};
  std::atomic<Placing> placing_{Placing::off};
  Mutex use_tables_mutex_;  // held to open them

  Mutex gate_mutex_;
  CondVar gate_;
  uint64_t active_ BLEND_GUARDED_BY(gate_mutex_) = 0;  // transactions begun or being begun
  uint64_t map_bytes_ BLEND_GUARDED_BY(gate_mutex_) = 0;
  uint64_t wanted_map_ BLEND_GUARDED_BY(gate_mutex_) = 0;
};

}  // namespace blend
