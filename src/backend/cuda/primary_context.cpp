#include "backend/cuda/primary_context.h"

namespace blend::cuda {
namespace {

// Through the run-time library, which has the driver open: libblend_cuda.so does not link it.
template <typename Function>
Status find(const char* name, Function*& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    (void)cudaGetLastError();
    return make_error(BLEND_E_NO_DEVICE,
                      "the NVIDIA driver has no %s: it takes one of CUDA 12 or later", name);
  }
  function = reinterpret_cast<Function*>(found);  // NOLINT
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<PrimaryContext>> PrimaryContext::retain(int ordinal) {
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*device)(CUdevice*, int) = nullptr;
  std::unique_ptr<PrimaryContext> p(new PrimaryContext());
  BLEND_RETURN_IF_ERROR(find("cuDeviceGet", device));
  BLEND_RETURN_IF_ERROR(find("cuDevicePrimaryCtxRetain", retain));
  BLEND_RETURN_IF_ERROR(find("cuDevicePrimaryCtxRelease", p->release_));
  BLEND_RETURN_IF_ERROR(find("cuCtxPushCurrent", p->push_));
  BLEND_RETURN_IF_ERROR(find("cuCtxPopCurrent", p->pop_));
  CUresult result = device(&p->device_, ordinal);
  if (result == CUDA_SUCCESS) result = retain(&p->context_, p->device_);
  if (result != CUDA_SUCCESS) {
    p->context_ = nullptr;
    return make_error(
        result == CUDA_ERROR_OUT_OF_MEMORY ? BLEND_E_OUT_OF_MEMORY : BLEND_E_NO_DEVICE,
        "CUDA device %d cannot be used: its context cannot be made (CUresult %d)", ordinal,
        static_cast<int>(result));
  }
  return p;
}

PrimaryContext::~PrimaryContext() {
  if (context_ != nullptr) (void)release_(device_);
}

DeviceScope::DeviceScope(const PrimaryContext& context)
    : context_(context), pushed_(context.push_(context.context_) == CUDA_SUCCESS) {
  (void)cudaThreadExchangeStreamCaptureMode(&mode_);
}

DeviceScope::~DeviceScope() {
  (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  if (pushed_) (void)context_.pop_(&popped);
}

}  // namespace blend::cuda
