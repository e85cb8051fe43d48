#include "control/pass_cost.h"

#include <algorithm>
#include <cmath>

namespace blend {
namespace {

// To read an expert's weights takes as long as multiplying them with this many rows.
constexpr double kRowsOfReading = 8;

}  // namespace

size_t recompute_budget(double ratio, size_t n_reused) {
  const double rows = ratio * static_cast<double>(n_reused);
  return static_cast<size_t>(std::ceil(rows - 1e-9 * (1.0 + rows)));
}

bool asking_matters(std::span<const CheckLayer> schedule, uint64_t n_reused,
                    uint64_t n_candidates) {
  if (schedule.empty()) return false;
  return recompute_budget(schedule.front().ratio, n_reused) > 0 &&
         recompute_budget(schedule.back().ratio, n_reused) < n_candidates;
}

std::vector<LayerRows> rows_by_layer(std::span<const CheckLayer> schedule,
                                     std::optional<uint32_t> asks_upto, const RowCounts& rows,
                                     uint32_t n_layers) {
  const bool probes =
      asks_upto.has_value() && asking_matters(schedule, rows.n_reused, rows.n_candidates);
  const uint32_t asked = asks_upto.value_or(0);  // the last layer
  std::vector<LayerRows> out(n_layers);
  uint64_t chosen = probes ? 0 : rows.n_candidates;
  size_t next = 0;
  const auto choose = [&](uint64_t among) {
    chosen = std::min<uint64_t>(among, recompute_budget(schedule[next++].ratio, rows.n_reused));
  };
  const auto is_due = [&](uint32_t layer) {
    return next < schedule.size() && schedule[next].layer == layer;
  };
  if (!probes && is_due(0)) choose(chosen);
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    LayerRows& at = out[layer];
    if (probes && layer == asked) {
      at.n_kv = at.n_ahead = rows.n_always;  // the question's attention
      choose(rows.n_candidates);
      // Then all layers so far again, with the chosen rows.
      at.n_kv += layer * (rows.n_always + chosen);
      at.n_rest += layer * (rows.n_always + chosen);
      at.n_layers += layer;
    }
    at.n_kv += rows.n_always + chosen;
    if (at.n_ahead == 0) at.n_ahead = at.n_kv;
    if ((!probes || layer >= asked) && is_due(layer)) choose(chosen);
    // After the last layer only the prompt's last row is needed.
    at.n_rest += layer + 1 == n_layers ? 1 : rows.n_always + chosen;
    at.n_chosen = chosen;
  }
  return out;
}

RowCost RowCost::of(const ModelConfig& c, uint64_t n_rows, double prefill_s) {
  RowCost out;
  if (n_rows == 0 || c.n_kept() == 0) return out;
  const double n = static_cast<double>(n_rows), layers = c.n_kept();
  const double d = c.d_model, q_dim = c.latent.any() ? c.asked_dim(0) : c.q_dim();
  // Means over the layers, some of which may not attend.
  const double attend = c.n_attending() / layers, mix = 1 - attend;
  const double kept = c.mixer.scans() ? c.mixer_row_dim() : 2.0 * d;
  const double kv = 2.0 * d * (attend * 2.0 * c.kv_dim() + mix * kept);
  const double inner =
      c.latent.any() ? c.q_products(0) + c.result_products(0)
                     : d * (attend * (c.attn_gate ? 3 : 2) * q_dim + mix * 2.0 * c.mixed_dim());
  const Experts& e = c.experts;
  const auto dense = static_cast<double>(std::count(e.dense.begin(), e.dense.end(), true));
  const double share = e.count == 0 ? 0 : 1 - dense / layers;  // of the layers that have experts
  double fed = c.ffn_matrices() * d * c.row_d_ff(c.n_kept());
  if (e.latent != 0) {  // narrower rows, which two matrices make and read
    fed += share * (2.0 * d * e.latent -
                    (d - e.latent) * c.ffn_matrices() * static_cast<double>(e.used) * e.d_ff);
  }
  const double others = c.other_products() + c.stream_products() / layers;
  const double rest =
      2.0 * (inner + fed + others) + attend * n / 2 * 4.0 * q_dim + mix * c.mixer.scan_flops();
  // Each in its share of an operation's time.
  out.kv_s = kv;
  out.rest_s = rest;
  if (e.count != 0) {
    out.experts_s =
        share * kRowsOfReading * e.count * 2.0 * c.ffn_matrices() * c.expert_dim() * e.d_ff;
    out.passed_by = 1 - static_cast<double>(e.used) / e.count;
  }
  const double all = n * layers * kv + (layers - 1) * out.rest(n_rows) + out.rest(1);
  return out.paced(prefill_s / all);
}

