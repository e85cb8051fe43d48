#include "grammar/budget.h"

#include <ctime>
#include <new>

namespace blend::grammar {
namespace {

thread_local Budget* used = nullptr;

// The time of this thread alone: what others do does not shorten it.
uint64_t cpu_now_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

Budget::Use::Use(Budget& budget, uint64_t cpu_ns, const CancelToken* cancel) {
  budget.cpu_ns_ = cpu_ns;
  budget.deadline_ns_ = cpu_now_ns() + cpu_ns;
  budget.cancel_ = cancel;
  budget.end_ = End::none;
  used = &budget;
}

Budget::Use::~Use() { used = nullptr; }

void Budget::take(size_t n_bytes) {
  // One throw ends the work; what its unwinding allocates is let through.
  if (end_ != End::none) return;
  constexpr uint32_t kLook = 64;  // the clock costs as much as some allocations
  if (n_bytes > bytes_ - held_) {
    end_ = End::memory;
  } else if (++n_since_look_ >= kLook) {
    n_since_look_ = 0;
    if (cancel_ != nullptr && cancel_->requested()) {
      end_ = End::cancelled;
    } else if (cpu_now_ns() > deadline_ns_) {
      end_ = End::time;
    }
  }
  if (end_ != End::none) throw std::bad_alloc();
  held_ += n_bytes;
}

Status Budget::why() const {
  switch (end_) {
    case End::none:
      return Status::out_of_memory();
    case End::cancelled:
      return {BLEND_E_CANCELLED, "the call was cancelled"};
    case End::memory:
      return make_error(BLEND_E_UNSUPPORTED,
                        "the grammar needs more than %zu MiB of memory: make it smaller, with "
                        "fewer or shorter repetitions and alternatives",
                        bytes_ >> 20);
    case End::time:
      return make_error(BLEND_E_UNSUPPORTED,
                        "the grammar takes more than %.1f s of computing: make it smaller, with "
                        "fewer or shorter repetitions and alternatives",
                        static_cast<double>(cpu_ns_) * 1e-9);
  }
  return Status::out_of_memory();
}

void* allocate(size_t n_bytes) {
  if (used != nullptr) used->take(n_bytes);
  return ::operator new(n_bytes);
}

void release(void* memory, size_t n_bytes) noexcept {
  // What was allocated in another use, or before one, was not counted there.
  if (used != nullptr) used->held_ -= n_bytes < used->held_ ? n_bytes : used->held_;
  ::operator delete(memory);
}

}  // namespace blend::grammar
