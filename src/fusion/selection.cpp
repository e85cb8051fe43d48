#include "fusion/selection.h"

#include <algorithm>
#include <optional>

namespace blend {
namespace {

// "BLEND_POLICY_PROBE, ...": those that ask the question before layer 0.
std::string asking_policies() {
  return policy_list([](const PolicyEntry& e) { return e.needs.probe(); }, " and ",
                     "BLEND_POLICY_");
}

// Share of the reused rows that the cascade's probe lets through, of which `ratio` goes on.
double let_through(double ratio) { return std::min(1.0, std::max(0.15, 2 * ratio)); }

Result<Schedule> schedule_of(const SelectionPolicy* policy, const FuseOptions& options,
                             uint32_t n_layers) {
  if (policy == nullptr) {
    if (options.check_layers.empty()) return Schedule{};
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "check_layers are given, but the policy chooses no rows at any layer"};
  }
  const bool probes = policy->needs().probe(), measures = !policy->needs().nothing() && !probes;
  if (!options.check_layers.empty()) {
    BLEND_RETURN_IF_ERROR(check_schedule(options.check_layers, measures ? 1 : 0, n_layers));
    if (probes && options.check_layers.front().layer != 0) {
      return Status{BLEND_E_INVALID_ARGUMENT,
                    "check_layers 0: with " + asking_policies() +
                        " the first is 0: that is where the question chooses"};
    }
    return options.check_layers;
  }
  if (probes && n_layers < 2) {
    return Status{BLEND_E_UNSUPPORTED,
                  asking_policies() +
                      " need a model of two layers or more, and this one has one: choose another "
                      "policy"};
  }
  if (probes && !policy->needs().deviation) {
    return Schedule{{0, options.ratio.ratio()}};
  }
  if (!measures && !probes) return Schedule{{0, options.ratio.ratio()}};
  // Layer 0's K, V depend on no other row: there is no deviation to measure, and in a model of one
  // layer nothing to choose for. Its check layer would be the one behind the last.
  if (n_layers == 1) return Schedule{{1, options.ratio.ratio()}};
  if (options.check_layer < 1 || options.check_layer >= n_layers) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "check_layer %u must lie in 1 .. %u for this model",
                      options.check_layer, n_layers - 1);
  }
  if (probes) {
    return Schedule{{0, let_through(options.ratio.ratio())},
                    {options.check_layer, options.ratio.ratio()}};
  }
  return Schedule{{options.check_layer, options.ratio.ratio()}};
}

// The check at which the drift maps may begin: the first that measures. Null: none.
const CheckLayer* first_measured(const Schedule& schedule) {
  for (const CheckLayer& check : schedule) {
    if (check.layer > 0) return &check;
  }
  return schedule.empty() ? nullptr : &schedule.front();
}

Status check_drift(const FuseOptions& o, const SelectionPolicy* policy, const Schedule& schedule) {
  if (o.drift == nullptr || !o.drift_required) return Status::ok();
  if (policy != nullptr && policy->needs().asks == Asks::middle) {
    return {BLEND_E_INVALID_ARGUMENT,
            "BLEND_POLICY_ATTENTION reads the rows as they are stored up to the middle layers, so "
            "they are not corrected: leave the correction AUTO or OFF, or choose CASCADE or HKVD"};
  }
  const CheckLayer* const first = first_measured(schedule);
  if (first != nullptr && first->layer == o.drift->check_layer()) return Status::ok();
  if (o.stored_drift != nullptr && !schedule.empty() && schedule.front().layer == 0) {
    return Status::ok();
  }
  return make_error(BLEND_E_INVALID_ARGUMENT,
                    "BLEND_CORRECTION_ON needs a policy whose first check layer is %u, where the "
                    "drift maps were fitted",
                    o.drift->check_layer());
}

}  // namespace

Selection::Selection(Backend& backend, const FuseOptions& options, uint32_t n_layers)
    : backend_(backend),
      n_layers_(n_layers),
      rule_(options.deviation),
      drift_(options.drift),
      stored_drift_(options.stored_drift),
      own_schedule_(!options.check_layers.empty()),
      ratio_(options.ratio) {}

Result<std::unique_ptr<Selection>> Selection::create(Backend& backend, const FuseOptions& options,
                                                     uint32_t n_layers) {
  std::unique_ptr<Selection> s(new Selection(backend, options, n_layers));
  BLEND_ASSIGN(s->policy_, make_selection_policy(options));
  BLEND_ASSIGN(s->schedule_, schedule_of(s->policy_.get(), options, n_layers));
  BLEND_RETURN_IF_ERROR(check_drift(options, s->policy_.get(), s->schedule_));
  return s;
}

// ---- Before the prompt's rows are known

