// HfWeights: the tensors of a Hugging Face directory, in one safetensors file or in several that
// model.safetensors.index.json lists.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/status.h"
#include "model/model_source.h"
#include "model/safetensors.h"

namespace blend {

// A tensor as the file has it, of any type; checked to lie inside the file.
struct HfTensor {
  std::string name;
  std::string dtype;  // "F32", "F8_E4M3", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
};

// As libblend computes with it; UNSUPPORTED: of a type that it does not compute with.
Result<TensorView> hf_view(HfTensor tensor);
// The same of a tensor of a file that is at hand.
inline Result<TensorView> hf_view(const SafetensorsTensor& t, std::span<const std::byte> file) {
  return hf_view(HfTensor{t.name, t.dtype, t.shape, file.data() + t.offset});
}

// Immutable once open; safe for concurrent use. The files stay mapped while it lives.
class HfWeights {
 public:
  static Result<HfWeights> open(const std::string& directory);

  // Whether the files hold a model without its output (transformers' AutoModel), as trainers of
  // embeddings save them: their names lack the "model." that they have here.
  bool is_headless() const { return headless_; }
  bool has(std::string_view name) const { return places_.contains(std::string(name)); }
  // FORMAT: no such tensor.
  Result<HfTensor> raw(const std::string& name) const;
  // FORMAT: no such tensor; UNSUPPORTED: one of a type that libblend does not compute with.
  Result<TensorView> view(const std::string& name) const;
  // Names of all tensors.
  std::vector<std::string> names() const;

 private:
  struct Shard {
    std::string name;
    MappedFile file;
    SafetensorsReader reader;
  };
  struct Place {
    size_t shard;
    const SafetensorsTensor* tensor;
  };
  Status add_shard(const std::string& directory, const std::string& name);
  Status read_index(const std::string& directory, const MappedFile& index);
  void name_headless();

  std::vector<Shard> shards_;
  std::unordered_map<std::string, Place> places_;
  bool headless_ = false;
};

}  // namespace blend
