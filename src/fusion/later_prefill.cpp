#include "fusion/later_prefill.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/start_thread.h"
#include "base/thread_cap.h"
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
    : runtime_(std::move(runtime)), store_(std::move(store)) {}

bool LaterPrefill::forked() const { return !process_.is_this_process(); }

LaterPrefill::~LaterPrefill() {
  if (forked()) {
    if (thread_.joinable()) thread_.detach();  // it is the parent's
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    cancel_.request();
  }
  changed_.notify_all();
  {
    const Foreground::Hurry hurry(runtime_->foreground());
    if (thread_.joinable()) thread_.join();
  }
  if (ids_.empty()) return;
  try {
    tell(BLEND_E_CANCELLED,
         std::to_string(ids_.size()) +
             " chunks that a fuse left to be prefilled behind it are not stored, because the store "
             "was closed first; blend_store_flush before it waits for them");
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): there is nobody else to tell
  }
}

void LaterPrefill::tell(int32_t code, const std::string& message) const {
  if (runtime_->events()) runtime_->events()(code, message);
}

bool LaterPrefill::add(std::shared_ptr<const Model> model, LaterChunk chunk) {
  if (forked()) return false;
  const Sha256 id = chunk.meta.id;
  {
    std::lock_guard lock(mutex_);
    if (ids_.contains(id)) return true;
    if (queue_.size() >= kMostQueued) return false;
    // The fuse has its answer, whatever becomes of the chunk.
    try {
      if (!thread_.joinable()) thread_ = start_thread([this] { run(); });
      ids_.insert(id);
      queue_.push_back({std::move(model), std::move(chunk), ThreadCap::current()});
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      ids_.erase(id);  // or flush() would wait for it for ever
      return false;
    }
    errors_.forget(id);
  }
  changed_.notify_all();
  return true;
}

Status LaterPrefill::flush() {
  if (forked()) return Status::ok();
  const Foreground::Hurry hurry(runtime_->foreground());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ids_.empty(); });
  return errors_.take_first();
}

std::optional<Status> LaterPrefill::outcome(const Sha256& id, Deadline deadline) {
  if (forked()) return Status::ok();
  const auto settled = [&] { return !ids_.contains(id); };
  std::unique_lock lock(mutex_);
  if (!settled()) {
    if (deadline.has_value() && *deadline <= std::chrono::steady_clock::now()) return std::nullopt;
    const auto queued = std::find_if(queue_.begin(), queue_.end(),
                                     [&](const Job& job) { return job.chunk.meta.id == id; });
    if (queued != queue_.end()) std::rotate(queue_.begin(), queued, queued + 1);
    const Foreground::Hurry hurry(runtime_->foreground());
    if (!deadline.has_value()) {
      changed_.wait(lock, settled);
    } else if (!changed_.wait_until(lock, *deadline, settled)) {
      return std::nullopt;
    }
  }
  return errors_.of(id);
}

size_t LaterPrefill::n_left() const {
  if (forked()) return 0;
  const std::lock_guard lock(mutex_);
  return ids_.size();
}

Status LaterPrefill::prefill(Job& job) {
  BLEND_ASSIGN(const bool there, store_->contains(job.chunk.meta.id));
  if (there) return Status::ok();
  const Watch polite{&cancel_, [&](uint64_t, uint64_t) {
                       runtime_->foreground().stand_back(kQuiet, kMostWait);
                       return 0;
                     }};
  const std::string name =
      "chunk " + to_hex(job.chunk.meta.id) + ", left to be prefilled behind a fuse";
  const ThreadCap cap(job.n_threads);
  auto record = precompute_chunk(*job.model, job.chunk.prefix, std::move(job.chunk.meta), polite);
  if (!record.is_ok()) return record.status().with_context(name);
  return store_->put_async(std::move(*record)).with_context(name);
}

void LaterPrefill::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    const Sha256 id = job.chunk.meta.id;
    lock.unlock();
    Status status;
    try {
      status = prefill(job);
      job = {};  // the model may be closed by now
      if (!status.is_ok() && status.code() != BLEND_E_CANCELLED) {
        tell(status.code(), status.message());
      }
    } catch (const std::bad_alloc&) {
      status = Status::out_of_memory();
    }
    lock.lock();
    if (status.code() == BLEND_E_CANCELLED) return;  // one of those that the end counts
    ids_.erase(id);
    if (!status.is_ok()) errors_.add(id, status);
    changed_.notify_all();
  }
}

}  // namespace blend
