// HfTensors: the tensors of a Hugging Face directory as libblend computes with them. What the files
// hold in another form is made into one of these when it is asked for, in memory of its own.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/hf_decode.h"
#include "model/hf_quantization.h"
#include "model/hf_weights.h"

namespace blend {

// Views stay valid while it lives, or one that it was moved to. Not thread-safe while tensors are
// asked for.
class HfTensors {
 public:
  static Result<HfTensors> open(const std::string& directory, const HfQuantization& how);

  bool is_headless() const { return weights_.is_headless(); }
  bool has(const std::string& name) const { return weights_.has(name); }
  // FORMAT: no such tensor, or scales of another shape than it asks for; UNSUPPORTED: one of a type
  // that libblend does not compute with.
  Result<TensorView> view(const std::string& name);
  // The matrices of all experts, [count, rows, cols], of a file that has them as gpt-oss has: in
  // MXFP4 as `stem`_blocks and `stem`_scales, or as `stem`, [count, cols, rows]. alternate: rows of
  // gate and up alternate there; here gate's come first.
  Result<TensorView> experts(const std::string& stem, bool alternate);
  // The elements first, first + 2, ... of each row of a matrix.
  Result<TensorView> every_other(const std::string& name, size_t first);
  // Names of the tensors that nobody has asked for.
  std::vector<std::string> unused() const;

 private:
  Result<HfTensor> take(const std::string& name);
  Result<TensorView> take_view(const std::string& name);
  Result<TensorView> keep(const std::string& name, std::vector<int64_t> shape, OwnedMatrix decoded);
  Result<TensorView> fp8(const std::string& name);
  Result<TensorView> packed(const std::string& stem);
  Result<TensorView> mxfp4_experts(const std::string& stem, bool alternate);
  Result<TensorView> plain_experts(const std::string& stem, bool alternate);

  HfWeights weights_;
  HfQuantization how_;
  std::vector<AlignedBuffer> memory_;
  std::unordered_map<std::string, TensorView> made_;  // by the name that was asked for
  std::unordered_set<std::string> taken_;
};

}  // namespace blend
