// Memory that all requests share: together they get no more of it than there is.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace blend_cli::serve {

// Thread-safe. Must outlive its shares.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t most) : most_(most) {}
  size_t used() const { return used_.load(std::memory_order_relaxed); }

  // One request's share; given back by its destructor. Not thread-safe.
  class Share {
   public:
    explicit Share(MemoryBudget& budget) : budget_(&budget) {}
    Share(Share&& other) noexcept
        : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    Share& operator=(Share&&) = delete;
    ~Share() { budget_->used_ -= bytes_; }

    // False: there is not that much left. A request that has little may take the last quarter too,
    // so that a few large ones do not keep all others out.
    bool take(size_t bytes) {
      const size_t most =
          bytes_ + bytes <= kLittle ? budget_->most_ : budget_->most_ - budget_->most_ / 4;
      size_t used = budget_->used();
      do {
        if (bytes > most || used > most - bytes) return false;
      } while (!budget_->used_.compare_exchange_weak(used, used + bytes));
      bytes_ += bytes;
      return true;
    }
    size_t bytes() const { return bytes_; }

   private:
    static constexpr size_t kLittle = size_t{1} << 20;
    MemoryBudget* budget_;
    size_t bytes_ = 0;
  };

 private:
  const size_t most_;
  std::atomic<size_t> used_{0};
};

}  // namespace blend_cli::serve
