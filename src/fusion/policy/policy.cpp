#include "fusion/policy/policy.h"

#include <algorithm>

namespace blend {
namespace {

constexpr size_t kMaxTerms = 16;
constexpr double kMaxShare = 1e9;  // so that their sum is a number

PolicySettings settings_of(const FuseOptions& options) {
  return {options.deviation.norm, options.weighed, options.seed, options.score};
}

Status asks_twice() {
  const auto at = [](Asks asks) {
    return policy_list([=](const PolicyEntry& e) { return e.needs.asks == asks; });
  };
  return {BLEND_E_INVALID_ARGUMENT,
          at(Asks::middle) + " asks the question in the middle layers, " + at(Asks::early) +
              " at layer 1: a union asks once, so join it with one or the others"};
}

Status ranks_nothing(size_t term, Policy policy) {
  return make_error(
      BLEND_E_INVALID_ARGUMENT, "term %zu: policy %u chooses no rows of its own; a union joins %s",
      term, static_cast<uint32_t>(policy),
      policy_list([](const PolicyEntry& e) { return e.has(policy_table::kJoins); }).c_str());
}

Status measures_too_late(size_t term, Policy policy) {
  return make_error(
      BLEND_E_INVALID_ARGUMENT,
      "term %zu: policy %u measures at a check layer, and with %s every term chooses before "
      "layer 0: choose %s beside them, or leave them out",
      term, static_cast<uint32_t>(policy),
      policy_list([](const PolicyEntry& e) { return e.needs.probe(); }, " or ").c_str(),
      policy_list([](const PolicyEntry& e) { return e.ranks && e.needs.nothing(); }, " or ")
          .c_str());
}

Result<std::unique_ptr<SelectionPolicy>> make_combined(const FuseOptions& options) {
  if (options.terms.empty() || options.terms.size() > kMaxTerms) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "BLEND_POLICY_UNION needs 1 to %zu terms; %zu were given", kMaxTerms,
                      options.terms.size());
  }
  const auto any = [&](Asks asks) {
    return std::any_of(options.terms.begin(), options.terms.end(), [&](const PolicyTerm& term) {
      return policy_entry(term.policy).needs.asks == asks;
    });
  };
  const bool early = any(Asks::early), middle = any(Asks::middle);
  if (early && middle) return asks_twice();
  const PolicySettings settings = settings_of(options);
  std::vector<UnionTerm> terms;
  for (size_t i = 0; i < options.terms.size(); ++i) {
    const PolicyTerm& term = options.terms[i];
    if (!(term.share > 0 && term.share <= kMaxShare)) {  // NaN fails too
      return make_error(BLEND_E_INVALID_ARGUMENT, "term %zu: share %g must lie in (0, %g]", i,
                        term.share, kMaxShare);
    }
    if (term.policy == Policy::ape) continue;  // it recomputes no rows; the others get its share
    BLEND_ASSIGN(auto policy, make_policy(term.policy, settings));
    if (policy == nullptr) return ranks_nothing(i, term.policy);
    if ((early || middle) && !policy->needs().nothing() && !policy->needs().probe()) {
      return measures_too_late(i, term.policy);
    }
    terms.push_back({std::move(policy), term.share});
  }
  if (terms.empty()) return std::unique_ptr<SelectionPolicy>();  // APE alone
  return make_union(std::move(terms));
}

}  // namespace

Result<std::unique_ptr<SelectionPolicy>> make_policy(Policy policy,
                                                     const PolicySettings& settings) {
  if (policy == Policy::callback && !settings.score) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "BLEND_POLICY_CALLBACK needs a score callback; set `score`"};
  }
#define BLEND_MAKE(member, code, name, needs, traits) \
  if (policy == Policy::member) return make_##member(settings);
#define BLEND_NONE(member, code, name, needs, traits)
  BLEND_POLICIES(BLEND_MAKE, BLEND_NONE)
#undef BLEND_MAKE
#undef BLEND_NONE
  return std::unique_ptr<SelectionPolicy>();
}

bool tempers(Policy policy, const FuseOptions& options) {
  const auto is_ape = [](const PolicyTerm& term) { return term.policy == Policy::ape; };
  return policy == Policy::ape || (policy == Policy::combined &&
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

Result<std::vector<uint32_t>> RankingPolicy::choose(const ChoicePoint& at,
                                                    std::span<const uint32_t> candidates,
                                                    size_t budget) const {
  const size_t k = std::min(budget, candidates.size());
  std::vector<float> scores(candidates.size());
  BLEND_RETURN_IF_ERROR(score(at, candidates, scores));
  std::vector<uint32_t> picked(k);
  BLEND_RETURN_IF_ERROR(at.backend.fusion().top_k(scores, k, picked.data()));
  for (uint32_t& index : picked) index = candidates[index];
  return picked;
}

Result<std::unique_ptr<SelectionPolicy>> make_selection_policy(Policy policy,
                                                               const FuseOptions& options) {
  if (policy == Policy::combined) return make_combined(options);
  if (!options.terms.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "terms are given, but the policy is not BLEND_POLICY_UNION"};
  }
  return make_policy(policy, settings_of(options));
}

}  // namespace blend
