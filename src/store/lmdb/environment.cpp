#include "store/lmdb/environment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "base/files/file_size_signal.h"
#include "store/lmdb/directory.h"
#include "store/lmdb/error.h"
#include "store/lmdb/page_format.h"
#include "store/lmdb/registry.h"
#include "store/lmdb/repair/check_pages.h"
#include "store/lmdb/transaction.h"
#include "store/lmdb/writer/direct_page_writer.h"

namespace blend {
namespace {

constexpr unsigned kMaxReaders = 1024;
// At least the size of LMDB's table for them: a cache line for each, after a header.
constexpr uint64_t kLockFileBytes = kMaxReaders * 64 + 4096;
constexpr unsigned kMaxDatabases = 8;  // seven are used; later formats may add one
constexpr auto kMapPatience = std::chrono::seconds(30);
constexpr auto kCompactionPatience = std::chrono::seconds(30);
constexpr auto kShortestPause = std::chrono::microseconds(100);
constexpr auto kLongestPause = std::chrono::milliseconds(20);

// LMDB identifies reading processes by their process ids alone.
Status same_pid(pid_t pid) {
  return make_errno(
      BLEND_E_BUSY, EAGAIN,
      "a process of another PID namespace (another container) has it open and the same number, %d, "
      "by which LMDB tells processes apart: let the containers share a PID namespace (docker run "
      "--pid, Kubernetes shareProcessNamespace), or start this one behind another process (docker "
      "run --init)",
      static_cast<int>(pid));
}

uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Result<std::shared_ptr<LmdbEnv>> LmdbEnv::acquire(const std::string& path, const StoreModes* create,
                                                  bool read_only, uint64_t map_bytes) {
  const FileSizeSignalHeld held;
  // A compaction replaces the data file at its end, and a process that waited for it wakes just
  // then and tries again. Up to a deadline and not a number of times, since how long a compaction
  // takes depends on the store and the disk.
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kCompactionPatience;
  for (Clock::duration pause = kShortestPause;;
       pause = std::min<Clock::duration>(2 * pause, kLongestPause)) {
    const auto began = Clock::now();
    auto env = acquire_once(path, create, read_only, map_bytes);
    const bool passes = env.status().code() == BLEND_E_BUSY && env.status().detail() != EAGAIN;
    if (!passes || Clock::now() >= deadline) {
      return env;
    }
    // An attempt that took long has waited for the lock, which is free now. A long pause would
    // leave it to the next compaction, each time anew.
    if (Clock::now() - began > pause) pause = kShortestPause;
    std::this_thread::sleep_for(pause);
  }
}

Result<std::shared_ptr<LmdbEnv>> LmdbEnv::acquire_once(const std::string& path,
                                                       const StoreModes* create, bool read_only,
                                                       uint64_t map_bytes) {
  BLEND_ASSIGN(const StoreDirectory directory, prepare_store_directory(path, create));
  bool shared = true;
  const auto open_new = [&]() -> Result<std::unique_ptr<LmdbEnv>> {
    shared = false;
    std::unique_ptr<LmdbEnv> fresh(new (std::nothrow) LmdbEnv());
    if (fresh == nullptr) return Status{BLEND_E_OUT_OF_MEMORY, "no memory for the store"};
    BLEND_RETURN_IF_ERROR(
        fresh->open(path, create != nullptr, read_only, map_bytes, directory.page_size));
    struct stat opened {};
    struct stat named {};
    if (fstat(fresh->data_fd(), &opened) != 0 || lstat(directory.data_path.c_str(), &named) != 0 ||
        identity_of(opened) != directory.identity || identity_of(named) != directory.identity) {
      return make_error(BLEND_E_BUSY, "'%s' was replaced while it was opened: try again",
                        directory.data_path.c_str());
    }
    return fresh;
  };
  BLEND_ASSIGN(std::shared_ptr<LmdbEnv> env,
               EnvRegistry::of_this_process().find_or_open(directory.identity, open_new));
  if (!shared || read_only) return env;
  if (!env->writable()) {
    return make_error(BLEND_E_IO,
                      "'%s' is open in this process without permission to write: close it "
                      "before opening it for writing",
                      path.c_str());
  }
  env->want_map(map_bytes);
  BLEND_RETURN_IF_ERROR(env->open_use_tables(true).with_context("store '" + path + "'"));
  return env;
}

Status LmdbEnv::open(const std::string& path, bool create, bool read_only, uint64_t map_bytes,
                     uint32_t page_size) {
  path_ = path;
  lock_file_ = path + "/" + kLockFile;
  map_bytes_ = wanted_map_ = round_up(map_bytes, 1u << 20);
  const std::string what = "open store '" + path + "'";
  BLEND_RETURN_IF_ERROR(reserve_lock_file(lock_file_, kLockFileBytes).with_context(what));
  // A read-only store opens the file for writing too, where permissions allow: the environment is
  // shared with writers that this process may open later. The store's object refuses to write.
  for (const unsigned access : {0u, static_cast<unsigned>(MDB_RDONLY)}) {
    int rc = mdb_env_create(&env_);
    if (rc != 0) return lmdb_error(rc, what);
    mdb_env_set_maxreaders(env_, kMaxReaders);
    mdb_env_set_maxdbs(env_, kMaxDatabases);
    mdb_env_set_mapsize(env_, map_bytes_);
    rc = mdb_env_open(env_, path.c_str(), MDB_NORDAHEAD | MDB_NOTLS | access, 0600);
    writable_ = access == 0;
    if (rc == 0) break;
    mdb_env_close(std::exchange(env_, nullptr));
    const bool forbidden = rc == EACCES || rc == EROFS || rc == EPERM;
    // The lock file is empty for a moment while a store is compacted.
    if (rc == EINVAL) return {BLEND_E_BUSY, what + ": its lock file is being replaced"};
    if (forbidden && read_only && access != 0) {
      return make_errno(BLEND_E_IO, rc,
                        "%s: readers register in its %s, so that writers leave their pages alone, "
                        "and this process may not write to it: give it permission to write to that "
                        "file, or copy the store",
                        what.c_str(), kLockFile);
    }
    if (!read_only || !forbidden) return lmdb_error(rc, what);
  }
  // LMDB sets close-on-exec on every other descriptor itself.
  fcntl(data_fd(), F_SETFD, FD_CLOEXEC);
  MDB_envinfo info{};
  mdb_env_info(env_, &info);
  map_bytes_ = info.me_mapsize;  // more than asked if the file is larger
  if (page_size == 0) {
    MDB_stat st{};
    mdb_env_stat(env_, &st);
    page_size = st.ms_psize;
  }
  page_size_ = page_size;
  if (lmdb_can_place()) placing_ = Placing::on_trial;
  int dead = 0;
  mdb_reader_check(env_, &dead);
  BLEND_RETURN_IF_ERROR(check_pages().with_context(what));
  BLEND_RETURN_IF_ERROR(
      open_chunk_tables(env_, create && writable_, &databases_).with_context(what));
  return open_use_tables(!read_only).with_context(what);
}

LmdbEnv::~LmdbEnv() {
  // Closing writes to the table of readers: where that was cut off the environment is left alone.
  if (env_ != nullptr && has_readers_table()) mdb_env_close(env_);
}

bool LmdbEnv::has_readers_table() const {
  struct stat st {};
  return stat(lock_file_.c_str(), &st) != 0 || st.st_size > 0;
}

Status LmdbEnv::check_pages() {
  // Stale: another process committed twice between our reading of the newest transaction's number
  // and our registration as its reader. Tried again, within bounds.
  for (int attempt = 0; attempt < 100; ++attempt) {
    MDB_txn* txn = nullptr;
    int rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn);
    // The first one registers the process: a lock on the byte of the lock file with its number.
    if (rc == EAGAIN || rc == EACCES) return same_pid(process_.pid());
    if (rc != 0) return lmdb_error(rc, "begin");
    bool stale = false;
    Status checked = check_lmdb_pages(data_fd(), page_size_, mdb_txn_id(txn), &stale);
    mdb_txn_abort(txn);
    if (!checked.is_ok() || !stale) return checked;
  }
  return {BLEND_E_CORRUPT, "the meta pages of the data file contradict each other"};
}

Status LmdbEnv::open_use_tables(bool create) {
  const MutexLock lock(use_tables_mutex_);
  if (has_texts_ || (has_use_tables_ && !create)) return Status::ok();
  Databases found;
  BLEND_ASSIGN(const bool there, blend::open_use_tables(env_, create && writable_, &found));
  if (!there) return Status::ok();
  if (!has_use_tables_) {  // existing tables are in use by others
    databases_.uses = found.uses;
    databases_.order = found.order;
    databases_.tenants = found.tenants;
    has_use_tables_ = true;
  }
  databases_.texts = found.texts;
  has_texts_ = found.texts != 0;
  return Status::ok();
}

Status LmdbEnv::copy(const std::function<Status(MDB_env*)>& fn) {
  BLEND_ASSIGN(const Txn txn, begin_read());
  BLEND_ASSIGN([[maybe_unused]] const MapView view, txn.map_view());
  return fn(env_);
}

Status LmdbEnv::copy_unlocked(const std::string& path, uint32_t page_size,
                              const std::function<Status(MDB_env*)>& fn) {
  MDB_env* raw = nullptr;
  if (const int rc = mdb_env_create(&raw); rc != 0) return lmdb_error(rc, "open store");
  const std::unique_ptr<MDB_env, void (*)(MDB_env*)> env(raw, mdb_env_close);
  mdb_env_set_maxdbs(raw, kMaxDatabases);
  if (const int rc = mdb_env_open(raw, path.c_str(), MDB_RDONLY | MDB_NOLOCK, 0600); rc != 0) {
    return lmdb_error(rc, "open store '" + path + "'");
  }
  int fd = -1;
  mdb_env_get_fd(raw, &fd);
  MDB_envinfo info{};
  mdb_env_info(raw, &info);
  bool stale = false;
  BLEND_RETURN_IF_ERROR(check_lmdb_pages(fd, page_size, info.me_last_txnid, &stale));
  if (stale) return {BLEND_E_CORRUPT, "the meta pages of the data file contradict each other"};
  return fn(raw);
}

void LmdbEnv::clear_dead_readers() {
  int dead = 0;
  if (has_readers_table()) mdb_reader_check(env_, &dead);
}

bool LmdbEnv::forked() const { return !process_.is_this_process(); }

Status LmdbEnv::check_fork() const {
  if (!forked()) return Status::ok();
  return make_error(BLEND_E_FORKED,
                    "store '%s' was opened before fork(): open it again in this process",
                    path_.c_str());
}

int LmdbEnv::data_fd() const {
  int fd = -1;
  mdb_env_get_fd(env_, &fd);
  return fd;
}

uint64_t LmdbEnv::file_bytes() const {
  struct stat st {};
  return fstat(data_fd(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

// LMDB reads the meta pages and its table of readers through maps: where another program truncated
// the files or wrote over them, that would be SIGBUS, or access to any address. Changes made after
// this check are beyond our control.
Status LmdbEnv::check_files() const {
  const Result<uint32_t> header = has_readers_table()
                                      ? check_lmdb_header(data_fd())
                                      : Status{BLEND_E_CORRUPT, "its lock file is truncated"};
  if (header.is_ok()) return Status::ok();
  return make_error(BLEND_E_CORRUPT,
                    "store '%s' was changed by another program while it was open (%s): close it, "
                    "and make a new one or restore a copy",
                    path_.c_str(), header.status().message().c_str());
}

// Writes to an unlinked file would be lost with the process.
Status LmdbEnv::check_is_there() const {
  struct stat st {};
  if (fstat(data_fd(), &st) != 0 || st.st_nlink > 0) return Status::ok();
  return make_errno(BLEND_E_IO, ENOENT,
                    "store '%s' was removed while it was open, and what is put into it would be "
                    "lost: close it and open it again",
                    path_.c_str());
}

Result<Txn> LmdbEnv::begin(unsigned flags) {
  BLEND_RETURN_IF_ERROR(check_fork());
  BLEND_RETURN_IF_ERROR(check_files());
  if ((flags & MDB_RDONLY) == 0) BLEND_RETURN_IF_ERROR(check_is_there());
  const auto deadline = std::chrono::steady_clock::now() + kMapPatience;
  bool cleared = false;
  for (;;) {
    {
      const MutexLock lock(gate_mutex_);
      if (active_ == 0 && wanted_map_ > map_bytes_) apply_wanted_map();
      ++active_;  // before beginning: the map must stay from here on
    }
    MDB_txn* txn = nullptr;
    const int rc = mdb_txn_begin(env_, nullptr, flags, &txn);
    if (rc == 0) return Txn(shared_from_this(), txn);
    leave();
    if (rc == MDB_READERS_FULL && !cleared) {
      cleared = true;
      int dead = 0;
      mdb_reader_check(env_, &dead);
      continue;
    }
    if (rc != MDB_MAP_RESIZED) return lmdb_error(rc, "store '" + path_ + "'");
    // Another process has enlarged the file past our map. New transactions wait here too, so the
    // active ones come to an end.
    MutexLock lock(gate_mutex_);
    if (!gate_.wait_until(lock, deadline,
                          [&]() BLEND_REQUIRES(gate_mutex_) { return active_ == 0; })) {
      return make_error(BLEND_E_IO,
                        "another process enlarged store '%s', and snapshots held open in this "
                        "process keep it from following: close them and try again",
                        path_.c_str());
    }
    if (const int resized = mdb_env_set_mapsize(env_, 0); resized != 0) {
      return lmdb_error(resized, "enlarge the map of store '" + path_ + "'");
    }
    MDB_envinfo info{};
    mdb_env_info(env_, &info);
    map_bytes_ = info.me_mapsize;
  }
}

void LmdbEnv::leave() {
  const MutexLock lock(gate_mutex_);
  --active_;
  gate_.notify_all();
}

void LmdbEnv::want_map(uint64_t bytes) {
  const MutexLock lock(gate_mutex_);
  wanted_map_ = std::max(wanted_map_, round_up(bytes, 1u << 20));
  if (active_ == 0 && wanted_map_ > map_bytes_) apply_wanted_map();
}

bool LmdbEnv::grow_map() {
  MutexLock lock(gate_mutex_);
  if (wanted_map_ <= map_bytes_) return false;
  if (!gate_.wait_for(lock, kMapPatience,
                      [&]() BLEND_REQUIRES(gate_mutex_) { return active_ == 0; }))
    return false;
  if (wanted_map_ > map_bytes_) apply_wanted_map();
  return wanted_map_ <= map_bytes_;
}

void LmdbEnv::apply_wanted_map() {
  if (!check_files().is_ok()) return;  // the next transaction reports it
  // LMDB unmaps before it maps again, and has no map left if that fails: try the size first.
  void* trial = mmap(nullptr, wanted_map_, PROT_READ, MAP_SHARED, data_fd(), 0);
  if (trial == MAP_FAILED) return;
  munmap(trial, wanted_map_);
  if (mdb_env_set_mapsize(env_, wanted_map_) == 0) map_bytes_ = wanted_map_;
}

}  // namespace blend
