#include "store/remote/tiered_store.h"

#include <cerrno>
#include <new>
#include <utility>

#include "store/remote/remote_source.h"

namespace blend {
namespace {

constexpr size_t kMostUploads = 4096;
constexpr uint64_t kMeasuredBytes = 64ull << 20;

}  // namespace

// The store's snapshot, and behind it the remote tier.
class TieredStore::Snapshot final : public StoreSnapshot {
 public:
  Snapshot(RemoteTier& tier, std::unique_ptr<StoreSnapshot> below)
      : tier_(tier), below_(std::move(below)) {}
  ~Snapshot() override {
    if (look_ups_ != nullptr) look_ups_->leave();
  }
  Result<bool> holds(const Sha256& id) override { return below_->holds(id); }
  bool asks_others() const override { return true; }
  void expect(std::span<const Sha256> ids) override {
    std::vector<Sha256> far;
    for (const Sha256& id : ids) {
      auto here = below_->holds(id);
      if (here.is_ok() && !*here) far.push_back(id);
    }
    if (look_ups_ == nullptr) look_ups_ = tier_.new_look_ups();
    tier_.expect(look_ups_, far);
  }

 private:
  Result<std::unique_ptr<ChunkSource>> open_of(const Sha256& id, const TenantTag* tenant) override {
    auto found = tenant != nullptr ? below_->open(id, *tenant) : below_->open(id);
    const int32_t code = found.status().code();
    if (code != BLEND_E_NOT_FOUND && code != BLEND_E_CORRUPT) return found;
    auto arrival = tier_.find(id, tenant, look_ups_);
    if (!arrival.is_ok()) {
      const bool late = arrival.status().detail() == ETIMEDOUT && code == BLEND_E_NOT_FOUND;
      return late ? Result<std::unique_ptr<ChunkSource>>(arrival.status()) : std::move(found);
    }
    return make_remote_source(tier_, std::move(*arrival));
  }

  RemoteTier& tier_;
  const std::unique_ptr<StoreSnapshot> below_;
  std::shared_ptr<LookUps> look_ups_;  // of what is expected
};

Result<std::shared_ptr<Store>> TieredStore::create(const StoreOptions& options,
                                                   const RemoteOptions& remote, EventSink events,
                                                   const OpenStore& open) {
  std::shared_ptr<TieredStore> store(new TieredStore(options.read_only, remote.drain_ms, events));
  store->keeper_ = std::make_unique<Worker>();
  store->ahead_ = std::make_unique<Worker>();
  BLEND_ASSIGN(store->tier_,
               RemoteTier::create(remote, events, [s = store.get()](const auto& arrival) {
                 s->keep_later(arrival);
               }));
  StoreOptions below = options;
  below.on_put = [s = store.get()](const Sha256& id) { s->upload_later(id); };
  BLEND_ASSIGN(store->store_, open(below, std::move(events)));
  return std::shared_ptr<Store>(std::move(store));
}

TieredStore::~TieredStore() {
  if (!process_.is_this_process()) {
    // In a child the threads do not exist and their locks may be held for ever.
    (void)tier_.release();
    (void)keeper_.release();
    (void)ahead_.release();
    store_.reset();
    return;
  }
  hints_.fetch_add(1);
  try {
    // What waits to be written is written, and goes up as far as there is time.
    if (store_ != nullptr) (void)store_->flush();
    wait_for_uploads();
    size_t n_left = 0;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      n_left = uploads_.size();
    }
    if (n_left > 0 && events_) tell_given_up(n_left);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the tier is best effort
  }
  if (tier_ != nullptr) tier_->stop();  // no thread posts to the keeper any more
  ahead_.reset();                       // what it waited for has ended
  keeper_->drain();
  keeper_->stop();
  tier_.reset();
  keeper_.reset();
  store_.reset();
}

Status TieredStore::check_fork() const {
  if (process_.is_this_process()) return Status::ok();
  return {BLEND_E_FORKED, "the store was opened before fork(); open it anew in the child"};
}

Result<std::unique_ptr<StoreSnapshot>> TieredStore::snapshot() {
  BLEND_RETURN_IF_ERROR(check_fork());
  BLEND_ASSIGN(auto below, store_->snapshot());
  return std::unique_ptr<StoreSnapshot>(std::make_unique<Snapshot>(*tier_, std::move(below)));
}

