// Codecs: encode the K and V of a layer for storage, and decode them to rows.
//
// A chunk has one codec. Each layer is encoded by itself, so that layers are read, checked and
// decoded one by one while others are computed. FORMAT.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/buffer.h"
#include "store/chunk/chunk.h"
#include "store/codec/registry.h"
#include "store/codec/scratch.h"

namespace blend {

enum class PlaneKind : uint8_t { k, v };

// A plane of one layer: rows are [n_tokens, kv_dim] of dtype; of a layer that attends, K before
// RoPE or V. Planes of other kinds of rows are encoded as V is: their errors, too, add up
// in a weighted sum.
struct PlaneShape {
  uint32_t n_tokens = 0;
  uint32_t kv_dim = 0;
  uint32_t head_dim = 0;  // divides kv_dim
  DType dtype = DType::f16;

  PlaneShape(const ChunkShape& s, uint32_t layer)
      : n_tokens(s.rows(layer)),
        kv_dim(s.layer(layer).width),
        head_dim(s.head_dim == 0 || kv_dim % s.head_dim != 0 ? kv_dim : s.head_dim),
        dtype(s.dtype) {}
  size_t elements() const { return static_cast<size_t>(n_tokens) * kv_dim; }
  size_t element_bytes() const { return static_cast<size_t>(dtype_size(dtype)); }
  size_t bytes() const { return elements() * element_bytes(); }
};

// Parameters of an encoding.
struct EncodeOptions {
  double step = 1;                           // factor on the codec's own scales: rans
  std::span<const uint8_t> row_shifts = {};  // [n_tokens] of row_shifts.h; empty: all rows alike
};

// One codec; a constant, so thread-safe. Neither direction trusts its input: encode() meets NaNs,
// decode() bytes of any kind.
class PlaneCodec {
 public:
  virtual ~PlaneCodec() = default;
  // Bounds on what encode() writes.
  virtual uint64_t least_bytes(const PlaneShape& shape) const = 0;
  virtual uint64_t most_bytes(const PlaneShape& shape) const = 0;
  // rows: of shape, any alignment; out: room for most_bytes(). Returns the bytes written. NUMERIC
  // when the codec cannot keep a value.
  virtual Result<size_t> encode(PlaneKind kind, const PlaneShape& shape, const std::byte* rows,
                                std::byte* out, CodecScratch& scratch,
                                const EncodeOptions& options) const = 0;
  // Decodes the plane that `in` begins with and returns its length. CORRUPT: no encoder wrote that;
  // `rows` may have been written to.
  virtual Result<size_t> decode(PlaneKind kind, const PlaneShape& shape,
                                std::span<const std::byte> in, std::byte* rows,
                                CodecScratch& scratch) const = 0;
};

// A codec that a device can decode too: its planes may be copied there as they are stored.
class PackedCodec : public PlaneCodec {
 public:
  virtual Packing packing() const = 0;
  // Whether decode() would accept the plane that `in` begins with, and its length.
  virtual Result<size_t> check(PlaneKind kind, const PlaneShape& shape,
                               std::span<const std::byte> in, CodecScratch& scratch) const = 0;
};

// The error of decode() for bytes that no encoder wrote.
inline Status corrupt_layer(const char* why) { return {BLEND_E_CORRUPT, why}; }

// Null for a number that this build does not know.
const PlaneCodec* plane_codec(Codec codec);
// Null for a codec that only the host decodes, too.
const PackedCodec* packed_codec(Codec codec);
#define BLEND_PLANE(member, name, lossless) const PlaneCodec& member##_codec();
#define BLEND_PACKED(member, name, lossless) const PackedCodec& member##_codec();
BLEND_CODECS(BLEND_PLANE, BLEND_PACKED)
#undef BLEND_PLANE
#undef BLEND_PACKED

const char* codec_name(Codec codec);
std::optional<Codec> codec_from_name(std::string_view name);
// Whether decoding returns the original, bit for bit.
constexpr bool is_lossless(Codec codec) {
  const auto i = static_cast<size_t>(codec);
  return i < std::size(kCodecTable) && kCodecTable[i].lossless;
}

// A layer is its two planes and zeros up to a multiple of this (none: no zeros), so that
// the fields of the next one are aligned.
inline constexpr size_t kLayerAlignment = 16;

// Whether a layer of a chunk of this shape can have this length.
bool layer_length_is_possible(Codec codec, const ChunkShape& shape, uint32_t layer, uint64_t bytes);
// The longest that a layer of a chunk of this shape can be.
uint64_t longest_layer(Codec codec, const ChunkShape& shape, uint32_t layer);
// rows: [plane][row][column] of `layer`; out: room for longest_layer(). Returns the bytes written.
Result<size_t> encode_layer(Codec codec, const ChunkShape& shape, uint32_t layer,
                            const std::byte* rows, std::byte* out, CodecScratch& scratch,
                            const EncodeOptions& options = {});
// in: the whole encoded layer; rows: layer_bytes(). CORRUPT as PlaneCodec::decode().
Status decode_layer(Codec codec, const ChunkShape& shape, uint32_t layer,
                    std::span<const std::byte> in, std::byte* rows, CodecScratch& scratch);
// All errors that decode_layer() would find, without decoding. The V plane follows the K
// plane. UNSUPPORTED: not a packed codec.
Result<PackedPlanes> check_packed_layer(Codec codec, const ChunkShape& shape, uint32_t layer,
                                        std::span<const std::byte> in, CodecScratch& scratch);

}  // namespace blend
