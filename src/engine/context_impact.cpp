#include "engine/context_impact.h"

#include <algorithm>
#include <numeric>

#include "model/config.h"

namespace blend {
namespace {

// Tokens of the text that a chunk is put after: a sentence or two.
constexpr uint32_t kOutsideTokens = 64;

// For a cache that has these layers, all of which keep K and V.
ModelConfig layers_up_to(const Model& model, uint32_t last) {
  ModelConfig config = model.config();
  config.n_layers = last + 1;
  return config;
}

}  // namespace

Status InsideMass::last_layer(Forward& forward, uint32_t layer, const KvCache& cache,
                              const Ropes& ropes, Tensor x, const uint32_t* pos,
                              const Watch& watch) {
  BLEND_RETURN_IF_ERROR(forward.attention_mass(layer, cache, ropes,
                                               x.slice(n_rows_before_, n_tokens()),
                                               pos + n_rows_before_, mass_.data(), watch));
  add();
  return Status::ok();
}

void InsideMass::add() {
  // inside() is a mean over all rows; row i is seen by n - i of them.
  const auto n = static_cast<uint32_t>(inside_.size());
  for (uint32_t i = 0; i < n; ++i) {
    inside_[i] += mass_[n_slots_before_ + i] * static_cast<float>(n) / static_cast<float>(n - i);
  }
}

uint32_t outside_layer(const ModelConfig& config) {
  const uint32_t dependent = dependent_layer(config.mixer, config.n_kept(), 1);
  if (dependent < config.n_kept()) return dependent;
  uint32_t last = config.n_kept() - 1;  // the only one that attends
  while (last > 0 && config.mixer.has(last)) --last;
  return last;
}

Result<OutsideMass> OutsideMass::create(const Model& model, int32_t first, const Watch& watch) {
  OutsideMass out(model);
  if (first < 0) return out;
  const uint32_t last = outside_layer(model.config()), pos = 0;
  BLEND_ASSIGN(out.first_, Forward::create(model, 1));
  BLEND_ASSIGN(const auto ropes, model.ropes(1));
  BLEND_ASSIGN(const auto cache, model.backend().make_kv_cache(layers_up_to(model, last), 1));
  const Tensor x = out.first_->x(1);
  BLEND_RETURN_IF_ERROR(out.first_->embed(&first, x));
  for (uint32_t layer = 0; layer <= last; ++layer) {
    const Tensor kv = out.first_->kv(layer, 1);
    BLEND_RETURN_IF_ERROR(out.first_->compute_kv(layer, x, kv, watch));
    if (layer == last) break;
    BLEND_RETURN_IF_ERROR(model.backend().write_kv(*cache, layer, ropes->keys(layer), kv, &pos));
    BLEND_RETURN_IF_ERROR(out.first_->finish_layer(layer, *cache, *ropes, x, &pos, watch));
  }
  return out;
}

Result<std::vector<float>> OutsideMass::of(Forward& forward, Tensor x, Tensor kv,
                                           const Watch& watch) const {
  const auto n_tokens = static_cast<uint32_t>(x.rows);
  // A chunk that fills the model's context has less before it, or nothing: then all rows are equal.
  const uint32_t room = model_->context_length() - n_tokens;
  const uint32_t n_first = first_ == nullptr ? 0 : std::min(room, 1u);
  const uint32_t n_beginning = std::min({n_tokens, kOutsideTokens, room - n_first});
  const uint32_t n_outside = n_first + n_beginning;
  std::vector<float> mass(n_tokens, 1.0f);
  if (n_outside == 0) return mass;

  Backend& b = model_->backend();
  const uint32_t layer = outside_layer(model_->config()), rows = n_outside + n_tokens;
  BLEND_ASSIGN(const auto ropes, model_->ropes(rows));
  BLEND_ASSIGN(const auto cache, b.make_kv_cache(layers_up_to(*model_, layer), rows));
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), 0u);
  const auto write = [&](Tensor of, uint32_t at) {
    return b.write_kv(*cache, layer, ropes->keys(layer), of, pos.data() + at);
  };
  if (n_first > 0) BLEND_RETURN_IF_ERROR(write(first_->kv(layer, 1), 0));
  if (n_beginning > 0) BLEND_RETURN_IF_ERROR(write(kv.slice(0, n_beginning), n_first));
  BLEND_RETURN_IF_ERROR(write(kv, n_outside));
  BLEND_RETURN_IF_ERROR(forward.outside_mass(layer, *cache, *ropes, x, pos.data() + n_outside,
                                             n_outside, mass.data(), watch));
  return mass;
}

}  // namespace blend
