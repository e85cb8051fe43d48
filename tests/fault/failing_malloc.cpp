#include "fault/failing_malloc.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

// glibc's own, under the names that it exports for this purpose.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

std::atomic<bool> g_armed{false};
std::atomic<bool> g_sticky{false};
std::atomic<uint64_t> g_fail_at{0};
std::atomic<uint64_t> g_count{0};
std::atomic<bool> g_fired{false};
std::atomic<int64_t> g_live{0};

bool must_fail() {
  if (!g_armed.load(std::memory_order_acquire)) return false;
  const uint64_t n = g_count.fetch_add(1) + 1;
  const uint64_t fail_at = g_fail_at.load();
  if (n != fail_at && !(g_sticky.load() && n > fail_at)) return false;
  g_fired = true;
  errno = ENOMEM;
  return true;
}

void* counted(void* p) {
  if (p != nullptr) g_live.fetch_add(1, std::memory_order_relaxed);
  return p;
}

void* aligned(size_t alignment, size_t n) {
  return must_fail() ? nullptr : counted(__libc_memalign(alignment, n));
}

}  // namespace

extern "C" {

void* malloc(size_t n) { return must_fail() ? nullptr : counted(__libc_malloc(n)); }
void* calloc(size_t n, size_t size) {
  return must_fail() ? nullptr : counted(__libc_calloc(n, size));
}
void* realloc(void* p, size_t n) {
  if (must_fail()) return nullptr;
  void* const q = __libc_realloc(p, n);
  if (p == nullptr) counted(q);
  if (p != nullptr && n == 0 && q == nullptr) g_live.fetch_sub(1, std::memory_order_relaxed);
  return q;
}
void* memalign(size_t alignment, size_t n) { return aligned(alignment, n); }
void* aligned_alloc(size_t alignment, size_t n) { return aligned(alignment, n); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  void* const p = aligned(alignment, n);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}
void free(void* p) {
  if (p != nullptr) g_live.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(p);
}

}  // extern "C"

// The standard library's operators would hide who asked; these free with its own, which call free.
void* operator new(size_t n) {
  void* const p = must_fail() ? nullptr : counted(__libc_malloc(n == 0 ? 1 : n));
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new(size_t n, std::align_val_t alignment) {
  void* const p = aligned(static_cast<size_t>(alignment), n == 0 ? 1 : n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return must_fail() ? nullptr : counted(__libc_malloc(n == 0 ? 1 : n));
}
void operator delete(void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete(void* p, std::align_val_t) noexcept { free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { free(p); }

namespace blend::test {

FailingMalloc::FailingMalloc(uint64_t n, bool sticky) {
  g_fired = false;
  g_count = 0;
  g_fail_at = n;
  g_sticky = sticky;
  g_armed.store(true, std::memory_order_release);
}

FailingMalloc::~FailingMalloc() { g_armed.store(false, std::memory_order_release); }

bool FailingMalloc::fired() const { return g_fired; }

int64_t live_blocks() { return g_live; }

}  // namespace blend::test
