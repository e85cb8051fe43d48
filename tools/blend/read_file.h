// Files that the command reads itself, so that the first signal ends it even while it waits for a
// pipe that nobody writes into, or for a mount whose server is gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace blend_cli {

// Runs `work` on a thread of its own and throws what it throws. After Ctrl-C or SIGTERM it has
// `patience` to come to an end, as the library does by itself where it can; then the process ends
// with 130, as after a second signal. No signal wakes a thread that waits for a dead mount, so it
// cannot be waited for. Stores are sound after that.
void interruptibly(const std::function<void()>& work, std::chrono::milliseconds patience = {});

struct FileBytes {
  std::string bytes;
  int error = 0;  // an errno; EFBIG: the file has more bytes than asked for
};
// The whole of a file, a pipe or a device. Blocks; to be called within interruptibly.
FileBytes read_file(const std::string& path, size_t most_bytes);

}  // namespace blend_cli
