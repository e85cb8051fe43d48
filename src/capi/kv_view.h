// blend_kv_view, checked and typed.
#pragma once

#include "backend/host_ops.h"
#include "blend/step.h"
#include "engine/model_description.h"

namespace blend::capi {

// A DType of BLEND_DTYPE_F32, _F16 or _BF16; `name` is the member's.
Result<DType> read_dtype(const char* name, uint32_t code);

// INVALID_ARGUMENT or INVALID_STRUCT name the member.
Result<HostKv> read_kv_view(const blend_kv_view& view, const ModelConfig& config);

}  // namespace blend::capi
