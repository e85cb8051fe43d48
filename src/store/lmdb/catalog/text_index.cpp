#include "store/lmdb/catalog/text_index.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/checksum_trailer.h"
#include "store/lmdb/error.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/transaction.h"

namespace blend {
namespace {

constexpr size_t kTagBytes = sizeof(TextTag);
constexpr size_t kKeyBytes = kTagBytes + 4 + 32;

// Text, number of tokens in its prefix (big-endian, so that LMDB keeps the order), id.
struct TextKey {
  std::array<uint8_t, kKeyBytes> bytes{};
  TextKey(const TextTag& text, uint32_t n_prefix_tokens, const Sha256& id) {
    std::copy(text.begin(), text.end(), bytes.begin());
    for (size_t i = 0; i < 4; ++i) {
      bytes[kTagBytes + i] = static_cast<uint8_t>(n_prefix_tokens >> (24 - 8 * i));
    }
    std::copy(id.begin(), id.end(), bytes.begin() + kTagBytes + 4);
  }
  MDB_val val() { return {bytes.size(), bytes.data()}; }
};

std::string encode_footprint(uint64_t footprint) {
  ByteWriter out;
  out.put<uint64_t>(footprint);
  return with_checksum(std::move(out));
}

// A damaged footprint counts as 0: it is only a number of bytes.
uint64_t decode_footprint(const MDB_val& value) {
  const auto bytes = to_span(value);
  if (bytes.size() != sizeof(uint64_t) + kTrailerBytes || !checksum_holds(bytes)) return 0;
  return ByteReader(bytes).get<uint64_t>();
}

uint64_t checksum_of(const StoreCounters& counters) {
  const std::string bytes = encode_counters(counters);
  return checksum64(bytes.data(), bytes.size());
}

Status note_error(int rc) { return lmdb_error(rc, "note the text of a chunk"); }

// Outdated totals must not wrap.
void less(uint64_t& n, uint64_t by) { n -= std::min(n, by); }

}  // namespace

TextTotals TextIndex::totals() const {
  MDB_val key = name_val(kTextTotalsKey);
  MDB_val value{};
  if (mdb_get(txn_->get(), txn_->env().info(), &key, &value) != 0) return {};
  const auto totals = decode_text_totals(to_span(value));
  return totals.is_ok() ? totals.value() : TextTotals{};
}

bool TextIndex::fits(const TextTotals& totals, const StoreCounters& counters) {
  return totals.as_of == checksum_of(counters);
}

Status TextIndex::set_totals(const TextTotals& totals, const StoreCounters& counters) {
  TextTotals now = totals;
  now.as_of = checksum_of(counters);
  if (now == this->totals()) return Status::ok();
  const std::string bytes = encode_text_totals(now);
  MDB_val key = name_val(kTextTotalsKey);
  MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
  return note_error(mdb_put(txn_->get(), txn_->env().info(), &key, &value, 0));
}

Status TextIndex::walk(const TextTag& text, const std::function<bool(const Record&)>& visit) const {
  if (!txn_->env().has_texts()) return Status::ok();
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn_->get(), txn_->env().texts(), &raw);
  if (rc != 0) return lmdb_error(rc, "find the chunks of a text");
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
  TextKey first(text, 0, Sha256{});
  MDB_val key = first.val();
  MDB_val value{};
  for (rc = mdb_cursor_get(raw, &key, &value, MDB_SET_RANGE); rc == 0;
       rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) {
    const auto* p = static_cast<const uint8_t*>(key.mv_data);
    if (key.mv_size < kTagBytes || !std::equal(text.begin(), text.end(), p)) return Status::ok();
    if (key.mv_size != kKeyBytes) continue;
    Record record;
    for (size_t i = 0; i < 4; ++i) {
      record.n_prefix_tokens = record.n_prefix_tokens << 8 | p[kTagBytes + i];
    }
    std::copy(p + kTagBytes + 4, p + kKeyBytes, record.id.begin());
    record.footprint = decode_footprint(value);
    if (!visit(record)) return Status::ok();
  }
  return rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "find the chunks of a text");
}

Result<std::vector<TextIndex::Record>> TextIndex::first_two(const TextTag& text) const {
  std::vector<Record> found;
  BLEND_RETURN_IF_ERROR(walk(text, [&](const Record& record) {
    found.push_back(record);
    return found.size() < 2;
  }));
  return found;
}

Status TextIndex::add(const TextTag& text, const Record& record, TextTotals& totals) {
  BLEND_ASSIGN(const std::vector<Record> before, first_two(text));
  TextKey k(text, record.n_prefix_tokens, record.id);
  MDB_val key = k.val();
  const std::string bytes = encode_footprint(record.footprint);
  MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
  const int rc = mdb_put(txn_->get(), txn_->env().texts(), &key, &value, MDB_NOOVERWRITE);
  if (rc == MDB_KEYEXIST) return Status::ok();  // left by a build without text index
  BLEND_RETURN_IF_ERROR(note_error(rc));
  if (before.empty()) {
    ++totals.n_texts;
    return Status::ok();
  }
  // The former plain record may have become a variant.
  const Record& variant = record.comes_before(before[0]) ? before[0] : record;
  totals.n_varied += before.size() == 1 ? 1 : 0;
  ++totals.n_variants;
  totals.variant_bytes += variant.footprint;
  return Status::ok();
}

Status TextIndex::erase(const TextTag& text, const Record& record, TextTotals& totals) {
  TextKey k(text, record.n_prefix_tokens, record.id);
  MDB_val key = k.val();
  MDB_val value{};
  int rc = mdb_get(txn_->get(), txn_->env().texts(), &key, &value);
  if (rc == MDB_NOTFOUND) return Status::ok();
  BLEND_RETURN_IF_ERROR(note_error(rc));
  Record gone = record;
  gone.footprint = decode_footprint(value);  // as it was counted
  rc = mdb_del(txn_->get(), txn_->env().texts(), &key, nullptr);
  BLEND_RETURN_IF_ERROR(note_error(rc));
  BLEND_ASSIGN(const std::vector<Record> left, first_two(text));
  if (left.empty()) {
    less(totals.n_texts, 1);
    return Status::ok();
  }
  // A variant may have become the plain record.
  const Record& variant = gone.comes_before(left[0]) ? left[0] : gone;
  if (left.size() == 1) less(totals.n_varied, 1);
  less(totals.n_variants, 1);
  less(totals.variant_bytes, variant.footprint);
  return Status::ok();
}

Status TextIndex::rebuild(std::span<const Chunk> present, TextTotals& totals) {
  BLEND_RETURN_IF_ERROR(note_error(mdb_drop(txn_->get(), txn_->env().texts(), 0)));
  totals = TextTotals{.variant_hits = totals.variant_hits};
  for (const Chunk& chunk : present) {
    BLEND_RETURN_IF_ERROR(add(chunk.text, chunk.record, totals));
  }
  return Status::ok();
}

}  // namespace blend
