// Meter: the work, memory and nesting that a template may still use.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/cancel.h"
#include "base/status.h"

namespace blend::chat {

// Everything that loops, copies, compares or prints takes fuel before it does: about a unit for a
// byte that is held, or for the work of some nanoseconds. What was taken is not given back, so that
// memory is bounded by the fuel too. Not thread-safe.
class Meter {
 public:
  // Of expressions, blocks and filters inside one another, through all calls: what bounds the
  // stack. With it a rendering fits a thread's stack of 128 KiB.
  static constexpr int kMaxDepth = 80;
  // Of a value that is made, beside its bytes or items.
  static constexpr size_t kValue = 128;

  explicit Meter(size_t fuel, const CancelToken* cancel = nullptr) : fuel_(fuel), cancel_(cancel) {}

  // UNSUPPORTED: the template takes too much. CANCELLED.
  Status take(size_t n) {
    if (n > fuel_ || (cancel_ != nullptr && cancel_->requested())) return refuse(n);
    fuel_ -= n;
    return Status::ok();
  }
  // n times `each`, which may be more than a size_t holds.
  Status take(size_t n, size_t each) {
    size_t all = 0;
    return take(__builtin_mul_overflow(n, each, &all) ? SIZE_MAX : all);
  }
  // To compare `bytes` with others as often as a search among n does.
  Status take_search(size_t n, size_t bytes) {
    return take(1 + static_cast<size_t>(std::bit_width(n)) * (1 + bytes / 16));
  }

  // Counts how deep the interpreter is inside itself.
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

  // Sees a cancel in loops over what is paid for, every so many bytes or items.
  class Pause {
   public:
    explicit Pause(Meter& meter) : meter_(meter) {}
    // CANCELLED. `n`: what was done since the last time.
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
