#include "fusion/fuse.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/forward.h"
#include "fusion/clock.h"
#include "fusion/layer_loader.h"
#include "fusion/plan.h"
#include "fusion/select.h"

namespace blend {
namespace {

// Layers in flight. Two hide the load behind the compute when both are steady; the third takes up
// jitter of the disk.
constexpr uint32_t kRingDepth = 3;

// The layer-by-layer pass over one plan. Rows are in one of three states:
//   exact     stored K, V equal the fresh ones: never computed
//   always    question, new text, misses computed inline, the prompt's last row: all layers
//   candidate reused, not exact: computed up to the check layer; then the selected ones go on and
//             the others take their stored K, V
class Pass {
 public:
  Pass(const std::shared_ptr<const Model>& model, const Plan& plan, const FuseOptions& options,
       const Stopwatch& clock, Fused& out)
      : model_(model),
        plan_(plan),
        options_(options),
        clock_(clock),
        out_(out),
        n_layers_(model->config().n_layers) {}

  Status run(const Watch& watch);
  // After a run that failed with CORRUPT: the segment whose chunk was damaged.
  size_t damaged_segment() const { return damaged_segment_; }

 private:
  bool measures() const { return options_.policy == Policy::hkvd && !candidates_.empty(); }

  void classify_rows();
  Status start_loader();
  Status prepare();
  Status layer(uint32_t layer, const Watch& watch);
  // Waits for the reader; fills the layer's account.
  Status acquire(uint32_t layer, const StagedLayer*& staged, blend_layer_info& account);
  std::vector<StoredRun> staged_runs(const StagedLayer& staged) const;
  // Deviation of the candidates at the check layer, and the rows that go on.
  Status select(Tensor kv, const StagedLayer& staged);
  // Drops the rows of x that are not in `keep`, a subset of active_.
  Status keep_rows(std::vector<uint32_t> keep);
  void mark_computed();

  const std::shared_ptr<const Model>& model_;
  const Plan& plan_;
  const FuseOptions& options_;
  const Stopwatch& clock_;
  Fused& out_;
  const uint32_t n_layers_;

  std::vector<uint32_t> always_;      // rows, ascending
  std::vector<uint32_t> candidates_;  // rows, ascending
  std::vector<uint32_t> active_;      // rows of x_, ascending; their slots are these numbers
  std::vector<uint8_t> computed_;     // [capacity] 1: the row's K, V are fresh at this layer
  uint64_t n_reused_ = 0;             // rows of reused chunks, exact ones included

