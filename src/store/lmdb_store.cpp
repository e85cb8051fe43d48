// LmdbStore: a ChunkStore in one LMDB environment (FORMAT.md has the layout).
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "store/chunk_writer.h"
#include "store/lmdb_source.h"

namespace blend {
namespace {

using ull = unsigned long long;

// Freed pages come back two transactions late, so the map has room for the quota, the pages of two
// transactions, and the trees.
constexpr uint64_t kLargestTransaction = 512ull << 20;
constexpr uint64_t kTreeRoom = 16ull << 20;
constexpr uint64_t kLargestMap = 16ull << 40;

uint64_t map_bytes_for(uint64_t quota, uint64_t transaction) {
  const uint64_t capped = std::min(quota, kLargestMap / 2);
  return capped + capped / 10 + 2 * std::min(transaction, kLargestMap / 8) + kTreeRoom;
}

// Whether a failed write of `bytes` is explained by a full disk or a limit on the file's size: a
// write that gets only part of its bytes in comes back from LMDB as EIO.
bool out_of_space(int fd, uint64_t file_bytes, uint64_t bytes) {
  struct statvfs fs {};
  if (fstatvfs(fd, &fs) == 0 && uint64_t{fs.f_bavail} * fs.f_frsize < bytes) return true;
  struct rlimit limit {};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         file_bytes + bytes > limit.rlim_cur;
}

// Thread-safe.
class LmdbStore final : public ChunkStore {
 public:
  LmdbStore(const StoreOptions& options, std::shared_ptr<StoreCommon> common)
      : options_(options),
        common_(std::move(common)),
        env_(*common_->env),
        write_back_(std::make_unique<WriteBack>(
            options.queue_bytes, [this](const ChunkRecord& r) { return write(r); },
            [this](const Status& s) {
              common_->write_errors.fetch_add(1, std::memory_order_relaxed);
              common_->event(s.code(), s.message());
            })) {}

  ~LmdbStore() override {
    // In a child the queue's thread does not exist and its mutex may be locked for ever.
    if (env_.forked()) (void)write_back_.release();
  }

