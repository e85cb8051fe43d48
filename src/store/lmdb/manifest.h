// Manifest: the record in the `meta` database that describes one stored chunk (FORMAT.md), and the
// two records of the `info` database.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/codec/codec.h"
#include "store/lmdb/page_format.h"
#include "store/upkeep.h"

namespace blend {

inline constexpr uint32_t kStoreFormatVersion = 2;

// A value of this size and its page header fill 256 pages of 4 KiB exactly. Values of one size keep
// LMDB's search for contiguous free pages short: with values as long as layers or chunks the cost
// of a put grew a hundredfold as the store aged.
inline constexpr uint32_t kPieceBytes = (1u << 20) - page_format::kHeaderBytes;

// Where a layer lies in the chunk's stream, as stored (after the codec).
struct LayerExtent {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t checksum = 0;  // XXH3-64 of the stored bytes
};

struct Manifest {
  ChunkMeta meta;                   // its codec and stored_bytes are this manifest's
  std::vector<LayerExtent> layers;  // [n_layers]

  uint64_t stream_bytes() const {
    return layers.empty() ? 0 : layers.back().offset + layers.back().length;
  }
  uint32_t n_pieces() const {
    return static_cast<uint32_t>((stream_bytes() + kPieceBytes - 1) / kPieceBytes);
  }
  // What the chunk takes on disk, page headers and rounding included: what the quota counts.
  uint64_t footprint() const;
  // A hash of the layers' checksums: two chunks of one id and version have the same bytes.
  uint64_t version() const;
};

// A record as it is stored.
struct EncodedChunk {
  Manifest manifest;
  AlignedBuffer encoded;              // empty for codec none: the record's own bytes are the stream
  const std::byte* stream = nullptr;  // [manifest.stream_bytes()]
};
// Encodes a record that check_record() accepted and hashes every layer. The record must outlive the
// result. NUMERIC: the codec cannot keep a value.
Result<EncodedChunk> encode_chunk(const ChunkRecord& record, Codec codec);

std::string encode_manifest(const Manifest& manifest);
// CORRUPT: the bytes fail their checksum or contradict themselves or `id`; UNSUPPORTED: a codec or
// version that this build does not know.
Result<Manifest> decode_manifest(std::span<const std::byte> bytes, const Sha256& id);

// `info` / "format"
std::string encode_format();
// FORMAT (not a store), MISMATCH (another version), CORRUPT.
Status check_format(std::span<const std::byte> bytes);

// `info` / "counters": kept in the transaction of every put and remove, so that stat is O(1).
struct StoreCounters {
  uint64_t n_chunks = 0;
  uint64_t n_tokens = 0;
  uint64_t kv_bytes = 0;   // of K and V before any codec
  uint64_t footprint = 0;  // sum of Manifest::footprint()
  std::array<CodecStat, kCodecs> codecs{};

  void add(const Manifest& m);
  void subtract(const Manifest& m);
  bool operator==(const StoreCounters&) const = default;
};
std::string encode_counters(const StoreCounters& counters);
Result<StoreCounters> decode_counters(std::span<const std::byte> bytes);

}  // namespace blend
