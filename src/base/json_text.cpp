#include "base/json_text.h"

#include <charconv>
#include <cmath>

namespace blend {

void write_json_string(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

bool write_json(const Json& value, std::string& out, LargeNumbers large) {
  if (value.is_null()) {
    out += "null";
  } else if (const bool* const b = value.boolean()) {
    out += *b ? "true" : "false";
  } else if (const std::string* const s = value.string()) {
    write_json_string(*s, out);
  } else if (const Json::Array* const array = value.array()) {
    out += '[';
    for (size_t i = 0; i < array->size(); ++i) {
      if (i > 0) out += ',';
      if (!write_json((*array)[i], out, large)) return false;
    }
    out += ']';
  } else if (const Json::Object* const object = value.object()) {
    out += '{';
    for (size_t i = 0; i < object->size(); ++i) {
      if (i > 0) out += ',';
      write_json_string((*object)[i].first, out);
      out += ':';
      if (!write_json((*object)[i].second, out, large)) return false;
    }
    out += '}';
  } else {
    char digits[320];  // as many as a double has before its point, and some
    int64_t whole = 0;
    double number = 0;
    std::to_chars_result end{};
    if (const double* const real = value.real()) {
      if (!std::isfinite(*real)) return false;
      end = std::to_chars(digits, digits + sizeof digits, *real);
    } else if (value.integer(whole)) {
      end = std::to_chars(digits, digits + sizeof digits, whole);
    } else if (large == LargeNumbers::nearest && value.number(number) && std::isfinite(number)) {
      end = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed, 0);
    } else {
      return false;
    }
    out.append(digits, end.ptr);
  }
  return true;
}

}  // namespace blend
