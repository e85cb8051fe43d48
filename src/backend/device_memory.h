// DeviceMemory: what a backend adds whose device has memory of its own, apart from the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/memory.h"
#include "base/status.h"

namespace blend {

// Host memory that is copied `at` bytes into memory of keep().
struct KeptPart {
  const std::byte* from = nullptr;
  size_t bytes = 0;
  size_t at = 0;
};

// Part of a backend, and thread-safe as it is.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // New memory of the device, for StoredRun::kept, with the parts copied to it. The host's may
  // change after a Backend::fence() that is made afterwards.
  virtual Result<std::unique_ptr<DeviceBuffer>> keep(size_t bytes,
                                                     std::span<const KeptPart> parts) = 0;
  // OUT_OF_MEMORY names the bytes that this many elements of weights need and those that are free.
  virtual Status check_capacity(uint64_t n_elements) = 0;
};

}  // namespace blend
