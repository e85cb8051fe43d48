// What a failed call throws, and views of memory that handles own.
#ifndef BLEND_CPP_ERROR_HPP
#define BLEND_CPP_ERROR_HPP

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "blend/types.h"

namespace blendpp {

using Tokens = std::vector<int32_t>;

// What a failed call throws. Immutable.
class Error : public std::runtime_error {
 public:
  Error(int32_t code, int64_t detail, const std::string& message)
      : std::runtime_error(message), code_(code), detail_(detail) {}
  int32_t code() const noexcept { return code_; }      // BLEND_E_*
  int64_t detail() const noexcept { return detail_; }  // the errno, a callback's value, or 0
  const char* name() const noexcept { return blend_code_name(code_); }

 private:
  int32_t code_;
  int64_t detail_;
};

// A view of memory that a handle owns; see the function that returns it for how long it is valid.
template <typename T>
class Span {
 public:
  Span(T* data, size_t size) noexcept : data_(data), size_(size) {}
  T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  T& operator[](size_t i) const noexcept { return data_[i]; }

 private:
  T* data_;
  size_t size_;
};

}  // namespace blendpp

#endif
