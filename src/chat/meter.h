// Meter: the work, memory and nesting that a template may still use.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "base/threads/cancel.h"

namespace blend::chat {

// All code that loops, copies, compares or prints takes fuel first: about one unit for a byte of
// memory, or for some nanoseconds of work. Fuel is never given back, so it bounds memory too. Not
// thread-safe.
class Meter {
 public:
  // Maximum nesting of expressions, blocks and filters, through all calls. It bounds the stack: a
  // rendering needs at most 128 KiB.
  static constexpr int kMaxDepth = 80;
  // Fuel for a new value, besides that for its bytes or items.
  static constexpr size_t kValue = 128;

  explicit Meter(size_t fuel, const CancelToken* cancel = nullptr) : fuel_(fuel), cancel_(cancel) {}

  // UNSUPPORTED: the template takes too much. CANCELLED.
  Status take(size_t n) {
    if (n > fuel_ || (cancel_ != nullptr && cancel_->requested())) return refuse(n);
    fuel_ -= n;
    return Status::ok();
  }
  // n times `each`; the product may overflow a size_t.
  Status take(size_t n, size_t each) {
    size_t all = 0;
    return take(__builtin_mul_overflow(n, each, &all) ? SIZE_MAX : all);
  }
  // Fuel for a binary search among n names that compares `bytes` each time.
  Status take_search(size_t n, size_t bytes) {
    return take(1 + static_cast<size_t>(std::bit_width(n)) * (1 + bytes / 16));
  }

  // Counts the recursion of the interpreter.
  class Depth {
   public:
    explicit Depth(Meter& meter) : depth_(++meter.depth_) {}
    ~Depth() { --depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    // UNSUPPORTED: too deep.
    Status check() const { return depth_ <= kMaxDepth ? Status::ok() : refuse(); }

   private:
    static Status refuse();
    int& depth_;
  };

  // Notices a cancel in loops whose fuel was taken before: once in kPiece bytes or items.
  class Pause {
   public:
    explicit Pause(Meter& meter) : meter_(meter) {}
    // CANCELLED. `n`: bytes or items done since the last call.
    Status after(size_t n) {
      if ((done_ += n) < kPiece) return Status::ok();
      done_ = 0;
      return meter_.take(0);
    }

   private:
    static constexpr size_t kPiece = size_t{1} << 16;
    Meter& meter_;
    size_t done_ = 0;
  };

 private:
  Status refuse(size_t n);

  size_t fuel_;
  const CancelToken* cancel_;
  int depth_ = 0;
};

}  // namespace blend::chat
