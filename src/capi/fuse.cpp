#include "fusion/fuse.h"

#include <algorithm>

#include "calibrate/calibrate.h"
#include "capi/error.h"
#include "capi/fuse_request.h"
#include "capi/handles.h"

using blend::Status;
using blend::capi::FuseRequest;

namespace {

// Checks the request's profile and gives the fuse its drift maps, where they belong to it.
Status use_profile(const blend::Model& model, FuseRequest& request) {
  blend::FuseOptions& o = request.options;
  const bool must = request.correction == BLEND_CORRECTION_ON;
  if (request.profile == nullptr) {
    if (!must) return Status::ok();
    return {BLEND_E_INVALID_ARGUMENT, "BLEND_CORRECTION_ON needs a profile"};
  }
  const blend::Profile& p = request.profile->profile;
  BLEND_RETURN_IF_ERROR(blend::check_profile(p, model).with_context("profile"));
  if (&request.profile->model->backend() != &model.backend()) {
    return {BLEND_E_INVALID_ARGUMENT, "the profile was opened on another context than the model"};
  }
  if (must && request.profile->drift == nullptr) {
    return {BLEND_E_INVALID_ARGUMENT,
            "the profile has no drift maps: calibrate with them, or leave the correction AUTO"};
  }
  const uint32_t first_check =
      o.check_layers.empty() ? o.check_layer : o.check_layers.front().layer;
  const bool fits = first_check == p.check_layer && o.chunk_prefix == p.chunk_prefix();
  if (must && !fits) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "the drift maps are of check layer %u and a chunk prefix of %zu "
                             "tokens, the profile's; this fuse has others",
                             p.check_layer, p.chunk_prefix().size());
  }
  if (fits && (must || (p.corrected && request.correction == BLEND_CORRECTION_AUTO))) {
    o.drift = request.profile->drift;
    o.drift_required = must;
  }
  return Status::ok();
}

// What the fusion says about the profile that it was given.
void judge(const FuseRequest& request, blend_fusion_info& info) {
  const blend::FuseOptions& o = request.options;
  if (request.profile == nullptr || o.policy == blend::Policy::full) return;
  info.flags &= ~BLEND_FUSION_UNCALIBRATED;
  // What calibration measures: deviations as the paper has them, one check layer.
  const bool usual = o.policy == blend::Policy::hkvd && o.check_layers.empty() &&
                     o.deviation.norm == blend::DeviationNorm::l2 && !o.deviation.relative;
  if (usual && blend::vouches(request.profile->profile, o.chunk_prefix, info.metric, o.check_layer,
                              o.drift != nullptr, info.ratio)) {
    return;
  }
  info.flags |= BLEND_FUSION_UNTRUSTED;
}

}  // namespace

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
    BLEND_ASSIGN(FuseRequest request,
                 blend::capi::read_fuse_request(*loaded, store, segments, n_segments, options));
    BLEND_RETURN_IF_ERROR(use_profile(*loaded, request));
    auto handle = std::make_unique<blend_fusion>();
    BLEND_ASSIGN(handle->fused, blend::fuse(loaded, request.store, request.segments,
                                            request.options, request.watch));
    judge(request, handle->fused.info);
    *out = handle.release();
    return Status::ok();
  });
}

int32_t blend_fusion_extend(blend_fusion* fusion, const blend_store* store,
                            const blend_segment* segments, size_t n_segments,
                            const blend_fuse_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    const blend::Model& model = fusion->fused.sequence->model();
    BLEND_ASSIGN(FuseRequest request,
                 blend::capi::read_fuse_request(model, store, segments, n_segments, options));
    BLEND_RETURN_IF_ERROR(use_profile(model, request));
    BLEND_RETURN_IF_ERROR(blend::extend(fusion->fused, request.store, request.segments,
                                        request.options, request.watch));
    judge(request, fusion->fused.info);
    fusion->text = {};  // as in blend_decode
    return Status::ok();
  });
}

void blend_fusion_close(blend_fusion* fusion) { delete fusion; }

}  // extern "C"
