// Secret: a password or a key. Its bytes are overwritten at the end, so that freed memory, and
// whatever later holds that memory (a core, a buffer that is sent), does not have them.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace blend {

// Not std::string: a short one lies in the object itself, and stays there when it is moved.
class Secret {
 public:
  Secret() = default;
  Secret(std::string_view text)  // NOLINT(google-explicit-constructor): it is made of any text
      : bytes_(text.empty() ? nullptr : std::make_unique<char[]>(text.size())), size_(text.size()) {
    std::copy(text.begin(), text.end(), bytes_.get());
  }
  Secret(const char* text)  // NOLINT(google-explicit-constructor)
      : Secret(std::string_view(text)) {}
  Secret(const std::string& text)  // NOLINT(google-explicit-constructor)
      : Secret(std::string_view(text)) {}
  Secret(const Secret& other) : Secret(other.view()) {}
  Secret(Secret&& other) noexcept
      : bytes_(std::move(other.bytes_)), size_(std::exchange(other.size_, 0)) {}
  Secret& operator=(Secret other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Secret() {
    if (bytes_ != nullptr) explicit_bzero(bytes_.get(), size_);
  }

  bool empty() const { return size_ == 0; }
  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0;
};

// Overwrites what lies in a buffer of the caller's, on every way out.
class Wiped {
 public:
  Wiped(void* at, size_t bytes) : at_(at), bytes_(bytes) {}
  ~Wiped() { explicit_bzero(at_, bytes_); }
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;

 private:
  void* const at_;
  const size_t bytes_;
};

}  // namespace blend
