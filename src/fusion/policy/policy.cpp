#include "fusion/policy/policy.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace blend {
namespace {

constexpr size_t kMaxTerms = 16;
constexpr double kMaxShare = 1e9;  // so that their sum is a number

// One that stands by itself, not a union.
Result<std::unique_ptr<SelectionPolicy>> make_single(Policy policy, const FuseOptions& options) {
  switch (policy) {
    case Policy::hkvd:
      return options.weighed ? make_weighed_hkvd(options.deviation.norm) : make_hkvd();
    case Policy::first_k:
      return make_first_k();
    case Policy::random:
      return make_random(options.seed);
    case Policy::question:
      return options.weighed ? make_weighed_question(options.deviation.norm) : make_question();
    case Policy::callback:
      if (!options.score) {
        return Status{BLEND_E_INVALID_ARGUMENT,
                      "BLEND_POLICY_CALLBACK needs a score callback; set `score`"};
      }
      return make_callback(options.score);
    case Policy::context_impact:
      return make_context_impact();
    case Policy::probe:
      return make_probe();
    case Policy::cascade:
      return make_cascade(options.deviation.norm);
    case Policy::attention:
      return make_attention();
    case Policy::full:
    case Policy::reuse:
    case Policy::ape:
    case Policy::combined:
    case Policy::automatic:  // resolved before (options.h)
      break;
  }
  return std::unique_ptr<SelectionPolicy>();
}

Result<std::unique_ptr<SelectionPolicy>> make_combined(const FuseOptions& options) {
  if (options.terms.empty() || options.terms.size() > kMaxTerms) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "BLEND_POLICY_UNION needs 1 to %zu terms; %zu were given", kMaxTerms,
                      options.terms.size());
  }
  const auto any = [&](std::initializer_list<Policy> of) {
    return std::any_of(options.terms.begin(), options.terms.end(), [&](const PolicyTerm& term) {
      return std::find(of.begin(), of.end(), term.policy) != of.end();
    });
  };
  const bool early = any({Policy::probe, Policy::cascade}), middle = any({Policy::attention});
  if (early && middle) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "ATTENTION asks the question in the middle layers, PROBE and CASCADE at layer 1: "
                  "a union asks once, so join it with one or the others"};
  }
  std::vector<UnionTerm> terms;
  for (size_t i = 0; i < options.terms.size(); ++i) {
    const PolicyTerm& term = options.terms[i];
    if (!(term.share > 0 && term.share <= kMaxShare)) {  // NaN fails too
      return make_error(BLEND_E_INVALID_ARGUMENT, "term %zu: share %g must lie in (0, %g]", i,
                        term.share, kMaxShare);
    }
    if (term.policy == Policy::ape) continue;  // it asks for no rows, so its share is the others'
    BLEND_ASSIGN(auto policy, make_single(term.policy, options));
    if (policy == nullptr) {
      return make_error(
          BLEND_E_INVALID_ARGUMENT,
          "term %zu: policy %u chooses no rows of its own; a union joins HKVD, "
          "FIRST_K, RANDOM, QUESTION, CALLBACK, CONTEXT_IMPACT, APE, PROBE, CASCADE and ATTENTION",
          i, static_cast<uint32_t>(term.policy));
    }
    if ((early || middle) && !policy->needs().nothing() && !policy->needs().probe()) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "term %zu: policy %u measures at a check layer, and with PROBE, CASCADE or "
                        "ATTENTION every term chooses before layer 0: choose FIRST_K, RANDOM or "
                        "CONTEXT_IMPACT beside them, or leave them out",
                        i, static_cast<uint32_t>(term.policy));
    }
    terms.push_back({std::move(policy), term.share});
  }
  if (terms.empty()) return std::unique_ptr<SelectionPolicy>();  // APE alone
  return make_union(std::move(terms));
}

}  // namespace

bool tempers(const FuseOptions& options) {
  const auto is_ape = [](const PolicyTerm& term) { return term.policy == Policy::ape; };
  return options.policy == Policy::ape ||
         (options.policy == Policy::combined &&
          std::any_of(options.terms.begin(), options.terms.end(), is_ape));
}

float attention_inside(const PromptSegment& s, uint32_t row) {
  if (s.has_impact()) return s.chunk->meta().impact[row].inside;
  float sum = 0;
  for (uint32_t reader = row; reader < s.n_rows; ++reader) {
    sum += 1.0f / static_cast<float>(reader + 1);
  }
  return sum / static_cast<float>(s.n_rows - row);
}

size_t recompute_budget(double ratio, size_t n_reused) {
  const double rows = ratio * static_cast<double>(n_reused);
  return static_cast<size_t>(std::ceil(rows - 1e-9 * (1.0 + rows)));
}

Result<std::vector<uint32_t>> RankingPolicy::choose(const ChoicePoint& at,
                                                    std::span<const uint32_t> candidates,
                                                    size_t budget) const {
  const size_t k = std::min(budget, candidates.size());
  std::vector<float> scores(candidates.size());
  BLEND_RETURN_IF_ERROR(score(at, candidates, scores));
  std::vector<uint32_t> picked(k);
  BLEND_RETURN_IF_ERROR(at.backend.top_k(scores, k, picked.data()));
  for (uint32_t& index : picked) index = candidates[index];
  return picked;
}

Result<std::unique_ptr<SelectionPolicy>> make_selection_policy(const FuseOptions& options) {
  if (options.policy == Policy::combined) return make_combined(options);
  if (!options.terms.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "terms are given, but the policy is not BLEND_POLICY_UNION"};
  }
  return make_single(options.policy, options);
}

}  // namespace blend
