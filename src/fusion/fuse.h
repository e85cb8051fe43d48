// Fuse: segments -> one KV cache and the logits of the last row (CacheBlend, sections 4 and 5).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "control/cost_model.h"
#include "engine/sequence.h"
#include "fusion/options.h"
#include "fusion/resolve.h"
#include "store/chunk_store.h"
#include "store/read/read_rates.h"

namespace blend {

class FidelityBook;
class LaterPrefill;

// What came of a fuse; the public info structs are its account.
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
  LaterPrefill* later = nullptr;     // takes what is computed in the pass; null: nobody does
  FidelityBook* fidelity = nullptr;  // says which ratio keeps a stated agreement; may be null
  ReadRates* reads = nullptr;        // told of what is read, asked how fast it comes; may be null
  bool use_device_tier = true;       // of the model's runtime, where it has one
};

// One prompt of a call: what the caller said, what came of it, and how fast the machine is.
struct FuseJob {
  FuseRequest request;
  ResolvedFuse fuse;     // of the request
  MachineRates machine;  // nothing: its times are not known
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

// Fuses the job's segments after the rows that `fused` has (multi-turn: what was asked and
// answered so far stays as it is). Its account then covers all rows; info and layers are those of
// this fuse. On failure `fused` is as before. Exclusive use of `fused`.
Status extend(Fused& fused, const StoreAccess& store, const FuseJob& job);

// The same rows and account once more; K and V are shared until written to (Sequence::fork).
// Exclusive use of `fused`.
Result<Fused> fork(Fused& fused);

}  // namespace blend
