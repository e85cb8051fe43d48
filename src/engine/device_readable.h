// Host memory that the backend's device reads directly, for chunks that a store keeps there.
#pragma once

#include "engine/runtime.h"
#include "store/ram/host_memory.h"

namespace blend {

// Empty where the backend has no memory of its own. The runtime must outlive the memory.
HostMemory device_readable_memory(const Runtime& runtime);

}  // namespace blend
