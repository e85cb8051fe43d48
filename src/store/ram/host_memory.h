// HostMemory: memory for a store that a device can read directly.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace blend {

// Thread-safe; null: there is no more. An empty function stands for ordinary memory.
using HostMemory = std::function<std::shared_ptr<std::byte>(size_t bytes)>;

}  // namespace blend
