#include "store/lmdb_env.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <thread>
#include <utility>

#include "store/evict/use_record.h"
#include "store/lmdb_check.h"
#include "store/manifest.h"
#include "store/place_value.h"
#include "store/store_path.h"

namespace blend {
namespace {

constexpr unsigned kMaxReaders = 1024;
constexpr unsigned kMaxDatabases = 8;  // six are used; later formats may add some
constexpr auto kMapPatience = std::chrono::seconds(30);
constexpr auto kCompactionPatience = std::chrono::seconds(30);
constexpr auto kLongestPause = std::chrono::milliseconds(20);

using Identity = std::pair<uint64_t, uint64_t>;  // device, inode

// Thread-safe. Never destroyed, so that stores closed by static destructors still find it. A forked
// child gets a fresh one: it may not use what the parent opened, and the parent's mutex may be
// locked by a thread that the child does not have.
struct Registry {
  const pid_t pid = getpid();
  std::mutex mutex;
  std::condition_variable closed;
  // An expired entry is an environment being closed or about to be handed out: wait for `closed`.
  std::map<Identity, std::weak_ptr<LmdbEnv>> open;
};

Registry& registry() {
  static std::atomic<Registry*> current{nullptr};
  Registry* r = current.load();
  while (r == nullptr || r->pid != getpid()) {
    auto fresh = std::make_unique<Registry>();
    if (current.compare_exchange_strong(r, fresh.get())) return *fresh.release();
  }
  return *r;
}

void close_env(LmdbEnv* env, const Identity& identity) {
  if (env->forked()) return;  // leaked: closing would take the parent's locks apart
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  delete env;
  r.open.erase(identity);
  r.closed.notify_all();
}

uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Status lmdb_error(int rc, const std::string& what) {
  const auto with = [&](int32_t code, const char* why) {
    return Status{code, what + ": " + why, rc};
  };
  switch (rc) {
    case 0:
      return Status::ok();
    case MDB_NOTFOUND:
      return with(BLEND_E_NOT_FOUND, "not found");
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_CURSOR_FULL:
      return with(BLEND_E_CORRUPT, "the data file is damaged");
    case MDB_INVALID:
      return with(BLEND_E_FORMAT, "data.mdb is not an LMDB file");
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
      return with(BLEND_E_MISMATCH, "another version of LMDB wrote it");
    case MDB_MAP_FULL:
      return with(BLEND_E_FULL, "the map is full");
    case MDB_TXN_FULL:
      return with(BLEND_E_FULL, "too many pages for one transaction");
    case MDB_READERS_FULL:
      return with(BLEND_E_IO,
                  "1024 snapshots are open on it, the most that LMDB was set up for: "
                  "close some");
    case MDB_PANIC:
      return with(BLEND_E_IO,
                  "a write failed before in a way that LMDB cannot mend: close the "
                  "store and open it again");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return make_errno(BLEND_E_FULL, rc, "%s", what.c_str());
    case ENOMEM:
      return make_errno(BLEND_E_OUT_OF_MEMORY, rc, "%s", what.c_str());
    case EACCES:
    case EROFS:
    case EPERM:
      return make_errno(BLEND_E_IO, rc, "%s: no permission", what.c_str());
    default:
      break;
  }
  return rc > 0 ? make_errno(BLEND_E_IO, rc, "%s", what.c_str())
                : with(BLEND_E_INTERNAL, mdb_strerror(rc));
}

bool MapView::header_is_sound(std::span<const std::byte> value) const {
  // A tree page that this transaction has changed lives on the heap, with its short values.
  if (!contains(value)) return value.size() < page_size;
  const auto at = static_cast<uint64_t>(value.data() - base);
  // Nodes inside a tree page start behind its header and at least one index: never at 16.
  if (at % page_size != 16) return at % page_size > 16;
  uint64_t number = 0;
  uint16_t flags = 0;
  uint32_t n_pages = 0;
  const std::byte* page = value.data() - 16;
  std::memcpy(&number, page, sizeof number);
  std::memcpy(&flags, page + 10, sizeof flags);
  std::memcpy(&n_pages, page + 12, sizeof n_pages);
  constexpr uint16_t kOverflow = 0x04;
  return number == at / page_size && flags == kOverflow &&
         n_pages == (value.size() + 15) / page_size + 1;
}

Txn::~Txn() {
  if (txn_ == nullptr || env_->forked()) return;
  mdb_txn_abort(txn_);
  env_->leave();
}

int Txn::commit() {
  const int rc = mdb_txn_commit(std::exchange(txn_, nullptr));
  env_->leave();
  return rc;
}

Result<MapView> Txn::map_view() const {
  MDB_envinfo info{};
  MapView view;
  view.page_size = env_->page_size_;
  // The last page first, then the length: the file only grows, so the order errs to the safe side.
  mdb_env_info(env_->env_, &info);
  if (!lmdb_file_is_long_enough(env_->data_fd(), info.me_last_pgno, view.page_size)) {
    // Shorter than its pages: truncated, or its last pages are free and were never written.
    const bool reader = mdb_txn_id(txn_) <= info.me_last_txnid;
    bool stale = false;
    BLEND_RETURN_IF_ERROR(check_lmdb_pages(env_->data_fd(), view.page_size,
                                           mdb_txn_id(txn_) - (reader ? 0 : 1), &stale)
                              .with_context("store '" + env_->path_ + "'"));
  }
  view.bytes = env_->file_bytes();
  MDB_val key{6, const_cast<char*>("format")};
  MDB_val value{};
  if (const int rc = mdb_get(txn_, env_->info_, &key, &value); rc != 0) {
    return lmdb_error(rc, "store '" + env_->path_ + "'");
  }
  // The value lies in a tree page, which names its own number: that gives the start of the map.
  // The map begins at a page of the host's, so at one of the file's, which are no larger
  // (check_lmdb_header()).
  const auto at = reinterpret_cast<uintptr_t>(value.mv_data);
  const std::byte* page = reinterpret_cast<const std::byte*>(at / view.page_size * view.page_size);
  uint64_t number = 0;
  std::memcpy(&number, page, sizeof number);
  view.base = page - number * view.page_size;
  return view;
}

Result<std::shared_ptr<LmdbEnv>> LmdbEnv::acquire(const std::string& path, bool create,
                                                  bool read_only, uint64_t map_bytes) {
  // A store that is being compacted is replaced at some moment: look again, first at once, for who
  // waited for the compaction comes to itself just when it is done. By time: how long a compaction
  // takes depends on the store and the machine.
  const auto deadline = std::chrono::steady_clock::now() + kCompactionPatience;
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, kLongestPause)) {
    auto env = acquire_once(path, create, read_only, map_bytes);
    if (env.status().code() != BLEND_E_BUSY || std::chrono::steady_clock::now() >= deadline) {
      return env;
    }
    std::this_thread::sleep_for(pause);
  }
}

