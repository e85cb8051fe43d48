#include "calibrate/rounding.h"

#include <algorithm>
#include <cstring>

#include "store/codec/codec.h"
#include "store/codec/row_shifts.h"

namespace blend {

Result<RoundedSize> put_rounded(const MemoryStore& exact, Codec codec, std::span<const float> steps,
                                MemoryStore& out) {
  RoundedSize size;
  CodecScratch scratch;
  for (const auto& record : exact.records()) {
    const ChunkShape& shape = record->meta.shape;
    if (steps.size() != shape.n_layers) {
      return Status{BLEND_E_INTERNAL, "steps of another number of layers"};
    }
    auto rounded = std::make_shared<ChunkRecord>();
    rounded->meta = record->meta;
    BLEND_ASSIGN(rounded->data, AlignedBuffer::allocate(record->data.bytes()));
    std::memcpy(rounded->data.data(), record->data.data(), record->data.bytes());
    uint64_t longest = 0;
    for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
      longest = std::max(longest, longest_layer(codec, shape, layer));
    }
    BLEND_ASSIGN(const AlignedBuffer encoded, AlignedBuffer::allocate(longest));
    const std::vector<uint8_t> shifts = row_shifts(record->meta.impact);
    for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
      if (steps[layer] == 0) continue;
      const EncodeOptions options{static_cast<double>(steps[layer]), shifts};
      BLEND_ASSIGN(const size_t bytes, encode_layer(codec, shape, layer, record->k(layer),
                                                    encoded.data(), scratch, options));
      BLEND_RETURN_IF_ERROR(
          decode_layer(codec, shape, layer, {encoded.data(), bytes}, rounded->k(layer), scratch));
      size.bytes += bytes;
      size.elements += shape.layer_bytes(layer) / static_cast<size_t>(dtype_size(shape.dtype));
    }
    BLEND_RETURN_IF_ERROR(out.put_async(std::move(rounded)));
  }
  return size;
}

}  // namespace blend
