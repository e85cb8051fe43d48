#include "store/lmdb/writer/chunk_writer.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/error.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/transaction.h"
#include "store/lmdb/writer/direct_page_writer.h"

namespace blend {

Result<ChunkWriter> ChunkWriter::begin(const StoreCommon& common) {
  BLEND_ASSIGN(Txn txn, common.env->begin_write());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  BLEND_ASSIGN(const StoreCounters counters, read_counters(txn, view, common));
  const UseTotals totals = LruIndex(txn).totals();
  const TextTotals texts = TextIndex(txn).totals();
  ChunkWriter writer(std::move(txn), view, counters, totals, texts);
  if (!TextIndex::fits(texts, counters)) {
    BLEND_RETURN_IF_ERROR(writer.rebuild_texts());
    if (counters.n_chunks > 0) common.rebuilt("texts");
  }
  return writer;
}

Status ChunkWriter::for_each(const std::function<void(const Manifest&)>& visit) const {
  const auto is_written = [&](const Manifest& m) {
    return std::any_of(written_.begin(), written_.end(),
                       [&](const Manifest& own) { return own.meta.id == m.meta.id; });
  };
  BLEND_RETURN_IF_ERROR(for_each_manifest(txn_, view_, true, [&](const Manifest& m) {
    if (!is_written(m)) visit(m);
  }));
  std::for_each(written_.begin(), written_.end(), visit);
  return Status::ok();
}

Result<StoreCounters> ChunkWriter::recount(const Sha256& except) const {
  StoreCounters counters;
  BLEND_RETURN_IF_ERROR(for_each([&](const Manifest& m) {
    if (m.meta.id != except) counters.add(m);
  }));
  return counters;
}

Status ChunkWriter::erase(const Sha256& id, bool* found) {
  std::erase_if(written_, [&](const Manifest& m) { return m.meta.id == id; });
  const auto repair = [&] {
    return make_error(BLEND_E_CORRUPT,
                      "chunk %s cannot be freed, for the header of one of its pages is damaged: "
                      "store the sound chunks again in another directory",
                      to_hex(id).c_str());
  };
  MDB_val key = id_val(id);
  MDB_val value{};
  int rc = mdb_get(txn_.get(), txn_.env().meta(), &key, &value);
  if (rc != 0 && rc != MDB_NOTFOUND) return lmdb_error(rc, "read");
  if (rc == 0) {
    *found = true;
    if (!view_.header_is_sound(to_span(value))) return repair();
    const auto old = decode_manifest(to_span(value), id);
    if (old.is_ok()) {
      counters_.subtract(old.value());
      const Manifest& was = old.value();
      BLEND_RETURN_IF_ERROR(
          texts().erase(text_tag(was.meta), TextIndex::Record::of(was), text_totals_));
    } else {
      // Its share of the counters, and its text, can no longer be known.
      BLEND_ASSIGN(counters_, recount(id));
    }
    if (rc = mdb_del(txn_.get(), txn_.env().meta(), &key, nullptr); rc != 0)
      return lmdb_error(rc, "free");
    if (!old.is_ok()) BLEND_RETURN_IF_ERROR(rebuild_texts());
  }
  LruIndex index = uses();
  if (const auto use = index.find(id); use.has_value() && use->pinned) {
    totals_.pinned_chunks -= std::min<uint64_t>(totals_.pinned_chunks, 1);
    totals_.pinned_bytes -= std::min(totals_.pinned_bytes, use->footprint);
  }
  BLEND_RETURN_IF_ERROR(index.erase(id));
  MDB_cursor* raw = nullptr;
  rc = mdb_cursor_open(txn_.get(), txn_.env().chunks(), &raw);
  if (rc != 0) return lmdb_error(rc, "read");
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
  PieceKey first(id, 0);
  for (;;) {
    key = first.val();
    rc = mdb_cursor_get(raw, &key, &value, MDB_SET_RANGE);
    if (rc != 0 || key.mv_size < id.size() || std::memcmp(key.mv_data, id.data(), id.size()) != 0) {
      break;
    }
    *found = true;
    if (!view_.header_is_sound(to_span(value))) return repair();
    if (rc = mdb_cursor_del(raw, 0); rc != 0) break;
  }
  return rc == 0 || rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "read");
}