Result<std::shared_ptr<LmdbEnv>> LmdbEnv::acquire_once(const std::string& path, bool create,
                                                       bool read_only, uint64_t map_bytes) {
  BLEND_ASSIGN(const StoreDirectory directory, prepare_store_directory(path, create));
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  for (;;) {
    const auto found = r.open.find(directory.identity);
    if (found == r.open.end()) break;
    if (auto env = found->second.lock()) {
      lock.unlock();
      if (!read_only && !env->writable()) {
        return make_error(BLEND_E_IO,
                          "'%s' is open in this process without permission to write: close it "
                          "before opening it for writing",
                          path.c_str());
      }
      if (!read_only) {
        env->want_map(map_bytes);
        BLEND_RETURN_IF_ERROR(env->open_use_tables(true).with_context("store '" + path + "'"));
      }
      return env;
    }
    r.closed.wait(lock);
  }

  std::unique_ptr<LmdbEnv> fresh(new (std::nothrow) LmdbEnv());
  if (fresh == nullptr) return Status{BLEND_E_OUT_OF_MEMORY, "no memory for the store"};
  BLEND_RETURN_IF_ERROR(fresh->open(path, create, read_only, map_bytes, directory.page_size));
  struct stat opened {};
  struct stat named {};
  const auto identity_of = [](const struct stat& st) {
    return Identity{static_cast<uint64_t>(st.st_dev), static_cast<uint64_t>(st.st_ino)};
  };
  if (fstat(fresh->data_fd(), &opened) != 0 || stat(directory.data_path.c_str(), &named) != 0 ||
      identity_of(opened) != directory.identity || identity_of(named) != directory.identity) {
    return make_error(BLEND_E_BUSY, "'%s' was replaced while it was opened: try again",
                      directory.data_path.c_str());
  }
  // From here on others wait for this entry. The lock is let go because the deleter takes it, which
  // also runs when the shared pointer itself finds no memory.
  r.open.try_emplace(directory.identity);
  lock.unlock();
  std::shared_ptr<LmdbEnv> env(
      fresh.release(), [identity = directory.identity](LmdbEnv* e) { close_env(e, identity); });
  lock.lock();
  r.open.find(directory.identity)->second = env;
  r.closed.notify_all();
  return env;
}

