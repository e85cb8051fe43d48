#include "store/lmdb/retention/evictor.h"

#include <algorithm>
#include <span>
#include <tuple>

#include "store/evict/victims.h"

namespace blend {
namespace {

using ull = unsigned long long;

// Most variants of one text that are compared with each other. There are more only where the
// limit was lowered; then the next put goes on.
constexpr size_t kMostWeighed = 4096;

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
    BLEND_RETURN_IF_ERROR(bring_back());
    if (request_.expired_us != 0) BLEND_RETURN_IF_ERROR(expire());
    BLEND_RETURN_IF_ERROR(bound_variants());
    if (room_.state != Room::State::enough) return std::move(room_);
    if (request_.tenant_quota != 0 && request_.tenant != TenantTag{}) {
      const uint64_t tenant_used = index_.tenant(request_.tenant).footprint;
      BLEND_RETURN_IF_ERROR(fit(request_.tenant, tenant_used, request_.tenant_quota, "tenant"));
      if (room_.state != Room::State::enough) return std::move(room_);
    }
    BLEND_RETURN_IF_ERROR(fit(TenantTag{}, writer_.counters().footprint, request_.quota, "store"));
    return std::move(room_);
  }

 private:
  using Chunk = VictimChooser::Chunk;

  bool batch_is_full() const { return room_.evicted.size() >= kEvictionBatch; }
  bool was_evicted(const Sha256& id) const {
    return std::any_of(room_.evicted.begin(), room_.evicted.end(),
                       [&](const Evicted& e) { return e.id == id; });
  }

  Status evict(const Sha256& id, uint64_t footprint, Reason reason) {
    bool found = false;
    BLEND_RETURN_IF_ERROR(writer_.erase(id, &found));
    touches_.forget(id);
    UseTotals& totals = writer_.totals();
    ++totals.evicted_chunks;
    totals.evicted_bytes += footprint;
    totals.expired_chunks += reason == Reason::expired ? 1 : 0;
    room_.evicted.push_back({id, footprint, reason});
    return Status::ok();
  }

  // Except those that have gone with their text since they were chosen to stay: a hit may have
  // been written meanwhile.
  Status restamp(std::span<const Restamp> all) {
    for (const Restamp& r : all) {
      if (was_evicted(r.id)) continue;
      BLEND_RETURN_IF_ERROR(index_.restamp(r.id, r.old, r.stamp_us, r.uses));
    }
    return Status::ok();
  }

  // Calls fn(id, record) for the chunks in the range of `tag`, except the newcomer, oldest stamp
  // first, until it returns false. Drops entries that belong to no record.
  template <typename Fn>
  Status walk(const TenantTag& tag, const Fn& fn, uint64_t from_us = 0) {
    std::vector<LruIndex::Place> stale;
    const auto visit = [&](const LruIndex::Place& place) {
      const auto record = index_.find(place.id);
      if (record.has_value() && record->stamp_us == place.stamp_us) {
        return place.id == request_.id || fn(place.id, *record);
      }
      stale.push_back(place);
      return true;
    };
    BLEND_RETURN_IF_ERROR(index_.walk(tag, visit, from_us));
    for (const auto& place : stale) BLEND_RETURN_IF_ERROR(index_.drop(place));
    return Status::ok();
  }

  // Sets stamps from a clock that was ahead to a second ago, in their order; some at each put.
  Status bring_back() {
    const uint64_t now = next_stamp_us();
    std::vector<Chunk> ahead;
    const auto note = [&](const Sha256& id, const UseRecord& record) {
      ahead.push_back({id, record});
      return ahead.size() < kEvictionBatch;
    };
    BLEND_RETURN_IF_ERROR(walk({}, note, now + kMostAheadUs));
    uint64_t i = 0;
    for (const Chunk& c : ahead) {
      const uint64_t stamp = not_ahead(c.record.stamp_us, now) + i++;
      BLEND_RETURN_IF_ERROR(index_.restamp(c.id, c.record, stamp, c.record.uses));
    }
    return Status::ok();
  }

  Status expire() {
    std::vector<Chunk> old;
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
    for (const auto& c : old)
      BLEND_RETURN_IF_ERROR(evict(c.id, c.record.footprint, Reason::expired));
    return Status::ok();
  }

  bool was_chosen(const Sha256& id, const UseRecord& record) const {
    return record.uses > 0 || touches_.find(id).hits > 0;
  }

