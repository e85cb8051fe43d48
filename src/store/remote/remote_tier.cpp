#include "store/remote/remote_tier.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <new>
#include <system_error>
#include <utility>

#include "base/threads/start_thread.h"
#include "store/remote/client/redis.h"
#include "store/remote/encrypted_value.h"

namespace blend {
namespace {

constexpr size_t kMostBackground = 8192;
constexpr size_t kAskedAtOnce = 64;  // manifests, on one connection
constexpr size_t kMostListed = 4u << 20;
constexpr uint64_t kRateBytes = 32ull << 20;  // after so many the rate is told again

uint64_t us_since(SteadyTime begin) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::steady_clock::now() - begin)
                                   .count());
}

// Damage is not handed on.
Status check_layers(StoredChunk& chunk) {
  for (const LayerExtent& e : chunk.layout().layers) {
    ByteSpans parts;
    BLEND_RETURN_IF_ERROR(chunk.find(e.offset, e.length, parts));
    Checksum64 sum;
    for (const auto& part : parts) sum.add(part.data(), part.size());
    if (sum.value() != e.checksum) {
      return make_error(BLEND_E_CORRUPT, "chunk %s is damaged on disk",
                        to_hex(chunk.layout().meta.id).c_str());
    }
  }
  return Status::ok();
}

// The encryptor has what it needs of it.
RemoteOptions without_seal_key(RemoteOptions options) {
  options.seal_key = {};
  return options;
}

Status not_there() { return {BLEND_E_NOT_FOUND, "the remote tier does not have the chunk"}; }

Status late() {
  return {BLEND_E_NOT_FOUND, "the remote tier did not say in time whether it has the chunk",
          ETIMEDOUT};
}

}  // namespace

// What a thread of the tier asks in one go. Whatever became of it, who waits gets an answer.
struct RemoteTier::Question {
  Question(std::shared_ptr<LookUps> of, std::vector<Sha256> asked)
      : look_ups(std::move(of)), ids(std::move(asked)) {}
  ~Question() {
    try {
      for (const Sha256& id : ids) look_ups->answer(id, not_there());
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it waits for its time then
    }
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  const std::shared_ptr<LookUps> look_ups;
  const std::vector<Sha256> ids;
};

Result<std::unique_ptr<RemoteTier>> RemoteTier::create(const RemoteOptions& options, Log log,
                                                       OnComplete on_complete) {
  return create(options, nullptr, std::move(log), std::move(on_complete));
}

Result<std::unique_ptr<RemoteTier>> RemoteTier::create(const RemoteOptions& options,
                                                       std::unique_ptr<RemoteEngine> engine,
                                                       Log log, OnComplete on_complete) {
  std::shared_ptr<const Encryptor> encryptor;
  if (!options.seal_key.empty()) {
    BLEND_ASSIGN(encryptor, Encryptor::create(options.seal_key.view()));
  }
  std::unique_ptr<RemoteTier> tier(
      new RemoteTier(options, std::move(encryptor), std::move(log), std::move(on_complete)));
  BLEND_RETURN_IF_ERROR(tier->start(std::move(engine)));
  return tier;
}

RemoteTier::RemoteTier(const RemoteOptions& options, std::shared_ptr<const Encryptor> encryptor,
                       Log log, OnComplete on_complete)
    : options_(without_seal_key(options)),
      encryptor_(std::move(encryptor)),
      keys_(options.space, encryptor_.get()),
      log_(std::move(log)),
      on_complete_(std::move(on_complete)),
      arriving_(std::make_shared<std::atomic<uint64_t>>(0)) {}

Status RemoteTier::start(std::unique_ptr<RemoteEngine> engine) {
  engine_ = std::move(engine);
  if (engine_ == nullptr) {
    BLEND_ASSIGN(engine_, RedisEngine::create(options_,
                                              [this](const std::string& server, const Status& why) {
                                                on_change(server, why);
                                              }));
  }
  try {
    while (threads_.size() < std::max(1u, options_.n_connections)) {
      threads_.push_back(start_thread([this] { run(); }));
    }
  } catch (const std::system_error& e) {
    if (threads_.empty()) {
      return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the remote tier's threads: %s",
                        e.what());
    }
  }
  return Status::ok();
}

RemoteTier::~RemoteTier() { stop(); }

