// PageReader: whole pages of a file into aligned memory, several reads at a time, past the page
// cache.
//
// A cold read through a map faults page by page (0.05 GB/s without read-ahead); with large reads in
// flight the disk runs at its own speed for almost no CPU. The caller ensures that nobody writes
// to the pages meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace blend {

// How the layers of chunks are read (StoreOptions). The numbers are the ABI's.
enum class ReadMode : uint32_t {
  best = 0,     // the first of the following that works here; pages in the page cache are taken
                // from there
  uring = 1,    // io_uring, O_DIRECT
  threads = 2,  // a few threads that pread(), O_DIRECT
  mapped = 3,   // copies from the map after MADV_WILLNEED
};
const char* read_mode_name(ReadMode mode);

// Offsets, lengths and addresses of direct reads are multiples of this: disks ask for no more.
inline constexpr size_t kDirectAlignment = 4096;

// Several reads that are waited for together: started once, waited for once, then perhaps again.
// Must not move or end while any is in flight; belongs to one thread.
class ReadBatch {
 public:
  struct Read {
    uint64_t offset = 0;
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  ReadBatch() = default;
  ReadBatch(const ReadBatch&) = delete;
  ReadBatch& operator=(const ReadBatch&) = delete;

 private:
  friend class UringReader;
  friend class ThreadReader;
  struct Slot {
    ReadBatch* batch = nullptr;
    Read read;
  };
  // Guarded by the reader's mutex while reads are in flight.
  std::vector<Slot> slots_;  // does not grow after the start
  size_t pending_ = 0;
  int error_ = 0;  // errno of the first that failed

  void begin(std::span<const Read> reads) {
    slots_.clear();
    for (const Read& read : reads) slots_.push_back({this, read});
    pending_ = slots_.size();
    error_ = 0;
  }
  void end_one(int error) {
    if (error != 0 && error_ == 0) error_ = error;
    --pending_;
  }
  Status status() const {
    if (error_ == 0) return Status::ok();
    return make_errno(BLEND_E_IO, error_, "cannot read the data file");
  }
};

// Thread-safe. Must not be touched in a forked child; leak it there.
class PageReader {
 public:
  virtual ~PageReader() = default;
  virtual ReadMode mode() const = 0;
  // Starts the reads; blocks only while too many are in flight. Errors come from wait().
  virtual void start(ReadBatch& batch, std::span<const ReadBatch::Read> reads) = 0;
  // Blocks until every read of the batch has ended. IO: one failed or came back short.
  virtual Status wait(ReadBatch& batch) = 0;
};

// A reader of the file at `path`, which must be the one that `data_fd` is open on, of at least
// kDirectAlignment bytes; its first `constant_bytes` must never change. Null: layers are to be
// copied from the map. `mode` other than best: that one, or UNSUPPORTED with the reason why it does
// not work here (a container that forbids io_uring, a file system without O_DIRECT).
Result<std::unique_ptr<PageReader>> make_page_reader(const std::string& path, int data_fd,
                                                     size_t constant_bytes, ReadMode mode);

// `direct_fd` belongs to the reader from then on.
Result<std::unique_ptr<PageReader>> make_uring_reader(int direct_fd);
Result<std::unique_ptr<PageReader>> make_thread_reader(int direct_fd);

}  // namespace blend
