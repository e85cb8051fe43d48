#include <algorithm>

#include "http.h"

namespace blend_cli::serve {
namespace {

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

const std::string* HttpHead::field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (same_name(key, name)) return &value;
  }
  return nullptr;
}

const std::string* HttpHead::only_field(std::string_view name) const {
  const auto n = std::count_if(fields.begin(), fields.end(),
                               [&](const auto& field) { return same_name(field.first, name); });
  return n == 1 ? field(name) : nullptr;
}

}  // namespace blend_cli::serve
