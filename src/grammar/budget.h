// Budget: bounds the memory and time of code that has no bounds of its own.
//
// The library that compiles grammars (xgrammar) takes whatever a grammar costs. All of its memory
// comes from the two functions below (cmake/grammar.cmake), and work without end allocates without
// end. So an allocation past the budget throws std::bad_alloc, which that code survives anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "base/threads/cancel.h"

namespace blend::grammar {

// What one piece of work may hold and take, over several uses. Not thread-safe.
class Budget {
 public:
  explicit Budget(size_t bytes) : bytes_(bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // While it lives, this thread's allocations are the budget's. They do not nest.
  class Use {
   public:
    // `cpu_ns`: of this thread, for this use. `cancel` may be null.
    Use(Budget& budget, uint64_t cpu_ns, const CancelToken* cancel);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

  // After std::bad_alloc: CANCELLED; UNSUPPORTED names the limit; OUT_OF_MEMORY: the system's.
  Status why() const;

 private:
  friend void* allocate(size_t n_bytes);
  friend void release(void* memory, size_t n_bytes) noexcept;
  enum class End { none, memory, time, cancelled };

  void take(size_t n_bytes);

  const size_t bytes_;
  size_t held_ = 0;
  uint32_t n_since_look_ = 0;  // allocations since the clock was read
  uint64_t deadline_ns_ = 0;
  uint64_t cpu_ns_ = 0;
  const CancelToken* cancel_ = nullptr;
  End end_ = End::none;
};

// operator new and delete of the objects in cmake/grammar.cmake.
void* allocate(size_t n_bytes);
void release(void* memory, size_t n_bytes) noexcept;

}  // namespace blend::grammar
