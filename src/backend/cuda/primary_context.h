// PrimaryContext: a device's primary context, and the scope in which it is the calling thread's.
//
// cudaSetDevice() is not used: since CUDA 12 it creates the context of whatever device it is given,
// so that going back to device 0 would cost hundreds of MB there; and a host may have a context of
// its own current, which belongs to no device number. The driver keeps a stack of contexts per
// thread; ours is pushed and popped, and the one below it is untouched.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <memory>

#include "base/status.h"

namespace blend::cuda {

// Retained from creation to destruction. Immutable, hence thread-safe; must outlive every scope.
class PrimaryContext {
 public:
  // NO_DEVICE where the driver lacks the functions. The driver must have been initialized
  // (cudaGetDeviceCount()).
  static Result<std::unique_ptr<PrimaryContext>> retain(int ordinal);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

 private:
  friend class DeviceScope;
  PrimaryContext() = default;

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUresult (*release_)(CUdevice) = nullptr;
  CUresult (*push_)(CUcontext) = nullptr;
  CUresult (*pop_)(CUcontext*) = nullptr;
};

// While it lives, the calling thread works with the context's device, and its calls break no
// graph that the host captures: a capture in global mode forbids cudaHostAlloc() and the like to
// every thread that is not in relaxed mode.
class DeviceScope {
 public:
  explicit DeviceScope(const PrimaryContext& context);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const PrimaryContext& context_;
  const bool pushed_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // the thread's before
};

}  // namespace blend::cuda
