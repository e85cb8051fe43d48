// Stands in for NVIDIA's header of this name where code for CUDA is compiled for the host (simt.h):
// the part of the language and of the run-time library that libblend uses, and no more.
//
// Streams are queues that are worked off late, early or at random, as a device may: what holds only
// because of one order shows in another. Memory that is handed out holds NaN, as does memory that
// was freed. Copies from pinned memory read it when the stream comes to them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "simt/simt.h"

// ---- The language

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __restrict__ __restrict

#define threadIdx (::simt::thread_index)
#define blockIdx (::simt::block_index)
#define blockDim (::simt::block_size)
#define gridDim (::simt::grid_size)

#define SIMT_TEXT_(x) #x
#define SIMT_TEXT(x) SIMT_TEXT_(x)
#define __syncthreads() ::simt::barrier(__FILE__ ":" SIMT_TEXT(__LINE__))

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)  // NOLINT: as in CUDA
      : x(x_), y(y_), z(z_) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

namespace simt {
template <typename T>
struct Exchange {
  T value;
  unsigned other;  // lane, or mask of a butterfly
  T result;
};
}  // namespace simt

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  ::simt::warp_operation("__syncwarp", mask, nullptr, nullptr);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  using Arg = simt::Exchange<T>;
  Arg arg{value, static_cast<unsigned>(lane) % 32, value};
  simt::warp_operation("__shfl_sync", mask, &arg, [](void* const args[32], unsigned) {
    for (int i = 0; i < 32; ++i) {
      auto* const a = static_cast<Arg*>(args[i]);
      if (a == nullptr) continue;
      if (args[a->other] == nullptr) simt::die("__shfl_sync from a lane outside the mask");
      a->result = static_cast<Arg*>(args[a->other])->value;
    }
  });
  return arg.result;
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int with) {
  using Arg = simt::Exchange<T>;
  Arg arg{value, static_cast<unsigned>(with), value};
  simt::warp_operation("__shfl_xor_sync", mask, &arg, [](void* const args[32], unsigned) {
    for (unsigned i = 0; i < 32; ++i) {
      auto* const a = static_cast<Arg*>(args[i]);
      if (a == nullptr) continue;
      if (args[i ^ a->other] == nullptr) simt::die("__shfl_xor_sync outside the mask");
      a->result = static_cast<Arg*>(args[i ^ a->other])->value;
    }
  });
  return arg.result;
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  using Arg = simt::Exchange<T>;
  Arg arg{value, by, value};
  simt::warp_operation("__shfl_up_sync", mask, &arg, [](void* const args[32], unsigned) {
    for (unsigned i = 0; i < 32; ++i) {
      auto* const a = static_cast<Arg*>(args[i]);
      if (a == nullptr || i < a->other) continue;
      if (args[i - a->other] == nullptr) simt::die("__shfl_up_sync outside the mask");
      a->result = static_cast<Arg*>(args[i - a->other])->value;
    }
  });
  return arg.result;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  struct Arg {
    bool set;
    unsigned result;
  } arg{predicate != 0, 0};
  simt::warp_operation("__ballot_sync", mask, &arg, [](void* const args[32], unsigned) {
    unsigned all = 0;
    for (unsigned i = 0; i < 32; ++i) {
      if (args[i] != nullptr && static_cast<Arg*>(args[i])->set) all |= 1u << i;
    }
    for (unsigned i = 0; i < 32; ++i) {
      if (args[i] != nullptr) static_cast<Arg*>(args[i])->result = all;
    }
  });
  return arg.result;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __float_as_uint(float f) {
  unsigned u;
  std::memcpy(&u, &f, sizeof u);
  return u;
}
inline float __uint_as_float(unsigned u) {
  float f;
  std::memcpy(&f, &u, sizeof f);
  return f;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
// Threads of a block take turns, so that plain arithmetic is atomic here.
template <typename T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <typename T>
T atomicMin(T* at, T value) {
  const T old = *at;
  if (value < old) *at = value;
  return old;
}

// ---- The run-time library

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorECCUncorrectable = 214,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMemoryPoolsSupported = 115,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
};
inline constexpr unsigned long long cudaEnableDefault = 0;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0;

struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemLocation location;
};
struct cudaDeviceProp {
  char name[256];
};

