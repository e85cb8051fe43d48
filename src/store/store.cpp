#include "store/store.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "store/lmdb/catalog/catalog.h"
#include "store/lmdb/catalog/notes.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/directory.h"
#include "store/lmdb/page_format.h"
#include "store/lmdb/prefetch/prefetcher.h"
#include "store/lmdb/repair/compact.h"
#include "store/lmdb/repair/repair.h"
#include "store/lmdb/retention/retention.h"
#include "store/lmdb/snapshot/layer_reads.h"
#include "store/lmdb/store_common.h"
#include "store/lmdb/writer/writer.h"
#include "store/queue/worker.h"
#include "store/queue/write_back.h"
#include "store/remote/remote_link.h"

namespace blend {

Store::Store(const StoreOptions& options, std::unique_ptr<StoreCommon> common, LayerReads reads)
    : options_(options),
      common_(std::move(common)),
      worker_(std::make_unique<Worker>()),
      retention_(std::make_unique<Retention>(*common_, *worker_, options)),
      catalog_(std::make_unique<Catalog>(*common_, *retention_, std::move(reads))),
      writer_(std::make_unique<Writer>(*common_, *retention_, options,
                                       [this](const Sha256& id) {
                                         if (remote_ != nullptr) remote_->upload_later(id);
                                       })),
      prefetcher_(std::make_unique<Prefetcher>(*common_, *retention_, *worker_, options)),
      write_back_(std::make_unique<WriteBack>(
          WriteBack::Limits{.queue_bytes = options.queue_bytes},
          [this](WriteBack::Batch batch, std::span<Status> statuses) {
            std::vector<Writer::Record> records;
            records.reserve(batch.size());
            for (const auto& record : batch) records.push_back({record.get(), record});
            writer_->write_all(records, statuses);
          },
          [this](const Status& s) {
            common_->write_errors.fetch_add(1, std::memory_order_relaxed);
            common_->log.write(BLEND_LOG_ERROR, "store", s);
          })) {}

Store::~Store() {
  if (common_->env->forked()) {
    // In a child the threads do not exist and their mutexes may be locked for ever.
    (void)remote_.release();
    (void)write_back_.release();
    (void)worker_.release();
    return;
  }
  if (remote_ != nullptr) {
    // What waits to be written is written, and is uploaded as far as there is time.
    try {
      (void)write_back_->flush();
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the tier is best effort
    }
    remote_->close();
    remote_.reset();
  }
  worker_->stop();  // before the parts whose tasks it runs
  write_back_.reset();
  try {
    (void)retention_->write_touches();
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): best effort, stamps only
                                     // order later evictions
  }
}

Result<std::unique_ptr<StoreSnapshot>> Store::snapshot() {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  // Before the transaction begins: it sees records that have left the queue by then.
  BLEND_ASSIGN(auto here, catalog_->snapshot(write_back_->pending()));
  if (remote_ == nullptr) return here;
  return remote_->above(std::move(here));
}

Result<bool> Store::has(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  if (write_back_->find(id) != nullptr) return true;
  return catalog_->contains(id);
}

Result<bool> Store::contains(const Sha256& id) {
  BLEND_ASSIGN(const bool here, has(id));
  if (here || remote_ == nullptr || options_.read_only) return here;
  return remote_->bring(id).is_ok();
}

Status Store::put(const ChunkRecord& record) {
  BLEND_RETURN_IF_ERROR(common_->check_writable());
  BLEND_RETURN_IF_ERROR(check_record(record));
  write_back_->cancel(record.meta.id);  // or an older one would be written over this
  return writer_->write(record);
}

Status Store::put_async(std::shared_ptr<const ChunkRecord> record) {
  BLEND_RETURN_IF_ERROR(common_->check_writable());
  if (record == nullptr) return {BLEND_E_INVALID_ARGUMENT, "there is no record to put"};
  BLEND_RETURN_IF_ERROR(check_record(*record));
  return write_back_->push(std::move(record));
}

Status Store::flush() {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  Status status = write_back_->flush();
  if (remote_ != nullptr) remote_->flush();
  return status;
}

Status Store::wait(const Sha256& id, Deadline deadline, bool* pending) {
  *pending = false;
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  const std::optional<Status> outcome = write_back_->outcome(id, deadline);
  if (!outcome.has_value()) {
    *pending = true;
    return Status::ok();
  }
  BLEND_RETURN_IF_ERROR(*outcome);
  BLEND_ASSIGN(const bool stored, has(id));
  if (stored) return Status::ok();
  return make_error(
      BLEND_E_NOT_FOUND,
      "chunk %s is neither stored nor on its way: it was never put, or it was removed "
      "or evicted since",
      to_hex(id).c_str());
}

Status Store::copy_to(const std::string& path) {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  write_back_->drain();
  return copy_compact(*common_->env, path);
}

Result<bool> Store::is_of(const Sha256& id, const TenantTag& tenant) {
  if (const auto queued = write_back_->find(id); queued != nullptr) {
    return queued->meta.tenant == tenant;
  }
  return catalog_->is_of(id, tenant);
}

Status Store::remove_of(const Sha256& id, const TenantTag* tenant) {
  BLEND_RETURN_IF_ERROR(common_->check_writable());
  if (tenant != nullptr) {
    BLEND_ASSIGN(const bool theirs, is_of(id, *tenant));
    if (!theirs) return no_such_chunk(id);
  }
  return writer_->remove(id, write_back_->cancel(id));
}

Status Store::rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                        bool* changed) {
  *changed = false;
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  if (write_back_->find(id) != nullptr) write_back_->drain();
  BLEND_RETURN_IF_ERROR(catalog_->rename(id, tenant, name, changed));
  if (*changed && remote_ != nullptr) remote_->upload_later(id);
  return Status::ok();
}

