// RemoteTier: chunks of a server that many machines share, above an engine that knows the server
// (engine.h). All that goes over the network goes on threads of the tier's own, so whoever waits
// for one of them waits as long as it likes and no longer.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/rate_meter.h"
#include "base/threads/guarded.h"
#include "store/chunk/stored_chunks.h"
#include "store/remote/arrival.h"
#include "store/remote/client/engine.h"
#include "store/remote/latency.h"
#include "store/remote/look_ups.h"
#include "store/remote/options.h"
#include "store/remote/record.h"
#include "store/store_admin.h"

namespace blend {

// Thread-safe. Must not be destroyed in a forked child (the threads are not there): leak it.
class RemoteTier {
 public:
  // What a chunk that has come whole is given to; called on a thread of the tier's.
  using OnComplete = std::function<void(const std::shared_ptr<Arrival>&)>;

  // INVALID_ARGUMENT, UNSUPPORTED. A server that is down is no error.
  static Result<std::unique_ptr<RemoteTier>> create(const RemoteOptions& options, Log log,
                                                    OnComplete on_complete);
  // For tests: over any engine.
  static Result<std::unique_ptr<RemoteTier>> create(const RemoteOptions& options,
                                                    std::unique_ptr<RemoteEngine> engine, Log log,
                                                    OnComplete on_complete);
  ~RemoteTier();
  RemoteTier(const RemoteTier&) = delete;
  RemoteTier& operator=(const RemoteTier&) = delete;

  std::chrono::milliseconds patience() const {
    return std::chrono::milliseconds(options_.timeout_ms);
  }

  // ---- For fuses: each waits for at most one timeout, and not at all while the server is down

  // What one fuse, or one batch, looks up, and the time that it has for that.
  std::shared_ptr<LookUps> new_look_ups() const;
  // Begins to look up what is not under way; find() waits for it.
  void expect(const std::shared_ptr<LookUps>& look_ups, std::span<const Sha256> ids);
  // The chunk's description; its bytes come once begin() is called. NOT_FOUND: whatever the reason,
  // and with ETIMEDOUT as its detail where the time of look_ups was over; counted. tenant: null,
  // whoever's. look_ups: null, it has one timeout for itself.
  Result<std::shared_ptr<Arrival>> find(const Sha256& id, const TenantTag* tenant,
                                        std::shared_ptr<LookUps> look_ups = nullptr);
  // Starts the transfer, if nobody has. `soon`: a fuse waits for it.
  void begin(const std::shared_ptr<Arrival>& arrival, bool soon = true);
  // Waits as Arrival::wait() does; a transfer that stands still closes the tier for a while.
  Status wait(Arrival& arrival, uint64_t offset, uint64_t bytes);
  // No longer to be found; those that have it go on.
  void forget(const Arrival& arrival);

  // ---- For background work and operators; on the caller's thread

  // Puts a chunk, segments first; *existed: it was there, whole, and its time to live is renewed.
  Status put(StoredChunk& chunk, bool* existed);
  // NOT_FOUND; CORRUPT and UNSUPPORTED as decode_record().
  Result<RemoteRecord> look_up(const Sha256& id);
  // Reads and checks every segment. CORRUPT: one is damaged or missing.
  Status verify(const RemoteRecord& record);
  Status remove(const Sha256& id);  // NOT_FOUND
  // Ids of the chunks there that this tier may see: all, or at most `most` of the first that it
  // names. Manifests that cannot be read are told to `problem` by their key. CORRUPT: the list goes
  // past a limit.
  using Problem = std::function<void(const std::string& key, const Status&)>;
  Result<std::vector<Sha256>> list(const Problem& problem, const ScanLimits& limits = {},
                                   size_t most = kAll);
  static constexpr size_t kAll = ~size_t{0};
  Status check() { return engine_->check(); }
  bool reachable() const { return !closed_for_a_while() && engine_->reachable(); }

  // Runs on a thread of the tier, behind what fuses wait for. False: too much waits, or the end.
  bool post(std::function<void()> job);
  // Bytes a second that segments came with, all connections together; 0: not known.
  double bytes_per_s() const { return rate_.per_second(); }
  double latency_s() const { return static_cast<double>(look_ups_.percentile_us(0.5)) * 1e-6; }
  void fill(RemoteStat& stat) const;
  void count_dropped() { dropped_.fetch_add(1, std::memory_order_relaxed); }

