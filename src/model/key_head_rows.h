// Projections of a Gated DeltaNet whose rows stand by key head (Qwen3-Next): of each key head q, k,
// its value heads' v and their z in one tensor, b and a of its value heads in another.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "model/fused_tensors.h"

namespace blend {

// Copies of such tensors in the order of roles, each made once. Views of them stay valid while it
// lives, or one that it was moved to. Not thread-safe.
class KeyHeadRows {
 public:
  // The rows of `whole` with those of one role together, and value heads in the order of key heads.
  // which: delta_qkvz or delta_ba. FORMAT: it has another number of rows.
  Result<TensorView> by_role(const TensorView& whole, FusedTensor which, const RowMixer& mixer);

 private:
  std::unordered_map<std::string, TensorView> made_;  // by the tensor's name
  std::vector<AlignedBuffer> memory_;
};

}  // namespace blend
