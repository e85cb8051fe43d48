#include "fusion/pass.h"

#include <algorithm>

#include "fusion/account.h"
#include "fusion/checks.h"
#include "fusion/stored_rows.h"

namespace blend {

Pass::Pass(const std::shared_ptr<const Model>& model, const Plan& plan, const FuseOptions& options,
           const SelectionPolicy* policy, const Schedule& checks, const Stopwatch& clock,
           Fused& out)
    : model_(model),
      plan_(plan),
      options_(options),
      clock_(clock),
      out_(out),
      n_layers_(model->config().n_layers),
      rows_(classify_rows(plan, policy != nullptr)),
      policy_(rows_.candidates.empty() ? nullptr : policy),
      checks_(checks),
      undecided_(rows_.candidates),
      active_(merge_rows(rows_.always, rows_.candidates)) {}

// ---- Before the layers

bool Pass::corrects() const {
  return policy_ != nullptr && options_.drift != nullptr &&
         checks_.front().layer == options_.drift->check_layer();
}

uint32_t Pass::first_stored_layer() const {
  return corrects() ? checks_.front().layer : blend::first_stored_layer(policy_, checks_);
}

std::vector<uint64_t> Pass::expected_rows() const {
  uint64_t chosen = rows_.candidates.size();
  std::vector<uint64_t> rows(n_layers_);
  size_t next = 0;
  const auto choose = [&] {
    chosen = std::min<uint64_t>(chosen, recompute_budget(checks_[next++].ratio, rows_.n_reused));
  };
  if (policy_ != nullptr && checks_.front().layer == 0) choose();
  for (uint32_t i = 0; i < n_layers_; ++i) {
    if (policy_ != nullptr && next < checks_.size() && checks_[next].layer < i) choose();
    rows[i] = rows_.always.size() + chosen;
  }
  return rows;
}

Status Pass::prepare(LayerFeed::View& feed) {
  const uint64_t begin = clock_.now_ns();
  feed_ = &feed;
  const uint32_t n_rows = plan_.n_rows();
  const uint32_t room = model_->context_length() - n_rows;
  const uint32_t wanted = n_rows + std::min(options_.reserve_tokens, room);
  if (out_.sequence == nullptr) {
    BLEND_ASSIGN(out_.sequence, Sequence::create(model_, wanted));
  } else {
    BLEND_RETURN_IF_ERROR(out_.sequence->reserve(wanted));
  }
  out_.deviation.assign(n_rows, 0.0f);
  out_.selected.clear();
  out_.layers.assign(n_layers_, blend_layer_info{});
  const uint32_t slots = out_.sequence->capacity();
  computed_.assign(slots, 0);
  if (corrects()) {
    corrector_ = std::make_unique<Corrector>(model_->backend(), options_.drift,
                                             model_->config().kv_dim(), slots);
  }

  if (policy_ != nullptr && checks_.front().layer == 0) {
    BLEND_RETURN_IF_ERROR(check(checks_.front(), {}, nullptr, {}));
    active_ = merge_rows(rows_.always, undecided_);
    ++next_check_;
  }
  tempered_ = out_.sequence->tempered();
  if (tempers(options_)) tempered_.set(options_.ape_temperature, options_.ape_scale);
  mark_computed(0);

  BLEND_ASSIGN(forward_, Forward::create(*model_, static_cast<uint32_t>(active_.size())));
  forward_->temper(&tempered_);
  std::vector<int32_t> tokens;
  tokens.reserve(active_.size());
  for (const uint32_t row : active_) tokens.push_back(plan_.tokens[row]);
  x_ = forward_->x(static_cast<uint32_t>(active_.size()));
  BLEND_RETURN_IF_ERROR(forward_->embed(tokens.data(), x_));
  out_.info.prepare_ns += clock_.now_ns() - begin;
  return Status::ok();
}

// ---- One layer

Status Pass::acquire(uint32_t layer, const StagedLayer*& staged, blend_layer_info& account) {
  const uint64_t begin = clock_.now_ns();
  auto acquired = feed_->acquire(layer);
  account.wait_ns += clock_.now_ns() - begin;
  if (!acquired.is_ok()) return acquired.status();
  staged = *acquired;
  account_load(staged->load, account);
  out_.info.n_rows_from_memory = staged->load.memory_rows;
  out_.info.n_rows_from_device = staged->load.device_rows;
  out_.info.bytes_from_device += staged->load.device_bytes;
  return Status::ok();
}

std::vector<StoredRun> Pass::staged_runs(const StagedLayer& staged) const {
  return stored_runs(plan_, feed_->segments(), staged);
}

Status Pass::place(uint32_t layer, const StagedLayer& staged, blend_layer_info& account) {
  const uint64_t begin = clock_.now_ns();
  const std::vector<StoredRun> runs = staged_runs(staged);
  const Correction* correction = nullptr;
  if (corrector_ != nullptr && layer > corrector_->check_layer()) {
    BLEND_ASSIGN(correction, corrector_->at(layer));
    out_.info.n_rows_corrected = corrector_->n_rows();
    out_.info.correct_ns += clock_.now_ns() - begin;
  }
  BLEND_RETURN_IF_ERROR(model_->backend().place(out_.sequence->cache(), layer,
                                                out_.sequence->ropes().keys(layer), runs,
                                                computed_.data(), correction));
  account.rows_placed = rows_to_place(runs, computed_);
  account.place_ns = clock_.now_ns() - begin;
  return Status::ok();
}

Status Pass::layer(uint32_t layer, const Watch& watch) {
  Backend& b = model_->backend();
  KvCache& cache = out_.sequence->cache();
  const Ropes& ropes = out_.sequence->ropes();
  blend_layer_info& account = out_.layers[layer];
  account.layer = layer;
  account.compute_begin_ns = clock_.now_ns();

  // Fresh K, V first: what they need is here already, and the reader gains the time.
  const Tensor kv = forward_->kv(static_cast<uint32_t>(active_.size()));
  BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x_, kv, watch));
  BLEND_RETURN_IF_ERROR(b.write_kv(cache, layer, ropes.keys(layer), kv, active_.data()));
  account.rows_kv = active_.size();

  const StagedLayer* staged = nullptr;
  if (feed_->has(layer)) {
    BLEND_RETURN_IF_ERROR(acquire(layer, staged, account));
    BLEND_RETURN_IF_ERROR(place(layer, *staged, account));
  }
  // The rows that a check layer leaves out keep the fresh K, V they have there.
  if (policy_ != nullptr && next_check_ < checks_.size() && checks_[next_check_].layer == layer) {
    const uint64_t begin = clock_.now_ns();
    BLEND_RETURN_IF_ERROR(check(checks_[next_check_++], kv, staged, watch));
    account.select_ns = clock_.now_ns() - begin;
    out_.info.select_ns += account.select_ns;
    BLEND_RETURN_IF_ERROR(keep_rows(merge_rows(rows_.always, undecided_)));
    mark_computed(layer + 1);
    if (corrector_ != nullptr) BLEND_RETURN_IF_ERROR(corrector_->keep(computed_));
  }
  if (staged != nullptr) {
    BLEND_ASSIGN(std::unique_ptr<Fence> fence, b.fence());
    feed_->release(layer, std::move(fence));
  }

  // Behind the last layer only the last row's output is read.
  if (layer + 1 == n_layers_) BLEND_RETURN_IF_ERROR(keep_rows({plan_.n_rows() - 1}));
  BLEND_RETURN_IF_ERROR(forward_->finish_layer(layer, cache, ropes, x_, active_.data(), watch));
  account.rows_full = active_.size();
  account.compute_end_ns = clock_.now_ns();
  return Status::ok();
}

