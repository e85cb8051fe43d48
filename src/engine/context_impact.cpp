#include "engine/context_impact.h"

#include <algorithm>
#include <numeric>

namespace blend {
namespace {

// Of the text that a chunk is put behind: a sentence or two.
constexpr size_t kContextTokens = 64;

}  // namespace

Status InsideMass::add(Forward& forward, uint32_t layer, const KvCache& cache, const Ropes& ropes,
                       Tensor x, const uint32_t* pos, const Watch& watch) {
  const auto n = static_cast<uint32_t>(inside_.size());
  BLEND_RETURN_IF_ERROR(forward.attention_mass(layer, cache, ropes, x.slice(n_prefix_, n),
                                               pos + n_prefix_, mass_.data(), watch));
  // Its mean is over all rows; row i is seen by n - i of them.
  for (uint32_t i = 0; i < n; ++i) {
    inside_[i] += mass_[n_prefix_ + i] * static_cast<float>(n) / static_cast<float>(n - i);
  }
  return Status::ok();
}

Result<std::vector<float>> outside_mass(const Model& model, std::span<const int32_t> tokens,
                                        const Watch& watch) {
  const ModelConfig& c = model.config();
  std::vector<int32_t> all;
  if (model.tokenizer().bos() >= 0) all.push_back(model.tokenizer().bos());
  all.insert(all.end(), tokens.begin(),
             tokens.begin() + static_cast<int64_t>(std::min(tokens.size(), kContextTokens)));
  // A chunk that fills the context has less before it, or nothing: then its rows are all alike.
  const size_t room = model.context_length() - tokens.size();
  if (all.size() > room) all.resize(room);
  const auto n_outside = static_cast<uint32_t>(all.size());
  std::vector<float> mass(tokens.size(), 1.0f);
  if (n_outside == 0) return mass;
  all.insert(all.end(), tokens.begin(), tokens.end());

  const auto rows = static_cast<uint32_t>(all.size());
  const uint32_t last = std::min(1u, c.n_layers - 1);
  ModelConfig few_layers = c;
  few_layers.n_layers = last + 1;
  BLEND_ASSIGN(auto forward, Forward::create(model, rows));
  BLEND_ASSIGN(auto ropes, model.ropes(rows));
  BLEND_ASSIGN(auto cache, model.backend().make_kv_cache(few_layers, rows));
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), 0u);
  const Tensor x = forward->x(rows), kv = forward->kv(rows);
  BLEND_RETURN_IF_ERROR(forward->embed(all.data(), x));
  for (uint32_t layer = 0; layer <= last; ++layer) {
    BLEND_RETURN_IF_ERROR(forward->compute_kv(layer, x, kv, watch));
    BLEND_RETURN_IF_ERROR(
        model.backend().write_kv(*cache, layer, ropes->keys(layer), kv, pos.data()));
    if (layer == last) break;
    BLEND_RETURN_IF_ERROR(forward->finish_layer(layer, *cache, *ropes, x, pos.data(), watch));
  }
  const auto n = static_cast<int64_t>(tokens.size());
  BLEND_RETURN_IF_ERROR(forward->outside_mass(last, *cache, *ropes, x.slice(n_outside, n),
                                              pos.data() + n_outside, n_outside, mass.data(),
                                              watch));
  return mass;
}

}  // namespace blend
