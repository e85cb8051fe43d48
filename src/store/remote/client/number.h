// Numbers of addresses and replies.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace blend {

// All of `text`, which must be a number of T's range and nothing else.
template <typename T>
bool read_number(std::string_view text, T* out) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && stop == end;
}

}  // namespace blend
