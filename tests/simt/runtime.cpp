// Streams, events and memory of the emulated device.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "simt/cuda_runtime.h"

namespace simt {

struct Moments {  // of an event; outlives it where a stream still waits
  uint64_t recorded = 0, done = 0;
};
struct Event {
  std::shared_ptr<Moments> moments = std::make_shared<Moments>();
};
struct Operation {
  std::function<bool()> ready;  // null: always
  std::function<void()> run;
};
// What a capture has taken down: operations with the arguments that they were issued with. As on a
// device, memory that they name is not looked after.
struct Graph {
  std::vector<Operation> operations;
  bool broken = false;
};
struct Context {
  int device = 0;
  bool primary = true;
  bool made = false;
  int references = 0;
};
struct Stream {
  int device = 0;
  std::deque<Operation> queue;
  std::unique_ptr<Graph> capture;  // not null: nothing runs, everything is taken down
};
struct Pool {};

namespace {

constexpr size_t kDefaultShared = 48 << 10;

struct Device {
  std::recursive_mutex mutex;
  Machine machine;
  std::mt19937 random{1};
  std::vector<Stream*> streams;
  std::map<void*, size_t> memory, pinned;
  std::span<std::byte> pin_room;  // of pin_side_by_side(), what is left
  std::set<void*> cut_from_room;
  std::map<const void*, size_t> allowed_shared;
  std::set<const void*> loaded;  // kernels: at their first use outside of a capture, or before
  size_t in_use = 0, n_pinned = 0;
  int64_t allocations_left = -1;
  uint64_t n_graph_launches = 0, n_kernel_launches = 0, n_gemm_calls = 0, n_copies_to_device = 0,
           n_copies_to_host = 0;
  std::array<Context, 8> primary;
  bool global_capture = false, global_capture_broken = false;
  bool lost = false;
};
Device& device() {
  static auto* const d = new Device;  // never destroyed: streams may outlive main()
  return *d;
}
// The result of a call without errors of its own.
cudaError_t state() { return device().lost ? cudaErrorIllegalAddress : cudaSuccess; }
// The context that a thread works in: the top of its stack, or, where that is empty, the primary
// one of the device that cudaSetDevice() has named, made when it is first needed.
thread_local int current_device = 0;
thread_local std::vector<Context*> contexts;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

Context& primary_of(int n) {
  Context& context = device().primary.at(static_cast<size_t>(n));
  context.device = n;
  return context;
}
// What every call but those that ask about devices does first.
int device_here() {
  if (!contexts.empty()) return contexts.back()->device;
  primary_of(current_device).made = true;
  return current_device;
}

using Lock = std::lock_guard<std::recursive_mutex>;

// Runs the head of a stream's queue if it is ready.
bool step(Stream* s) {
  if (s->queue.empty()) return false;
  if (s->queue.front().ready && !s->queue.front().ready()) return false;
  const Operation op = std::move(s->queue.front());
  s->queue.pop_front();
  op.run();
  return true;
}

bool step_any(const Stream* except) {
  std::vector<Stream*> all = device().streams;
  std::shuffle(all.begin(), all.end(), device().random);
  return std::any_of(all.begin(), all.end(), [&](Stream* s) { return s != except && step(s); });
}

// Works off `s`, and of other streams only what it waits for.
void drain(Stream* s) {
  while (!s->queue.empty()) {
    if (!step(s) && !step_any(s)) die("a stream waits for an event that nobody records");
  }
}

void enqueue(Stream* s, Operation op) {
  Device& d = device();
  if (s == nullptr) die("the default stream is not to be used");
  if (s->device != device_here()) die("a stream of a device that is not the thread's");
  if (s->capture != nullptr) {
    const auto n = static_cast<int64_t>(s->capture->operations.size());
    if (n == d.machine.captured_operations) s->capture->broken = true;
    s->capture->operations.push_back(std::move(op));
    return;
  }
  s->queue.push_back(std::move(op));
  if (d.machine.schedule == Schedule::early) {
    while (step_any(nullptr)) {
    }
  } else if (d.machine.schedule == Schedule::others_first) {
    while (step_any(d.streams.front())) {
    }
  } else if (d.machine.schedule == Schedule::random) {
    for (auto n = d.random() % 4; n > 0 && step_any(nullptr); --n) {
    }
  }
}

// What a capture cannot take down, or may not with libblend: it ends as a failure.
bool breaks_capture(Stream* s) {
  if (s == nullptr || s->capture == nullptr) return false;
  s->capture->broken = true;
  return true;
}

// The allocation that holds p, or none.
bool inside(const std::map<void*, size_t>& all, const void* p, size_t bytes) {
  auto at = all.upper_bound(const_cast<void*>(p));
  if (at == all.begin()) return false;
  --at;
  const auto* const begin = static_cast<const char*>(at->first);
  const auto* const from = static_cast<const char*>(p);
  return from < begin + at->second && from + bytes <= begin + at->second;
}

void* poisoned(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 256, std::max<size_t>(bytes, 1)) != 0) return nullptr;
  std::memset(p, 0xff, bytes);
  return p;
}

}  // namespace

