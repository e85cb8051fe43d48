#include "fusion/fuse.h"

#include <algorithm>

#include "capi/error.h"
#include "capi/fuse_request.h"
#include "capi/handles.h"

using blend::Status;

extern "C" {

int32_t blend_falling_check_layers(const blend_model* model, double ratio, uint32_t first_layer,
                                   blend_check_layer* out, size_t* n, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(out);
    BLEND_REQUIRE(n);
    const uint32_t n_layers = model->description->config().n_layers;
    if (*n == 0) {
      return Status{BLEND_E_INVALID_ARGUMENT, "n must say how many check layers are wanted"};
    }
    const auto wanted = static_cast<uint32_t>(std::min<size_t>(*n, n_layers));
    const blend::Check first{first_layer, ratio};
    BLEND_RETURN_IF_ERROR(blend::check_schedule({&first, 1}, 0, n_layers));
    const blend::Schedule schedule = blend::falling_schedule(ratio, first_layer, wanted, n_layers);
    for (size_t i = 0; i < schedule.size(); ++i) {
      out[i] = {schedule[i].layer, 0, schedule[i].ratio};
    }
    *n = schedule.size();
    return Status::ok();
  });
}

int32_t blend_fuse(blend_fusion** out, const blend_model* model, const blend_store* store,
                   const blend_segment* segments, size_t n_segments,
                   const blend_fuse_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(const blend::capi::FuseRequest request,
                 blend::capi::read_fuse_request(*loaded, store, segments, n_segments, options));
    auto handle = std::make_unique<blend_fusion>();
    BLEND_ASSIGN(handle->fused, blend::fuse(loaded, request.store, request.segments,
                                            request.options, request.watch));
    *out = handle.release();
    return Status::ok();
  });
}

int32_t blend_fusion_extend(blend_fusion* fusion, const blend_store* store,
                            const blend_segment* segments, size_t n_segments,
                            const blend_fuse_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_ASSIGN(const blend::capi::FuseRequest request,
                 blend::capi::read_fuse_request(fusion->fused.sequence->model(), store, segments,
                                                n_segments, options));
    BLEND_RETURN_IF_ERROR(blend::extend(fusion->fused, request.store, request.segments,
                                        request.options, request.watch));
    fusion->text = {};  // as in blend_decode
    return Status::ok();
  });
}

void blend_fusion_close(blend_fusion* fusion) { delete fusion; }

}  // extern "C"