void RemoteTier::stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    for (auto& lane : lanes_) lane.clear();
  }
  work_.notify_all();
  if (engine_ != nullptr) engine_->stop();
  fail_all({BLEND_E_CANCELLED, "the store is being closed"});
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void RemoteTier::fail_all(const Status& why) {
  std::vector<std::shared_ptr<Arrival>> arrivals;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, arrival] : arrivals_) {
      if (auto alive = arrival.lock()) arrivals.push_back(std::move(alive));
    }
  }
  for (const auto& arrival : arrivals) arrival->fail(why);
}

void RemoteTier::on_change(const std::string& server, const Status& why) {
  {
    const MutexLock lock(told_mutex_);
    const bool down = !why.is_ok();
    if (down) server_told_at_ = std::chrono::steady_clock::now();
    // Whoever waited for it may have told of it just before.
    if (std::exchange(told_by_a_wait_, false) && down && closed_for_a_while()) return;
  }
  tell(server, why);
}

void RemoteTier::tell(const std::string& server, const Status& why) {
  if (!why.is_ok()) downs_.fetch_add(1, std::memory_order_relaxed);
  const bool up = why.is_ok();
  log_.write(up ? BLEND_LOG_INFO : BLEND_LOG_WARNING,
             up ? BLEND_EVENT_REMOTE_UP : BLEND_EVENT_REMOTE_DOWN, "remote",
             [&](LogRecord& record) {
               record.message = up ? "remote tier: " + server + " answers again"
                                   : "remote tier: " + why.message() +
                                         "; chunks of it are misses until it answers";
               record.add("server", server);
             });
}

Status RemoteTier::note(Status status) {
  if (!status.is_ok() && status.code() != BLEND_E_NOT_FOUND) {
    errors_.fetch_add(1, std::memory_order_relaxed);
  }
  return status;
}

// ---- Its threads

bool RemoteTier::post_to(Lane lane, std::function<void()> job, uint64_t turn) {
  {
    const MutexLock lock(mutex_);
    auto& jobs = lanes_[lane];
    if (stopped_ || (lane == kBackground && jobs.size() >= kMostBackground)) return false;
    auto at = jobs.end();
    while (at != jobs.begin() && std::prev(at)->turn > turn) --at;
    jobs.insert(at, {turn, std::move(job)});
  }
  work_.notify_one();
  return true;
}

bool RemoteTier::post(std::function<void()> job) { return post_to(kBackground, std::move(job)); }

void RemoteTier::run() {
  // Somebody is always free for what a fuse waits for.
  const uint32_t most_background = std::max(1u, options_.n_connections / 2);
  MutexLock lock(mutex_);
  for (;;) {
    const auto next = [&]() BLEND_REQUIRES(mutex_) -> std::deque<Job>* {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        if (lane == kBackground && n_background_ >= most_background) continue;
        if (!lanes_[lane].empty()) return &lanes_[lane];
      }
      return nullptr;
    };
    work_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return stopped_ || next() != nullptr; });
    if (stopped_) return;
    auto* const lane = next();
    const Job job = std::move(lane->front());
    lane->pop_front();
    if (lane == &lanes_[kSegments]) turn_ = job.turn;
    const bool background = lane == &lanes_[kBackground];
    n_background_ += background ? 1 : 0;
    lock.unlock();
    try {
      job.run();
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): who waits gives up
    }
    lock.lock();
    n_background_ -= background ? 1 : 0;
    if (background) work_.notify_one();
  }
}

// ---- Patience

bool RemoteTier::closed_for_a_while() const {
  const int64_t until = closed_until_ns_.load(std::memory_order_relaxed);
  return until != 0 && std::chrono::steady_clock::now().time_since_epoch().count() < until;
}

void RemoteTier::close_for_a_while(const char* why) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.retry_ms);
  {
    const MutexLock lock(told_mutex_);
    const bool was_closed = closed_for_a_while();
    closed_until_ns_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
    const auto since = std::chrono::steady_clock::now() - server_told_at_;
    if (was_closed || since < std::chrono::milliseconds(options_.timeout_ms)) return;
    told_by_a_wait_ = true;
  }
  tell("the server", Status{BLEND_E_IO, why});
}

// ---- For fuses

Result<std::string> RemoteTier::open_manifest(const Sha256& id, Result<std::string> bytes) {
  if (!bytes.is_ok()) return note(bytes.status());
  if (encryptor_ == nullptr) return bytes;
  std::string& value = *bytes;
  if (value.size() < kNonceBytes + kTagBytes) return Status{BLEND_E_CORRUPT, "a manifest is cut"};
  auto* const at = reinterpret_cast<std::byte*>(value.data());
  const size_t n = value.size() - kNonceBytes - kTagBytes;
  BLEND_RETURN_IF_ERROR(
      note(encryptor_->open({at + kNonceBytes, n}, keys_.manifest(id), at, at + kNonceBytes + n)));
  return value.substr(kNonceBytes, n);
}

