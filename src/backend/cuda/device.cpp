#include "backend/cuda/device.h"

#include <algorithm>

#include "backend/cuda/recorder.h"

namespace blend::cuda {
namespace {

constexpr int kLeastMajor = 8;  // sm_80: bf16 tensor cores, cp.async

std::string decimal(size_t bytes) { return std::to_string(bytes); }

}  // namespace

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (lender_ != nullptr) lender_->take_back(data_);
  if (device_ == nullptr) return;  // moved from
  const DeviceScope scope(device_->context());
  (void)cudaFreeAsync(data_, stream_);
}

Result<std::unique_ptr<Device>> Device::open(int ordinal) {
  int n = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  if (is_sticky(error)) return check(error, "cudaGetDeviceCount");
  if (error != cudaSuccess || n == 0) {
    (void)cudaGetLastError();
    return make_error(
        BLEND_E_NO_DEVICE,
        "no CUDA device can be used (%s): it takes an NVIDIA GPU and a driver of CUDA "
        "%d or later; or choose the backend 'cpu'",
        error == cudaSuccess ? "there is none" : cudaGetErrorString(error), CUDART_VERSION / 1000);
  }
  if (ordinal < 0 || ordinal >= n) {
    return make_error(BLEND_E_NO_DEVICE,
                      "there is no CUDA device %d: the driver shows %d, counted from 0 (the "
                      "environment variable CUDA_VISIBLE_DEVICES may hide some)",
                      ordinal, n);
  }
  std::unique_ptr<Device> d(new Device());
  d->ordinal_ = ordinal;
  BLEND_ASSIGN(d->context_, PrimaryContext::retain(ordinal));
  const DeviceScope scope(*d->context_);
  cudaDeviceProp properties{};
  BLEND_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  d->name_ = properties.name;
  int major = 0, minor = 0, pools = 0, n_multiprocessors = 0;
  BLEND_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  BLEND_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  BLEND_CUDA_CHECK(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, ordinal));
  BLEND_CUDA_CHECK(
      cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, ordinal));
  d->n_multiprocessors_ = static_cast<uint32_t>(n_multiprocessors);
  if (major < kLeastMajor || pools == 0) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "CUDA device %d (%s) is of compute capability %d.%d%s: it takes %d.0 or later "
        "with memory pools; choose another device or the backend 'cpu'",
        ordinal, properties.name, major, minor, pools == 0 ? " without memory pools" : "",
        kLeastMajor);
  }

  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = ordinal;
  cudaMemPool_t pool = nullptr;
  BLEND_CUDA_CHECK(cudaMemPoolCreate(&pool, &wanted));
  d->pool_ = UniquePool(pool);
  // By default a pool returns all free memory to the driver whenever a stream is waited for.
  uint64_t keep = UINT64_MAX;
  BLEND_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  // Not ordered with the default stream: the host may use that for work of its own.
  cudaStream_t stream = nullptr;
  BLEND_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  d->compute_ = UniqueStream(stream);
  BLEND_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  d->copies_ = UniqueStream(stream);
  return d;
}

Device::~Device() {
  if (context_ == nullptr) return;
  const DeviceScope scope(*context_);
  if (compute_.get() != nullptr) (void)cudaStreamSynchronize(compute_.get());
  if (copies_.get() != nullptr) (void)cudaStreamSynchronize(copies_.get());
  for (const auto& kept : pinned_kept_) (void)cudaFreeHost(kept.second);
  copies_ = UniqueStream();
  compute_ = UniqueStream();
  pool_ = UniquePool();
}

cudaStream_t Device::compute() const {
  const Recorder* const recorder = Recorder::of(*this);
  return recorder == nullptr ? compute_.get() : recorder->stream();
}

Result<Memory> Device::allocate(size_t bytes) {
  Recorder* const recorder = Recorder::of(*this);
  return recorder == nullptr ? allocate(bytes, compute_.get()) : recorder->lend(bytes);
}

