// What blend_remote_options says.
#pragma once

#include <optional>

#include "base/status.h"
#include "blend/remote.h"
#include "store/remote/options.h"

namespace blend::capi {

// Nothing: there is no remote tier (`options` is NULL or names none). Asks for the secrets.
// INVALID_ARGUMENT, INVALID_STRUCT, CALLBACK.
Result<std::optional<RemoteOptions>> read_remote(const blend_remote_options* options);

}  // namespace blend::capi
