// The errors of CUDA as a Status, and the device that the calling thread works with.
#pragma once

#include <cuda_runtime.h>

#include "base/status.h"

namespace blend::cuda {

// OUT_OF_MEMORY for a lack of memory, INTERNAL otherwise; names the call and what CUDA says.
inline Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Status::ok();
  (void)cudaGetLastError();  // what is not fatal to the device must not be met again
  return make_error(error == cudaErrorMemoryAllocation ? BLEND_E_OUT_OF_MEMORY : BLEND_E_INTERNAL,
                    "%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

// Kernels are launched without a result of their own.
inline Status check_launch(const char* operation) { return check(cudaGetLastError(), operation); }

#define BLEND_CUDA_CHECK(call) BLEND_RETURN_IF_ERROR(::blend::cuda::check((call), #call))

// Makes a device the calling thread's, and gives the thread its own back: the host may use CUDA
// too.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    if (before_ != device) (void)cudaSetDevice(device);
    changed_ = before_ != device;
  }
  ~DeviceScope() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace blend::cuda