  // Ends what is under way, and its threads; everything fails from now on. Called by one thread.
  void stop();

 private:
  enum Lane : size_t { kLookUps, kSegments, kBackground, kLanes };
  struct Question;

  RemoteTier(const RemoteOptions& options, std::shared_ptr<const Encryptor> encryptor, Log log,
             OnComplete on_complete);
  Status start(std::unique_ptr<RemoteEngine> engine);
  void run();
  // turn: jobs of a lane go in its order, of one turn as they came.
  bool post_to(Lane lane, std::function<void()> job, uint64_t turn = 0);
  bool closed_for_a_while() const;
  void close_for_a_while(const char* why);
  void fail_all(const Status& why);  // of the arrivals
  Result<std::string> get_manifest(const Sha256& id);
  // What the engine gave for it, opened where it is sealed.
  Result<std::string> open_manifest(const Sha256& id, Result<std::string> bytes);
  void ask(const Question& question);
  std::shared_ptr<Arrival> under_way(const Sha256& id);  // null: it is not
  Result<std::shared_ptr<Arrival>> make_arrival(RemoteRecord record);
  Result<std::shared_ptr<Arrival>> find_there(const Sha256& id, const TenantTag* tenant,
                                              std::shared_ptr<LookUps> look_ups);
  void fetch_segment(const std::shared_ptr<Arrival>& arrival, uint32_t index);
  // Reads, opens and checks a segment of the record.
  Status read_segment(const RemoteRecord& record, uint32_t index, std::span<std::byte> out);
  Status put_value(const std::string& key, std::span<const Part> parts);
  Status put_manifest(const RemoteRecord& record);
  bool is_whole(const RemoteRecord& record);
  Status note(Status status);  // counts what the engine gave
  // Of a server, by the engine.
  void on_change(const std::string& server, const Status& why);
  void tell(const std::string& server, const Status& why);

  const RemoteOptions options_;
  const std::shared_ptr<const Encryptor> encryptor_;  // null: values are not sealed
  const RemoteKeys keys_;
  const Log log_;
  const OnComplete on_complete_;
  std::unique_ptr<RemoteEngine> engine_;
  const std::shared_ptr<std::atomic<uint64_t>> arriving_;  // bytes

  mutable Mutex mutex_;
  CondVar work_;
  struct Job {
    uint64_t turn;
    std::function<void()> run;
  };
  std::array<std::deque<Job>, kLanes> lanes_ BLEND_GUARDED_BY(mutex_);
  uint64_t turn_ BLEND_GUARDED_BY(mutex_) = 0;          // of the segment that was fetched last
  uint32_t n_background_ BLEND_GUARDED_BY(mutex_) = 0;  // at work
  bool stopped_ BLEND_GUARDED_BY(mutex_) = false;
  std::unordered_map<Sha256, std::weak_ptr<Arrival>, Sha256Hash> arrivals_ BLEND_GUARDED_BY(mutex_);
  std::atomic<int64_t> closed_until_ns_{0};
  // An outage is told once, by the wait that was too long or by the connection that broke.
  Mutex told_mutex_;
  SteadyTime server_told_at_ BLEND_GUARDED_BY(told_mutex_);    // of a connection
  bool told_by_a_wait_ BLEND_GUARDED_BY(told_mutex_) = false;  // and of no connection yet

  // What the rate is made of: bytes that came while any segment was under way.
  Mutex rate_mutex_;
  uint32_t n_under_way_ BLEND_GUARDED_BY(rate_mutex_) = 0;
  uint64_t came_bytes_ BLEND_GUARDED_BY(rate_mutex_) = 0;
  SteadyTime came_since_ BLEND_GUARDED_BY(rate_mutex_);
  RateMeter rate_;

  Latency look_ups_;
  Latency segments_;
  std::atomic<uint64_t> hits_{0}, misses_{0}, late_{0}, read_bytes_{0}, written_bytes_{0},
      written_{0}, existed_{0}, dropped_{0}, damaged_{0}, errors_{0}, downs_{0};
  std::vector<std::thread> threads_;
};

}  // namespace blend
