#include "fusion/prompt/prompt.h"

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "control/pass_cost.h"
#include "engine/chunk_shape.h"
#include "engine/context_passes.h"
#include "engine/model.h"
#include "engine/precompute.h"
#include "fusion/request/clock.h"

namespace blend {
namespace {

// Passages of a record made in idle time: more of them make it no better.
constexpr size_t kContexts = 4;
// A predecessor record of a short chunk is preferred only if the chunk before makes up a quarter of
// what precedes: among twenty short chunks one says less than a context of several.
constexpr size_t kLeastShare = 4;
constexpr size_t kLeastContextTokens = 11;  // shorter passages say too little

bool is_looked_up(SegmentKind kind) {
  return kind == SegmentKind::prefix || kind == SegmentKind::chunk;
}

bool is_chunk(const PromptSegment& s) { return s.kind == SegmentKind::chunk; }

const char* kind_name(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::prefix:
      return "prefix";
    case SegmentKind::chunk:
      return "chunk";
    case SegmentKind::text:
      return "text";
    case SegmentKind::question:
      return "question";
  }
  return "unknown";
}

std::string segment_name(size_t index, SegmentKind kind) {
  return "segment " + std::to_string(index) + " (" + kind_name(kind) + ")";
}

std::span<const int32_t> tokens_of(const Prompt& prompt, const PromptSegment& s) {
  return std::span(prompt.tokens).subspan(s.first_row, s.n_rows);
}

struct Most {
  size_t texts;
  size_t tokens = SIZE_MAX;  // no more texts once these have as many
  size_t each = SIZE_MAX;    // tokens of a text
};

// Texts of the prompt's chunks at `places` for a record of segment `index`.
std::vector<std::vector<int32_t>> texts_beside(const Prompt& prompt, size_t index,
                                               std::span<const size_t> places, Most most) {
  const std::span<const int32_t> own = tokens_of(prompt, prompt.segments[index]);
  std::vector<std::vector<int32_t>> out;
  size_t n_tokens = 0;
  for (const size_t place : places) {
    if (out.size() == most.texts || n_tokens >= most.tokens) break;
    const PromptSegment& other = prompt.segments[place];
    if (!is_chunk(other) || other.n_rows < kLeastContextTokens || other.n_rows > most.each)
      continue;
    const std::span<const int32_t> tokens = tokens_of(prompt, other);
    if (std::equal(tokens.begin(), tokens.end(), own.begin(), own.end())) continue;
    out.emplace_back(tokens.begin(), tokens.end());
    n_tokens += tokens.size();
  }
  return out;
}

// Prefixes must come first and a question last, at most one; chunks without an id must have tokens.
Status check_order(const std::vector<Segment>& segments, bool continues) {
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const std::string name = segment_name(i, s.kind);
    if (s.kind == SegmentKind::prefix && continues) {
      return {
          BLEND_E_INVALID_ARGUMENT,
          name + ": a prefix segment cannot follow rows that are there; make it a text or a chunk"};
    }
    if (s.kind == SegmentKind::prefix && i > 0 && segments[i - 1].kind != SegmentKind::prefix) {
      return {BLEND_E_INVALID_ARGUMENT,
              name + ": prefix segments must come before all others; make it a text or a chunk"};
    }
    if (s.kind == SegmentKind::question && i + 1 != segments.size()) {
      return {BLEND_E_INVALID_ARGUMENT, name + ": the question must be the last segment"};
    }
    const bool looked_up = is_looked_up(s.kind);
    if (looked_up && s.tokens.has_value() && s.tokens->empty()) {
      return {BLEND_E_INVALID_ARGUMENT, name + ": it has no tokens; leave it out"};
    }
    if (!s.tokens.has_value() && !(s.kind == SegmentKind::chunk && s.id.has_value())) {
      return {BLEND_E_INVALID_ARGUMENT,
              name + ": tokens are missing (only a chunk may be given by its id alone)"};
    }
  }
  return Status::ok();
}

}  // namespace

std::span<const int32_t> PromptBuilder::prefix_of(const Prompt& prompt,
                                                  const PromptSegment& s) const {
  if (s.kind == SegmentKind::prefix) return std::span(prompt.tokens).first(s.first_row);
  return options_.chunk_prefix;
}

