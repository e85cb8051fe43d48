// The errors of CUDA as a Status.
#pragma once

#include <cuda_runtime.h>

#include "base/status.h"

namespace blend::cuda {

// Whether an error is permanent: every later call of the process on any stream of the context
// returns it again. Only a new process has a working device.
inline bool is_sticky(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure ||
         error == cudaErrorMisalignedAddress || error == cudaErrorIllegalInstruction ||
         error == cudaErrorHardwareStackError || error == cudaErrorECCUncorrectable ||
         error == cudaErrorInvalidAddressSpace || error == cudaErrorInvalidPc ||
         error == cudaErrorLaunchTimeout || error == cudaErrorAssert;
}

// OUT_OF_MEMORY for a lack of memory, INTERNAL otherwise; names the call and CUDA's reason.
inline Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Status::ok();
  (void)cudaGetLastError();  // clears an error that is not fatal to the device
  return make_error(
      error == cudaErrorMemoryAllocation ? BLEND_E_OUT_OF_MEMORY : BLEND_E_INTERNAL,
      "%s: %s (%s)%s", call, cudaGetErrorString(error), cudaGetErrorName(error),
      is_sticky(error) ? "; the device is lost to this process, which must be restarted" : "");
}

// Kernels are launched without a result of their own.
inline Status check_launch(const char* operation) { return check(cudaGetLastError(), operation); }

#define BLEND_CUDA_CHECK(call) BLEND_RETURN_IF_ERROR(::blend::cuda::check((call), #call))

}  // namespace blend::cuda
