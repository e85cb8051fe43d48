// Iterates over the chunks of a store.
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "store/lmdb/catalog/catalog.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/error.h"
#include "store/lmdb/snapshot/source.h"
#include "store/lmdb/transaction.h"

namespace blend {

using ull = unsigned long long;

Status Catalog::for_each_used(bool verify, const StoreAdmin::VisitUsed& fn) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  Mutex mutex;
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn.get(), common_.env->meta(), &raw);
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
                       AlignedBuffer::allocate(meta.shape.most_layer_bytes()));
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
    const std::optional<UseRecord> use = retention_.use_of(txn, meta.id);
    if (const int32_t stop = fn(meta, use.has_value() ? &*use : nullptr, problem); stop != 0) {
      return {BLEND_E_CALLBACK, "the callback asked to stop", stop};
    }
    BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  }
  if (rc != MDB_NOTFOUND) return lmdb_error(rc, "list the chunks");
  if (verify && n_damaged > 0) {
    return make_error(BLEND_E_CORRUPT,
                      "%llu chunks of store '%s' are damaged: remove them, and they will be "
                      "computed again",
                      static_cast<ull>(n_damaged), common_.env->path().c_str());
  }
  return Status::ok();
}

}  // namespace blend
