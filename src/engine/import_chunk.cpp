#include "engine/import_chunk.h"

#include <numeric>

namespace blend {

Result<std::shared_ptr<ChunkRecord>> import_chunk(const ModelDescription& model,
                                                  std::span<const HostKv> layers,
                                                  uint32_t first_position, ChunkMeta meta,
                                                  const Watch& watch) {
  const ModelConfig& c = model.config();
  const auto rows = static_cast<uint32_t>(meta.tokens.size());
  if (first_position > model.context_length() || rows > model.context_length() - first_position) {
    return make_error(BLEND_E_CONTEXT_LENGTH,
                      "the chunk has %u tokens from position %u on; the model's context is %u",
                      rows, first_position, model.context_length());
  }
  Backend& b = model.backend();
  auto record = std::make_shared<ChunkRecord>();
  BLEND_ASSIGN(record->data, AlignedBuffer::allocate(meta.shape.total_bytes()));
  BLEND_ASSIGN(const auto ropes, model.ropes(first_position + rows));
  const auto element = static_cast<size_t>(b.traits().activation_bytes);
  BLEND_ASSIGN(const auto buffer, b.allocate(size_t{2} * c.kv_dim() * rows * element));
  const Tensor kv{buffer->data(), rows, int64_t{2} * c.kv_dim(), b.traits().activation_bytes};
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), first_position);
  record->meta = std::move(meta);
  for (uint32_t layer = 0; layer < c.n_kept(); ++layer) {
    BLEND_RETURN_IF_ERROR(watch.report(layer, c.n_kept()));
    const std::string where = "layer " + std::to_string(layer);
    BLEND_RETURN_IF_ERROR(
        b.host().read(layers[layer], ropes->from_host(layer), pos.data(), kv).with_context(where));
    BLEND_RETURN_IF_ERROR(
        b.fusion()
            .encode_kv(kv, record->meta.shape.dtype, record->k(layer), record->v(layer))
            .with_context(where));
  }
  BLEND_RETURN_IF_ERROR(watch.report(c.n_kept(), c.n_kept()));
  return record;
}

}  // namespace blend
