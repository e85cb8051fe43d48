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
};

// `store` may be null. INVALID_ARGUMENT, INVALID_STRUCT or CONTEXT_LENGTH name what is wrong.
Result<FuseRequest> read_fuse_request(const ModelDescription& model, const blend_store* store,
                                      const blend_segment* segments, size_t n_segments,
                                      const blend_fuse_options* options);

}  // namespace blend::capi
