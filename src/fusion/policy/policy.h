// SelectionPolicy: chooses the reused rows that go on.
//
// At a check layer (CacheBlend 4.2-4.3) some rows are still candidates and a budget says how many
// go on. A policy says which. Policies know nothing of layers, caches or threads: they get the
// measurements of that layer and rank rows. So all of them can be compared at one budget, and
// combined in a union.
//
// registry.h lists them; each file of this folder describes how its policy ranks.
//
// `full`, `reuse` and `ape` choose no rows and are not policies in this sense. `ape` changes the
// attention to rows that are not chosen, and may join any other in a union.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "fusion/prompt/prompt.h"
#include "fusion/request/asked_layers.h"
#include "fusion/request/options.h"

namespace blend {

// The measurements at a choice. A view: valid during the call.
struct ChoicePoint {
  Backend& backend;
  const Prompt& prompt;
  uint32_t layer = 0;
  std::span<const float> deviation;  // [n_rows]; empty unless needed
  // Attention probability that the question's rows put on each row at this layer, or in the probe,
  // mean over rows, heads and the layers that were asked; [n_rows]; empty unless needed.
  std::span<const float> question_attention;
};

// Immutable; safe for concurrent use (a callback policy if the host's function is).
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

// Settings of a fuse that the makers read.
struct PolicySettings {
  DeviationNorm norm = DeviationNorm::l2;
  bool weighed = true;  // kWeighs: deviations are weighed by the attention to the row
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

// Makes the policy; null for one that ranks no rows by itself. INVALID_ARGUMENT: a callback policy
// without a callback.
Result<std::unique_ptr<SelectionPolicy>> make_policy(Policy policy, const PolicySettings& settings);

struct UnionTerm {
  std::unique_ptr<SelectionPolicy> policy;
  double share = 1;  // > 0
};
std::unique_ptr<SelectionPolicy> make_union(std::vector<UnionTerm> terms);

// The attention that a row of a reused chunk gets inside the chunk. If that is not known: what it
// would get if every row attended evenly to all rows that it sees.
float attention_inside(const PromptSegment& s, uint32_t row);

// Makes `policy` with its options; null for one that chooses no rows: full, reuse, ape, a union of
// ape alone. INVALID_ARGUMENT: a union without terms or of unions, a callback policy without a
// callback, or terms that cannot be combined.
Result<std::unique_ptr<SelectionPolicy>> make_selection_policy(Policy policy,
                                                               const FuseOptions& options);

// Whether attention to rows that keep their stored K, V is changed: APE, alone or in a union.
bool tempers(Policy policy, const FuseOptions& options);

}  // namespace blend
