#include "fusion/result/saved.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "engine/chunk_shape.h"

namespace blend {
namespace {

// Rows that are read back at a time, which bounds the scratch memory.
constexpr uint32_t kBlockRows = 512;

Sha256 sequence_id(const Sha256& fingerprint, DType dtype, std::string_view tenant,
                   std::span<const int32_t> tokens) {
  Sha256Hasher hasher;
  hasher.field("blend-sequence-1")
      .field(fingerprint.data(), fingerprint.size())
      .field(static_cast<uint64_t>(dtype))
      .field(tenant)
      .field(tokens.data(), tokens.size_bytes());
  return hasher.finish();
}

ChunkMeta describe_sequence(const Sequence& sequence, DType dtype, std::string_view tenant) {
  const Model& model = sequence.model();
  const ModelConfig& c = model.config();
  ChunkMeta meta;
  meta.id = sequence_id(model.fingerprint(), dtype, tenant, sequence.tokens());
  meta.fingerprint = model.fingerprint();
  meta.shape = chunk_shape(c, sequence.n_rows(), dtype);
  meta.created_unix_s = std::time(nullptr);
  meta.tokens = sequence.tokens();
  meta.tenant = tenant_tag(tenant);
  return meta;
}

Status check_meta(const Model& model, const ChunkMeta& meta) {
  const ModelConfig& c = model.config();
  if (meta.fingerprint != model.fingerprint() || !has_layers_of(meta.shape, c)) {
    return make_error(BLEND_E_MISMATCH, "%s was saved with another model", to_hex(meta.id).c_str());
  }
  if (meta.shape.n_tokens == 0 || meta.tokens.size() != meta.shape.n_tokens) {
    return make_error(BLEND_E_CORRUPT, "%s has %zu tokens for %u rows", to_hex(meta.id).c_str(),
                      meta.tokens.size(), meta.shape.n_tokens);
  }
  BLEND_RETURN_IF_ERROR(model.check_length(meta.tokens.size(), "the saved fusion"));
  return model.check_tokens(meta.tokens, "the saved fusion");
}

}  // namespace

Result<std::shared_ptr<const ChunkRecord>> record_sequence(Sequence& sequence, DType dtype,
                                                           std::string_view tenant,
                                                           const Watch& watch) {
  BLEND_RETURN_IF_ERROR(sequence.model().runtime().check_fork());
  if (!sequence.tempered().empty()) {
    return Status{BLEND_E_UNSUPPORTED,
                  "rows that were fused with APE are attended to at its temperature, which a saved "
                  "fusion does not keep: keep it open, or fuse with another policy"};
  }
  Backend& b = sequence.model().backend();
  auto record = std::make_shared<ChunkRecord>();
  record->meta = describe_sequence(sequence, dtype, tenant);
  const ChunkShape& shape = record->meta.shape;
  BLEND_ASSIGN(record->data, AlignedBuffer::allocate(shape.total_bytes()));
  const uint32_t block = std::min(kBlockRows, shape.n_tokens);
  const ModelConfig& c = sequence.model().config();
  BLEND_ASSIGN(const std::unique_ptr<DeviceBuffer> buffer,
               b.allocate(static_cast<size_t>(block * int64_t{c.widest_row()} *
                                              b.traits().activation_bytes)));
  std::vector<uint32_t> slots(shape.n_tokens);
  std::iota(slots.begin(), slots.end(), 0u);
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    const size_t row_bytes = shape.row_bytes(layer);
    BLEND_RETURN_IF_ERROR(watch.report(layer, shape.n_layers));
    for (uint32_t first = 0; first < shape.n_tokens; first += block) {
      const uint32_t rows = std::min(block, shape.n_tokens - first);
      const Tensor kv{buffer->data(), rows, c.row_dim(layer), b.traits().activation_bytes};
      BLEND_RETURN_IF_ERROR(b.fusion().read_kv(
          sequence.cache(), layer, sequence.ropes().keys(layer), slots.data() + first, kv));
      BLEND_RETURN_IF_ERROR(b.fusion()
                                .encode_kv(kv, dtype, record->k(layer) + first * row_bytes,
                                           record->v(layer) + first * row_bytes)
                                .with_context("layer " + std::to_string(layer)));
    }
  }
  BLEND_RETURN_IF_ERROR(watch.report(shape.n_layers, shape.n_layers));
  return std::shared_ptr<const ChunkRecord>(std::move(record));
}

Result<std::unique_ptr<Sequence>> restore_sequence(const std::shared_ptr<const Model>& model,
                                                   ChunkStore& store, const Sha256& id,
                                                   std::string_view tenant, uint32_t reserve_tokens,
                                                   const Watch& watch) {
  BLEND_ASSIGN(const std::unique_ptr<StoreSnapshot> snapshot, store.snapshot());
  BLEND_ASSIGN(const std::unique_ptr<ChunkSource> source, snapshot->open(id, tenant_tag(tenant)));
  const ChunkMeta& meta = source->meta();
  BLEND_RETURN_IF_ERROR(check_meta(*model, meta));
  const ChunkShape& shape = meta.shape;
  const uint32_t n_rows = shape.n_tokens;
  const uint32_t room = model->context_length() - n_rows;
  BLEND_ASSIGN(std::unique_ptr<Sequence> sequence,
               Sequence::create(model, n_rows + std::min(reserve_tokens, room)));

  BLEND_ASSIGN(const AlignedBuffer staged, AlignedBuffer::allocate(shape.most_layer_bytes()));
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    BLEND_RETURN_IF_ERROR(watch.report(layer, shape.n_layers + 1));
    if (layer + 1 < shape.n_layers) source->prefetch(layer + 1);
    const Status read = source->read_layer(layer, staged.data());
    if (read.code() == BLEND_E_CORRUPT) store.report_damage(id, read);
    BLEND_RETURN_IF_ERROR(read);
    const StoredRun run{staged.data(), staged.data() + shape.plane_bytes(layer), shape.dtype,
                        n_rows - 1, 0};
    BLEND_RETURN_IF_ERROR(model->backend().fusion().scatter(sequence->cache(), layer,
                                                            sequence->ropes().keys(layer),
                                                            std::span(&run, 1), nullptr, nullptr));
  }
  sequence->set_filled({meta.tokens.begin(), meta.tokens.end() - 1}, {});
  // With progress it is a step by itself: a Gated DeltaNet's states are made of all rows here, and
  // the steps of others must not wait for that.
  const Watch alone{watch.cancel, [](uint64_t, uint64_t) { return 0; }};
  BLEND_RETURN_IF_ERROR(sequence->append(std::span(meta.tokens).last(1), alone));
  BLEND_RETURN_IF_ERROR(watch.report(shape.n_layers + 1, shape.n_layers + 1));
  return sequence;
}

}  // namespace blend
