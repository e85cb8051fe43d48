#include "fusion/step_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fusion/account.h"
#include "fusion/agreement.h"
#include "fusion/auto_ratio.h"
#include "fusion/fidelity_book.h"
#include "fusion/stored_rows.h"

namespace blend {

StepPlan::StepPlan(std::shared_ptr<const ModelDescription> model, std::shared_ptr<ChunkStore> store,
                   const StoreAccess& access, FuseJob job)
    : model_(std::move(model)),
      store_(std::move(store)),
      job_(std::move(job)),
      fuse_(job_.fuse),
      n_layers_(model_->config().n_layers),
      builder_(*model_, store_.get(), !access.read_only, access.kv_dtype, job_.request.options,
               fuse_, job_.machine.prefill),
      work_(model_->config()) {}

bool StepPlan::forked() const { return !process_.is_this_process(); }

// ---- Before the layers

Result<std::unique_ptr<StepPlan>> StepPlan::create(std::shared_ptr<const ModelDescription> model,
                                                   std::shared_ptr<ChunkStore> store,
                                                   const StoreAccess& access, FuseJob job) {
  if (job.fuse.needs.question_attention) {
    return Status{BLEND_E_UNSUPPORTED,
                  "this policy weighs rows by the question's attention at the check layer, which a "
                  "plan does not see: choose HKVD, FIRST_K, RANDOM or CALLBACK, or ATTENTION or "
                  "CASCADE, which ask by blend_plan_probe"};
  }
  if (job.fuse.tempers) {
    return Status{BLEND_E_UNSUPPORTED,
                  "APE changes the attention to stored rows, which is the host's here: choose a "
                  "policy that recomputes rows, or reuse"};
  }
  std::unique_ptr<StepPlan> p(
      new StepPlan(std::move(model), std::move(store), access, std::move(job)));
  if (access.fidelity != nullptr) access.fidelity->look(p->model_->fingerprint());
  BLEND_RETURN_IF_ERROR(p->prepare(access));
  BLEND_RETURN_IF_ERROR(p->begin());
  return p;
}

Status StepPlan::prepare(const StoreAccess& access) {
  const FuseRequest& request = job_.request;
  const RatioRequest& asked = request.options.ratio;
  BLEND_ASSIGN(prompt_, builder_.build(request.segments, {}, request.watch));
  if (const auto ratio = agreeing_ratio(access.fidelity, *model_, asked, fuse_, prompt_)) {
    fuse_ = at_ratio(fuse_, *ratio);
  }
  const double spent_s = static_cast<double>(clock_.now_ns()) * 1e-9;
  fuse_ =
      choose_ratio(fuse_, asked, {access.reads, &model_->config(), spent_s, job_.machine}, prompt_);
  selection_ = std::make_unique<Selection>(model_->backend(), fuse_, request.options.deviation);
  BLEND_ASSIGN(ropes_, model_->ropes(prompt_.n_rows()));
  plan_ns_ = clock_.now_ns() - prompt_.miss_ns;
  return Status::ok();
}

Status StepPlan::begin() {
  placer_.reset();
  corrector_.reset();
  out_.layers.assign(n_layers_, blend_layer_info{});
  select_ns_ = correct_ns_ = n_corrected_ = n_judging_ = 0;
  drift_share_ = 0;
  work_ = Work(model_->config());
  layer_ = fetched_ = 0;
  synchronized_ = selected_ = false;
  // With nothing to choose among too, so that the host's calls do not depend on what is stored.
  probing_ = selection_->needs().probe();
  asked_ = selection_->asked();

  BLEND_RETURN_IF_ERROR(selection_->begin(prompt_, Selection::Asking::always));
  if (selection_->corrects() || selection_->corrects_left()) {
    const CorrectorMaps maps = {selection_->corrects() ? fuse_.drift : nullptr,
                                selection_->corrects_left() ? fuse_.stored_drift : nullptr};
    corrector_ = std::make_unique<Corrector>(model_->backend(), maps, model_->config().kv_dim(),
                                             prompt_.n_rows(), fuse_.drift_guarded);
    if (selection_->corrects_left() && !probing_) {
      leave_out_rows(prompt_, computed(), *corrector_);
    }
  }
  // The host's own time, which a deeper ring would be chosen by, is not known.
  BLEND_ASSIGN(placer_, StepPlacer::start(model_->backend(), ropes_, prompt_,
                                          selection_->first_stored_layer(), n_layers_,
                                          kUsualRingDepth, corrector_.get(), clock_));
  loads_ = placer_->loads();
  placer_->decide(computed(), probing_ ? asked_.last : selection_->decided_upto());
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
    for (size_t i = 0; i < prompt_.segments.size(); ++i) {
      const PromptSegment& s = prompt_.segments[i];
      if (s.source != Source::store || s.id != damaged) continue;
      BLEND_RETURN_IF_ERROR(builder_.replace_damaged(prompt_, i, job_.request.watch));
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
  if (fetched_ <= layer_) return of("blend_plan_fetch_kv", layer_);
  if (!synchronized_) return of("blend_plan_synchronize", layer_);
  if (probing_ && layer_ == asked_.last) return "blend_plan_probe";
  if (!selected_ && selection_->chooses_at(layer_)) return of("blend_plan_select", layer_);
  return of("blend_plan_commit", layer_);
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
      check_turn("blend_plan_fetch_kv", layer, layer == fetched_ && layer < n_layers_));
  placer_->set_target(layer, target);
  ++fetched_;
  return Status::ok();
}

Status StepPlan::synchronize(uint32_t layer) {
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_plan_synchronize", layer, layer == layer_ && layer < fetched_));
  blend_layer_info& account = out_.layers[layer];
  const uint64_t begin = clock_.now_ns();
  Status status = placer_->wait(layer, job_.request.watch);
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
  // Rows that the probe let through were placed, to be asked about.
  if (selection_->needs().probe() && !probing_ && layer < asked_.last) {
    account.rows_placed -= selection_->selected().size();
  }
  account.place_ns = placed.place_ns;
  correct_ns_ += placed.correct_ns;
  correct_flops_ = placed.correct_flops;
  n_corrected_ = placed.n_corrected;
  n_judging_ = placed.n_judging;
  drift_share_ = placed.mean_share;
  account.drift_share_k = static_cast<double>(placed.share.k);
  account.drift_share_v = static_cast<double>(placed.share.v);
  n_rows_from_memory_ = placed.load.memory_rows;
  synchronized_ = true;
  return Status::ok();
}

Status StepPlan::probe(std::span<const float> attention) {
  const uint32_t layer = asked_.last;
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_plan_probe", layer, probing_ && layer_ == layer && synchronized_));
  BLEND_RETURN_IF_ERROR(job_.request.watch.check());
  if (attention.size() != prompt_.n_rows()) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "attention has %zu values; the prompt has %u rows, and each gets one",
                      attention.size(), prompt_.n_rows());
  }
  for (size_t row = 0; row < attention.size(); ++row) {
    if (attention[row] >= 0.0f && std::isfinite(attention[row])) continue;  // NaN fails
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "attention[%zu] is %g: a mean of probabilities is neither negative nor "
                      "infinite",
                      row, static_cast<double>(attention[row]));
  }
  const uint64_t begin = clock_.now_ns();
  work_.add_kv(rows().size());
  work_.add_attention_mass(layer, asking_rows());
  out_.layers[layer].rows_asked = rows().size();
  if (selection_->probes()) BLEND_RETURN_IF_ERROR(selection_->choose({}, attention));
  dead_ = true;  // an exception in between would leave rows that nobody decides
  if (selection_->corrects_left()) leave_out_rows(prompt_, computed(), *corrector_);
  placer_->decide_anew(computed(), selection_->decided_upto());
  dead_ = probing_ = synchronized_ = selected_ = false;
  layer_ = 0;
  const uint64_t spent = clock_.now_ns() - begin;
  out_.layers[layer].select_ns += spent;
  select_ns_ += spent;
  // Layer 0's time is since the plan began, that of the others begins again.
  for (uint32_t i = 1; i <= layer; ++i) {
    out_.layers.front().wait_ns += std::exchange(out_.layers[i].wait_ns, 0);
  }
  refresh_account();
  return Status::ok();
}

