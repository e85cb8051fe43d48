// SampleRecords: the chunks of sample prompts as records in the context of each other.
//
// So that calibration measures what `blend precompute` stores of a corpus
// (fusion/contexts/corpus_precompute.h). The chunks of all samples are the corpus. Records are made
// as samples need them, because those of all would not fit into memory; those of a cluster are made
// together. Where a corpus would read a passage from a finished record, here it is read from the
// draft. The record of a corpus's first short chunk is the same to the bit, and so are those of
// clusters. What is needed again and again is kept, up to 256 MiB.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/threads/cancel.h"
#include "calibrate/measure.h"
#include "calibrate/memory_store.h"
#include "calibrate/recent_records.h"
#include "corpus/clusters.h"
#include "corpus/similar_chunks.h"
#include "engine/chunk_prefill.h"
#include "engine/model.h"

namespace blend {

// Used by one thread. The samples must outlive it.
class SampleRecords {
 public:
  // n_contexts: passages of a record, at most; with 0 put() does nothing. INVALID_ARGUMENT: a chunk
  // cannot be indexed.
  static Result<std::unique_ptr<SampleRecords>> create(const Model& model,
                                                       std::span<const Sample> samples,
                                                       uint32_t n_contexts);

  // Puts a record in context of each chunk of `sample` that has similar ones into `store`, where a
  // fuse finds it. The others, and the one that stands right after `prefix`, the fuse makes itself.
  Status put(const Sample& sample, const std::vector<int32_t>& prefix, DType kv_dtype,
             MemoryStore& store, const Watch& watch);

  // The same for one chunk, at first_row of its sample; null: no chunk is similar to it.
  Result<std::shared_ptr<const ChunkRecord>> record_of(std::span<const int32_t> chunk,
                                                       size_t first_row,
                                                       const std::vector<int32_t>& prefix,
                                                       DType kv_dtype, const Watch& watch);

 private:
  static constexpr uint64_t kKeptBytes = 256u << 20;

  SampleRecords(const Model& model, uint32_t n_contexts) : model_(model), n_contexts_(n_contexts) {}

  // One object makes all records after a prefix, so that it is computed once.
  Status prefill_after(const std::vector<int32_t>& prefix, const Watch& watch);
  struct Company {  // the passages of a chunk
    std::vector<std::span<const int32_t>> texts;
    std::vector<Sha256> ids;
    size_t room = 0;  // tokens
  };
  struct Making;  // a chunk to prefill after its passages
  using Records = std::vector<RecentRecords::Record>;

  // The record of its cluster; null: it is in none.
  Result<RecentRecords::Record> clustered(std::span<const int32_t> chunk, DType kv_dtype,
                                          const Watch& watch);
  // Keeps the records of all its chunks, and returns that of `text`.
  Result<RecentRecords::Record> make_cluster(const Cluster& cluster, size_t text, DType kv_dtype,
                                             const Watch& watch);
  Result<Company> company_of(std::span<const int32_t> chunk, DType kv_dtype, uint32_t n_passes);
  // The texts after prefix_ alone, each as a record.
  Result<Records> heads(std::span<const std::span<const int32_t>> texts, DType kv_dtype,
                        const Watch& watch);
  // Their drafts; null for those without similar ones.
  Result<Records> drafts(std::span<const std::span<const int32_t>> texts, DType kv_dtype,
                         const Watch& watch);

  const Model& model_;
  const uint32_t n_contexts_;
  SimilarChunks index_;
  std::vector<ClusterText> texts_;
  std::map<Sha256, size_t> places_;  // of texts_, by their ids in the index
  std::vector<int32_t> prefix_;
  std::optional<ChunkPrefill> prefill_;  // after prefix_
  std::vector<Cluster> clusters_;        // of texts_, after prefix_
  std::map<size_t, size_t> cluster_of_;  // by text
  RecentRecords kept_{kKeptBytes};
};

}  // namespace blend
