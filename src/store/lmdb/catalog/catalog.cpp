#include "store/lmdb/catalog/catalog.h"

#include <utility>

#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/catalog/text_index.h"
#include "store/lmdb/snapshot/snapshot.h"
#include "store/lmdb/snapshot/stored_chunk.h"
#include "store/lmdb/transaction.h"
#include "store/lmdb/writer/chunk_writer.h"

namespace blend {

Catalog::Catalog(StoreCommon& common, Retention& retention, LayerReads reads)
    : common_(common), retention_(retention), reads_(std::move(reads)) {}

Catalog::~Catalog() {
  // A forked child has none of the threads that the reader would wait for: leaked.
  if (common_.env->forked()) (void)reads_.reader.release();
}

Result<std::unique_ptr<StoreSnapshot>> Catalog::snapshot(RecordMap pending) {
  BLEND_ASSIGN(Txn txn, common_.env->begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  return std::unique_ptr<StoreSnapshot>(std::make_unique<LmdbSnapshot>(
      common_, retention_, reads_, std::move(txn), view, std::move(pending)));
}

Result<bool> Catalog::contains(const Sha256& id) {
  BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  return retention_.has(txn, view, id, false);
}

Result<bool> Catalog::is_of(const Sha256& id, const TenantTag& tenant) {
  BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  const auto manifest = read_manifest(txn, view, id);
  if (manifest.is_ok()) return manifest.value().meta.tenant == tenant;
  if (manifest.status().code() == BLEND_E_NOT_FOUND) return false;
  return manifest.status();
}

Status Catalog::rename(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                       bool* changed) {
  *changed = false;
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  {
    // Usually it has that name already, given by an earlier put.
    BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    BLEND_ASSIGN(const Manifest now, read_manifest(txn, view, id));
    if (tenant != nullptr && now.meta.tenant != *tenant) return no_such_chunk(id);
    if (name.says_no_more_than(now.meta.name)) return Status::ok();
  }
  BLEND_RETURN_IF_ERROR(common_.check_writable());
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));
  std::optional<Manifest> manifest = writer.find(id);
  if (!manifest.has_value()) return no_such_chunk(id);  // gone since
  const ChunkName before = std::exchange(manifest->meta.name, name);
  manifest->meta.name.complete_with(before);
  BLEND_RETURN_IF_ERROR(writer.rename(*manifest).with_context("name chunk " + to_hex(id)));
  BLEND_RETURN_IF_ERROR(writer.commit().with_context("name chunk " + to_hex(id)));
  *changed = true;
  return Status::ok();
}

Result<std::unique_ptr<StoredChunk>> Catalog::stored(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  BLEND_ASSIGN(Txn txn, common_.env->begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  BLEND_ASSIGN(Manifest manifest, read_manifest(txn, view, id));
  return make_stored_chunk(std::move(txn), view, std::move(manifest));
}

Status Catalog::fill(StoreStat& s) {
  BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  BLEND_ASSIGN(const StoreCounters counters, read_counters(txn, view, common_));
  s.n_chunks = counters.n_chunks;
  s.n_tokens = counters.n_tokens;
  s.bytes = counters.kv_bytes;
  s.codecs = counters.codecs;
  s.read_mode = reads_.reader != nullptr ? reads_.reader->mode() : ReadMode::mapped;
  s.stored_bytes = counters.footprint;
  s.file_bytes = common_.env->file_bytes();
  const LruIndex index(txn);
  s.totals = index.totals();
  const TextTotals texts = TextIndex(txn).totals();
  if (TextIndex::fits(texts, counters)) s.texts = texts;
  BLEND_ASSIGN(const auto span, index.span());
  s.oldest_use_us = span.first;
  s.newest_use_us = span.second;
  return Status::ok();
}

}  // namespace blend
