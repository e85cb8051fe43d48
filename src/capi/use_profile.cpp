// What a profile means for one fuse: its drift maps, the controller's least ratio, its trust.
#include "calibrate/calibrate.h"
#include "capi/fuse_request.h"

namespace blend::capi {
namespace {

// What calibration measures: deviations as the paper has them, one check layer.
bool measured_kind(const FuseOptions& o) {
  return o.policy == Policy::hkvd && o.check_layers.empty() &&
         o.deviation.norm == DeviationNorm::l2 && !o.deviation.relative;
}

}  // namespace

Status use_profile(const ModelDescription& model, FuseRequest& request) {
  FuseOptions& o = request.options;
  const bool must = request.correction == BLEND_CORRECTION_ON;
  if (request.profile == nullptr) {
    if (!must) return Status::ok();
    return {BLEND_E_INVALID_ARGUMENT, "BLEND_CORRECTION_ON needs a profile"};
  }
  const Profile& p = request.profile->profile;
  BLEND_RETURN_IF_ERROR(check_profile(p, model).with_context("profile"));
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
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "the drift maps are of check layer %u and a chunk prefix of %zu "
                      "tokens, the profile's; this fuse has others",
                      p.check_layer, p.chunk_prefix().size());
  }
  if (fits && (must || (p.corrected && request.correction == BLEND_CORRECTION_AUTO))) {
    o.drift = request.profile->drift;
    o.drift_required = must;
  }
  // The controller's r*: calibration's, where it measured this kind of fusing.
  if (request.auto_ratio && measured_kind(o)) {
    const auto least =
        least_ratio(p, o.chunk_prefix, o.metric().code(), o.check_layer, o.drift != nullptr);
    if (least.has_value()) o.ratio = *least;
  }
  return Status::ok();
}

void judge(const FuseRequest& request, blend_fusion_info& info) {
  const FuseOptions& o = request.options;
  if (request.profile == nullptr || o.policy == Policy::full) return;
  info.flags &= ~BLEND_FUSION_UNCALIBRATED;
  if (measured_kind(o) && vouches(request.profile->profile, o.chunk_prefix, info.metric,
                                  o.check_layer, o.drift != nullptr, info.ratio)) {
    return;
  }
  info.flags |= BLEND_FUSION_UNTRUSTED;
}

Verdict verdict_of(const FuseRequest& request) {
  blend_fusion_info info{};
  info.flags = BLEND_FUSION_UNCALIBRATED;
  info.metric = request.options.metric().code();
  info.ratio = request.options.ratio;
  judge(request, info);
  return {(info.flags & BLEND_FUSION_UNCALIBRATED) == 0, info.flags & BLEND_FUSION_UNTRUSTED};
}

void Verdict::judge(blend_fusion_info& info) const {
  if (calibrated) info.flags &= ~BLEND_FUSION_UNCALIBRATED;
  info.flags |= untrusted;
}

}  // namespace blend::capi
