// LatentOps: attention over latent rows (Latent in model/config.h).
#pragma once

#include <memory>
#include <span>

#include "backend/tensor.h"
#include "backend/weight.h"
#include "base/status.h"
#include "model/config.h"
#include "model/model_source.h"

namespace blend {

// Part of a backend (backend.h): its rules of order and threads hold here as well. Where a backend
// has it, caches of such a model keep k | c of a slot once, and what works on a cache's rows K | V
// works on the halves of these. Attention takes Q of latent.row() elements a head, which meets k |
// c; its results have the heads' means of c in the place of c, and nothing of use before it.
class LatentOps {
 public:
  virtual ~LatentOps() = default;
  // One matrix of each head, of one shape; form: not int8.
  virtual Result<std::unique_ptr<Weight>> load(std::span<const TensorView> heads,
                                               WeightForm form) = 0;
  // rms_norm() of the last elements of each row, as many as the weight has, in place.
  virtual Status norm(Tensor rows, const Weight& weight, float eps) = 0;
  // Q as it meets k | c, of p | q of each head: q, then A^T p.
  // heads: [rows, n_heads * latent.q_dim()]; keys: load() of A^T, [rank, nope]; q: [rows, n_heads *
  // latent.row()].
  virtual Status ask(const Latent& latent, const Weight& keys, Tensor heads, Tensor q) = 0;
  // The heads' values of attention's results: B of the means of c.
  // mean: [rows, n_heads * latent.row()]; values: load() of B, [value, rank]; out: [rows, n_heads *
  // latent.value].
  virtual Status values(const Latent& latent, const Weight& values, Tensor mean, Tensor out) = 0;
};

}  // namespace blend
