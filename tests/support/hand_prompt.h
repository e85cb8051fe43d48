// HandPrompt: a prompt put together by hand, whose stored K and V say where they belong, and the
// CPU backend to compute with: for tests of the fusion's parts without a model.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/threads/thread_pool.h"
#include "fusion/load/layer_loader.h"
#include "fusion/prompt/prompt.h"

namespace blend::test {

class HandPrompt : public ::testing::Test {
 protected:
  static constexpr uint32_t kLayers = 5;
  static constexpr uint32_t kKvDim = 2;

  // What every element of a stored row is.
  static float stored_value(uint32_t layer, uint32_t row) {
    return static_cast<float>(100 * layer + row);
  }

  void add_computed(SegmentKind kind, uint32_t n_rows) {
    add(kind, n_rows).source = Source::computed;
  }
  void add_stored(uint32_t n_rows, bool exact = false) {
    PromptSegment& s = add(SegmentKind::chunk, n_rows);
    auto record = std::make_shared<ChunkRecord>();
    record->meta.shape = {kLayers, n_rows, kKvDim, DType::f32};
    record->data = std::move(*AlignedBuffer::allocate(record->meta.shape.total_bytes()));
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t row = 0; row < n_rows; ++row) {
        const std::vector<float> values(kKvDim, stored_value(layer, s.first_row + row));
        const size_t bytes = kKvDim * sizeof(float);
        std::memcpy(record->k(layer) + row * bytes, values.data(), bytes);
        std::memcpy(record->v(layer) + row * bytes, values.data(), bytes);
      }
    }
    s.source = Source::store;
    s.exact = exact;
    s.chunk = std::make_unique<CountedSource>(std::move(record), layers_read_);
  }

  // `layer` of the chunks of these segments as a reader would stage it.
  StagedLayer stage(std::span<const size_t> segments, uint32_t layer) {
    StagedLayer staged;
    for (const size_t i : segments) {
      ChunkSource& source = *prompt_.segments[i].chunk;
      AlignedBuffer& space = spaces_.emplace_back(
          std::move(*AlignedBuffer::allocate(source.meta().shape.layer_bytes(0))));
      staged.chunks.emplace_back();
      EXPECT_TRUE(source.finish_layer(layer, space.data(), staged.chunks.back()).is_ok());
      staged.kept.emplace_back();
    }
    return staged;
  }

  // K | V of these rows on the backend: all elements of a row are its value.
  Tensor fresh(const std::vector<float>& values) {
    const size_t cols = 2 * kKvDim;
    auto& buffer =
        tensors_.emplace_back(std::move(*backend_->allocate(values.size() * cols * sizeof(float))));
    auto* at = static_cast<float*>(buffer->data());
    for (const float value : values) at = std::fill_n(at, cols, value);
    return {buffer->data(), static_cast<int64_t>(values.size()), static_cast<int64_t>(cols), 4};
  }

  std::unique_ptr<ThreadPool> pool_ = std::move(*ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = std::move(*make_cpu_backend(*pool_));
  std::vector<uint32_t> layers_read_;  // of all chunks, one after the other
  Prompt prompt_;

 private:
  // Notes which layers are read.
  class CountedSource : public ChunkSource {
   public:
    CountedSource(std::shared_ptr<const ChunkRecord> record, std::vector<uint32_t>& layers_read)
        : source_(make_memory_source(std::move(record))), layers_read_(layers_read) {}
    const ChunkMeta& meta() const override { return source_->meta(); }
    void prefetch(uint32_t) override {}
    Status read_layer(uint32_t layer, std::byte* out) override {
      layers_read_.push_back(layer);
      return source_->read_layer(layer, out);
    }

   private:
    std::unique_ptr<ChunkSource> source_;
    std::vector<uint32_t>& layers_read_;
  };

  PromptSegment& add(SegmentKind kind, uint32_t n_rows) {
    PromptSegment& s = prompt_.segments.emplace_back();
    s.kind = kind;
    s.first_row = prompt_.n_rows();
    s.n_rows = n_rows;
    prompt_.tokens.resize(prompt_.tokens.size() + n_rows);
    return s;
  }

  std::vector<AlignedBuffer> spaces_;
  std::vector<std::unique_ptr<DeviceBuffer>> tensors_;
};

}  // namespace blend::test