Status LmdbEnv::open(const std::string& path, bool create, bool read_only, uint64_t map_bytes,
                     uint32_t page_size) {
  pid_ = getpid();
  path_ = path;
  map_bytes_ = wanted_map_ = round_up(map_bytes, 1u << 20);
  const std::string what = "open store '" + path + "'";
  // A read-only store opens the file for writing too where it may: the environment is shared with
  // writers of this process that come later, and read_only is kept by the store's object.
  for (const unsigned access : {0u, static_cast<unsigned>(MDB_RDONLY)}) {
    int rc = mdb_env_create(&env_);
    if (rc != 0) return lmdb_error(rc, what);
    mdb_env_set_maxreaders(env_, kMaxReaders);
    mdb_env_set_maxdbs(env_, kMaxDatabases);
    mdb_env_set_mapsize(env_, map_bytes_);
    rc = mdb_env_open(env_, path.c_str(), MDB_NORDAHEAD | MDB_NOTLS | access, 0666);
    writable_ = access == 0;
    if (rc == 0) break;
    mdb_env_close(std::exchange(env_, nullptr));
    const bool forbidden = rc == EACCES || rc == EROFS || rc == EPERM;
    // The lock file is empty for a moment while a store is compacted.
    if (rc == EINVAL) return {BLEND_E_BUSY, what + ": its lock file is being made anew"};
    if (!read_only || !forbidden || access != 0) return lmdb_error(rc, what);
  }
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
  BLEND_RETURN_IF_ERROR(open_databases(create).with_context(what));
  return open_use_tables(!read_only).with_context(what);
}

LmdbEnv::~LmdbEnv() {
  if (env_ != nullptr) mdb_env_close(env_);
}

Status LmdbEnv::check_pages() {
  // Two commits of another process between reading the newest snapshot's number and holding it make
  // it stale; that does not go on for ever.
  for (int attempt = 0; attempt < 100; ++attempt) {
    MDB_txn* txn = nullptr;
    int rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn);
    if (rc != 0) return lmdb_error(rc, "begin");
    bool stale = false;
    Status checked = check_lmdb_pages(data_fd(), page_size_, mdb_txn_id(txn), &stale);
    mdb_txn_abort(txn);
    if (!checked.is_ok() || !stale) return checked;
  }
  return {BLEND_E_CORRUPT, "the meta pages of the data file contradict each other"};
}

