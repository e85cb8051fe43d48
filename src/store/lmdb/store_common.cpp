#include "store/lmdb/store_common.h"

#include <algorithm>
#include <new>

namespace blend {

bool StoreCommon::expired(const UseIndex& index, const Sha256& id) const {
  if (ttl_us == 0) return false;
  const auto use = index.find(id);
  if (!use.has_value() || use->pinned) return false;
  const uint64_t stamp = std::max(use->stamp_us, touches.find(id).stamp_us);
  return next_stamp_us() > stamp + ttl_us;  // a stamp ahead: not before a put has corrected it
}

void StoreCommon::used(const Sha256& id) noexcept {
  if (!notes_use) return;
  bool told = false;
  try {
    if (!touches.add(id, next_stamp_us())) return;
    told = write_touches_soon && write_touches_soon();
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): best effort: it only orders
                                     // evictions
  }
  if (!told) touches.still_due();
}

}  // namespace blend
