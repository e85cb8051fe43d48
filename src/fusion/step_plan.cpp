#include "fusion/step_plan.h"

#include <unistd.h>

#include <algorithm>

#include "fusion/account.h"
#include "fusion/auto_ratio.h"
#include "fusion/checks.h"
#include "fusion/stored_rows.h"

namespace blend {

StepPlan::StepPlan(std::shared_ptr<const ModelDescription> model, std::shared_ptr<ChunkStore> store,
                   bool read_only, DType kv_dtype, FuseOptions options, Watch watch)
    : process_(getpid()),
      model_(std::move(model)),
      store_(std::move(store)),
      options_(std::move(options)),
      watch_(std::move(watch)),
      n_layers_(model_->config().n_layers),
      planner_(*model_, store_.get(), !read_only, kv_dtype, options_) {}

bool StepPlan::forked() const { return getpid() != process_; }

// ---- Before the layers

Result<std::unique_ptr<StepPlan>> StepPlan::create(std::shared_ptr<const ModelDescription> model,
                                                   std::shared_ptr<ChunkStore> store,
                                                   const std::shared_ptr<RateMeter>& reads,
                                                   bool read_only, DType kv_dtype,
                                                   const std::vector<Segment>& segments,
                                                   FuseOptions options, Watch watch) {
  BLEND_RETURN_IF_ERROR(check_options(store != nullptr, options));
  if (options.on_miss == OnMiss::compute_store) {
    return Status{BLEND_E_UNSUPPORTED,
                  "a plan does not store what the host computes: choose BLEND_MISS_COMPUTE and "
                  "blend_put_kv, or BLEND_MISS_PRECOMPUTE"};
  }
  if (model->loaded() == nullptr && options.policy != Policy::full &&
      options.on_miss == OnMiss::precompute) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "a model that is only described cannot prefill what is missing: set on_miss to "
                  "BLEND_MISS_COMPUTE or BLEND_MISS_FAIL"};
  }
  std::unique_ptr<StepPlan> p(new StepPlan(std::move(model), std::move(store), read_only, kv_dtype,
                                           std::move(options), std::move(watch)));
  BLEND_ASSIGN(p->policy_, make_policy(p->options_));
  if (p->policy_ != nullptr && p->policy_->needs().question_attention) {
    return Status{BLEND_E_UNSUPPORTED,
                  "this policy weighs rows by the question's attention, which a plan does not see: "
                  "choose HKVD, FIRST_K, RANDOM or CALLBACK"};
  }
  if (tempers(p->options_)) {
    return Status{BLEND_E_UNSUPPORTED,
                  "APE changes the attention to stored rows, which is the host's here: choose a "
                  "policy that recomputes rows, or reuse"};
  }
  BLEND_ASSIGN(p->checks_, checks_of(p->policy_.get(), p->options_, p->n_layers_));
  BLEND_RETURN_IF_ERROR(check_drift(p->options_, p->checks_));
  BLEND_ASSIGN(p->plan_, p->planner_.build(segments, {}, p->watch_));
  p->ratio_chosen_ = choose_by_cost(reads.get(), p->options_, p->n_layers_, p->plan_, p->checks_);
  BLEND_ASSIGN(p->ropes_, p->model_->ropes(p->plan_.n_rows()));
  p->plan_ns_ = p->clock_.now_ns() - p->plan_.miss_ns;
  BLEND_RETURN_IF_ERROR(p->begin());
  return p;
}

Status StepPlan::begin() {
  placer_.reset();
  corrector_.reset();
  rows_ = classify_rows(plan_, policy_ != nullptr);
  choosing_ = !rows_.candidates.empty();
  next_check_ = 0;
  undecided_ = rows_.candidates;
  out_.deviation.assign(plan_.n_rows(), 0.0f);
  out_.selected.clear();
  out_.layers.assign(n_layers_, blend_layer_info{});
  select_ns_ = correct_ns_ = n_corrected_ = 0;
  layer_ = fetched_ = 0;
  synchronized_ = selected_ = false;

  if (corrects()) {
    corrector_ = std::make_unique<Corrector>(model_->backend(), options_.drift,
                                             model_->config().kv_dim(), plan_.n_rows());
  }
  const uint32_t first_stored =
      corrects() ? checks_.front().layer
                 : first_stored_layer(choosing_ ? policy_.get() : nullptr, checks_);
  // The host's own time, which a deeper ring would be chosen by, is not known.
  BLEND_ASSIGN(placer_, StepPlacer::start(model_->backend(), ropes_, plan_, first_stored, n_layers_,
                                          kUsualRingDepth, corrector_.get(), clock_));
  loads_ = placer_->loads();
  if (choosing_ && checks_.front().layer == 0) {
    BLEND_RETURN_IF_ERROR(choose(checks_.front(), nullptr));
  }
  active_ = merge_rows(rows_.always, undecided_);
  placer_->decide(computed(), decided_upto());
  out_.layers.front().compute_begin_ns = clock_.now_ns();
  refresh_account();
  return Status::ok();
}