Result<std::string> RemoteTier::get_manifest(const Sha256& id) {
  const SteadyTime begin = std::chrono::steady_clock::now();
  auto bytes = engine_->get(keys_.manifest(id), kMostManifestBytes);
  if (bytes.is_ok() || bytes.status().code() == BLEND_E_NOT_FOUND) look_ups_.add(us_since(begin));
  return open_manifest(id, std::move(bytes));
}

Result<RemoteRecord> RemoteTier::look_up(const Sha256& id) {
  BLEND_ASSIGN(const std::string manifest, get_manifest(id));
  return decode_record(std::as_bytes(std::span(manifest)), id);
}

Result<std::shared_ptr<Arrival>> RemoteTier::make_arrival(RemoteRecord record) {
  const uint64_t bytes = record.layout.stream_bytes();
  // Taken before, not after: a chunk for which there is no room is computed.
  RoomFor room(arriving_, bytes);
  if (room.all() > options_.most_bytes) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return not_there();
  }
  BLEND_ASSIGN(AlignedBuffer stream, AlignedBuffer::allocate(bytes));
  const Sha256 id = record.layout.meta.id;
  auto arrival = std::make_shared<Arrival>(std::move(record), std::move(stream), std::move(room));
  const MutexLock lock(mutex_);
  if (stopped_) return not_there();
  std::erase_if(arrivals_, [](const auto& entry) { return entry.second.expired(); });
  const auto [there, is_new] = arrivals_.emplace(id, arrival);
  if (is_new) return arrival;
  // Somebody else was as fast.
  if (auto other = there->second.lock(); other != nullptr && !other->failed()) return other;
  there->second = arrival;
  return arrival;
}

std::shared_ptr<LookUps> RemoteTier::new_look_ups() const {
  const uint32_t ms = options_.fuse_ms != 0 ? options_.fuse_ms : (options_.timeout_ms + 1) / 2;
  return std::make_shared<LookUps>(std::chrono::milliseconds(ms));
}

std::shared_ptr<Arrival> RemoteTier::under_way(const Sha256& id) {
  const MutexLock lock(mutex_);
  const auto it = arrivals_.find(id);
  if (it == arrivals_.end()) return nullptr;
  auto arrival = it->second.lock();
  return arrival == nullptr || arrival->failed() ? nullptr : arrival;
}

void RemoteTier::expect(const std::shared_ptr<LookUps>& look_ups, std::span<const Sha256> ids) {
  if (!reachable()) return;
  std::map<size_t, std::vector<Sha256>> groups;  // by server: each is asked on its own
  for (const Sha256& id : ids) {
    if (under_way(id) != nullptr || !look_ups->expect(id)) continue;
    groups[engine_->group_of(keys_.manifest(id))].push_back(id);
  }
  for (const auto& [server, of_group] : groups) {
    for (size_t at = 0; at < of_group.size(); at += kAskedAtOnce) {
      const auto first = of_group.begin() + static_cast<std::ptrdiff_t>(at);
      const size_t n = std::min(kAskedAtOnce, of_group.size() - at);
      const auto question = std::make_shared<Question>(
          look_ups, std::vector<Sha256>(first, first + static_cast<std::ptrdiff_t>(n)));
      (void)post_to(kLookUps, [this, question] { ask(*question); });
    }
  }
}

void RemoteTier::ask(const Question& question) {
  LookUps& look_ups = *question.look_ups;
  if (!look_ups.wanted()) return;
  std::vector<std::string> keys;
  for (const Sha256& id : question.ids) keys.push_back(keys_.manifest(id));
  const SteadyTime begin = std::chrono::steady_clock::now();
  bool first = true;
  engine_->get_all(keys, kMostManifestBytes, [&](size_t i, Result<std::string> value) {
    const bool answered = value.is_ok() || value.status().code() == BLEND_E_NOT_FOUND;
    // What the others took, too, is their server's rate.
    if (std::exchange(first, false) && answered) look_ups_.add(us_since(begin));
    look_ups.answer(question.ids[i], open_manifest(question.ids[i], std::move(value)));
    return look_ups.wanted();
  });
}

