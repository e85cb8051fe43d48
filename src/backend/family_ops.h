// FamilyOps: operations that few families of models need.
#pragma once

#include <cstdint>

#include "backend/tensor.h"
#include "backend/weight.h"
#include "base/status.h"
#include "model/config.h"

namespace blend {

// Part of a backend (backend.h): its rules of order and threads hold here as well. A backend that
// has it takes layers with heads of their own, and layers that share K and V (model/config.h).
class FamilyOps {
 public:
  virtual ~FamilyOps() = default;
  // Each of the last n_heads heads of every row is divided by its root mean square, in place; the
  // rest of a row stays. kv: [rows, cols], head_dim elements a head.
  virtual Status norm_values(Tensor kv, uint32_t n_heads, uint32_t head_dim, float eps) = 0;
  // out[i] = the out.cols elements from `first` on of table[tokens[i]]; table: load_table();
  // tokens: host [out.rows], checked by the caller.
  virtual Status embed_part(const Weight& table, const int32_t* tokens, uint32_t first,
                            Tensor out) = 0;
  // x = activation(x) * by, element by element.
  virtual Status gate(Activation activation, Tensor x, Tensor by) = 0;
  // Subtracts the mean of the first n elements of each row, and `deviations` of their standard
  // deviations, from these elements, and replaces what is then below 0 by 0; the rest of the row
  // stays. x: [rows, cols].
  virtual Status cut(Tensor x, uint32_t n, float deviations) = 0;
  // The n elements from `first` on of every row are multiplied by a number, in place.
  virtual Status scale_part(Tensor x, uint32_t first, uint32_t n, float factor) = 0;
};

}  // namespace blend