size_t Device::free_bytes() const {
  (void)cudaStreamSynchronize(compute());
  (void)cudaMemPoolTrimTo(pool_.get(), 0);
  size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  return free;
}

std::string Device::room() const {
  size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  return "device " + std::to_string(ordinal_) + " (" + name_ + ") has " + decimal(free) + " of " +
         decimal(total) + " bytes free";
}

Result<Memory> Device::allocate(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return Memory();
  void* p = nullptr;
  cudaError_t error = cudaMallocFromPoolAsync(&p, bytes, pool_.get(), stream);
  if (error == cudaErrorMemoryAllocation) {
    // Memory freed in another stream may become free only once that stream has come that far.
    (void)cudaGetLastError();
    BLEND_RETURN_IF_ERROR(wait(copies()));
    BLEND_RETURN_IF_ERROR(wait(compute()));
    error = cudaMallocFromPoolAsync(&p, bytes, pool_.get(), stream);
  }
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return make_error(BLEND_E_OUT_OF_MEMORY,
                      "%zu bytes of device memory are needed, but %s: use a device with more, a "
                      "smaller model or shorter prompts, or the backend 'cpu'",
                      bytes, room().c_str());
  }
  BLEND_RETURN_IF_ERROR(check(error, "cudaMallocFromPoolAsync"));
  return Memory(this, p, bytes, stream);
}

Pinned::~Pinned() {
  if (data_ != nullptr) device_->give_back(data_, bytes_);
}

Result<Pinned> Device::pin(size_t bytes) {
  constexpr size_t kGrain = size_t{2} << 20;  // prompts differ a little in length; let them share
  bytes = (bytes + kGrain - 1) / kGrain * kGrain;
  {
    const MutexLock lock(mutex_);
    const auto kept = pinned_kept_.lower_bound(bytes);
    if (kept != pinned_kept_.end() && kept->first <= 2 * bytes) {
      Pinned found(this, kept->second, kept->first);
      note_out(kept->second, kept->first);
      pinned_kept_bytes_ -= kept->first;
      pinned_kept_.erase(kept);
      return found;
    }
  }
  void* p = nullptr;
  const cudaError_t error = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
  if (is_sticky(error)) return check(error, "cudaHostAlloc");
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot pin %zu bytes of host memory: %s", bytes,
                      cudaGetErrorString(error));
  }
  const MutexLock lock(mutex_);
  note_out(p, bytes);
  return Pinned(this, p, bytes);
}

void Device::note_out(const void* p, size_t bytes) {
  pinned_out_.emplace(static_cast<const char*>(p), bytes);
  pinned_out_bytes_ += bytes;
  most_pinned_out_ = std::max(most_pinned_out_, pinned_out_bytes_);
}

void Device::give_back(void* p, size_t bytes) {
  {
    const MutexLock lock(mutex_);
    pinned_out_.erase(static_cast<const char*>(p));
    pinned_out_bytes_ -= bytes;
    if (pinned_kept_bytes_ + bytes <= std::max(kKeptPinnedBytes, most_pinned_out_)) {
      pinned_kept_.emplace(bytes, p);
      pinned_kept_bytes_ += bytes;
      return;
    }
  }
  const DeviceScope scope(*context_);
  (void)cudaFreeHost(p);
}

bool Device::is_pinned(const void* p, size_t bytes) const {
  const auto* const at = static_cast<const char*>(p);
  const MutexLock lock(mutex_);
  auto found = pinned_out_.upper_bound(at);
  if (found == pinned_out_.begin()) return false;
  --found;
  return at + bytes <= found->first + found->second;
}

Result<UniqueEvent> Device::make_event() const {
  cudaEvent_t event = nullptr;
  BLEND_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return UniqueEvent(event);
}

Status Device::wait(cudaStream_t stream) const {
  BLEND_CUDA_CHECK(cudaStreamSynchronize(stream));
  return Status::ok();
}

}  // namespace blend::cuda
