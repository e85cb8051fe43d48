// Log: records of what the library does, for whoever listens (blend/log.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "blend/log.h"

namespace blend {

// One record. Keys and the component are literals.
struct LogRecord {
  struct Field {
    const char* key = "";
    uint32_t type = BLEND_FIELD_TEXT;  // which of the next three it has
    std::string text;
    int64_t integer = 0;
    double number = 0;
  };

  uint32_t level = BLEND_LOG_DEBUG;
  int32_t code = BLEND_OK;
  const char* component = "";
  std::string message;
  std::vector<Field> fields;

  template <typename T>
  void add(const char* key, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      add_number(key, static_cast<double>(value));
    } else if constexpr (std::is_integral_v<T>) {
      add_integer(key, static_cast<int64_t>(value));
    } else {
      add_text(key, value);
    }
  }
  void add_text(const char* key, std::string_view text);
  void add_integer(const char* key, int64_t integer);
  void add_number(const char* key, double number);
};

// Where records go; by default nowhere, and then nothing is allocated for them. Copies are cheap
// enough for those who keep one. Thread-safe if the listener is.
class Log {
 public:
  using Listener = std::function<void(const LogRecord&)>;

  Log() = default;
  // The listener gets records of `level` and of more important ones; with 0, none.
  Log(uint32_t level, Listener listener) : level_(level), listener_(std::move(listener)) {}

  bool wants(uint32_t level) const noexcept { return level <= level_ && listener_ != nullptr; }

  // `fill(LogRecord&)` writes the message and the fields. It runs only if the record is wanted. If
  // memory runs out the record is lost; the caller never fails by it.
  template <typename Fill>
  void write(uint32_t level, int32_t code, const char* component, const Fill& fill) const noexcept {
    if (!wants(level)) return;
    try {
      LogRecord record;
      record.level = level;
      record.code = code;
      record.component = component;
      fill(record);
      listener_(record);
    } catch (...) {  // NOLINT(bugprone-empty-catch): see above
    }
  }
  // A failure that is the error of no call.
  void write(uint32_t level, const char* component, const Status& status) const noexcept {
    write(level, status.code(), component,
          [&](LogRecord& record) { record.message = status.message(); });
  }

 private:
  uint32_t level_ = 0;
  Listener listener_;
};

}  // namespace blend