Status LmdbEnv::open_databases(bool create) {
  MDB_val key{6, const_cast<char*>("format")};
  {
    // Not by begin(): its transactions share this object, which nobody owns yet.
    MDB_txn* raw = nullptr;
    if (const int rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &raw); rc != 0) {
      return lmdb_error(rc, "begin");
    }
    std::unique_ptr<MDB_txn, void (*)(MDB_txn*)> txn(raw, mdb_txn_abort);
    int rc = mdb_dbi_open(txn.get(), "info", 0, &info_);
    if (rc == 0) {
      MDB_val value{};
      rc = mdb_get(txn.get(), info_, &key, &value);
      if (rc == MDB_NOTFOUND) {
        return {BLEND_E_FORMAT, "it is not a store: it has no format record"};
      }
      if (rc != 0) return lmdb_error(rc, "read the format record");
      const char* bytes = static_cast<const char*>(value.mv_data);
      BLEND_RETURN_IF_ERROR(check_format(std::as_bytes(std::span(bytes, value.mv_size))));
      for (const auto& [name, dbi] : {std::pair{"chunks", &chunks_}, std::pair{"meta", &meta_}}) {
        rc = mdb_dbi_open(txn.get(), name, 0, dbi);
        if (rc == MDB_NOTFOUND) {
          return make_error(BLEND_E_CORRUPT, "it lacks its database '%s'", name);
        }
        if (rc != 0) return lmdb_error(rc, "open a database");
      }
      // Handles outlive the transaction only if it commits.
      return lmdb_error(mdb_txn_commit(txn.release()), "commit");
    }
    if (rc != MDB_NOTFOUND) {
      return rc == MDB_INCOMPATIBLE ? Status{BLEND_E_FORMAT, "it is another program's LMDB file"}
                                    : lmdb_error(rc, "open a database");
    }
    MDB_stat st{};
    // In this transaction: another process may be creating the store at this moment.
    MDB_dbi main = 0;
    rc = mdb_dbi_open(txn.get(), nullptr, 0, &main);
    if (rc == 0) rc = mdb_stat(txn.get(), main, &st);
    if (rc != 0) return lmdb_error(rc, "stat");
    if (st.ms_entries != 0) return {BLEND_E_FORMAT, "it is another program's LMDB file"};
    if (!create || !writable_) return {BLEND_E_NOT_FOUND, "there is no store yet"};
  }
  MDB_txn* raw = nullptr;
  if (const int rc = mdb_txn_begin(env_, nullptr, 0, &raw); rc != 0) {
    return lmdb_error(rc, "begin");
  }
  std::unique_ptr<MDB_txn, void (*)(MDB_txn*)> txn(raw, mdb_txn_abort);
  for (const auto& [name, dbi] :
       {std::pair{"info", &info_}, std::pair{"chunks", &chunks_}, std::pair{"meta", &meta_}}) {
    if (const int rc = mdb_dbi_open(txn.get(), name, MDB_CREATE, dbi); rc != 0) {
      return lmdb_error(rc, "create a database");
    }
  }
  const std::string format = encode_format();
  const std::string counters = encode_counters({});
  const std::string totals = encode_totals({});
  for (const auto& [name, text] : {std::pair{"format", &format}, std::pair{"counters", &counters},
                                   std::pair{"uses", &totals}}) {
    MDB_val k{std::strlen(name), const_cast<char*>(name)};
    MDB_val v{text->size(), const_cast<char*>(text->data())};
    // Another process may have been first: its records stay.
    const int rc = mdb_put(txn.get(), info_, &k, &v, MDB_NOOVERWRITE);
    if (rc != 0 && rc != MDB_KEYEXIST) return lmdb_error(rc, "write the format record");
  }
  return lmdb_error(mdb_txn_commit(txn.release()), "write the format record");
}

