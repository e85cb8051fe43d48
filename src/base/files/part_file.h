// For files that appear under their name whole or not at all: they are written beside it first.
#pragma once

#include <cstdint>
#include <string>

namespace blend {

// Makes and opens an empty file beside `path`, `*part`, that no other call of any process has.
// Returns its descriptor, or -1 and errno.
int open_part_file(const std::string& path, uint32_t mode, std::string* part);

}  // namespace blend
