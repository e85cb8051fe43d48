// TensorTable: the tensors of a model by role and layer, checked against its config. Every
// ModelSource is built on it; only the names and the bytes depend on the file format.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_source.h"

namespace blend {

// Whether a layer of a model of this config has the role; a tied output has no tensor of its own,
// which only the file knows.
bool has_tensor(TensorRole role, const ModelConfig& config, uint32_t layer);
// Its shape: [rows, cols] or [n]; of one expert where all have their own.
std::vector<int64_t> tensor_shape(TensorRole role, const ModelConfig& config, uint32_t layer);
// The number that the file has for a layer's tensors of a role (ModelConfig::blocks, paired).
uint32_t file_layer(TensorRole role, const ModelConfig& config, uint32_t layer);
// The layer in a name that begins with `stem`, its number and a full stop; 0: it does not.
uint32_t layer_of(std::string_view name, std::string_view stem);
// "[2, 3]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);
// FORMAT where a tensor has another shape.
Status check_shape(const TensorView& view, const std::vector<int64_t>& shape);

// Immutable once filled; safe for concurrent use.
class TensorTable {
 public:
  // The tensor of a role, layer and expert (0 where the role has only one) as the file has it, or
  // why there is none.
  using Find = std::function<Result<TensorView>(TensorRole role, uint32_t layer, uint32_t expert)>;
  // Asks for every tensor that the config calls for. `tied`: the output is the embedding. FORMAT
  // names a tensor of another shape.
  static Result<TensorTable> fill(const ModelConfig& config, bool tied, const Find& find);

  const TensorView& at(TensorRole role, uint32_t layer, uint32_t expert = 0) const;
  // Embedding, output norm, those of inputs and of streams, those of each layer in TensorRole's
  // order, the output unless it is tied: each once. Those of a layer's experts follow one another.
  std::span<const TensorView> all() const { return tensors_; }
  uint64_t n_elements() const;
  // One of the matrices that do most of the work: mixed files keep others in more bits.
  const TensorView& usual_matrix(const ModelConfig& config) const;

 private:
  static constexpr size_t kFirstOfLayer = static_cast<size_t>(TensorRole::attn_norm);
  static constexpr size_t kAbsent = SIZE_MAX;

  // Where the roles of a layer are, from its first tensor on; kAbsent: nowhere.
  using Places = std::array<size_t, kTensorRoles - kFirstOfLayer>;
  struct Layer {
    size_t first = 0;      // index of its first tensor in tensors_
    size_t of_places = 0;  // which of places_: layers that are alike share them
  };

  Status take(const ModelConfig& config, TensorRole role, uint32_t layer, uint32_t expert,
              const Find& find);

  std::vector<TensorView> tensors_;
  size_t output_ = 0;  // index of the output in tensors_
  std::vector<Layer> layers_;
  std::vector<Places> places_;
  size_t inputs_ = 0;   // index of input_embedding
  size_t streams_ = 0;  // index of the first stream_in; each is followed by its stream_out
};

}  // namespace blend
