#include "profile/drift.h"

namespace blend {

Result<std::shared_ptr<const Drift>> Drift::load(Backend& backend, const DriftMaps& maps) {
  auto drift = std::shared_ptr<Drift>(new Drift(backend));
  drift->inputs_ = maps.inputs;
  drift->first_layer_ = maps.first_layer;
  drift->n_in_ = static_cast<uint32_t>(maps.n_in());
  drift->n_out_ = static_cast<uint32_t>(maps.n_out());
  drift->rank_ = maps.rank;
  for (uint32_t i = 0; i < maps.n_maps; ++i) {
    auto& layer = drift->maps_.emplace_back();
    for (const TensorView& matrix : maps.matrices(i)) {
      const TensorView* const part = &matrix;
      BLEND_ASSIGN(auto weight, backend.load_matrix({&part, 1}, WeightForm::packed));
      drift->bytes_ += weight->bytes();
      layer.push_back(std::move(weight));
    }
  }
  return std::shared_ptr<const Drift>(std::move(drift));
}

Status Drift::apply(uint32_t layer, Tensor x, Tensor low, Tensor out) const {
  if (layer < first_layer_ || layer - first_layer_ >= maps_.size()) {
    return make_error(BLEND_E_INTERNAL, "no drift map for layer %u", layer);
  }
  const auto& map = maps_[layer - first_layer_];
  if (rank_ == 0) return backend_.matmul(*map[0], x, out, false);
  BLEND_RETURN_IF_ERROR(backend_.matmul(*map[0], x, low, false));
  return backend_.matmul(*map[1], low, out, false);
}

}  // namespace blend
