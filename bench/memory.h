// Memory of a process: for programs that compare it with predictions.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace blend::bench {

// The most that was resident at once, pages of mapped files among it (VmHWM); 0: not known.
inline uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

// Resident memory that belongs to no file, so that it cannot be dropped and read again.
inline uint64_t own_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, resident = 0, shared = 0;  // pages; shared: of files
  statm >> size >> resident >> shared;
  return (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Looks every few milliseconds how large own_bytes() is, as long as it lives: the kernel keeps no
// peak of that. Thread-safe.
class OwnMemoryWatch {
 public:
  OwnMemoryWatch() : thread_([this] { run(); }) {}
  ~OwnMemoryWatch() {
    stop_ = true;
    thread_.join();
  }
  OwnMemoryWatch(const OwnMemoryWatch&) = delete;
  OwnMemoryWatch& operator=(const OwnMemoryWatch&) = delete;

  uint64_t peak() { return std::max(peak_.load(), own_bytes()); }

 private:
  void run() {
    while (!stop_) {
      peak_ = std::max(peak_.load(), own_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::atomic<uint64_t> peak_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace blend::bench