double Selection::mean_ratio() const {
  return own_schedule_ ? blend::mean_ratio(schedule_, n_layers_) : ratio_.ratio();
}

void Selection::choose_ratio(const KnownCosts& known, Prompt& prompt) {
  if (schedule_.empty() || own_schedule_) return;
  const auto at = [this](double ratio) {
    Schedule schedule = schedule_;
    schedule.back().ratio = ratio;
    if (schedule.size() > 1) schedule.front().ratio = let_through(ratio);
    return schedule;
  };
  const bool corrects =
      drift_ != nullptr && first_measured(schedule_)->layer == drift_->check_layer();
  std::optional<uint32_t> asks_upto;
  if (needs().probe()) asks_upto = asked().last;
  choose_by_cost(known, {at, asks_upto, first_stored_layer(corrects)}, prompt, ratio_);
  schedule_ = at(ratio_.ratio());
}

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
  rows_ = classify_rows(prompt, policy_ != nullptr);
  choosing_ = !rows_.candidates.empty();
  const bool reads_stored = needs().asks == Asks::middle;  // up to there nothing may be corrected
  corrects_ = choosing_ && drift_ != nullptr && !reads_stored &&
              first_measured(schedule_)->layer == drift_->check_layer();
  corrects_left_ = choosing_ && stored_drift_ != nullptr && schedule_.front().layer == 0 &&
                   !reads_stored &&
                   std::all_of(prompt.segments.begin(), prompt.segments.end(),
                               [](const PromptSegment& s) { return !s.stale() || s.has_impact(); });
  next_check_ = 0;
  undecided_ = rows_.candidates;
  measured_ = false;
  probe_.clear();
  unasked_ = needs().probe() && choosing_ && asking == Asking::where_it_matters &&
             !asking_matters(schedule_, rows_.n_reused, rows_.candidates.size());
  active_ = probes() ? rows_.always : merge_rows(rows_.always, undecided_);
  selected_.clear();
  deviation_.assign(prompt.n_rows(), 0.0f);
  return chooses_at(0) ? choose({}, {}) : Status::ok();
}

uint32_t Selection::first_stored_layer() const {
  return choosing_ ? first_stored_layer(corrects_) : 0;
}

uint32_t Selection::first_stored_layer(bool corrects) const {
  if (needs().probe()) return 0;  // nothing waits for fresh K, V
  const uint32_t first = schedule_.front().layer;
  // Up to the first check layer every row keeps its fresh K, V; a measurement there needs the
  // stored ones too.
  const bool measures = corrects || !policy_->needs().nothing();
  return measures || first == 0 ? first : first + 1;
}

std::vector<uint64_t> Selection::expected_rows() const {
  uint64_t chosen = undecided_.size();
  size_t next = next_check_;
  const bool asks = probes();
  if (asks) chosen = recompute_budget(schedule_[next++].ratio, rows_.n_reused);
  std::vector<uint64_t> rows(n_layers_);
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    if (asks && layer <= asked().last) {
      // The rows that ask; once they have, all layers so far with the rows that were let through.
      rows[layer] = rows_.always.size();
      if (layer == asked().last) rows[layer] += (layer + 1) * (rows_.always.size() + chosen);
      continue;
    }
    while (is_left(next) && schedule_[next].layer < layer) {
      chosen =
          std::min<uint64_t>(chosen, recompute_budget(schedule_[next++].ratio, rows_.n_reused));
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
  return is_left(next_check_) ? std::min(schedule_[next_check_].layer, last) : last;
}

// ---- A check layer

bool Selection::chooses_at(uint32_t layer) const {
  return is_left(next_check_) && schedule_[next_check_].layer == layer && !probes();
}

Result<std::vector<float>> Selection::measure(Tensor kv, std::span<const StoredRun> runs) const {
  std::vector<float> measured(active_.size(), 0.0f);
  BLEND_RETURN_IF_ERROR(backend_.deviation(kv, runs, rule_, measured.data()));
  std::vector<float> deviation(prompt_->n_rows(), 0.0f);
  for (size_t i = 0; i < active_.size(); ++i) deviation[active_[i]] = measured[i];
  return deviation;
}

Status Selection::choose(std::span<const float> deviation,
                         std::span<const float> question_attention) {
  const CheckLayer& check = schedule_[next_check_];
  if (probes()) probe_.assign(question_attention.begin(), question_attention.end());
  if (!probe_.empty()) question_attention = probe_;
  const ChoicePoint at{backend_, *prompt_, check.layer, deviation, question_attention};
  const size_t budget = recompute_budget(check.ratio, rows_.n_reused);
  if (!unasked_) {
    BLEND_ASSIGN(undecided_, policy_->choose(at, undecided_, budget));
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
