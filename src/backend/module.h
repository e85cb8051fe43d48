// The one C entry through which a backend in a library of its own is made.
//
// libblend.so links no GPU library; libblend_cuda.so is opened when a context asks for it. Both
// come from one build of one version and share the C++ interface Backend, so the entry refuses a
// caller of another version or interface before it touches anything else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace blend {

// Counts up whenever Backend, a group of its operations or a type in their signatures
// changes.
inline constexpr uint32_t kBackendInterface = 8;

inline constexpr char kCudaModule[] = "libblend_cuda.so";
inline constexpr char kCudaModuleEntry[] = "blend_cuda_backend_create";

struct BackendModuleRequest {
  uint32_t interface = kBackendInterface;  // always the first member
  const char* version = nullptr;           // "major.minor.patch" of the caller
  int32_t device = 0;                      // ordinal, as the driver counts
  ThreadPool* pool = nullptr;              // outlives the backend
};

// Returns BLEND_OK and a backend that the caller deletes, or a BLEND_E_* and a sentence (cut to
// message_bytes, NUL included). No exception leaves it.
using BackendModuleCreate = int32_t (*)(const BackendModuleRequest* request, Backend** out,
                                        char* message, size_t message_bytes);

}  // namespace blend
