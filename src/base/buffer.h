// AlignedBuffer: host memory for tensors and O_DIRECT reads, without exceptions.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/status.h"

namespace blend {

inline constexpr size_t kBufferAlignment = 4096;  // a page: serves SIMD and O_DIRECT alike

// Move-only. Uninitialised on allocation. Distinct buffers may be used from distinct threads.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  static Result<AlignedBuffer> allocate(size_t bytes) {
    AlignedBuffer b;
    if (bytes == 0) return b;
    const size_t rounded = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    void* p = rounded < bytes ? nullptr : std::aligned_alloc(kBufferAlignment, rounded);
    if (p == nullptr) {
      return make_error(BLEND_E_OUT_OF_MEMORY, "cannot allocate %zu bytes", bytes);
    }
    b.data_.reset(static_cast<std::byte*>(p));
    b.bytes_ = bytes;
    return b;
  }

  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace blend