Status LmdbEnv::open_use_tables(bool create) {
  const std::lock_guard lock(use_tables_mutex_);
  if (has_use_tables_) return Status::ok();
  const bool may_create = create && writable_;
  for (const bool creating : {false, true}) {
    MDB_txn* raw = nullptr;
    int rc = mdb_txn_begin(env_, nullptr, creating ? 0 : MDB_RDONLY, &raw);
    if (rc != 0) return lmdb_error(rc, "begin");
    std::unique_ptr<MDB_txn, void (*)(MDB_txn*)> txn(raw, mdb_txn_abort);
    for (const auto& [name, dbi] : {std::pair{"uses", &uses_}, std::pair{"order", &order_},
                                    std::pair{"tenants", &tenants_}}) {
      if (rc == 0) rc = mdb_dbi_open(txn.get(), name, creating ? MDB_CREATE : 0u, dbi);
    }
    if (rc == 0) rc = mdb_txn_commit(txn.release());
    if (rc == 0) {
      has_use_tables_ = true;
      return Status::ok();
    }
    if (rc != MDB_NOTFOUND) return lmdb_error(rc, "open a database");
    if (!may_create) return Status::ok();  // nothing is known of the use of its chunks
  }
  return {BLEND_E_INTERNAL, "a database was not found after it was made"};
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
  if (const int rc = mdb_env_open(raw, path.c_str(), MDB_RDONLY | MDB_NOLOCK, 0666); rc != 0) {
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

Result<std::shared_ptr<void>> LmdbEnv::reserve(const Identity& identity, const std::string& path) {
  Registry& r = registry();
  {
    const std::lock_guard lock(r.mutex);
    if (!r.open.try_emplace(identity).second) {
      return make_error(BLEND_E_BUSY, "store '%s' is open in this process: close it first",
                        path.c_str());
    }
  }
  // Without the lock: the deleter takes it, which also runs when there is no memory for this.
  return std::shared_ptr<void>(&r, [identity](void* where) {
    Registry& registry = *static_cast<Registry*>(where);
    const std::lock_guard unlock(registry.mutex);
    registry.open.erase(identity);
    registry.closed.notify_all();
  });
}

void LmdbEnv::clear_dead_readers() {
  int dead = 0;
  mdb_reader_check(env_, &dead);
}

bool LmdbEnv::forked() const { return getpid() != pid_; }

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

Result<Txn> LmdbEnv::begin(unsigned flags) {
  BLEND_RETURN_IF_ERROR(check_fork());
  const auto deadline = std::chrono::steady_clock::now() + kMapPatience;
  bool cleared = false;
  for (;;) {
    {
      const std::lock_guard lock(gate_mutex_);
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
    // Another process has outgrown our map. New transactions end up here too, so the active ones
    // run out by themselves.
    std::unique_lock lock(gate_mutex_);
    if (!gate_.wait_until(lock, deadline, [&] { return active_ == 0; })) {
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
  const std::lock_guard lock(gate_mutex_);
  --active_;
  gate_.notify_all();
}

void LmdbEnv::want_map(uint64_t bytes) {
  const std::lock_guard lock(gate_mutex_);
  wanted_map_ = std::max(wanted_map_, round_up(bytes, 1u << 20));
  if (active_ == 0 && wanted_map_ > map_bytes_) apply_wanted_map();
}

bool LmdbEnv::grow_map() {
  std::unique_lock lock(gate_mutex_);
  if (wanted_map_ <= map_bytes_) return false;
  if (!gate_.wait_for(lock, kMapPatience, [&] { return active_ == 0; })) return false;
  if (wanted_map_ > map_bytes_) apply_wanted_map();
  return wanted_map_ <= map_bytes_;
}

void LmdbEnv::apply_wanted_map() {
  // LMDB unmaps first and maps then; if the second fails it is left without a map. So try it out.
  void* trial = mmap(nullptr, wanted_map_, PROT_READ, MAP_SHARED, data_fd(), 0);
  if (trial == MAP_FAILED) return;
  munmap(trial, wanted_map_);
  if (mdb_env_set_mapsize(env_, wanted_map_) == 0) map_bytes_ = wanted_map_;
}

}  // namespace blend
