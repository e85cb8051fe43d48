#include "fusion/idle/deferred_prefill.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/threads/thread_cap.h"
#include "engine/chunk_prefill.h"
#include "fusion/contexts/passages.h"

namespace blend {
namespace {

// A queued chunk holds only its tokens, so this many take a few megabytes.
constexpr size_t kMostQueued = 4096;
// Ids of records that were asked for once: a megabyte or two.
constexpr size_t kMostSeen = 16384;

// Rows that its prefills compute, or a few more.
size_t rows_of(const DeferredChunk& chunk) {
  const size_t own = chunk.meta.tokens.size();
  size_t rows = chunk.contexts.empty() ? own : 0;
  for (const std::vector<int32_t>& context : chunk.contexts) {
    rows += own + chunk.predecessor.size() + context.size();
  }
  return rows;
}

}  // namespace

DeferredPrefill::DeferredPrefill(std::shared_ptr<IdleWorker> worker,
                                 std::shared_ptr<ChunkStore> store)
    : worker_(std::move(worker)), store_(std::move(store)) {
  worker_->enter(*this);
}

DeferredPrefill::~DeferredPrefill() {
  cancel_.request();
  worker_->leave(*this);
  const size_t n_left = ids_.size();
  if (n_left == 0) return;
  worker_->runtime().log().write(
      BLEND_LOG_WARNING, BLEND_E_CANCELLED, "store", [&](LogRecord& record) {
        record.message = std::to_string(n_left) +
                         " deferred prefills of chunks were dropped, because the store was closed "
                         "first; call blend_store_flush before";
        record.add("chunks", n_left);
      });
}

bool DeferredPrefill::seen_before(const Sha256& id) {
  if (!seen_.insert(id).second) return true;
  seen_order_.push_back(id);
  if (seen_order_.size() > kMostSeen) {
    seen_.erase(seen_order_.front());
    seen_order_.pop_front();
  }
  return false;
}

bool DeferredPrefill::add(std::shared_ptr<const Model> model, DeferredChunk chunk) {
  if (forked()) return false;
  const Sha256 id = chunk.meta.id;
  {
    const MutexLock lock(mutex_);
    if (ids_.contains(id)) return true;
    if (queue_.size() >= kMostQueued) return false;
    // A failure here must not fail the fuse.
    try {
      if (chunk.when_seen_twice && !seen_before(id)) return false;
      if (!worker_->start()) return false;
      ids_.insert(id);
      queue_.push_back({std::move(model), std::move(chunk), ThreadCap::current()});
    } catch (const std::bad_alloc&) {
      ids_.erase(id);  // otherwise flush() would wait for it for ever
      return false;
    }
    errors_.forget(id);
  }
  worker_->notify();
  return true;
}

Status DeferredPrefill::flush() {
  if (forked()) return Status::ok();
  const IdleWorker::Urgent urgent(*worker_);
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return ids_.empty(); });
  return errors_.take_first();
}

std::optional<Status> DeferredPrefill::outcome(const Sha256& id, Deadline deadline) {
  if (forked()) return Status::ok();
  const auto settled = [&]() BLEND_REQUIRES(mutex_) { return !ids_.contains(id); };
  MutexLock lock(mutex_);
  if (!settled()) {
    if (deadline.has_value() && *deadline <= std::chrono::steady_clock::now()) return std::nullopt;
    const auto queued = std::find_if(queue_.begin(), queue_.end(),
                                     [&](const Job& job) { return job.chunk.meta.id == id; });
    if (queued != queue_.end()) queue_.splice(queue_.begin(), queue_, queued);
    const IdleWorker::Urgent urgent(*worker_);
    if (!deadline.has_value()) {
      changed_.wait(lock, settled);
    } else if (!changed_.wait_until(lock, *deadline, settled)) {
      return std::nullopt;
    }
  }
  return errors_.of(id);
}

size_t DeferredPrefill::n_left() const {
  if (forked()) return 0;
  const MutexLock lock(mutex_);
  return ids_.size();
}