bool PromptBuilder::is_exact(const Prompt& prompt, const PromptSegment& s) const {
  const ChunkMeta& meta = s.chunk->meta();
  if (meta.n_prefix_tokens != s.first_row) return false;
  if (s.first_row == 0) return true;
  // The id covers the chunk prefix: equal ids mean that the chunk was prefilled after these tokens.
  return meta.id == chunk_id(meta.fingerprint, meta.shape.dtype,
                             std::span(prompt.tokens).first(s.first_row), options_.tenant,
                             meta.tokens);
}

Status PromptBuilder::take_snapshot(Prompt& prompt) {
  if (prompt.snapshot == nullptr) prompt.snapshot = shared_->snapshot.lock();
  if (prompt.snapshot != nullptr) return Status::ok();
  BLEND_ASSIGN(prompt.snapshot, store_->snapshot());
  shared_->snapshot = prompt.snapshot;
  return Status::ok();
}

Result<bool> PromptBuilder::open_stored(Prompt& prompt, const Sha256& id,
                                        const std::vector<int32_t>* tokens, bool tokens_made_id,
                                        PromptSegment& s) {
  if (store_ == nullptr) return false;
  BLEND_RETURN_IF_ERROR(take_snapshot(prompt));
  auto opened = prompt.snapshot->open(id, tenant_tag(options_.tenant));
  if (!opened.is_ok()) {
    const int32_t code = opened.status().code();
    if (code == BLEND_E_NOT_FOUND && opened.status().detail() == ETIMEDOUT) s.late = true;
    if (code == BLEND_E_NOT_FOUND || code == BLEND_E_CORRUPT) return false;
    return opened.status();
  }
  const ChunkMeta& meta = (*opened)->meta();
  if (meta.fingerprint != model_.fingerprint()) {
    return make_error(BLEND_E_MISMATCH,
                      "chunk %s was made by another model (fingerprint %s, not %s)",
                      to_hex(id).c_str(), to_hex(meta.fingerprint).substr(0, 16).c_str(),
                      to_hex(model_.fingerprint()).substr(0, 16).c_str());
  }
  const ModelConfig& c = model_.config();
  const bool same_tokens = tokens == nullptr || meta.tokens == *tokens;
  if (!has_layers_of(meta.shape, c) || meta.tokens.size() != meta.shape.n_tokens ||
      (tokens_made_id && !same_tokens)) {
    // A chunk of this model cannot have another shape: it is damaged.
    store_->report_damage(
        id, make_error(BLEND_E_CORRUPT, "chunk %s does not fit its own id", to_hex(id).c_str()));
    return false;
  }
  if (!same_tokens) {
    return make_error(BLEND_E_MISMATCH, "chunk %s holds other tokens than the segment gives",
                      to_hex(id).c_str());
  }
  s.id = id;
  s.chunk = std::move(*opened);
  s.source = Source::store;
  return true;
}

std::vector<int32_t> PromptBuilder::preceding(const Prompt& prompt, size_t index,
                                              uint32_t first_row) const {
  const std::span<const int32_t> all = std::span(prompt.tokens).first(first_row);
  const auto segments = std::span(prompt.segments).first(index);
  const auto before = std::find_if(segments.rbegin(), segments.rend(), is_chunk);
  if (before == segments.rend()) {
    return prompt.n_resident == 0 ? std::vector<int32_t>(all.begin(), all.end())
                                  : std::vector<int32_t>();
  }
  std::vector<int32_t> out = options_.chunk_prefix;
  out.insert(out.end(), all.begin() + before->first_row, all.end());
  return out;
}

Result<bool> PromptBuilder::open_after(Prompt& prompt, std::span<const int32_t> prefix,
                                       RecordKind kind, const std::vector<int32_t>& tokens,
                                       PromptSegment& s) {
  const Sha256 id =
      chunk_id(model_.fingerprint(), kv_dtype_, prefix, options_.tenant, tokens, kind);
  // Looked up on this machine only, and not counted, because usually there is no such record. Uses
  // the prompt's snapshot: taking a second one might wait for the first, if another process has
  // enlarged the file.
  BLEND_RETURN_IF_ERROR(take_snapshot(prompt));
  BLEND_ASSIGN(const bool there, prompt.snapshot->holds(id));
  if (!there) return false;
  BLEND_ASSIGN(const bool hit, open_stored(prompt, id, &tokens, true, s));
  if (hit) store_->count_variant();
  return hit;
}

