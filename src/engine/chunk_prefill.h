// ChunkPrefill: prefills chunks after one prompt head, which is computed once.
//
// A chunk that is prefilled alone makes a false attention sink of its first token, and lacks what
// any preceding text would have given. So it is prefilled after the head that prompts begin with,
// and after a passage of context that is not kept. Over several passages K and V are averaged
// in the backend's own precision before they are rounded to the stored type: the part that depends
// on one passage averages out, the part that any text gives stays. Such a record is closer to full
// prefill than a record after the head alone with 15 % of its rows recomputed (docs/quality.md).
//
// Chunks are short, and a product of few rows does not use the CPU as well as one of many. So
// prefills of several chunks, or of one after several passages, go through the layers together:
// every product is of the rows of all, and in each layer they take turns in the slots of the cache
// after the head, where each attends to its own rows. Chunks of a sequence stand in slots that
// follow each other, so that each attends to those before it as well.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/context_impact.h"
#include "engine/forward.h"
#include "store/chunk/chunk.h"

namespace blend {

// Text that a chunk is prefilled after and that is not kept with it.
struct ContextPassage {
  std::span<const int32_t> tokens;
  // Its rows, where a store has them: those of its parts, one after the other, each as it is after
  // the head. Then only the chunk's own rows are computed. Empty: those of the passage are too.
  std::vector<ChunkSource*> stored = {};
};

// A chunk to prefill.
struct ChunkJob {
  ChunkMeta meta;  // its id, shape and tokens
  // It is prefilled after the head and each of these in turn; with none: after the head alone. A
  // passage must leave the chunk room in the model's context.
  std::span<const ContextPassage> passages;
  std::string name = {};  // begins the message of an error that is this chunk's; may be empty

  // Rows that its prefills compute.
  size_t n_rows() const;
};

// Used by one thread at a time. The model and `head` must outlive it.
class ChunkPrefill {
 public:
  // A run of so many rows has full products; jobs of fewer should share one.
  static constexpr size_t kFullRows = 256;

  // The first run() computes the head.
  ChunkPrefill(const Model& model, std::span<const int32_t> head) : model_(model), head_(head) {}

  // The records of `jobs`, in order; their metas are moved from. K is kept without position
  // (AttentionStore 3.4.1), so a chunk may later stand anywhere. The rows' context impact is put
  // beside them (context_impact.h). Progress counts layers. CONTEXT_LENGTH when head and chunk do
  // not fit; CORRUPT when a passage cannot be read; NUMERIC when a value does not fit the stored
  // type.
  using Records = std::vector<std::shared_ptr<ChunkRecord>>;
  Result<Records> run(std::span<ChunkJob> jobs, const Watch& watch);

  // Most tokens of jobs that are prefilled in sequences: their sums, K and V of all layers before
  // they are rounded, take 512 MiB.
  size_t most_in_sequences() const;
  // The records of jobs without passages as they are among each other. Each sequence, indices of
  // jobs, is prefilled after the head as one text. A record is the mean over the sequences that its
  // chunk is in, each of which has it once; there must be one.
  using Sequence = std::vector<size_t>;
  Result<Records> run_in_sequences(std::span<ChunkJob> jobs, std::span<const Sequence> sequences,
                                   const Watch& watch);

 private:
  struct Work;   // of a job
  struct Lane;   // one prefill of a chunk
  struct Group;  // lanes that go through the layers together

  Status check_fits(size_t rows) const;
  // Makes room for prefills of so many rows after the head, which is computed again if there was
  // less, and for groups of so many rows `together`.
  Status reserve(uint32_t rows, uint32_t together, const Watch& watch);
  Status compute_head(const Watch& watch);
  Result<std::vector<Work>> works_of(std::span<ChunkJob> jobs) const;
  std::vector<Group> groups_of(std::span<Work> works, std::span<const ChunkJob> jobs) const;
  std::vector<Group> groups_of(std::span<Work> works, std::span<const Sequence> sequences) const;
  // `rows`: the most after the head.
  Result<Records> run_groups(std::span<Work> works, std::vector<Group> groups, size_t rows,
                             const Watch& watch);
  Status compute(Group& group, const Watch& watch);
  Status compute_layer(Group& group, uint32_t layer, Tensor x, Tensor kv, const uint32_t* pos,
                       const Watch& watch);
  // K and V of a lane's rows, and of its stored passage, into the slots after the head. `space`:
  // for a layer of the passage.
  Status place(Lane& lane, AlignedBuffer& space, uint32_t layer, Tensor kv, const uint32_t* pos);
  // The chunk's fresh rows of a layer: rounded into the record, or summed up and then rounded.
  Status keep(Lane& lane, uint32_t layer, Tensor kv);

  const Model& model_;
  const std::span<const int32_t> head_;
  uint32_t rows_ = 0;      // capacity after the head
  uint32_t together_ = 0;  // rows of a group
  std::unique_ptr<Forward> forward_;
  std::shared_ptr<const Ropes> ropes_;
  std::unique_ptr<KvCache> cache_;  // the head's rows first, for all layers
  std::optional<OutsideMass> outside_;
  std::vector<uint8_t> fresh_slots_;  // [capacity] zeros: scatter() leaves none out
};

}  // namespace blend
