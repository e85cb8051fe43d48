#include "base/raw_json.h"

#include <algorithm>

namespace blend {
namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";

void skip_space(std::string_view json, size_t& at) {
  while (at < json.size() && kJsonSpace.find(json[at]) != kJsonSpace.npos) ++at;
}

// From a quote to the byte after the next one.
void skip_string(std::string_view json, size_t& at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  at = std::min(at + 1, json.size());
}

// Up to what ends the value in its object.
void skip_value(std::string_view json, size_t& at) {
  size_t depth = 0;
  while (at < json.size()) {
    const char c = json[at];
    if (c == '"') {
      skip_string(json, at);
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++at;
  }
}

}  // namespace

std::string_view raw_member(std::string_view json, std::string_view name) {
  std::string_view value;
  size_t at = 0;
  skip_space(json, at);
  if (at == json.size() || json[at] != '{') return {};
  while (at < json.size() && json[at] != '}') {
    ++at;  // { or ,
    skip_space(json, at);
    const size_t key = at;
    if (at == json.size() || json[at] != '"') return value;
    skip_string(json, at);
    const std::string_view written = json.substr(key, at - key);
    skip_space(json, at);
    if (at == json.size() || json[at] != ':') return value;
    ++at;
    skip_space(json, at);
    const size_t begin = at;
    skip_value(json, at);
    const bool found = written.size() == name.size() + 2 && written.substr(1, name.size()) == name;
    if (found) value = json.substr(begin, at - begin);
  }
  return value;
}

bool is_open(std::string_view json) {
  size_t depth = 0;
  for (size_t at = 0; at < json.size();) {
    const char c = json[at];
    if (c == '"') {
      skip_string(json, at);
      continue;
    }
    ++at;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && (depth == 0 || --depth == 0)) return false;
  }
  return true;
}

std::vector<std::string_view> raw_items(std::string_view json) {
  std::vector<std::string_view> items;
  size_t at = 0;
  skip_space(json, at);
  if (at == json.size() || json[at] != '[') return items;
  while (at < json.size() && json[at] != ']') {
    ++at;  // [ or ,
    skip_space(json, at);
    const size_t begin = at;
    skip_value(json, at);
    if (at > begin) items.push_back(json.substr(begin, at - begin));
    if (at < json.size() && json[at] == '}') break;  // no JSON
  }
  return items;
}

}  // namespace blend
