#include "store/remote/server_link.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "store/remote/remote_source.h"

namespace blend {
namespace {

constexpr size_t kMostUploads = 4096;
// Limits of a measurement: it ends, whatever a server says.
constexpr uint64_t kMeasuredBytes = 64ull << 20;
constexpr size_t kMeasuredChunks = 1024;
constexpr std::chrono::seconds kMeasuredTime{60};
constexpr ScanLimits kMeasuredScan{1u << 14, 64ull << 20, kMeasuredTime};

// The disk's snapshot, and above it the remote tier.
class RemoteSnapshot final : public StoreSnapshot {
 public:
  RemoteSnapshot(RemoteTier& tier, std::unique_ptr<StoreSnapshot> below)
      : tier_(tier), below_(std::move(below)) {}
  ~RemoteSnapshot() override {
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

}  // namespace

Result<std::unique_ptr<RemoteLink>> RemoteLink::create(const RemoteOptions& remote, bool read_only,
                                                       Log log) {
  BLEND_ASSIGN(std::unique_ptr<RemoteLink> link,
               ServerLink::create(remote, read_only, std::move(log)));
  return link;
}

Result<std::unique_ptr<ServerLink>> ServerLink::create(const RemoteOptions& remote, bool read_only,
                                                       Log log) {
  std::unique_ptr<ServerLink> link(new ServerLink(read_only, remote.drain_ms, log));
  BLEND_ASSIGN(link->tier_,
               RemoteTier::create(remote, std::move(log), [l = link.get()](const auto& arrival) {
                 l->keep_later(arrival);
               }));
  return link;
}

ServerLink::~ServerLink() { close(); }

void ServerLink::close() {
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
  }
  hints_.fetch_add(1);
  try {
    wait_for_uploads();
    size_t n_left = 0;
    {
      const MutexLock lock(mutex_);
      closed_ = true;
      n_left = uploads_.size();
    }
    if (n_left > 0) tell_given_up(n_left);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the tier is best effort
  }
  if (tier_ != nullptr) tier_->stop();  // no thread posts to the keeper any more
  ahead_.stop();                        // what it waited for has ended
  keeper_.drain();
  keeper_.stop();
}

Status ServerLink::check_fork() const {
  if (process_.is_this_process()) return Status::ok();
  return {BLEND_E_FORKED, "the store was opened before fork(); open it again in the child"};
}

std::unique_ptr<StoreSnapshot> ServerLink::above(std::unique_ptr<StoreSnapshot> below) {
  return std::make_unique<RemoteSnapshot>(*tier_, std::move(below));
}

void ServerLink::fill(RemoteStat& stat) const {
  tier_->fill(stat);
  const MutexLock lock(mutex_);
  stat.queued = uploads_.size();
}

void ServerLink::flush() {
  wait_for_uploads();
  keeper_.drain();
}

// ---- Up

void ServerLink::upload_later(const Sha256& id) noexcept {
  try {
    {
      const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  uploads_.erase(id);
  uploaded_.notify_all();
}

void ServerLink::upload_queued(const Sha256& id) noexcept {
  for (;;) {
    {
      const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);
    const auto it = uploads_.find(id);
    if (it->second) continue;  // it was called otherwise, or put again, meanwhile
    uploads_.erase(it);
    uploaded_.notify_all();
    return;
  }
}

Status ServerLink::upload(const Sha256& id, bool* existed) {
  BLEND_ASSIGN(const auto chunk, disk_->stored(id));
  // A chunk is not written twice there, so a draft would stay.
  if (chunk->layout().meta.draft) {
    *existed = true;  // there is nothing to do
    return Status::ok();
  }
  return tier_->put(*chunk, existed);
}

void ServerLink::wait_for_uploads() {
  MutexLock lock(mutex_);
  uploaded_.wait_for(lock, drain_, [&]() BLEND_REQUIRES(mutex_) { return uploads_.empty(); });
}

void ServerLink::tell_given_up(size_t n_chunks) const {
  log_.write(BLEND_LOG_WARNING, BLEND_E_CANCELLED, "remote", [&](LogRecord& record) {
    record.message = "remote tier: closing gave up " + std::to_string(n_chunks) +
                     " chunks that had not got there within " + std::to_string(drain_.count()) +
                     " ms; `blend store push` puts them there";
    record.add("chunks", n_chunks);
  });
}

// ---- Down

Status ServerLink::keep(Arrival& arrival) {
  const StoredLayout& layout = arrival.layout();
  Status status = check_stream(layout, *arrival.stream());
  if (status.is_ok()) {
    BLEND_ASSIGN(const bool here, disk_->has(layout.meta.id));
    if (!here) status = disk_->put_stored(layout, arrival.stream());
  }
  tier_->forget(arrival);
  return status;
}

void ServerLink::keep_later(const std::shared_ptr<Arrival>& arrival) {
  if (read_only_) return;
  // Where it cannot be kept it served its fuse all the same.
  const bool posted = keeper_.post([this, arrival] {
    const Status kept = keep(*arrival);
    if (!kept.is_ok()) log_.write(BLEND_LOG_WARNING, "remote", kept);
  });
  if (!posted) tier_->forget(*arrival);
}

Status ServerLink::fetch(const Sha256& id, std::shared_ptr<LookUps> look_ups) {
  BLEND_ASSIGN(const auto arrival, tier_->find(id, nullptr, std::move(look_ups)));
  tier_->begin(arrival, false);
  BLEND_RETURN_IF_ERROR(tier_->wait(*arrival, 0, arrival->layout().stream_bytes()));
  // The keeper may be at it: what is there already is left alone.
  return keep(*arrival);
}

void ServerLink::hint(uint64_t number, std::span<const Sha256> ids, Came came) {
  if (read_only_ || ids.empty() || !tier_->reachable()) return;
  std::vector<Sha256> ahead(ids.begin(), ids.end());
  ahead_.post([this, ahead = std::move(ahead), number, came = std::move(came)] {
    read_ahead(ahead, number, came);
  });
}

void ServerLink::read_ahead(const std::vector<Sha256>& ids, uint64_t hint, const Came& came) {
  std::vector<Sha256> far;
  for (const Sha256& id : ids) {
    auto here = disk_->has(id);
    if (here.is_ok() && !*here) far.push_back(id);
  }
  const auto look_ups = std::make_shared<LookUps>(tier_->patience());
  tier_->expect(look_ups, far);
  bool any = false;
  for (const Sha256& id : far) {
    if (hints_.load() != hint || ahead_.stopping()) break;
    any = fetch(id, look_ups).is_ok() || any;
  }
  look_ups->leave();
  if (any && hints_.load() == hint) came(ids);
}

// ---- For operators

Status ServerLink::check() {
  BLEND_RETURN_IF_ERROR(check_fork());
  return tier_->check();
}

Result<std::vector<Sha256>> ServerLink::list(const Problem& problem) {
  BLEND_RETURN_IF_ERROR(check_fork());
  return tier_->list(problem);
}

Status ServerLink::push(const Sha256& id, bool* existed) {
  BLEND_RETURN_IF_ERROR(check_fork());
  return upload(id, existed);
}

Status ServerLink::pull(const Sha256& id, bool* existed) {
  BLEND_RETURN_IF_ERROR(check_fork());
  *existed = false;
  if (read_only_) return {BLEND_E_READ_ONLY, "the store was opened read-only"};
  BLEND_ASSIGN(*existed, disk_->has(id));
  return *existed ? Status::ok() : fetch(id, nullptr);
}

Status ServerLink::verify(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(check_fork());
  BLEND_ASSIGN(const RemoteRecord record, tier_->look_up(id));
  return tier_->verify(record);
}

Status ServerLink::remove(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(check_fork());
  return tier_->remove(id);
}

Result<RemoteSpeed> ServerLink::measure() {
  BLEND_RETURN_IF_ERROR(check_fork());
  RemoteTier& tier = *tier_;
  BLEND_RETURN_IF_ERROR(tier.check());
  BLEND_ASSIGN(const std::vector<Sha256> ids,
               tier.list([](const std::string&, const Status&) {}, kMeasuredScan, kMeasuredChunks));
  const SteadyTime end = std::chrono::steady_clock::now() + kMeasuredTime;
  const auto is_over = [&] { return std::chrono::steady_clock::now() >= end; };
  uint64_t bytes = 0;
  Status last{BLEND_E_NOT_FOUND, "the remote tier has no chunk yet to measure by"};
  for (const Sha256& id : ids) {
    if (bytes >= kMeasuredBytes || is_over()) break;
    auto arrival = tier.find(id, nullptr);
    if (!arrival.is_ok()) continue;  // evicted meanwhile
    tier.begin(*arrival);
    const uint64_t all = (*arrival)->layout().stream_bytes();
    const uint64_t step = (*arrival)->record().segment_bytes;
    Status came;
    for (uint64_t at = 0; at < all && came.is_ok(); at += step) {
      came = is_over() ? Status{BLEND_E_IO, "the remote tier is too slow to measure"}
                       : tier.wait(**arrival, at, std::min(step, all - at));
    }
    if (came.is_ok()) {
      bytes += all;
    } else {
      last = std::move(came);
    }
    if (read_only_) tier.forget(**arrival);  // or the keeper does
  }
  if (bytes == 0) return last;
  return RemoteSpeed{tier.bytes_per_s(), tier.latency_s()};
}

}  // namespace blend