Result<bool> PromptBuilder::open_nearer(Prompt& prompt, const std::vector<int32_t>& tokens,
                                        PromptSegment& s) {
  if (store_ == nullptr || s.kind != SegmentKind::chunk) return false;
  const std::vector<int32_t> before = preceding(prompt, prompt.segments.size(), s.first_row);
  const auto after_what_precedes = [&]() -> Result<bool> {
    if (before.empty()) return false;
    // A plain one is exact where nothing else precedes. Where more does, the other has seen more.
    const bool exact = before.size() == s.first_row;
    for (const RecordKind kind : {exact ? RecordKind::plain : RecordKind::preceded,
                                  exact ? RecordKind::preceded : RecordKind::plain}) {
      BLEND_ASSIGN(const bool hit, open_after(prompt, before, kind, tokens, s));
      if (hit) return true;
    }
    return false;
  };
  const auto in_context = [&]() -> Result<bool> {
    const bool far = fits_cluster(s.first_row, options_.chunk_prefix.size());
    for (const RecordKind kind : {far ? RecordKind::clustered : RecordKind::contextual,
                                  far ? RecordKind::contextual : RecordKind::clustered}) {
      BLEND_ASSIGN(const bool hit, open_after(prompt, options_.chunk_prefix, kind, tokens, s));
      if (hit) return true;
    }
    return false;
  };
  const bool context_first = says_little(before.size(), s);
  BLEND_ASSIGN(const bool hit, context_first ? in_context() : after_what_precedes());
  if (hit) return true;
  return context_first ? after_what_precedes() : in_context();
}

bool PromptBuilder::says_little(size_t n_before, const PromptSegment& s) const {
  const size_t n_head = options_.chunk_prefix.size();
  if (n_before < n_head || n_before >= s.first_row) return false;
  const size_t own = n_before - n_head, all = s.first_row - n_head;
  return own < kContextTokens && kLeastShare * own < all;
}

RecordUse PromptBuilder::use_of(const Prompt& prompt, const PromptSegment& s) const {
  if (!s.reused()) return RecordUse::none;
  if (s.exact) return RecordUse::exact;
  const ChunkMeta& meta = s.chunk->meta();
  if (meta.n_prefix_tokens == 0) {
    return meta.contexts.empty() ? RecordUse::alone : RecordUse::contextual;
  }
  if (meta.n_prefix_tokens != options_.chunk_prefix.size()) {
    const std::vector<int32_t> before = preceding(prompt, prompt.segments.size(), s.first_row);
    for (const RecordKind kind : {RecordKind::plain, RecordKind::preceded}) {
      const Sha256 id =
          chunk_id(meta.fingerprint, meta.shape.dtype, before, options_.tenant, meta.tokens, kind);
      if (meta.id == id) return RecordUse::predecessor;
    }
  }
  return meta.contexts.empty() ? RecordUse::head : RecordUse::contextual;
}

// If nothing may be computed, a record made alone is better than none.
bool PromptBuilder::may_be_alone(const PromptSegment& s) const {
  return s.kind == SegmentKind::chunk && fuse_.on_miss == OnMiss::fail && options_.after_head &&
         !options_.chunk_prefix.empty();
}

Result<bool> PromptBuilder::look_up(const Segment& segment, Prompt& prompt, PromptSegment& s) {
  if (!segment.id.has_value()) {
    BLEND_ASSIGN(const bool nearer, open_nearer(prompt, *segment.tokens, s));
    if (nearer) return true;
    s.id = chunk_id(model_.fingerprint(), kv_dtype_, prefix_of(prompt, s), options_.tenant,
                    *segment.tokens);
    BLEND_ASSIGN(const bool hit, open_stored(prompt, s.id, &*segment.tokens, true, s));
    if (hit || !may_be_alone(s)) return hit;
    const Sha256 alone =
        chunk_id(model_.fingerprint(), kv_dtype_, {}, options_.tenant, *segment.tokens);
    return open_stored(prompt, alone, &*segment.tokens, true, s);
  }
  s.id = *segment.id;
  BLEND_ASSIGN(const bool hit,
               open_stored(prompt, s.id, segment.tokens ? &*segment.tokens : nullptr, false, s));
  if (!hit || is_exact(prompt, s)) return hit;
  const std::vector<int32_t> tokens = s.chunk->meta().tokens;
  BLEND_RETURN_IF_ERROR(open_nearer(prompt, tokens, s).status());
  return true;
}

