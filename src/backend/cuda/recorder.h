// Recorder: captures the operations of a thread for a step of one row as a CUDA graph.
//
// A step of a decoder is some hundred small kernels, and issuing them takes the host longer than
// running them takes the device; a graph is issued at once. The values that differ between steps,
// token and position, are read from device memory that is written before each run; values fixed in
// a launch (pointers, grids, how many parts attention splits the keys into) hold for the positions
// that the recording says it covers; beyond them the step is recorded again.
//
// The thread's operations go to a stream of their own meanwhile, so that other threads' operations
// are not captured. A graph must own no memory: allocations inside a capture would be nodes of
// it, and such a graph cannot be launched while it runs. The recorder lends memory that the
// finished recording keeps; memory that one operation returned serves the next, as they run one
// after another.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/record_ops.h"

namespace blend::cuda {

using UniqueGraph = Unique<cudaGraph_t, cudaGraphDestroy>;
using UniqueGraphExec = Unique<cudaGraphExec_t, cudaGraphExecDestroy>;

// Records while it lives; one at a time in a thread, and only that thread uses it.
class Recorder {
 public:
  Recorder(Device& device, const StepInput& input) : device_(device), input_(input) {}
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The recorder of the calling thread on this device, or null.
  static Recorder* of(const Device& device);
  // Says that the operation being recorded, if any, does the same up to this position.
  static void covers(const Device& device, uint32_t pos) {
    if (Recorder* const r = of(device); r != nullptr && pos < r->last_) r->last_ = pos;
  }

  Status begin();
  Result<UniqueGraph> end();

  cudaStream_t stream() const { return stream_.get(); }
  Result<Memory> lend(size_t bytes);
  void take_back(void* data) noexcept;
  // Device copy of `bytes` of host memory that may change from run to run.
  Result<Memory> input(const void* from, size_t bytes);

  uint32_t last() const { return last_; }
  Memory take_inputs() { return std::move(inputs_); }
  std::vector<Memory> take_kept() { return std::move(kept_); }

 private:
  Device& device_;
  const StepInput& input_;
  UniqueStream stream_;
  bool capturing_ = false;
  uint32_t last_ = UINT32_MAX;
  Memory inputs_;              // a StepInput
  std::vector<Memory> kept_;   // all memory lent
  std::vector<uint8_t> free_;  // for each: it was returned
};

// Thread-safe as CudaBackend is, whose core it uses.
class CudaRecordOps final : public RecordOps {
 public:
  explicit CudaRecordOps(const CudaCore& core) : core_(core) {}

  std::unique_ptr<RecordedStep> record(const StepInput& input,
                                       const std::function<Status()>& issue) override;

 private:
  const CudaCore& core_;
};

}  // namespace blend::cuda
