// Prompt: the segments of a fuse, looked up in the store, before anything is computed.
//
// It knows the rows of every segment, whether its K and V are stored, and whether they are exact. A
// chunk is exact (a prefix hit) if its chunk prefix is precisely what precedes it in the prompt, as
// for a system prompt or the first chunk: then its K and V are those of full prefill. If the store
// has several records of a chunk, the one nearest to full prefill is used (RecordUse).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/threads/cancel.h"
#include "control/cost_model.h"
#include "engine/model_description.h"
#include "fusion/request/options.h"
#include "fusion/request/resolved_fuse.h"
#include "store/chunk_store.h"

namespace blend {

enum class Source : uint32_t {
  none = BLEND_SOURCE_NONE,
  store = BLEND_SOURCE_STORE,
  precomputed = BLEND_SOURCE_PRECOMPUTED,
  computed = BLEND_SOURCE_COMPUTED,
};

// Which record of a chunk is used, in the order in which they are looked up.
enum class RecordUse : uint32_t {
  none = BLEND_RECORD_NONE,
  exact = BLEND_RECORD_EXACT,
  predecessor = BLEND_RECORD_PREDECESSOR,
  contextual = BLEND_RECORD_CONTEXTUAL,
  head = BLEND_RECORD_HEAD,
  alone = BLEND_RECORD_ALONE,
};

struct PromptSegment {
  SegmentKind kind = SegmentKind::text;
  Source source = Source::none;
  RecordUse record = RecordUse::none;
  bool exact = false;  // stored rows equal what full prefill computes
  bool late = false;   // the remote tier was asked for it and did not answer in time
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  Sha256 id{};
  std::unique_ptr<ChunkSource> chunk;  // null: the rows are computed

  bool reused() const { return chunk != nullptr; }
  bool has_impact() const { return reused() && !chunk->meta().impact.empty(); }
  bool stale() const { return reused() && !exact; }  // stored rows lack their context
};

// A record to be made in idle time (deferred_prefill.h).
struct DeferredChunk {
  ChunkMeta meta;
  std::string tenant;
  std::vector<int32_t> prefix;                 // the chunk prefix
  std::vector<std::vector<int32_t>> contexts;  // of a contextual record
  std::vector<int32_t> predecessor;            // stands between these and the chunk
  // For a chunk that was found: this record would only be nearer to full prefill. It is made when
  // it was asked for twice, because a context that occurred once may never occur again.
  bool when_seen_twice = false;
  bool is_miss = true;  // otherwise a better record for prompts like this one
};

struct Prompt {
  std::shared_ptr<StoreSnapshot> snapshot;  // the segments' sources point into it
  std::vector<int32_t> tokens;              // [n_rows]
  uint32_t n_resident = 0;                  // past: rows before the segments, in the cache already
  std::vector<PromptSegment> segments;
  uint64_t n_hits = 0;
  uint64_t n_misses = 0;
  uint64_t n_late = 0;               // of the misses
  uint64_t miss_ns = 0;              // spent on the prefill of missing chunks
  std::vector<DeferredChunk> later;  // to be stored after this pass

  uint32_t n_rows() const { return static_cast<uint32_t>(tokens.size()); }
};

// State that the prompts of one batch share. Used by one thread at a time.
struct SharedLookup {
  std::weak_ptr<StoreSnapshot> snapshot;  // the prompts' own
  // Missing chunks that were prefilled: one may occur twice in a prompt, or in several.
  std::vector<std::shared_ptr<const ChunkRecord>> computed;
};

// One per prompt; not thread-safe.
class PromptBuilder {
 public:
  // `store` may be null if nothing needs it. `kv_dtype`: of missing chunks that are stored.
  // `prefill`: times of prefills on this machine; null: not known. `shared`: with the other prompts
  // of the batch.
  PromptBuilder(const ModelDescription& model, ChunkStore* store, bool write_back, DType kv_dtype,
                const FuseOptions& options, const ResolvedFuse& fuse,
                const PrefillTimes* prefill = nullptr,
                std::shared_ptr<SharedLookup> shared = std::make_shared<SharedLookup>())
      : model_(model),
        store_(store),
        write_back_(write_back),
        kv_dtype_(kv_dtype),
        options_(options),
        fuse_(fuse),
        prefill_(prefill),
        shared_(std::move(shared)) {}

