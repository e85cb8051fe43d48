#include "backend/cuda/stager.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/recorder.h"
#include "cuda/rows.h"

namespace blend::cuda {
namespace {

constexpr size_t kSmallPieces = 64, kSmallBytes = 128 << 10;
constexpr size_t kLargePieces = 8, kLargeBytes = 4 << 20;
constexpr size_t kPlaneAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

struct PlaneBytes {
  size_t k = 0, v = 0;
};
PlaneBytes plane_bytes(const StoredRun& run, size_t row_elements) {
  if (run.packed.packing != Packing::none) return {run.packed.k_bytes, run.packed.v_bytes};
  const size_t bytes = run.n_rows * row_elements * static_cast<size_t>(dtype_size(run.dtype));
  return {bytes, bytes};
}

// Rows that outlive a call. The copy stream writes them, the compute stream reads them and, in its
// order, gives the memory back.
class CudaKept final : public DeviceBuffer {
 public:
  CudaKept(Device& device, Memory memory, UniqueEvent arrived)
      : device_(device), memory_(std::move(memory)), arrived_(std::move(arrived)) {}
  ~CudaKept() override { (void)wait_for(device_); }
  void* data() const override { return memory_.as<void>(); }
  // Makes the compute stream wait until the rows are there.
  Status wait_for(const Device& device) const {
    const DeviceScope scope(device.context());
    BLEND_CUDA_CHECK(cudaStreamWaitEvent(device.compute(), arrived_.get(), 0));
    return Status::ok();
  }

 private:
  Device& device_;
  Memory memory_;
  UniqueEvent arrived_;
};

// One core does not copy as fast as the bus.
void copy_parallel(ThreadPool& pool, std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kGrain = 256 << 10;
  pool.parallel_for((bytes + kGrain - 1) / kGrain, 1, [&](size_t begin, size_t end, uint32_t) {
    const size_t first = begin * kGrain, last = std::min(end * kGrain, bytes);
    std::memcpy(to + first, from + first, last - first);
  });
}

}  // namespace

Result<std::unique_ptr<PinnedPieces>> PinnedPieces::create(Device& device, ThreadPool& pool,
                                                           size_t n, size_t piece_bytes,
                                                           bool by_kernel) {
  std::unique_ptr<PinnedPieces> p(new PinnedPieces(pool, n, piece_bytes, by_kernel));
  BLEND_ASSIGN(p->memory_, device.pin(n * piece_bytes));
  const MutexLock lock(p->mutex_);
  for (UniqueEvent& event : p->free_) {
    BLEND_ASSIGN(event, device.make_event());
  }
  return p;
}

Status PinnedPieces::copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const MutexLock lock(mutex_);
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(piece_bytes_, bytes - done), piece = next_++ % free_.size();
    std::byte* const at = memory_.data() + piece * piece_bytes_;
    BLEND_CUDA_CHECK(cudaEventSynchronize(free_[piece].get()));
    copy_parallel(pool_, at, static_cast<const std::byte*>(from) + done, n);
    std::byte* const there = static_cast<std::byte*>(to) + done;
    if (by_kernel_) {
      kernels::cuda::copy_from_host(there, at, n, stream);
      BLEND_RETURN_IF_ERROR(check_launch("copy_from_host"));
    } else {
      BLEND_CUDA_CHECK(cudaMemcpyAsync(there, at, n, cudaMemcpyHostToDevice, stream));
    }
    BLEND_CUDA_CHECK(cudaEventRecord(free_[piece].get(), stream));
    done += n;
  }
  return Status::ok();
}

Result<std::unique_ptr<Stager>> Stager::create(Device& device, ThreadPool& pool) {
  std::unique_ptr<Stager> s(new Stager(device));
  BLEND_ASSIGN(s->small_, PinnedPieces::create(device, pool, kSmallPieces, kSmallBytes, true));
  BLEND_ASSIGN(s->large_, PinnedPieces::create(device, pool, kLargePieces, kLargeBytes, false));
  for (Slot& slot : s->slots_) {
    BLEND_ASSIGN(slot.arrived, device.make_event());
    BLEND_ASSIGN(slot.consumed, device.make_event());
  }
  return s;
}

Result<Memory> Stager::upload_bytes(const void* from, size_t bytes) {
  if (Recorder* const recorder = Recorder::of(device_); recorder != nullptr) {
    return recorder->input(from, bytes);
  }
  BLEND_ASSIGN(Memory memory, device_.allocate(bytes));
  BLEND_RETURN_IF_ERROR(small_->copy(memory.as<void>(), from, bytes, device_.compute()));
  return memory;
}

Result<Stager::Shared> Stager::share_bytes(const void* from, size_t bytes) {
  if (Recorder::of(device_) != nullptr || bytes > kSharedBytes) {
    BLEND_ASSIGN(Memory memory, upload_bytes(from, bytes));
    return Shared(std::make_shared<const Memory>(std::move(memory)));
  }
  const auto* const begin = static_cast<const std::byte*>(from);
  const MutexLock lock(shared_mutex_);
  SharedArray* oldest = nullptr;
  for (SharedArray& kept : shared_) {
    if (kept.bytes.size() == bytes && std::memcmp(kept.bytes.data(), from, bytes) == 0) {
      kept.used = ++n_shared_;
      return Shared(kept.memory);
    }
    if (oldest == nullptr || kept.used < oldest->used) oldest = &kept;
  }
  SharedArray fresh{std::vector<std::byte>(begin, begin + bytes), nullptr, ++n_shared_};
  BLEND_ASSIGN(Memory memory, upload_bytes(from, bytes));
  fresh.memory = std::make_shared<const Memory>(std::move(memory));
  Shared result(fresh.memory);
  if (shared_.size() < kSharedArrays) {
    shared_.push_back(std::move(fresh));
  } else {
    *oldest = std::move(fresh);
  }
  return result;
}

