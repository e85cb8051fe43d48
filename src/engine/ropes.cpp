#include "engine/ropes.h"

#include <algorithm>

namespace blend {

Result<std::shared_ptr<const Ropes>> Ropes::create(Backend& backend, const ModelConfig& config,
                                                   uint32_t n_positions) {
  std::shared_ptr<Ropes> ropes(new Ropes());
  ropes->n_positions_ = n_positions;
  ropes->layers_ = config.layers;
  // Q's growth with its position is in the table of the queries alone.
  const auto make = [&](RopeParams params, double factor, bool grows,
                        std::shared_ptr<const RopeTable>& out) -> Status {
    params.attention_factor = factor;
    if (!grows) params.q_growth = 0;
    BLEND_ASSIGN(out, backend.make_rope(params, n_positions));
    return Status::ok();
  };
  for (const auto kind :
       {LayerAttention::Rope::main, LayerAttention::Rope::local, LayerAttention::Rope::none}) {
    const auto named = [&](const LayerAttention& layer) { return layer.rope == kind; };
    const bool used = config.layers.empty()
                          ? kind == LayerAttention::Rope::main
                          : std::any_of(config.layers.begin(), config.layers.end(), named);
    if (!used) continue;
    RopeParams params;  // rotates nothing
    if (kind == LayerAttention::Rope::main) params = config.rope;
    if (kind == LayerAttention::Rope::local) params = config.local_rope;
    const double factor = params.attention_factor;
    Tables& t = ropes->tables_[static_cast<size_t>(kind)];
    BLEND_RETURN_IF_ERROR(make(params, 1.0, false, t.keys));
    t.queries = t.to_host = t.from_host = t.keys;
    if (factor != 1.0 || params.q_growth != 0) {
      BLEND_RETURN_IF_ERROR(make(params, factor * factor, true, t.queries));
    }
    if (factor == 1.0) continue;
    BLEND_RETURN_IF_ERROR(make(params, factor, false, t.to_host));
    BLEND_RETURN_IF_ERROR(make(params, 1.0 / factor, false, t.from_host));
  }
  return std::shared_ptr<const Ropes>(std::move(ropes));
}

}  // namespace blend
