// The memory of a host that runs the model itself: K and V of a layer in its own layout.
#pragma once

#include <vector>

#include "conformance/abi.h"

namespace blend::test {

enum class HostLayout { rows_first, heads_first };

// One layer: [n_rows, n_kv_heads, head_dim] or [n_kv_heads, n_rows, head_dim], f32.
class HostLayer {
 public:
  HostLayer(const ModelConfig& config, size_t n_rows, HostLayout layout, float fill = 0.0f);

  // k, v: [n_kv_heads * head_dim]
  void set(size_t row, const double* k, const double* v);
  std::vector<double> k(size_t row) const { return read(k_, row); }
  std::vector<double> v(size_t row) const { return read(v_, row); }
  std::vector<float>& k_data() { return k_; }
  std::vector<float>& v_data() { return v_; }
  // Valid while the layer stays where it is.
  blend_kv_view view(uint32_t flags = 0);

 private:
  size_t at(size_t row, size_t head) const { return row * row_stride_ + head * head_stride_; }
  std::vector<double> read(const std::vector<float>& from, size_t row) const;

  size_t n_heads_, head_dim_, row_stride_, head_stride_;
  std::vector<float> k_, v_;
};

// The description that says what the file says, with the given fingerprint (zeros: by its name).
blend_model_description describe(const ModelConfig& config, const uint8_t* fingerprint);
Model described_model(const Ctx& ctx, const blend_model_description& description);

}  // namespace blend::test
