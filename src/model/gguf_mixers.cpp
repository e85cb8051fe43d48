// Keys of a GGUF about layers that do not attend.
#include <algorithm>

#include "model/blocks.h"
#include "model/gguf_config_reader.h"
#include "model/gguf_tensors.h"
#include "model/limits.h"
#include "model/tensor_table.h"

namespace blend {

// Which layers are Gated DeltaNets, and their heads.
Status GgufConfigReader::read_delta() {
  c_.attn_gate = true;
  RowMixer m;
  m.kind = RowMixer::Kind::delta;
  m.tiled = !family_.by_key_head;  // as llama.cpp's converter turns a directory's
  const std::string list_key = key("attention.recurrent_layers");
  if (gguf_.is_array(list_key)) {
    BLEND_ASSIGN(const std::optional<std::vector<int32_t>> list, gguf_.get_ints(list_key));
    // Layers that predict further tokens may be in it.
    if (!list || list->size() < c_.n_layers) {
      return make_error(BLEND_E_FORMAT, "key '%s' has %zu entries for %u layers", list_key.c_str(),
                        list ? list->size() : 0, c_.n_layers);
    }
    for (uint32_t i = 0; i < c_.n_layers; ++i) m.layers.push_back((*list)[i] != 0);
  } else {
    BLEND_ASSIGN(const uint32_t every, with_default("full_attention_interval", 4, kMaxLayers));
    for (uint32_t i = 0; i < c_.n_layers; ++i) m.layers.push_back((i + 1) % every != 0);
  }
  BLEND_RETURN_IF_ERROR(read_state_heads(m));
  const auto n = std::count(m.layers.begin(), m.layers.end(), true);
  if (n == 0 || n == static_cast<int64_t>(c_.n_layers)) {
    return make_error(BLEND_E_UNSUPPORTED, "key '%s': a model in which %s", list_key.c_str(),
                      n == 0 ? "all layers attend" : "no layer attends");
  }
  c_.mixer = std::move(m);
  return Status::ok();
}

// The heads of layers with states.
Status GgufConfigReader::read_state_heads(RowMixer& m) const {
  BLEND_ASSIGN(m.taps, required("ssm.conv_kernel", kMaxTaps));
  BLEND_ASSIGN(m.k_dim, required("ssm.state_size", kMaxHeadDim));
  BLEND_ASSIGN(m.k_heads, required("ssm.group_count", kMaxHeads));
  BLEND_ASSIGN(m.v_heads, required("ssm.time_step_rank", kMaxHeads));
  BLEND_ASSIGN(const uint32_t inner, required("ssm.inner_size", kMaxWidth));
  if (inner % m.v_heads != 0 || inner / m.v_heads > kMaxHeadDim) {
    return make_error(BLEND_E_FORMAT,
                      "key '%s' is %u; '%s', %u, does not divide it into heads of at most %u "
                      "elements",
                      key("ssm.inner_size").c_str(), inner, key("ssm.time_step_rank").c_str(),
                      m.v_heads, kMaxHeadDim);
  }
  m.v_dim = inner / m.v_heads;
  return check_state_heads(m, key("ssm.group_count").c_str(), key("ssm.time_step_rank").c_str());
}

// Layers with KV heads attend, those with a width are feed-forwards, and the others Mamba-2s.
Status GgufConfigReader::read_blocks() {
  constexpr const char* kHeads = "attention.head_count_kv";
  constexpr const char* kWidths = "feed_forward_length";
  BLEND_ASSIGN(const std::optional<std::vector<int32_t>> heads, gguf_.get_ints(key(kHeads)));
  BLEND_ASSIGN(const std::optional<std::vector<int32_t>> widths, gguf_.get_ints(key(kWidths)));
  for (const auto& [name, list] : {std::pair(kHeads, &heads), std::pair(kWidths, &widths)}) {
    if (*list && (*list)->size() == c_.n_layers) continue;
    return make_error(BLEND_E_FORMAT, "key '%s' has %zu entries for %u layers", key(name).c_str(),
                      *list ? (*list)->size() : 0, c_.n_layers);
  }
  const auto all_alike = [&](const char* name, const std::vector<int32_t>& list, uint32_t max,
                             uint32_t& to) -> Status {
    const int32_t most = *std::max_element(list.begin(), list.end());
    BLEND_ASSIGN(to, in_range(key(name), static_cast<uint32_t>(std::max(most, 0)), max));
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] == 0 || list[i] == most) continue;
      return make_error(BLEND_E_UNSUPPORTED,
                        "key '%s' is %d in layer %zu and %d in another; libblend runs models whose "
                        "layers are alike",
                        key(name).c_str(), list[i], i, most);
    }
    return Status::ok();
  };
  BLEND_RETURN_IF_ERROR(all_alike(kHeads, *heads, kMaxHeads, c_.n_kv_heads));
  BLEND_RETURN_IF_ERROR(all_alike(kWidths, *widths, kMaxWidth, c_.d_ff));
  std::vector<Block> blocks;
  for (uint32_t i = 0; i < c_.n_layers; ++i) {
    const bool attends = (*heads)[i] != 0, feeds = (*widths)[i] != 0;
    if (attends && feeds) {
      return make_error(BLEND_E_UNSUPPORTED, "keys '%s' and '%s': layer %u has both",
                        key(kHeads).c_str(), key(kWidths).c_str(), i);
    }
    const Block fed = family_.experts.allowed ? Block::experts : Block::feed_forward;
    blocks.push_back(attends ? Block::attention : feeds ? fed : Block::mamba);
  }
  return fold_blocks(blocks, key(kHeads).c_str(), c_);
}

// The heads of Mamba-2s. Their layers are known, or all are (m.layers is empty then).
Status GgufConfigReader::read_mamba() {
  RowMixer& m = c_.mixer;
  BLEND_RETURN_IF_ERROR(read_state_heads(m));
  uint32_t first = 0;
  while (first < m.layers.size() && !m.layers[first]) ++first;
  const auto has = [&](TensorRole role) {
    return has_tensor(gguf_tensor_name(role, file_layer(role, c_, first)).c_str());
  };
  m.taps_bias = has(TensorRole::ssm_taps_bias);
  // In other families there always is one.
  if (family_.parallel && !has(TensorRole::scan_norm)) m.norm = RowMixer::Norm::none;
  return Status::ok();
}

}  // namespace blend
