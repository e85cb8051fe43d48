#include <algorithm>

#include "http.h"

namespace blend_cli::serve {

const std::string* HttpHead::field(std::string_view name) const {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const auto same = [&](char a, char b) { return lower(a) == lower(b); };
  for (const auto& [key, value] : fields) {
    if (std::equal(key.begin(), key.end(), name.begin(), name.end(), same)) return &value;
  }
  return nullptr;
}

}  // namespace blend_cli::serve
