// The 16,384 slots of a cluster: which key belongs to which, and who serves them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "store/remote/client/resp.h"
#include "store/remote/options.h"

namespace blend {

inline constexpr uint32_t kSlots = 16384;

// CRC16 (XMODEM) of the key, or of what stands in its first braces, mod 16384.
uint32_t slot_of(std::string_view key);

struct SlotRange {
  uint32_t first = 0;
  uint32_t last = 0;
  RemoteAddress master;
};
// The reply of CLUSTER SLOTS that `from` gave: a server that does not know its own address leaves
// it out. Nothing: it is none.
std::optional<std::vector<SlotRange>> read_slots(const Reply& reply, const RemoteAddress& from);

struct Redirect {
  bool ask = false;  // this once; otherwise for good
  uint32_t slot = 0;
  RemoteAddress to;
};
// Of an error "MOVED 3999 host:port" or "ASK ...". Nothing: it is none.
std::optional<Redirect> read_redirect(const Reply& reply, const RemoteAddress& from);

}  // namespace blend