void set_machine(const Machine& machine) {
  Device& d = device();
  const Lock lock(d.mutex);
  d.machine = machine;
  d.random.seed(machine.seed);
  d.allowed_shared.clear();
  d.allocations_left = -1;
  d.n_graph_launches = d.n_kernel_launches = d.n_gemm_calls = d.n_copies_to_device = 0;
  d.n_copies_to_host = 0;
  d.loaded.clear();
  d.lost = false;
  for (Context& context : d.primary) context.made = context.references > 0;
}
bool has_context(int n) {
  const Lock lock(device().mutex);
  return primary_of(n).made;
}
int context_references(int n) {
  const Lock lock(device().mutex);
  return primary_of(n).references;
}
void begin_global_capture() {
  const Lock lock(device().mutex);
  device().global_capture = true;
  device().global_capture_broken = false;
}
bool end_global_capture() {
  const Lock lock(device().mutex);
  device().global_capture = false;
  return !device().global_capture_broken;
}
uint64_t graph_launches() {
  const Lock lock(device().mutex);
  return device().n_graph_launches;
}
uint64_t kernel_launches() {
  const Lock lock(device().mutex);
  return device().n_kernel_launches;
}
uint64_t copies_to_device() {
  const Lock lock(device().mutex);
  return device().n_copies_to_device;
}
uint64_t copies_to_host() {
  const Lock lock(device().mutex);
  return device().n_copies_to_host;
}
void load_kernel(const void* kernel) {
  const Lock lock(device().mutex);
  device().loaded.insert(kernel);
}
uint64_t gemm_calls() {
  const Lock lock(device().mutex);
  return device().n_gemm_calls;
}
Gemm gemm_machine(bool called) {
  const Lock lock(device().mutex);
  if (called) ++device().n_gemm_calls;
  return device().machine.gemm;
}
size_t bytes_in_use() {
  const Lock lock(device().mutex);
  return device().in_use;
}
size_t pinned_bytes() {
  const Lock lock(device().mutex);
  return device().n_pinned;
}
void pin_side_by_side(std::span<std::byte> room) {
  const Lock lock(device().mutex);
  device().pin_room = room;
}
void fail_allocation(int64_t n) {
  const Lock lock(device().mutex);
  device().allocations_left = n;
}
void lose_device() {
  const Lock lock(device().mutex);
  device().lost = true;
}
void allow_shared(const void* kernel, size_t bytes) {
  const Lock lock(device().mutex);
  device().allowed_shared[kernel] = bytes;
}

void launch(dim3 grid, dim3 block, size_t shared_bytes, Stream* stream, const void* kernel,
            std::function<void()> body) {
  Device& d = device();
  const Lock lock(d.mutex);
  const auto allowed = d.allowed_shared.find(kernel);
  if (shared_bytes > (allowed == d.allowed_shared.end() ? kDefaultShared : allowed->second)) {
    die("%zu bytes of shared memory were not asked for beforehand", shared_bytes);
  }
  if (stream->capture == nullptr) {
    ++d.n_kernel_launches;
    d.loaded.insert(kernel);
  } else if (kernel != nullptr && d.loaded.count(kernel) == 0) {
    stream->capture->broken = true;  // to load it may wait for the device
  }
  enqueue(stream,
          {{}, [=, body = std::move(body)] {
             if (device().lost) return;
             run_grid({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes, body);
           }});
}

}  // namespace simt

using simt::device;
using simt::Lock;

