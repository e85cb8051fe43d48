#include "store/lmdb/catalog/notes.h"

#include <memory>

#include "base/checksum_trailer.h"
#include "base/files/file_size_signal.h"
#include "store/lmdb/error.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/transaction.h"

namespace blend {
namespace {

// The bytes of a sound note; empty for a damaged one.
std::span<const std::byte> open_note(const MapView& view, const MDB_val& value) {
  const std::span<const std::byte> sealed_bytes = to_span(value);
  if (!view.contains(sealed_bytes) || !checksum_holds(sealed_bytes)) return {};
  return sealed_bytes.first(sealed_bytes.size() - kTrailerBytes);
}

}  // namespace

Result<std::vector<Note>> read_notes(LmdbEnv& env, std::string_view prefix) {
  BLEND_RETURN_IF_ERROR(env.check_fork());
  BLEND_ASSIGN(const Txn txn, env.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  MDB_cursor* raw = nullptr;
  if (const int rc = mdb_cursor_open(txn.get(), env.info(), &raw); rc != 0) {
    return lmdb_error(rc, "read the notes");
  }
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
  const std::string from = std::string(kNoteKey) + std::string(prefix);
  std::vector<Note> out;
  MDB_val key = name_val(from);
  MDB_val value{};
  int rc = mdb_cursor_get(raw, &key, &value, MDB_SET_RANGE);
  for (; rc == 0; rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) {
    const std::string_view name(static_cast<const char*>(key.mv_data), key.mv_size);
    if (!name.starts_with(from)) return out;
    const std::span<const std::byte> bytes = open_note(view, value);
    if (bytes.empty()) continue;
    out.push_back({std::string(name.substr(kNoteKey.size())),
                   std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  }
  if (rc != MDB_NOTFOUND) return lmdb_error(rc, "read the notes");
  return out;
}

Status change_note(StoreCommon& common, std::string_view name, const StoreNotes::Change& change) {
  BLEND_RETURN_IF_ERROR(common.check_writable());
  if (name.empty() || name.size() > StoreNotes::kMostNameBytes) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "a note's name has 1 to %zu bytes, not %zu",
                      StoreNotes::kMostNameBytes, name.size());
  }
  const FileSizeSignalHeld held;
  BLEND_ASSIGN(Txn txn, common.env->begin_write());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  const std::string full_name = std::string(kNoteKey) + std::string(name);
  MDB_val key = name_val(full_name);
  MDB_val value{};
  int rc = mdb_get(txn.get(), common.env->info(), &key, &value);
  if (rc != 0 && rc != MDB_NOTFOUND) return lmdb_error(rc, "read a note");
  const bool there = rc == 0;
  if (there && !view.header_is_sound(to_span(value))) {
    return {BLEND_E_CORRUPT, "a note's pages are damaged"};
  }
  const auto old = there ? open_note(view, value) : std::span<const std::byte>();
  const std::string fresh = change(old);
  if (fresh.empty() || fresh.size() > StoreNotes::kMostBytes) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "a note has 1 to %zu bytes, not %zu",
                      StoreNotes::kMostBytes, fresh.size());
  }
  const std::string_view before(reinterpret_cast<const char*>(old.data()), old.size());
  if (fresh == before) return Status::ok();
  ByteWriter out;
  out.bytes(fresh.data(), fresh.size());
  const std::string bytes = with_checksum(std::move(out));
  value = {bytes.size(), const_cast<char*>(bytes.data())};
  rc = mdb_put(txn.get(), common.env->info(), &key, &value, 0);
  if (rc != 0) return lmdb_error(rc, "write a note");
  rc = txn.commit();
  return rc == 0 ? Status::ok() : lmdb_error(rc, "write a note");
}

}  // namespace blend
