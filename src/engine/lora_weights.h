// LoraSet: the LoRA adapters that a model is opened with, and what they add to each of its
// products.
//
// y += (x down^T) up^T, with what all adapters add to one product put together: the rows of their
// `down` above one another, the columns of their `up` side by side, zeros where a part of a product
// (K of K | V, say) has no such column. The model's own weights stay as they are, quantized or not.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/lora/lora_adapter.h"

namespace blend {

// Immutable.
struct LoraWeights {
  // Of an embedding it is a table: row t, [rank], is what token t gives to `up`.
  std::unique_ptr<Weight> down;  // [rank, in], or [n_vocab, rank]
  std::unique_ptr<Weight> up;    // [out, rank]
  uint32_t rank = 0;
  std::vector<float> table;  // an embedding's `down`, where the backend reads the host's memory

  size_t bytes() const { return down->bytes() + up->bytes() + table.size() * sizeof(float); }
};

struct LoraOptions {
  std::string path;
  double scale = 1;
};

// What a model knows of an adapter that it was opened with.
struct LoraInfo {
  LoraOptions options;
  uint32_t rank = 0;  // the largest of its matrices
  uint32_t n_matrices = 0;
  Sha256 digest{};
};

// Used while a model is opened.
class LoraSet {
 public:
  // Opens the adapters for the model of `source`. Errors name the adapter.
  static Result<LoraSet> open(const ModelSource& source, std::span<const LoraOptions> options);

  bool empty() const { return adapters_.empty(); }
  // In the order of the options.
  const std::vector<LoraInfo>& infos() const { return infos_; }
  // A model's with these adapters, whatever their order; the base's where there are none.
  Sha256 fingerprint(const Sha256& base) const;
  // Whether they add something to a product of these roles.
  bool adds_to(const ModelConfig& config, uint32_t layer,
               std::initializer_list<TensorRole> roles) const;
  // What they add to the product of the roles' matrices, one above the other; null: nothing.
  Result<std::unique_ptr<LoraWeights>> load(Backend& backend, const ModelConfig& config,
                                            uint32_t layer,
                                            std::initializer_list<TensorRole> roles) const;
  // What they add to the embedding's rows; null: nothing.
  Result<std::unique_ptr<LoraWeights>> load_embedding(Backend& backend,
                                                      const ModelConfig& config) const;

 private:
  struct Adapter {
    LoraAdapter content;
    double scale;
  };
  struct Part {
    const LoraMatrix* matrix;
    double scale;
    int64_t first_row;  // of the product
  };
  std::vector<Part> parts_of(const ModelConfig& config, uint32_t layer,
                             std::initializer_list<TensorRole> roles) const;

  std::vector<LoraInfo> infos_;
  std::vector<Adapter> adapters_;  // by digest and scale: sums have one order
};

}  // namespace blend
