// Gemma 3n's members of a config.json.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/hf_config_reader.h"
#include "model/limits.h"
#include "model/shared_kv.h"

namespace blend {
namespace {

// The x below which a standard normal number is with the probability p, in (0, 1).
double normal_quantile(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double x = (low + high) / 2;
    (std::erfc(-x / std::sqrt(2.0)) / 2 < p ? low : high) = x;
  }
  return (low + high) / 2;
}

}  // namespace

Result<int64_t> HfConfigReader::first_width() const {
  BLEND_ASSIGN(const JsonView value, root_.need("intermediate_size"));
  if (value.value().array() == nullptr) return value.integer(1, kMaxWidth);
  BLEND_ASSIGN(const Json::Array* const widths, value.array());
  if (widths->empty()) return value.error(BLEND_E_FORMAT, "it is an empty list");
  return value.element(0).integer(1, kMaxWidth);
}

Status HfConfigReader::read_widths() {
  BLEND_ASSIGN(const JsonView value, root_.need("intermediate_size"));
  if (value.value().array() == nullptr) return Status::ok();
  BLEND_ASSIGN(const Json::Array* const widths, value.array());
  if (widths->size() != c_.n_layers) {
    return make_error(BLEND_E_FORMAT, "intermediate_size has %zu entries for %u layers",
                      widths->size(), c_.n_layers);
  }
  for (size_t i = 0; i < widths->size(); ++i) {
    BLEND_ASSIGN(const int64_t width, value.element(i).integer(1, kMaxWidth));
    c_.d_ffs.push_back(static_cast<uint32_t>(width));
  }
  if (std::count(c_.d_ffs.begin(), c_.d_ffs.end(), c_.d_ff) == c_.n_layers) c_.d_ffs.clear();
  return Status::ok();
}

// The share of a row's gate that becomes 0, if the gate is normally distributed.
Result<std::vector<float>> HfConfigReader::read_gate_cuts() const {
  constexpr const char* kName = "activation_sparsity_pattern";
  std::vector<double> shares(c_.n_layers, 0.0);
  if (const std::optional<JsonView> list = root_.get(kName)) {
    BLEND_ASSIGN(const Json::Array* const entries, list->array());
    if (entries->size() != shares.size()) {
      return make_error(BLEND_E_FORMAT, "%s has %zu entries for %u layers", kName, entries->size(),
                        c_.n_layers);
    }
    for (size_t i = 0; i < shares.size(); ++i) {
      BLEND_ASSIGN(shares[i], list->element(i).number());
      if (shares[i] >= 0 && shares[i] < 1) continue;
      return make_error(BLEND_E_FORMAT, "%s[%zu] is %g; it must be a number from 0 to below 1",
                        kName, i, shares[i]);
    }
  } else if (c_.n_layers > 10) {
    std::fill_n(shares.begin(), 10, 0.95);
  }
  std::vector<float> cuts;
  bool any = false;
  for (const double share : shares) {
    any = any || share > 0;
    cuts.push_back(share > 0 ? static_cast<float>(normal_quantile(share))
                             : -std::numeric_limits<float>::infinity());
  }
  return any ? cuts : std::vector<float>();
}

Status HfConfigReader::read_gemma3n_streams() {
  BLEND_ASSIGN(const int64_t streams, integer_or("altup_num_inputs", 4, 1, kMaxStreams));
  BLEND_ASSIGN(const int64_t active, integer_or("altup_active_idx", 0, 0, kMaxStreams));
  if (streams == 1 || active != 0) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "altup_num_inputs and altup_active_idx are %lld and %lld; libblend runs "
                      "several streams of which layers compute the first, 0",
                      static_cast<long long>(streams), static_cast<long long>(active));
  }
  BLEND_ASSIGN(const bool scales, root_.boolean_or("altup_correct_scale", true));
  if (!scales) {
    return {BLEND_E_UNSUPPORTED, "altup_correct_scale: libblend runs models in which it is true"};
  }
  c_.n_streams = static_cast<uint32_t>(streams);
  BLEND_ASSIGN(const int64_t rank, integer_or("laurel_rank", 64, 1, kMaxWidth));
  c_.laurel_rank = static_cast<uint32_t>(rank);
  return Status::ok();
}

Status HfConfigReader::read_gemma3n() {
  if (c_.qkv_bias) return {BLEND_E_UNSUPPORTED, "attention_bias is not supported in a gemma3n"};
  BLEND_RETURN_IF_ERROR(read_widths());
  BLEND_RETURN_IF_ERROR(read_sharing());
  BLEND_ASSIGN(const std::vector<bool> local, windowed({}));
  c_.layers.resize(c_.n_layers);
  BLEND_RETURN_IF_ERROR(share_kv(c_, local));
  BLEND_RETURN_IF_ERROR(read_inputs());
  if (c_.input_dim == 0) {
    return {BLEND_E_UNSUPPORTED,
            "hidden_size_per_layer_input: a gemma3n whose layers have no embeddings"};
  }
  BLEND_ASSIGN(const int64_t vocab, integer_or("vocab_size_per_layer_input", 262144, 1, kMaxVocab));
  if (vocab != c_.n_vocab) c_.input_vocab = static_cast<uint32_t>(vocab);
  BLEND_RETURN_IF_ERROR(read_gemma3n_streams());
  BLEND_ASSIGN(c_.gate_cuts, read_gate_cuts());
  c_.v_norm = true;
  c_.attn_scale = 1;
  return read_gemma_scales(30);
}

}  // namespace blend
