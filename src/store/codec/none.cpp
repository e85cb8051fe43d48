// Codec none: rows as they are.
#include <cstring>

#include "store/codec/codec.h"

namespace blend {
namespace {

class NoneCodec final : public PlaneCodec {
 public:
  uint64_t least_bytes(const PlaneShape& shape) const override { return shape.bytes(); }
  uint64_t most_bytes(const PlaneShape& shape) const override { return shape.bytes(); }

  Result<size_t> encode(PlaneKind, const PlaneShape& shape, const std::byte* rows, std::byte* out,
                        CodecScratch&, const EncodeOptions&) const override {
    if (shape.bytes() > 0) std::memcpy(out, rows, shape.bytes());
    return shape.bytes();
  }

  Result<size_t> decode(PlaneKind, const PlaneShape& shape, std::span<const std::byte> in,
                        std::byte* rows, CodecScratch&) const override {
    if (in.size() < shape.bytes()) return Status{BLEND_E_CORRUPT, "the layer ends too soon"};
    if (shape.bytes() > 0) std::memcpy(rows, in.data(), shape.bytes());
    return shape.bytes();
  }
};

}  // namespace

const PlaneCodec& none_codec() {
  static const NoneCodec kCodec{};
  return kCodec;
}

}  // namespace blend
