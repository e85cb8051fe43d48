// How a stored chunk is shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "blend/admin.h"

namespace blend_cli {

std::string dtype_text(uint32_t kv_dtype);  // "f16"
nlohmann::json chunk_json(const blend_chunk_info& info);

}  // namespace blend_cli