Result<bool> TieredStore::contains(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(check_fork());
  BLEND_ASSIGN(const bool here, store_->contains(id));
  if (here || read_only_) return here;
  return fetch(id, nullptr).is_ok();
}

void TieredStore::report_damage(const Sha256& id, const Status& status) {
  store_->report_damage(id, status);
}

Status TieredStore::remove_of(const Sha256& id, const TenantTag* tenant) {
  BLEND_RETURN_IF_ERROR(check_fork());
  return tenant != nullptr ? store_->remove(id, *tenant) : store_->remove(id);
}

Status TieredStore::rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                              bool* changed) {
  BLEND_RETURN_IF_ERROR(check_fork());
  BLEND_RETURN_IF_ERROR(tenant != nullptr ? store_->rename(id, *tenant, name, changed)
                                          : store_->rename(id, name, changed));
  if (*changed) upload_later(id);
  return Status::ok();
}

Result<StoreStat> TieredStore::stat() {
  BLEND_RETURN_IF_ERROR(check_fork());
  BLEND_ASSIGN(StoreStat stat, store_->stat());
  tier_->fill(stat.remote);
  const std::lock_guard lock(mutex_);
  stat.remote.queued = uploads_.size();
  return stat;
}

// ---- Up

void TieredStore::upload_later(const Sha256& id) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      if (const auto it = uploads_.find(id); it != uploads_.end()) {
        it->second = true;
        return;
      }
      if (uploads_.size() >= kMostUploads) {
        tier_->count_dropped();
        return;
      }
      uploads_.emplace(id, false);
    }
    if (tier_->post([this, id] { upload_queued(id); })) return;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as where there is no room
  }
  tier_->count_dropped();
  const std::lock_guard lock(mutex_);
  uploads_.erase(id);
  uploaded_.notify_all();
}

void TieredStore::upload_queued(const Sha256& id) noexcept {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      uploads_.find(id)->second = false;
    }
    bool existed = false;
    Status status;
    try {
      status = upload(id, &existed);
    } catch (const std::bad_alloc&) {
      status = Status::out_of_memory();
    }
    if (!status.is_ok()) tier_->count_dropped();
    const std::lock_guard lock(mutex_);
    const auto it = uploads_.find(id);
    if (it->second) continue;  // it was called otherwise, or put again, meanwhile
    uploads_.erase(it);
    uploaded_.notify_all();
    return;
  }
}

Status TieredStore::upload(const Sha256& id, bool* existed) {
  BLEND_ASSIGN(const auto chunk, store_->stored(id));
  return tier_->put(*chunk, existed);
}

void TieredStore::wait_for_uploads() {
  std::unique_lock lock(mutex_);
  uploaded_.wait_for(lock, drain_, [&] { return uploads_.empty(); });
}

void TieredStore::tell_given_up(size_t n_chunks) const {
  events_(BLEND_E_CANCELLED, "remote tier: closing gave up " + std::to_string(n_chunks) +
                                 " chunks that had not got there within " +
                                 std::to_string(drain_.count()) +
                                 " ms; `blend store push` puts them there");
}

Status TieredStore::flush() {
  BLEND_RETURN_IF_ERROR(check_fork());
  Status status = store_->flush();
  wait_for_uploads();
  keeper_->drain();
  return status;
}

// ---- Down

Status TieredStore::keep(Arrival& arrival) {
  const StoredLayout& layout = arrival.layout();
  Status status = check_stream(layout, *arrival.stream());
  if (status.is_ok()) {
    BLEND_ASSIGN(const bool here, store_->contains(layout.meta.id));
    if (!here) status = store_->put_stored(layout, arrival.stream());
  }
  tier_->forget(arrival);
  return status;
}

void TieredStore::keep_later(const std::shared_ptr<Arrival>& arrival) {
  if (read_only_) return;
  // Where it cannot be kept it served its fuse all the same.
  const bool posted = keeper_->post([this, arrival] {
    const Status kept = keep(*arrival);
    if (!kept.is_ok() && events_) events_(kept.code(), kept.message());
  });
  if (!posted) tier_->forget(*arrival);
}

Status TieredStore::fetch(const Sha256& id, const TenantTag* tenant,
                          std::shared_ptr<LookUps> look_ups) {
  BLEND_ASSIGN(const auto arrival, tier_->find(id, tenant, std::move(look_ups)));
  tier_->begin(arrival, false);
  BLEND_RETURN_IF_ERROR(tier_->wait(*arrival, 0, arrival->layout().stream_bytes()));
  // The keeper may be at it: what is there already is left alone.
  return keep(*arrival);
}