// ---- A check layer

std::vector<StoredRun> Pass::active_runs(const StagedLayer& staged) const {
  return stored_runs_among(plan_, feed_->segments(), staged, active_);
}

Status Pass::measure(Tensor kv, const StagedLayer& staged, std::vector<float>& deviation) {
  std::vector<float> measured(active_.size(), 0.0f);
  BLEND_RETURN_IF_ERROR(
      model_->backend().deviation(kv, active_runs(staged), options_.deviation, measured.data()));
  deviation.assign(plan_.n_rows(), 0.0f);
  for (size_t i = 0; i < active_.size(); ++i) deviation[active_[i]] = measured[i];
  return Status::ok();
}

Status Pass::weigh_by_question(uint32_t layer, std::vector<float>& attention, const Watch& watch) {
  const PlannedSegment& question = plan_.segments.back();
  // Its rows are always computed and stand last (see fuse()), so they are the last of x_.
  const size_t first = active_.size() - question.n_rows;
  attention.assign(plan_.n_rows(), 0.0f);
  return forward_->attention_mass(layer, out_.sequence->cache(), out_.sequence->ropes(),
                                  x_.slice(static_cast<int64_t>(first), question.n_rows),
                                  active_.data() + first, attention.data(), watch);
}

Status Pass::check(const Check& check, Tensor kv, const StagedLayer* staged, const Watch& watch) {
  const Needs needs = policy_->needs();
  if (corrector_ != nullptr && staged != nullptr && check.layer == corrector_->check_layer()) {
    BLEND_RETURN_IF_ERROR(corrector_->measure(kv, active_runs(*staged), active_));
  }
  std::vector<float> deviation;
  if (needs.deviation && staged != nullptr) {
    BLEND_RETURN_IF_ERROR(measure(kv, *staged, deviation));
    // The account shows what the first check layer saw: there every candidate was measured.
    if (&check == &checks_.front()) out_.deviation = deviation;
  }
  std::vector<float> attention;
  if (needs.question_attention) {
    BLEND_RETURN_IF_ERROR(weigh_by_question(check.layer, attention, watch));
  }
  const CheckPoint at{model_->backend(), plan_, check.layer, deviation, attention};
  const size_t budget = recompute_budget(check.ratio, rows_.n_reused);
  BLEND_ASSIGN(undecided_, policy_->choose(at, undecided_, budget));
  out_.selected = undecided_;
  return Status::ok();
}

