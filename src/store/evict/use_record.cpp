#include "store/evict/use_record.h"

#include <algorithm>
#include <atomic>
#include <ctime>

#include "base/checksum_trailer.h"

namespace blend {
namespace {

constexpr uint32_t kPinned = 1;

// The fields of a record with a checksum trailer and a known length.
Result<ByteReader> open_record(std::span<const std::byte> bytes, size_t fields, const char* what) {
  if (bytes.size() == fields + kTrailerBytes && checksum_holds(bytes))
    return ByteReader(bytes.first(fields));
  return make_error(BLEND_E_CORRUPT, "%s fails its checksum", what);
}

std::string encode_numbers(std::initializer_list<uint64_t> numbers) {
  ByteWriter out;
  for (const uint64_t n : numbers) out.put<uint64_t>(n);
  return with_checksum(std::move(out));
}

}  // namespace

uint64_t next_stamp_us() {
  static std::atomic<uint64_t> last{0};
  timespec clock{};
  (void)clock_gettime(CLOCK_REALTIME, &clock);
  const uint64_t now = static_cast<uint64_t>(std::max<int64_t>(clock.tv_sec, 0)) * 1'000'000 +
                       static_cast<uint64_t>(clock.tv_nsec / 1000);
  uint64_t before = last.load(std::memory_order_relaxed);
  uint64_t stamp = 0;
  do {
    stamp = before > now + kMostAheadUs ? now : std::max(now, before + 1);
  } while (!last.compare_exchange_weak(before, stamp, std::memory_order_relaxed));
  return stamp;
}

std::string encode_use(const UseRecord& r) {
  ByteWriter out;
  out.put<uint64_t>(r.stamp_us);
  out.put<uint64_t>(r.footprint);
  out.put<uint32_t>(r.uses);
  out.put<uint32_t>(r.pinned ? kPinned : 0);
  out.bytes(r.tenant.data(), r.tenant.size());
  return with_checksum(std::move(out));
}

Result<UseRecord> decode_use(std::span<const std::byte> bytes) {
  BLEND_ASSIGN(ByteReader in, open_record(bytes, 40, "a record of use"));
  UseRecord r;
  r.stamp_us = in.get<uint64_t>();
  r.footprint = in.get<uint64_t>();
  r.uses = in.get<uint32_t>();
  r.pinned = (in.get<uint32_t>() & kPinned) != 0;
  in.bytes(r.tenant.data(), r.tenant.size());
  return r;
}

std::string encode_tenant(const TenantUse& t) {
  return encode_numbers({t.n_chunks, t.footprint, t.quota});
}

Result<TenantUse> decode_tenant(std::span<const std::byte> bytes) {
  BLEND_ASSIGN(ByteReader in, open_record(bytes, 24, "a tenant's record"));
  TenantUse t;
  for (uint64_t* n : {&t.n_chunks, &t.footprint, &t.quota}) *n = in.get<uint64_t>();
  return t;
}

std::string encode_totals(const UseTotals& t) {
  return encode_numbers({t.pinned_chunks, t.pinned_bytes, t.evicted_chunks, t.evicted_bytes,
                         t.expired_chunks, t.ram_hits, t.disk_hits, t.misses});
}

Result<UseTotals> decode_totals(std::span<const std::byte> bytes) {
  BLEND_ASSIGN(ByteReader in, open_record(bytes, 64, "the store's totals of use"));
  UseTotals t;
  for (uint64_t* n : {&t.pinned_chunks, &t.pinned_bytes, &t.evicted_chunks, &t.evicted_bytes,
                      &t.expired_chunks, &t.ram_hits, &t.disk_hits, &t.misses}) {
    *n = in.get<uint64_t>();
  }
  return t;
}

std::string encode_text_totals(const TextTotals& t) {
  return encode_numbers(
      {t.n_texts, t.n_varied, t.n_variants, t.variant_bytes, t.variant_hits, t.as_of});
}

Result<TextTotals> decode_text_totals(std::span<const std::byte> bytes) {
  BLEND_ASSIGN(ByteReader in, open_record(bytes, 48, "the store's account of its texts"));
  TextTotals t;
  for (uint64_t* n :
       {&t.n_texts, &t.n_varied, &t.n_variants, &t.variant_bytes, &t.variant_hits, &t.as_of}) {
    *n = in.get<uint64_t>();
  }
  return t;
}

}  // namespace blend
