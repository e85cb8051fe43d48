// KvMemory: the bytes of a KV cache, which a fork may share until they are written to.
//
// A memory begins as an AlignedBuffer, in huge pages. What is to be shared is copied to a file in
// memory once, of which every fork, and the memory that was forked, is a private map: the system
// copies a page when it is written to. So attention and all that writes see one run of bytes, as
// ever, and nobody counts references but the system.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/buffer.h"

namespace blend::cpu {

// Move-only. Used by one thread at a time; distinct memories by any, also those that share.
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

  // Makes what lies in `ranges` (n: a copy of them) shareable: data() is another place from here
  // on, with the same bytes in the ranges and zeros elsewhere. UNSUPPORTED: the host has no such
  // memory; OUT_OF_MEMORY. On failure nothing has changed.
  Status share(std::span<const Range> ranges);
  // A further memory with the bytes that there were at share(); shares().
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
  Map map_;  // private, of file_; null: buffer_ it is
  size_t bytes_ = 0;
};

}  // namespace blend::cpu
