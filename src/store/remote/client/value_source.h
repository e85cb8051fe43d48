// ValueSource: a value as it is sent, piece by piece: what is made on the way needs no room for all
// of it, and the server takes the first piece while the next is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace blend {

using Part = std::span<const std::byte>;

// Used by one thread.
class ValueSource {
 public:
  virtual ~ValueSource() = default;
  virtual uint64_t bytes() const = 0;
  // From the start; again where a connection broke and the value is sent once more. OUT_OF_MEMORY,
  // INTERNAL.
  virtual Status begin() = 0;
  // Adds the next bytes, good until the next call. *last: there are no more behind them.
  virtual Status next(std::vector<Part>& out, bool* last) = 0;
};

// Bytes that lie there already.
class PartsValue final : public ValueSource {
 public:
  explicit PartsValue(std::span<const Part> parts) : parts_(parts) {}
  uint64_t bytes() const override {
    uint64_t all = 0;
    for (const Part& part : parts_) all += part.size();
    return all;
  }
  Status begin() override { return Status::ok(); }
  Status next(std::vector<Part>& out, bool* last) override {
    out.insert(out.end(), parts_.begin(), parts_.end());
    *last = true;
    return Status::ok();
  }

 private:
  const std::span<const Part> parts_;
};

}  // namespace blend
