// MappedFile: a whole file, read-only, in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"

namespace blend {

// Move-only; immutable once open, so its bytes may be read by any threads. The mapping follows the
// file: truncating it while it is mapped makes reads past the new end fault (SIGBUS), so
// model files are to be replaced by rename, never rewritten in place.
class MappedFile {
 public:
  // NOT_FOUND: no such file. IO: it cannot be opened, is not a regular file, or cannot be mapped.
  // An empty file gives empty bytes().
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile taken(std::move(other));
    swap(taken);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void swap(MappedFile& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace blend
