// KvMemory: the bytes of a KV cache, which a fork may share until they are written to.
//
// A memory begins as an AlignedBuffer, in huge pages. Bytes to be shared are copied once to a file
// in memory, of which every fork, and the forked memory itself, is a private map: the system
// copies a page when it is written to. So attention and all writers see one run of bytes, as
// always, and only the system counts references.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/buffer.h"

namespace blend::cpu {

// Move-only. Used by one thread at a time; different memories, even sharing ones, by any threads.
class KvMemory {
 public:
  // Part of the bytes.
  struct Range {
    size_t first = 0;
    size_t n = 0;
  };

  KvMemory() = default;
  // Not initialised.
  static Result<KvMemory> allocate(size_t bytes);

  std::byte* data() const { return map_ ? map_.get() : buffer_.data(); }
  size_t bytes() const { return bytes_; }
  bool shares() const { return file_ != nullptr; }

  // Makes the bytes in `ranges` (n: a copy of them) shareable: data() is another address from here
  // on, with the same bytes in the ranges and zeros elsewhere. UNSUPPORTED: the host has no such
  // memory; OUT_OF_MEMORY. On failure nothing has changed.
  Status share(std::span<const Range> ranges);
  // Another memory with the bytes of the time of share(); requires shares().
  Result<KvMemory> fork() const;

 private:
  class File;
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* p) const;
  };
  using Map = std::unique_ptr<std::byte, Unmap>;
  static Result<Map> map(const File& file, size_t bytes, bool writes_to_file);

  AlignedBuffer buffer_;
  std::shared_ptr<const File> file_;
  Map map_;  // private, of file_; null: buffer_ is used
  size_t bytes_ = 0;
};

}  // namespace blend::cpu
