#include "fault/other_machine.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace blend::test {
namespace {

std::atomic<size_t> page_bytes{0};  // 0: this machine's

void* map(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the system call gives
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

}  // namespace

OtherMachine::OtherMachine(size_t bytes) { page_bytes = bytes; }
OtherMachine::~OtherMachine() { page_bytes = 0; }

}  // namespace blend::test

using blend::test::map;
using blend::test::page_bytes;

#define BLEND_SEEN __attribute__((visibility("default")))

extern "C" {

BLEND_SEEN long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE && page_bytes != 0) return static_cast<long>(page_bytes.load());
  static const auto real = reinterpret_cast<long (*)(int)>(dlsym(RTLD_NEXT, "sysconf"));
  return real(name);
}

BLEND_SEEN void* mmap(void* at, size_t bytes, int protection, int flags, int fd,
                      off_t offset) noexcept {
  const size_t page = page_bytes;
  if (page == 0 || at != nullptr || fd < 0) return map(at, bytes, protection, flags, fd, offset);
  // Room for the file wherever the next such page begins; what lies around it is given back.
  void* const room =
      map(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return room;
  const size_t before = (page - reinterpret_cast<uintptr_t>(room) % page) % page;
  std::byte* const begin = static_cast<std::byte*>(room) + before;
  if (before != 0) munmap(room, before);
  if (before != page) munmap(begin + (bytes + 4095) / 4096 * 4096, page - before);
  return map(begin, bytes, protection, flags | MAP_FIXED, fd, offset);
}

}  // extern "C"
