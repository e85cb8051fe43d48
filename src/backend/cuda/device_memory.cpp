#include "backend/cuda/device_memory.h"

namespace blend::cuda {

Result<std::unique_ptr<DeviceBuffer>> CudaDeviceMemory::keep(size_t bytes,
                                                             std::span<const KeptPart> parts) {
  const auto scope = core_.enter();
  BLEND_ASSIGN(std::unique_ptr<DeviceBuffer> kept, core_.stager().keep(bytes, parts));
  return kept;
}

Status CudaDeviceMemory::check_capacity(uint64_t n_elements) {
  const auto scope = core_.enter();
  const uint64_t bytes = n_elements * sizeof(uint16_t);
  if (bytes <= core_.device().free_bytes()) return Status::ok();
  return make_error(
      BLEND_E_OUT_OF_MEMORY,
      "the weights need %llu bytes in bf16, but %s: use a device with more, a smaller "
      "model, or the backend 'cpu'",
      static_cast<unsigned long long>(bytes), core_.device().room().c_str());
}

}  // namespace blend::cuda
