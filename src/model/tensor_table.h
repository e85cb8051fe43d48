// TensorTable: the tensors of a model by role and layer, checked against its config. Every
// ModelSource is built on it; only the names and the bytes depend on the file format.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/model_source.h"

namespace blend {

// Whether a model of this config has the role; a tied output has no tensor of its own, which only
// the file knows.
bool has_tensor(TensorRole role, const ModelConfig& config);
// Its shape: [rows, cols] or [n].
std::vector<int64_t> tensor_shape(TensorRole role, const ModelConfig& config);
// "[2, 3]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

// Immutable once filled; safe for concurrent use.
class TensorTable {
 public:
  // The tensor of a role and layer as the file has it, or why there is none.
  using Find = std::function<Result<TensorView>(TensorRole role, uint32_t layer)>;
  // Asks for every tensor that the config calls for. `tied`: the output is the embedding. FORMAT
  // names a tensor of another shape.
  static Result<TensorTable> fill(const ModelConfig& config, bool tied, const Find& find);

  const TensorView& at(TensorRole role, uint32_t layer) const;
  // Embedding, output norm, those of each layer in TensorRole's order, the output unless it is
  // tied: each once.
  std::span<const TensorView> all() const { return tensors_; }
  uint64_t n_elements() const;

 private:
  static constexpr size_t kFirstOfLayer = static_cast<size_t>(TensorRole::attn_norm);
  static constexpr size_t kAbsent = SIZE_MAX;

  Status take(const ModelConfig& config, TensorRole role, uint32_t layer, const Find& find);

  std::vector<TensorView> tensors_;
  size_t output_ = 0;                                // index of the output in tensors_
  size_t per_layer_ = 0;                             // tensors of a layer
  size_t place_[kTensorRoles - kFirstOfLayer] = {};  // index of a role in its layer, or kAbsent
};

}  // namespace blend
