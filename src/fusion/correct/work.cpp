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

void Work::add_kv(size_t n_rows) {
  flops_ += static_cast<double>(n_rows) * 2.0 * config_->d_model * 2.0 * config_->kv_dim();
}

void Work::add_layer(uint32_t layer, std::span<const uint32_t> rows) {
  const double q_dim = config_->q_dim(), d = config_->d_model;
  double d_ff = config_->common_d_ff(layer);  // that one row goes through
  if (config_->has_experts(layer)) {
    const Experts& e = config_->experts;
    d_ff += static_cast<double>(e.used) * e.d_ff;
    flops_ += static_cast<double>(rows.size()) * 2.0 * d * e.count;  // the router
  }
  flops_ += static_cast<double>(rows.size()) * 2.0 * (2.0 * d * q_dim + 3.0 * d * d_ff) +
            pairs(layer, rows) * 4.0 * q_dim;
}

void Work::add_attention_mass(uint32_t layer, std::span<const uint32_t> rows) {
  flops_ += static_cast<double>(rows.size()) * 2.0 * config_->d_model * config_->q_dim();
  add_scores(layer, rows);
}

void Work::add_scores(uint32_t layer, std::span<const uint32_t> rows) {
  flops_ += pairs(layer, rows) * 2.0 * config_->q_dim();
}

void Work::add_logits() {
  flops_ += 2.0 * static_cast<double>(config_->d_model) * static_cast<double>(config_->n_vocab);
}

}  // namespace blend