Status Pass::keep_rows(std::vector<uint32_t> keep) {
  if (keep.size() == active_.size()) return Status::ok();
  std::vector<uint32_t> places;  // of the kept rows inside x_
  places.reserve(keep.size());
  size_t at = 0;
  for (const uint32_t row : keep) {
    while (active_[at] != row) ++at;
    places.push_back(static_cast<uint32_t>(at));
  }
  const Tensor kept = x_.slice(0, static_cast<int64_t>(keep.size()));
  BLEND_RETURN_IF_ERROR(model_->backend().gather(x_, places.data(), kept));
  x_ = kept;
  active_ = std::move(keep);
  return Status::ok();
}

void Pass::mark_computed(uint32_t layer) {
  std::fill(computed_.begin(), computed_.end(), uint8_t{0});
  for (const uint32_t row : active_) computed_[row] = 1;
  if (!tempers(options_) || layer == n_layers_) return;
  for (const PlannedSegment& s : plan_.segments) {
    for (uint32_t row = s.first_row; s.stale() && row < s.first_row + s.n_rows; ++row) {
      if (computed_[row] == 0) tempered_.add(row, layer);
    }
  }
}

// ---- Behind the layers

Status Pass::finish() {
  const uint64_t begin = clock_.now_ns();
  std::vector<float> logits(model_->config().n_vocab);
  BLEND_RETURN_IF_ERROR(forward_->logits(x_, logits.data()));
  out_.info.n_rows_tempered = tempered_.n_rows() - out_.sequence->tempered().n_rows();
  out_.sequence->set_filled(plan_.tokens, std::move(logits), std::move(tempered_));
  out_.info.n_rows_reused = rows_.n_reused;
  out_.info.n_rows_always = rows_.always.size();
  out_.info.n_rows_selected = out_.selected.size();
  out_.info.compute_ns += clock_.now_ns() - begin;
  return Status::ok();
}

}  // namespace blend
