// Iterates over the chunks of a store.
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "store/lmdb/error.h"
#include "store/lmdb/lmdb_store.h"
#include "store/lmdb/read_records.h"
#include "store/lmdb/source.h"
#include "store/lmdb/transaction.h"

namespace blend {

using ull = unsigned long long;

namespace {
constexpr char kNoChunkId[] = "a description has a key that is not a chunk id";
}  // namespace

Status LmdbStore::for_each_used(bool verify, const VisitUsed& fn) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  write_back_->drain();  // so that chunks just put are listed
  BLEND_ASSIGN(const Txn txn, env_.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  std::mutex mutex;
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn.get(), env_.meta(), &raw);
  if (rc != 0) return lmdb_error(rc, "list the chunks");
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);

  uint64_t n_damaged = 0;
  MDB_val key{};
  MDB_val value{};
  while ((rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) == 0) {
    ChunkMeta meta;
    std::string problem;
    if (key.mv_size != meta.id.size()) {
      problem = kNoChunkId;
    } else {
      std::memcpy(meta.id.data(), key.mv_data, meta.id.size());
      auto manifest = read_manifest(txn, view, meta.id);
      if (!manifest.is_ok()) {
        problem = manifest.status().message();
      } else {
        meta = manifest->meta;
        if (verify) {
          LmdbSource source(txn, view, mutex, nullptr, true, std::move(manifest.value()));
          BLEND_ASSIGN(const AlignedBuffer buffer,
                       AlignedBuffer::allocate(meta.shape.layer_bytes()));
          Status status = source.check_no_more_pieces();
          for (uint32_t layer = 0; status.is_ok() && layer < meta.shape.n_layers; ++layer) {
            if (layer + 1 < meta.shape.n_layers) source.prefetch(layer + 1);
            status = source.read_layer(layer, buffer.data());
          }
          problem = status.message();
        }
      }
    }
    if (!problem.empty()) ++n_damaged;
    const std::optional<UseRecord> use = use_of(txn, meta.id);
    if (const int32_t stop = fn(meta, use.has_value() ? &*use : nullptr, problem); stop != 0) {
      return {BLEND_E_CALLBACK, "the callback asked to stop", stop};
    }
    BLEND_RETURN_IF_ERROR(env_.check_fork());
  }
  if (rc != MDB_NOTFOUND) return lmdb_error(rc, "list the chunks");
  if (verify && n_damaged > 0) {
    return make_error(BLEND_E_CORRUPT,
                      "%llu chunks of store '%s' are damaged: remove them, and they will be "
                      "computed again",
                      static_cast<ull>(n_damaged), env_.path().c_str());
  }
  return Status::ok();
}

Status LmdbStore::repair(const Visit& fn, uint64_t* n_removed) {
  *n_removed = 0;
  BLEND_RETURN_IF_ERROR(check_writable());
  std::vector<std::pair<ChunkMeta, std::string>> damaged;
  Status listed = for_each(true, [&](const ChunkMeta& meta, const std::string& problem) -> int32_t {
    if (!problem.empty()) damaged.emplace_back(meta, problem);
    return 0;
  });
  if (!listed.is_ok() && listed.code() != BLEND_E_CORRUPT) return listed;
  const auto tell = [&](const ChunkMeta& meta, const std::string& problem) -> Status {
    ++*n_removed;
    const int32_t stop = fn(meta, problem);
    return stop == 0 ? Status::ok() : Status{BLEND_E_CALLBACK, "the callback asked to stop", stop};
  };
  for (const auto& [meta, problem] : damaged) {
    if (problem == kNoChunkId) continue;
    // Removed meanwhile by somebody else: nothing is left to repair.
    Status removed = remove(meta.id);
    if (removed.code() == BLEND_E_NOT_FOUND) continue;
    BLEND_RETURN_IF_ERROR(removed);
    BLEND_RETURN_IF_ERROR(tell(meta, problem));
  }
  uint64_t n_strays = 0;
  {
    BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
    BLEND_RETURN_IF_ERROR(writer.erase_strays(&n_strays).with_context("repair"));
    BLEND_RETURN_IF_ERROR(writer.rebuild());
    BLEND_RETURN_IF_ERROR(writer.commit().with_context("repair"));
  }
  for (; n_strays > 0; --n_strays) BLEND_RETURN_IF_ERROR(tell({}, kNoChunkId));
  return Status::ok();
}

}  // namespace blend
