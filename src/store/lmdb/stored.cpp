// Chunks in stored form, for another tier.
#include <algorithm>

#include "store/lmdb/keys.h"
#include "store/lmdb/lmdb_store.h"
#include "store/lmdb/manifest.h"
#include "store/lmdb/read_records.h"
#include "store/lmdb/transaction.h"

namespace blend {
namespace {

// See StoredChunk.
class LmdbStoredChunk final : public StoredChunk {
 public:
  LmdbStoredChunk(Txn txn, const MapView& view, Manifest manifest)
      : txn_(std::move(txn)), view_(view), manifest_(std::move(manifest)) {}

  const StoredLayout& layout() const override { return manifest_; }
  Status find(uint64_t offset, uint64_t bytes, ByteSpans& out) override {
    BLEND_RETURN_IF_ERROR(txn_.env().check_fork());
    const uint64_t all = manifest_.stream_bytes();
    if (offset > all || bytes > all - offset) {
      return {BLEND_E_INVALID_ARGUMENT, "these bytes lie outside the chunk's stream"};
    }
    for (uint64_t at = offset; at < offset + bytes;) {
      BLEND_ASSIGN(const auto piece, piece_of(static_cast<uint32_t>(at / kPieceBytes)));
      const uint64_t skip = at % kPieceBytes;
      const uint64_t n = std::min(piece.size() - skip, offset + bytes - at);
      out.push_back(piece.subspan(skip, n));
      at += n;
    }
    return Status::ok();
  }

 private:
  Result<std::span<const std::byte>> piece_of(uint32_t number) {
    const uint64_t length =
        std::min<uint64_t>(kPieceBytes, manifest_.stream_bytes() - uint64_t{number} * kPieceBytes);
    PieceKey key(manifest_.meta.id, number);
    MDB_val k = key.val();
    MDB_val value{};
    const int rc = mdb_get(txn_.get(), txn_.env().chunks(), &k, &value);
    if (rc != 0 || value.mv_size != length || !view_.contains(to_span(value))) {
      return make_error(BLEND_E_CORRUPT, "piece %u of chunk %s is not what its description says",
                        number, to_hex(manifest_.meta.id).c_str());
    }
    return to_span(value);
  }

  const Txn txn_;
  const MapView view_;
  const Manifest manifest_;
};

}  // namespace

Result<std::unique_ptr<StoredChunk>> LmdbStore::stored(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  BLEND_ASSIGN(Txn txn, env_.begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  BLEND_ASSIGN(Manifest manifest, read_manifest(txn, view, id));
  return std::unique_ptr<StoredChunk>(
      std::make_unique<LmdbStoredChunk>(std::move(txn), view, std::move(manifest)));
}

Status LmdbStore::put_stored(const StoredLayout& layout,
                             std::shared_ptr<const AlignedBuffer> stream) {
  BLEND_RETURN_IF_ERROR(check_writable());
  if (stream == nullptr || stream->bytes() < layout.stream_bytes() || layout.layers.empty()) {
    return {BLEND_E_INVALID_ARGUMENT, "the stream is shorter than its layout says"};
  }
  write_back_->cancel(layout.meta.id);
  EncodedChunk chunk;
  chunk.manifest = Manifest(layout);
  chunk.stream = stream->data();
  env_.want_map(map_bytes_for(options_.quota_bytes, chunk.manifest.footprint()));
  env_.clear_dead_readers();
  PutTurns::Put put(chunk, layout.meta.tenant);
  PutTurns::Put* const waiting = &put;
  run_turns({&waiting, 1});
  Status status = conclude(put.status(), {}, chunk.manifest);
  if (!status.is_ok() || common_->ram == nullptr || layout.meta.codec != Codec::none) return status;
  try {
    const RamTier::Key key{layout.meta.id, chunk.manifest.version()};
    for (uint32_t layer = 0; layer < layout.meta.shape.n_layers; ++layer) {
      // Every layer keeps the whole stream alive; they are added and dropped together.
      const RamTier::Layer bytes(stream, stream->data() + layout.layers[layer].offset);
      if (!common_->ram->put_foreign(key, layout.meta.shape, layer, bytes)) break;
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the tier is best effort
  }
  return status;
}

}  // namespace blend
