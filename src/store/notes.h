// StoreNotes: small records beside the chunks, with contents that the store does not interpret:
// facts learnt with a store stay with it.
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
  // Notes with this prefix, in the order of their names. Damaged ones are left out.
  virtual Result<std::vector<Note>> notes(std::string_view prefix) = 0;
  // Replaces the note of this name by the result of `change`, in one transaction among all
  // processes; its argument is empty where there is no sound one. Durable when it returns.
  // READ_ONLY, FULL, IO; INVALID_ARGUMENT if it is too long.
  using Change = std::function<std::string(std::span<const std::byte> old)>;
  virtual Status change_note(std::string_view name, const Change& change) = 0;
};

}  // namespace blend
