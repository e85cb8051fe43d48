#include "engine/context_impact.h"

#include <algorithm>
#include <numeric>

#include "model/config.h"

namespace blend {
namespace {

// Tokens of the text that a chunk is put after: a sentence or two.
constexpr size_t kOutsideTokens = 64;

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

Result<std::vector<float>> outside_mass(const Model& model, std::span<const int32_t> tokens,
                                        Forward& forward, Tensor x, Tensor kv, const Watch& watch) {
  const ModelConfig& c = model.config();
  std::vector<int32_t> context;
  if (model.tokenizer().bos() >= 0) context.push_back(model.tokenizer().bos());
  context.insert(context.end(), tokens.begin(),
                 tokens.begin() + static_cast<int64_t>(std::min(tokens.size(), kOutsideTokens)));
  // A chunk that fills the model's context has less before it, or nothing: then all rows are equal.
  const size_t room = model.context_length() - tokens.size();
  if (context.size() > room) context.resize(room);
  std::vector<float> mass(tokens.size(), 1.0f);
  if (context.empty()) return mass;

  const auto n_outside = static_cast<uint32_t>(context.size());
  const uint32_t rows = n_outside + static_cast<uint32_t>(tokens.size());
  const uint32_t last = outside_layer(c);
  ModelConfig few_layers = c;
  few_layers.n_layers = last + 1;  // which all keep K and V
  BLEND_ASSIGN(auto before, Forward::create(model, n_outside));
  BLEND_ASSIGN(auto ropes, model.ropes(rows));
  BLEND_ASSIGN(auto cache, model.backend().make_kv_cache(few_layers, rows));
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), 0u);
  const Tensor before_x = before->x(n_outside);
  BLEND_RETURN_IF_ERROR(before->embed(context.data(), before_x));
  for (uint32_t layer = 0; layer <= last; ++layer) {
    const Tensor before_kv = before->kv(layer, n_outside);
    BLEND_RETURN_IF_ERROR(before->compute_kv(layer, before_x, before_kv, watch));
    BLEND_RETURN_IF_ERROR(
        model.backend().write_kv(*cache, layer, ropes->keys(layer), before_kv, pos.data()));
    if (layer == last) break;
    BLEND_RETURN_IF_ERROR(before->finish_layer(layer, *cache, *ropes, before_x, pos.data(), watch));
  }
  const uint32_t* const own = pos.data() + n_outside;
  BLEND_RETURN_IF_ERROR(model.backend().write_kv(*cache, last, ropes->keys(last), kv, own));
  BLEND_RETURN_IF_ERROR(
      forward.outside_mass(last, *cache, *ropes, x, own, n_outside, mass.data(), watch));
  return mass;
}

}  // namespace blend