Status StepPlan::select(uint32_t layer, const HostKv* fresh) {
  const bool asked = probing_ && layer == asked_.last;
  BLEND_RETURN_IF_ERROR(check_turn("blend_plan_select", layer,
                                   layer == layer_ && synchronized_ && !selected_ && !asked));
  BLEND_RETURN_IF_ERROR(job_.request.watch.check());
  const size_t n_computed = rows().size();
  blend_layer_info& account = out_.layers[layer];
  if (selection_->chooses_at(layer)) {
    const uint64_t begin = clock_.now_ns();
    dead_ = true;  // an exception in between would leave rows that nobody decides
    Status kept;
    const Status chosen = choose(layer, fresh);
    if (chosen.is_ok()) {
      if (corrector_ != nullptr) kept = corrector_->keep(computed());
      if (kept.is_ok()) placer_->decide(computed(), selection_->decided_upto());
    }
    dead_ = !kept.is_ok();
    BLEND_RETURN_IF_ERROR(chosen);
    BLEND_RETURN_IF_ERROR(kept);
    const uint64_t spent = clock_.now_ns() - begin;
    account.select_ns += spent;
    select_ns_ += spent;
  }
  if (layer + 1 == n_layers_) selection_->leave_last_row();
  account.rows_kv = n_computed;
  selected_ = true;
  refresh_account();
  return Status::ok();
}

