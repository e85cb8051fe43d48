// The matrices that make heads' keys and values of latent rows (Latent in model/config.h), in files
// that have them as one: directories, and GGUF files from before llama.cpp cut it.
#pragma once

#include <vector>

#include "base/buffer.h"
#include "model/model_source.h"

namespace blend {

// Makes a copy of a part of such a tensor with each call. Views of copies stay valid while it
// lives, or one that it was moved to. Not thread-safe.
class LatentRows {
 public:
  // latent_k or latent_v out of `whole`, in which each head has A, [nope, rank], above B, [value,
  // rank]. A is turned over on the way; where it is quantized it becomes f16. FORMAT: it has
  // another shape.
  Result<TensorView> by_role(const TensorView& whole, TensorRole role, const ModelConfig& config);

 private:
  TensorView keep(TensorView view, int64_t rows, int64_t cols, AlignedBuffer data);

  std::vector<AlignedBuffer> memory_;
};

}  // namespace blend
