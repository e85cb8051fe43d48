// ExpertOps: feed-forwards that are mixtures of experts (config.h). The router is an ordinary
// matrix, and so are shared experts: what is here is the choice, the products of the chosen ones,
// and their sum.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/memory.h"
#include "backend/tensor.h"
#include "backend/weight.h"
#include "base/status.h"
#include "model/config.h"
#include "model/model_source.h"

namespace blend {

// The weights of one layer's experts.
struct ExpertLayer {
  // ExpertOps::load(): of each [2 * experts.d_ff, expert_dim], or where there is no gate up alone.
  const Weight* gate_up = nullptr;
  const Weight* down = nullptr;  // of each [expert_dim, experts.d_ff]
  // load_vector(); null: none.
  const Weight* choice_bias = nullptr;   // [experts.count]
  const Weight* gate_up_bias = nullptr;  // of each [2 * experts.d_ff], one after another
  const Weight* down_bias = nullptr;     // of each [expert_dim]
  const Weight* scale = nullptr;         // [experts.count]: also multiplies each one's weight
};

// Thread-safe, as the Backend.
class ExpertOps {
 public:
  virtual ~ExpertOps() = default;

  // One matrix of every expert: of expert i the parts[i], stacked along their rows, as in
  // Backend::load_matrix(). All have the same shape.
  virtual Result<std::unique_ptr<Weight>> load(
      std::span<const std::vector<const TensorView*>> parts, WeightForm form) = 0;

  // Bytes of scratch that run() needs for up to max_rows rows.
  virtual size_t scratch_bytes(const ModelConfig& config, uint32_t max_rows) const = 0;

  // Rows of x times the sigmoid of the product of the same row of `by` with a vector:
  // load_vector(), [by.cols].
  virtual Status weigh(const Weight& vector, Tensor by, Tensor x) = 0;

  // y[i] = sum over the chosen experts e, in ascending order, of
  //        weight(i, e) * down_e (activation(gate_e x[i]) * up_e x[i]),
  // with the biases of gate, up and down; of experts without a gate, down_e activation(up_e x[i]).
  // scores: the router's logits [rows, experts.count], overwritten. x, y: [rows, expert_dim],
  // apart.
  virtual Status run(const ExpertLayer& layer, const ModelConfig& config, Tensor x, Tensor scores,
                     Tensor y, DeviceBuffer& scratch) = 0;
};

}  // namespace blend
