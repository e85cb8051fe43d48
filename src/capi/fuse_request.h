// What blend_fuse and blend_plan_create are asked for, checked and typed.
#pragma once

#include <vector>

#include "base/cancel.h"
#include "capi/handles.h"
#include "fusion/fuse.h"

namespace blend::capi {

struct FuseRequest {
  std::vector<Segment> segments;
  FuseOptions options;
  StoreAccess store;
  Watch watch;
  const blend_profile* profile = nullptr;
  uint32_t correction = BLEND_CORRECTION_AUTO;
  bool auto_ratio = false;  // BLEND_RATIO_AUTO was asked for
  uint32_t n_threads = 0;   // ThreadCap
};

// INVALID_ARGUMENT names the member when `value` is not one of 1 .. last.
// BLEND_METRIC_*.
Status check_metric(uint32_t metric);
Status check_choice(const char* name, uint32_t value, uint32_t last);

// The array's stride is the struct_size of the host's header, which may be newer than ours. Errors
// name the segment.
Result<std::vector<Segment>> read_segments(const blend_segment* segments, size_t n,
                                           const ModelDescription& model);

// `store` may be null. INVALID_ARGUMENT, INVALID_STRUCT or CONTEXT_LENGTH name what is wrong.
Result<FuseRequest> read_fuse_request(const ModelDescription& model, const blend_store* store,
                                      const blend_segment* segments, size_t n_segments,
                                      const blend_fuse_options* options);

// Checks the request's profile and gives the fuse what it has for it: the drift maps that belong to
// it, and the least ratio that the controller may choose.
Status use_profile(const ModelDescription& model, FuseRequest& request);

// What the fusion says about the profile that it was given.
void judge(const FuseRequest& request, blend_fusion_info& info);

// The same where the ratio is known before: outlives the request and its profile.
struct Verdict {
  bool calibrated = false;
  uint32_t untrusted = 0;  // BLEND_FUSION_UNTRUSTED or 0

  void judge(blend_fusion_info& info) const;
};
Verdict verdict_of(const FuseRequest& request);

}  // namespace blend::capi
