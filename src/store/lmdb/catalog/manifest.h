// Manifest: the record in the `meta` database that describes one stored chunk (FORMAT.md), and the
// two records of the `info` database.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "store/chunk/description.h"
#include "store/codec/codec.h"
#include "store/lmdb/page_format.h"
#include "store/store_admin.h"

namespace blend {

static_assert(kPieceBytes == (1u << 20) - page_format::kHeaderBytes);

struct Manifest : StoredLayout {
  Manifest() = default;
  explicit Manifest(StoredLayout layout) : StoredLayout(std::move(layout)) {}

  uint32_t n_pieces() const {
    return static_cast<uint32_t>((stream_bytes() + kPieceBytes - 1) / kPieceBytes);
  }
  // Size of the chunk on disk, page headers and rounding included: the quota counts this.
  uint64_t footprint() const;
};

// A record as it is stored.
struct EncodedChunk {
  Manifest manifest;
  AlignedBuffer encoded;              // empty for codec none: the record's own bytes are the stream
  const std::byte* stream = nullptr;  // [manifest.stream_bytes()]
};
// Encodes a record that check_record() accepted and hashes every layer. The record must outlive the
// result. step: EncodeOptions::step, for layer l times layer_steps[l] if that has as many
// layers. NUMERIC: the codec cannot keep a value.
Result<EncodedChunk> encode_chunk(const ChunkRecord& record, Codec codec, double step = 1,
                                  std::span<const float> layer_steps = {});

inline std::string encode_manifest(const Manifest& manifest) {
  return encode_description(manifest);
}
// As decode_description().
inline Result<Manifest> decode_manifest(std::span<const std::byte> bytes, const Sha256& id) {
  BLEND_ASSIGN(StoredLayout layout, decode_description(bytes, id));
  return Manifest(std::move(layout));
}

// `info` / "format": minimum format version this store needs, so that older builds can open stores
// they understand.
std::string encode_format(uint32_t version);
// Its version. FORMAT (not a store), MISMATCH (a version that this build does not read), CORRUPT.
Result<uint32_t> decode_format(std::span<const std::byte> bytes);

// `info` / "counters": kept in the transaction of every put and remove, so that stat is O(1).
struct StoreCounters {
  uint64_t n_chunks = 0;
  uint64_t n_tokens = 0;
  uint64_t kv_bytes = 0;   // of K and V before any codec
  uint64_t footprint = 0;  // sum of Manifest::footprint()
  std::array<CodecStat, kCodecs> codecs{};

  void add(const Manifest& m);
  void subtract(const Manifest& m);
  // Format version that a store with these chunks needs.
  uint32_t version() const;
  bool operator==(const StoreCounters&) const = default;
};
// As its version writes them: version 2 ends with codec int4.
std::string encode_counters(const StoreCounters& counters);
Result<StoreCounters> decode_counters(std::span<const std::byte> bytes);

}  // namespace blend