Result<std::shared_ptr<Arrival>> RemoteTier::find_there(const Sha256& id, const TenantTag* tenant,
                                                        std::shared_ptr<LookUps> look_ups) {
  const auto theirs = [&](const ChunkMeta& meta) {
    return tenant != nullptr && meta.tenant != *tenant;
  };
  if (auto arrival = under_way(id); arrival != nullptr) {
    if (theirs(arrival->layout().meta)) return not_there();
    return arrival;
  }
  if (look_ups == nullptr) look_ups = std::make_shared<LookUps>(patience());
  if (!look_ups->expects(id)) expect(look_ups, {&id, 1});
  if (!look_ups->expects(id)) return not_there();  // it is not reached
  auto manifest = look_ups->wait(id);
  if (!manifest.has_value()) {
    if (!look_ups->any_answered()) close_for_a_while("a look-up was not answered in time");
    return late();
  }
  if (!manifest->is_ok()) return manifest->status();
  auto record = decode_record(std::as_bytes(std::span(**manifest)), id);
  if (!record.is_ok()) {
    damaged_.fetch_add(1, std::memory_order_relaxed);
    return record.status();
  }
  if (theirs(record->layout.meta)) return not_there();
  return make_arrival(std::move(*record));
}

Result<std::shared_ptr<Arrival>> RemoteTier::find(const Sha256& id, const TenantTag* tenant,
                                                  std::shared_ptr<LookUps> look_ups) {
  auto arrival = find_there(id, tenant, std::move(look_ups));
  (arrival.is_ok() ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed);
  if (arrival.is_ok()) return arrival;
  const Status& why = arrival.status();
  if (why.code() != BLEND_E_NOT_FOUND || why.detail() != ETIMEDOUT) return not_there();
  late_.fetch_add(1, std::memory_order_relaxed);
  return why;
}

void RemoteTier::begin(const std::shared_ptr<Arrival>& arrival, bool soon) {
  if (!arrival->begin()) return;
  // The chunks of a fuse come side by side, the first layers of all before the second ones of any,
  // as it needs them. From where the others are by now, so that nobody starves.
  uint64_t turn = 0;
  if (soon) {
    const MutexLock lock(mutex_);
    turn = turn_;
  }
  for (uint32_t i = 0; i < arrival->record().n_segments(); ++i) {
    if (!post_to(
            soon ? kSegments : kBackground, [this, arrival, i] { fetch_segment(arrival, i); },
            soon ? turn + i : 0)) {
      arrival->fail({BLEND_E_CANCELLED, "the remote tier has too much to do, or is closed"});
      return;
    }
  }
}

Status RemoteTier::wait(Arrival& arrival, uint64_t offset, uint64_t bytes) {
  bool gave_up = false;
  Status status = arrival.wait(offset, bytes, patience(), &gave_up);
  if (gave_up) {
    close_for_a_while("a chunk did not come in time");
    // Or a fuse would wait as long for each of its chunks.
    fail_all(status);
  }
  return status;
}

void RemoteTier::forget(const Arrival& arrival) {
  const MutexLock lock(mutex_);
  const auto it = arrivals_.find(arrival.layout().meta.id);
  if (it == arrivals_.end()) return;
  const auto there = it->second.lock();
  if (there == nullptr || there.get() == &arrival) arrivals_.erase(it);
}

Status RemoteTier::read_segment(const RemoteRecord& record, uint32_t index,
                                std::span<std::byte> out) {
  const Sha256& id = record.layout.meta.id;
  const std::string key = keys_.segment(id, record.version, index);
  if (encryptor_ == nullptr) {
    const Place place{out.data(), out.size()};
    BLEND_RETURN_IF_ERROR(engine_->get_into(key, {&place, 1}));
  } else {
    std::byte nonce[kNonceBytes];
    std::byte tag[kTagBytes];
    const Place places[] = {{nonce, sizeof nonce}, {out.data(), out.size()}, {tag, sizeof tag}};
    BLEND_RETURN_IF_ERROR(engine_->get_into(key, places));
    BLEND_RETURN_IF_ERROR(encryptor_->open(out, key, nonce, tag));
  }
  if (checksum64(out.data(), out.size()) != record.checksums[index]) {
    return {BLEND_E_CORRUPT, "a segment's checksum does not match"};
  }
  return Status::ok();
}

