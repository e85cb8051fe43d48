// Reads by io_uring: one ring for all readers of a store; the first that waits reaps the
// completions of all.
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/threads/guarded.h"
#include "store/read/page_reader.h"

namespace blend {

// Thread-safe.
class UringReader final : public PageReader {
 public:
  static Result<std::unique_ptr<PageReader>> create(int direct_fd) {
    std::unique_ptr<UringReader> reader(new UringReader(direct_fd));
    const int rc = io_uring_queue_init(kEntries, &reader->ring_, 0);
    if (rc < 0) return make_errno(BLEND_E_UNSUPPORTED, -rc, "io_uring is not available here");
    reader->ready_ = true;
    return std::unique_ptr<PageReader>(std::move(reader));
  }

  ~UringReader() override {
    if (ready_) io_uring_queue_exit(&ring_);
    close(fd_);
  }

  ReadMode mode() const override { return ReadMode::uring; }

  void start(ReadBatch& batch, std::span<const ReadBatch::Read> reads) override {
    MutexLock lock(mutex_);
    batch.begin(reads);
    for (ReadBatch::Slot& slot : batch.slots_) {
      // No more than the rings hold.
      while (in_flight_ >= kEntries) {
        submit(lock);
        reap(lock);
      }
      prepare(slot);
    }
    submit(lock);
  }

  Status wait(ReadBatch& batch) override {
    MutexLock lock(mutex_);
    while (batch.pending_ > 0) {
      submit(lock);
      reap(lock);
    }
    return batch.status();
  }

 private:
  static constexpr unsigned kEntries = 128;

  explicit UringReader(int fd) : fd_(fd) {}

  void prepare(ReadBatch::Slot& slot) BLEND_REQUIRES(mutex_) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {  // cannot happen: there is room for all in flight
      slot.batch->end_one(EBUSY);
      return;
    }
    io_uring_prep_read(sqe, fd_, slot.read.to, static_cast<unsigned>(slot.read.bytes),
                       slot.read.offset);
    io_uring_sqe_set_data(sqe, &slot);
    ++in_flight_;
    ++unsubmitted_;
  }

  void submit(MutexLock& lock) BLEND_REQUIRES(mutex_) {
    while (unsubmitted_ > 0) {
      const int n = io_uring_submit(&ring_);
      if (n > 0) {
        unsubmitted_ -= std::min(unsubmitted_, static_cast<unsigned>(n));
      } else if (in_flight_ > unsubmitted_) {
        reap(lock);  // the kernel needs resources that completions will free
      } else {
        const MutexUnlock unlock(mutex_);
        std::this_thread::yield();
      }
    }
  }

  // Waits for a completion, or for the thread that already waits for one, without the lock. May
  // return without any, when a signal ends the wait. A read that a signal interrupted, as can
  // happen on a network file system, is prepared again; wait() submits it.
  void reap(MutexLock& lock) BLEND_REQUIRES(mutex_) {
    if (reaping_) {
      reaped_.wait(lock);
      return;
    }
    if (in_flight_ == unsubmitted_) return;
    reaping_ = true;
    io_uring_cqe* cqe = nullptr;
    int rc = 0;
    {
      const MutexUnlock unlock(mutex_);
      rc = io_uring_wait_cqe(&ring_, &cqe);
    }
    for (; rc == 0; rc = io_uring_peek_cqe(&ring_, &cqe)) {
      auto* slot = static_cast<ReadBatch::Slot*>(io_uring_cqe_get_data(cqe));
      const int got = cqe->res;
      // A short read is as bad as none: every page asked for lies inside the file.
      const bool whole = got >= 0 && static_cast<size_t>(got) == slot->read.bytes;
      io_uring_cqe_seen(&ring_, cqe);
      --in_flight_;
      if (got == -EINTR) {
        prepare(*slot);
        continue;
      }
      slot->batch->end_one(whole ? 0 : got < 0 ? -got : EIO);
    }
    reaping_ = false;
    reaped_.notify_all();
  }

  const int fd_;
  bool ready_ = false;
  Mutex mutex_;  // the submission side, the counts, and the batches in flight
  CondVar reaped_;
  io_uring ring_{};
  unsigned in_flight_ BLEND_GUARDED_BY(mutex_) = 0;  // prepared and not yet reaped
  unsigned unsubmitted_ BLEND_GUARDED_BY(mutex_) = 0;
  // A thread waits at the completion side, without the mutex.
  bool reaping_ BLEND_GUARDED_BY(mutex_) = false;
};

Result<std::unique_ptr<PageReader>> make_uring_reader(int direct_fd) {
  return UringReader::create(direct_fd);
}

}  // namespace blend