  std::unique_ptr<Forward> forward_;
  std::unique_ptr<LayerLoader> loader_;
  std::vector<size_t> loaded_segments_;  // index of each loader item's segment
  uint32_t first_load_ = 0;
  Tensor x_{};
  size_t damaged_segment_ = 0;
};

void Pass::classify_rows() {
  const uint32_t last = plan_.n_rows() - 1;
  for (const PlannedSegment& s : plan_.segments) {
    if (s.reused() && s.kind == SegmentKind::chunk) n_reused_ += s.n_rows;
    for (uint32_t row = s.first_row; row < s.first_row + s.n_rows; ++row) {
      if (!s.reused() || row == last) {
        always_.push_back(row);
      } else if (!s.exact && options_.policy == Policy::hkvd) {
        candidates_.push_back(row);
      }
    }
  }
  active_ = always_;
  if (measures()) {
    active_.clear();
    std::merge(always_.begin(), always_.end(), candidates_.begin(), candidates_.end(),
               std::back_inserter(active_));
  }
}

Status Pass::start_loader() {
  std::vector<LayerLoader::Item> items;
  first_load_ = n_layers_;
  for (size_t i = 0; i < plan_.segments.size(); ++i) {
    const PlannedSegment& s = plan_.segments[i];
    if (!s.reused()) continue;
    // Up to the check layer every row that is not exact keeps its fresh K, V.
    const bool needed_at_once = s.exact || !measures();
    items.push_back({s.chunk.get(), needed_at_once ? 0u : options_.check_layer});
    loaded_segments_.push_back(i);
    first_load_ = std::min(first_load_, items.back().first_layer);
  }
  if (items.empty()) return Status::ok();
  BLEND_ASSIGN(loader_, LayerLoader::start(std::move(items), n_layers_, kRingDepth, clock_));
  return Status::ok();
}

Status Pass::prepare() {
  classify_rows();
  BLEND_RETURN_IF_ERROR(start_loader());

  const uint32_t n_rows = plan_.n_rows();
  const uint32_t room = model_->context_length() - n_rows;
  const uint32_t capacity = n_rows + std::min(options_.reserve_tokens, room);
  BLEND_ASSIGN(out_.sequence, Sequence::create(model_, capacity));
  BLEND_ASSIGN(forward_, Forward::create(*model_, static_cast<uint32_t>(active_.size())));
  out_.deviation.assign(n_rows, 0.0f);
  out_.selected.clear();
  out_.layers.assign(n_layers_, blend_layer_info{});
  computed_.assign(capacity, 0);
  mark_computed();

  std::vector<int32_t> tokens;
  tokens.reserve(active_.size());
  for (const uint32_t row : active_) tokens.push_back(plan_.tokens[row]);
  x_ = forward_->x(static_cast<uint32_t>(active_.size()));
  return forward_->embed(tokens.data(), x_);
}

void Pass::mark_computed() {
  std::fill(computed_.begin(), computed_.end(), uint8_t{0});
  for (const uint32_t row : active_) computed_[row] = 1;
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

Status Pass::acquire(uint32_t layer, const StagedLayer*& staged, blend_layer_info& account) {
  const uint64_t begin = clock_.now_ns();
  auto acquired = loader_->acquire(layer);
  account.wait_ns += clock_.now_ns() - begin;
  if (!acquired.is_ok()) {
    damaged_segment_ = loaded_segments_[loader_->failed_item()];
    return acquired.status();
  }
  staged = *acquired;
  account.bytes_loaded = staged->bytes;
  account.load_begin_ns = staged->load_begin_ns;
  account.load_end_ns = staged->load_end_ns;
  return Status::ok();
}

std::vector<StoredRun> Pass::staged_runs(const StagedLayer& staged) const {
  std::vector<StoredRun> runs;
  for (size_t i = 0; i < staged.chunks.size(); ++i) {
    if (staged.chunks[i] == nullptr) continue;
    const PlannedSegment& s = plan_.segments[loaded_segments_[i]];
    const ChunkShape& shape = s.chunk->meta().shape;
    runs.push_back({staged.chunks[i], staged.chunks[i] + shape.plane_bytes(), shape.dtype, s.n_rows,
                    s.first_row});
  }
  return runs;
}

Status Pass::select(Tensor kv, const StagedLayer& staged) {
  const uint64_t begin = clock_.now_ns();
  // Runs by row of the fresh tensor. A chunk's rows that take part lie next to each other there;
  // the prompt's last row, computed anyway, may be one of them and is measured too.
  std::vector<StoredRun> runs;
  for (StoredRun run : staged_runs(staged)) {
    const auto first = std::lower_bound(active_.begin(), active_.end(), run.first);
    if (first == active_.end() || *first != run.first) continue;  // exact: not computed
    run.first = static_cast<uint32_t>(first - active_.begin());
    runs.push_back(run);
  }
  std::vector<float> fresh_deviation(active_.size(), 0.0f);
  BLEND_RETURN_IF_ERROR(
      model_->backend().deviation(kv, runs, options_.metric, fresh_deviation.data()));
  for (size_t i = 0; i < active_.size(); ++i) out_.deviation[active_[i]] = fresh_deviation[i];

  const size_t budget = recompute_budget(options_.ratio, n_reused_);
  BLEND_ASSIGN(out_.selected, select_rows(model_->backend(), candidates_, out_.deviation, budget));
  out_.info.select_ns += clock_.now_ns() - begin;
  return Status::ok();
}

Status Pass::layer(uint32_t layer, const Watch& watch) {
  Backend& b = model_->backend();
  KvCache& cache = out_.sequence->cache();
  const RopeTable& rope = out_.sequence->rope();
  blend_layer_info& account = out_.layers[layer];
  account.layer = layer;
  account.compute_begin_ns = clock_.now_ns();

  // Fresh K, V first: what they need is here already, and the reader gains the time.
  const Tensor kv = forward_->kv(static_cast<uint32_t>(active_.size()));
  BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x_, kv, watch));
  BLEND_RETURN_IF_ERROR(b.write_kv(cache, layer, rope, kv, active_.data()));
  account.rows_kv = active_.size();

