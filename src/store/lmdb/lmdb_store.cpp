#include "store/lmdb/lmdb_store.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "store/lmdb/compact.h"
#include "store/lmdb/directory.h"
#include "store/lmdb/page_format.h"
#include "store/lmdb/read_records.h"
#include "store/lmdb/snapshot.h"
#include "store/lmdb/transaction.h"

namespace blend {

LmdbStore::LmdbStore(const StoreOptions& options, std::shared_ptr<StoreCommon> common)
    : options_(options),
      common_(std::move(common)),
      env_(*common_->env),
      policy_(make_policy(options.eviction)),
      turns_(options.quota_bytes / 2),
      worker_(std::make_unique<Worker>()),
      write_back_(std::make_unique<WriteBack>(
          WriteBack::Limits{.queue_bytes = options.queue_bytes},
          [this](WriteBack::Batch batch, std::span<Status> statuses) {
            std::vector<Record> records;
            records.reserve(batch.size());
            for (const auto& record : batch) records.push_back({record.get(), record});
            write_all(records, statuses);
          },
          [this](const Status& s) {
            common_->write_errors.fetch_add(1, std::memory_order_relaxed);
            common_->event(s.code(), s.message());
          })) {
  if (options_.ram_bytes > 0) {
    common_->ram = std::make_shared<RamTier>(options_.ram_bytes, options_.host_memory);
  }
  common_->ttl_us = std::min(options_.ttl_s, uint64_t{1} << 40) * 1'000'000;
  common_->notes_use = !options_.read_only && policy_->renewed_by_use();
  common_->write_touches_soon = [this] {
    // Best effort: stamps only order later evictions.
    return worker_->post([this] { (void)write_touches(); });
  };
}

LmdbStore::~LmdbStore() {
  if (env_.forked()) {
    // In a child the threads do not exist and their mutexes may be locked for ever.
    (void)write_back_.release();
    (void)worker_.release();
    return;
  }
  common_->write_touches_soon = {};
  worker_->stop();  // before it is gone: its task asks it whether to end
  write_back_.reset();
  try {
    (void)write_touches();
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): best effort, as above
  }
}

Status LmdbStore::check_writable() const {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  if (!options_.read_only) return Status::ok();
  return make_error(BLEND_E_READ_ONLY,
                    "store '%s' is open read-only: open it without read_only to change it",
                    env_.path().c_str());
}

