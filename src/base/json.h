// Json: a JSON text (RFC 8259) as a tree, read from files that are never trusted.
//
// Nesting is bounded and a name that occurs twice in one object is an error (parsers disagree on
// which of the two counts); memory is in proportion to the text. Members keep the file's
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace blend {

// A value. Immutable once parsed; safe for concurrent use.
class Json {
 public:
  using Member = std::pair<std::string, Json>;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  // A whole number out of int64_t's range, to a double's precision.
  struct Wide {
    double value;
  };

  static constexpr int kMaxDepth = 64;

  Json() = default;
  template <typename T>
  explicit Json(T value) : value_(std::move(value)) {}

  // FORMAT names the byte where it goes wrong. A byte order mark is not accepted.
  static Result<Json> parse(std::string_view text);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  // An integer in the range of int64_t, written as one or as "1.0"; false if the value is not
  // one.
  bool integer(int64_t& out) const;
  // Any number.
  bool number(double& out) const;
  // A number that was written with a point or an exponent.
  const double* real() const { return std::get_if<double>(&value_); }

  // The object's member; nullptr: absent, or this is not an object. Linear in its members.
  const Json* find(std::string_view name) const;
  Json* find(std::string_view name) { return const_cast<Json*>(std::as_const(*this).find(name)); }
  // "an object", "a string", ...: for messages.
  const char* kind() const;

  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }

 private:
  std::variant<std::monostate, bool, int64_t, double, Wide, std::string, Array, Object> value_;
};

}  // namespace blend
