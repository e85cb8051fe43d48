#include "fault/failing_io.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>

namespace {

using blend::test::IoFault;

std::atomic<bool> g_armed{false};
std::atomic<IoFault> g_fault{IoFault::none};
std::atomic<uint64_t> g_at{0};
std::atomic<uint64_t> g_count{0};
std::atomic<bool> g_fired{false};

bool regular(int fd) {
  struct stat st {};
  return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

// True: the call must fail, errno is set. `bytes`, if not null: how much of the write may be done
// first.
bool met(size_t* bytes) {
  if (!g_armed.load(std::memory_order_acquire)) return false;
  const uint64_t n = g_count.fetch_add(1) + 1;
  const IoFault fault = g_fault.load();
  const uint64_t at = g_at.load();
  if (fault == IoFault::none || n < at || (n > at && fault != IoFault::fail_full)) return false;
  g_fired = true;
  switch (fault) {
    case IoFault::kill:
      kill(getpid(), SIGKILL);
      pause();
      break;
    case IoFault::fail_full:
      if (n == at && bytes != nullptr && *bytes > 4096) {
        *bytes /= 2;
        return false;
      }
      errno = ENOSPC;
      return true;
    case IoFault::interrupt:
      errno = EINTR;
      return true;
    case IoFault::fail_eio:
    case IoFault::none:
      break;
  }
  errno = EIO;
  return true;
}

// As met(), of parts; `n` gets how many of them stay, the last perhaps cut, in `cut`.
bool met(const struct iovec* iov, int* n, struct iovec* cut) {
  size_t total = 0;
  for (int i = 0; i < *n; ++i) total += iov[i].iov_len;
  size_t left = total;
  if (met(&left)) return true;
  if (left == total) return false;
  int kept = 0;
  for (; left > 0; ++kept) {
    cut[kept] = iov[kept];
    cut[kept].iov_len = std::min(left, iov[kept].iov_len);
    left -= cut[kept].iov_len;
  }
  *n = -kept;
  return false;
}

template <typename... Args>
long raw(long number, Args... args) {
  return syscall(number, args...);
}

}  // namespace

#define BLEND_SEEN extern "C" __attribute__((visibility("default")))

BLEND_SEEN ssize_t write(int fd, const void* data, size_t n) {
  if (regular(fd) && met(&n)) return -1;
  return raw(SYS_write, fd, data, n);
}
BLEND_SEEN ssize_t pwrite(int fd, const void* data, size_t n, off_t at) {
  if (regular(fd) && met(&n)) return -1;
  return raw(SYS_pwrite64, fd, data, n, at);
}
BLEND_SEEN ssize_t pwrite64(int fd, const void* data, size_t n, off64_t at) {
  return pwrite(fd, data, n, at);
}
BLEND_SEEN ssize_t writev(int fd, const struct iovec* iov, int n) {
  struct iovec cut[IOV_MAX];
  if (regular(fd) && met(iov, &n, cut)) return -1;
  return n < 0 ? raw(SYS_writev, fd, cut, -n) : raw(SYS_writev, fd, iov, n);
}
BLEND_SEEN ssize_t pwritev(int fd, const struct iovec* iov, int n, off_t at) {
  struct iovec cut[IOV_MAX];
  if (regular(fd) && met(iov, &n, cut)) return -1;
  return n < 0 ? raw(SYS_pwritev, fd, cut, -n, at, 0L) : raw(SYS_pwritev, fd, iov, n, at, 0L);
}
BLEND_SEEN int fsync(int fd) {
  if (g_armed.load() && met(nullptr)) return -1;
  return g_armed.load() ? 0 : static_cast<int>(raw(SYS_fsync, fd));
}
BLEND_SEEN int fdatasync(int fd) {
  if (g_armed.load() && met(nullptr)) return -1;
  return g_armed.load() ? 0 : static_cast<int>(raw(SYS_fdatasync, fd));
}
BLEND_SEEN int ftruncate(int fd, off_t n) {
  if (met(nullptr)) return -1;
  return static_cast<int>(raw(SYS_ftruncate, fd, n));
}
BLEND_SEEN int rename(const char* from, const char* to) noexcept {
  if (g_fault.load() != IoFault::interrupt && met(nullptr)) return -1;
  return static_cast<int>(raw(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
BLEND_SEEN int link(const char* from, const char* to) noexcept {
  if (g_fault.load() != IoFault::interrupt && met(nullptr)) return -1;
  return static_cast<int>(raw(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace blend::test {

FaultyIo::FaultyIo(IoFault fault, uint64_t n) {
  g_fired = false;
  g_count = 0;
  g_at = n;
  g_fault = fault;
  g_armed.store(true, std::memory_order_release);
}

FaultyIo::~FaultyIo() { g_armed.store(false, std::memory_order_release); }

uint64_t FaultyIo::calls() const { return g_count; }
bool FaultyIo::fired() const { return g_fired; }

}  // namespace blend::test