  if (loader_ != nullptr && layer >= first_load_) {
    const StagedLayer* staged = nullptr;
    BLEND_RETURN_IF_ERROR(acquire(layer, staged, account));
    if (measures() && layer == options_.check_layer) BLEND_RETURN_IF_ERROR(select(kv, *staged));

    // At the check layer computed_ still covers the candidates: their fresh K, V stay.
    const uint64_t begin = clock_.now_ns();
    const std::vector<StoredRun> runs = staged_runs(*staged);
    BLEND_RETURN_IF_ERROR(b.place(cache, layer, rope, runs, computed_.data(), nullptr));
    for (const StoredRun& run : runs) {
      const auto first = computed_.begin() + run.first;
      account.rows_placed += static_cast<uint64_t>(std::count(first, first + run.n_rows, 0));
    }
    loader_->release(layer);
    account.place_ns = clock_.now_ns() - begin;
  }

  if (measures() && layer == options_.check_layer) {
    std::vector<uint32_t> keep;
    std::merge(always_.begin(), always_.end(), out_.selected.begin(), out_.selected.end(),
               std::back_inserter(keep));
    BLEND_RETURN_IF_ERROR(keep_rows(std::move(keep)));
    mark_computed();
  }
  // Behind the last layer only the last row's output is read.
  if (layer + 1 == n_layers_) BLEND_RETURN_IF_ERROR(keep_rows({plan_.n_rows() - 1}));

  BLEND_RETURN_IF_ERROR(forward_->finish_layer(layer, cache, rope, x_, active_.data(), watch));
  account.rows_full = active_.size();
  account.compute_end_ns = clock_.now_ns();
  return Status::ok();
}

Status Pass::run(const Watch& watch) {
  BLEND_RETURN_IF_ERROR(prepare());
  for (uint32_t i = 0; i < n_layers_; ++i) {
    BLEND_RETURN_IF_ERROR(watch.report(i, n_layers_));
    BLEND_RETURN_IF_ERROR(layer(i, watch));
  }
  std::vector<float> logits(model_->config().n_vocab);
  BLEND_RETURN_IF_ERROR(forward_->logits(x_, logits.data()));
  out_.sequence->set_filled(plan_.tokens, std::move(logits));

  out_.info.n_rows_reused = n_reused_;
  out_.info.n_rows_always = always_.size();
  out_.info.n_rows_selected = out_.selected.size();
  return watch.report(n_layers_, n_layers_);
}

Status check_options(const Model& model, const StoreAccess& store, const FuseOptions& o) {
  const uint32_t n_layers = model.config().n_layers;
  if (!(o.ratio >= 0.0 && o.ratio <= 1.0)) {  // NaN fails too
    return make_error(BLEND_E_INVALID_ARGUMENT, "ratio %g must lie in [0, 1]", o.ratio);
  }
  // Layer 0's K, V depend on no other row: there is no deviation to measure.
  if (o.policy == Policy::hkvd && n_layers > 1 &&
      (o.check_layer < 1 || o.check_layer >= n_layers)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "check_layer %u must lie in 1 .. %u for this model",
                      o.check_layer, n_layers - 1);
  }
  if (store.store == nullptr && o.policy != Policy::full && o.on_miss != OnMiss::compute) {
    return {BLEND_E_INVALID_ARGUMENT,
            "a store is needed unless the policy is BLEND_POLICY_FULL or on_miss is "
            "BLEND_MISS_COMPUTE"};
  }
  return Status::ok();
}