double RowCost::rest(uint64_t n, uint64_t n_layers) const {
  const double rows = static_cast<double>(n) * rest_s;
  if (experts_s == 0) return rows;
  const auto each = static_cast<double>(n) / static_cast<double>(n_layers);
  return rows + static_cast<double>(n_layers) * experts_s * (1 - std::pow(passed_by, each));
}

RowCost RowCost::paced(double factor) const {
  RowCost out = *this;
  out.kv_s *= factor;
  out.rest_s *= factor;
  out.experts_s *= factor;
  return out;
}

double computed_seconds(std::span<const LayerRows> layers, const RowCost& row) {
  double sum = 0;
  for (const LayerRows& at : layers) {
    sum += static_cast<double>(at.n_kv) * row.kv_s + row.rest(at.n_rest, at.n_layers);
  }
  return sum;
}

PassCost pass_cost(std::span<const LayerRows> layers, const RowCounts& rows, const RowCost& row,
                   const LoadCost& load, uint32_t first_stored_layer, double slower) {
  PassCost out;
  std::vector<LayerCost> costs(layers.size());
  double latency_s = load.latency_s;
  for (uint32_t i = 0; i < costs.size(); ++i) {
    LayerCost& at = costs[i];
    at.load_s = load.exact_s + (i >= first_stored_layer ? load.stale_s : 0.0);
    if (at.load_s > 0) {
      at.load_s += latency_s;
      latency_s = 0;
    }
    uint64_t placed = rows.n_exact;
    if (i >= first_stored_layer) placed += rows.n_candidates - layers[i].n_chosen;
    const double ahead_s = slower * static_cast<double>(layers[i].n_ahead) * row.kv_s;
    at.compute_s = slower * (static_cast<double>(layers[i].n_kv - layers[i].n_ahead) * row.kv_s +
                             row.rest(layers[i].n_rest, layers[i].n_layers) +
                             static_cast<double>(placed) * row.place_s);
    out.load_s += at.load_s;
    out.compute_s += ahead_s + at.compute_s;
    // Work before the wait counts for the layer before.
    (i > 0 ? costs[i - 1] : at).compute_s += ahead_s;
  }
  out.seconds = pass_seconds(costs, std::max(1u, static_cast<uint32_t>(costs.size())));
  return out;
}

bool prefill_first_is_sooner(uint64_t n_tokens, uint64_t n_rows,
                             std::span<const CheckLayer> schedule, const ModelConfig& config,
                             const PrefillTimes& prefill) {
  if (n_rows == 0) return false;
  const RowCost row = RowCost::of(config, n_rows, prefill.seconds(n_rows));
  const RowCounts in_pass{.n_always = n_tokens};
  RowCounts reused{.n_reused = n_tokens};
  if (!schedule.empty()) reused.n_candidates = n_tokens;
  const auto seconds = [&](std::span<const CheckLayer> by, const RowCounts& rows) {
    return computed_seconds(rows_by_layer(by, {}, rows, config.n_layers), row);
  };
  return prefill.seconds(n_tokens) + seconds(schedule, reused) < seconds({}, in_pass);
}

}  // namespace blend
