#include "store/write_back.h"

#include <new>
#include <system_error>

namespace blend {

WriteBack::WriteBack(uint64_t queue_bytes, Write write, OnError on_error)
    : queue_bytes_(queue_bytes), write_(std::move(write)), on_error_(std::move(on_error)) {}

WriteBack::~WriteBack() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status WriteBack::push(std::shared_ptr<const ChunkRecord> record) {
  const Sha256 id = record->meta.id;
  const uint64_t size = size_of(*record);
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& e) {
      return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the write-back thread: %s", e.what());
    }
  }
  space_.wait(lock, [&] {
    // Read anew at every wake: the record it would replace may have left meanwhile.
    const auto old = queued_.find(id);
    const uint64_t others = bytes_ - (old == queued_.end() ? 0 : size_of(*old->second));
    return others == 0 || (size <= queue_bytes_ && others <= queue_bytes_ - size);
  });
  failed_.erase(id);
  if (const auto old = queued_.find(id); old != queued_.end()) {
    bytes_ += size - size_of(*old->second);
    old->second = std::move(record);
    return Status::ok();
  }
  order_.push_back(id);
  try {
    queued_.emplace(id, std::move(record));
  } catch (...) {
    order_.pop_back();  // or nobody would ever write what others wait for
    throw;
  }
  bytes_ += size;
  ++pushed_;
  work_.notify_one();
  return Status::ok();
}

void WriteBack::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !order_.empty(); });
    if (order_.empty()) return;
    const auto next = queued_.find(order_.front());
    order_.pop_front();
    if (next != queued_.end()) {
      in_flight_ = std::move(next->second);
      queued_.erase(next);
      const std::shared_ptr<const ChunkRecord> record = in_flight_;
      lock.unlock();
      Status status;
      try {
        status = write_(record);
      } catch (const std::bad_alloc&) {
        status = Status::out_of_memory();
      }
      if (!status.is_ok()) {
        try {
          on_error_(status);
        } catch (const std::bad_alloc&) {
          // No memory to tell it as an event: flush() still does.
        }
      }
      lock.lock();
      if (!status.is_ok() && first_error_.is_ok()) first_error_ = status;
      if (!status.is_ok()) remember(record->meta.id, status);
      bytes_ -= size_of(*record);
      in_flight_.reset();
    }
    ++done_;
    space_.notify_all();
  }
}

void WriteBack::remember(const Sha256& id, const Status& status) {
  try {
    failed_.insert_or_assign(id, status);
    failed_order_.push_back(id);
    while (failed_order_.size() > kOutcomes) {
      failed_.erase(failed_order_.front());
      failed_order_.pop_front();
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): flush() still tells it
  }
}

std::optional<Status> WriteBack::outcome(
    const Sha256& id, std::optional<std::chrono::steady_clock::time_point> deadline) {
  std::unique_lock lock(mutex_);
  const auto settled = [&] {
    return !queued_.contains(id) && (in_flight_ == nullptr || in_flight_->meta.id != id);
  };
  if (!deadline.has_value()) {
    space_.wait(lock, settled);
  } else if (!space_.wait_until(lock, *deadline, settled)) {
    return std::nullopt;
  }
  const auto failed = failed_.find(id);
  return failed == failed_.end() ? Status::ok() : failed->second;
}

Status WriteBack::flush() {
  std::unique_lock lock(mutex_);
  space_.wait(lock, [this, target = pushed_] { return done_ >= target; });
  return std::exchange(first_error_, Status::ok());
}

void WriteBack::drain() {
  std::unique_lock lock(mutex_);
  space_.wait(lock, [this, target = pushed_] { return done_ >= target; });
}

std::shared_ptr<const ChunkRecord> WriteBack::find(const Sha256& id) const {
  const std::lock_guard lock(mutex_);
  if (const auto it = queued_.find(id); it != queued_.end()) return it->second;
  if (in_flight_ != nullptr && in_flight_->meta.id == id) return in_flight_;
  return nullptr;
}

RecordMap WriteBack::pending() const {
  const std::lock_guard lock(mutex_);
  RecordMap all = queued_;
  if (in_flight_ != nullptr) all.emplace(in_flight_->meta.id, in_flight_);
  return all;
}

bool WriteBack::cancel(const Sha256& id) {
  std::unique_lock lock(mutex_);
  bool dropped = false;
  if (const auto it = queued_.find(id); it != queued_.end()) {
    bytes_ -= size_of(*it->second);
    queued_.erase(it);
    dropped = true;
    space_.notify_all();
  }
  // Only the write under way now: a newer one of the same id was pushed after this call.
  if (in_flight_ != nullptr && in_flight_->meta.id == id) {
    space_.wait(lock, [this, target = done_ + 1] { return done_ >= target; });
  }
  return dropped;
}

uint64_t WriteBack::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace blend
