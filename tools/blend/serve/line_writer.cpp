#include "line_writer.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace blend_cli::serve {
namespace {

// A pipe that poll() calls writable takes as many bytes without waiting (PIPE_BUF).
constexpr size_t kPiece = 4096;
constexpr int kStepMs = 100;
constexpr auto kLast = std::chrono::seconds(2);

}  // namespace

LineWriter::LineWriter(int fd, std::function<std::string(uint64_t n)> dropped)
    : fd_(fd), dropped_(std::move(dropped)) {
  // Signals are for the thread that waits for them, which is not there yet.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::make_unique<Thread>([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineWriter::~LineWriter() {
  {
    const std::lock_guard lock(mutex_);
    end_ = std::chrono::steady_clock::now() + kLast;
    changed_.notify_all();
  }
  thread_.reset();
}

void LineWriter::add(std::string line) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    line += '\n';
    const size_t size = line.size();
    if (bytes_ + size <= kMostBytes) {
      lines_.push_back(std::move(line));
      bytes_ += size;
      changed_.notify_one();
      return;
    }
  } catch (
      const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): lost, as where there is no room
  }
  ++n_dropped_;
}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return end_ != kNever || !lines_.empty() || n_dropped_ > 0; });
    if (lines_.empty() && n_dropped_ == 0) return;
    std::deque<std::string> lines;
    lines.swap(lines_);
    bytes_ = 0;
    const uint64_t n_dropped = std::exchange(n_dropped_, 0);
    lock.unlock();
    bool in_time = true;
    for (const std::string& line : lines) in_time = in_time && write(line);
    if (in_time && n_dropped > 0) {
      try {
        in_time = write(dropped_(n_dropped) + '\n');
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as for lines
      }
    }
    lock.lock();
    if (!in_time) return;
  }
}

bool LineWriter::write(std::string_view text) {
  while (!text.empty()) {
    {
      // Lines that are read slowly, or not at all, may wait while the server runs, but not hold up
      // its end.
      const std::lock_guard lock(mutex_);
      if (std::chrono::steady_clock::now() >= end_) return false;
    }
    pollfd one = {fd_, POLLOUT, 0};
    if (::poll(&one, 1, kStepMs) <= 0) continue;
    const ssize_t n = ::write(fd_, text.data(), std::min(text.size(), kPiece));
    if (n < 0 && errno != EINTR && errno != EAGAIN) return true;  // nobody is there: lost
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace blend_cli::serve
