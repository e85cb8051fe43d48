// Status and Result<T>: how every internal function reports failure.
//
// Codes are the ABI's (blend.h), so a Status crosses the C boundary without translation. A Status
// never owns more than a code, an optional detail and a sentence; it may be copied between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "blend/types.h"

namespace blend {

class [[nodiscard]] Status {
 public:
  Status() = default;
  // `detail` is an errno, a callback's return value or another number that the code's text names.
  Status(int32_t code, std::string message, int64_t detail = 0)
      : code_(code), detail_(detail), message_(std::move(message)) {}

  static Status ok() { return {}; }
  // Allocates nothing (the text fits the string itself), so that it can be made when memory is out.
  static Status out_of_memory() noexcept { return {BLEND_E_OUT_OF_MEMORY, "out of memory"}; }
  bool is_ok() const { return code_ >= 0; }
  explicit operator bool() const { return is_ok(); }
  int32_t code() const { return code_; }
  int64_t detail() const { return detail_; }
  const std::string& message() const { return message_; }

  // Says where it happened: "open model 'x.gguf': " + message. An OK status stays as it is.
  Status with_context(const std::string& where) const {
    if (is_ok()) return *this;
    return {code_, where + ": " + message_, detail_};
  }

 private:
  int32_t code_ = BLEND_OK;
  int64_t detail_ = 0;
  std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T* operator->() { return &*value_; }
  T& operator*() { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// printf-style construction, so that messages can name the thing that was wrong. They never throw:
// without memory for the sentence they give Status::out_of_memory().
Status make_error(int32_t code, const char* format, ...) noexcept
    __attribute__((format(printf, 2, 3)));
// The same with strerror(saved_errno) appended and kept as the detail.
Status make_errno(int32_t code, int saved_errno, const char* format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

}  // namespace blend

#define BLEND_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                        \
    if (::blend::Status blend_status_ = (expr); !blend_status_.is_ok()) return blend_status_; \
  } while (false)

#define BLEND_CONCAT_INNER(a, b) a##b
#define BLEND_CONCAT(a, b) BLEND_CONCAT_INNER(a, b)
// BLEND_ASSIGN(auto file, MappedFile::open(path)): declares or assigns the value, or returns.
#define BLEND_ASSIGN(lhs, expr) BLEND_ASSIGN_IMPL(BLEND_CONCAT(blend_result_, __LINE__), lhs, expr)
#define BLEND_ASSIGN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                      \
  if (!tmp.is_ok()) return tmp.status();  \
  lhs = std::move(tmp.value())
