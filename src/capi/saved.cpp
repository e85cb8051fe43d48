// Fusions kept in the store between the turns of a conversation.
#include "fusion/result/saved.h"

#include <cstring>

#include "capi/chunk_ids.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Status;

extern "C" {

int32_t blend_fusion_save(const blend_fusion* fusion, const blend_store* store, const char* tenant,
                          const blend_cancel* cancel, blend_chunk_id* id, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(store);
    if (store->read_only) return {BLEND_E_READ_ONLY, "the store was opened read-only"};
    blend::Sequence& sequence = *fusion->fused.sequence;
    const blend::ThreadCap cap(fusion->n_threads);
    const blend::DType dtype = blend::capi::resolve_kv_dtype(*store, sequence.model());
    BLEND_ASSIGN(const std::shared_ptr<const blend::ChunkRecord> record,
                 blend::record_sequence(sequence, dtype, tenant != nullptr ? tenant : "",
                                        blend::capi::make_watch(cancel, nullptr, nullptr)));
    if (id != nullptr) std::memcpy(id->bytes, record->meta.id.data(), record->meta.id.size());
    return store->store->put_async(record);
  });
}

int32_t blend_fusion_restore(blend_fusion** out, const blend_model* model, const blend_store* store,
                             const blend_chunk_id* id, const char* tenant, uint32_t reserve_tokens,
                             const blend_cancel* cancel, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(id);
    BLEND_ASSIGN(const auto loaded, model->fusible());
    auto handle = std::make_unique<blend_fusion>();
    blend::Fused& fused = handle->fused;
    BLEND_ASSIGN(fused.sequence,
                 blend::restore_sequence(loaded, *store->store, blend::capi::digest_of(*id),
                                         tenant != nullptr ? tenant : "", reserve_tokens,
                                         blend::capi::make_watch(cancel, nullptr, nullptr)));
    const uint32_t n_layers = loaded->config().n_kept();
    fused.info.flags = BLEND_FUSION_RESTORED;
    fused.info.n_layers = n_layers;
    fused.info.n_rows = fused.info.n_rows_resident = fused.sequence->n_rows();
    fused.layers.resize(n_layers);
    for (uint32_t i = 0; i < n_layers; ++i) fused.layers[i].layer = i;
    fused.deviation.assign(fused.sequence->n_rows(), 0.0f);
    *out = handle.release();
    return Status::ok();
  });
}

}  // extern "C"