void RemoteTier::fetch_segment(const std::shared_ptr<Arrival>& arrival, uint32_t index) {
  if (arrival->failed()) return;
  const SteadyTime begin = std::chrono::steady_clock::now();
  {
    const MutexLock lock(rate_mutex_);
    if (n_under_way_++ == 0) {
      came_since_ = begin;
      came_bytes_ = 0;
    }
  }
  const std::span<std::byte> out = arrival->segment(index);
  const Status read = read_segment(arrival->record(), index, out);
  {
    const MutexLock lock(rate_mutex_);
    if (read.is_ok()) came_bytes_ += out.size();
    const SteadyTime now = std::chrono::steady_clock::now();
    if (--n_under_way_ == 0 || came_bytes_ >= kRateBytes) {
      rate_.add(came_bytes_, static_cast<uint64_t>((now - came_since_).count()));
      came_since_ = now;
      came_bytes_ = 0;
    }
  }
  if (read.is_ok()) {
    segments_.add(us_since(begin));
    read_bytes_.fetch_add(out.size(), std::memory_order_relaxed);
    arrival->arrived(index, [&] { on_complete_(arrival); });
    return;
  }
  const int32_t code = read.code();
  if (!arrival->failed()) (void)note(read);
  arrival->fail(read);
  if (code != BLEND_E_NOT_FOUND && code != BLEND_E_CORRUPT) return;
  // Evicted or damaged: without its manifest the chunk is put again by whoever computes it.
  damaged_.fetch_add(1, std::memory_order_relaxed);
  (void)engine_->remove(keys_.manifest(arrival->layout().meta.id));
}

// ---- Putting

Status RemoteTier::put_value(const std::string& key, std::span<const Part> parts) {
  const uint64_t bytes = PartsValue(parts).bytes();
  Status put;
  if (encryptor_ == nullptr) {
    PartsValue value(parts);
    put = engine_->put(key, value);
  } else {
    EncryptedValue value(*encryptor_, parts, key);
    put = engine_->put(key, value);
  }
  if (put.is_ok()) written_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return note(put);
}

Status RemoteTier::put_manifest(const RemoteRecord& record) {
  const std::string manifest = encode_record(record);
  const Part whole = std::as_bytes(std::span(manifest));
  return put_value(keys_.manifest(record.layout.meta.id), {&whole, 1});
}

bool RemoteTier::is_whole(const RemoteRecord& record) {
  const uint64_t more = encryptor_ == nullptr ? 0 : kNonceBytes + kTagBytes;
  for (uint32_t i = 0; i < record.n_segments(); ++i) {
    auto n = engine_->length(keys_.segment(record.layout.meta.id, record.version, i));
    if (!n.is_ok() || *n != record.bytes_of(i) + more) return false;
  }
  return true;
}

Status RemoteTier::put(StoredChunk& chunk, bool* existed) {
  *existed = false;
  const Sha256& id = chunk.layout().meta.id;
  // Closed for the fuses' sake it may still be well enough for what nobody waits for.
  if (!engine_->reachable()) return {BLEND_E_IO, "the remote tier is not reached"};
  auto there = look_up(id);
  const int32_t code = there.status().code();
  // Of another release: both would put it again and again.
  if (code == BLEND_E_UNSUPPORTED || code == BLEND_E_IO || code == BLEND_E_CANCELLED) {
    return there.status();
  }
  if (there.is_ok() && is_whole(*there)) {
    existed_.fetch_add(1, std::memory_order_relaxed);
    *existed = true;
    const ChunkName& name = chunk.layout().meta.name;
    if (name.says_no_more_than(there->layout.meta.name)) return Status::ok();
    // It is called otherwise here: the rows stay there.
    const ChunkName before = std::exchange(there->layout.meta.name, name);
    there->layout.meta.name.complete_with(before);
    return put_manifest(*there);
  }
  BLEND_RETURN_IF_ERROR(check_layers(chunk));
  RemoteRecord record;
  record.layout = chunk.layout();
  record.version = record.layout.version();
  record.segment_bytes = options_.segment_bytes;
  const uint32_t n = count_segments(record.layout.stream_bytes(), record.segment_bytes);
  record.checksums.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    ByteSpans parts;
    BLEND_RETURN_IF_ERROR(chunk.find(record.begin_of(i), record.bytes_of(i), parts));
    Checksum64 sum;
    for (const auto& part : parts) sum.add(part.data(), part.size());
    record.checksums[i] = sum.value();
    BLEND_RETURN_IF_ERROR(put_value(keys_.segment(id, record.version, i), parts));
  }
  BLEND_RETURN_IF_ERROR(put_manifest(record));
  written_.fetch_add(1, std::memory_order_relaxed);
  return Status::ok();
}

