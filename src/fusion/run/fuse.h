// Fuse: segments -> one KV cache and the logits of the last row (CacheBlend, sections 4 and 5).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "control/cost_model.h"
#include "engine/sequence.h"
#include "fusion/request/options.h"
#include "fusion/resolve/resolve.h"
#include "store/chunk_store.h"
#include "store/read/read_rates.h"

namespace blend {

class FidelityBook;
class DeferredPrefill;

// The result of a fuse; the public info structs are its report.
struct Fused {
  std::unique_ptr<Sequence> sequence;
  blend_fusion_report info{};
  std::vector<blend_layer_info> layers;      // [n_layers]
  std::vector<blend_segment_info> segments;  // [n_segments]
  std::vector<uint32_t> selected;            // rows, ascending
  std::vector<float> deviation;              // [n_rows]
};

// The chunk store as one fuse uses it; `store` may be null where the options allow it.
struct StoreAccess {
  ChunkStore* store = nullptr;
  bool read_only = false;
  DType kv_dtype = DType::f16;
  DeferredPrefill* later = nullptr;  // stores chunks that the pass computed; null: they are not
  FidelityBook* fidelity = nullptr;  // gives the ratio that keeps an agreement; may be null
  ReadRates* reads = nullptr;        // measures the reads, and gives their rates; may be null
  bool use_device_tier = true;       // if the model's runtime has one
};

// One prompt of a call: the request, how it was resolved, and the machine's speed.
struct FuseJob {
  FuseRequest request;
  ResolvedFuse fuse;     // of the request
  MachineRates machine;  // null: not known
};

// The job of a request that the built-in engine computes.
Result<FuseJob> make_job(const Model& model, const StoreAccess& store, FuseRequest request,
                         const MachineRates& machine = {});

// Fuses several prompts together (batch.h); one result a job, each as its own fuse would give.
// Safe for concurrent use on one model and store.
std::vector<Result<Fused>> fuse_batch(const std::shared_ptr<const Model>& model,
                                      const StoreAccess& store, std::span<const FuseJob> jobs);

// Safe for concurrent use on one model and store.
Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   const FuseJob& job);
// The same of a request that is resolved here.
Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   FuseRequest request);

// Fuses the job's segments after the rows that `fused` has (multi-turn: earlier turns stay as they
// are). Its report then covers all rows; info and layers are those of this fuse. On failure `fused`
// is as before. Exclusive use of `fused`.
Status extend(Fused& fused, const StoreAccess& store, const FuseJob& job);

// A copy of the rows and the report; K and V are shared until they are written (Sequence::fork).
// Exclusive use of `fused`.
Result<Fused> fork(Fused& fused);

}  // namespace blend