Status StepPlan::restart() {
  if (dead_ || forked()) return check_turn("blend_plan_restart", layer_, false);
  if (layer_ == n_layers_) {
    return {BLEND_E_INVALID_ARGUMENT,
            "blend_plan_restart: the last layer is committed and nothing is held any more; create "
            "another plan"};
  }
  dead_ = true;  // until all of it is done: half a restart is no plan
  if (broken_.code() == BLEND_E_CORRUPT) {
    const Sha256 damaged = placer_->damaged();
    placer_.reset();  // its reader uses the chunks that are replaced
    if (store_ != nullptr) store_->report_damage(damaged, broken_);
    // A chunk may stand in the prompt twice; both places would fail.
    for (size_t i = 0; i < plan_.segments.size(); ++i) {
      const PlannedSegment& s = plan_.segments[i];
      if (s.source != Source::store || s.id != damaged) continue;
      BLEND_RETURN_IF_ERROR(planner_.replace_damaged(plan_, i, watch_));
    }
  }
  BLEND_RETURN_IF_ERROR(begin());
  broken_ = Status::ok();
  dead_ = false;
  return Status::ok();
}

// ---- Whose turn it is

std::string StepPlan::due_call() const {
  const auto of = [](const char* call, uint32_t layer) {
    return std::string(call) + " of layer " + std::to_string(layer);
  };
  if (dead_) return "blend_plan_close";
  if (!broken_.is_ok()) return "blend_plan_restart";
  if (layer_ == n_layers_) return "blend_plan_close: the last layer is committed";
  if (fetched_ <= layer_) return of("blend_fetch_kv", layer_);
  if (!synchronized_) return of("blend_synchronize", layer_);
  if (!selected_ && is_check(layer_)) return of("blend_select", layer_);
  return of("blend_commit", layer_);
}

Status StepPlan::check_turn(const char* call, uint32_t layer, bool due) const {
  if (forked()) {
    return {
        BLEND_E_FORKED,
        "the plan was made before fork(): its threads are in the parent; open the store and make "
        "a plan in the child"};
  }
  if (due && !dead_ && broken_.is_ok() && layer_ < n_layers_) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s of layer %u is out of order; due now is %s", call,
                    layer, due_call().c_str());
}

// ---- One layer

Status StepPlan::fetch(uint32_t layer, const HostKv& target) {
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_fetch_kv", layer, layer == fetched_ && layer < n_layers_));
  placer_->set_target(layer, target);
  ++fetched_;
  return Status::ok();
}

Status StepPlan::synchronize(uint32_t layer) {
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_synchronize", layer, layer == layer_ && layer < fetched_));
  blend_layer_info& account = out_.layers[layer];
  const uint64_t begin = clock_.now_ns();
  Status status = placer_->wait(layer, watch_);
  account.wait_ns += clock_.now_ns() - begin;
  if (!status.is_ok()) {
    if (status.code() != BLEND_E_CANCELLED) broken_ = status;
    if (status.code() != BLEND_E_CORRUPT) return status;
    return {status.code(), status.message() + "; blend_plan_restart takes the chunk as missing",
            status.detail()};
  }
  const StepPlacer::Account placed = placer_->account(layer);
  account_load(placed.load, account);
  account.rows_placed = placed.rows_placed;
  account.place_ns = placed.place_ns;
  correct_ns_ += placed.correct_ns;
  n_corrected_ = placed.n_corrected;
  n_rows_from_memory_ = placed.load.memory_rows;
  synchronized_ = true;
  return Status::ok();
}

Status StepPlan::select(uint32_t layer, const HostKv* fresh) {
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_select", layer, layer == layer_ && synchronized_ && !selected_));
  BLEND_RETURN_IF_ERROR(watch_.check());
  const size_t n_computed = active_.size();
  blend_layer_info& account = out_.layers[layer];
  if (is_check(layer)) {
    const uint64_t begin = clock_.now_ns();
    dead_ = true;  // an exception in between would leave rows that nobody decides
    Status kept;
    const Status chosen = choose(checks_[next_check_], fresh);
    if (chosen.is_ok()) {
      active_ = merge_rows(rows_.always, undecided_);
      if (corrector_ != nullptr) kept = corrector_->keep(computed());
      if (kept.is_ok()) placer_->decide(computed(), decided_upto());
    }
    dead_ = !kept.is_ok();
    BLEND_RETURN_IF_ERROR(chosen);
    BLEND_RETURN_IF_ERROR(kept);
    account.select_ns = clock_.now_ns() - begin;
    select_ns_ += account.select_ns;
  }
  // Behind the last layer only the last row's output is read.
  if (layer + 1 == n_layers_) active_.assign(1, plan_.n_rows() - 1);
  account.rows_kv = n_computed;
  selected_ = true;
  refresh_account();
  return Status::ok();
}