cudaError_t cudaGetDeviceCount(int* n) {
  *n = 0;
  if (!device().machine.driver) return cudaErrorInsufficientDriver;
  if (device().machine.n_devices == 0) return cudaErrorNoDevice;
  *n = device().machine.n_devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  *d = simt::contexts.empty() ? simt::current_device : simt::contexts.back()->device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= device().machine.n_devices) return cudaErrorInvalidDevice;
  const Lock lock(device().mutex);
  simt::current_device = d;
  simt::primary_of(d).made = true;  // since CUDA 12
  if (!simt::contexts.empty()) simt::contexts.back() = &simt::primary_of(d);
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, simt::capture_mode);
  return cudaSuccess;
}
CUresult cuCtxCreate(CUcontext* context, CUdevice d) {
  *context = new simt::Context{d, false, true, 1};
  simt::contexts.push_back(*context);
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext context) {
  if (!simt::contexts.empty() && simt::contexts.back() == context) simt::contexts.pop_back();
  delete context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = simt::contexts.empty() ? nullptr : simt::contexts.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  if (context->primary && context->references == 0) simt::die("a context that nobody retains");
  simt::contexts.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (simt::contexts.empty()) return CUDA_ERROR_INVALID_VALUE;
  *context = simt::contexts.back();
  simt::contexts.pop_back();
  return CUDA_SUCCESS;
}
namespace {
CUresult get_device(CUdevice* d, int ordinal) {
  *d = ordinal;
  return CUDA_SUCCESS;
}
CUresult retain_primary(CUcontext* context, CUdevice d) {
  const Lock lock(device().mutex);
  *context = &simt::primary_of(d);
  (*context)->made = true;
  ++(*context)->references;
  return CUDA_SUCCESS;
}
CUresult release_primary(CUdevice d) {
  const Lock lock(device().mutex);
  simt::Context& context = simt::primary_of(d);
  if (context.references == 0) simt::die("a context is released that nobody retains");
  if (--context.references == 0) context.made = false;
  return CUDA_SUCCESS;
}
}  // namespace
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string, void*> functions = {
      {"cuDeviceGet", reinterpret_cast<void*>(get_device)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain_primary)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(release_primary)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(cuCtxPushCurrent)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(cuCtxPopCurrent)},
  };
  const auto found = functions.find(name);
  *function = found == functions.end() ? nullptr : found->second;
  *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*d*/) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*d*/) {
  std::strncpy(properties->name, "emulated", sizeof properties->name);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock lock(device().mutex);
  (void)simt::device_here();
  *total = device().machine.memory_bytes;
  *free = *total - std::min(*total, device().in_use);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const Lock lock(device().mutex);
  return simt::state();
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "emulated error";
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorEmulated";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  const Lock lock(device().mutex);
  *stream = new simt::Stream;
  (*stream)->device = simt::device_here();
  device().streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(device().mutex);
  if (stream->capture != nullptr) simt::die("a stream is destroyed while it captures");
  simt::drain(stream);
  auto& all = device().streams;
  all.erase(std::find(all.begin(), all.end(), stream));
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(device().mutex);
  if (simt::breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  simt::drain(stream);
  return simt::state();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const Lock lock(device().mutex);
  if (simt::breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  const auto moments = event->moments;
  const uint64_t until = moments->recorded;
  simt::enqueue(stream, {[=] { return moments->done >= until; }, [] {}});
  return simt::state();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  const Lock lock(device().mutex);
  (void)simt::device_here();
  if (device().lost) return simt::state();
  *event = new simt::Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(device().mutex);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(device().mutex);
  if (simt::breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  const auto moments = event->moments;
  const uint64_t moment = ++moments->recorded;
  simt::enqueue(stream, {{}, [=] { moments->done = std::max(moments->done, moment); }});
  return simt::state();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(device().mutex);
  while (event->moments->done < event->moments->recorded) {
    if (!simt::step_any(nullptr)) simt::die("nobody records the event that is waited for");
  }
  return simt::state();
}

// ---- Graphs

struct cudaGraphExec {
  std::vector<simt::Operation> operations;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock(device().mutex);
  if (mode != cudaStreamCaptureModeRelaxed) simt::die("other threads' calls would break a capture");
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (device().lost) return simt::state();
  stream->capture = std::make_unique<simt::Graph>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(device().mutex);
  *graph = nullptr;
  const std::unique_ptr<simt::Graph> taken = std::move(stream->capture);
  if (taken == nullptr) return cudaErrorInvalidValue;
  if (taken->broken) return cudaErrorStreamCaptureInvalidated;
  *graph = new simt::Graph(*taken);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *exec = new cudaGraphExec{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Lock lock(device().mutex);
  if (simt::breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  ++device().n_graph_launches;
  for (const simt::Operation& op : exec->operations) simt::enqueue(stream, op);
  return simt::state();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;  // what was launched runs to its end
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  const Lock lock(device().mutex);
  if (properties->location.id != simt::device_here()) simt::die("a pool of another device");
  if (device().lost) return simt::state();
  *pool = new simt::Pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t /*pool*/, cudaMemPoolAttr /*attribute*/,
                                    void* /*value*/) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t /*pool*/, size_t /*bytes*/) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** p, size_t bytes, cudaMemPool_t /*pool*/,
                                    cudaStream_t stream) {
  auto& d = device();
  const Lock lock(d.mutex);
  if (simt::breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  if (d.lost) return simt::state();
  if (d.allocations_left == 0 || bytes > d.machine.memory_bytes - d.in_use) {
    return cudaErrorMemoryAllocation;
  }
  if (d.allocations_left > 0) --d.allocations_left;
  *p = simt::poisoned(bytes);
  if (*p == nullptr) return cudaErrorMemoryAllocation;
  d.memory[*p] = bytes;
  d.in_use += bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  auto& d = device();
  const Lock lock(d.mutex);
  if (d.memory.find(p) == d.memory.end()) simt::die("a free of memory that is not there");
  if (simt::breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  simt::enqueue(stream, {{}, [p] {
                           auto& dev = device();
                           const auto at = dev.memory.find(p);
                           if (at == dev.memory.end()) simt::die("memory was freed twice");
                           std::memset(p, 0xff, at->second);
                           dev.in_use -= at->second;
                           dev.memory.erase(at);
                           std::free(p);
                         }});
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned /*flags*/) {
  auto& d = device();
  const Lock lock(d.mutex);
  (void)simt::device_here();
  if (d.global_capture && simt::capture_mode != cudaStreamCaptureModeRelaxed) {
    d.global_capture_broken = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  *p = nullptr;
  if (d.lost) return simt::state();
  if (bytes <= d.pin_room.size()) {
    *p = d.pin_room.data();
    d.pin_room = d.pin_room.subspan(bytes);
    d.cut_from_room.insert(*p);
  } else if (posix_memalign(p, 4096, std::max<size_t>(bytes, 1)) != 0) {
    return cudaErrorMemoryAllocation;
  }
  if (bytes <= size_t{256} << 20) std::memset(*p, 0xff, bytes);
  d.pinned[*p] = bytes;
  d.n_pinned += bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
  auto& d = device();
  const Lock lock(d.mutex);
  const auto at = d.pinned.find(p);
  if (at == d.pinned.end()) simt::die("a free of pinned memory that is not there");
  if (at->second <= size_t{256} << 20) std::memset(p, 0xff, at->second);
  d.n_pinned -= at->second;
  d.pinned.erase(at);
  if (d.cut_from_room.erase(p) == 0) std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  auto& d = device();
  const Lock lock(d.mutex);
  d.n_copies_to_device += kind == cudaMemcpyHostToDevice;
  d.n_copies_to_host += kind == cudaMemcpyDeviceToHost;
  const bool from_device = kind != cudaMemcpyHostToDevice,
             to_device = kind != cudaMemcpyDeviceToHost;
  if (from_device && !simt::inside(d.memory, from, bytes))
    simt::die("a copy from no device memory");
  if (to_device && !simt::inside(d.memory, to, bytes)) simt::die("a copy to no device memory");
  const bool pinned = (from_device || simt::inside(d.pinned, from, bytes)) &&
                      (to_device || simt::inside(d.pinned, to, bytes));
  if (!pinned && simt::breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  if (d.lost) return simt::state();
  const auto copy = [=] {
    if (!device().lost) std::memcpy(to, from, bytes);
  };
  if (!from_device && !simt::inside(d.pinned, from, bytes)) {
    // Pageable memory may be written again once the call returns.
    auto kept = std::make_shared<std::vector<char>>(static_cast<const char*>(from),
                                                    static_cast<const char*>(from) + bytes);
    simt::enqueue(stream, {{}, [=] { std::memcpy(to, kept->data(), bytes); }});
  } else {
    simt::enqueue(stream, {{}, copy});
    if (!to_device && !simt::inside(d.pinned, to, bytes)) simt::drain(stream);
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(device().mutex);
  if (!simt::inside(device().memory, to, bytes)) simt::die("a memset of no device memory");
  if (device().lost) return simt::state();
  simt::enqueue(stream, {{}, [=] { std::memset(to, value, bytes); }});
  return cudaSuccess;
}
