#include "simt/simt.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

Index thread_index, block_index, block_size, grid_size;
unsigned char* dynamic_shared = nullptr;

void die(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::fputs("simt: ", stderr);
  std::vfprintf(stderr, format, args);
  std::fputs("\n", stderr);
  va_end(args);
  std::abort();
}

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostShared = 227 << 10;

enum class State : uint8_t { ready, at_barrier, in_warp, done };

struct AsyncCopy {
  void* to;
  const void* from;
  size_t bytes, zeros;
};

struct Fiber {
  unsigned id = 0;
  Index index;
  State state = State::done;
  bool started = false;
  std::vector<std::vector<AsyncCopy>> groups;  // committed, oldest first
  std::vector<AsyncCopy> open;
  char* stack = nullptr;
  ucontext_t context;
  jmp_buf at;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#endif
};

struct Warp {
  const char* what = nullptr;
  unsigned mask = 0, arrived = 0;
  void* args[32] = {};
};

// The block that runs. One at a time, so it may be one object.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  const std::function<void()>* kernel = nullptr;
  Fiber* current = nullptr;
  unsigned n_threads = 0, n_live = 0, n_at_barrier = 0;
  const char* barrier = nullptr;
  Order order = Order::ascending;
  ucontext_t scheduler{};
  jmp_buf scheduler_at{};
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
#endif
};
Block block;

void copy_now(const AsyncCopy& c) {
  std::memcpy(c.to, c.from, c.bytes);
  std::memset(static_cast<char*>(c.to) + c.bytes, 0, c.zeros);
}

// ---- Switching. longjmp between stacks costs no system call; AddressSanitizer wants to be told,
// and understands swapcontext only.

#if defined(__SANITIZE_ADDRESS__)
void suspend() {
  Fiber& f = *block.current;
  __sanitizer_start_switch_fiber(&f.fake_stack, block.stack_bottom, block.stack_size);
  swapcontext(&f.context, &block.scheduler);
  __sanitizer_finish_switch_fiber(f.fake_stack, &block.stack_bottom, &block.stack_size);
}
void resume(Fiber& f) {
  block.current = &f;
  thread_index = f.index;
  __sanitizer_start_switch_fiber(&block.fake_stack, f.stack, kStackBytes);
  swapcontext(&block.scheduler, &f.context);
  __sanitizer_finish_switch_fiber(block.fake_stack, nullptr, nullptr);
}
#else
void suspend() {
  if (_setjmp(block.current->at) == 0) _longjmp(block.scheduler_at, 1);
}
void resume(Fiber& f) {
  block.current = &f;
  thread_index = f.index;
  if (_setjmp(block.scheduler_at) != 0) return;
  if (!f.started) {
    f.started = true;
    setcontext(&f.context);
  }
  _longjmp(f.at, 1);
}
#endif

void release_barrier_if_complete() {
  if (block.n_at_barrier == 0 || block.n_at_barrier < block.n_live) return;
  for (unsigned i = 0; i < block.n_threads; ++i) {
    Fiber& f = *block.fibers[i];
    if (f.state == State::at_barrier) f.state = State::ready;
  }
  block.n_at_barrier = 0;
  block.barrier = nullptr;
}

// A fiber lives on and runs its thread of block after block.
void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block.stack_bottom, &block.stack_size);
#endif
  for (;;) {
    (*block.kernel)();
    Fiber& f = *block.current;
    // What is still on its way arrives some time; nobody may rely on it.
    f.groups.clear();
    f.open.clear();
    f.state = State::done;
    --block.n_live;
    release_barrier_if_complete();
    suspend();
  }
}

void make_context(Fiber& f) {
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = kStackBytes;
  f.context.uc_link = nullptr;
  makecontext(&f.context, &fiber_main, 0);
}

void make_fibers(unsigned n) {
  while (block.fibers.size() < n) {
    std::unique_ptr<Fiber> f(new Fiber);
    f->id = static_cast<unsigned>(block.fibers.size());
    void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) die("no memory for a thread");
    f->stack = static_cast<char*>(stack);
    make_context(*f);
    block.fibers.push_back(std::move(f));
  }
}

// Runs the ready threads of a warp until none is. Whether any ran.
bool run_warp(unsigned warp) {
  const unsigned begin = warp * 32, end = std::min(begin + 32, block.n_threads);
  bool ran = false, again = true;
  while (again) {
    again = false;
    for (unsigned i = begin; i < end; ++i) {
      Fiber& f = *block.fibers[block.order == Order::ascending ? i : end - 1 - (i - begin)];
      if (f.state != State::ready) continue;
      resume(f);
      ran = again = true;
    }
  }
  return ran;
}

