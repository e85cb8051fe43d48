#include "store/remote/arrival.h"

namespace blend {

Arrival::Arrival(RemoteRecord record, AlignedBuffer stream, RoomFor room)
    : record_(std::move(record)),
      shared_(std::make_shared<AlignedBuffer>(std::move(stream))),
      room_(std::move(room)),
      here_(record_.n_segments(), 0) {}

std::span<std::byte> Arrival::segment(uint32_t index) {
  return {shared_->data() + record_.begin_of(index), record_.bytes_of(index)};
}

void Arrival::arrived(uint32_t index, const std::function<void()>& complete) {
  bool last = false;
  {
    const MutexLock lock(mutex_);
    last = ++n_come_ == here_.size() && why_.is_ok();
  }
  // The bytes of all are in place, though some may be granted a moment later.
  if (last) complete();
  {
    const MutexLock lock(mutex_);
    here_[index] = 1;
    ++n_here_;
  }
  changed_.notify_all();
}

void Arrival::fail(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (why_.is_ok()) why_ = why;
    failed_.store(true);
  }
  changed_.notify_all();
}

Status Arrival::wait(uint64_t offset, uint64_t bytes, std::chrono::milliseconds patience,
                     bool* gave_up) {
  *gave_up = false;
  if (bytes == 0) return Status::ok();
  const auto first = static_cast<uint32_t>(offset / record_.segment_bytes);
  const auto last = static_cast<uint32_t>((offset + bytes - 1) / record_.segment_bytes);
  MutexLock lock(mutex_);
  auto until = std::chrono::steady_clock::now() + patience;
  uint32_t seen = n_here_;
  for (;;) {
    bool all = true;
    for (uint32_t i = first; i <= last; ++i) all = all && here_[i] != 0;
    // What is here is right, whatever became of the rest.
    if (all) return Status::ok();
    if (!why_.is_ok()) return why_;
    if (n_here_ != seen) {
      seen = n_here_;
      until = std::chrono::steady_clock::now() + patience;
    }
    if (changed_.wait_until(lock, until) == std::cv_status::timeout && n_here_ == seen &&
        why_.is_ok()) {
      *gave_up = true;
      why_ = {BLEND_E_IO, "the remote tier is too slow"};
      failed_.store(true);
      changed_.notify_all();
    }
  }
}

}  // namespace blend
