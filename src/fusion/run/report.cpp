#include "fusion/run/report.h"

#include <algorithm>
#include <cstring>

#include "fusion/resolve/trust.h"

namespace blend {

namespace {

uint64_t nanoseconds(double seconds) {
  constexpr double kMost = 1e9;  // 30 years, so that the product fits
  return static_cast<uint64_t>(std::min(seconds, kMost) * 1e9);
}

void report_choice(const RatioChoice& choice, blend_fusion_report& info) {
  info.flags |= BLEND_FUSION_RATIO_CHOSEN;
  if (choice.late) info.flags |= BLEND_FUSION_TARGET_MISSED;
  info.ttft_expected_ns = nanoseconds(choice.ttft_s);
  info.load_expected_ns = nanoseconds(choice.load_s);
  info.compute_expected_ns = nanoseconds(choice.compute_s);
  info.computing_expected_ns = nanoseconds(choice.computing_s);
  info.n_rows_sooner_computed = choice.n_rows_computed;
}

}  // namespace

void report_load(const LayerLoad& load, blend_layer_info& out) {
  out.bytes_loaded = load.bytes;
  out.bytes_shared = load.shared_bytes;
  out.bytes_from_memory = load.memory_bytes;
  out.bytes_from_remote = load.remote_bytes;
  out.load_begin_ns = load.begin_ns;
  out.load_end_ns = load.end_ns;
  out.stall_ns = load.stall_ns;
}

void account_drift(const Corrector& corrector, blend_layer_info& layer, blend_fusion_report& info) {
  info.n_rows_corrected = corrector.n_rows();
  info.n_rows_judging = corrector.judges().size();
  info.drift_share = corrector.mean_share();
  if (corrector.n_rows() == 0) return;
  layer.drift_share_k = static_cast<double>(corrector.share().k);
  layer.drift_share_v = static_cast<double>(corrector.share().v);
}

void report_segments(const Prompt& prompt, Fused& out) {
  out.segments.assign(prompt.segments.size(), blend_segment_info{});
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const PromptSegment& s = prompt.segments[i];
    blend_segment_info& info = out.segments[i];
    info.kind = static_cast<uint32_t>(s.kind);
    info.source = static_cast<uint32_t>(s.source);
    info.exact = s.exact ? 1 : 0;
    info.record = static_cast<uint32_t>(s.record);
    info.first_row = s.first_row;
    info.n_rows = s.n_rows;
    const auto begin = std::lower_bound(out.selected.begin(), out.selected.end(), s.first_row);
    const auto end = std::lower_bound(begin, out.selected.end(), s.first_row + s.n_rows);
    info.n_rows_selected = static_cast<uint64_t>(end - begin);
    std::memcpy(info.id.bytes, s.id.data(), s.id.size());
    if (s.exact) out.info.n_rows_exact += s.n_rows;
  }
}

void report_totals(const Prompt& prompt, const FuseOptions& options, const ResolvedFuse& fuse,
                   const Selection& selection, uint64_t plan_ns, Fused& out) {
  blend_fusion_report& info = out.info;
  const Schedule& schedule = selection.schedule();
  info.flags = trust_flags(fuse.trust, !schedule.empty());
  if (info.n_rows_corrected > 0) {
    info.flags |= BLEND_FUSION_CORRECTED;
    if (info.drift_share < kLeastDriftShare) info.flags |= BLEND_FUSION_DRIFT_DOUBTED;
  }
  // If a prompt begins with a chunk, that chunk has no head and is rightly stored alone.
  const bool after_nothing = prompt.segments.front().kind == SegmentKind::chunk;
  if (!after_nothing &&
      std::any_of(prompt.segments.begin(), prompt.segments.end(),
                  [](const PromptSegment& s) { return s.record == RecordUse::alone; })) {
    info.flags |= BLEND_FUSION_ALONE;
  }
  if (fuse.choice.has_value()) report_choice(*fuse.choice, info);
  info.policy = static_cast<uint32_t>(fuse.policy);
  info.metric = options.metric().code();
  info.norm = static_cast<uint32_t>(options.deviation.norm);
  info.relative = options.deviation.relative ? 1 : 0;
  info.check_layer = schedule.empty() ? options.check_layer : schedule.front().layer;
  info.n_check_layers = static_cast<uint32_t>(schedule.size());
  if (selection.needs().probe()) {
    info.first_asked_layer = selection.asked().first;
    info.last_asked_layer = selection.asked().last;
  }
  info.n_layers = static_cast<uint32_t>(out.layers.size());
  info.ratio = fuse.mean_ratio();
  info.n_rows = prompt.n_rows();
  info.n_rows_resident = prompt.n_resident;
  info.n_rows_reused = selection.rows().n_reused;
  info.n_rows_always = selection.rows().always.size();
  info.n_rows_selected = selection.selected().size();
  info.n_segments = prompt.segments.size();
  info.n_hits = prompt.n_hits;
  info.n_misses = prompt.n_misses;
  info.n_misses_late = prompt.n_late;
  info.plan_ns = plan_ns;
  info.miss_ns = prompt.miss_ns;
  uint64_t layers_ns = 0;
  for (const blend_layer_info& l : out.layers) {
    info.bytes_loaded += l.bytes_loaded;
    info.bytes_shared += l.bytes_shared;
    info.bytes_from_memory += l.bytes_from_memory;
    info.bytes_from_remote += l.bytes_from_remote;
    info.load_ns += l.load_end_ns - l.load_begin_ns;
    info.stall_ns += l.stall_ns;
    info.wait_ns += l.wait_ns;
    info.place_ns += l.place_ns;
    layers_ns += l.compute_end_ns - l.compute_begin_ns;
  }
  info.compute_ns += layers_ns - info.wait_ns - info.place_ns - info.select_ns;
}

void report_end(const Stopwatch& clock, Fused& out) {
  blend_fusion_report& info = out.info;
  info.ttft_ns = clock.now_ns();
  const uint64_t known = info.plan_ns + info.miss_ns + info.prepare_ns + info.wait_ns +
                         info.place_ns + info.select_ns + info.compute_ns;
  info.other_ns = info.ttft_ns - known;
}

}  // namespace blend
