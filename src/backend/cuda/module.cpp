// libblend_cuda.so's entry (backend/module.h).
#include "backend/module.h"

#include <cstdio>
#include <cstring>
#include <new>

#include "backend/cuda/cuda_backend.h"

extern "C" __attribute__((visibility("default"))) int32_t blend_cuda_backend_create(
    const blend::BackendModuleRequest* request, blend::Backend** out, char* message,
    size_t message_bytes) {
  const auto fail = [&](const blend::Status& status) {
    (void)std::snprintf(message, message_bytes, "%s", status.message().c_str());
    return status.code();
  };
  try {
    *out = nullptr;
    if (request->interface != blend::kBackendInterface ||
        std::strcmp(request->version, BLEND_VERSION_STRING) != 0) {
      return fail(
          blend::make_error(BLEND_E_NO_DEVICE,
                            "%s is of version %s, libblend of another: install the one that "
                            "came with it",
                            blend::kCudaModule, BLEND_VERSION_STRING));
    }
    auto backend = blend::cuda::CudaBackend::create(request->device, *request->pool);
    if (!backend.is_ok()) return fail(backend.status());
    *out = backend.value().release();
    return BLEND_OK;
  } catch (const std::bad_alloc&) {
    return fail(blend::Status::out_of_memory());
  }
}
