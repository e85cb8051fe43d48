// A file that appears under its name whole or not at all is written beside it first.
#pragma once

#include <cstdint>
#include <string>

namespace blend {

// Makes and opens an empty file beside `path`, `*part`: no other call of any process has it.
// Gives its descriptor, or -1 and errno.
int open_part_file(const std::string& path, uint32_t mode, std::string* part);

}  // namespace blend
