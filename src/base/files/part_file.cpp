#include "base/files/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/files/eintr.h"

namespace blend {

int open_part_file(const std::string& path, uint32_t mode, std::string* part) {
  static std::atomic<uint64_t> n{0};
  for (;;) {
    *part = path + ".part-" + std::to_string(getpid()) + "-" + std::to_string(n.fetch_add(1));
    const int fd = retry_interrupted([&] {
      return open(part->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    });
    // Another PID namespace has a process of this number, or had one that was killed.
    if (fd >= 0 || errno != EEXIST) return fd;
  }
}

}  // namespace blend
