#include "fusion/steps/layerwise_fuse.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/host_kv.h"
#include "fusion/load/stored_rows.h"
#include "fusion/resolve/agreement.h"
#include "fusion/resolve/auto_ratio.h"
#include "fusion/resolve/fidelity_book.h"
#include "fusion/resolve/resolve.h"
#include "fusion/resolve/trust.h"

namespace blend {

LayerwiseFuse::LayerwiseFuse(std::shared_ptr<const ModelDescription> model,
                             std::shared_ptr<ChunkStore> store, FuseJob job)
    : model_(std::move(model)),
      store_(std::move(store)),
      job_(std::move(job)),
      fuse_(job_.fuse),
      n_layers_(model_->config().n_kept()) {}

bool LayerwiseFuse::forked() const { return !process_.is_this_process(); }

// ---- Before the layers

Result<std::unique_ptr<LayerwiseFuse>> LayerwiseFuse::create(
    std::shared_ptr<const ModelDescription> model, std::shared_ptr<ChunkStore> store,
    const StoreAccess& access, FuseJob job) {
  if (job.fuse.needs.question_attention) {
    return Status{
        BLEND_E_UNSUPPORTED,
        "this policy weighs rows by the question's attention at the check layer, which a "
        "layerwise fuse does not see: choose HKVD, FIRST_K, RANDOM or CALLBACK, or ATTENTION or "
        "CASCADE, which ask by blend_layerwise_probe"};
  }
  if (job.fuse.tempers) {
    return Status{BLEND_E_UNSUPPORTED,
                  "APE changes the attention to stored rows, which is the host's here: choose a "
                  "policy that recomputes rows, or reuse"};
  }
  BLEND_RETURN_IF_ERROR(check_host_kv(model->config()));
  std::unique_ptr<LayerwiseFuse> p(
      new LayerwiseFuse(std::move(model), std::move(store), std::move(job)));
  if (access.fidelity != nullptr) access.fidelity->look(p->model_->fingerprint());
  BLEND_RETURN_IF_ERROR(p->prepare(access));
  BLEND_RETURN_IF_ERROR(p->begin());
  return p;
}

Status LayerwiseFuse::prepare(const StoreAccess& access) {
  const FuseRequest& request = job_.request;
  const RatioRequest& asked = request.options.ratio;
  builder_ =
      std::make_unique<PromptBuilder>(*model_, store_.get(), !access.read_only, access.kv_dtype,
                                      request.options, fuse_, job_.machine.prefill);
  BLEND_ASSIGN(prompt_, builder_->build(request.segments, {}, request.watch));
  const Policy policy = fuse_.policy;
  BLEND_ASSIGN(fuse_, judge_records(request.options, fuse_, prompt_));
  if (fuse_.policy != policy) return prepare(access);
  if (const auto ratio = agreeing_ratio(access.fidelity, *model_, asked, fuse_, prompt_)) {
    fuse_ = at_ratio(fuse_, *ratio);
  }
  const double spent_s = static_cast<double>(clock_.now_ns()) * 1e-9;
  fuse_ =
      choose_ratio(fuse_, asked, {access.reads, &model_->config(), spent_s, job_.machine}, prompt_);
  BLEND_ASSIGN(ropes_, model_->ropes(prompt_.n_rows()));
  plan_ns_ = clock_.now_ns() - prompt_.miss_ns;
  return Status::ok();
}

Status LayerwiseFuse::begin() {
  placer_.reset();
  fetched_ = 0;
  selected_ = false;
  session_ = std::make_unique<LayerSession>(model_->backend(), model_->config(), prompt_, fuse_,
                                            job_.request.options.deviation, clock_);
  BLEND_RETURN_IF_ERROR(session_->begin(Selection::Asking::always));
  session_->start(prompt_.n_rows());
  // The host's own time, which a deeper ring would be chosen by, is not known.
  BLEND_ASSIGN(placer_, StepPlacer::start(model_->backend(), ropes_, prompt_,
                                          session_->selection().first_stored_layer(), n_layers_,
                                          kUsualRingDepth, session_->corrector(), clock_));
  loads_ = placer_->loads();
  decide();
  refresh_account();
  return Status::ok();
}

Status LayerwiseFuse::restart() {
  if (is_dead() || forked()) return check_turn("blend_layerwise_restart", session_->layer(), false);
  if (is_done()) {
    return {
        BLEND_E_INVALID_ARGUMENT,
        "blend_layerwise_restart: the last layer is committed and nothing is held any more; create "
        "another layerwise fuse"};
  }
  dead_ = true;  // until all of it is done: half a restart is no fuse
  if (broken_.code() == BLEND_E_CORRUPT) {
    const Sha256 damaged = placer_->damaged();
    placer_.reset();  // its reader uses the chunks that are replaced
    if (store_ != nullptr) store_->report_damage(damaged, broken_);
    // A chunk may stand in the prompt twice; both places would fail.
    for (size_t i = 0; i < prompt_.segments.size(); ++i) {
      const PromptSegment& s = prompt_.segments[i];
      if (s.source != Source::store || s.id != damaged) continue;
      BLEND_RETURN_IF_ERROR(builder_->replace_damaged(prompt_, i, job_.request.watch));
    }
  }
  BLEND_RETURN_IF_ERROR(begin());
  broken_ = Status::ok();
  dead_ = false;
  return Status::ok();
}

// ---- Whose turn it is

std::string LayerwiseFuse::due_call() const {
  const auto of = [](const char* call, uint32_t layer) {
    return std::string(call) + " of layer " + std::to_string(layer);
  };
  if (is_dead()) return "blend_layerwise_close";
  if (!broken_.is_ok()) return "blend_layerwise_restart";
  const uint32_t layer = session_->layer();
  switch (session_->due()) {
    case LayerStep::place:
      return of(fetched_ <= layer ? "blend_layerwise_fetch_kv" : "blend_layerwise_synchronize",
                layer);
    case LayerStep::probe:
      return "blend_layerwise_probe";
    case LayerStep::choose:
      return of("blend_layerwise_select", layer);
    case LayerStep::finish:
      return of("blend_layerwise_commit", layer);
    case LayerStep::done:
      return "blend_layerwise_close: the last layer is committed";
    case LayerStep::broken:
      break;
  }
  return "blend_layerwise_close";
}

Status LayerwiseFuse::check_turn(const char* call, uint32_t layer, bool due) const {
  if (forked()) {
    return {BLEND_E_FORKED,
            "the layerwise fuse was made before fork(): its threads are in the parent; open the "
            "store and make a new one in the child"};
  }
  if (due && !is_dead() && broken_.is_ok() && !is_done()) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s of layer %u is out of order; due now is %s", call,
                    layer, due_call().c_str());
}

