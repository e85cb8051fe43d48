// What every use of oneDNN in this backend needs: one thread, no exceptions, row-major operands.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/status.h"

namespace blend::cpu {

// While it lives, OpenMP regions of the calling thread have one thread, so that oneDNN starts none
// of its own and primitives are created for one thread. The setting is the thread's own (an ICV of
// the OpenMP data environment), and the host's value comes back.
class OneOmpThread {
 public:
  // Throws std::bad_alloc. OpenMP's run-time keeps a thread's settings in memory that it takes when
  // they are first changed, and ends the process where there is none: so it is asked for before.
  OneOmpThread() : saved_(omp_get_max_threads()) {
    if (saved_ == 1) return;
    static thread_local bool prepared = false;
    if (!prepared) ::operator delete(::operator new(4096));
    omp_set_num_threads(1);
    prepared = true;
  }
  ~OneOmpThread() {
    if (saved_ != 1) omp_set_num_threads(saved_);
  }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  int saved_;
};

// Runs fn(), which may throw what oneDNN's C++ wrapper throws, under a OneOmpThread. Also on
// compute threads, where nothing may escape: hence no allocation on the way out.
template <typename Fn>
Status guarded(Fn fn) noexcept {
  try {
    const OneOmpThread one_thread;
    return fn();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) return Status::out_of_memory();
    return make_error(BLEND_E_INTERNAL, "the GEMM library failed: %s", e.what());
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& e) {
    return make_error(BLEND_E_INTERNAL, "the GEMM failed: %s", e.what());
  }
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t align(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
// Bytes rounded up to whole cache lines, so that threads' parts of a buffer share none.
constexpr size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace blend::cpu
