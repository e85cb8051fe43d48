#include "backend/cuda/recorder.h"

#include <cstddef>

namespace blend::cuda {
namespace {

// Set only while a Recorder lives, for its thread: the operations of a backend take no
// stream.
thread_local Recorder* t_recorder = nullptr;
thread_local const Device* t_device = nullptr;

class CudaStep final : public RecordedStep {
 public:
  CudaStep(Device& device, Stager& stager, Recorder& recorder, uint32_t first, UniqueGraphExec exec)
      : device_(device),
        stager_(stager),
        inputs_(recorder.take_inputs()),
        kept_(recorder.take_kept()),
        first_(first),
        last_(recorder.last()),
        exec_(std::move(exec)) {}

  bool covers(uint32_t pos) const override { return first_ <= pos && pos <= last_; }

  Status run(const StepInput& input) override {
    const DeviceScope scope(device_.context());
    BLEND_RETURN_IF_ERROR(stager_.update(inputs_.as<void>(), &input, sizeof input));
    BLEND_CUDA_CHECK(cudaGraphLaunch(exec_.get(), device_.compute()));
    return Status::ok();
  }

 private:
  Device& device_;
  Stager& stager_;
  // Freed in the order of the compute stream: after the last run.
  const Memory inputs_;
  const std::vector<Memory> kept_;
  const uint32_t first_, last_;
  UniqueGraphExec exec_;
};

}  // namespace

Recorder* Recorder::of(const Device& device) { return t_device == &device ? t_recorder : nullptr; }

Recorder::~Recorder() {
  if (!capturing_) return;
  // Recording failed: the capture is thrown away.
  t_recorder = nullptr;
  t_device = nullptr;
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(stream_.get(), &graph);
  const UniqueGraph thrown_away(graph);
  (void)cudaGetLastError();
}

Status Recorder::begin() {
  if (t_recorder != nullptr) return {BLEND_E_INTERNAL, "a recording inside a recording"};
  cudaStream_t stream = nullptr;
  BLEND_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_ = UniqueStream(stream);
  BLEND_ASSIGN(inputs_, device_.allocate(sizeof(StepInput), device_.compute_.get()));
  // Relaxed: neither this thread's allocations nor other threads' calls may break the capture, or
  // be broken by it.
  BLEND_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  capturing_ = true;
  t_recorder = this;
  t_device = &device_;
  return Status::ok();
}

Result<UniqueGraph> Recorder::end() {
  capturing_ = false;
  t_recorder = nullptr;
  t_device = nullptr;
  cudaGraph_t graph = nullptr;
  BLEND_CUDA_CHECK(cudaStreamEndCapture(stream_.get(), &graph));
  return UniqueGraph(graph);
}

Result<Memory> Recorder::lend(size_t bytes) {
  if (bytes == 0) return Memory();
  size_t best = kept_.size();
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (free_[i] == 0 || kept_[i].bytes() < bytes) continue;
    if (best == kept_.size() || kept_[i].bytes() < kept_[best].bytes()) best = i;
  }
  if (best == kept_.size()) {
    free_.push_back(0);
    BLEND_ASSIGN(Memory own, device_.allocate(bytes, device_.compute_.get()));
    kept_.push_back(std::move(own));
  }
  free_[best] = 0;
  return Memory(this, kept_[best].as<void>(), kept_[best].bytes());
}

void Recorder::take_back(void* data) noexcept {
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].as<void>() == data) free_[i] = 1;
  }
}

Result<Memory> Recorder::input(const void* from, size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(from);
  const auto* const begin = reinterpret_cast<const std::byte*>(&input_);
  if (at < begin || at + bytes > begin + sizeof input_) {
    return make_error(BLEND_E_INTERNAL, "a step that reads more than its token and position");
  }
  // Not owned, so not freed.
  return Memory(nullptr, inputs_.as<std::byte>() + (at - begin), 0, nullptr);
}

std::unique_ptr<RecordedStep> CudaRecordOps::record(const StepInput& input,
                                                    const std::function<Status()>& issue) {
  const auto scope = core_.enter();
  Recorder recorder(core_.device(), input);
  if (!recorder.begin().is_ok() || !issue().is_ok()) return nullptr;
  auto graph = recorder.end();
  if (!graph.is_ok()) return nullptr;
  cudaGraphExec_t exec = nullptr;
  if (cudaGraphInstantiate(&exec, graph.value().get(), 0) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return std::make_unique<CudaStep>(core_.device(), core_.stager(), recorder, input.pos,
                                    UniqueGraphExec(exec));
}

}  // namespace blend::cuda
