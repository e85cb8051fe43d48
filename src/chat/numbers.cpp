// int and float.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "chat/filters.h"
#include "text/white_space.h"

namespace blend::chat {
namespace {

// The number that Python reads from a text.
struct ReadNumber {
  Value value;         // undefined: not a number
  bool large = false;  // an integer of more than 64 bits
};

// The digits of a number, without white space around them, plus sign and underscores between
// digits. Nothing if Python would not accept the text.
std::optional<std::string> digits_of(std::string_view text) {
  std::string_view s = text::stripped(text);
  if (s.starts_with('+')) {
    s.remove_prefix(1);
    if (s.starts_with('-')) return std::nullopt;
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') {
      out.push_back(s[i]);
    } else if (i == 0 || !is_digit(s[i - 1]) || i + 1 == s.size() || !is_digit(s[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

ReadNumber read_whole(const std::string& digits) {
  int64_t n = 0;
  const char* const end = digits.data() + digits.size();
  const auto done = std::from_chars(digits.data(), end, n);
  if (digits.empty() || done.ptr != end || done.ec == std::errc::invalid_argument) return {};
  return done.ec == std::errc() ? ReadNumber{Value::of(n)} : ReadNumber{Value(), true};
}

ReadNumber read_real(const std::string& digits) {
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  double x = 0;
  const auto done = std::from_chars(begin, end, x);
  // std::from_chars reads "nan(...)" too.
  if (digits.empty() || done.ptr != end || digits.back() == ')' ||
      done.ec == std::errc::invalid_argument) {
    return {};
  }
  if (done.ec == std::errc()) return {Value::of(x)};
  return {Value::of(std::strtod(digits.c_str(), nullptr))};  // 0 or infinite
}

Result<ReadNumber> read_number(const Text& text, bool whole, const std::string& filter,
                               Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(2 * text.size()));
  const std::string_view s = text::stripped(text.bytes());
  if (std::any_of(s.begin(), s.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x80; })) {
    return unknown("filter", filter + " of a text that is not ASCII");
  }
  const std::optional<std::string> digits = digits_of(s);
  if (!digits) return ReadNumber{};
  if (whole) {
    ReadNumber out = read_whole(*digits);
    if (out.large || !out.value.is_undefined()) return out;
  }
  return read_real(*digits);
}

}  // namespace

Result<Value> to_number(const std::string& name, const Value& value, const CallArguments& given,
                        Meter& meter) {
  const bool whole = name == "int";
  if (value.is_undefined()) return wrong(name.c_str(), value);
  ReadNumber read{value.is_number() ? value : Value()};
  if (const Text* const text = value.text()) {
    BLEND_ASSIGN(read, read_number(*text, whole, name, meter));
  }
  int64_t n = 0;
  double x = NAN;
  if (whole && read.value.as_integer(n)) return Value::of(n);
  const bool known = read.value.as_number(x);
  if (known && !whole) return Value::of(x);
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (known && x >= -kEnd && x < kEnd) return Value::of(static_cast<int64_t>(x));
  if (read.large || (known && std::isfinite(x))) {
    return unknown("filter", name + " of more than 64 bits");
  }
  // Not a number, or not finite: the default.
  const Value* const otherwise = given.get(0, "default");
  if (otherwise != nullptr) return *otherwise;
  return whole ? Value::of(int64_t{0}) : Value::of(0.0);
}

}  // namespace blend::chat
