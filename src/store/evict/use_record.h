// Records of the use of chunks, stored beside the chunks (FORMAT.md, "Use").
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "store/chunk/chunk.h"

namespace blend {

// A stamp further ahead than this is from a wrong clock, and counts as now: otherwise its
// chunk would outlive all others for as long as the clock was ahead.
inline constexpr uint64_t kMostAheadUs = 60'000'000;

// Microseconds since 1970; in this process each is greater than the one before, unless the clock
// was set back further than that.
uint64_t next_stamp_us();
// A stamp too far ahead becomes a second ago, so a chunk put now comes after it.
inline uint64_t not_ahead(uint64_t stamp_us, uint64_t now_us) {
  if (stamp_us <= now_us + kMostAheadUs) return stamp_us;
  return now_us - std::min<uint64_t>(now_us, 1'000'000);
}

// `uses` / id. A damaged record costs a chunk its history, never its bytes.
struct UseRecord {
  uint64_t stamp_us = 0;   // position in the eviction order; microseconds since 1970
  uint64_t footprint = 0;  // Manifest::footprint()
  uint32_t uses = 0;       // hits; halved by a second chance
  bool pinned = false;     // never evicted, does not expire
  TenantTag tenant{};
  bool operator==(const UseRecord&) const = default;
};
std::string encode_use(const UseRecord& record);
Result<UseRecord> decode_use(std::span<const std::byte> bytes);  // CORRUPT

// `tenants` / tag
struct TenantUse {
  uint64_t n_chunks = 0;
  uint64_t footprint = 0;
  uint64_t quota = 0;  // bytes; 0: that of the store's options
  bool operator==(const TenantUse&) const = default;
};
std::string encode_tenant(const TenantUse& tenant);
Result<TenantUse> decode_tenant(std::span<const std::byte> bytes);

// `info` / "uses": totals of all processes since the store was made.
struct UseTotals {
  uint64_t pinned_chunks = 0, pinned_bytes = 0;    // now
  uint64_t evicted_chunks = 0, evicted_bytes = 0;  // expired ones included
  uint64_t expired_chunks = 0;
  uint64_t ram_hits = 0, disk_hits = 0, misses = 0;  // with some delay: written in batches
  bool operator==(const UseTotals&) const = default;
};
std::string encode_totals(const UseTotals& totals);
Result<UseTotals> decode_totals(std::span<const std::byte> bytes);

// `info` / "texts": the texts of the store's chunks. The chunk of a text with the shortest prefix
// is its plain record, which serves every context; the others are its variants.
struct TextTotals {
  uint64_t n_texts = 0;
  uint64_t n_varied = 0;  // texts that have variants
  uint64_t n_variants = 0;
  uint64_t variant_bytes = 0;  // their footprints
  uint64_t variant_hits = 0;   // look-ups of all processes that used one; written in batches
  uint64_t as_of = 0;          // checksum of the counters that these belong to
  bool operator==(const TextTotals&) const = default;
};
std::string encode_text_totals(const TextTotals& totals);
Result<TextTotals> decode_text_totals(std::span<const std::byte> bytes);

}  // namespace blend
