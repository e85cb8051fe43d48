#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>

namespace blend {
namespace {

std::string format_v(const char* format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int n = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  if (n < 0) return format;
  std::string text(static_cast<size_t>(n), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  return text;
}

}  // namespace

Status make_error(int32_t code, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  Status status = Status::out_of_memory();
  try {
    status = {code, format_v(format, args)};
  } catch (const std::bad_alloc&) {
    // Stays out_of_memory().
  }
  va_end(args);
  return status;
}

Status make_errno(int32_t code, int saved_errno, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  Status status = Status::out_of_memory();
  try {
    char buffer[256] = {};
    // GNU strerror_r returns the text and may leave the buffer alone.
    const char* reason = strerror_r(saved_errno, buffer, sizeof buffer);
    status = {code, format_v(format, args) + ": " + reason, saved_errno};
  } catch (const std::bad_alloc&) {
    // Stays out_of_memory().
  }
  va_end(args);
  return status;
}

}  // namespace blend
