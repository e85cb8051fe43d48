#include "conformance/host.h"

#include <algorithm>
#include <cstring>

namespace blend::test {

HostLayer::HostLayer(const ModelConfig& config, size_t n_rows, HostLayout layout, float fill)
    : n_heads_(config.n_kv_heads),
      head_dim_(config.head_dim),
      row_stride_(layout == HostLayout::rows_first ? config.kv_dim() : config.head_dim),
      head_stride_(layout == HostLayout::rows_first ? config.head_dim : n_rows * config.head_dim),
      k_(n_rows * config.kv_dim(), fill),
      v_(n_rows * config.kv_dim(), fill) {}

void HostLayer::set(size_t row, const double* k, const double* v) {
  for (size_t h = 0; h < n_heads_; ++h) {
    for (size_t e = 0; e < head_dim_; ++e) {
      k_[at(row, h) + e] = static_cast<float>(k[h * head_dim_ + e]);
      v_[at(row, h) + e] = static_cast<float>(v[h * head_dim_ + e]);
    }
  }
}

std::vector<double> HostLayer::read(const std::vector<float>& from, size_t row) const {
  std::vector<double> out;
  for (size_t h = 0; h < n_heads_; ++h) {
    const float* const first = from.data() + at(row, h);
    out.insert(out.end(), first, first + head_dim_);
  }
  return out;
}

blend_kv_view HostLayer::view(uint32_t flags) {
  blend_kv_view view{};
  view.struct_size = sizeof view;
  view.flags = flags;
  view.k = k_.data();
  view.v = v_.data();
  view.row_stride = row_stride_;
  view.head_stride = head_stride_;
  return view;
}

blend_model_description describe(const ModelConfig& c, const uint8_t* fingerprint) {
  blend_model_description d;
  EXPECT_EQ(blend_model_description_init(&d, sizeof d), BLEND_OK);
  d.n_layers = c.n_layers;
  d.n_heads = c.n_heads;
  d.n_kv_heads = c.n_kv_heads;
  d.head_dim = c.head_dim;
  d.n_vocab = c.n_vocab;
  d.context_length = c.context_length;
  d.rope_layout =
      c.rope.layout == RopeLayout::interleaved ? BLEND_ROPE_INTERLEAVED : BLEND_ROPE_HALF_SPLIT;
  d.rotary_dim = c.rope.rotary_dim;
  d.rope_theta = c.rope.theta;
  d.rope_linear_scale = c.rope.linear_scale;
  d.rope_freq_factors = c.rope.freq_factors.data();
  d.n_rope_freq_factors = c.rope.freq_factors.size();
  d.name = "described";
  if (fingerprint != nullptr) std::copy_n(fingerprint, sizeof d.fingerprint, d.fingerprint);
  return d;
}

Model described_model(const Ctx& ctx, const blend_model_description& description) {
  blend_model* model = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_model_create_from_description(&model, ctx.get(), &description, &error);
  const Outcome o = outcome(code, error);
  EXPECT_EQ(o.code, BLEND_OK) << o.message;
  return Model(model);
}

}  // namespace blend::test
