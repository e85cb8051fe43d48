#include "store/lmdb/make_room.h"

#include <algorithm>
#include <span>

#include "store/evict/victims.h"

namespace blend {
namespace {

using ull = unsigned long long;

// Single use, single thread.
class Evictor {
 public:
  Evictor(ChunkWriter& writer, const RoomRequest& request, const EvictionPolicy& policy,
          Touches& touches)
      : writer_(writer),
        index_(writer.uses()),
        request_(request),
        policy_(policy),
        touches_(touches) {}

  Result<Room> run() {
    if (request_.expired_us != 0) BLEND_RETURN_IF_ERROR(expire());
    if (request_.tenant_quota != 0 && request_.tenant != TenantTag{}) {
      const uint64_t tenant_used = index_.tenant(request_.tenant).footprint;
      BLEND_RETURN_IF_ERROR(fit(request_.tenant, tenant_used, request_.tenant_quota, "tenant"));
      if (room_.state != Room::State::enough) return std::move(room_);
    }
    BLEND_RETURN_IF_ERROR(fit(TenantTag{}, writer_.counters().footprint, request_.quota, "store"));
    return std::move(room_);
  }

 private:
  Status evict(const Sha256& id, uint64_t footprint, bool expired) {
    bool found = false;
    BLEND_RETURN_IF_ERROR(writer_.erase(id, &found));
    touches_.forget(id);
    UseTotals& totals = writer_.totals();
    ++totals.evicted_chunks;
    totals.evicted_bytes += footprint;
    totals.expired_chunks += expired ? 1 : 0;
    room_.evicted.push_back({id, footprint, expired});
    return Status::ok();
  }

  Status restamp(std::span<const Restamp> all) {
    for (const Restamp& r : all) {
      BLEND_RETURN_IF_ERROR(index_.restamp(r.id, r.old, r.stamp_us, r.uses));
    }
    return Status::ok();
  }

  // Calls fn(id, record) for the chunks in the range of `tag`, but for the newcomer, oldest stamp
  // first, until it gives false. Drops places that belong to no record.
  template <typename Fn>
  Status walk(const TenantTag& tag, const Fn& fn) {
    std::vector<UseIndex::Place> stale;
    BLEND_RETURN_IF_ERROR(index_.walk(tag, [&](const UseIndex::Place& place) {
      const auto record = index_.find(place.id);
      if (record.has_value() && record->stamp_us == place.stamp_us) {
        return place.id == request_.id || fn(place.id, *record);
      }
      stale.push_back(place);
      return true;
    }));
    for (const auto& place : stale) BLEND_RETURN_IF_ERROR(index_.drop(place));
    return Status::ok();
  }

  Status expire() {
    std::vector<VictimChooser::Chunk> old;
    std::vector<Restamp> renewed;
    BLEND_RETURN_IF_ERROR(walk({}, [&](const Sha256& id, const UseRecord& record) {
      if (record.stamp_us >= request_.expired_us || old.size() >= kEvictionBatch) return false;
      if (const auto hit = renewal(touches_, id, record); hit.has_value()) {
        renewed.push_back(*hit);
      } else {
        old.push_back({id, record});
      }
      return true;
    }));
    BLEND_RETURN_IF_ERROR(restamp(renewed));
    for (const auto& c : old) BLEND_RETURN_IF_ERROR(evict(c.id, c.record.footprint, true));
    return Status::ok();
  }

  // Evicts from the range of `tag`, of which `used` bytes are in use, until the newcomer fits.
  Status fit(const TenantTag& tag, uint64_t used, uint64_t quota, const char* whose) {
    const uint64_t wanted = used - std::min(used, request_.replaced) + request_.footprint;
    room_.state = Room::State::enough;
    if (wanted <= quota) return Status::ok();

    const size_t most = kEvictionBatch - std::min(room_.evicted.size(), kEvictionBatch);
    VictimChooser chooser(policy_, touches_, wanted - quota, most, policy_.need(request_.id));
    BLEND_RETURN_IF_ERROR(walk(tag, [&](const Sha256& id, const UseRecord& record) {
      if (chooser.done()) return false;
      chooser.offer(id, record);
      return true;
    }));
    chooser.choose();
    for (const auto& victim : chooser.victims()) {
      BLEND_RETURN_IF_ERROR(evict(victim.id, victim.record.footprint, false));
    }
    BLEND_RETURN_IF_ERROR(restamp(chooser.restamps()));
    if (chooser.frees_enough()) return Status::ok();
    if (room_.evicted.size() >= kEvictionBatch) {
      room_.state = Room::State::more;
      return Status::ok();
    }
    room_.state = Room::State::none;
    const Status why = make_error(
        BLEND_E_FULL,
        "it needs %llu bytes, and the %s's quota of %llu has no room that may be freed: %llu bytes "
        "are pinned in the store and %llu are needed by the prompts that were hinted at: unpin "
        "chunks, hint at fewer prompts, or allow more",
        static_cast<ull>(request_.footprint), whose, static_cast<ull>(quota),
        static_cast<ull>(writer_.totals().pinned_bytes), static_cast<ull>(chooser.hinted_bytes()));
    room_.why = why.message();
    return Status::ok();
  }

  ChunkWriter& writer_;
  UseIndex index_;
  const RoomRequest& request_;
  const EvictionPolicy& policy_;
  Touches& touches_;
  Room room_;
};

}  // namespace

Result<Room> make_room(ChunkWriter& writer, const RoomRequest& request,
                       const EvictionPolicy& policy, Touches& touches) {
  return Evictor(writer, request, policy, touches).run();
}

}  // namespace blend
