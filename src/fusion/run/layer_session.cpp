#include "fusion/run/layer_session.h"

#include <utility>

#include "fusion/load/stored_rows.h"
#include "fusion/run/report.h"

namespace blend {

LayerSession::LayerSession(Backend& backend, const ModelConfig& config, const Prompt& prompt,
                           ResolvedFuse fuse, const DeviationRule& rule, const Stopwatch& clock)
    : backend_(backend),
      config_(config),
      prompt_(prompt),
      fuse_(std::move(fuse)),
      clock_(clock),
      selection_(backend, fuse_, rule),
      work_(config),
      layers_(config.n_kept()) {}

// ---- Before the first layer

Status LayerSession::begin(Selection::Asking asking) {
  BLEND_RETURN_IF_ERROR(selection_.begin(prompt_, asking));
  // Who asks always does so with nothing to choose among too, so that the steps do not depend on
  // what is stored.
  asking_ = asking == Selection::Asking::always ? selection_.needs().probe() : selection_.probes();
  return Status::ok();
}

void LayerSession::start(size_t slots) {
  computed_.resize(slots);
  mark_computed();
  if (selection_.corrects() || selection_.corrects_left()) {
    const CorrectorMaps maps = {selection_.corrects() ? fuse_.drift : nullptr,
                                selection_.corrects_left() ? fuse_.stored_drift : nullptr};
    corrector_ = std::make_unique<Corrector>(backend_, maps, config_.kv_dim(),
                                             static_cast<uint32_t>(slots), fuse_.drift_guarded);
    if (!asking_) leave_out();
  }
  layers_.front().compute_begin_ns = clock_.now_ns();
}

void LayerSession::leave_out() {
  if (corrector_ == nullptr || !selection_.corrects_left()) return;
  leave_out_rows(prompt_, std::span(computed_).first(prompt_.n_rows()), *corrector_);
}

void LayerSession::mark_computed() { computed_ = selection_.computed(computed_.size()); }

// ---- The steps

bool LayerSession::all_go_on() const {
  return !probes_here() && !selection_.chooses_at(layer_) && layer_ + 1 != config_.n_kept();
}

void LayerSession::add_placement(const Placement& p) {
  blend_layer_info& info = layers_[layer_];
  report_load(p.load, info);
  load_ = p.load;
  if (layer_ + 1 == repeated_) {
    placed_again_ = true;
  } else {
    device_bytes_ += p.load.device_bytes;
  }
  info.rows_placed = p.rows_placed;
  info.place_ns += p.place_ns;
  if (!p.corrected) return;
  correct_ns_ += p.correct_ns;
  n_corrected_ = p.n_corrected;
  n_judging_ = p.n_judging;
  drift_share_ = p.mean_share;
  info.drift_share_k = static_cast<double>(p.share.k);
  info.drift_share_v = static_cast<double>(p.share.v);
  work_.add_correction(p.correct_flops);
}

void LayerSession::placed() {
  blend_layer_info& info = layers_[layer_];
  info.layer = layer_;
  info.rows_kv = rows().size();
  work_.add_kv(layer_, rows().size() - n_known());
  // Computed now, they were placed to be asked about.
  if (layer_ < repeated_ && !placed_again_) info.rows_placed -= selection_.selected().size();
  if (probes_here()) {
    due_ = LayerStep::probe;
  } else {
    due_ = selection_.chooses_at(layer_) ? LayerStep::choose : LayerStep::finish;
  }
}

Status LayerSession::probe(std::span<const float> attention) {
  const size_t n_asking = rows().size();
  // An exception from here on would leave rows that nobody has decided on.
  const LayerStep due = std::exchange(due_, LayerStep::broken);
  if (selection_.probes()) {
    if (Status chosen = selection_.choose({}, attention); !chosen.is_ok()) {
      due_ = due;
      return chosen;
    }
  }
  work_.add_attention_mass(layer_, asking_rows());
  layers_[layer_].rows_asked = n_asking;
  mark_computed();
  leave_out();
  repeated_ = layer_ + 1;
  n_known_ = 0;
  placed_again_ = false;
  asking_ = false;
  layer_ = 0;
  due_ = LayerStep::place;
  return Status::ok();
}

Status LayerSession::choose(Tensor kv, std::span<const StoredRun> runs,
                            std::span<const float> attention) {
  const LayerStep due = std::exchange(due_, LayerStep::broken);  // as above
  if (Status chosen = choose_rows(kv, runs, attention); !chosen.is_ok()) {
    due_ = due;
    return chosen;
  }
  if (!attention.empty()) work_.add_attention_mass(layer_, asking_rows());
  mark_computed();
  if (corrector_ != nullptr) BLEND_RETURN_IF_ERROR(corrector_->keep(computed_));
  due_ = LayerStep::finish;
  return Status::ok();
}

Status LayerSession::choose_rows(Tensor kv, std::span<const StoredRun> runs,
                                 std::span<const float> attention) {
  if (corrects_here()) BLEND_RETURN_IF_ERROR(corrector_->measure({kv, runs, rows()}));
  std::vector<float> deviation;
  if (selection_.needs().deviation) {
    BLEND_ASSIGN(deviation, selection_.measure(kv, runs));
  }
  return selection_.choose(deviation, attention);
}

void LayerSession::finish_layer() {
  blend_layer_info& info = layers_[layer_];
  info.rows_full = rows().size();
  if (asking_) {
    info.rows_asked = rows().size();
    if (asked().has(layer_)) work_.add_scores(layer_, asking_rows());
  } else {
    info.rows_asked -= n_known();
  }
  work_.add_layer(layer_, std::span(rows()).subspan(n_known()));
  finished_ns_ = clock_.now_ns();
  if (!is_placed()) info.compute_end_ns = finished_ns_;
  if (++layer_ == config_.n_kept()) {
    work_.add_logits();
    due_ = LayerStep::done;
    return;
  }
  if (layer_ >= repeated_) layers_[layer_].compute_begin_ns = finished_ns_;
  due_ = LayerStep::place;
}

// ---- Times and the report

void LayerSession::begin_layer() {
  if (layer_ >= repeated_) layers_[layer_].compute_begin_ns = clock_.now_ns();
}

void LayerSession::add_select(uint32_t layer, uint64_t ns) {
  layers_[layer].select_ns += ns;
  select_ns_ += ns;
}

void LayerSession::report(const FuseOptions& options, uint64_t plan_ns, Fused& out) const {
  blend_fusion_report& info = out.info;
  out.layers = layers_;
  out.selected = selection_.selected();
  out.deviation = selection_.deviation();
  info.flops = work_.flops();
  info.n_rows_corrected = n_corrected_;
  info.n_rows_judging = n_judging_;
  info.n_rows_shifted = n_shifted_;
  info.drift_share = drift_share_;
  info.select_ns = select_ns_;
  info.correct_ns = correct_ns_;
  info.n_rows_from_memory = load_.memory_rows;
  info.n_rows_from_device = load_.device_rows;
  info.bytes_from_device = device_bytes_;
  report_segments(prompt_, out);
  report_totals(prompt_, options, fuse_, selection_, plan_ns, out);
}

}  // namespace blend
