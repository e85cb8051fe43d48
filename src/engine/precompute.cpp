#include "engine/precompute.h"

#include <ctime>

#include "engine/chunk_shape.h"

namespace blend {

ChunkMeta describe_chunk(const ModelDescription& model, DType dtype,
                         std::span<const int32_t> prefix, std::string_view tenant,
                         std::span<const int32_t> tokens, RecordKind kind) {
  const ModelConfig& c = model.config();
  ChunkMeta meta;
  meta.id = chunk_id(model.fingerprint(), dtype, prefix, tenant, tokens, kind);
  meta.fingerprint = model.fingerprint();
  meta.shape = chunk_shape(c, static_cast<uint32_t>(tokens.size()), dtype);
  meta.n_prefix_tokens = static_cast<uint32_t>(prefix.size());
  meta.created_unix_s = std::time(nullptr);
  meta.tokens.assign(tokens.begin(), tokens.end());
  meta.tenant = tenant_tag(tenant);
  return meta;
}

Result<std::shared_ptr<ChunkRecord>> precompute_chunk(const Model& model,
                                                      std::span<const int32_t> prefix,
                                                      ChunkMeta meta, const Watch& watch,
                                                      std::span<const ContextPassage> passages) {
  ChunkJob job{std::move(meta), passages};
  BLEND_ASSIGN(ChunkPrefill::Records records, ChunkPrefill(model, prefix).run({&job, 1}, watch));
  return std::move(records[0]);
}

}  // namespace blend
