// A host that runs a model itself: the float64 reference, driven layer by layer through the step
// API as any engine would be.
#pragma once

#include <functional>
#include <string>

#include "conformance/host.h"

namespace blend::test {

struct StepOptions {
  HostLayout layout = HostLayout::heads_first;
  uint32_t target_flags = 0;  // BLEND_KV_VIEW_* of the cache
  uint32_t fresh_flags = 0;   // of what select() is given
  bool fetch_ahead = false;   // all layers at once, before the first
  bool select_always = true;  // false: at check layers only
  uint32_t check_layer = 1;   // for the line above
  size_t n_asked = 0;         // rows of the question, for a policy that probes; 0: for another
};

struct StepRun {
  Outcome outcome;                   // of the call that failed, or OK
  std::vector<double> logits;        // of the last row
  std::vector<uint32_t> final_rows;  // what select() gave at the last layer
};

// Not thread-safe.
class StepHost {
 public:
  StepHost(const ReferenceModel& reference, StepOptions options)
      : reference_(reference), options_(options) {}

  // Runs a layerwise fuse from layer 0 to its end. `before`, if any, runs before each call, which
  // it is told by number; false stops there.
  StepRun run(blend_layerwise* layerwise, const std::function<bool(int)>& before = {});
  // The cache of the last run.
  std::vector<HostLayer>& cache() { return cache_; }

 private:
  bool layer(blend_layerwise* layerwise, uint32_t layer, StepRun& run);
  // K and V of rows_, in the cache and in `fresh`, beside the stored ones.
  bool begin_layer(blend_layerwise* layerwise, uint32_t layer, StepRun& run, HostLayer& fresh);
  // The rest of the layer for rows_.
  void attend(uint32_t layer);
  // All rows of the layer as attention reads them.
  void read_cache(uint32_t layer, std::vector<double>& k, std::vector<double>& v);
  bool probe(blend_layerwise* layerwise, StepRun& run);
  // rows_ and their embeddings.
  void begin_rows(const uint32_t* rows, size_t n);
  bool call(StepRun& run, const std::function<int32_t(blend_error**)>& fn);
  bool fetch(blend_layerwise* layerwise, uint32_t layer, StepRun& run);

  const ReferenceModel& reference_;
  const StepOptions options_;
  std::function<bool(int)> before_;
  int calls_ = 0;
  size_t n_rows_ = 0;
  std::vector<int32_t> tokens_;
  uint32_t n_fetched_ = 0;
  std::vector<HostLayer> cache_;
  std::vector<uint32_t> rows_;
  std::vector<std::vector<double>> x_;  // of rows_
};

Layerwise make_layerwise(const Model& model, const Store& store, const Prompt& prompt,
                         const FuseCase& how);
// The same, with what it said; `options` may be changed first.
struct TriedLayerwise {
  Outcome outcome;
  Layerwise layerwise;
};
TriedLayerwise try_layerwise(const Model& model, const Store& store, const Prompt& prompt,
                             const FuseCase& how,
                             const std::function<void(blend_fuse_options&)>& change = {});

std::vector<uint32_t> rows_of(const Layerwise& layerwise);
std::vector<uint32_t> selected(const Layerwise& layerwise);
std::vector<float> deviation(const Layerwise& layerwise);
blend_fusion_report info(const Layerwise& layerwise);
blend_layer_info layer_info(const Layerwise& layerwise, uint32_t layer);
blend_segment_info segment_info(const Layerwise& layerwise, size_t segment);

}  // namespace blend::test
