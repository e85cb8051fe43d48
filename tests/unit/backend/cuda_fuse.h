// A fuse of ten chunks and a question on the emulated device, from a store of some codec.
#pragma once

#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "engine/precompute.h"
#include "fusion/run/fuse.h"
#include "store/store.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::cuda {

class CudaFuse : public testing::Test {
 protected:
  static constexpr uint32_t kLayers = 6, kChunks = 10, kChunkTokens = 16;

  void TearDown() override { simt::set_machine({}); }

  void open(Codec codec) {
    simt::set_machine({});
    auto runtime =
        Runtime::create(2, {}, [](ThreadPool& pool) { return CudaBackend::create(0, pool); });
    ASSERT_TRUE(runtime.is_ok());
    test::RandomModelSpec spec;
    spec.n_layers = kLayers;
    spec.n_heads = spec.n_kv_heads = 4;  // as many blocks of attention as there are processors
    spec.head_dim = 16;
    auto model = Model::load(*runtime, test::write_random_model(spec, dir_.file("m.gguf")), {}, {});
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    model_ = *model;
    StoreOptions options;
    options.codec = codec;
    auto store = Store::open(dir_.file("store"), options, {});
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    store_ = *store;
    for (uint32_t i = 0; i <= kChunks; ++i) {
      Segment s;
      s.kind = i < kChunks ? SegmentKind::chunk : SegmentKind::question;
      test::SplitMix random(i + 1);
      s.tokens.emplace();
      for (uint32_t t = 0; t < kChunkTokens; ++t) {
        s.tokens->push_back(static_cast<int32_t>(259 + random.below(50)));
      }
      if (i < kChunks) {
        auto record = precompute_chunk(*model_, {},
                                       describe_chunk(*model_, DType::bf16, {}, "", *s.tokens), {});
        ASSERT_TRUE(record.is_ok());
        ASSERT_TRUE(store_->put(**record).is_ok());
      }
      prompt_.push_back(std::move(s));
    }
  }
  static FuseOptions hkvd() {
    FuseOptions options;
    options.policy = Policy::hkvd;
    options.ratio = RatioRequest::fixed(0.15);
    return options;
  }
  // at_layer: before each layer, and after the last.
  Result<Fused> run_fuse(const FuseOptions& options, Store& store,
                         const std::function<void(uint64_t)>& at_layer) {
    Watch watch;
    watch.progress = [&](uint64_t layers_done, uint64_t) {
      at_layer(layers_done);
      return 0;
    };
    StoreAccess access;
    access.store = &store;
    access.kv_dtype = DType::bf16;
    access.use_device_tier = false;
    return fuse(model_, access, FuseRequest{prompt_, options, watch});
  }

  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<Store> store_;
  std::vector<Segment> prompt_;
};

}  // namespace blend::cuda
