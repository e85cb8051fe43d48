// The members of blend_store_options that speak of the remote tier.
#pragma once

#include <optional>

#include "base/status.h"
#include "blend/blend.h"
#include "store/remote/options.h"

namespace blend::capi {

// Nothing: there is no remote tier. Asks for the secrets. INVALID_ARGUMENT, CALLBACK.
Result<std::optional<RemoteOptions>> read_remote(const blend_store_options& options);
// Its defaults, where blend_store_options_init() puts them.
void default_remote(blend_store_options& options);

}  // namespace blend::capi