bool PromptBuilder::is_wanted(const Segment& segment) const {
  return is_looked_up(segment.kind) &&
         (fuse_.policy != Policy::full || !segment.tokens.has_value());
}

Status PromptBuilder::expect(const std::vector<Segment>& segments, Prompt& prompt) {
  if (store_ == nullptr) return Status::ok();
  const auto wanted = [&](const Segment& s) { return is_wanted(s); };
  if (std::none_of(segments.begin(), segments.end(), wanted)) return Status::ok();
  BLEND_RETURN_IF_ERROR(take_snapshot(prompt));
  if (!prompt.snapshot->asks_others()) return Status::ok();
  std::vector<Sha256> ids;
  std::vector<int32_t> head;  // the prefix segments so far
  for (const Segment& s : segments) {
    const bool is_prefix = s.kind == SegmentKind::prefix;
    if (is_wanted(s)) {
      ids.push_back(s.id.has_value() ? *s.id
                                     : chunk_id(model_.fingerprint(), kv_dtype_,
                                                is_prefix ? std::span<const int32_t>(head)
                                                          : options_.chunk_prefix,
                                                options_.tenant, *s.tokens));
    }
    if (is_prefix && s.tokens.has_value())
      head.insert(head.end(), s.tokens->begin(), s.tokens->end());
  }
  prompt.snapshot->expect(ids);
  return Status::ok();
}

Status PromptBuilder::resolve(const Segment& segment, size_t index, Prompt& prompt, bool& missing) {
  const std::string name = segment_name(index, segment.kind);
  if (segment.tokens.has_value()) {
    BLEND_RETURN_IF_ERROR(model_.check_tokens(*segment.tokens, name));
  }
  PromptSegment s;
  s.kind = segment.kind;
  s.first_row = prompt.n_rows();
  missing = false;
  std::vector<int32_t> tokens = segment.tokens.value_or(std::vector<int32_t>{});
  const bool looked_up = is_looked_up(s.kind);
  if (is_wanted(segment)) {
    auto hit = look_up(segment, prompt, s);
    if (!hit.is_ok()) return hit.status().with_context(name);
    if (*hit) {
      if (!segment.tokens.has_value()) tokens = s.chunk->meta().tokens;
      ++prompt.n_hits;
    } else if (!segment.tokens.has_value()) {
      return make_error(BLEND_E_NOT_FOUND,
                        "%s: chunk %s is not in the store%s; give its tokens as well, so that it "
                        "can be computed",
                        name.c_str(), to_hex(s.id).c_str(),
                        s.late ? ", and the remote tier did not answer in time" : "");
    } else {
      s.id = {};
      missing = true;
      ++prompt.n_misses;
      if (s.late) ++prompt.n_late;
    }
  }
  if (looked_up && fuse_.policy == Policy::full) {
    // The chunk was opened only for its tokens.
    s.chunk.reset();
    s.record = RecordUse::none;
    s.id = {};
    s.source = Source::computed;
    prompt.n_hits = 0;
  }
  s.n_rows = static_cast<uint32_t>(tokens.size());
  if (tokens.size() > model_.context_length() - prompt.tokens.size()) {
    return make_error(BLEND_E_CONTEXT_LENGTH,
                      "%s: the prompt grows to %zu tokens or more; the model's context is %u",
                      name.c_str(), prompt.tokens.size() + tokens.size(), model_.context_length());
  }
  if (s.reused()) {
    s.exact = is_exact(prompt, s);
    s.record = use_of(prompt, s);
  }
  prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
  prompt.segments.push_back(std::move(s));
  return Status::ok();
}

DeferredChunk PromptBuilder::later_chunk(const Prompt& prompt, const PromptSegment& s,
                                         std::span<const int32_t> prefix) const {
  DeferredChunk chunk;
  chunk.meta = describe_chunk(model_, kv_dtype_, prefix, options_.tenant,
                              std::span(prompt.tokens).subspan(s.first_row, s.n_rows));
  chunk.prefix.assign(prefix.begin(), prefix.end());
  chunk.tenant = options_.tenant;
  return chunk;
}

void PromptBuilder::leave_for_later(Prompt& prompt, PromptSegment& s) const {
  prompt.later.push_back(later_chunk(prompt, s, prefix_of(prompt, s)));
  s.id = prompt.later.back().meta.id;
}

