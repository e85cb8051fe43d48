// Chunks that the host prefilled with its own engine.
#include <cstring>

#include "capi/chunk_request.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/kv_view.h"
#include "capi/structs.h"
#include "engine/import_chunk.h"

using blend::Result;
using blend::Status;

namespace {

Result<std::vector<blend::HostKv>> read_layers(const blend_kv_view* layers, size_t n_layers,
                                               const blend::ModelConfig& config) {
  if (n_layers != config.n_layers) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "%zu layers were given; the model has %u, and a chunk is stored whole",
                             n_layers, config.n_layers);
  }
  std::vector<blend::HostKv> out;
  BLEND_RETURN_IF_ERROR(blend::capi::check_elements(layers, n_layers, "layer"));
  for (size_t i = 0; i < n_layers; ++i) {
    const std::string name = "layer " + std::to_string(i);
    auto layer = blend::capi::read_kv_view(*blend::capi::element(layers, i), config);
    if (!layer.is_ok()) return layer.status().with_context(name);
    out.push_back(*layer);
  }
  return out;
}

}  // namespace

extern "C" {

int32_t blend_chunk_find(const blend_model* model, const blend_store* store, const int32_t* tokens,
                         size_t n_tokens, const blend_precompute_options* options,
                         blend_chunk_id* id, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(tokens);
    BLEND_ASSIGN(const blend::capi::ChunkRequest request,
                 blend::capi::read_chunk_request(*model, *store, tokens, n_tokens, options));
    const blend::Sha256& chunk_id = request.meta.id;
    if (id != nullptr) std::memcpy(id->bytes, chunk_id.data(), chunk_id.size());
    BLEND_ASSIGN(const bool stored, store->store->contains(chunk_id));
    if (stored) return Status::ok();
    return blend::make_error(BLEND_E_NOT_FOUND, "chunk %s is not in the store",
                             blend::to_hex(chunk_id).c_str());
  });
}

int32_t blend_chunk_put(const blend_model* model, const blend_store* store, const int32_t* tokens,
                        size_t n_tokens, const blend_kv_view* layers, size_t n_layers,
                        uint32_t first_position, const blend_precompute_options* options,
                        blend_chunk_id* id, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(tokens);
    BLEND_REQUIRE(layers);
    BLEND_RETURN_IF_ERROR(blend::capi::check_fusible(*model->description));
    BLEND_ASSIGN(blend::capi::ChunkRequest request,
                 blend::capi::read_chunk_request(*model, *store, tokens, n_tokens, options));
    if (request.names_contexts) {
      return {BLEND_E_INVALID_ARGUMENT,
              "contexts are for blend_precompute: put the mean of the rows yourself, or none"};
    }
    if (request.after_bos) {
      return {
          BLEND_E_INVALID_ARGUMENT,
          "only a chunk that is prefilled here can be stored behind BOS as well: put its rows as "
          "they are there by a second blend_chunk_put with BOS as chunk_prefix"};
    }
    const blend::ModelDescription& m = *model->description;
    BLEND_ASSIGN(const auto views, read_layers(layers, n_layers, m.config()));
    if (id != nullptr) std::memcpy(id->bytes, request.meta.id.data(), request.meta.id.size());
    if (store->read_only) return {BLEND_E_READ_ONLY, "the store was opened read-only"};
    const blend::ThreadCap cap(request.n_threads);
    BLEND_ASSIGN(const auto record, blend::import_chunk(m, views, first_position,
                                                        std::move(request.meta), request.watch));
    record->codec = request.codec;
    return request.background ? store->store->put_async(record) : store->store->put(*record);
  });
}

}  // extern "C"
