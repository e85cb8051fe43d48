// Memory that a backend allocates, and the wait for host memory that its operations read.
#pragma once

namespace blend {

// Memory of the device, or of the host where Backend::allocate_host() made it; freed with the
// object, but not before operations issued with it are done.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
};

// Waits for host memory to be read by the operations issued before it was made. Used by one
// thread at a time.
class Fence {
 public:
  virtual ~Fence() = default;
  // Blocks until they have read it.
  virtual void wait() = 0;
};

}  // namespace blend
