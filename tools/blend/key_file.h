// Files with keys in them.
#pragma once

#include <string>

namespace blend_cli {

// Whether others than its owner may read or change the file. A file that is not there: no.
bool is_open_to_others(const std::string& path);
// Says so, in a note that names the way out.
void note_open_key_file(const std::string& path);

}  // namespace blend_cli
