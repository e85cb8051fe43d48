#include "store/queue/write_back.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "base/threads/start_thread.h"

namespace blend {

WriteBack::WriteBack(const Limits& limits, Write write, OnError on_error)
    : limits_(limits), write_(std::move(write)), on_error_(std::move(on_error)) {
  threads_.reserve(limits.n_threads);
  in_flight_.reserve(limits.n_threads * kMostRecords);
}

WriteBack::~WriteBack() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status WriteBack::start_threads() {
  while (threads_.size() < limits_.n_threads) {
    try {
      threads_.push_back(start_thread([this] { run(); }));
    } catch (const std::system_error& e) {
      if (!threads_.empty()) return Status::ok();  // those suffice; the next push tries again
      return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the write-back thread: %s", e.what());
    }
  }
  return Status::ok();
}

Status WriteBack::push(std::shared_ptr<const ChunkRecord> record) {
  const Sha256 id = record->meta.id;
  const uint64_t size = size_of(*record);
  MutexLock lock(mutex_);
  BLEND_RETURN_IF_ERROR(start_threads());
  space_.wait(lock, [&]() BLEND_REQUIRES(mutex_) {
    // Looked up at every wake-up: the record to replace may have left the queue.
    const auto old = queued_.find(id);
    const uint64_t others = bytes_ - (old == queued_.end() ? 0 : size_of(*old->second));
    return others == 0 || (size <= limits_.queue_bytes && others <= limits_.queue_bytes - size);
  });
  errors_.forget(id);
  if (const auto old = queued_.find(id); old != queued_.end()) {
    bytes_ += size - size_of(*old->second);
    old->second = std::move(record);
    return Status::ok();
  }
  order_.push_back(id);
  try {
    queued_.emplace(id, std::move(record));
  } catch (...) {
    order_.pop_back();  // or waits for this id would never end
    throw;
  }
  bytes_ += size;
  work_.notify_one();
  return Status::ok();
}

void WriteBack::run() {
  MutexLock lock(mutex_);
  for (;;) {
    work_.wait(lock,
               [&]() BLEND_REQUIRES(mutex_) { return has_work() || (stop_ && order_.empty()); });
    if (order_.empty()) return;
    const Taken taken = take();
    if (taken.n > 0) write(taken.batch());
    space_.notify_all();
    work_.notify_all();  // a newer record of the same id may have waited for this one
  }
}

WriteBack::Taken WriteBack::take() {
  Taken taken;
  uint64_t bytes = 0;
  while (taken.n < limits_.batch_records && has_work()) {
    const auto next = queued_.find(order_.front());
    if (next != queued_.end()) {
      bytes += size_of(*next->second);
      if (taken.n > 0 && bytes > limits_.batch_bytes) break;
      taken.records[taken.n++] = next->second;
      in_flight_.push_back({std::move(next->second), n_taken_});
      queued_.erase(next);
    }
    order_.pop_front();
    ++n_taken_;
  }
  return taken;
}

void WriteBack::write(Batch batch) {
  std::array<Status, kMostRecords> statuses;
  const std::span<Status> of_batch(statuses.data(), batch.size());
  std::fill(of_batch.begin(), of_batch.end(), Status::out_of_memory());
  {
    const MutexUnlock unlock(mutex_);
    try {
      write_(batch, of_batch);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as they stand
    }
    for (const Status& status : of_batch) {
      if (!status.is_ok()) on_error_(status);
    }
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!statuses[i].is_ok()) errors_.add(batch[i]->meta.id, statuses[i]);
    bytes_ -= size_of(*batch[i]);
    std::erase_if(in_flight_, [&](const InFlight& f) { return f.record == batch[i]; });
  }
}

const WriteBack::InFlight* WriteBack::in_flight(const Sha256& id) const {
  for (const InFlight& f : in_flight_) {
    if (f.record->meta.id == id) return &f;
  }
  return nullptr;
}

void WriteBack::wait_for_all(MutexLock& lock) {
  space_.wait(lock, [this, end = n_taken_ + order_.size()]() BLEND_REQUIRES(mutex_) {
    return n_taken_ >= end && std::none_of(in_flight_.begin(), in_flight_.end(),
                                           [&](const InFlight& f) { return f.place < end; });
  });
}

std::optional<Status> WriteBack::outcome(
    const Sha256& id, std::optional<std::chrono::steady_clock::time_point> deadline) {
  MutexLock lock(mutex_);
  const auto settled = [&]() BLEND_REQUIRES(mutex_) {
    return !queued_.contains(id) && in_flight(id) == nullptr;
  };
  if (!deadline.has_value()) {
    space_.wait(lock, settled);
  } else if (!space_.wait_until(lock, *deadline, settled)) {
    return std::nullopt;
  }
  return errors_.of(id);
}

Status WriteBack::flush() {
  MutexLock lock(mutex_);
  wait_for_all(lock);
  return errors_.take_first();
}

void WriteBack::drain() {
  MutexLock lock(mutex_);
  wait_for_all(lock);
}

std::shared_ptr<const ChunkRecord> WriteBack::find(const Sha256& id) const {
  const MutexLock lock(mutex_);
  if (const auto it = queued_.find(id); it != queued_.end()) return it->second;
  const InFlight* writing = in_flight(id);
  return writing == nullptr ? nullptr : writing->record;
}

RecordMap WriteBack::pending() const {
  const MutexLock lock(mutex_);
  RecordMap all = queued_;
  for (const InFlight& f : in_flight_) all.emplace(f.record->meta.id, f.record);
  return all;
}

bool WriteBack::cancel(const Sha256& id) {
  MutexLock lock(mutex_);
  bool dropped = false;
  if (const auto it = queued_.find(id); it != queued_.end()) {
    bytes_ -= size_of(*it->second);
    queued_.erase(it);
    dropped = true;
    space_.notify_all();
  }
  // Only the write under way now: a newer one of the same id was pushed after this call.
  if (const InFlight* writing = in_flight(id); writing != nullptr) {
    space_.wait(lock, [this, id, place = writing->place]() BLEND_REQUIRES(mutex_) {
      const InFlight* now = in_flight(id);
      return now == nullptr || now->place != place;
    });
  }
  return dropped;
}

uint64_t WriteBack::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace blend
