// Prompt: what is to be fused, resolved against the store, before anything of it is computed.
//
// It knows for every segment where its rows stand, whether its K and V are stored, and whether they
// are exact: a chunk whose chunk prefix is precisely what precedes it in the prompt has the very
// K and V that full prefill would give (a system prompt, the first chunk of a prompt). Of the
// records of one chunk the nearest to full prefill is taken (RecordUse).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "control/cost_model.h"
#include "engine/model_description.h"
#include "fusion/options.h"
#include "fusion/resolved_fuse.h"
#include "store/chunk_store.h"

namespace blend {

enum class Source : uint32_t {
  none = BLEND_SOURCE_NONE,
  store = BLEND_SOURCE_STORE,
  precomputed = BLEND_SOURCE_PRECOMPUTED,
  computed = BLEND_SOURCE_COMPUTED,
};

// Which record of a chunk stands for it, in the order in which they are looked for.
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
  bool late = false;   // another machine was asked for it and did not answer in time
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  Sha256 id{};
  std::unique_ptr<ChunkSource> chunk;  // null: the rows are computed

  bool reused() const { return chunk != nullptr; }
  bool has_impact() const { return reused() && !chunk->meta().impact.empty(); }
  bool stale() const { return reused() && !exact; }  // stored rows lack what they would have taken
};

// A record that is to be made when nobody waits for it (later_prefill.h).
struct LaterChunk {
  ChunkMeta meta;
  std::string tenant;
  std::vector<int32_t> prefix;                 // that it is prefilled after
  std::vector<std::vector<int32_t>> contexts;  // of a contextual record
  // Not of a miss: it would only be nearer to full prefill than what is there. Then it is made once
  // it was asked for twice, since what stood before a chunk once need not do so again.
  bool when_seen_twice = false;
  bool is_miss = true;  // else it is one that prompts like this would use
};

struct Prompt {
  std::shared_ptr<StoreSnapshot> snapshot;  // the segments' sources point into it
  std::vector<int32_t> tokens;              // [n_rows]
  uint32_t n_resident = 0;                  // rows before the segments, in the cache already
  std::vector<PromptSegment> segments;
  uint64_t n_hits = 0;
  uint64_t n_misses = 0;
  uint64_t n_late = 0;            // of the misses
  uint64_t miss_ns = 0;           // spent on the prefill of missing chunks
  std::vector<LaterChunk> later;  // to be stored after this pass

  uint32_t n_rows() const { return static_cast<uint32_t>(tokens.size()); }
};

// What the prompts of one batch have in common. Used by one thread at a time.
struct SharedLookup {
  std::weak_ptr<StoreSnapshot> snapshot;  // the prompts' own
  // Missing chunks that were prefilled: one may stand twice in a prompt, or in several.
  std::vector<std::shared_ptr<const ChunkRecord>> computed;
};

// One per prompt; not thread-safe.
class PromptBuilder {
 public:
  // `store` may be null where nothing needs it. `kv_dtype`: what missing chunks are stored as.
  // `prefill`: how long prefills take here; null: that is not known. `shared`: with the other
  // prompts of the batch.
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

  // Checks the segments, looks every chunk up, prefills what is missing (if asked to). Errors name
  // the segment.
  // `resident`: tokens of rows that stand before the segments and are in the cache already.
  Result<Prompt> build(const std::vector<Segment>& segments, std::span<const int32_t> resident,
                       const Watch& watch);

  // The chunk of prompt.segments[index] turned out damaged while it was read: puts a fresh
  // prefill (or the decision to compute its rows) in its place.
  Status replace_damaged(Prompt& prompt, size_t index, const Watch& watch);

 private:
  bool is_wanted(const Segment& segment) const;  // from the store
  // Tells the store what is looked up next, so that other machines are asked for all of it at once.
  Status expect(const std::vector<Segment>& segments, Prompt& prompt);
  // Finds the segment's tokens and, if it is stored, its source. `missing` is set when it is not.
  Status resolve(const Segment& segment, size_t index, Prompt& prompt, bool& missing);
  // Sees to it that the prompt has a snapshot: one for all of it, and for the others of its batch.
  Status take_snapshot(Prompt& prompt);
  // Opens chunk `id`; false: a miss. `tokens`: what the stored ones must equal, or null.
  Result<bool> open_stored(Prompt& prompt, const Sha256& id, const std::vector<int32_t>* tokens,
                           bool tokens_made_id, PromptSegment& s);
  // What the record of s that this place in the prompt asks for was prefilled after: all that
  // precedes the prompt's first chunk, of a later one the chunk prefix, the chunk before it and
  // what stands between. Empty: nothing of the kind. index, first_row: of the segment that follows.
  std::vector<int32_t> preceding(const Prompt& prompt, size_t index, uint32_t first_row) const;
  // Opens the record of s that was prefilled after just `prefix`, or after it and passages, where
  // this machine has it.
  Result<bool> open_after(Prompt& prompt, std::span<const int32_t> prefix, RecordKind kind,
                          const std::vector<int32_t>& tokens, PromptSegment& s);
  // Opens a record of s that is nearer to full prefill than the plain one after the chunk prefix.
  Result<bool> open_nearer(Prompt& prompt, const std::vector<int32_t>& tokens, PromptSegment& s);
  // What the record that was opened is, once s has its place.
  RecordUse use_of(const Prompt& prompt, const PromptSegment& s) const;
  bool may_be_alone(const PromptSegment& s) const;
  // Looks s up, tokens being those of `segment`. False: a miss.
  Result<bool> look_up(const Segment& segment, Prompt& prompt, PromptSegment& s);
  Status resolve_miss(size_t index, Prompt& prompt, const Watch& watch);
  Status precompute(size_t index, Prompt& prompt, const Watch& watch);
  // Whether the prompt is done sooner when the missing chunk is prefilled by itself and then
  // reused.
  bool first_is_sooner(const Prompt& prompt, const PromptSegment& s) const;
  LaterChunk later_chunk(const Prompt& prompt, const PromptSegment& s,
                         std::span<const int32_t> prefix) const;
  void leave_for_later(Prompt& prompt, PromptSegment& s) const;
  // What would have been nearer to full prefill than the records of this prompt: the first chunk
  // after what precedes it; and where the host leaves the chunk prefix to the library, later ones
  // after their predecessors, and in the context of the prompt's other chunks what has no
  // contextual record.
  void leave_nearer_for_later(Prompt& prompt) const;
  void leave_in_context(Prompt& prompt, const PromptSegment& s) const;
  // Whether many prompts begin with these tokens: the chunk prefix, or BOS.
  bool is_opening(std::span<const int32_t> before) const;
  // The chunk prefix that the segment is prefilled after.
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
