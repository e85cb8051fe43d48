// CorpusPrecompute: stores the chunks of a corpus so that they serve each other as context.
//
// Each chunk gets up to three records after the prompt head. The head record has no other context:
// it is exact where the chunk stands first in a prompt, and other chunks load it as a passage. Two
// records are means over n_contexts prefills, in which the chunk is among similar ones: these are
// retrieved together, so they resemble what stands before the chunk in a prompt. The contextual
// record is prefilled after passages, some short ones at a time (engine/context_passes.h), as a
// chunk near a prompt's beginning is. The record of a cluster (corpus/clusters.h) is for the places
// after that. A prompt takes the one that fits the chunk's place.
//
// In a prompt the rows of such a passage have seen other passages. The rows of its head record have
// not, and a chunk that is prefilled after them differs as they do. So contextual records are made
// in two rounds. In the first each chunk gets a draft, by one prefill after passages that are read
// from head records. In the second it is prefilled n_contexts times. Every second time the
// passages are read from drafts, or from the records that have replaced them. A chunk costs at most
// 2 + 2 n_contexts passes over its own rows. Chunks that are too short to keep the CPU busy are
// prefilled together.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "corpus/clusters.h"
#include "engine/context_passes.h"
#include "engine/model.h"
#include "fusion/contexts/corpora.h"
#include "store/chunk_store.h"

namespace blend {

struct CorpusText {
  std::span<const int32_t> tokens;
  ChunkName name;
};

struct CorpusOptions {
  // Prefills of a contextual record, at most kMostContexts; 0: head records only.
  uint32_t n_contexts = 0;
  double min_similarity = 0;
  bool clusters = true;  // also records of clusters
  bool refresh = false;  // also make records again whose similar chunks have changed
  std::optional<Codec> codec;
};

// The result for a text.
struct CorpusRecord {
  // The contextual record, or the head record if no chunk is similar.
  Sha256 id{};
  Sha256 head_id{};
  Sha256 cluster_id{};  // whether or not there is one
  uint32_t n_contexts = 0;
  bool existed = false;       // nothing was computed for it
  bool head_existed = false;  // of the head record alone
  bool own_existed = false;   // of the record under `id`
  bool cluster_existed = false;
};

// Used once, by one thread. The arguments must outlive it.
class CorpusPrecompute {
 public:
  CorpusPrecompute(const Model& model, ChunkStore& store, SimilarChunks& index, CorpusKey key,
                   const CorpusOptions& options)
      : model_(model),
        store_(store),
        index_(index),
        key_(std::move(key)),
        options_(options),
        prefill_(model, key_.head) {}

  // Stores the missing records of `texts`, whose tokens were checked. After a stopped run the next
  // one goes on where it ended. Calls `done` for each text, in order and after its records are on
  // their way to the store; non-zero stops with CALLBACK. Progress counts records and drafts. The
  // puts are in the background: flush.
  using Done = std::function<int32_t(size_t text, const CorpusRecord& record)>;
  Status run(std::span<const CorpusText> texts, const Done& done, const Watch& watch);

 private:
  struct Company;      // the passages of one chunk
  struct ClusterPlan;  // texts that may be in a cluster
  struct Together;     // chunks that are prefilled in one run
  ChunkMeta describe(const CorpusText& text, RecordKind kind) const;
  bool has_drafts() const { return options_.n_contexts > 1; }  // the first prefill reads none
  bool has_clusters() const { return options_.n_contexts > 0 && options_.clusters; }
  uint64_t n_steps(std::span<const CorpusText> texts) const;  // of the progress
  Status store_heads(std::span<const CorpusText> texts, std::vector<bool>& made,
                     const Watch& watch);
  // The records of clusters that are missing, or of all clusters that have changed.
  Status store_clusters(std::span<const CorpusText> texts, const Watch& watch);
  Status make_cluster(std::span<const CorpusText> texts, const ClusterPlan& plan,
                      const Cluster& cluster, const Watch& watch);
  // Of the texts that have no contextual record.
  Status store_drafts(std::span<const CorpusText> texts, const Watch& watch);
  // `snapshot` is taken if there is none.
  Result<Company> company_of(const CorpusText& text, bool draft,
                             std::unique_ptr<StoreSnapshot>& snapshot);
  // The record that a text has, or is to get: then it is put into `next`.
  Result<CorpusRecord> plan_contextual(const CorpusText& text, const std::string& name,
                                       Together& next);
  // Prefills and stores what was gathered.
  Status store(Together& together, const Watch& watch);
  // Puts the records of the first jobs, and empties `together`.
  Status put(ChunkPrefill::Records records, Together& together);
  // The passages of the stored record `id`; nothing if there is none, or a draft.
  Result<std::optional<std::vector<Sha256>>> contexts_of(const Sha256& id, Together& next);

  const Model& model_;
  ChunkStore& store_;
  SimilarChunks& index_;
  const CorpusKey key_;
  const CorpusOptions options_;
  ChunkPrefill prefill_;
  std::set<Sha256> made_in_clusters_;
};

}  // namespace blend