Result<std::unique_ptr<StoreSnapshot>> LmdbStore::snapshot() {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  // Before the transaction begins: it sees records that have left the queue by then.
  RecordMap pending = write_back_->pending();
  BLEND_ASSIGN(Txn txn, env_.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  return std::unique_ptr<StoreSnapshot>(
      std::make_unique<LmdbSnapshot>(common_, std::move(txn), view, std::move(pending)));
}

Result<bool> LmdbStore::contains(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  if (write_back_->find(id) != nullptr) return true;
  BLEND_ASSIGN(const Txn txn, env_.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  return has_chunk(txn, view, *common_, id, false);  // damaged counts as missing, to be put again
}

Status LmdbStore::put(const ChunkRecord& record) {
  BLEND_RETURN_IF_ERROR(check_writable());
  BLEND_RETURN_IF_ERROR(check_record(record));
  write_back_->cancel(record.meta.id);  // or an older one would be written over this
  return write(record);
}

Status LmdbStore::put_async(std::shared_ptr<const ChunkRecord> record) {
  BLEND_RETURN_IF_ERROR(check_writable());
  if (record == nullptr) return {BLEND_E_INVALID_ARGUMENT, "there is no record to put"};
  BLEND_RETURN_IF_ERROR(check_record(*record));
  return write_back_->push(std::move(record));
}

Status LmdbStore::flush() {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  return write_back_->flush();
}

Status LmdbStore::wait(const Sha256& id, Deadline deadline, bool* pending) {
  *pending = false;
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  const std::optional<Status> outcome = write_back_->outcome(id, deadline);
  if (!outcome.has_value()) {
    *pending = true;
    return Status::ok();
  }
  BLEND_RETURN_IF_ERROR(*outcome);
  BLEND_ASSIGN(const bool stored, contains(id));
  if (stored) return Status::ok();
  return make_error(
      BLEND_E_NOT_FOUND,
      "chunk %s is neither stored nor on its way: it was never put, or it was removed "
      "or evicted since",
      to_hex(id).c_str());
}

Status LmdbStore::copy_to(const std::string& path) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  write_back_->drain();
  return copy_compact(env_, path);
}

// An id binds its tenant, so the answer stays true.
Result<bool> LmdbStore::is_of(const Sha256& id, const TenantTag& tenant) {
  if (const auto queued = write_back_->find(id); queued != nullptr) {
    return queued->meta.tenant == tenant;
  }
  BLEND_ASSIGN(const Txn txn, env_.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  const auto manifest = read_manifest(txn, view, id);
  if (manifest.is_ok()) return manifest.value().meta.tenant == tenant;
  if (manifest.status().code() == BLEND_E_NOT_FOUND) return false;
  return manifest.status();
}

Status LmdbStore::remove_of(const Sha256& id, const TenantTag* tenant) {
  BLEND_RETURN_IF_ERROR(check_writable());
  if (tenant != nullptr) {
    BLEND_ASSIGN(const bool theirs, is_of(id, *tenant));
    if (!theirs) return no_such_chunk(id);
  }
  const bool was_queued = write_back_->cancel(id);
  common_->touches.forget(id);
  if (common_->ram != nullptr) common_->ram->drop(id);
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
  bool found = false;
  BLEND_RETURN_IF_ERROR(writer.erase(id, &found).with_context("remove"));
  if (!found) {
    return was_queued ? Status::ok() : no_such_chunk(id);
  }
  return writer.commit().with_context("remove chunk " + to_hex(id));
}

Result<StoreStat> LmdbStore::stat() {
  BLEND_ASSIGN(const Txn txn, env_.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  BLEND_ASSIGN(const StoreCounters counters, read_counters(txn, view, *common_));
  StoreStat s;
  s.n_chunks = counters.n_chunks;
  s.n_tokens = counters.n_tokens;
  s.bytes = counters.kv_bytes;
  s.codecs = counters.codecs;
  s.read_mode = common_->reader != nullptr ? common_->reader->mode() : ReadMode::mapped;
  s.stored_bytes = counters.footprint;
  s.file_bytes = env_.file_bytes();
  s.quota_bytes = options_.quota_bytes;
  // The subsets of all hits first, for each is counted after its hit.
  s.ram_hits = common_->ram_hits.load();
  s.variant_hits = common_->variant_hits.load();
  s.hits = std::max(common_->hits.load(), s.ram_hits);
  s.misses = common_->misses.load();
  s.damaged = common_->damaged.load();
  s.written = common_->written.load();
  s.write_errors = common_->write_errors.load();
  s.queue_bytes = write_back_->bytes();
  s.prefetched = prefetched_.load();
  if (common_->ram != nullptr) {
    const RamTier::Stat ram = common_->ram->stat();
    s.ram_bytes = ram.bytes;
    s.ram_chunks = ram.n_chunks;
    s.ram_budget_bytes = common_->ram->budget();
  }
  const UseIndex index(txn);
  s.totals = index.totals();
  const TextTotals texts = TextIndex(txn).totals();
  if (TextIndex::fits(texts, counters)) s.texts = texts;
  BLEND_ASSIGN(const auto span, index.span());
  s.oldest_use_us = span.first;
  s.newest_use_us = span.second;
  return s;
}

void LmdbStore::report_damage(const Sha256& id, const Status& status) {
  // Layer reads name their chunk already.
  const bool named = status.message().find(to_hex(id)) != std::string::npos;
  common_->damage(named ? status : status.with_context("chunk " + to_hex(id)));
}

Result<std::shared_ptr<Store>> open_lmdb_store(const std::string& path, const StoreOptions& options,
                                               EventSink events) {
  if (options.quota_bytes == 0 && !options.read_only) {
    return Status{BLEND_E_INVALID_ARGUMENT, "quota_bytes is 0: nothing could be stored"};
  }
  auto common = std::make_shared<StoreCommon>();
  const StoreModes modes = StoreModes::of(options.group);
  BLEND_ASSIGN(
      common->env,
      LmdbEnv::acquire(path, options.create && !options.read_only ? &modes : nullptr,
                       options.read_only, LmdbStore::map_bytes_for(options.quota_bytes, 0)));
  common->events = std::move(events);
  BLEND_ASSIGN(common->reader, make_page_reader(path + "/" + kDataFile, common->env->data_fd(),
                                                page_format::kConstantBytes, options.read_mode));
  common->cache_first = options.read_mode == ReadMode::best;
  auto store = std::make_shared<LmdbStore>(options, std::move(common));
  BLEND_RETURN_IF_ERROR(store->prepare());
  return std::shared_ptr<Store>(std::move(store));
}

}  // namespace blend
