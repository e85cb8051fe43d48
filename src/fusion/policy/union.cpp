// union: several policies, each with its share of one budget.
//
// Terms choose in the order in which they were given. A row that an earlier term took is no longer
// a candidate, so a later term goes further down its own list. So the budget is met exactly, and
// every row was chosen by the term from whose share it is.
//
// With a term that probes, all terms choose before layer 0. If one of them measures (cascade), all
// choose again at the check layer, among the rows that are left; the others by their earlier
// scores.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "fusion/policy/policy.h"

namespace blend {
namespace {

class Union final : public SelectionPolicy {
 public:
  explicit Union(std::vector<UnionTerm> terms) : terms_(std::move(terms)) {}

  Needs needs() const override {
    Needs all;
    for (const UnionTerm& term : terms_) {
      const Needs needs = term.policy->needs();
      all.deviation = all.deviation || needs.deviation;
      all.question_attention = all.question_attention || needs.question_attention;
      if (needs.probe()) all.asks = needs.asks;  // of all terms the same (policy.cpp)
    }
    return all;
  }

  Result<std::vector<uint32_t>> choose(const ChoicePoint& at, std::span<const uint32_t> candidates,
                                       size_t budget) const override {
    std::vector<uint32_t> left(candidates.begin(), candidates.end());
    std::vector<uint32_t> chosen;
    const std::vector<size_t> parts = split(std::min(budget, candidates.size()));
    for (size_t i = 0; i < terms_.size(); ++i) {
      BLEND_ASSIGN(const std::vector<uint32_t> picked,
                   terms_[i].policy->choose(at, left, parts[i]));
      std::vector<uint32_t> rest, joined;
      std::set_difference(left.begin(), left.end(), picked.begin(), picked.end(),
                          std::back_inserter(rest));
      std::merge(chosen.begin(), chosen.end(), picked.begin(), picked.end(),
                 std::back_inserter(joined));
      left = std::move(rest);
      chosen = std::move(joined);
    }
    return chosen;
  }

 private:
  // Rounds the running sum of the shares, so that the parts always add up to the budget.
  std::vector<size_t> split(size_t budget) const {
    double total = 0;
    for (const UnionTerm& term : terms_) total += term.share;
    std::vector<size_t> parts;
    double sum = 0;
    size_t given = 0;
    for (size_t i = 0; i < terms_.size(); ++i) {
      sum += terms_[i].share;
      const double upto = sum / total * static_cast<double>(budget);
      const size_t end = i + 1 == terms_.size()
                             ? budget
                             : std::min(budget, static_cast<size_t>(std::llround(upto)));
      parts.push_back(end - given);
      given = end;
    }
    return parts;
  }

  std::vector<UnionTerm> terms_;
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_union(std::vector<UnionTerm> terms) {
  return std::make_unique<Union>(std::move(terms));
}

}  // namespace blend