Status ChunkWriter::erase_strays(uint64_t* n_descriptions) {
  *n_descriptions = 0;
  for (const auto& [dbi, key_bytes] : {std::pair{txn_.env().meta(), sizeof(Sha256)},
                                       std::pair{txn_.env().chunks(), sizeof(PieceKey)}}) {
    MDB_cursor* raw = nullptr;
    int rc = mdb_cursor_open(txn_.get(), dbi, &raw);
    if (rc != 0) return lmdb_error(rc, "read");
    const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
    MDB_val key{};
    MDB_val value{};
    // By the cursor, which is on the key: after a removal NEXT returns the key that followed it.
    while ((rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) == 0) {
      if (key.mv_size == key_bytes) continue;
      if (!view_.header_is_sound(to_span(value))) {
        return {BLEND_E_CORRUPT,
                "a value under a key of no chunk cannot be freed, for the header of its "
                "page is damaged: store the sound chunks again in another directory"};
      }
      if (rc = mdb_cursor_del(raw, 0); rc != 0) return lmdb_error(rc, "free");
      if (dbi == txn_.env().meta()) ++*n_descriptions;
    }
    if (rc != MDB_NOTFOUND) return lmdb_error(rc, "read");
  }
  return Status::ok();
}

Status ChunkWriter::write_piece(MDB_val key, std::span<const std::byte> bytes) {
  const LmdbEnv& env = txn_.env();
  const LmdbEnv::Placing placing = env.placing();
  MDB_val value{bytes.size(), nullptr};
  const int rc = mdb_put(txn_.get(), env.chunks(), &key, &value, MDB_RESERVE);
  if (rc != 0) return lmdb_error(rc, "write");
  uint64_t page = 0;
  if (placing != LmdbEnv::Placing::off && bytes.size() >= kPlacedBytes) {
    BLEND_ASSIGN(page, place_value(env.data_fd(), env.page_size(), value, bytes));
    if (page != 0 && placing == LmdbEnv::Placing::on) return Status::ok();
    if (page != 0) on_trial_.push_back(page);
  }
  std::memcpy(value.mv_data, bytes.data(), bytes.size());
  return Status::ok();
}

// If the commit wrote the placed pages after all, it wrote the same bytes, but left the heap's
// flags in their headers, which would keep the pages from ever being freed.
Status ChunkWriter::judge_placing() {
  LmdbEnv& env = txn_.env();
  if (on_trial_.empty()) return Status::ok();
  bool as_expected = true;
  for (const uint64_t page : on_trial_) {
    BLEND_ASSIGN(const bool good, placed_as_expected(env.data_fd(), env.page_size(), page));
    as_expected = as_expected && good;
  }
  env.set_placing(as_expected ? LmdbEnv::Placing::on : LmdbEnv::Placing::off);
  return Status::ok();
}

Status ChunkWriter::add(const Manifest& manifest, std::span<const std::byte> stream,
                        UseRecord use) {
  const Sha256& id = manifest.meta.id;
  for (uint32_t i = 0; i < manifest.n_pieces(); ++i) {
    const uint64_t at = uint64_t{i} * kPieceBytes;
    PieceKey key(id, i);
    const uint64_t n = std::min<uint64_t>(kPieceBytes, stream.size() - at);
    BLEND_RETURN_IF_ERROR(write_piece(key.val(), stream.subspan(at, n)));
  }
  const std::string bytes = encode_manifest(manifest);
  MDB_val k = id_val(id);
  MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
  if (const int rc = mdb_put(txn_.get(), txn_.env().meta(), &k, &value, 0); rc != 0) {
    return lmdb_error(rc, "write");
  }
  written_.push_back(manifest);
  counters_.add(manifest);
  BLEND_RETURN_IF_ERROR(
      texts().add(text_tag(manifest.meta), TextIndex::Record::of(manifest), text_totals_));
  use.footprint = manifest.footprint();
  if (use.pinned) {
    ++totals_.pinned_chunks;
    totals_.pinned_bytes += use.footprint;
  }
  return uses().put(id, use);
}

std::optional<Manifest> ChunkWriter::find(const Sha256& id) const {
  MDB_val key = id_val(id);
  MDB_val value{};
  if (mdb_get(txn_.get(), txn_.env().meta(), &key, &value) != 0) return std::nullopt;
  if (!view_.header_is_sound(to_span(value))) return std::nullopt;
  auto manifest = decode_manifest(to_span(value), id);
  return manifest.is_ok() ? std::optional(std::move(*manifest)) : std::nullopt;
}

