#include "engine/device_readable.h"

namespace blend {

HostMemory device_readable_memory(const Runtime& runtime) {
  Backend& backend = runtime.backend();
  if (backend.device_memory() == nullptr) return {};
  return [&backend](size_t bytes) -> std::shared_ptr<std::byte> {
    auto memory = backend.allocate_host(bytes);
    if (!memory.is_ok()) return nullptr;
    const std::shared_ptr<DeviceBuffer> owner = std::move(*memory);
    return {owner, static_cast<std::byte*>(owner->data())};
  };
}

}  // namespace blend