// ---- One layer

Status LayerwiseFuse::fetch(uint32_t layer, const HostKv& target) {
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_layerwise_fetch_kv", layer, layer == fetched_ && layer < n_layers_));
  placer_->set_target(layer, target);
  ++fetched_;
  return Status::ok();
}

Status LayerwiseFuse::synchronize(uint32_t layer) {
  BLEND_RETURN_IF_ERROR(check_turn("blend_layerwise_synchronize", layer,
                                   layer == session_->layer() && layer < fetched_));
  if (is_placed()) return Status::ok();  // waiting again does no harm
  const uint64_t begin = clock_.now_ns();
  Status status = placer_->wait(layer, job_.request.watch);
  session_->add_wait(clock_.now_ns() - begin);
  if (!status.is_ok()) {
    if (status.code() != BLEND_E_CANCELLED) broken_ = status;
    if (status.code() != BLEND_E_CORRUPT) return status;
    return {status.code(),
            status.message() + "; blend_layerwise_restart takes the chunk as missing",
            status.detail()};
  }
  if (!session_->is_placed()) session_->add_placement(placer_->placement(layer));
  session_->placed();
  return Status::ok();
}

Status LayerwiseFuse::probe(std::span<const float> attention) {
  const uint32_t layer = session_->asked().last;
  BLEND_RETURN_IF_ERROR(check_turn("blend_layerwise_probe", layer, probe_due()));
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
  BLEND_RETURN_IF_ERROR(session_->probe(attention));
  decide(/*again=*/true);
  session_->add_select(layer, clock_.now_ns() - begin);
  selected_ = false;
  refresh_account();
  return Status::ok();
}

