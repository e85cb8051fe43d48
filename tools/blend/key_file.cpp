#include "key_file.h"

#include <sys/stat.h>

#include "progress.h"

namespace blend_cli {
namespace {

bool is_open_to_others(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) != 0;
}

}  // namespace

// Not refused: secrets mounted into a container often have such permissions.
void note_open_key_file(const std::string& path) {
  if (is_open_to_others(path)) {
    print_note("the key in '" + path + "' is open to others than its owner: chmod 600 it");
  }
}

}  // namespace blend_cli
