#include "fusion/correct/work.h"

#include <algorithm>

namespace blend {

double Work::pairs(uint32_t layer, std::span<const uint32_t> rows) const {
  const uint32_t window = config_->attention(layer).window;
  double sum = 0;
  for (const uint32_t row : rows) {
    sum += static_cast<double>(window == 0 ? row + 1 : std::min(row + 1, window));
  }
  return sum;
}

void Work::add_kv(uint32_t layer, size_t n_rows) {
  // u is made of two projections.
  const bool conv = config_->mixer.has(layer) && config_->mixer.kind == RowMixer::Kind::conv;
  const double dim = conv ? 2.0 * config_->d_model : config_->row_dim(layer);
  flops_ += static_cast<double>(n_rows) * 2.0 * config_->d_model * dim;
}

void Work::add_layer(uint32_t layer, std::span<const uint32_t> rows) {
  const double d = config_->d_model;
  double fed = d * config_->common_d_ff(layer);  // of each matrix that one row goes through
  if (config_->has_experts(layer)) {
    const Experts& e = config_->experts;
    fed += static_cast<double>(e.used) * e.d_ff * config_->expert_dim();
    // The router, and what makes rows for experts and of theirs.
    flops_ += static_cast<double>(rows.size()) * 2.0 * d * (e.count + 2.0 * e.latent);
  }
  const bool mixes = config_->mixer.has(layer);
  // Of C, z, or Q with any gate; and of the output.
  const double gate = config_->attn_gate ? config_->heads(layer).q_dim() : 0;
  const double inner =
      mixes ? d * 2.0 * config_->mixed_dim()
            : config_->q_products(layer) + d * gate + config_->result_products(layer);
  double products = inner + config_->ffn_matrices() * fed + config_->other_products();
  if (layer == 0) products += config_->stream_products();
  flops_ += static_cast<double>(rows.size()) * 2.0 * products;
  if (!mixes) flops_ += pairs(layer, rows) * 4.0 * config_->asked_dim(layer);
  // Every row before the last is scanned, whether it is computed or not.
  if (mixes && !rows.empty()) flops_ += (rows.back() + 1.0) * config_->mixer.scan_flops();
}

void Work::add_attention_mass(uint32_t layer, std::span<const uint32_t> rows) {
  flops_ += static_cast<double>(rows.size()) * 2.0 * config_->q_products(layer);
  add_scores(layer, rows);
}

void Work::add_scores(uint32_t layer, std::span<const uint32_t> rows) {
  if (config_->mixer.has(layer)) return;
  flops_ += pairs(layer, rows) * 2.0 * config_->asked_dim(layer);
}

void Work::add_logits() {
  flops_ += 2.0 * (static_cast<double>(config_->d_model) * static_cast<double>(config_->n_vocab) +
                   config_->stream_products());
}

}  // namespace blend
