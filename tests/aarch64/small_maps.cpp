// mmap() and munmap() for programs that run in qemu's user mode, which keeps a record of every page
// that is mapped (up to version 7): the map of a store with the default quota, 17 GiB of address
// space, costs it half a second and 100 MB each time. For a map of a file that is larger than
// kMost, as no file of a test is, only the beginning is mapped.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace {

constexpr size_t kMost = size_t{512} << 20;

}  // namespace

extern "C" {

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  const size_t mapped = fd >= 0 && (flags & MAP_FIXED) == 0 ? std::min(bytes, kMost) : bytes;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the system call gives
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, mapped, protection, flags, fd, offset));
}

// A larger size was such a map: nothing else in a test is.
int munmap(void* at, size_t bytes) noexcept {
  return static_cast<int>(syscall(SYS_munmap, at, std::min(bytes, kMost)));
}

}  // extern "C"