  // Checks the segments, looks every chunk up, and prefills missing chunks (if asked to). Errors
  // name the segment. `resident`: tokens of the past, the rows before the segments.
  Result<Prompt> build(const std::vector<Segment>& segments, std::span<const int32_t> resident,
                       const Watch& watch);

  // The chunk of prompt.segments[index] was found damaged while it was read: replaces it by a fresh
  // prefill, or marks its rows to be computed.
  Status replace_damaged(Prompt& prompt, size_t index, const Watch& watch);

 private:
  bool is_wanted(const Segment& segment) const;  // whether the store is asked for it
  // Tells the store which chunks are looked up next, so that it asks the remote tier for all at
  // once.
  Status expect(const std::vector<Segment>& segments, Prompt& prompt);
  // Finds the segment's tokens and, if it is stored, its source; otherwise sets `missing`.
  Status resolve(const Segment& segment, size_t index, Prompt& prompt, bool& missing);
  // Takes a snapshot for the prompt if it has none; all prompts of a batch share it.
  Status take_snapshot(Prompt& prompt);
  // Opens chunk `id`; false: a miss. `tokens`: what the stored ones must equal, or null.
  Result<bool> open_stored(Prompt& prompt, const Sha256& id, const std::vector<int32_t>* tokens,
                           bool tokens_made_id, PromptSegment& s);
  // The chunk prefix of the best record for this position in the prompt. For the prompt's first
  // chunk it is everything before it; for a later chunk it is the prompt's chunk prefix, the chunk
  // before it, and what stands between. Empty: there is none. index, first_row: of the segment
  // after it.
  std::vector<int32_t> preceding(const Prompt& prompt, size_t index, uint32_t first_row) const;
  // Opens the record of s with the chunk prefix `prefix` (by `kind` also with passages), if this
  // machine has it.
  Result<bool> open_after(Prompt& prompt, std::span<const int32_t> prefix, RecordKind kind,
                          const std::vector<int32_t>& tokens, PromptSegment& s);
  // Opens a record of s that is nearer to full prefill than its head record.
  Result<bool> open_nearer(Prompt& prompt, const std::vector<int32_t>& tokens, PromptSegment& s);
  // Whether a record after the n_before tokens of head and previous chunk knows little of what
  // precedes s.
  bool says_little(size_t n_before, const PromptSegment& s) const;
  // The kind of the opened record, when the position of s is known.
  RecordUse use_of(const Prompt& prompt, const PromptSegment& s) const;
  bool may_be_alone(const PromptSegment& s) const;
  // Looks s up by the tokens of `segment`. False: a miss.
  Result<bool> look_up(const Segment& segment, Prompt& prompt, PromptSegment& s);
  Status resolve_miss(size_t index, Prompt& prompt, const Watch& watch);
  Status precompute(size_t index, Prompt& prompt, const Watch& watch);
  // Whether it is sooner to prefill the missing chunk by itself and then reuse it.
  bool first_is_sooner(const Prompt& prompt, const PromptSegment& s) const;
  DeferredChunk later_chunk(const Prompt& prompt, const PromptSegment& s,
                            std::span<const int32_t> prefix) const;
  void leave_for_later(Prompt& prompt, PromptSegment& s) const;
  // Queues records that would have been nearer to full prefill than those of this prompt. For the
  // first chunk that is one after everything before it. If the host gave no chunk prefix, later
  // chunks get one after their predecessor, and chunks without a contextual record get one in the
  // context of the prompt's other chunks.
  void leave_nearer_for_later(Prompt& prompt) const;
  void leave_in_context(Prompt& prompt, size_t index) const;
  // The record of segment `index` with the chunk prefix `before`, which is head and predecessor: it
  // is prefilled after other chunks of this prompt too, if the predecessor is shorter than
  // kPrecededTokens.
  DeferredChunk after_predecessor(const Prompt& prompt, size_t index,
                                  std::span<const int32_t> before) const;
  // Whether many prompts begin with these tokens: the chunk prefix, or BOS.
  bool is_opening(std::span<const int32_t> before) const;
  // The chunk prefix of the segment.
  std::span<const int32_t> prefix_of(const Prompt& prompt, const PromptSegment& s) const;
  bool is_exact(const Prompt& prompt, const PromptSegment& s) const;

  const ModelDescription& model_;
  ChunkStore* store_;
  bool write_back_;
  DType kv_dtype_;
  const FuseOptions& options_;
  const ResolvedFuse fuse_;
  const PrefillTimes* const prefill_;
  const std::shared_ptr<SharedLookup> shared_;
};

}  // namespace blend
