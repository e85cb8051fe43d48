// Reads by a few threads that block in pread(): for where io_uring is forbidden.
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <system_error>
#include <thread>

#include "base/threads/guarded.h"
#include "base/threads/start_thread.h"
#include "store/read/page_reader.h"

namespace blend {

// Thread-safe.
class ThreadReader final : public PageReader {
 public:
  static Result<std::unique_ptr<PageReader>> create(int direct_fd) {
    std::unique_ptr<ThreadReader> reader(new ThreadReader(direct_fd));
    try {
      for (std::thread& t : reader->threads_) t = start_thread([r = reader.get()] { r->run(); });
    } catch (const std::system_error& e) {
      return make_error(BLEND_E_UNSUPPORTED, "cannot start threads that read: %s", e.what());
    }
    return std::unique_ptr<PageReader>(std::move(reader));
  }

  ~ThreadReader() override {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& t : threads_) {
      if (t.joinable()) t.join();
    }
    close(fd_);
  }

  ReadMode mode() const override { return ReadMode::threads; }

  void start(ReadBatch& batch, std::span<const ReadBatch::Read> reads) override {
    {
      const MutexLock lock(mutex_);
      batch.begin(reads);
      for (ReadBatch::Slot& slot : batch.slots_) queue_.push_back(&slot);
    }
    work_.notify_all();
  }

  Status wait(ReadBatch& batch) override {
    MutexLock lock(mutex_);
    done_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return batch.pending_ == 0; });
    return batch.status();
  }

 private:
  static constexpr int kThreads = 4;  // in flight; enough for a disk to be busy with 1 MiB each

  explicit ThreadReader(int fd) : fd_(fd) {}

  void run() {
    MutexLock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      ReadBatch::Slot* slot = queue_.front();
      queue_.pop_front();
      int error = 0;
      {
        const MutexUnlock unlock(mutex_);
        error = read(slot->read);
      }
      slot->batch->end_one(error);
      done_.notify_all();
    }
  }

  int read(const ReadBatch::Read& r) const {
    ssize_t n = 0;
    do {
      n = pread(fd_, r.to, r.bytes, static_cast<off_t>(r.offset));
    } while (n < 0 && errno == EINTR);
    return n < 0 ? errno : static_cast<size_t>(n) == r.bytes ? 0 : EIO;
  }

  const int fd_;
  Mutex mutex_;
  CondVar work_;  // queued, or the end
  CondVar done_;
  std::deque<ReadBatch::Slot*> queue_ BLEND_GUARDED_BY(mutex_);
  bool stop_ BLEND_GUARDED_BY(mutex_) = false;
  std::thread threads_[kThreads];
};

Result<std::unique_ptr<PageReader>> make_thread_reader(int direct_fd) {
  return ThreadReader::create(direct_fd);
}

}  // namespace blend
