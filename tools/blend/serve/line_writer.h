// LineWriter: lines to a file descriptor by a thread of its own, so that whoever reads them can
// hold up nobody but that thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "thread.h"

namespace blend_cli::serve {

// Thread-safe.
class LineWriter {
 public:
  // `dropped` makes the line that tells how many were lost. Throws std::system_error.
  LineWriter(int fd, std::function<std::string(uint64_t n)> dropped);
  // Writes what waits, if it is read in a moment.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Adds a new line's end. A line for which there is no room is lost, and counted.
  void add(std::string line) noexcept;

 private:
  static constexpr size_t kMostBytes = size_t{4} << 20;
  static constexpr auto kNever = std::chrono::steady_clock::time_point::max();
  void run();
  // False: there is no time left.
  bool write(std::string_view text);

  const int fd_;
  const std::function<std::string(uint64_t)> dropped_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;  // of lines_
  uint64_t n_dropped_ = 0;
  std::chrono::steady_clock::time_point end_ = kNever;  // of the writing, once it is to end
  std::unique_ptr<Thread> thread_;
};

}  // namespace blend_cli::serve
