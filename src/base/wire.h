// Little-endian fields of the store's records (FORMAT.md), read with bounds checks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace blend {

// Appends fields to a string of bytes. Not thread-safe.
class ByteWriter {
 public:
  template <std::integral T>
  void put(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(static_cast<uint8_t>(bits >> (8 * i))));
    }
  }
  void bytes(const void* data, size_t n) { out_.append(static_cast<const char*>(data), n); }
  void reserve(size_t n) { out_.reserve(n); }

  const std::string& view() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads fields in order. A read past the end gives zeros and makes ok() false for good, so that a
// parser checks once after a group of fields. Not thread-safe.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}

  template <std::integral T>
  T get() {
    using U = std::make_unsigned_t<T>;
    U bits = 0;
    if (!take(sizeof(T))) return 0;
    const std::byte* p = in_.data() + at_ - sizeof(T);
    for (size_t i = 0; i < sizeof(T); ++i) {
      bits = static_cast<U>(bits | static_cast<U>(static_cast<U>(p[i]) << (8 * i)));
    }
    return static_cast<T>(bits);
  }
  void bytes(void* out, size_t n) {
    if (!take(n)) return;
    std::memcpy(out, in_.data() + at_ - n, n);
  }

  bool ok() const { return ok_; }
  size_t remaining() const { return ok_ ? in_.size() - at_ : 0; }

 private:
  bool take(size_t n) {
    if (!ok_ || n > in_.size() - at_) {
      ok_ = false;
      return false;
    }
    at_ += n;
    return true;
  }

  std::span<const std::byte> in_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace blend
