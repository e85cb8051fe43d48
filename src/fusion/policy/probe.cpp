// probe: the rows that the question asks for and that lean on the text before their chunk.
//
// The question's own rows go through layers 0 and 1 over the stored rows first, which costs next to
// nothing: what they attend to at layer 1 is known before a single row of a chunk is computed. With
// what chunks keep (engine/context_impact.h) the score is sqrt(question * inside) * outside: read,
// by the question and by its own chunk, and hanging on what stood before. That the question's
// attention chooses better than deviations at one layer is ProphetKV's finding (arXiv 2602.02579).
//
// cascade: probe lets a few through before layer 0; of these the deviation at the check layer,
// times how much they are read, chooses those that go on. Layer 0 is computed for the few alone.
#include <cmath>

#include "fusion/policy/policy.h"

namespace blend {
namespace {

// Calls fn(i, row statistics, question's attention) for each candidate.
template <typename Fn>
Status for_each_read(const ChoicePoint& at, std::span<const uint32_t> candidates, const Fn& fn) {
  size_t i = 0;
  for (const PromptSegment& s : at.prompt.segments) {
    if (i < candidates.size() && candidates[i] < s.first_row + s.n_rows && !s.has_impact()) {
      return make_error(BLEND_E_NOT_FOUND,
                        "chunk %s was stored without its rows' context impact: precompute it "
                        "anew, or choose another policy",
                        to_hex(s.id).c_str());
    }
    for (; i < candidates.size() && candidates[i] < s.first_row + s.n_rows; ++i) {
      const RowImpact& row = s.chunk->meta().impact[candidates[i] - s.first_row];
      fn(i, row, at.question_attention[candidates[i]]);
    }
  }
  return Status::ok();
}

class Probe final : public RankingPolicy {
 public:
  Needs needs() const override { return {.probe = true}; }

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    return for_each_read(at, candidates, [&](size_t i, const RowImpact& row, float question) {
      scores[i] = std::sqrt(question * row.inside) * row.outside;
    });
  }
};

class Cascade final : public RankingPolicy {
 public:
  explicit Cascade(DeviationNorm norm) : norm_(norm) {}
  Needs needs() const override { return {.deviation = true, .probe = true}; }

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    return for_each_read(at, candidates, [&](size_t i, const RowImpact& row, float question) {
      const float read = std::sqrt(question * row.inside);
      if (at.layer == 0) {
        scores[i] = read * row.outside;
        return;
      }
      const float deviation = at.deviation[candidates[i]];
      scores[i] = read * (norm_ == DeviationNorm::l2 ? std::sqrt(deviation) : deviation);
    });
  }

  const DeviationNorm norm_;
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_probe() { return std::make_unique<Probe>(); }

std::unique_ptr<SelectionPolicy> make_cascade(DeviationNorm norm) {
  return std::make_unique<Cascade>(norm);
}

}  // namespace blend