Status LayerwiseFuse::select(uint32_t layer, const HostKv* fresh) {
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_layerwise_select", layer,
                 layer == session_->layer() && is_placed() && !selected_ && !probe_due()));
  BLEND_RETURN_IF_ERROR(job_.request.watch.check());
  if (session_->due() == LayerStep::choose) {
    const uint64_t begin = clock_.now_ns();
    BLEND_RETURN_IF_ERROR(choose(fresh));
    decide();
    session_->add_select(layer, clock_.now_ns() - begin);
  }
  if (layer + 1 == n_layers_) session_->leave_last_row();
  selected_ = true;
  refresh_account();
  return Status::ok();
}

Status LayerwiseFuse::commit(uint32_t layer) {
  BLEND_RETURN_IF_ERROR(
      check_turn("blend_layerwise_commit", layer,
                 layer == session_->layer() && session_->due() == LayerStep::finish));
  // Told once a layer: those before the probe come again.
  BLEND_RETURN_IF_ERROR(session_->asking() ? job_.request.watch.check()
                                           : job_.request.watch.report(layer + 1, n_layers_));
  session_->finish_layer();
  selected_ = false;
  if (is_done()) finish();
  refresh_account();
  return Status::ok();
}

void LayerwiseFuse::decide(bool again) {
  const bool dead = std::exchange(dead_, true);  // should the copy of the rows throw
  if (again) {
    placer_->decide_again(session_->computed(), session_->decided_upto());
  } else {
    placer_->decide(session_->computed(), session_->decided_upto());
  }
  dead_ = dead;
}

void LayerwiseFuse::finish() {
  placer_.reset();
  for (PromptSegment& s : prompt_.segments) s.chunk.reset();
  prompt_.snapshot.reset();
}

// ---- A check layer

Status LayerwiseFuse::read_fresh(const HostKv& fresh, std::unique_ptr<DeviceBuffer>& buffer,
                                 Tensor& kv) const {
  Backend& b = model_->backend();
  const size_t cols = size_t{2} * model_->config().kv_dim();
  BLEND_ASSIGN(buffer,
               b.allocate(rows().size() * cols * static_cast<size_t>(b.traits().activation_bytes)));
  kv = {buffer->data(), static_cast<int64_t>(rows().size()), static_cast<int64_t>(cols),
        b.traits().activation_bytes};
  return b.host().read(fresh, ropes_->from_host(session_->layer()), rows().data(), kv);
}

Status LayerwiseFuse::choose(const HostKv* fresh) {
  if (!session_->measures()) return session_->choose({}, {}, {});
  if (fresh == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "blend_layerwise_select of layer %u needs fresh K and V: it is a check layer",
                      session_->layer());
  }
  std::unique_ptr<DeviceBuffer> buffer;
  Tensor kv;
  BLEND_RETURN_IF_ERROR(read_fresh(*fresh, buffer, kv));
  const std::vector<StoredRun> runs =
      stored_runs_among(prompt_, placer_->segments(), *placer_->held(), rows());
  return session_->choose(kv, runs, {});
}

// ---- The account

void LayerwiseFuse::refresh_account() {
  out_.info = {};
  blend_fusion_report& info = out_.info;
  session_->report(job_.request.options, plan_ns_, out_);
  info.ring_depth = loads_ ? kUsualRingDepth : 0;
  info.ttft_ns = session_->finished_ns();
  // The host's own time: placing runs beside it.
  info.compute_ns = 0;
  for (uint32_t i = 0; i < session_->layer(); ++i) {
    const blend_layer_info& l = out_.layers[i];
    info.compute_ns += l.compute_end_ns - l.compute_begin_ns - l.wait_ns;
  }
  info.compute_ns -= std::min(info.compute_ns, info.select_ns);
}

}  // namespace blend