Status StepPlan::commit(uint32_t layer) {
  const bool choice_due =
      (!selected_ && selection_->chooses_at(layer)) || (probing_ && layer == asked_.last);
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_plan_commit", layer, layer == layer_ && synchronized_ && !choice_due));
  // Told once a layer: those before the probe come again.
  BLEND_RETURN_IF_ERROR(probing_ ? job_.request.watch.check()
                                 : job_.request.watch.report(layer + 1, n_layers_));
  blend_layer_info& account = out_.layers[layer];
  account.layer = layer;
  if (!selected_) account.rows_kv = rows().size();
  account.rows_full = rows().size();
  work_.add_kv(account.rows_kv);
  work_.add_layer(layer, rows());
  if (probing_) account.rows_asked = rows().size();
  if (probing_ && asked_.has(layer)) work_.add_scores(layer, asking_rows());
  work_.add_correction(correct_flops_);
  if (layer + 1 == n_layers_) work_.add_logits();
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
  for (PromptSegment& s : prompt_.segments) s.chunk.reset();
  prompt_.snapshot.reset();
}

// ---- A check layer

Status StepPlan::read_fresh(uint32_t layer, const HostKv& fresh,
                            std::unique_ptr<DeviceBuffer>& buffer, Tensor& kv) const {
  Backend& b = model_->backend();
  const std::vector<uint32_t>& active = rows();
  const size_t cols = size_t{2} * model_->config().kv_dim();
  BLEND_ASSIGN(buffer,
               b.allocate(active.size() * cols * static_cast<size_t>(b.activation_bytes())));
  kv = {buffer->data(), static_cast<int64_t>(active.size()), static_cast<int64_t>(cols),
        b.activation_bytes()};
  return b.read_host(fresh, ropes_->from_host(layer), active.data(), kv);
}

Status StepPlan::choose(uint32_t layer, const HostKv* fresh) {
  const bool corrects_here = corrector_ != nullptr && corrector_->measures_at(layer);
  const bool measures = selection_->needs().deviation;
  if (!measures && !corrects_here) return selection_->choose({}, {});
  if (fresh == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "blend_plan_select of layer %u needs fresh K and V: it is a check layer",
                      layer);
  }
  std::unique_ptr<DeviceBuffer> buffer;
  Tensor kv;
  BLEND_RETURN_IF_ERROR(read_fresh(layer, *fresh, buffer, kv));
  const std::vector<StoredRun> runs =
      stored_runs_among(prompt_, placer_->segments(), *placer_->held(), rows());
  if (corrects_here) BLEND_RETURN_IF_ERROR(corrector_->measure({kv, runs, rows()}));
  std::vector<float> deviation;
  if (measures) {
    BLEND_ASSIGN(deviation, selection_->measure(kv, runs));
  }
  return selection_->choose(deviation, {});
}

// ---- The account

void StepPlan::refresh_account() {
  const uint64_t committed_ns = layer_ > 0 ? out_.layers[layer_ - 1].compute_end_ns : 0;
  out_.info = {};
  blend_fusion_report& info = out_.info;
  info.n_rows_corrected = n_corrected_;
  info.n_rows_judging = n_judging_;
  info.drift_share = drift_share_;
  info.flops = work_.flops();
  out_.selected = selection_->selected();
  out_.deviation = selection_->deviation();
  account_segments(prompt_, out_);
  account_totals(prompt_, job_.request.options, fuse_, *selection_, plan_ns_, out_);
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
