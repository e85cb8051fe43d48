#include "fusion/account.h"

#include <algorithm>
#include <cstring>

namespace blend {

void account_load(const LayerLoad& load, blend_layer_info& out) {
  out.bytes_loaded = load.bytes;
  out.bytes_shared = load.shared_bytes;
  out.bytes_from_memory = load.memory_bytes;
  out.load_begin_ns = load.begin_ns;
  out.load_end_ns = load.end_ns;
  out.stall_ns = load.stall_ns;
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

void account_totals(const Plan& plan, const FuseOptions& options, const Schedule& checks,
                    bool ratio_chosen, uint64_t plan_ns, Fused& out) {
  blend_fusion_info& info = out.info;
  const auto n_layers = static_cast<uint32_t>(out.layers.size());
  info.flags = checks.empty() ? 0 : BLEND_FUSION_UNCALIBRATED;
  if (info.n_rows_corrected > 0) info.flags |= BLEND_FUSION_CORRECTED;
  info.policy = static_cast<uint32_t>(options.policy);
  info.metric = options.metric().code();
  info.norm = static_cast<uint32_t>(options.deviation.norm);
  info.relative = options.deviation.relative ? 1 : 0;
  info.check_layer = checks.empty() ? options.check_layer : checks.front().layer;
  info.n_check_layers = static_cast<uint32_t>(checks.size());
  info.n_layers = n_layers;
  info.ratio = options.check_layers.empty() ? options.ratio : mean_ratio(checks, n_layers);
  if (ratio_chosen) {
    info.ratio = checks.front().ratio;
    info.flags |= BLEND_FUSION_RATIO_CHOSEN;
  }
  info.n_rows = plan.n_rows();
  info.n_rows_resident = plan.n_resident;
  info.n_segments = plan.segments.size();
  info.n_hits = plan.n_hits;
  info.n_misses = plan.n_misses;
  info.plan_ns = plan_ns;
  info.miss_ns = plan.miss_ns;
  uint64_t layers_ns = 0;
  for (const blend_layer_info& l : out.layers) {
    info.bytes_loaded += l.bytes_loaded;
    info.bytes_shared += l.bytes_shared;
    info.bytes_from_memory += l.bytes_from_memory;
    info.load_ns += l.load_end_ns - l.load_begin_ns;
    info.stall_ns += l.stall_ns;
    info.wait_ns += l.wait_ns;
    info.place_ns += l.place_ns;
    layers_ns += l.compute_end_ns - l.compute_begin_ns;
  }
  info.compute_ns += layers_ns - info.wait_ns - info.place_ns - info.select_ns;
}

void account_end(const Stopwatch& clock, Fused& out) {
  blend_fusion_info& info = out.info;
  info.ttft_ns = clock.now_ns();
  const uint64_t known = info.plan_ns + info.miss_ns + info.prepare_ns + info.wait_ns +
                         info.place_ns + info.select_ns + info.compute_ns;
  info.other_ns = info.ttft_ns - known;
}

}  // namespace blend
