// LoraBuilder: puts the pairs of an adapter's file together, whatever its format.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/lora/lora_adapter.h"

namespace blend {

// The matrices of the model that a pair of the file is for: several, one above the other, where the
// file's model has them as one tensor.
struct LoraTarget {
  std::vector<TensorRole> roles;
  uint32_t layer = 0;
  // The file has the first matrix transposed, [in, rank]: of an embedding in a GGUF file.
  bool transposed = false;

  bool is_embedding() const { return roles.front() == TensorRole::embedding; }
  // Of the pair whose first matrix this is.
  size_t rank_of(const TensorView& down) const {
    return static_cast<size_t>(transposed ? down.cols() : down.rows());
  }
};

// Used by one call. The file's bytes must outlive it.
class LoraBuilder {
 public:
  // file_rows: the order of the adapter's own rows; model_rows: that of the model's.
  LoraBuilder(const ModelConfig& config, HeadRows file_rows, HeadRows model_rows)
      : config_(config), file_rows_(file_rows), model_rows_(model_rows) {}

  // Takes half of the pair for the tensor `of` of the model.
  void add_down(const std::string& of, TensorView view) { pairs_[of].down = std::move(view); }
  void add_up(const std::string& of, TensorView view) { pairs_[of].up = std::move(view); }

  // Checks the pairs and makes the adapter. `target` says what a tensor of the model is, `factor`
  // what the product of a pair of that rank is multiplied by; both may refuse it.
  template <typename Target, typename Factor>
  Result<LoraAdapter> finish(const Target& target, const Factor& factor) {
    for (const auto& [of, pair] : pairs_) {
      BLEND_ASSIGN(const LoraTarget place, target(of));
      BLEND_RETURN_IF_ERROR(check(of, pair, place));
      BLEND_ASSIGN(const double scale, factor(of, place.rank_of(*pair.down)));
      BLEND_RETURN_IF_ERROR(take(pair, place, scale));
    }
    return seal();
  }

 private:
  struct Pair {
    std::optional<TensorView> down, up;
  };
  Status check(const std::string& of, const Pair& pair, const LoraTarget& place) const;
  Status take(const Pair& pair, const LoraTarget& place, double factor);
  void order_rows(LoraMatrix& matrix) const;
  Result<LoraAdapter> seal();

  const ModelConfig& config_;
  const HeadRows file_rows_, model_rows_;
  std::map<std::string, Pair> pairs_;  // by the model's tensor
  LoraAdapter adapter_;
};

// For messages: names in files may be anything.
std::string shown_name(std::string_view name);
// UNSUPPORTED: adapters of such a matrix are not computed.
Status no_lora_of(std::string_view tensor, const char* what);
// The name that GGUF files have for a family, which directories may call otherwise.
std::string_view gguf_architecture(const ModelConfig& config);

}  // namespace blend