Status Store::for_each_used(bool verify, const VisitUsed& fn) {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  write_back_->drain();  // so that chunks just put are listed
  return catalog_->for_each_used(verify, fn);
}

Status Store::repair(const Visit& fn, uint64_t* n_removed) {
  *n_removed = 0;
  BLEND_RETURN_IF_ERROR(common_->check_writable());
  write_back_->drain();
  return repair_store(
      *common_, *catalog_, [this](const Sha256& id) { return remove(id); }, fn, n_removed);
}

Status Store::evict(uint64_t target_bytes, uint64_t* n_evicted) {
  *n_evicted = 0;
  BLEND_RETURN_IF_ERROR(common_->check_writable());
  write_back_->drain();
  return retention_->evict(target_bytes, n_evicted);
}

Status Store::pin(const Sha256& id, bool pinned) {
  BLEND_RETURN_IF_ERROR(common_->check_writable());
  if (write_back_->find(id) != nullptr) write_back_->drain();
  return retention_->pin(id, pinned);
}

Status Store::put_stored(const StoredLayout& layout, std::shared_ptr<const AlignedBuffer> stream) {
  BLEND_RETURN_IF_ERROR(common_->check_writable());
  write_back_->cancel(layout.meta.id);
  return writer_->put_stored(layout, stream);
}

Result<StoreStat> Store::stat() {
  StoreStat s;
  BLEND_RETURN_IF_ERROR(catalog_->fill(s));
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
  s.prefetched = prefetcher_->n_prefetched();
  if (common_->ram != nullptr) {
    const RamTier::Stat ram = common_->ram->stat();
    s.ram_bytes = ram.bytes;
    s.ram_chunks = ram.n_chunks;
    s.ram_budget_bytes = common_->ram->budget();
  }
  if (remote_ != nullptr) remote_->fill(s.remote);
  return s;
}

void Store::report_damage(const Sha256& id, const Status& status) {
  // Layer reads name their chunk already.
  const bool named = status.message().find(to_hex(id)) != std::string::npos;
  common_->damage(named ? status : status.with_context("chunk " + to_hex(id)));
}

void Store::count_variant() { common_->variant_hits.fetch_add(1, std::memory_order_relaxed); }

Result<UseRecord> Store::use(const Sha256& id) { return retention_->use(id); }

Status Store::hint(std::span<const Sha256> ids) {
  const uint64_t number = remote_ == nullptr ? 0 : remote_->begin_hint();
  BLEND_RETURN_IF_ERROR(prefetcher_->hint(ids));
  if (remote_ == nullptr) return Status::ok();
  // What has come since is read into memory with the rest.
  remote_->hint(number, ids, [this](std::span<const Sha256> all) { (void)prefetcher_->hint(all); });
  return Status::ok();
}

Status Store::set_layer_steps(const Sha256& fingerprint, std::vector<float> steps) {
  return writer_->set_layer_steps(fingerprint, std::move(steps));
}

Status Store::set_tenant_quota(const TenantTag& tenant, uint64_t bytes) {
  return retention_->set_tenant_quota(tenant, bytes);
}

Result<TenantUse> Store::tenant(const TenantTag& tenant) { return retention_->tenant(tenant); }

Result<std::unique_ptr<StoredChunk>> Store::stored(const Sha256& id) {
  return catalog_->stored(id);
}

Result<std::vector<Note>> Store::notes(std::string_view prefix) {
  return read_notes(*common_->env, prefix);
}

Status Store::change_note(std::string_view name, const Change& change) {
  return blend::change_note(*common_, name, change);
}

RemoteAdmin* Store::remote() { return remote_.get(); }

void Store::wait_for_reading_ahead() { worker_->drain(); }

Result<std::shared_ptr<Store>> Store::open(const std::string& path, const StoreOptions& options,
                                           Log log) {
  return open_with(path, options, std::move(log), nullptr);
}

Result<std::shared_ptr<Store>> Store::open(const std::string& path, const StoreOptions& options,
                                           const RemoteOptions& remote, Log log) {
  BLEND_ASSIGN(auto link, RemoteLink::create(remote, options.read_only, log));
  return open_with(path, options, std::move(log), std::move(link));
}

Result<std::shared_ptr<Store>> Store::open_with(const std::string& path,
                                                const StoreOptions& options, Log log,
                                                std::unique_ptr<RemoteLink> remote) {
  if (options.quota_bytes == 0 && !options.read_only) {
    return Status{BLEND_E_INVALID_ARGUMENT, "quota_bytes is 0: nothing could be stored"};
  }
  auto common = std::make_unique<StoreCommon>();
  const StoreModes modes = StoreModes::of(options.group);
  BLEND_ASSIGN(common->env,
               LmdbEnv::acquire(path, options.create && !options.read_only ? &modes : nullptr,
                                options.read_only, map_bytes_for(options.quota_bytes, 0)));
  common->log = std::move(log);
  common->read_only = options.read_only;
  if (options.ram_bytes > 0) {
    common->ram = std::make_shared<RamTier>(options.ram_bytes, options.host_memory);
  }
  LayerReads reads;
  BLEND_ASSIGN(reads.reader, make_page_reader(path + "/" + kDataFile, common->env->data_fd(),
                                              page_format::kConstantBytes, options.read_mode));
  reads.cache_first = options.read_mode == ReadMode::best;
  std::shared_ptr<Store> store(new Store(options, std::move(common), std::move(reads)));
  BLEND_RETURN_IF_ERROR(store->retention_->prepare());
  if (remote != nullptr) {
    remote->serve(*store);
    store->remote_ = std::move(remote);
  }
  return store;
}

}  // namespace blend