void PromptBuilder::leave_in_context(Prompt& prompt, size_t index) const {
  std::vector<size_t> places(prompt.segments.size());
  std::iota(places.begin(), places.end(), size_t{0});
  DeferredChunk chunk;
  chunk.contexts = texts_beside(prompt, index, places, {kContexts});
  if (chunk.contexts.empty()) return;
  chunk.prefix = options_.chunk_prefix;
  chunk.tenant = options_.tenant;
  chunk.is_miss = false;
  chunk.meta = describe_chunk(model_, kv_dtype_, options_.chunk_prefix, options_.tenant,
                              tokens_of(prompt, prompt.segments[index]), RecordKind::contextual);
  prompt.later.push_back(std::move(chunk));
}

DeferredChunk PromptBuilder::after_predecessor(const Prompt& prompt, size_t index,
                                               std::span<const int32_t> before) const {
  const PromptSegment& s = prompt.segments[index];
  const std::span<const int32_t> predecessor = before.subspan(options_.chunk_prefix.size());
  std::vector<size_t> places;  // what precedes it first, the nearest before the others
  for (size_t i = index; i-- > 0;) {
    if (prompt.segments[i].first_row + predecessor.size() < s.first_row) places.push_back(i);
  }
  for (size_t i = index + 1; i < prompt.segments.size(); ++i) places.push_back(i);
  const size_t wanted = passage_tokens(predecessor.size());
  const size_t room = model_.context_length() - before.size() - s.n_rows;
  auto texts = texts_beside(prompt, index, places, {kMostContexts, kPrecededPasses * wanted, room});
  if (texts.empty()) return later_chunk(prompt, s, before);
  DeferredChunk chunk;
  chunk.meta = describe_chunk(model_, kv_dtype_, before, options_.tenant, tokens_of(prompt, s),
                              RecordKind::preceded);
  chunk.prefix = options_.chunk_prefix;
  chunk.contexts = std::move(texts);
  chunk.predecessor.assign(predecessor.begin(), predecessor.end());
  chunk.tenant = options_.tenant;
  return chunk;
}

void PromptBuilder::leave_nearer_for_later(Prompt& prompt) const {
  if (model_.loaded() == nullptr) return;
  const auto queued = [&](const Sha256& id) {
    return std::any_of(prompt.later.begin(), prompt.later.end(),
                       [&](const DeferredChunk& other) { return other.meta.id == id; });
  };
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const PromptSegment& s = prompt.segments[i];
    if (!is_chunk(s) || s.exact) continue;
    const bool plain = s.record == RecordUse::head || s.record == RecordUse::alone;
    if (options_.after_head && (!s.reused() || plain)) leave_in_context(prompt, i);
    const std::vector<int32_t> before = preceding(prompt, i, s.first_row);
    const bool first = before.size() == s.first_row;  // nothing else precedes it
    const bool fits = before.size() + s.n_rows <= model_.context_length();
    if (before.empty() || !fits) continue;
    if (s.record == RecordUse::contextual && says_little(before.size(), s)) continue;
    DeferredChunk chunk =
        first ? later_chunk(prompt, s, before) : after_predecessor(prompt, i, before);
    if (queued(chunk.meta.id) || chunk.meta.id == s.id) continue;
    // The head record of a chunk is useful to every prompt that begins with the chunk.
    chunk.when_seen_twice = !(first && is_opening(before));
    if (chunk.when_seen_twice && !options_.after_head) continue;
    chunk.is_miss = !chunk.when_seen_twice;
    prompt.later.push_back(std::move(chunk));
  }
}

bool PromptBuilder::is_opening(std::span<const int32_t> before) const {
  const std::vector<int32_t>& head = options_.chunk_prefix;
  if (std::equal(before.begin(), before.end(), head.begin(), head.end())) return true;
  return before.size() == 1 && before[0] == model_.loaded()->tokenizer().bos();
}

bool PromptBuilder::first_is_sooner(const Prompt& prompt, const PromptSegment& s) const {
  if (prefill_ == nullptr || model_.loaded() == nullptr) return false;
  return prefill_first_is_sooner(s.n_rows, prompt.n_rows(), fuse_.schedule, model_.config(),
                                 *prefill_);
}

