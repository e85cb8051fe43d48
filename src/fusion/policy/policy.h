// SelectionPolicy: which of the reused rows are computed on.
//
// At a check layer (CacheBlend 4.2-4.3) some rows are still candidates and a budget says how many
// go on. A policy says which. Policies know nothing of layers, caches or threads: they see what was
// measured there and rank rows, so that all of them can be compared at one budget and joined by
// union.
//
// registry.h lists them; each file of this folder says what its policy ranks by.
//
// `full`, `reuse` and `ape` choose nothing and are not policies in this sense; `ape` says how rows
// that are not chosen are attended to, and may join any other in a union.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "fusion/asked_layers.h"
#include "fusion/options.h"
#include "fusion/prompt.h"

namespace blend {

// What is known where rows are chosen. A view: valid during the call.
struct ChoicePoint {
  Backend& backend;
  const Prompt& prompt;
  uint32_t layer = 0;
  std::span<const float> deviation;  // [n_rows]; empty unless needed
  // Attention probability that the question's rows put on each row at this layer, or in the probe,
  // mean over rows, heads and the layers that were asked; [n_rows]; empty unless needed.
  std::span<const float> question_attention;
};

// Immutable; safe for concurrent use (a callback as far as the host's function is).
class SelectionPolicy {
 public:
  virtual ~SelectionPolicy() = default;
  virtual Needs needs() const = 0;
  // Exactly min(budget, candidates.size()) of `candidates` (rows, ascending); ascending.
  virtual Result<std::vector<uint32_t>> choose(const ChoicePoint& at,
                                               std::span<const uint32_t> candidates,
                                               size_t budget) const = 0;
};

// A policy that gives every candidate a score; the largest go on, ties to the earlier row.
class RankingPolicy : public SelectionPolicy {
 public:
  explicit RankingPolicy(Policy policy) : needs_(policy_entry(policy).needs) {}
  Needs needs() const final { return needs_; }
  Result<std::vector<uint32_t>> choose(const ChoicePoint& at, std::span<const uint32_t> candidates,
                                       size_t budget) const final;

 private:
  // scores: [candidates.size()]
  virtual Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
                       std::span<float> scores) const = 0;

  const Needs needs_;
};

// What makers read of a fuse.
struct PolicySettings {
  DeviationNorm norm = DeviationNorm::l2;
  bool weighed = true;  // kWeighs: deviations are, by the attention to the row
  uint64_t seed = 0;
  ScoreFn score = {};
};

// make_MEMBER() for each row of the registry that ranks; each file of this folder has its own.
#define BLEND_DECLARE(member, code, name, needs, traits) \
  std::unique_ptr<SelectionPolicy> make_##member(const PolicySettings& settings);
#define BLEND_NONE(member, code, name, needs, traits)
BLEND_POLICIES(BLEND_DECLARE, BLEND_NONE)
#undef BLEND_DECLARE
#undef BLEND_NONE

// The policy; null for one that ranks nothing by itself. INVALID_ARGUMENT: a callback policy
// without a callback.
Result<std::unique_ptr<SelectionPolicy>> make_policy(Policy policy, const PolicySettings& settings);

struct UnionTerm {
  std::unique_ptr<SelectionPolicy> policy;
  double share = 1;  // > 0
};
std::unique_ptr<SelectionPolicy> make_union(std::vector<UnionTerm> terms);

// The attention that a row of a reused chunk gets inside it; where that is not known, what it would
// get if every row attended evenly to all that it sees.
float attention_inside(const PromptSegment& s, uint32_t row);

// `policy`, with what `options` say of it; null for what chooses nothing: full, reuse, ape, a union
// of ape alone. INVALID_ARGUMENT for what does not go together: a union without terms or of unions,
// a callback policy without a callback.
Result<std::unique_ptr<SelectionPolicy>> make_selection_policy(Policy policy,
                                                               const FuseOptions& options);

// Whether rows that keep their stored K, V are attended to at a temperature: APE, alone or in a
// union.
bool tempers(Policy policy, const FuseOptions& options);

}  // namespace blend
