// The names of a model's tensors in GGUF files, and such a tensor as libblend computes with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/gguf_reader.h"
#include "model/model_source.h"

namespace blend {

// "blk.3.attn_q.weight".
std::string gguf_tensor_name(TensorRole role, uint32_t layer);
// `name` in its place: "blk.3." in front of it, unless the role is of no layer.
std::string gguf_tensor_name(TensorRole role, uint32_t layer, const char* name);

// The role and layer whose name it is.
struct GgufPlace {
  TensorRole role;
  uint32_t layer;
};
std::optional<GgufPlace> gguf_place(std::string_view name);

// A tensor of the file; UNSUPPORTED where libblend has no decoder for its type.
Result<TensorView> gguf_tensor_view(const GgufReader& gguf, const GgufTensor& tensor);

}  // namespace blend