Status PromptBuilder::precompute(size_t index, Prompt& prompt, const Watch& watch) {
  const Model* const model = model_.loaded();
  if (model == nullptr) {
    return {BLEND_E_INVALID_ARGUMENT,
            "it is missing, and a model that is only described cannot prefill it: choose "
            "BLEND_MISS_COMPUTE or BLEND_MISS_FAIL"};
  }
  PromptSegment& s = prompt.segments[index];
  const std::span<const int32_t> tokens = std::span(prompt.tokens).subspan(s.first_row, s.n_rows);
  const std::span<const int32_t> prefix = prefix_of(prompt, s);
  ChunkMeta meta = describe_chunk(model_, kv_dtype_, prefix, options_.tenant, tokens);
  s.id = meta.id;
  std::shared_ptr<const ChunkRecord> record;
  for (const auto& done : shared_->computed) {
    if (done->meta.id == meta.id) record = done;
  }
  if (record == nullptr) {
    const Watch cancel_only{watch.cancel, {}};
    BLEND_ASSIGN(record, precompute_chunk(*model, prefix, std::move(meta), cancel_only));
    shared_->computed.push_back(record);
    if (store_ != nullptr && write_back_) {
      // A store that refuses the chunk must not fail the prompt.
      const Status queued = store_->put_async(record);
      if (!queued.is_ok()) model_.runtime().log().write(BLEND_LOG_WARNING, "store", queued);
    }
  }
  s.chunk = make_memory_source(std::move(record));
  s.source = Source::precomputed;
  s.exact = is_exact(prompt, s);
  s.record = s.exact                         ? RecordUse::exact
             : options_.chunk_prefix.empty() ? RecordUse::alone
                                             : RecordUse::head;
  return Status::ok();
}

Status PromptBuilder::resolve_miss(size_t index, Prompt& prompt, const Watch& watch) {
  PromptSegment& s = prompt.segments[index];
  const std::string name = segment_name(index, s.kind);
  switch (fuse_.on_miss) {
    case OnMiss::fail:
      return {BLEND_E_NOT_FOUND,
              name + ": not in the store; precompute it, or choose another on_miss"};
    case OnMiss::compute:
      s.chunk.reset();
      s.exact = false;
      s.record = RecordUse::none;
      s.source = Source::computed;
      return Status::ok();
    case OnMiss::precompute:
      return precompute(index, prompt, watch).with_context(name);
    case OnMiss::compute_store:
      if (first_is_sooner(prompt, s)) return precompute(index, prompt, watch).with_context(name);
      s.chunk.reset();
      s.exact = false;
      s.record = RecordUse::none;
      s.source = Source::computed;
      leave_for_later(prompt, s);
      return Status::ok();
  }
  return {BLEND_E_INTERNAL, "unknown on_miss"};
}

Result<Prompt> PromptBuilder::build(const std::vector<Segment>& segments,
                                    std::span<const int32_t> resident, const Watch& watch) {
  BLEND_RETURN_IF_ERROR(check_order(segments, !resident.empty()));
  BLEND_RETURN_IF_ERROR(model_.check_tokens(options_.chunk_prefix, "chunk_prefix"));
  Prompt prompt;
  prompt.tokens.assign(resident.begin(), resident.end());
  prompt.n_resident = prompt.n_rows();
  BLEND_RETURN_IF_ERROR(expect(segments, prompt));
  std::vector<size_t> missing;
  for (size_t i = 0; i < segments.size(); ++i) {
    bool miss = false;
    BLEND_RETURN_IF_ERROR(resolve(segments[i], i, prompt, miss));
    if (miss) missing.push_back(i);
  }
  if (prompt.n_rows() == prompt.n_resident) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "the prompt has no tokens: give at least one segment "
                  "that is not empty"};
  }
  const Stopwatch clock;
  for (const size_t i : missing) BLEND_RETURN_IF_ERROR(resolve_miss(i, prompt, watch));
  if (fuse_.on_miss == OnMiss::compute_store && fuse_.policy != Policy::full) {
    leave_nearer_for_later(prompt);
  }
  prompt.miss_ns = clock.now_ns();
  return prompt;
}

Status PromptBuilder::replace_damaged(Prompt& prompt, size_t index, const Watch& watch) {
  --prompt.n_hits;
  ++prompt.n_misses;
  const Stopwatch clock;
  BLEND_RETURN_IF_ERROR(resolve_miss(index, prompt, watch));
  prompt.miss_ns += clock.now_ns();
  return Status::ok();
}

}  // namespace blend
