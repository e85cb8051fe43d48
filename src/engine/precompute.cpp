#include "engine/precompute.h"

#include <ctime>
#include <numeric>

#include "engine/context_impact.h"
#include "engine/forward.h"

namespace blend {

ChunkMeta describe_chunk(const ModelDescription& model, DType dtype,
                         std::span<const int32_t> prefix, std::string_view tenant,
                         std::span<const int32_t> tokens) {
  const ModelConfig& c = model.config();
  ChunkMeta meta;
  meta.id = chunk_id(model.fingerprint(), dtype, prefix, tenant, tokens);
  meta.fingerprint = model.fingerprint();
  meta.shape = {c.n_layers, static_cast<uint32_t>(tokens.size()), c.kv_dim(), dtype, c.head_dim};
  meta.n_prefix_tokens = static_cast<uint32_t>(prefix.size());
  meta.created_unix_s = std::time(nullptr);
  meta.tokens.assign(tokens.begin(), tokens.end());
  meta.tenant = tenant_tag(tenant);
  return meta;
}

Result<std::shared_ptr<ChunkRecord>> precompute_chunk(const Model& model,
                                                      std::span<const int32_t> prefix,
                                                      ChunkMeta meta, const Watch& watch) {
  const ModelConfig& c = model.config();
  if (prefix.size() + meta.tokens.size() > model.context_length()) {
    return make_error(BLEND_E_CONTEXT_LENGTH,
                      "the chunk has %zu tokens after a chunk prefix of %zu; the model's context "
                      "is %u",
                      meta.tokens.size(), prefix.size(), model.context_length());
  }
  Backend& b = model.backend();
  const auto n_prefix = static_cast<uint32_t>(prefix.size());
  const auto rows = static_cast<uint32_t>(n_prefix + meta.tokens.size());

  auto record = std::make_shared<ChunkRecord>();
  BLEND_ASSIGN(record->data, AlignedBuffer::allocate(meta.shape.total_bytes()));
  BLEND_ASSIGN(auto forward, Forward::create(model, rows));
  BLEND_ASSIGN(auto ropes, model.ropes(rows));
  // A cache of one layer would do; the layers are short-lived and the interface stays one.
  BLEND_ASSIGN(auto cache, b.make_kv_cache(c, rows));

  std::vector<int32_t> tokens(prefix.begin(), prefix.end());
  tokens.insert(tokens.end(), meta.tokens.begin(), meta.tokens.end());
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), 0u);
  record->meta = std::move(meta);

  const Tensor x = forward->x(rows);
  const Tensor kv = forward->kv(rows);
  const uint32_t n_tokens = rows - n_prefix;
  InsideMass inside(n_prefix, n_tokens);
  std::vector<float> outside;
  BLEND_RETURN_IF_ERROR(forward->embed(tokens.data(), x));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    BLEND_RETURN_IF_ERROR(watch.report(layer, c.n_layers));
    BLEND_RETURN_IF_ERROR(forward->compute_kv(layer, x, kv, watch));
    BLEND_RETURN_IF_ERROR(b.encode_kv(kv.slice(n_prefix, n_tokens), record->meta.shape.dtype,
                                      record->k(layer), record->v(layer))
                              .with_context("layer " + std::to_string(layer)));
    BLEND_RETURN_IF_ERROR(b.write_kv(*cache, layer, ropes->keys(layer), kv, pos.data()));
    if (layer == outside_layer(c)) {
      BLEND_ASSIGN(outside,
                   outside_mass(model, record->meta.tokens, *forward, x.slice(n_prefix, n_tokens),
                                kv.slice(n_prefix, n_tokens), watch));
    }
    if (layer + 1 == c.n_layers) {  // nothing reads its output
      BLEND_RETURN_IF_ERROR(
          inside.last_layer(*forward, layer, *cache, *ropes, x, pos.data(), watch));
      break;
    }
    BLEND_RETURN_IF_ERROR(
        forward->finish_layer(layer, *cache, layer, *ropes, x, pos.data(), watch, inside.out()));
    inside.add();
  }
  for (size_t i = 0; i < outside.size(); ++i) {
    record->meta.impact.push_back(
        {outside[i], inside.inside()[i] / static_cast<float>(c.n_layers)});
  }
  BLEND_RETURN_IF_ERROR(watch.report(c.n_layers, c.n_layers));
  return record;
}

}  // namespace blend
