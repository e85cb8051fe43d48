// make_room: evicts until a chunk fits its quotas, inside the transaction that will put it.
#pragma once

#include <string>
#include <vector>

#include "store/chunk/text_tag.h"
#include "store/evict/policy.h"
#include "store/evict/touches.h"
#include "store/lmdb/writer/chunk_writer.h"
#include "store/options.h"

namespace blend {

struct RoomRequest {
  Sha256 id{};                // of the newcomer, which is not evicted itself; zeros: none
  uint64_t footprint = 0;     // of the newcomer
  uint64_t replaced = 0;      // footprint of the chunk that it will replace
  TenantTag tenant{};         // of the newcomer
  uint64_t quota = 0;         // of the store
  uint64_t tenant_quota = 0;  // of the tenant; 0: none
  uint64_t expired_us = 0;    // chunks with a stamp before this have expired; 0: none do
  TextTag text{};             // of the newcomer
  uint32_t n_prefix_tokens = 0;
  uint64_t most_variants = kAllVariants;  // of its text
};

enum class Reason : uint8_t { expired, room, variants };  // variants: its text has too many

struct Evicted {
  Sha256 id{};
  uint64_t footprint = 0;
  Reason reason = Reason::room;
};

struct Room {
  // more: the batch is full; commit it and ask again, so that transactions stay bounded.
  enum class State { enough, more, none } state = State::none;
  std::string why;  // none: why the rest stays
  std::vector<Evicted> evicted;
};

// Evictions of one transaction, so that a put stays short however much it displaces.
inline constexpr size_t kEvictionBatch = 64;

// `touches`: hits that are not in the index yet; those of chunks that the walk meets are written to
// it.
Result<Room> make_room(ChunkWriter& writer, const RoomRequest& request,
                       const EvictionPolicy& policy, Touches& touches);

}  // namespace blend
