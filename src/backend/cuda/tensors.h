// The CUDA backend's objects: buffers, weights, RoPE tables and KV caches in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "backend/cuda/device.h"
#include "backend/kv_cache.h"
#include "backend/memory.h"
#include "backend/weight.h"
#include "cuda/kv_rows.h"
#include "model/config.h"

namespace blend::cuda {

class CudaBuffer final : public DeviceBuffer {
 public:
  explicit CudaBuffer(Memory memory) : memory_(std::move(memory)) {}
  void* data() const override { return memory_.as<void>(); }

 private:
  Memory memory_;
};

// Pinned; its destructor waits until the copy stream no longer reads it.
class CudaHostBuffer final : public DeviceBuffer {
 public:
  CudaHostBuffer(Device& device, Pinned memory) : device_(device), memory_(std::move(memory)) {}
  ~CudaHostBuffer() override {
    const DeviceScope scope(device_.context());
    (void)cudaStreamSynchronize(device_.copies());
  }
  void* data() const override { return memory_.data(); }

 private:
  Device& device_;
  Pinned memory_;
};

// Reached when the copy stream has done everything issued before. Used by one thread at a time.
class CudaFence final : public Fence {
 public:
  CudaFence(Device& device, UniqueEvent event) : device_(device), event_(std::move(event)) {}
  void wait() override {
    const DeviceScope scope(device_.context());
    (void)cudaEventSynchronize(event_.get());
  }

 private:
  Device& device_;
  UniqueEvent event_;
};

// bf16 [out, stride], the row padded with zeros to a multiple of 8. Immutable.
class CudaMatrix final : public Weight {
 public:
  CudaMatrix(Memory data, int64_t out, int64_t in, int64_t stride)
      : memory_(std::make_shared<const Memory>(std::move(data))),
        data_(memory_->as<const uint16_t>()),
        bytes_(memory_->bytes()),
        out_(out),
        in_(in),
        stride_(stride) {}
  // Rows [first, first + out) of another.
  CudaMatrix(const CudaMatrix& whole, int64_t first, int64_t out)
      : memory_(whole.memory_),
        data_(whole.data_ + first * whole.stride_),
        out_(out),
        in_(whole.in_),
        stride_(whole.stride_) {}
  size_t bytes() const override { return bytes_; }
  const uint16_t* data() const { return data_; }
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t stride() const { return stride_; }

 private:
  std::shared_ptr<const Memory> memory_;
  const uint16_t* data_;
  size_t bytes_ = 0;
  int64_t out_, in_, stride_;
};

// [rows, cols] in the file's type. Immutable.
class CudaTable final : public Weight {
 public:
  CudaTable(Memory data, DType dtype, int64_t cols)
      : data_(std::move(data)), dtype_(dtype), cols_(cols) {}
  size_t bytes() const override { return data_.bytes(); }
  const void* data() const { return data_.as<void>(); }
  DType dtype() const { return dtype_; }
  int64_t cols() const { return cols_; }

 private:
  Memory data_;
  DType dtype_;
  int64_t cols_;
};

// f32. Immutable.
class CudaVector final : public Weight {
 public:
  CudaVector(Memory data, int64_t n) : data_(std::move(data)), n_(n) {}
  size_t bytes() const override { return data_.bytes(); }
  const float* data() const { return data_.as<float>(); }
  int64_t size() const { return n_; }

 private:
  Memory data_;
  int64_t n_;
};

// The first element of a vector; null where there is none.
inline const float* elements_of(const Weight* vector) {
  return vector == nullptr ? nullptr : static_cast<const CudaVector*>(vector)->data();
}

// Immutable.
class CudaRopeTable final : public RopeTable {
 public:
  CudaRopeTable(Memory data, uint32_t n_positions, uint32_t pairs, bool halves)
      : data_(std::move(data)), n_positions_(n_positions), half_(pairs), halves_(halves) {}
  uint32_t n_positions() const override { return n_positions_; }
  kernels::cuda::RopeView view() const { return {data_.as<float>(), half_, halves_}; }

 private:
  Memory data_;
  uint32_t n_positions_, half_;
  bool halves_;
};

// bf16; see kernels/cuda/kv_rows.h. Memory is not initialised: attention reads only slots that were
// written. Operations on it are ordered by the compute stream.
class CudaKvCache final : public KvCache {
 public:
  static Result<std::unique_ptr<CudaKvCache>> create(Device& device, const ModelConfig& config,
                                                     uint32_t capacity) {
    constexpr uint32_t kAlign = kernels::cuda::kKvAlign;
    kernels::cuda::KvView shape;
    shape.n_kv_heads = config.n_kv_heads;
    shape.head_dim = config.head_dim;
    shape.stride = (config.head_dim + kAlign - 1) / kAlign * kAlign;
    shape.slots = capacity;
    const size_t bytes = 2 * plane(shape) * config.n_layers * sizeof(uint16_t);
    auto memory = device.allocate(bytes);
    if (!memory.is_ok()) {
      return memory.status().with_context("the KV cache of " + std::to_string(capacity) + " rows");
    }
    return std::unique_ptr<CudaKvCache>(new CudaKvCache(shape, std::move(memory.value())));
  }

  uint32_t capacity() const override { return static_cast<uint32_t>(shape_.slots); }
  Result<std::unique_ptr<KvCache>> fork(uint32_t /*n_rows*/) override {
    return std::unique_ptr<KvCache>();
  }
  kernels::cuda::KvView layer(uint32_t i) const {
    kernels::cuda::KvView view = shape_;
    view.k = memory_.as<uint16_t>() + 2 * plane(shape_) * i;
    view.v = view.k + plane(shape_);
    return view;
  }

 private:
  static size_t plane(const kernels::cuda::KvView& shape) {
    return shape.n_kv_heads * shape.slots * shape.stride;
  }
  CudaKvCache(const kernels::cuda::KvView& shape, Memory memory)
      : shape_(shape), memory_(std::move(memory)) {}

  kernels::cuda::KvView shape_;
  Memory memory_;
};

}  // namespace blend::cuda
