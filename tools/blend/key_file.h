// Files with keys in them.
#pragma once

#include <string>

namespace blend_cli {

// A note where others than its owner may read or change the file. None for one that is not there.
void note_open_key_file(const std::string& path);

}  // namespace blend_cli