  // Evicts variants of the newcomer's text until it may join them: those that no look-up ever used
  // first, then those that the policy would not spare, of equals the one that was used longest ago.
  // Hinted variants go last, pinned ones stay.
  Status bound_variants() {
    room_.state = Room::State::enough;
    if (request_.most_variants == kAllVariants || request_.id == Sha256{}) return Status::ok();
    struct Variant {
      Chunk chunk;
      std::tuple<bool, bool, bool, uint64_t> worth;
    };
    const TextIndex::Record newcomer{request_.id, request_.n_prefix_tokens, 0};
    std::vector<Variant> variants;
    uint64_t n_others = 0;
    BLEND_RETURN_IF_ERROR(writer_.texts().walk(request_.text, [&](const TextIndex::Record& r) {
      if (r.id == request_.id) return true;
      const bool plain = n_others == 0 && r.comes_before(newcomer);
      const auto use = index_.find(r.id);
      if (!use.has_value()) return true;
      ++n_others;
      if (plain || use->pinned || variants.size() >= kMostWeighed) return true;
      const uint64_t stamp = std::max(use->stamp_us, touches_.find(r.id).stamp_us);
      variants.push_back(
          {{r.id, *use},
           {policy_.need(r.id).has_value(), was_chosen(r.id, *use), policy_.spares(*use), stamp}});
      return true;
    }));
    if (n_others <= request_.most_variants) return Status::ok();
    const uint64_t excess = n_others - request_.most_variants;
    std::sort(variants.begin(), variants.end(),
              [](const Variant& a, const Variant& b) { return a.worth < b.worth; });
    uint64_t n = 0;
    for (; n < std::min<uint64_t>(excess, variants.size()) && !batch_is_full(); ++n) {
      const Chunk& chunk = variants[n].chunk;
      BLEND_RETURN_IF_ERROR(evict(chunk.id, chunk.record.footprint, Reason::variants));
    }
    if (n == excess) return Status::ok();
    room_.state = n < variants.size() ? Room::State::more : Room::State::none;
    room_.why = make_error(BLEND_E_FULL,
                           "the store keeps %llu variants of a text, and those of this one are "
                           "pinned: unpin some, or open the store with larger most_variants",
                           static_cast<ull>(request_.most_variants))
                    .message();
    return Status::ok();
  }

  // The chunks to evict for `victim`, itself last. A variant that was never used is worth
  // less than the plain record of its text, which serves every context.
  Result<std::vector<Chunk>> with_variants(const Chunk& victim) const {
    std::vector<Chunk> out;
    const auto manifest =
        writer_.text_totals().n_variants == 0 ? std::optional<Manifest>() : writer_.find(victim.id);
    if (manifest.has_value()) {
      bool first = true;
      BLEND_RETURN_IF_ERROR(
          writer_.texts().walk(text_tag(manifest->meta), [&](const TextIndex::Record& r) {
            if (std::exchange(first, false)) return r.id == victim.id;
            const auto use = index_.find(r.id);
            if (use.has_value() && r.id != request_.id && !use->pinned && !was_chosen(r.id, *use) &&
                !policy_.need(r.id).has_value()) {
              out.push_back({r.id, *use});
            }
            return out.size() < kEvictionBatch;
          }));
      std::sort(out.begin(), out.end(), [](const Chunk& a, const Chunk& b) {
        return a.record.stamp_us < b.record.stamp_us;
      });
    }
    out.push_back(victim);
    return out;
  }

  // Evicts from the range of `tag`, of which `used` bytes are in use, until the newcomer fits.
  Status fit(const TenantTag& tag, uint64_t used, uint64_t quota, const char* whose) {
    const uint64_t wanted = used - std::min(used, request_.replaced) + request_.footprint;
    room_.state = Room::State::enough;
    if (wanted <= quota) return Status::ok();

    const uint64_t excess = wanted - quota;
    const size_t most = kEvictionBatch - std::min(room_.evicted.size(), kEvictionBatch);
    VictimChooser chooser(policy_, touches_, excess, most, policy_.need(request_.id));
    BLEND_RETURN_IF_ERROR(walk(tag, [&](const Sha256& id, const UseRecord& record) {
      if (chooser.done()) return false;
      chooser.offer(id, record);
      return true;
    }));
    chooser.choose();
    uint64_t freed = 0;
    for (const Chunk& victim : chooser.victims()) {
      BLEND_ASSIGN(const std::vector<Chunk> going, with_variants(victim));
      for (const Chunk& chunk : going) {
        if (freed >= excess || batch_is_full()) break;
        if (was_evicted(chunk.id)) continue;  // with its text
        BLEND_RETURN_IF_ERROR(evict(chunk.id, chunk.record.footprint, Reason::room));
        freed += chunk.record.footprint;
      }
    }
    BLEND_RETURN_IF_ERROR(restamp(chooser.restamps()));
    if (freed >= excess) return Status::ok();
    if (batch_is_full()) {
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
  LruIndex index_;
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
