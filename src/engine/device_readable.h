// Memory of the host that the backend's device reads by itself, for what a store keeps there.
#pragma once

#include "engine/runtime.h"
#include "store/host_memory.h"

namespace blend {

// Empty where the backend has no memory of its own. The runtime must outlive what it gives.
HostMemory device_readable_memory(const Runtime& runtime);

}  // namespace blend