// ---- For operators

Status RemoteTier::verify(const RemoteRecord& record) {
  BLEND_ASSIGN(const AlignedBuffer space, AlignedBuffer::allocate(record.segment_bytes));
  for (uint32_t i = 0; i < record.n_segments(); ++i) {
    const Status read = read_segment(record, i, {space.data(), record.bytes_of(i)});
    if (read.code() == BLEND_E_NOT_FOUND) {
      return make_error(BLEND_E_CORRUPT, "segment %u of %u is missing", i, record.n_segments());
    }
    BLEND_RETURN_IF_ERROR(read.with_context("segment " + std::to_string(i)));
  }
  return Status::ok();
}

Status RemoteTier::remove(const Sha256& id) {
  auto record = look_up(id);
  if (record.status().code() == BLEND_E_NOT_FOUND || record.status().code() == BLEND_E_IO ||
      record.status().code() == BLEND_E_CANCELLED) {
    return record.status();
  }
  // The manifest first: without it nobody looks for the rest.
  BLEND_RETURN_IF_ERROR(engine_->remove(keys_.manifest(id)));
  for (uint32_t i = 0; record.is_ok() && i < record->n_segments(); ++i) {
    BLEND_RETURN_IF_ERROR(engine_->remove(keys_.segment(id, record->version, i)));
  }
  return Status::ok();
}

Result<std::vector<Sha256>> RemoteTier::list(const Problem& problem, const ScanLimits& limits,
                                             size_t most) {
  std::vector<std::string> manifests;
  const Status listed = engine_->scan(keys_.prefix(), limits, [&](std::string_view key) {
    if (keys_.is_manifest(key)) manifests.emplace_back(key);
    if (manifests.size() >= most) return Status{BLEND_E_CANCELLED, "these suffice"};
    if (manifests.size() <= kMostListed) return Status::ok();
    return make_error(BLEND_E_FULL, "the remote tier lists more than %zu chunks", kMostListed);
  });
  // A part of them is as good as the first ones.
  if (most == kAll || manifests.empty()) BLEND_RETURN_IF_ERROR(listed);
  std::sort(manifests.begin(), manifests.end());
  manifests.erase(std::unique(manifests.begin(), manifests.end()), manifests.end());
  std::vector<Sha256> ids;
  for (const std::string& key : manifests) {
    if (encryptor_ == nullptr) {
      auto id = sha256_from_hex(std::string_view(key).substr(keys_.prefix().size()));
      if (id.is_ok()) {
        ids.push_back(*id);
      } else {
        problem(key, id.status());
      }
      continue;
    }
    // The name is hashed: the id stands inside.
    auto bytes = engine_->get(key, kMostManifestBytes);
    if (bytes.status().code() == BLEND_E_NOT_FOUND) continue;
    Status opened = bytes.status();
    if (bytes.is_ok() && bytes->size() < kNonceBytes + kTagBytes) {
      opened = {BLEND_E_CORRUPT, "a manifest is cut"};
    } else if (bytes.is_ok()) {
      auto* const at = reinterpret_cast<std::byte*>(bytes->data());
      const std::span<std::byte> text(at + kNonceBytes, bytes->size() - kNonceBytes - kTagBytes);
      opened = encryptor_->open(text, key, at, text.data() + text.size());
      if (opened.is_ok()) {
        auto id = id_of_record(text);
        opened = id.status();
        if (id.is_ok()) ids.push_back(*id);
      }
    }
    if (!opened.is_ok()) problem(key, opened);
  }
  return ids;
}

void RemoteTier::fill(RemoteStat& s) const {
  s.configured = true;
  s.reachable = reachable();
  s.hits = hits_.load();
  s.misses = misses_.load();
  s.late = late_.load();
  s.read_bytes = read_bytes_.load();
  s.written_bytes = written_bytes_.load();
  s.written = written_.load();
  s.existed = existed_.load();
  s.dropped = dropped_.load();
  s.damaged = damaged_.load();
  s.errors = errors_.load();
  s.downs = downs_.load();
  s.arriving_bytes = arriving_->load();
  s.look_up_p50_us = look_ups_.percentile_us(0.5);
  s.look_up_p99_us = look_ups_.percentile_us(0.99);
  s.segment_p50_us = segments_.percentile_us(0.5);
  s.segment_p99_us = segments_.percentile_us(0.99);
  s.bytes_per_s = rate_.per_second();
}

}  // namespace blend
