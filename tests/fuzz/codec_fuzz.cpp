// Decoding bytes of any kind (libFuzzer). The first byte chooses the codec and the dtype, the next
// three the shape, the rest is the layer.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "store/codec/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  // Those of the first corpora by two bits, what came later by the highest.
  const auto codec =
      (data[0] & 0x80) != 0 ? blend::Codec::rans : static_cast<blend::Codec>(data[0] & 3);
  const auto dtype = static_cast<blend::DType>((data[0] >> 2) % 3);
  const uint32_t head_dim = 1 + data[3] % 33;
  const blend::ChunkShape shape{1, data[1], head_dim * (1u + data[2] % 9), dtype, head_dim};
  std::vector<std::byte> rows(shape.layer_bytes(0));
  blend::CodecScratch scratch;
  const auto in = std::as_bytes(std::span(data + 4, size - 4));
  const blend::Status status = blend::decode_layer(codec, shape, 0, in, rows.data(), scratch);
  if (!status.is_ok() && status.code() != BLEND_E_CORRUPT) std::abort();
  return 0;
}
