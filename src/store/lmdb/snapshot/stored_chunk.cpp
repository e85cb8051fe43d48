#include "store/lmdb/snapshot/stored_chunk.h"

#include <algorithm>

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/environment.h"
#include "store/lmdb/keys.h"
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

std::unique_ptr<StoredChunk> make_stored_chunk(Txn txn, const MapView& view, Manifest manifest) {
  return std::make_unique<LmdbStoredChunk>(std::move(txn), view, std::move(manifest));
}

}  // namespace blend