Status ChunkWriter::rename(const Manifest& manifest) {
  const auto old = find(manifest.meta.id);
  if (!old.has_value()) {
    return make_error(BLEND_E_CORRUPT, "chunk %s is damaged: remove it, and store it again",
                      to_hex(manifest.meta.id).c_str());
  }
  const std::string bytes = encode_manifest(manifest);
  MDB_val key = id_val(manifest.meta.id);
  MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
  int rc = mdb_del(txn_.get(), txn_.env().meta(), &key, nullptr);
  if (rc == 0) rc = mdb_put(txn_.get(), txn_.env().meta(), &key, &value, 0);
  if (rc != 0) return lmdb_error(rc, "write");
  std::erase_if(written_, [&](const Manifest& m) { return m.meta.id == manifest.meta.id; });
  written_.push_back(manifest);
  // A longer name may take another page.
  counters_.subtract(*old);
  counters_.add(manifest);
  const TextTag text = text_tag(manifest.meta);
  BLEND_RETURN_IF_ERROR(texts().erase(text, TextIndex::Record::of(*old), text_totals_));
  BLEND_RETURN_IF_ERROR(texts().add(text, TextIndex::Record::of(manifest), text_totals_));
  auto use = uses().find(manifest.meta.id);
  if (!use.has_value()) return Status::ok();
  if (use->pinned) {
    totals_.pinned_bytes -= std::min(totals_.pinned_bytes, use->footprint);
    totals_.pinned_bytes += manifest.footprint();
  }
  use->footprint = manifest.footprint();
  return uses().put(manifest.meta.id, *use);
}

Status ChunkWriter::rebuild_uses() {
  std::vector<LruIndex::Chunk> chunks;
  const uint64_t now = next_stamp_us();
  const auto note = [&](const Manifest& m) {
    const auto created = static_cast<uint64_t>(
        std::clamp<int64_t>(m.meta.created_unix_s, 0, static_cast<int64_t>(now / 1'000'000)));
    chunks.push_back({m.meta.id, created * 1'000'000, m.footprint(), m.meta.tenant});
  };
  BLEND_RETURN_IF_ERROR(for_each(note));
  // The rebuild starts from the totals of the database: they must have this transaction's changes.
  if (totals_ != old_totals_) BLEND_RETURN_IF_ERROR(uses().set_totals(totals_));
  BLEND_RETURN_IF_ERROR(uses().rebuild(chunks));
  totals_ = old_totals_ = uses().totals();
  return Status::ok();
}

Status ChunkWriter::rebuild_texts() {
  std::vector<TextIndex::Chunk> chunks;
  BLEND_RETURN_IF_ERROR(for_each([&](const Manifest& m) {
    chunks.push_back({text_tag(m.meta), TextIndex::Record::of(m)});
  }));
  return texts().rebuild(chunks, text_totals_);
}

Status ChunkWriter::rebuild() {
  BLEND_ASSIGN(counters_, recount(Sha256{}));
  BLEND_RETURN_IF_ERROR(rebuild_uses());
  return rebuild_texts();
}

// Called before the first record that older builds cannot read: they refuse the store from then on.
Status ChunkWriter::raise_version() {
  const uint32_t needed = counters_.version();
  if (needed == kOldestFormatVersion) return Status::ok();
  MDB_val key = name_val(kFormatKey);
  MDB_val value{};
  if (const int rc = mdb_get(txn_.get(), txn_.env().info(), &key, &value); rc != 0) {
    return lmdb_error(rc, "read the format record");
  }
  BLEND_ASSIGN(const uint32_t version, decode_format(to_span(value)));
  if (version >= needed) return Status::ok();
  const std::string bytes = encode_format(needed);
  value = {bytes.size(), const_cast<char*>(bytes.data())};
  const int rc = mdb_put(txn_.get(), txn_.env().info(), &key, &value, 0);
  return rc == 0 ? Status::ok() : lmdb_error(rc, "write the format record");
}

Status ChunkWriter::commit() {
  BLEND_RETURN_IF_ERROR(raise_version());
  const std::string bytes = encode_counters(counters_);
  MDB_val key = name_val(kCountersKey);
  MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
  if (const int rc = mdb_put(txn_.get(), txn_.env().info(), &key, &value, 0); rc != 0) {
    return lmdb_error(rc, "write the counters");
  }
  if (totals_ != old_totals_) BLEND_RETURN_IF_ERROR(uses().set_totals(totals_));
  BLEND_RETURN_IF_ERROR(texts().set_totals(text_totals_, counters_));
  if (const int rc = txn_.commit(); rc != 0) return lmdb_error(rc, "commit");
  return judge_placing();
}

}  // namespace blend
