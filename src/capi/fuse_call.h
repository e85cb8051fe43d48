// What blend_fuse and blend_layerwise_create are asked for, checked and typed.
#pragma once

#include <vector>

#include "capi/handles.h"
#include "fusion/run/fuse.h"

namespace blend::capi {

// A fuse as the host calls for it.
struct FuseCall {
  FuseJob job;
  StoreAccess store;
  uint32_t n_threads = 0;  // ThreadCap
};

// agreement_target of blend_fuse_options, which may be 0.
Result<double> read_agreement_target(double target);
// INVALID_ARGUMENT names the member when `value` is not one of 1 .. last.
Status check_choice(const char* name, uint32_t value, uint32_t last);

// The array's stride is the struct_size of the host's header, which may be newer than ours. Errors
// name the segment.
Result<std::vector<Segment>> read_segments(const blend_segment* segments, size_t n,
                                           const ModelDescription& model);

// What the options do not say.
struct CallKind {
  bool steps = false;  // a layerwise fuse: the host runs the model
  // Chunk prefix where the host gives none; null: the head of this prompt.
  const std::vector<int32_t>* chunk_prefix = nullptr;
};

// With what the options' profile has for it (trust.h). `store` may be null. INVALID_ARGUMENT,
// INVALID_STRUCT, CONTEXT_LENGTH, MISMATCH or UNTRUSTED say what is wrong.
Result<FuseCall> read_fuse_call(const ModelDescription& model, const blend_store* store,
                                const blend_segment* segments, size_t n_segments,
                                const blend_fuse_options* options, const CallKind& kind = {});

}  // namespace blend::capi
