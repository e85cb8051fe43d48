// The step API: a layerwise fuse's calls, in the order that LayerwiseFuse watches over, and its
// account.
#include "capi/error.h"
#include "capi/fuse_call.h"
#include "capi/handles.h"
#include "capi/kv_view.h"
#include "capi/structs.h"
#include "fusion/steps/layerwise_fuse.h"

using blend::Status;

struct blend_layerwise {
  std::shared_ptr<blend::Runtime> runtime;  // of the store, which may still log
  std::unique_ptr<blend::LayerwiseFuse> plan;
  uint32_t n_threads = 0;  // ThreadCap of the calls on it
};

extern "C" {

int32_t blend_layerwise_create(blend_layerwise** out, const blend_model* model,
                               const blend_store* store, const blend_segment* segments,
                               size_t n_segments, const blend_fuse_options* options,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    BLEND_RETURN_IF_ERROR(blend::capi::check_fusible(*model->description));
    BLEND_ASSIGN(blend::capi::FuseCall call,
                 blend::capi::read_fuse_call(*model->description, store, segments, n_segments,
                                             options, {.steps = true}));
    auto handle = std::make_unique<blend_layerwise>();
    handle->n_threads = call.n_threads;
    const blend::ThreadCap cap(call.n_threads);  // also of the threads that it starts
    std::shared_ptr<blend::ChunkStore> chunks;
    if (store != nullptr) {
      handle->runtime = store->runtime;
      chunks = store->store;
    }
    BLEND_ASSIGN(handle->plan, blend::LayerwiseFuse::create(model->description, std::move(chunks),
                                                            call.store, std::move(call.job)));
    *out = handle.release();
    return Status::ok();
  });
}

void blend_layerwise_close(blend_layerwise* layerwise) {
  if (layerwise == nullptr) return;
  // Leaked in a forked child, where the threads that it would wait for are missing.
  if (layerwise->plan != nullptr && layerwise->plan->forked())
    static_cast<void>(layerwise->plan.release());
  delete layerwise;
}

int32_t blend_layerwise_restart(blend_layerwise* layerwise, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    const blend::ThreadCap cap(layerwise->n_threads);
    return layerwise->plan->restart();
  });
}

int32_t blend_layerwise_get_tokens(const blend_layerwise* layerwise, const int32_t** tokens,
                                   size_t* n_tokens, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    BLEND_REQUIRE(tokens);
    BLEND_REQUIRE(n_tokens);
    *tokens = layerwise->plan->tokens().data();
    *n_tokens = layerwise->plan->tokens().size();
    return Status::ok();
  });
}

int32_t blend_layerwise_get_rows(const blend_layerwise* layerwise, const uint32_t** rows, size_t* n,
                                 blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    BLEND_REQUIRE(rows);
    BLEND_REQUIRE(n);
    *rows = layerwise->plan->rows().data();
    *n = layerwise->plan->rows().size();
    return Status::ok();
  });
}

int32_t blend_layerwise_fetch_kv(blend_layerwise* layerwise, uint32_t layer,
                                 const blend_kv_view* layer_kv, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    BLEND_REQUIRE(layer_kv);
    BLEND_ASSIGN(const blend::HostKv target,
                 blend::capi::read_kv_view(*layer_kv, layerwise->plan->config()));
    const blend::ThreadCap cap(layerwise->n_threads);
    return layerwise->plan->fetch(layer, target);
  });
}

int32_t blend_layerwise_synchronize(blend_layerwise* layerwise, uint32_t layer, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    const blend::ThreadCap cap(layerwise->n_threads);
    return layerwise->plan->synchronize(layer);
  });
}

int32_t blend_layerwise_probe(blend_layerwise* layerwise, const float* attention, size_t n_rows,
                              const uint32_t** rows, size_t* n, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    BLEND_REQUIRE(attention);
    BLEND_REQUIRE(rows);
    BLEND_REQUIRE(n);
    BLEND_RETURN_IF_ERROR(layerwise->plan->probe({attention, n_rows}));
    *rows = layerwise->plan->rows().data();
    *n = layerwise->plan->rows().size();
    return Status::ok();
  });
}

int32_t blend_layerwise_select(blend_layerwise* layerwise, uint32_t layer,
                               const blend_kv_view* fresh, const uint32_t** rows, size_t* n,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    BLEND_REQUIRE(rows);
    BLEND_REQUIRE(n);
    blend::HostKv kv;
    if (fresh != nullptr) {
      BLEND_ASSIGN(kv, blend::capi::read_kv_view(*fresh, layerwise->plan->config()));
    }
    const blend::ThreadCap cap(layerwise->n_threads);
    BLEND_RETURN_IF_ERROR(layerwise->plan->select(layer, fresh != nullptr ? &kv : nullptr));
    *rows = layerwise->plan->rows().data();
    *n = layerwise->plan->rows().size();
    return Status::ok();
  });
}

int32_t blend_layerwise_commit(blend_layerwise* layerwise, uint32_t layer, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    const blend::ThreadCap cap(layerwise->n_threads);
    return layerwise->plan->commit(layer);
  });
}

int32_t blend_layerwise_get_report(const blend_layerwise* layerwise, blend_fusion_report* info,
                                   blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    return blend::capi::write_struct(info, layerwise->plan->account().info);
  });
}

int32_t blend_layerwise_get_layer(const blend_layerwise* layerwise, uint32_t layer,
                                  blend_layer_info* info, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    const auto& layers = layerwise->plan->account().layers;
    if (layer >= layers.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "layer %u: the model has %zu", layer,
                               layers.size());
    }
    return blend::capi::write_struct(info, layers[layer]);
  });
}

int32_t blend_layerwise_get_segment(const blend_layerwise* layerwise, size_t segment,
                                    blend_segment_info* info, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    const auto& segments = layerwise->plan->account().segments;
    if (segment >= segments.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "segment %zu: the prompt has %zu", segment,
                               segments.size());
    }
    return blend::capi::write_struct(info, segments[segment]);
  });
}

int32_t blend_layerwise_get_selected(const blend_layerwise* layerwise, const uint32_t** rows,
                                     size_t* n, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    BLEND_REQUIRE(rows);
    BLEND_REQUIRE(n);
    *rows = layerwise->plan->account().selected.data();
    *n = layerwise->plan->account().selected.size();
    return Status::ok();
  });
}

int32_t blend_layerwise_get_deviation(const blend_layerwise* layerwise, const float** deviation,
                                      size_t* n_rows, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(layerwise);
    BLEND_REQUIRE(deviation);
    BLEND_REQUIRE(n_rows);
    *deviation = layerwise->plan->account().deviation.data();
    *n_rows = layerwise->plan->account().deviation.size();
    return Status::ok();
  });
}

}  // extern "C"
