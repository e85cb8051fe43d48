#include "fusion/select/selection.h"

#include <algorithm>

#include "control/pass_cost.h"

namespace blend {

Status Selection::check_prompt() const {
  if (!needs().question_attention && !needs().probe()) return Status::ok();
  const PromptSegment& last = prompt_->segments.back();
  if (last.kind == SegmentKind::question && last.n_rows > 0) return Status::ok();
  return {BLEND_E_INVALID_ARGUMENT,
          "a policy that asks what the question attends to needs a prompt whose last segment is a "
          "question with tokens"};
}

Status Selection::begin(const Prompt& prompt, Asking asking) {
  prompt_ = &prompt;
  BLEND_RETURN_IF_ERROR(check_prompt());
  rows_ = classify_rows(prompt, fuse_.ranking != nullptr);
  choosing_ = !rows_.candidates.empty();
  const bool reads_stored = needs().asks == Asks::middle;  // up to there nothing may be corrected
  corrects_ = choosing_ && !reads_stored && fuse_.has_drift_for_schedule();
  corrects_left_ = choosing_ && fuse_.stored_drift != nullptr && schedule().front().layer == 0 &&
                   !reads_stored &&
                   std::all_of(prompt.segments.begin(), prompt.segments.end(),
                               [](const PromptSegment& s) { return !s.stale() || s.has_impact(); });
  next_check_ = 0;
  undecided_ = rows_.candidates;
  measured_ = false;
  probe_.clear();
  unasked_ = needs().probe() && choosing_ && asking == Asking::where_it_matters &&
             !asking_matters(schedule(), rows_.n_reused, rows_.candidates.size());
  active_ = probes() ? rows_.always : merge_rows(rows_.always, undecided_);
  selected_.clear();
  deviation_.assign(prompt.n_rows(), 0.0f);
  return chooses_at(0) ? choose({}, {}) : Status::ok();
}

uint32_t Selection::first_stored_layer() const {
  return choosing_ ? fuse_.first_stored_layer(corrects_) : 0;
}

std::vector<uint64_t> Selection::expected_rows() const {
  uint64_t chosen = undecided_.size();
  size_t next = next_check_;
  const bool asks = probes();
  if (asks) chosen = recompute_budget(schedule()[next++].ratio, rows_.n_reused);
  std::vector<uint64_t> rows(n_layers_);
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    if (asks && layer <= asked().last) {
      // The rows that ask; once they have, all layers so far with the rows that were let through.
      rows[layer] = rows_.always.size();
      if (layer == asked().last) rows[layer] += (layer + 1) * (rows_.always.size() + chosen);
      continue;
    }
    while (is_left(next) && schedule()[next].layer < layer) {
      chosen =
          std::min<uint64_t>(chosen, recompute_budget(schedule()[next++].ratio, rows_.n_reused));
    }
    rows[layer] = rows_.always.size() + chosen;
  }
  return rows;
}

std::vector<uint8_t> Selection::computed(size_t n) const {
  std::vector<uint8_t> mask(n, 0);
  for (const uint32_t row : active_) mask[row] = 1;
  return mask;
}

uint32_t Selection::decided_upto() const {
  const uint32_t last = n_layers_ - 1;
  if (probes()) return asked().last;
  return is_left(next_check_) ? std::min(schedule()[next_check_].layer, last) : last;
}

// ---- A check layer

bool Selection::chooses_at(uint32_t layer) const {
  return is_left(next_check_) && schedule()[next_check_].layer == layer && !probes();
}

Result<std::vector<float>> Selection::measure(Tensor kv, std::span<const StoredRun> runs) const {
  std::vector<float> measured(active_.size(), 0.0f);
  BLEND_RETURN_IF_ERROR(backend_.fusion().deviation(kv, runs, rule_, measured.data()));
  std::vector<float> deviation(prompt_->n_rows(), 0.0f);
  for (size_t i = 0; i < active_.size(); ++i) deviation[active_[i]] = measured[i];
  return deviation;
}

Status Selection::choose(std::span<const float> deviation,
                         std::span<const float> question_attention) {
  const CheckLayer& check = schedule()[next_check_];
  if (probes()) probe_.assign(question_attention.begin(), question_attention.end());
  if (!probe_.empty()) question_attention = probe_;
  const ChoicePoint at{backend_, *prompt_, check.layer, deviation, question_attention};
  const size_t budget = recompute_budget(check.ratio, rows_.n_reused);
  if (!unasked_) {
    BLEND_ASSIGN(undecided_, fuse_.ranking->choose(at, undecided_, budget));
  } else if (budget == 0) {
    undecided_.clear();
  }
  active_ = merge_rows(rows_.always, undecided_);
  selected_ = undecided_;
  if (!measured_ && !deviation.empty()) {
    measured_ = true;
    deviation_.assign(deviation.begin(), deviation.end());
  }
  ++next_check_;
  return Status::ok();
}

void Selection::leave_last_row() { active_.assign(1, prompt_->n_rows() - 1); }

}  // namespace blend