std::vector<Stager::Piece> Stager::pieces_of(std::span<const StoredRun> runs,
                                             size_t row_elements) const {
  constexpr size_t kGap = size_t{128}
                          << 10;  // transferred in the time that another copy needs to begin
  std::vector<Piece> planes;
  for (const StoredRun& run : runs) {
    if (run.kept != nullptr) continue;
    const PlaneBytes bytes = plane_bytes(run, row_elements);
    planes.push_back({run.k, bytes.k});
    planes.push_back({run.v, bytes.v});
  }
  std::sort(planes.begin(), planes.end(),
            [](const Piece& a, const Piece& b) { return a.from < b.from; });
  std::vector<Piece> pieces;
  for (const Piece& plane : planes) {
    if (!pieces.empty()) {
      Piece& last = pieces.back();
      const std::byte* const end = last.from + last.bytes;
      const std::byte* const reach = std::max(end, plane.from + plane.bytes);
      const auto all = static_cast<size_t>(reach - last.from);
      // Pinned blocks may touch; one copy reads only one of them.
      const bool touching = plane.from == end && !device_.is_pinned(last.from, last.bytes) &&
                            !device_.is_pinned(plane.from, plane.bytes);
      if (plane.from < end || touching ||
          (static_cast<size_t>(plane.from - end) <= kGap && device_.is_pinned(last.from, all))) {
        last.bytes = all;
        continue;
      }
    }
    pieces.push_back(plane);
  }
  size_t at = 0;
  for (Piece& piece : pieces) {
    // Planes have the same alignment there as here.
    piece.at = at + reinterpret_cast<uintptr_t>(piece.from) % kPlaneAlignment;
    at = aligned(piece.at + piece.bytes);
  }
  return pieces;
}

Status Stager::copy_rows(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return Status::ok();
  if (!device_.is_pinned(from, bytes)) return large_->copy(to, from, bytes, device_.copies());
  BLEND_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device_.copies()));
  return Status::ok();
}

Result<Stager::Rows> Stager::stage(std::span<const StoredRun> runs, size_t row_elements) {
  const std::vector<Piece> pieces = pieces_of(runs, row_elements);
  const size_t bytes = pieces.empty() ? 0 : pieces.back().at + pieces.back().bytes;

  Rows rows(*this, std::unique_lock(slots_mutex_), next_++ % kSlots);
  Slot& slot = slots_[rows.slot_];
  if (bytes > 0) {
    BLEND_CUDA_CHECK(cudaStreamWaitEvent(device_.copies(), slot.consumed.get(), 0));
  }
  if (slot.memory.bytes() < bytes) {
    slot.memory = Memory();  // freed in the copy stream: after the wait above
    BLEND_ASSIGN(slot.memory, device_.allocate(bytes + bytes / 4, device_.copies()));
  }
  std::byte* const to = slot.memory.as<std::byte>();
  for (const Piece& piece : pieces) {
    BLEND_RETURN_IF_ERROR(copy_rows(to + piece.at, piece.from, piece.bytes));
  }
  const auto copy_of = [&](const std::byte* plane) {
    const auto behind =
        std::upper_bound(pieces.begin(), pieces.end(), plane,
                         [](const std::byte* p, const Piece& piece) { return p < piece.from; });
    const Piece& piece = *(behind - 1);
    return to + piece.at + (plane - piece.from);
  };
  const DeviceBuffer* waited_for = nullptr;
  for (const StoredRun& run : runs) {
    if (run.kept == nullptr) {
      rows.k_.push_back(copy_of(run.k));
      rows.v_.push_back(copy_of(run.v));
      continue;
    }
    if (run.kept != waited_for) {
      BLEND_RETURN_IF_ERROR(static_cast<const CudaKept*>(run.kept)->wait_for(device_));
    }
    waited_for = run.kept;
    rows.k_.push_back(run.k);
    rows.v_.push_back(run.v);
  }
  if (bytes == 0) return rows;  // kept rows do not wait for other fuses' rows
  BLEND_CUDA_CHECK(cudaEventRecord(slot.arrived.get(), device_.copies()));
  BLEND_CUDA_CHECK(cudaStreamWaitEvent(device_.compute(), slot.arrived.get(), 0));
  return rows;
}

Result<std::unique_ptr<DeviceBuffer>> Stager::keep(size_t bytes, std::span<const KeptPart> parts) {
  BLEND_ASSIGN(Memory memory, device_.allocate(bytes, device_.copies()));
  BLEND_ASSIGN(UniqueEvent event, device_.make_event());
  const cudaEvent_t arrived = event.get();
  memory.hand_to(device_.compute());
  auto kept = std::make_unique<CudaKept>(device_, std::move(memory), std::move(event));
  Status copied;
  for (size_t i = 0; copied.is_ok() && i < parts.size(); ++i) {
    copied = copy_rows(static_cast<std::byte*>(kept->data()) + parts[i].at, parts[i].from,
                       parts[i].bytes);
  }
  // Whatever was issued: the memory is not freed before that.
  BLEND_CUDA_CHECK(cudaEventRecord(arrived, device_.copies()));
  BLEND_RETURN_IF_ERROR(copied);
  return std::unique_ptr<DeviceBuffer>(std::move(kept));
}

Stager::Rows::~Rows() {
  if (!lock_.owns_lock()) return;
  (void)cudaEventRecord(stager_.slots_[slot_].consumed.get(), stager_.device_.compute());
}

}  // namespace blend::cuda
