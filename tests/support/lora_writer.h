// LoRA adapters of random models, as llama.cpp and as PEFT have them, and the same models with such
// adapters merged into their weights. Written after those programs' formats, independently of
// src/model's readers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/model_source.h"
#include "support/gguf_writer.h"
#include "support/random_model.h"

namespace blend::test {

// What an adapter adds to one matrix, or to several that the file's model has as one.
struct LoraPair {
  std::vector<TensorRole> roles;  // one above the other
  uint32_t layer = 0;
  size_t rank = 0;
  std::vector<float> down;  // [rank, in]; in is n_vocab, of an embedding
  std::vector<float> up;    // [out, rank], rows in the order of a GGUF of the model

  bool of_embedding() const { return roles[0] == TensorRole::embedding; }
};

struct RandomLora {
  std::string architecture;  // of the GGUF
  double alpha = 0;
  std::vector<LoraPair> pairs;
};

// Ranks from 1 on, of every dense matrix, the embedding and the output; its products are as large
// as the model's.
RandomLora random_lora(const RandomModelSpec& spec, uint64_t seed, double alpha = 12);

// The adapter as a GGUF file, ready to be changed by a test.
GgufWriter gguf_lora(const RandomLora& lora);
// Fills the directory `path` as PEFT does and returns it. rslora: alpha is that of rsLoRA with the
// same results.
std::string write_peft_lora(const RandomModelSpec& spec, const RandomLora& lora,
                            const std::string& path, bool rslora = false);
// A safetensors file of F32 matrices: name, shape, values.
struct PeftTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};
std::string safetensors_bytes(const std::vector<PeftTensor>& tensors);

// Writes the model with the adapters, each times its scale, in its weights, and returns `path`.
std::string write_merged_model(const RandomModelSpec& spec,
                               const std::vector<std::pair<const RandomLora*, double>>& loras,
                               const std::string& path);

}  // namespace blend::test