std::list<DeferredPrefill::Job> DeferredPrefill::take() {
  std::list<Job> jobs;
  jobs.splice(jobs.end(), queue_, queue_.begin());
  const Job& first = jobs.front();
  size_t rows = rows_of(first.chunk);
  for (auto it = queue_.begin(); it != queue_.end() && rows < ChunkPrefill::kFullRows;) {
    const auto job = it++;
    const bool alike = job->model == first.model && job->n_threads == first.n_threads &&
                       job->chunk.prefix == first.chunk.prefix;
    if (!alike) continue;
    rows += rows_of(job->chunk);
    jobs.splice(jobs.end(), queue_, job);
  }
  return jobs;
}

Status DeferredPrefill::prefill(const std::list<Job>& jobs) {
  const Model& model = *jobs.front().model;
  const ThreadCap cap(jobs.front().n_threads);
  const Watch polite = worker_->polite(cancel_);
  std::vector<StoredPassages> passages;
  passages.reserve(jobs.size());
  std::vector<ChunkJob> chunks;
  std::vector<std::string> names;
  for (const Job& job : jobs) {
    const DeferredChunk& chunk = job.chunk;
    BLEND_ASSIGN(const bool there, store_->contains(chunk.meta.id));
    if (there) continue;
    const std::vector<std::span<const int32_t>> contexts(chunk.contexts.begin(),
                                                         chunk.contexts.end());
    PassageKey key{chunk.meta.shape.dtype, chunk.prefix, chunk.tenant, chunk.meta.tokens.size()};
    key.predecessor = chunk.predecessor;
    // Passages are computed, not loaded: a snapshot of the store must not be held during idle work,
    // which takes long.
    BLEND_ASSIGN(auto opened, StoredPassages::open(model, nullptr, key, contexts));
    passages.push_back(std::move(opened));
    names.push_back("the deferred prefill of chunk " + to_hex(chunk.meta.id));
    chunks.push_back({chunk.meta, passages.back().passages(), names.back()});
    chunks.back().meta.contexts = passages.back().ids();
  }
  if (chunks.empty()) return Status::ok();
  ChunkPrefill prefill(model, jobs.front().chunk.prefix);
  BLEND_ASSIGN(ChunkPrefill::Records records, prefill.run(chunks, polite));
  for (size_t i = 0; i < records.size(); ++i) {
    BLEND_RETURN_IF_ERROR(store_->put_async(std::move(records[i])).with_context(names[i]));
  }
  return Status::ok();
}

Status DeferredPrefill::prefill_or_out_of_memory(const std::list<Job>& jobs) {
  try {
    return prefill(jobs);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

bool DeferredPrefill::work() {
  MutexLock lock(mutex_);
  if (queue_.empty() || cancel_.requested()) return false;
  std::list<Job> jobs = take();
  lock.unlock();
  Status status = prefill_or_out_of_memory(jobs);
  // One that fails must not take the others with it.
  const bool again = !status.is_ok() && status.code() != BLEND_E_CANCELLED && jobs.size() > 1;
  while (!jobs.empty()) {
    std::list<Job> one;
    one.splice(one.end(), jobs, jobs.begin());
    if (again) status = prefill_or_out_of_memory(one);
    if (status.code() == BLEND_E_CANCELLED) return true;  // counted by the record of the destructor
    const Sha256 id = one.front().chunk.meta.id;
    one.clear();  // the model may be closed by now
    if (!status.is_ok()) {
      worker_->runtime().log().write(BLEND_LOG_ERROR, status.code(), "store",
                                     [&](LogRecord& record) {
                                       record.message = status.message();
                                       record.add("chunk", to_hex(id));
                                     });
    }
    const MutexLock settling(mutex_);
    ids_.erase(id);
    if (!status.is_ok()) errors_.add(id, status);
    changed_.notify_all();
  }
  return true;
}

}  // namespace blend