  Result<std::unique_ptr<StoreSnapshot>> snapshot() override {
    BLEND_RETURN_IF_ERROR(env_.check_fork());
    // Before the transaction: what has left the queue by now, the transaction sees.
    RecordMap pending = write_back_->pending();
    BLEND_ASSIGN(Txn txn, env_.begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    return std::unique_ptr<StoreSnapshot>(
        std::make_unique<LmdbSnapshot>(common_, std::move(txn), view, std::move(pending)));
  }

  Result<bool> contains(const Sha256& id) override {
    BLEND_RETURN_IF_ERROR(env_.check_fork());
    if (write_back_->find(id) != nullptr) return true;
    BLEND_ASSIGN(const Txn txn, env_.begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    const auto manifest = read_manifest(txn, view, id);
    if (manifest.is_ok()) return true;
    // A damaged one is as good as missing: whoever asks will put it again.
    const int32_t code = manifest.status().code();
    if (code == BLEND_E_NOT_FOUND || code == BLEND_E_CORRUPT || code == BLEND_E_UNSUPPORTED) {
      return false;
    }
    return manifest.status();
  }

  Status put(const ChunkRecord& record) override {
    BLEND_RETURN_IF_ERROR(check_writable());
    BLEND_RETURN_IF_ERROR(check_record(record));
    write_back_->cancel(record.meta.id);  // or an older one would be written over this
    return write(record);
  }

  Status put_async(std::shared_ptr<const ChunkRecord> record) override {
    BLEND_RETURN_IF_ERROR(check_writable());
    if (record == nullptr) return {BLEND_E_INVALID_ARGUMENT, "there is no record to put"};
    BLEND_RETURN_IF_ERROR(check_record(*record));
    return write_back_->push(std::move(record));
  }

  Status flush() override {
    BLEND_RETURN_IF_ERROR(env_.check_fork());
    return write_back_->flush();
  }

  Status remove(const Sha256& id) override {
    BLEND_RETURN_IF_ERROR(check_writable());
    const bool was_queued = write_back_->cancel(id);
    BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
    bool found = false;
    BLEND_RETURN_IF_ERROR(writer.erase(id, &found).with_context("remove"));
    if (!found) {
      if (was_queued) return Status::ok();
      return make_error(BLEND_E_NOT_FOUND, "chunk %s is not in the store", to_hex(id).c_str());
    }
    return writer.commit().with_context("remove chunk " + to_hex(id));
  }

  Status for_each(bool verify, const Visit& fn) override;

  Result<StoreStat> stat() override {
    BLEND_ASSIGN(const Txn txn, env_.begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    BLEND_ASSIGN(const StoreCounters counters, read_counters(txn, view, *common_));
    StoreStat s;
    s.n_chunks = counters.n_chunks;
    s.n_tokens = counters.n_tokens;
    s.bytes = counters.kv_bytes;
    s.codecs = counters.codecs;
    s.read_mode = common_->reader != nullptr ? common_->reader->mode() : ReadMode::mapped;
    s.file_bytes = env_.file_bytes();
    s.quota_bytes = options_.quota_bytes;
    s.hits = common_->hits.load();
    s.misses = common_->misses.load();
    s.damaged = common_->damaged.load();
    s.written = common_->written.load();
    s.write_errors = common_->write_errors.load();
    return s;
  }

  void report_damage(const Sha256& id, const Status& status) override {
    // Layer reads name their chunk already.
    const bool named = status.message().find(to_hex(id)) != std::string::npos;
    common_->damage(named ? status : status.with_context("chunk " + to_hex(id)));
  }

 private:
  Status check_writable() const {
    BLEND_RETURN_IF_ERROR(env_.check_fork());
    if (!options_.read_only) return Status::ok();
    return make_error(BLEND_E_READ_ONLY,
                      "store '%s' is open read-only: open it without read_only to change it",
                      env_.path().c_str());
  }

  Status write(const ChunkRecord& record);
  Status write_once(const EncodedChunk& chunk);

  const StoreOptions options_;
  const std::shared_ptr<StoreCommon> common_;
  LmdbEnv& env_;
  std::unique_ptr<WriteBack> write_back_;  // last: its thread uses all of the above
};

Status LmdbStore::write(const ChunkRecord& record) {
  const std::string what = "put chunk " + to_hex(record.meta.id);
  // Before the transaction: other writers wait for that.
  const auto encoded = encode_chunk(record, record.codec.value_or(options_.codec));
  if (!encoded.is_ok()) return encoded.status().with_context(what);
  const EncodedChunk& chunk = encoded.value();
  const Manifest& manifest = chunk.manifest;
  env_.want_map(map_bytes_for(
      options_.quota_bytes,
      std::max(manifest.footprint(), std::min(options_.quota_bytes, kLargestTransaction))));
  Status status = write_once(chunk);
  // A larger map may be waiting for our own snapshots to end.
  if (status.detail() == MDB_MAP_FULL && env_.grow_map()) {
    status = write_once(chunk);
  }
  if (status.is_ok()) {
    common_->written.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  const uint64_t needed = manifest.footprint();
  const auto full = [&](const char* why) {
    return make_error(BLEND_E_FULL,
                      "%s: %s; it needs %llu bytes and the data file of '%s' has %llu",
                      what.c_str(), why, static_cast<ull>(needed), env_.path().c_str(),
                      static_cast<ull>(env_.file_bytes()));
  };
  if (status.detail() == MDB_MAP_FULL) {
    return full(
        "the map is full, perhaps because old snapshots hold on to freed pages: close "
        "them, remove chunks, or open the store with a larger quota_bytes");
  }
  const bool no_space = status.detail() == ENOSPC || status.detail() == EDQUOT ||
                        status.detail() == EFBIG ||
                        (status.detail() == EIO &&
                         out_of_space(env_.data_fd(), env_.file_bytes(), needed + kTreeRoom));
  if (no_space) {
    return full("the disk is full or the file may not grow: free space, or remove chunks");
  }
  return status.with_context(what);
}

Status LmdbStore::write_once(const EncodedChunk& chunk) {
  const Manifest& manifest = chunk.manifest;
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
  bool replaced = false;
  BLEND_RETURN_IF_ERROR(writer.erase(manifest.meta.id, &replaced));
  const uint64_t used = writer.counters().footprint;
  if (used > options_.quota_bytes || manifest.footprint() > options_.quota_bytes - used) {
    return make_error(BLEND_E_FULL,
                      "it needs %llu bytes, and %llu of the %llu that the quota of '%s' allows are "
                      "in use: remove chunks or open the store with a larger quota_bytes",
                      static_cast<ull>(manifest.footprint()), static_cast<ull>(used),
                      static_cast<ull>(options_.quota_bytes), env_.path().c_str());
  }
  BLEND_RETURN_IF_ERROR(writer.add(manifest, {chunk.stream, manifest.stream_bytes()}));
  return writer.commit();
}

Status LmdbStore::for_each(bool verify, const Visit& fn) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  write_back_->drain();  // so that what was put is listed
  BLEND_ASSIGN(const Txn txn, env_.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  std::mutex mutex;
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn.get(), env_.meta(), &raw);
  if (rc != 0) return lmdb_error(rc, "list the chunks");
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);

  uint64_t n_damaged = 0;
  MDB_val key{};
  MDB_val value{};
  while ((rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) == 0) {
    ChunkMeta meta;
    std::string problem;
    if (key.mv_size != meta.id.size()) {
      problem = "a description has a key that is no chunk id";
    } else {
      std::memcpy(meta.id.data(), key.mv_data, meta.id.size());
      auto manifest = read_manifest(txn, view, meta.id);
      if (!manifest.is_ok()) {
        problem = manifest.status().message();
      } else {
        meta = manifest->meta;
        if (verify) {
          LmdbSource source(txn, view, mutex, nullptr, true, std::move(manifest.value()));
          BLEND_ASSIGN(const AlignedBuffer buffer,
                       AlignedBuffer::allocate(meta.shape.layer_bytes()));
          Status status = source.check_no_more_pieces();
          for (uint32_t layer = 0; status.is_ok() && layer < meta.shape.n_layers; ++layer) {
            if (layer + 1 < meta.shape.n_layers) source.prefetch(layer + 1);
            status = source.read_layer(layer, buffer.data());
          }
          problem = status.message();
        }
      }
    }
    if (!problem.empty()) ++n_damaged;
    if (const int32_t stop = fn(meta, problem); stop != 0) {
      return {BLEND_E_CALLBACK, "the callback asked to stop", stop};
    }
    BLEND_RETURN_IF_ERROR(env_.check_fork());
  }
  if (rc != MDB_NOTFOUND) return lmdb_error(rc, "list the chunks");
  if (verify && n_damaged > 0) {
    return make_error(BLEND_E_CORRUPT,
                      "%llu chunks of store '%s' are damaged: remove them, and they will be "
                      "computed again",
                      static_cast<ull>(n_damaged), env_.path().c_str());
  }
  return Status::ok();
}

}  // namespace

Result<std::shared_ptr<ChunkStore>> open_lmdb_store(const std::string& path,
                                                    const StoreOptions& options, EventSink events) {
  if (options.quota_bytes == 0 && !options.read_only) {
    return Status{BLEND_E_INVALID_ARGUMENT, "quota_bytes is 0: nothing could be stored"};
  }
  auto common = std::make_shared<StoreCommon>();
  BLEND_ASSIGN(common->env,
               LmdbEnv::acquire(path, options.create && !options.read_only, options.read_only,
                                map_bytes_for(options.quota_bytes,
                                              std::min(options.quota_bytes, kLargestTransaction))));
  common->events = std::move(events);
  BLEND_ASSIGN(common->reader,
               make_page_reader(path + "/data.mdb", common->env->data_fd(), options.read_mode));
  common->cache_first = options.read_mode == ReadMode::best;
  return std::shared_ptr<ChunkStore>(std::make_shared<LmdbStore>(options, std::move(common)));
}

}  // namespace blend
