// Writes the figures of a benchmark to a file: --json of all of them.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace blend::bench {

// Nothing is written for an empty path: --json was not given.
inline void write_json(const std::string& path, const nlohmann::json& figures) {
  if (path.empty()) return;
  std::ofstream out(path);
  out << figures.dump(2) << "\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
}

}  // namespace blend::bench
