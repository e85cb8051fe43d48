#include "store/evict/make_room.h"

#include <algorithm>

namespace blend {
namespace {

using ull = unsigned long long;

constexpr size_t kChances = 16;  // chunks that one call spares

// Single use, single thread.
class Evictor {
 public:
  Evictor(ChunkWriter& writer, const RoomRequest& request, const EvictionPolicy& policy,
          Touches& touches)
      : writer_(writer),
        index_(writer.uses()),
        request_(request),
        policy_(policy),
        touches_(touches),
        newcomer_(policy.need(request.id)) {}

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
  struct Candidate {
    UseIndex::Place place;
    UseRecord record;
    Need need;
  };

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

  // A hit that the index does not know makes a chunk younger than its place.
  bool renew_touched(const UseIndex::Place& place, const UseRecord& record) {
    const Touches::Touch touch = touches_.find(place.id);
    if (touch.hits == 0 || touch.stamp_us <= record.stamp_us) return false;
    renewed_.push_back({place.id, record, touch.stamp_us, record.uses + touch.hits});
    return true;
  }

  Status renew() {
    for (const Renewed& r : renewed_) {
      BLEND_RETURN_IF_ERROR(index_.restamp(r.id, r.record, r.stamp_us, r.uses));
    }
    renewed_.clear();
    return Status::ok();
  }

  Status expire() {
    std::vector<Candidate> old;
    std::vector<UseIndex::Place> stale;
    BLEND_RETURN_IF_ERROR(index_.walk({}, [&](const UseIndex::Place& place) {
      if (place.stamp_us >= request_.expired_us || old.size() >= kEvictionBatch) return false;
      const auto record = index_.find(place.id);
      if (!record.has_value() || record->stamp_us != place.stamp_us) {
        stale.push_back(place);
      } else if (place.id != request_.id && !renew_touched(place, *record)) {
        old.push_back({place, *record, {}});
      }
      return true;
    }));
    for (const auto& place : stale) BLEND_RETURN_IF_ERROR(index_.drop(place));
    BLEND_RETURN_IF_ERROR(renew());
    for (const auto& c : old) BLEND_RETURN_IF_ERROR(evict(c.place.id, c.record.footprint, true));
    return Status::ok();
  }

  // Evicts from the range of `tag`, of which `used` bytes are in use, until the newcomer fits.
  Status fit(const TenantTag& tag, uint64_t used, uint64_t quota, const char* whose) {
    const uint64_t wanted = used - std::min(used, request_.replaced) + request_.footprint;
    room_.state = Room::State::enough;
    if (wanted <= quota) return Status::ok();
    const uint64_t excess = wanted - quota;

    std::vector<Candidate> victims;
    std::vector<Candidate> needed;
    std::vector<Candidate> spared;
    std::vector<UseIndex::Place> stale;
    uint64_t freed = 0;
    const auto done = [&] {
      return freed >= excess || room_.evicted.size() + victims.size() >= kEvictionBatch;
    };
    const auto take = [&](const Candidate& c) {
      freed += c.record.footprint;
      victims.push_back(c);
    };
    BLEND_RETURN_IF_ERROR(index_.walk(tag, [&](const UseIndex::Place& place) {
      if (done()) return false;
      const auto record = index_.find(place.id);
      if (!record.has_value() || record->stamp_us != place.stamp_us) {
        stale.push_back(place);
        return true;
      }
      if (place.id == request_.id) return true;
      Candidate c{place, *record, {}};
      if (const auto need = policy_.need(place.id); need.has_value()) {
        c.need = *need;
        needed.push_back(c);
      } else if (policy_.renewed_by_use() && renew_touched(place, *record)) {
        // Its turn comes later.
      } else if (policy_.spares(*record) && spared.size() < kChances) {
        spared.push_back(c);
      } else {
        take(c);
      }
      return true;
    }));
    for (const auto& c : spared) {
      if (freed < excess && !done()) take(c);
    }
    const size_t n_renewed = renewed_.size();
    // What was hit of late goes before what is needed soon.
    for (size_t i = 0; i < n_renewed && !done(); ++i) {
      Renewed& r = renewed_[i];
      take({{tag, r.record.stamp_us, r.id}, r.record, {}});
      r.stamp_us = 0;
    }
    std::erase_if(renewed_, [](const Renewed& r) { return r.stamp_us == 0; });
    // What is needed last goes first; never what is needed sooner than the newcomer itself.
    std::stable_sort(needed.begin(), needed.end(), [](const Candidate& a, const Candidate& b) {
      return a.need.distance > b.need.distance;
    });
    uint64_t kept_for_needs = 0;
    for (const Candidate& c : needed) {
      const bool later = newcomer_.has_value() && c.need.distance > newcomer_->distance;
      if (!done() && (!c.need.in_window || later)) {
        take(c);
      } else {
        kept_for_needs += c.record.footprint;
      }
    }

    for (const auto& place : stale) BLEND_RETURN_IF_ERROR(index_.drop(place));
    for (const auto& c : victims) {
      std::erase_if(spared, [&](const Candidate& s) { return s.place.id == c.place.id; });
      BLEND_RETURN_IF_ERROR(evict(c.place.id, c.record.footprint, false));
    }
    for (const auto& c : spared) {
      BLEND_RETURN_IF_ERROR(
          index_.restamp(c.place.id, c.record, next_stamp_us(), c.record.uses / 2));
    }
    // Those that are needed would be met first by every coming walk.
    size_t chances = kChances;
    for (const Candidate& c : needed) {
      const bool gone = std::any_of(victims.begin(), victims.end(),
                                    [&](const Candidate& v) { return v.place.id == c.place.id; });
      if (gone || !policy_.renewed_by_use() || chances == 0) continue;
      --chances;
      BLEND_RETURN_IF_ERROR(index_.restamp(c.place.id, c.record, next_stamp_us(), c.record.uses));
    }
    BLEND_RETURN_IF_ERROR(renew());
    if (freed >= excess) return Status::ok();
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
        static_cast<ull>(writer_.totals().pinned_bytes), static_cast<ull>(kept_for_needs));
    room_.why = why.message();
    return Status::ok();
  }

  struct Renewed {
    Sha256 id;
    UseRecord record;
    uint64_t stamp_us = 0;
    uint32_t uses = 0;
  };

  ChunkWriter& writer_;
  UseIndex index_;
  const RoomRequest& request_;
  const EvictionPolicy& policy_;
  Touches& touches_;
  const std::optional<Need> newcomer_;
  std::vector<Renewed> renewed_;
  Room room_;
};

}  // namespace

Result<Room> make_room(ChunkWriter& writer, const RoomRequest& request,
                       const EvictionPolicy& policy, Touches& touches) {
  return Evictor(writer, request, policy, touches).run();
}

}  // namespace blend
