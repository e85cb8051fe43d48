// The stored form of a chunk: its description, and where its encoded layers are in its stream. Its
// bytes (FORMAT.md, "Manifest") are the same on disk and in a remote tier.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/codec/codec.h"

namespace blend {

inline constexpr uint32_t kStoreFormatVersion = 3;
inline constexpr uint32_t kOldestFormatVersion = 2;  // that is still read
// Version that a record needs: the oldest, unless it uses something newer.
constexpr uint32_t record_version(Codec codec) {
  return codec > Codec::int4 ? kStoreFormatVersion : kOldestFormatVersion;
}

// Size of the pieces of a stream. With LMDB's page header one fills 256 pages of 4 KiB exactly.
// Values of one size keep LMDB's search for contiguous free pages short: with values as long as
// layers or chunks the cost of a put grew a hundredfold as the store aged.
inline constexpr uint32_t kPieceBytes = (1u << 20) - 16;

// Where a layer lies in the chunk's stream, as stored (after the codec).
struct LayerExtent {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t checksum = 0;  // XXH3-64 of the stored bytes
};

struct StoredLayout {
  ChunkMeta meta;                   // its codec and stored_bytes are those of this stream
  std::vector<LayerExtent> layers;  // [n_layers]

  uint64_t stream_bytes() const {
    return layers.empty() ? 0 : layers.back().offset + layers.back().length;
  }
  // A hash of the layers' checksums: two chunks of one id and version have the same bytes.
  uint64_t version() const;
  uint64_t description_bytes() const;
};

std::string encode_description(const StoredLayout& m);
// CORRUPT: the bytes fail their checksum or contradict themselves or `id`; UNSUPPORTED: a codec or
// version that this build does not know.
Result<StoredLayout> decode_description(std::span<const std::byte> bytes, const Sha256& id);

}  // namespace blend
