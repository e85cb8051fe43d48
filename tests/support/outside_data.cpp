#include "support/outside_data.h"

#include <filesystem>
#include <system_error>

namespace blend::test {

std::string outside_data(const std::string& name) {
  const std::string root = BLEND_DATA_DIR;
  if (root.empty()) return {};
  std::error_code ignored;
  const std::string path = root + "/" + name;
  return std::filesystem::exists(path, ignored) ? path : std::string();
}

}  // namespace blend::test