void account_segments(const Plan& plan, Fused& out) {
  out.segments.assign(plan.segments.size(), blend_segment_info{});
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const PlannedSegment& s = plan.segments[i];
    blend_segment_info& info = out.segments[i];
    info.kind = static_cast<uint32_t>(s.kind);
    info.source = static_cast<uint32_t>(s.source);
    info.exact = s.exact ? 1 : 0;
    info.first_row = s.first_row;
    info.n_rows = s.n_rows;
    const auto begin = std::lower_bound(out.selected.begin(), out.selected.end(), s.first_row);
    const auto end = std::lower_bound(begin, out.selected.end(), s.first_row + s.n_rows);
    info.n_rows_selected = static_cast<uint64_t>(end - begin);
    std::memcpy(info.id.bytes, s.id.data(), s.id.size());
    if (s.exact) out.info.n_rows_exact += s.n_rows;
  }
}

void account_totals(const Plan& plan, const FuseOptions& options, uint64_t plan_ns,
                    const Stopwatch& clock, Fused& out) {
  blend_fusion_info& info = out.info;
  info.flags = options.policy == Policy::hkvd ? BLEND_FUSION_UNCALIBRATED : 0;
  info.policy = static_cast<uint32_t>(options.policy);
  info.metric = static_cast<uint32_t>(options.metric);
  info.check_layer = options.check_layer;
  info.n_layers = static_cast<uint32_t>(out.layers.size());
  info.ratio = options.ratio;
  info.n_rows = plan.n_rows();
  info.n_segments = plan.segments.size();
  info.n_hits = plan.n_hits;
  info.n_misses = plan.n_misses;
  info.plan_ns = plan_ns;
  info.miss_ns = plan.miss_ns;
  uint64_t layers_ns = 0;
  for (size_t i = 0; i < out.layers.size(); ++i) {
    const blend_layer_info& l = out.layers[i];
    info.bytes_loaded += l.bytes_loaded;
    info.load_ns += l.load_end_ns - l.load_begin_ns;
    info.wait_ns += l.wait_ns;
    info.place_ns += l.place_ns;
    layers_ns += l.compute_end_ns - l.compute_begin_ns;
  }
  info.ttft_ns = clock.now_ns();
  const uint64_t logits_ns = info.ttft_ns - out.layers.back().compute_end_ns;
  info.compute_ns = layers_ns + logits_ns - info.wait_ns - info.place_ns - info.select_ns;
}

}  // namespace

Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   const std::vector<Segment>& segments, const FuseOptions& options,
                   const Watch& watch) {
  const Stopwatch clock;
  BLEND_RETURN_IF_ERROR(check_options(*model, store, options));
  Planner planner(*model, store.store, !store.read_only, store.kv_dtype, options);
  BLEND_ASSIGN(Plan plan, planner.build(segments, watch));
  const uint64_t plan_ns = clock.now_ns() - plan.miss_ns;

  // A damaged chunk shows when its bytes are read. It is then a miss, and the pass begins again:
  // rare enough that the lost time does not matter, and each round mends one segment.
  for (;;) {
    Fused out;
    Pass pass(model, plan, options, clock, out);
    const Status status = pass.run(watch);
    if (status.is_ok()) {
      account_segments(plan, out);
      account_totals(plan, options, plan_ns, clock, out);
      return out;
    }
    const size_t index = pass.damaged_segment();
    if (status.code() != BLEND_E_CORRUPT || plan.segments[index].source != Source::store) {
      return status;
    }
    BLEND_RETURN_IF_ERROR(planner.replace_damaged(plan, index, status, watch));
  }
}

}  // namespace blend
