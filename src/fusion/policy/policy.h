// SelectionPolicy: which of the reused rows are computed on.
//
// At a check layer (CacheBlend 4.2-4.3) some rows are still candidates and a budget says how many
// go on. A policy says which. Policies know nothing of layers, caches or threads: they see what was
// measured there and rank rows, so that all of them can be compared at one budget and joined by
// union.
//
//   hkvd      the rows of highest KV deviation (CacheBlend 4.2), or weighed by who attends to them
//   first_k   the first rows of every chunk (EPIC, LegoLink): no measurement
//   random    any rows, by a seed: the control of the others
//   question  deviation, weighted by how much the question attends to the row
//   callback  scores that the host gives
//   impact    how much the row leaned on what stood before its chunk when that was precomputed
//             (Cache-Craft): statistics kept with the chunk, no measurement
//   probe     what the question attends to over the stored rows, before any of them is computed
//   cascade   probe lets a few through, of which deviation chooses
//   attention what the question attends to in the middle layers, over the stored rows
//   union     several of these, each with its share of the budget
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

// What a policy wants to know at a check layer. One that wants nothing may choose before layer 0,
// so that the rows it leaves out are never computed at all.
struct Needs {
  bool deviation = false;
  bool question_attention = false;  // at each check layer
  // The question's attention over the stored rows, before layer 0; a choice there is the first.
  Asks asks = Asks::nothing;

  bool probe() const { return asks != Asks::nothing; }
  bool nothing() const { return !deviation && !question_attention && !probe(); }
};

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
  Result<std::vector<uint32_t>> choose(const ChoicePoint& at, std::span<const uint32_t> candidates,
                                       size_t budget) const final;

 private:
  // scores: [candidates.size()]
  virtual Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
                       std::span<float> scores) const = 0;
};

// The attention that a row of a reused chunk gets inside it; where that is not known, what it would
// get if every row attended evenly to all that it sees.
float attention_inside(const PromptSegment& s, uint32_t row);

// ceil(ratio * n_reused): the number of rows the budget pays for. A product that is whole but for
// rounding is not rounded up.
size_t recompute_budget(double ratio, size_t n_reused);

// The policy that `options` ask for; null for what chooses nothing: full, reuse, ape, a union of
// ape alone. INVALID_ARGUMENT for what does not go together: a union without terms or of unions, a
// callback policy without a callback.
Result<std::unique_ptr<SelectionPolicy>> make_selection_policy(const FuseOptions& options);

// Whether rows that keep their stored K, V are attended to at a temperature: APE, alone or in a
// union.
bool tempers(const FuseOptions& options);

// One of each kind, for make_selection_policy and the tests.
std::unique_ptr<SelectionPolicy> make_hkvd();
std::unique_ptr<SelectionPolicy> make_weighed_hkvd(DeviationNorm norm);
std::unique_ptr<SelectionPolicy> make_first_k();
std::unique_ptr<SelectionPolicy> make_random(uint64_t seed);
std::unique_ptr<SelectionPolicy> make_question();
std::unique_ptr<SelectionPolicy> make_weighed_question(DeviationNorm norm);
std::unique_ptr<SelectionPolicy> make_context_impact();
std::unique_ptr<SelectionPolicy> make_probe();
std::unique_ptr<SelectionPolicy> make_cascade(DeviationNorm norm);
std::unique_ptr<SelectionPolicy> make_attention();
std::unique_ptr<SelectionPolicy> make_callback(ScoreFn score);
struct UnionTerm {
  std::unique_ptr<SelectionPolicy> policy;
  double share = 1;  // > 0
};
std::unique_ptr<SelectionPolicy> make_union(std::vector<UnionTerm> terms);

}  // namespace blend
