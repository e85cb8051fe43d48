#include "trace_context.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string_view>

namespace blend_cli::serve {
namespace {

// Capitals are no digits here.
bool is_lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

std::optional<TraceContext> parse_traceparent(std::string_view text) {
  // 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
  constexpr size_t kLength = 55;
  if (text.size() < kLength) return std::nullopt;
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace_id = text.substr(3, 32);
  const std::string_view parent_id = text.substr(36, 16);
  const std::string_view flags = text.substr(53, 2);
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  for (const std::string_view part : {version, trace_id, parent_id, flags}) {
    if (!is_lower_hex(part)) return std::nullopt;
  }
  if (version == "ff" || is_zero(trace_id) || is_zero(parent_id)) return std::nullopt;
  const bool longer = text.size() > kLength;
  if (longer && (version == "00" || text[kLength] != '-')) return std::nullopt;
  return TraceContext{std::string(trace_id), std::string(parent_id), std::string(flags)};
}

bool is_request_id(std::string_view text) {
  constexpr size_t kMost = 128;
  return !text.empty() && text.size() <= kMost &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c) || c == '='; });
}

}  // namespace

std::optional<TraceContext> trace_of(const HttpHead& head) {
  const std::string* const given = head.only_field("traceparent");
  return given == nullptr ? std::nullopt : parse_traceparent(*given);
}

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("._~:@+/-").find(c) != std::string_view::npos;
}

std::string request_id_of(const HttpHead* head) {
  const std::string* const given = head == nullptr ? nullptr : head->only_field("X-Request-Id");
  return given != nullptr && is_request_id(*given) ? *given : random_hex() + random_hex();
}

std::string random_hex() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  char digits[24];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(random()));
  return digits;
}

}  // namespace blend_cli::serve
