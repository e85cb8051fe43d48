#include "fusion/later_prefill.h"

#include <unistd.h>

#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "engine/precompute.h"

namespace blend {
namespace {

// Tokens are all that a queued chunk takes, so this many are a few megabytes.
constexpr size_t kMostQueued = 4096;

// Between two tokens of an answer a host may look at them for a while; where there is always
// somebody, a layer every second still gets through a chunk.
constexpr auto kQuiet = std::chrono::milliseconds(50);
constexpr auto kMostWait = std::chrono::milliseconds(1000);

}  // namespace

LaterPrefill::LaterPrefill(std::shared_ptr<Runtime> runtime, std::shared_ptr<ChunkStore> store)
    : process_(getpid()), runtime_(std::move(runtime)), store_(std::move(store)) {}

bool LaterPrefill::forked() const { return getpid() != process_; }

LaterPrefill::~LaterPrefill() {
  if (forked()) {
    if (thread_.joinable()) thread_.detach();  // it is the parent's
    return;
  }
  const Foreground::Hurry hurry(runtime_->foreground());
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LaterPrefill::add(std::shared_ptr<const Model> model, LaterChunk chunk) {
  if (forked()) return false;
  {
    std::lock_guard lock(mutex_);
    if (ids_.contains(chunk.meta.id)) return true;
    if (queue_.size() >= kMostQueued) return false;
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return false;
    }
    // Queued first: an id whose chunk found no memory would never leave, and flush() wait for ever.
    const Sha256 id = chunk.meta.id;
    queue_.push_back({std::move(model), std::move(chunk)});
    ids_.insert(id);
  }
  changed_.notify_all();
  return true;
}

Status LaterPrefill::flush() {
  if (forked()) return Status::ok();
  const Foreground::Hurry hurry(runtime_->foreground());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ids_.empty(); });
  return std::exchange(error_, Status::ok());
}

Status LaterPrefill::prefill(Job& job) {
  BLEND_ASSIGN(const bool there, store_->contains(job.chunk.meta.id));
  if (there) return Status::ok();
  const Watch polite{nullptr, [&](uint64_t, uint64_t) {
                       runtime_->foreground().stand_back(kQuiet, kMostWait);
                       return 0;
                     }};
  const std::string name =
      "chunk " + to_hex(job.chunk.meta.id) + ", left to be prefilled behind a fuse";
  auto record = precompute_chunk(*job.model, job.chunk.prefix, std::move(job.chunk.meta), polite);
  if (!record.is_ok()) return record.status().with_context(name);
  return store_->put_async(std::move(*record)).with_context(name);
}

void LaterPrefill::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    const Sha256 id = job.chunk.meta.id;
    lock.unlock();
    Status status;
    try {
      status = prefill(job);
      job = {};  // the model may be closed by now
      if (!status.is_ok() && runtime_->events()) {
        runtime_->events()(status.code(), status.message());
      }
    } catch (const std::bad_alloc&) {
      status = Status::out_of_memory();
    }
    lock.lock();
    ids_.erase(id);
    if (error_.is_ok()) error_ = status;
    changed_.notify_all();
  }
}

}  // namespace blend
