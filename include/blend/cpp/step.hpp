// The step API: a fuse whose layers the host runs.
#ifndef BLEND_CPP_STEP_HPP
#define BLEND_CPP_STEP_HPP

#include <memory>
#include <utility>
#include <vector>

#include "blend/cpp/fusion.hpp"
#include "blend/step.h"

namespace blendpp {

// A prompt whose model the host runs itself, layer by layer (blend.h, "Step API"). Exclusive use;
// the const functions may run concurrently with each other.
class Layerwise {
 public:
  // `store` may be null with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE. The layerwise fuse keeps the
  // functions of `options`: select() asks on_score, commit() tells on_progress. A cancel token must
  // outlive it.
  Layerwise(const Model& model, const Store* store, const Prompt& prompt,
            const FuseOptions& options = FuseOptions())
      : model_log_(model.log()), callbacks_(std::make_unique<Callbacks>(options)) {
    FuseOptions copy = options;
    if (options.on_progress) {
      copy.progress = &detail::on_progress;
      copy.progress_user = &callbacks_->progress;
    }
    if (options.on_score) {
      copy.selection.score = &detail::on_score;
      copy.selection.score_user = &callbacks_->score;
    }
    detail::point_to_selection(copy);
    const std::vector<blend_segment> segments = prompt.segments();
    detail::Outcome outcome;
    blend_layerwise* raw = nullptr;
    check(outcome,
          blend_layerwise_create(&raw, model.get(), store == nullptr ? nullptr : store->get(),
                                 segments.data(), segments.size(), &copy, outcome.out()));
    handle_ = {raw, {store == nullptr ? nullptr : store->log()}};
  }
  void restart() {
    detail::Outcome outcome;
    outcome.check(blend_layerwise_restart(handle_.get(), outcome.out()));
  }
  void fetch_kv(uint32_t layer, const KvView& layer_kv) {
    detail::Outcome outcome;
    outcome.check(blend_layerwise_fetch_kv(handle_.get(), layer, &layer_kv, outcome.out()));
  }
  void synchronize(uint32_t layer) {
    detail::Outcome outcome;
    outcome.check(blend_layerwise_synchronize(handle_.get(), layer, outcome.out()));
  }
  // PROBE, CASCADE and ATTENTION: what the question attends to, [n_rows]; the layerwise fuse is at
  // layer 0 again. Valid until the next select, probe or restart.
  Span<const uint32_t> probe(Span<const float> attention) {
    detail::Outcome outcome;
    const uint32_t* rows = nullptr;
    size_t n = 0;
    check(outcome, blend_layerwise_probe(handle_.get(), attention.data(), attention.size(), &rows,
                                         &n, outcome.out()));
    return {rows, n};
  }
  // `fresh` may be null where nothing is measured. Valid until the next select, probe or restart.
  Span<const uint32_t> select(uint32_t layer, const KvView* fresh) {
    detail::Outcome outcome;
    const uint32_t* rows = nullptr;
    size_t n = 0;
    check(outcome, blend_layerwise_select(handle_.get(), layer, fresh, &rows, &n, outcome.out()));
    return {rows, n};
  }
  void commit(uint32_t layer) {
    detail::Outcome outcome;
    check(outcome, blend_layerwise_commit(handle_.get(), layer, outcome.out()));
  }
  // Rows that the host computes at this point. Valid until the next select, probe or restart.
  Span<const uint32_t> rows() const { return detail::span_of(&blend_layerwise_get_rows, get()); }
  // The prompt's. Valid while the layerwise fuse is open.
  Span<const int32_t> tokens() const { return detail::span_of(&blend_layerwise_get_tokens, get()); }
  FusionReport report() const {
    return detail::filled<FusionReport>(&blend_layerwise_get_report, get());
  }
  LayerInfo layer(uint32_t layer) const {
    return detail::filled<LayerInfo>(&blend_layerwise_get_layer, get(), layer);
  }
  SegmentInfo segment(size_t segment) const {
    return detail::filled<SegmentInfo>(&blend_layerwise_get_segment, get(), segment);
  }
  // Valid until the next select, probe or restart.
  Span<const uint32_t> selected() const {
    return detail::span_of(&blend_layerwise_get_selected, get());
  }
  // Valid until the next select, probe or restart.
  Span<const float> deviation() const {
    return detail::span_of(&blend_layerwise_get_deviation, get());
  }
  const blend_layerwise* get() const noexcept { return handle_.get(); }

 private:
  struct Callbacks {
    explicit Callbacks(const FuseOptions& options)
        : on_progress(options.on_progress), on_score(options.on_score) {}
    ProgressFn on_progress;
    ScoreFn on_score;
    detail::Outcome outcome;  // holds what they throw, until the call that asked them takes it
    detail::Guarded<ProgressFn> progress{on_progress, outcome};
    detail::Guarded<ScoreFn> score{on_score, outcome};
  };
  void check(detail::Outcome& outcome, int32_t code) {
    outcome.thrown = std::exchange(callbacks_->outcome.thrown, nullptr);
    outcome.check(code);
  }
  // The handle closes first: until then its model's log may be told.
  std::shared_ptr<const LogFn> model_log_;
  std::unique_ptr<Callbacks> callbacks_;
  detail::Handle<blend_layerwise, blend_layerwise_close> handle_;
};

}  // namespace blendpp

#endif