Status StepPlan::commit(uint32_t layer) {
  const bool choice_due = !selected_ && is_check(layer);
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_commit", layer, layer == layer_ && synchronized_ && !choice_due));
  BLEND_RETURN_IF_ERROR(watch_.report(layer + 1, n_layers_));
  blend_layer_info& account = out_.layers[layer];
  account.layer = layer;
  if (!selected_) account.rows_kv = active_.size();
  account.rows_full = active_.size();
  account.compute_end_ns = clock_.now_ns();
  synchronized_ = selected_ = false;
  if (++layer_ < n_layers_) {
    out_.layers[layer_].compute_begin_ns = account.compute_end_ns;
  } else {
    finish();
  }
  refresh_account();
  return Status::ok();
}

void StepPlan::finish() {
  placer_.reset();
  for (PlannedSegment& s : plan_.segments) s.chunk.reset();
  plan_.snapshot.reset();
}

// ---- A check layer

bool StepPlan::corrects() const {
  return choosing_ && options_.drift != nullptr &&
         checks_.front().layer == options_.drift->check_layer();
}

bool StepPlan::is_check(uint32_t layer) const {
  return choosing_ && next_check_ < checks_.size() && checks_[next_check_].layer == layer;
}

uint32_t StepPlan::decided_upto() const {
  if (!choosing_ || next_check_ >= checks_.size()) return n_layers_ - 1;
  return std::min(checks_[next_check_].layer, n_layers_ - 1);
}

std::vector<uint8_t> StepPlan::computed() const {
  std::vector<uint8_t> mask(plan_.n_rows(), 0);
  for (const uint32_t row : active_) mask[row] = 1;
  return mask;
}

Result<std::vector<float>> StepPlan::measure(const Check& check, const HostKv& fresh) {
  Backend& b = model_->backend();
  const size_t cols = size_t{2} * model_->config().kv_dim();
  BLEND_ASSIGN(const auto buffer,
               b.allocate(active_.size() * cols * static_cast<size_t>(b.activation_bytes())));
  const Tensor kv{buffer->data(), static_cast<int64_t>(active_.size()), static_cast<int64_t>(cols),
                  b.activation_bytes()};
  BLEND_RETURN_IF_ERROR(b.read_host(fresh, ropes_->from_host(check.layer), active_.data(), kv));
  const std::vector<StoredRun> runs =
      stored_runs_among(plan_, placer_->segments(), *placer_->held(), active_);
  if (corrector_ != nullptr && check.layer == corrector_->check_layer()) {
    BLEND_RETURN_IF_ERROR(corrector_->measure(kv, runs, active_));
  }
  std::vector<float> measured(active_.size(), 0.0f);
  BLEND_RETURN_IF_ERROR(b.deviation(kv, runs, options_.deviation, measured.data()));
  std::vector<float> deviation(plan_.n_rows(), 0.0f);
  for (size_t i = 0; i < active_.size(); ++i) deviation[active_[i]] = measured[i];
  return deviation;
}

Status StepPlan::choose(const Check& check, const HostKv* fresh) {
  std::vector<float> deviation;
  const bool corrects_here = corrector_ != nullptr && check.layer == corrector_->check_layer();
  if (policy_->needs().deviation || corrects_here) {
    if (fresh == nullptr) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "blend_select of layer %u needs fresh K and V: it is a check layer",
                        check.layer);
    }
    BLEND_ASSIGN(deviation, measure(check, *fresh));
  }
  const CheckPoint at{model_->backend(), plan_, check.layer, deviation, {}};
  const size_t budget = recompute_budget(check.ratio, rows_.n_reused);
  BLEND_ASSIGN(undecided_, policy_->choose(at, undecided_, budget));
  // The account shows what the first check layer saw: there every candidate was measured.
  if (next_check_ == 0 && !deviation.empty()) out_.deviation = std::move(deviation);
  out_.selected = undecided_;
  ++next_check_;
  return Status::ok();
}

// ---- The account

void StepPlan::refresh_account() {
  const uint64_t committed_ns = layer_ > 0 ? out_.layers[layer_ - 1].compute_end_ns : 0;
  out_.info = {};
  blend_fusion_info& info = out_.info;
  info.n_rows_corrected = n_corrected_;
  account_segments(plan_, out_);
  account_totals(plan_, options_, checks_, ratio_chosen_, plan_ns_, out_);
  info.n_rows_reused = rows_.n_reused;
  info.n_rows_always = rows_.always.size();
  info.n_rows_selected = out_.selected.size();
  info.select_ns = select_ns_;
  info.correct_ns = correct_ns_;
  info.ring_depth = loads_ ? kUsualRingDepth : 0;
  info.n_rows_from_memory = n_rows_from_memory_;
  info.ttft_ns = committed_ns;
  // The host's own time: placing runs beside it.
  info.compute_ns = 0;
  for (uint32_t i = 0; i < layer_; ++i) {
    const blend_layer_info& l = out_.layers[i];
    info.compute_ns += l.compute_end_ns - l.compute_begin_ns - l.wait_ns;
  }
  info.compute_ns -= std::min(info.compute_ns, select_ns_);
}

}  // namespace blend
