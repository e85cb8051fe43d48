// LayerSession: one prompt on its way through the layers, whoever computes them (CacheBlend 4 and
// 5).
//
// The built-in engine (Pass) and a host that runs the model itself (LayerwiseFuse) take the same
// steps at every layer:
//
//   place    K and V of rows() are computed, and the stored rows are in the cache: placed()
//   probe    at the last layer where the question is asked: what it attended to: probe()
//   choose   at a check layer: the rows that go on: choose()
//   finish   attention and feed-forward of rows(): finish_layer()
//
// The session knows which step is due and which rows it is for. It chooses the rows, holds what
// corrects the others, counts the operations and writes the layers' reports. Who drives it
// computes, loads and places.
//
// Where the question chooses, the layers up to the last that is asked are first gone through for
// the question's rows alone. probe() then goes back to layer 0, for all rows that are computed; the
// stored rows of the layers before the last asked one stay as they were placed.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fusion/correct/corrector.h"
#include "fusion/correct/work.h"
#include "fusion/prompt/prompt.h"
#include "fusion/request/clock.h"
#include "fusion/run/fuse.h"
#include "fusion/run/placement.h"
#include "fusion/select/selection.h"

namespace blend {

enum class LayerStep : uint8_t {
  place,
  probe,
  choose,
  finish,
  done,    // the last layer is finished
  broken,  // a step failed half-way: nothing more can be done
};

// Used by one thread at a time. Everything that the constructor is given must outlive it.
class LayerSession {
 public:
  LayerSession(Backend& backend, const ModelConfig& config, const Prompt& prompt, ResolvedFuse fuse,
               const DeviationRule& rule, const Stopwatch& clock);
  LayerSession(const LayerSession&) = delete;
  LayerSession& operator=(const LayerSession&) = delete;

  // ---- Before the first layer
  // Makes the choice that comes before layer 0. INVALID_ARGUMENT when the policy lacks something of
  // the prompt.
  Status begin(Selection::Asking asking = Selection::Asking::where_it_matters);
  // After begin(). The rows go to slots 0 .. slots - 1 of a cache.
  void start(size_t slots);

  // ---- Where it stands
  LayerStep due() const { return due_; }
  uint32_t layer() const { return layer_; }  // that the step is of; n_layers: done
  // Computed at this point, ascending.
  const std::vector<uint32_t>& rows() const { return selection_.active(); }
  // The question's rows, which are always computed and stand last among rows().
  std::span<const uint32_t> asking_rows() const {
    return std::span(rows()).last(prompt_.segments.back().n_rows);
  }
  // [slots], 1: the row is computed, its K and V do not come from the store.
  const std::vector<uint8_t>& computed() const { return computed_; }
  // The last layer that computed() holds for as far as it is decided now.
  uint32_t decided_upto() const { return asking_ ? asked().last : selection_.decided_upto(); }
  // Whether the layers are gone through to ask, until probe().
  bool asking() const { return asking_; }
  LayerRange asked() const { return selection_.asked(); }
  // Whether the layer's stored rows were put into place when the question was asked, and stay.
  bool is_placed() const { return layer_ + 1 < repeated_; }
  // Whether all of rows() go on after `place`.
  bool all_go_on() const;
  // Whether choose() needs fresh K and V.
  bool measures() const { return selection_.needs().deviation || corrects_here(); }
  // Whether it needs the question's attention at the layer.
  bool weighs_by_question() const { return selection_.needs().question_attention; }

  // ---- The steps; each is called when it is due
  // What became of the layer's stored rows. Before placed(), where any were put into place; at the
  // last asked layer also the second time.
  void add_placement(const Placement& placement);
  void placed();
  // Chunks are shifted: time at this layer, and rows.
  void add_shift(uint64_t ns) { layers_[timed_layer()].place_ns += ns; }
  void set_shifted(uint64_t n_rows) { n_shifted_ = n_rows; }
  // attention: [n_rows], what the question attended to, mean over asked(). Back to layer 0. After
  // an error of the choice all is as before.
  Status probe(std::span<const float> attention);
  // The first n of rows() keep what was computed for them when the question was asked. After
  // probe(), where the driver makes use of it.
  void keep_known(size_t n) { n_known_ = n; }
  // That is: of rows() at this layer.
  size_t n_known() const { return is_placed() ? n_known_ : 0; }
  // kv: fresh K | V of rows(), runs: the stored rows among them (stored_rows_among()); both empty
  // unless measures(). attention: [n_rows], empty unless weighs_by_question(). After an error of
  // the choice all is as before.
  Status choose(Tensor kv, std::span<const StoredRun> runs, std::span<const float> attention);
  // After the last layer only the last row's output is read: at its `finish`, rows() is that row.
  void leave_last_row() { selection_.leave_last_row(); }
  void finish_layer();

  // ---- Times
  // The layer begins now; unless it is called, when the layer before is finished.
  void begin_layer();
  void add_wait(uint64_t ns) { layers_[timed_layer()].wait_ns += ns; }
  // For a choice at `layer`.
  void add_select(uint32_t layer, uint64_t ns);
  // When the last step of finish_layer() was; 0: none yet.
  uint64_t finished_ns() const { return finished_ns_; }

  // ---- What the driver shares in
  const Selection& selection() const { return selection_; }
  Corrector* corrector() const { return corrector_.get(); }  // null: stored rows stay as they are
  uint64_t n_rows_corrected() const { return n_corrected_; }
  double drift_share() const { return drift_share_; }
  const std::vector<blend_layer_info>& layers() const { return layers_; }
  // The report so far, but for what only the driver knows. plan_ns: as in report_totals().
  void report(const FuseOptions& options, uint64_t plan_ns, Fused& out) const;

 private:
  bool corrects_here() const { return corrector_ != nullptr && corrector_->measures_at(layer_); }
  bool probes_here() const { return asking_ && layer_ == asked().last; }
  Status choose_rows(Tensor kv, std::span<const StoredRun> runs, std::span<const float> attention);
  // Tells the corrector which rows are left out before layer 0, where they are corrected.
  void leave_out();
  // rows() have changed.
  void mark_computed();
  // Whose time runs: the second time it is that of the last asked layer.
  uint32_t timed_layer() const { return is_placed() ? repeated_ - 1 : layer_; }

  Backend& backend_;
  const ModelConfig& config_;
  const Prompt& prompt_;
  const ResolvedFuse fuse_;
  const Stopwatch& clock_;
  Selection selection_;

  LayerStep due_ = LayerStep::place;
  uint32_t layer_ = 0;
  bool asking_ = false;
  uint32_t repeated_ = 0;  // layers below it come a second time, or have
  size_t n_known_ = 0;
  bool placed_again_ = false;  // the last asked layer
  std::vector<uint8_t> computed_;
  std::unique_ptr<Corrector> corrector_;

  Work work_;
  std::vector<blend_layer_info> layers_;
  uint64_t finished_ns_ = 0;
  uint64_t select_ns_ = 0, correct_ns_ = 0;
  uint64_t n_corrected_ = 0, n_judging_ = 0, n_shifted_ = 0;  // rows
  double drift_share_ = 0;
  LayerLoad load_;             // of the last layer
  uint64_t device_bytes_ = 0;  // of all
};

}  // namespace blend