void run_block() {
  const auto n_warps = static_cast<unsigned>(block.warps.size());
  while (block.n_live > 0) {
    bool ran = false;
    for (unsigned w = 0; w < n_warps; ++w) {
      ran |= run_warp(block.order == Order::ascending ? w : n_warps - 1 - w);
    }
    if (!ran) {
      die("deadlock in block (%u, %u, %u): %u of %u live threads wait at barrier %s", block_index.x,
          block_index.y, block_index.z, block.n_at_barrier, block.n_live,
          block.barrier == nullptr ? "(none)" : block.barrier);
    }
  }
}

}  // namespace

void set_order(Order order) { block.order = order; }

void run_grid(Index grid, Index threads, size_t shared_bytes, const std::function<void()>& kernel) {
  const unsigned n = threads.x * threads.y * threads.z;
  if (n == 0 || n > kMostThreads) die("%u threads in a block", n);
  if (shared_bytes > kMostShared) die("%zu bytes of shared memory", shared_bytes);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) {
    die("a grid of (%u, %u, %u)", grid.x, grid.y, grid.z);
  }
  make_fibers(n);
  grid_size = grid;
  block_size = threads;
  block.kernel = &kernel;
  const uint64_t n_blocks = uint64_t{grid.x} * grid.y * grid.z;
  for (uint64_t i = 0; i < n_blocks; ++i) {
    const uint64_t b = block.order == Order::ascending ? i : n_blocks - 1 - i;
    block_index = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                   static_cast<unsigned>(b / grid.x / grid.y)};
    block.n_threads = block.n_live = n;
    block.n_at_barrier = 0;
    block.warps.assign((n + 31) / 32, Warp{});
    for (unsigned t = 0; t < n; ++t) {
      Fiber& f = *block.fibers[t];
      f.index = {t % threads.x, t / threads.x % threads.y, t / threads.x / threads.y};
      f.state = State::ready;
    }
    // Exactly as large as was asked for, so that AddressSanitizer sees accesses past the end.
    void* shared = nullptr;
    if (posix_memalign(&shared, 128, std::max<size_t>(shared_bytes, 1)) != 0) {
      die("no shared memory");
    }
    std::memset(shared, 0xff, shared_bytes);
    dynamic_shared = static_cast<unsigned char*>(shared);
    run_block();
    std::free(shared);
  }
}

void barrier(const char* where) {
  if (block.barrier != nullptr && std::strcmp(block.barrier, where) != 0) {
    die("threads of a block wait at two barriers: %s and %s", block.barrier, where);
  }
  block.barrier = where;
  block.current->state = State::at_barrier;
  ++block.n_at_barrier;
  release_barrier_if_complete();
  suspend();
}

void warp_operation(const char* what, unsigned mask, void* arg, WarpFunction all) {
  Fiber& f = *block.current;
  Warp& warp = block.warps[f.id / 32];
  const unsigned lane = f.id % 32, first = f.id - lane;
  if ((mask >> lane & 1) == 0) die("%s: lane %u is not in its own mask %08x", what, lane, mask);
  if (warp.arrived == 0) {
    warp.what = what;
    warp.mask = mask;
    for (unsigned i = 0; i < 32; ++i) {
      if ((mask >> i & 1) == 0) continue;
      if (first + i >= block.n_threads || block.fibers[first + i]->state == State::done) {
        die("%s: lane %u of the mask %08x has ended or never was", what, i, mask);
      }
    }
  } else if (warp.mask != mask || std::strcmp(warp.what, what) != 0) {
    die("lanes of a warp part: %s (%08x) and %s (%08x)", warp.what, warp.mask, what, mask);
  }
  warp.args[lane] = arg;
  warp.arrived |= 1u << lane;
  if (warp.arrived != mask) {
    f.state = State::in_warp;
    suspend();
    return;
  }
  if (all != nullptr) all(warp.args, mask);
  warp.arrived = 0;
  std::fill(std::begin(warp.args), std::end(warp.args), nullptr);
  for (unsigned i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && i != lane) block.fibers[first + i]->state = State::ready;
  }
}

void copy_async(void* to, const void* from, size_t bytes, size_t zeros) {
  const AsyncCopy copy{to, from, bytes, zeros};
  if (block.order == Order::descending) copy_now(copy);
  block.current->open.push_back(copy);
}
void commit_async() {
  Fiber& f = *block.current;
  f.groups.push_back(std::move(f.open));
  f.open.clear();
}
void wait_async(unsigned newest_groups_left) {
  Fiber& f = *block.current;
  while (f.groups.size() > newest_groups_left) {
    if (block.order == Order::ascending) {
      for (const AsyncCopy& c : f.groups.front()) copy_now(c);
    }
    f.groups.erase(f.groups.begin());
  }
}

}  // namespace simt
