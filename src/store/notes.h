// StoreNotes: small records beside the chunks that somebody else makes sense of. What was learnt
// with a store stays with it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace blend {

struct Note {
  std::string name;  // bytes
  std::string bytes;
};

// Thread-safe. Every call first checks for fork (BLEND_E_FORKED).
class StoreNotes {
 public:
  static constexpr size_t kMostNameBytes = 64;
  static constexpr size_t kMostBytes = 1024;

  virtual ~StoreNotes() = default;
  // Those whose names begin so, in the order of their names. A damaged one is left out.
  virtual Result<std::vector<Note>> notes(std::string_view prefix) = 0;
  // The note of this name becomes what `change` makes of it, in one transaction with every other
  // process; it is given nothing where there is no sound one. Durable when it returns. READ_ONLY,
  // FULL, IO; INVALID_ARGUMENT for what is too long.
  using Change = std::function<std::string(std::span<const std::byte> old)>;
  virtual Status change_note(std::string_view name, const Change& change) = 0;
};

}  // namespace blend
