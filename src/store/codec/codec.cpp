#include "store/codec/codec.h"

#include <cstring>
#include <iterator>

namespace blend {
namespace {

static_assert(std::size(kCodecTable) == kCodecs);
// The number in the files is the row.
constexpr Codec kNumbers[] = {
#define BLEND_ROW(member, name, lossless) Codec::member,
    BLEND_CODECS(BLEND_ROW, BLEND_ROW)
#undef BLEND_ROW
};
static_assert([] {
  for (size_t i = 0; i < kCodecs; ++i) {
    if (static_cast<size_t>(kNumbers[i]) != i) return false;
  }
  return true;
}());

uint64_t padded(Codec codec, uint64_t bytes) {
  if (codec == Codec::none) return bytes;
  return (bytes + kLayerAlignment - 1) / kLayerAlignment * kLayerAlignment;
}

// Checks the bytes after the planes of an encoded layer.
Status check_tail(Codec codec, std::span<const std::byte> in, size_t planes) {
  if (in.size() != padded(codec, planes)) return corrupt_layer("the encoded layer has a tail");
  for (const std::byte b : in.subspan(planes)) {
    if (b != std::byte{0}) return corrupt_layer("the encoded layer's padding is not zero");
  }
  return Status::ok();
}

// How the first plane of a layer is encoded; the second is as V.
PlaneKind first_kind(const ChunkShape& shape, uint32_t layer) {
  return shape.layer(layer).keep == LayerShape::Keep::kv ? PlaneKind::k : PlaneKind::v;
}

}  // namespace

#define BLEND_ROW(member, name, lossless) \
  if (codec == Codec::member) return &member##_codec();
#define BLEND_NONE(member, name, lossless)

const PlaneCodec* plane_codec(Codec codec) {
  BLEND_CODECS(BLEND_ROW, BLEND_ROW)
  return nullptr;
}

const PackedCodec* packed_codec(Codec codec) {
  BLEND_CODECS(BLEND_NONE, BLEND_ROW)
  return nullptr;
}

#undef BLEND_ROW
#undef BLEND_NONE

const char* codec_name(Codec codec) {
  const auto i = static_cast<size_t>(codec);
  return i < std::size(kCodecTable) ? kCodecTable[i].name.data() : "unknown";
}

std::optional<Codec> codec_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kCodecTable); ++i) {
    if (name == kCodecTable[i].name) return static_cast<Codec>(i);
  }
  return std::nullopt;
}

bool layer_length_is_possible(Codec codec, const ChunkShape& shape, uint32_t layer,
                              uint64_t bytes) {
  const PlaneCodec* c = plane_codec(codec);
  if (c == nullptr) return false;
  const PlaneShape plane(shape, layer);
  return bytes == padded(codec, bytes) && bytes >= padded(codec, 2 * c->least_bytes(plane)) &&
         bytes <= longest_layer(codec, shape, layer);
}

uint64_t longest_layer(Codec codec, const ChunkShape& shape, uint32_t layer) {
  const PlaneCodec* c = plane_codec(codec);
  return c == nullptr ? 0 : padded(codec, 2 * c->most_bytes(PlaneShape(shape, layer)));
}

Result<size_t> encode_layer(Codec codec, const ChunkShape& shape, uint32_t layer,
                            const std::byte* rows, std::byte* out, CodecScratch& scratch,
                            const EncodeOptions& options) {
  const PlaneCodec* c = plane_codec(codec);
  if (c == nullptr) return Status{BLEND_E_UNSUPPORTED, "an unknown codec"};
  const PlaneShape plane(shape, layer);
  BLEND_ASSIGN(const size_t k,
               c->encode(first_kind(shape, layer), plane, rows, out, scratch, options));
  BLEND_ASSIGN(const size_t v, c->encode(PlaneKind::v, plane, rows + shape.plane_bytes(layer),
                                         out + k, scratch, options));
  const size_t end = padded(codec, k + v);
  std::memset(out + k + v, 0, end - (k + v));
  return end;
}

Status decode_layer(Codec codec, const ChunkShape& shape, uint32_t layer,
                    std::span<const std::byte> in, std::byte* rows, CodecScratch& scratch) {
  const PlaneCodec* c = plane_codec(codec);
  if (c == nullptr) return {BLEND_E_UNSUPPORTED, "an unknown codec"};
  const PlaneShape plane(shape, layer);
  BLEND_ASSIGN(const size_t k, c->decode(first_kind(shape, layer), plane, in, rows, scratch));
  BLEND_ASSIGN(const size_t v, c->decode(PlaneKind::v, plane, in.subspan(k),
                                         rows + shape.plane_bytes(layer), scratch));
  return check_tail(codec, in, k + v);
}

Result<PackedPlanes> check_packed_layer(Codec codec, const ChunkShape& shape, uint32_t layer,
                                        std::span<const std::byte> in, CodecScratch& scratch) {
  const PackedCodec* c = packed_codec(codec);
  if (c == nullptr) return Status{BLEND_E_UNSUPPORTED, "a codec that only the host decodes"};
  const PlaneShape plane(shape, layer);
  PackedPlanes planes{c->packing(), plane.n_tokens, plane.head_dim, 0, 0};
  BLEND_ASSIGN(planes.k_bytes, c->check(first_kind(shape, layer), plane, in, scratch));
  BLEND_ASSIGN(planes.v_bytes, c->check(PlaneKind::v, plane, in.subspan(planes.k_bytes), scratch));
  BLEND_RETURN_IF_ERROR(check_tail(codec, in, planes.k_bytes + planes.v_bytes));
  return planes;
}

}  // namespace blend
