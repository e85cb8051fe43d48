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
  const uint32_t dim = config_->conv.has(layer) ? config_->d_model : config_->kv_dim();
  flops_ += static_cast<double>(n_rows) * 2.0 * config_->d_model * 2.0 * dim;
}

void Work::add_layer(uint32_t layer, std::span<const uint32_t> rows) {
  const double q_dim = config_->q_dim(), d = config_->d_model;
  double d_ff = config_->common_d_ff(layer);  // that one row goes through
  if (config_->has_experts(layer)) {
    const Experts& e = config_->experts;
    d_ff += static_cast<double>(e.used) * e.d_ff;
    flops_ += static_cast<double>(rows.size()) * 2.0 * d * e.count;  // the router
  }
  const bool convolves = config_->conv.has(layer);
  const double inner = convolves ? d : q_dim;  // of C and the output, or Q and the output
  flops_ += static_cast<double>(rows.size()) * 2.0 * (2.0 * d * inner + 3.0 * d * d_ff);
  if (!convolves) flops_ += pairs(layer, rows) * 4.0 * q_dim;
}

void Work::add_attention_mass(uint32_t layer, std::span<const uint32_t> rows) {
  flops_ += static_cast<double>(rows.size()) * 2.0 * config_->d_model * config_->q_dim();
  add_scores(layer, rows);
}

void Work::add_scores(uint32_t layer, std::span<const uint32_t> rows) {
  if (config_->conv.has(layer)) return;
  flops_ += pairs(layer, rows) * 2.0 * config_->q_dim();
}

void Work::add_logits() {
  flops_ += 2.0 * static_cast<double>(config_->d_model) * static_cast<double>(config_->n_vocab);
}

}  // namespace blend