Status TieredStore::hint(std::span<const Sha256> ids) {
  BLEND_RETURN_IF_ERROR(check_fork());
  const uint64_t number = hints_.fetch_add(1) + 1;
  BLEND_RETURN_IF_ERROR(store_->hint(ids));
  if (read_only_ || ids.empty() || !tier_->reachable()) return Status::ok();
  std::vector<Sha256> ahead(ids.begin(), ids.end());
  ahead_->post([this, ahead = std::move(ahead), number] { read_ahead(ahead, number); });
  return Status::ok();
}

void TieredStore::read_ahead(const std::vector<Sha256>& ids, uint64_t hint) {
  std::vector<Sha256> far;
  for (const Sha256& id : ids) {
    auto here = store_->contains(id);
    if (here.is_ok() && !*here) far.push_back(id);
  }
  const auto look_ups = std::make_shared<LookUps>(tier_->patience());
  tier_->expect(look_ups, far);
  bool any = false;
  for (const Sha256& id : far) {
    if (hints_.load() != hint || ahead_->stopping()) break;
    any = fetch(id, nullptr, look_ups).is_ok() || any;
  }
  look_ups->leave();
  // What has come since is read into memory with the rest.
  if (any && hints_.load() == hint) (void)store_->hint(ids);
}

// ---- Shelf

Status TieredStore::Shelf::check() {
  BLEND_RETURN_IF_ERROR(store_.check_fork());
  return store_.tier_->check();
}

Result<std::vector<Sha256>> TieredStore::Shelf::list(const Problem& problem) {
  BLEND_RETURN_IF_ERROR(store_.check_fork());
  return store_.tier_->list(problem);
}

Status TieredStore::Shelf::push(const Sha256& id, bool* existed) {
  BLEND_RETURN_IF_ERROR(store_.check_fork());
  return store_.upload(id, existed);
}

Status TieredStore::Shelf::pull(const Sha256& id, bool* existed) {
  BLEND_RETURN_IF_ERROR(store_.check_fork());
  *existed = false;
  if (store_.read_only_) return {BLEND_E_READ_ONLY, "the store was opened read-only"};
  BLEND_ASSIGN(*existed, store_.store_->contains(id));
  return *existed ? Status::ok() : store_.fetch(id, nullptr);
}

Status TieredStore::Shelf::verify(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(store_.check_fork());
  BLEND_ASSIGN(const RemoteRecord record, store_.tier_->look_up(id));
  return store_.tier_->verify(record);
}

Status TieredStore::Shelf::remove(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(store_.check_fork());
  return store_.tier_->remove(id);
}

Result<RemoteSpeed> TieredStore::Shelf::measure() {
  BLEND_RETURN_IF_ERROR(store_.check_fork());
  RemoteTier& tier = *store_.tier_;
  BLEND_RETURN_IF_ERROR(tier.check());
  BLEND_ASSIGN(const std::vector<Sha256> ids, tier.list([](const std::string&, const Status&) {}));
  uint64_t bytes = 0;
  Status last{BLEND_E_NOT_FOUND, "the remote tier has no chunk yet to measure by"};
  for (const Sha256& id : ids) {
    if (bytes >= kMeasuredBytes) break;
    auto arrival = tier.find(id, nullptr);
    if (!arrival.is_ok()) continue;  // evicted meanwhile
    tier.begin(*arrival);
    const uint64_t all = (*arrival)->layout().stream_bytes();
    Status came = tier.wait(**arrival, 0, all);
    if (came.is_ok()) {
      bytes += all;
    } else {
      last = std::move(came);
    }
    if (store_.read_only_) tier.forget(**arrival);  // or the keeper does
  }
  if (bytes == 0) return last;
  return RemoteSpeed{tier.bytes_per_s(), tier.latency_s()};
}

Result<std::shared_ptr<Store>> open_tiered_store(const std::string& path,
                                                 const StoreOptions& options,
                                                 const RemoteOptions& remote, EventSink events) {
  return TieredStore::create(options, remote, std::move(events),
                             [&](const StoreOptions& below, EventSink sink) {
                               return open_lmdb_store(path, below, std::move(sink));
                             });
}

}  // namespace blend