namespace simt {
struct Context;
struct Stream;
struct Event;
struct Pool;
struct Graph;

// late: nothing runs before it is waited for. early: everything at once. random: some of either.
// others_first: what is in other streams than the first that was created runs at once, the first
// one late: copies run as far ahead as they may.
enum class Schedule : uint8_t { late, early, random, others_first };

// What the emulated cuBLASLt has algorithms for. any: everything. by_rows: everything, and another
// order of the sums for another row count. unaligned: only what may begin at any element. none:
// nothing.
enum class Gemm : uint8_t { any, by_rows, unaligned, none };

// What the emulated device is like; also forgets everything that was asked of it before.
struct Machine {
  int n_devices = 1;
  bool driver = true;
  size_t memory_bytes = size_t{4} << 30;
  Schedule schedule = Schedule::late;
  uint32_t seed = 1;
  Gemm gemm = Gemm::any;
  int64_t captured_operations = -1;  // more in one capture break it; -1: as many as there are
};
void set_machine(const Machine& machine);
size_t bytes_in_use();  // of device memory
size_t pinned_bytes();
// Pinned memory comes from `room` while that lasts, one block directly after the other, as a driver
// may place them. Empty: each by itself again.
void pin_side_by_side(std::span<std::byte> room);
// Allocations of device memory fail from the n-th one on; -1: never.
void fail_allocation(int64_t n);
// A kernel has met an illegal address: nothing runs any more, and every call says so until
// set_machine().
void lose_device();
uint64_t graph_launches();
uint64_t kernel_launches();   // by themselves
uint64_t copies_to_device();  // by copy engines, from the host
uint64_t copies_to_host();
uint64_t gemm_calls();           // of cuBLASLt, by themselves
Gemm gemm_machine(bool called);  // for cublas_lt.cpp
// Whether anything has made the device's primary context since set_machine(), and how often it is
// retained by the driver's function.
bool has_context(int device);
int context_references(int device);
// From begin to end some thread of the host captures a graph in global mode; end: whether nothing
// has broken it.
void begin_global_capture();
bool end_global_capture();

void launch(dim3 grid, dim3 block, size_t shared_bytes, Stream* stream, const void* kernel,
            std::function<void()> body);
}  // namespace simt
using cudaStream_t = simt::Stream*;
using cudaEvent_t = simt::Event*;
using cudaMemPool_t = simt::Pool*;
using cudaGraph_t = simt::Graph*;
struct cudaGraphExec;
using cudaGraphExec_t = cudaGraphExec*;

// ---- The driver, found by name as the run-time library finds it

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2 };
using CUdevice = int;
using CUcontext = simt::Context*;
CUresult cuCtxCreate(CUcontext* context, CUdevice device);  // a host's own, made current
CUresult cuCtxGetCurrent(CUcontext* context);
CUresult cuCtxPushCurrent(CUcontext context);
CUresult cuCtxPopCurrent(CUcontext* context);
CUresult cuCtxDestroy(CUcontext context);
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);

cudaError_t cudaGetDeviceCount(int* n);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes);
cudaError_t cudaMallocFromPoolAsync(void** p, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream);
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream);
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value);
namespace simt {
void allow_shared(const void* kernel, size_t bytes);
void load_kernel(const void* kernel);
}  // namespace simt
struct cudaFuncAttributes {
  int numRegs;
};
// As everything that asks for a kernel, it loads it.
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
  attributes->numRegs = 0;
  simt::load_kernel(reinterpret_cast<const void*>(kernel));
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute /*attribute*/, int value) {
  simt::load_kernel(reinterpret_cast<const void*>(kernel));
  simt::allow_shared(reinterpret_cast<const void*>(kernel), static_cast<size_t>(value));
  return cudaSuccess;
}
