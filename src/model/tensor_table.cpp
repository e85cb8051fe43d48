#include "model/tensor_table.h"

#include <algorithm>
#include <charconv>

namespace blend {

bool has_tensor(TensorRole role, const ModelConfig& c, uint32_t layer) {
  switch (role) {
    case TensorRole::attn_q:
    case TensorRole::attn_out:
      return !c.mixer.has(layer);
    case TensorRole::attn_k:
      return !c.mixer.has(layer) && layer < c.n_kept() && !c.latent.any();
    case TensorRole::attn_v:
      return !c.mixer.has(layer) && layer < c.n_kept() && !c.latent.any() &&
             !c.attention(layer).k_is_v;
    case TensorRole::latent_kv:
    case TensorRole::latent_kv_norm:
    case TensorRole::latent_k:
    case TensorRole::latent_v:
      return c.latent.any();
    case TensorRole::latent_q:
    case TensorRole::latent_q_norm:
      return c.latent.q_rank != 0;
    case TensorRole::input_embedding:
    case TensorRole::input_context:
    case TensorRole::input_norm:
    case TensorRole::input_gate:
    case TensorRole::input_out:
    case TensorRole::input_post_norm:
      return c.input_dim != 0;
    case TensorRole::layer_scale:
      return c.layer_scales;
    case TensorRole::laurel_in:
    case TensorRole::laurel_out:
    case TensorRole::laurel_norm:
      return c.laurel_rank != 0;
    case TensorRole::stream_in:
    case TensorRole::stream_out:
    case TensorRole::stream_router:
    case TensorRole::stream_norm:
    case TensorRole::stream_predict:
    case TensorRole::stream_correct:
    case TensorRole::stream_scale:
      return c.n_streams > 1;
    case TensorRole::conv_b:
    case TensorRole::conv_c:
    case TensorRole::conv_x:
    case TensorRole::conv_taps:
    case TensorRole::conv_out:
      return c.mixer.has(layer) && c.mixer.kind == RowMixer::Kind::conv;
    case TensorRole::delta_qkv:
    case TensorRole::delta_z:
    case TensorRole::delta_b:
    case TensorRole::delta_a:
      return c.mixer.has(layer) && c.mixer.kind == RowMixer::Kind::delta;
    case TensorRole::scan_taps:
    case TensorRole::scan_decay:
    case TensorRole::scan_bias:
    case TensorRole::scan_out:
      return c.mixer.has(layer) && c.mixer.scans();
    case TensorRole::scan_norm:
      return c.mixer.has(layer) && c.mixer.scans() && c.mixer.norm != RowMixer::Norm::none;
    case TensorRole::ssm_z:
    case TensorRole::ssm_xbc:
    case TensorRole::ssm_dt:
    case TensorRole::ssm_skip:
      return c.mixer.has(layer) && c.mixer.kind == RowMixer::Kind::ssm;
    case TensorRole::ssm_taps_bias:
      return c.mixer.has(layer) && c.mixer.taps_bias;
    case TensorRole::attn_q_bias:
    case TensorRole::attn_k_bias:
    case TensorRole::attn_v_bias:
      return c.qkv_bias && !c.mixer.has(layer);
    case TensorRole::attn_out_bias:
      return c.attn_out_bias && !c.mixer.has(layer);
    case TensorRole::ffn_gate_bias:
    case TensorRole::ffn_up_bias:
    case TensorRole::ffn_down_bias:
      return c.ffn_bias && c.has_dense(layer);
    case TensorRole::ffn_gate:
      return c.has_dense(layer) && c.feeds(layer) && c.ffn_matrices() == 3;
    case TensorRole::ffn_up:
    case TensorRole::ffn_down:
      return c.has_dense(layer) && c.feeds(layer);
    case TensorRole::expert_gate:
      return c.has_experts(layer) && c.ffn_matrices() == 3;
    case TensorRole::latent_in:
    case TensorRole::latent_out:
      return c.has_experts(layer) && c.experts.latent != 0;
    case TensorRole::router:
    case TensorRole::expert_up:
    case TensorRole::expert_down:
      return c.has_experts(layer);
    case TensorRole::router_choice:
      return c.has_experts(layer) && c.experts.choice_bias;
    case TensorRole::router_bias:
      return c.has_experts(layer) && c.experts.router_bias;
    case TensorRole::expert_gate_bias:
    case TensorRole::expert_up_bias:
    case TensorRole::expert_down_bias:
      return c.has_experts(layer) && c.experts.biases;
    case TensorRole::shared_gate:
      return c.has_experts(layer) && c.experts.shared_d_ff != 0 && c.ffn_matrices() == 3;
    case TensorRole::shared_up:
    case TensorRole::shared_down:
      return c.has_experts(layer) && c.experts.shared_d_ff != 0;
    case TensorRole::shared_weight:
      return c.has_experts(layer) && c.experts.shared_d_ff != 0 && c.experts.shared_weighed;
    case TensorRole::router_norm:
    case TensorRole::expert_scale:
    case TensorRole::expert_norm:
    case TensorRole::expert_post_norm:
    case TensorRole::dense_post_norm:
      return c.has_experts(layer) && c.experts.beside_dense;
    case TensorRole::attn_q_norm:
      return c.qk_norm != QkNorm::none && !c.mixer.has(layer);
    case TensorRole::attn_k_norm:
      return c.qk_norm != QkNorm::none && !c.mixer.has(layer) && layer < c.n_kept();
    case TensorRole::attn_sinks:
      return c.attn_sinks && !c.mixer.has(layer);
    case TensorRole::attn_norm:
      return c.pre_norms && !c.reads_as_before(layer);
    case TensorRole::ffn_norm:
      return c.pre_norms && c.feeds(layer);
    case TensorRole::attn_post_norm:
    case TensorRole::ffn_post_norm:
      return c.post_norms;
    case TensorRole::embedding:
    case TensorRole::output_norm:
    case TensorRole::output:
      break;
  }
  return true;
}

std::vector<int64_t> tensor_shape(TensorRole role, const ModelConfig& c, uint32_t layer) {
  const Heads heads = c.heads(layer);
  const int64_t d = c.d_model, q = heads.q_dim(), kv = heads.kv_dim(), head = heads.dim;
  const int64_t ff = c.d_ffs.empty() ? c.d_ff : c.d_ffs[layer];
  const int64_t inputs = int64_t{c.n_layers} * c.input_dim, streams = c.n_streams;
  switch (role) {
    case TensorRole::embedding:
    case TensorRole::output:
      return {c.n_vocab, d};
    case TensorRole::input_embedding:
      return {c.n_input_vocab(), inputs};
    case TensorRole::input_context:
      return {inputs, d};
    case TensorRole::input_norm:
      return {c.input_dim};
    case TensorRole::input_gate:
      return {c.input_dim, d};
    case TensorRole::input_out:
      return {d, c.input_dim};
    case TensorRole::layer_scale:
      return {1};
    case TensorRole::laurel_in:
      return {c.laurel_rank, d};
    case TensorRole::laurel_out:
      return {d, c.laurel_rank};
    case TensorRole::stream_in:
    case TensorRole::stream_out:
      return {d, d};
    case TensorRole::stream_router:
      return {streams, d};
    case TensorRole::stream_predict:
      return {streams * streams, streams};
    case TensorRole::stream_correct:
      return {streams, streams};
    case TensorRole::attn_q:
      return {c.q_rows(layer), c.latent.q_rank != 0 ? c.latent.q_rank : d};
    case TensorRole::attn_k:
    case TensorRole::attn_v:
      return {kv, d};
    case TensorRole::attn_out:
      return {d, c.result_dim(layer)};
    case TensorRole::latent_kv:
      return {c.latent.row(), d};
    case TensorRole::latent_kv_norm:
      return {c.latent.rank};
    case TensorRole::latent_k:
      return {int64_t{c.n_heads} * c.latent.rank, c.latent.nope};
    case TensorRole::latent_v:
      return {c.result_dim(layer), c.latent.rank};
    case TensorRole::latent_q:
      return {c.latent.q_rank, d};
    case TensorRole::latent_q_norm:
      return {c.latent.q_rank};
    case TensorRole::conv_b:
    case TensorRole::conv_c:
    case TensorRole::conv_x:
    case TensorRole::conv_out:
      return {d, d};
    case TensorRole::conv_taps:
      return {d, c.mixer.taps};
    case TensorRole::delta_qkv:
    case TensorRole::ssm_xbc:
      return {c.mixer.qkv_dim(), d};
    case TensorRole::delta_z:
    case TensorRole::ssm_z:
      return {c.mixer.value_dim(), d};
    case TensorRole::delta_b:
    case TensorRole::delta_a:
    case TensorRole::ssm_dt:
      return {c.mixer.v_heads, d};
    case TensorRole::scan_taps:
      return {c.mixer.qkv_dim(), c.mixer.taps};
    case TensorRole::scan_decay:
    case TensorRole::scan_bias:
    case TensorRole::ssm_skip:
      return {c.mixer.v_heads};
    case TensorRole::ssm_taps_bias:
      return {c.mixer.qkv_dim()};
    case TensorRole::scan_norm:
      return {c.mixer.kind == RowMixer::Kind::ssm ? c.mixer.value_dim() : c.mixer.v_dim};
    case TensorRole::scan_out:
      return {d, c.mixer.value_dim()};
    case TensorRole::ffn_gate:
    case TensorRole::ffn_up:
      return {ff, d};
    case TensorRole::ffn_down:
      return {d, ff};
    case TensorRole::router:
      return {c.experts.count, d};
    case TensorRole::router_choice:
    case TensorRole::router_bias:
    case TensorRole::expert_scale:
      return {c.experts.count};
    case TensorRole::shared_gate:
    case TensorRole::shared_up:
      return {c.experts.shared_d_ff, d};
    case TensorRole::shared_down:
      return {d, c.experts.shared_d_ff};
    case TensorRole::latent_in:
      return {c.experts.latent, d};
    case TensorRole::latent_out:
      return {d, c.experts.latent};
    case TensorRole::expert_gate:
    case TensorRole::expert_up:
      return {c.experts.d_ff, c.expert_dim()};
    case TensorRole::expert_down:
      return {c.expert_dim(), c.experts.d_ff};
    case TensorRole::expert_gate_bias:
    case TensorRole::expert_up_bias:
      return {c.experts.count, c.experts.d_ff};
    case TensorRole::expert_down_bias:
      return {c.experts.count, c.expert_dim()};
    case TensorRole::attn_q_bias:
      return {q};
    case TensorRole::attn_k_bias:
    case TensorRole::attn_v_bias:
      return {kv};
    case TensorRole::attn_q_norm:
      return {c.qk_norm == QkNorm::whole ? q : head};
    case TensorRole::attn_k_norm:
      return {c.qk_norm == QkNorm::whole ? kv : head};
    case TensorRole::attn_sinks:
      return {c.n_heads};
    case TensorRole::ffn_gate_bias:
    case TensorRole::ffn_up_bias:
      return {ff};
    case TensorRole::output_norm:
    case TensorRole::attn_norm:
    case TensorRole::ffn_norm:
    case TensorRole::attn_out_bias:
    case TensorRole::attn_post_norm:
    case TensorRole::ffn_down_bias:
    case TensorRole::ffn_post_norm:
    case TensorRole::input_post_norm:
    case TensorRole::shared_weight:
    case TensorRole::router_norm:
    case TensorRole::expert_norm:
    case TensorRole::expert_post_norm:
    case TensorRole::dense_post_norm:
    case TensorRole::laurel_norm:
    case TensorRole::stream_norm:
    case TensorRole::stream_scale:
      break;
  }
  return {d};
}

uint32_t file_layer(TensorRole role, const ModelConfig& config, uint32_t layer) {
  if (is_of_model(role)) return layer;
  if (config.paired) return layer / 2;
  if (config.blocks.empty()) return layer;
  const bool fed = (role >= TensorRole::ffn_norm && role <= TensorRole::ffn_down) ||
                   (role >= TensorRole::router && role <= TensorRole::latent_out) ||
                   is_of_experts(role);
  return config.blocks[layer] + (fed ? 1 : 0);
}

uint32_t layer_of(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return 0;
  name.remove_prefix(stem.size());
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t s : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(s);
  return text + "]";
}

Status check_shape(const TensorView& view, const std::vector<int64_t>& shape) {
  if (view.shape == shape) return Status::ok();
  return make_error(BLEND_E_FORMAT, "tensor '%s' has the shape %s; the hyperparameters ask for %s",
                    view.name.c_str(), shape_text(view.shape).c_str(), shape_text(shape).c_str());
}

Result<TensorTable> TensorTable::fill(const ModelConfig& config, bool tied, const Find& find) {
  TensorTable t;
  BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::embedding, 0, 0, find));
  BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::output_norm, 0, 0, find));
  t.inputs_ = t.tensors_.size();
  for (const TensorRole role :
       {TensorRole::input_embedding, TensorRole::input_context, TensorRole::input_norm}) {
    if (!has_tensor(role, config, 0)) continue;
    BLEND_RETURN_IF_ERROR(t.take(config, role, 0, 0, find));
  }
  t.streams_ = t.tensors_.size();
  for (uint32_t stream = 0; stream + 1 < config.n_streams; ++stream) {
    BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::stream_in, 0, stream, find));
    BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::stream_out, 0, stream, find));
  }
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const size_t first_tensor = t.tensors_.size();
    Places places;
    places.fill(kAbsent);
    for (size_t i = kFirstOfLayer; i < kTensorRoles; ++i) {
      const auto role = static_cast<TensorRole>(i);
      if (is_of_model(role) || !has_tensor(role, config, layer)) continue;
      places[i - kFirstOfLayer] = t.tensors_.size() - first_tensor;
      const uint32_t n = is_of_experts(role) ? config.experts.count : 1;
      for (uint32_t expert = 0; expert < n; ++expert) {
        BLEND_RETURN_IF_ERROR(t.take(config, role, layer, expert, find));
      }
    }
    const auto same = std::find(t.places_.begin(), t.places_.end(), places);
    t.layers_.push_back({first_tensor, static_cast<size_t>(same - t.places_.begin())});
    if (same == t.places_.end()) t.places_.push_back(places);
  }
  if (!tied) {
    t.output_ = t.tensors_.size();
    BLEND_RETURN_IF_ERROR(t.take(config, TensorRole::output, 0, 0, find));
  }
  return t;
}

Status TensorTable::take(const ModelConfig& config, TensorRole role, uint32_t layer,
                         uint32_t expert, const Find& find) {
  BLEND_ASSIGN(TensorView view, find(role, layer, expert));
  BLEND_RETURN_IF_ERROR(check_shape(view, tensor_shape(role, config, layer)));
  tensors_.push_back(std::move(view));
  return Status::ok();
}

const TensorView& TensorTable::at(TensorRole role, uint32_t layer, uint32_t expert) const {
  switch (role) {
    case TensorRole::embedding:
      return tensors_[0];
    case TensorRole::output_norm:
      return tensors_[1];
    case TensorRole::output:
      return tensors_[output_];
    case TensorRole::input_embedding:
      return tensors_[inputs_];
    case TensorRole::input_context:
      return tensors_[inputs_ + 1];
    case TensorRole::input_norm:
      return tensors_[inputs_ + 2];
    case TensorRole::stream_in:
      return tensors_[streams_ + size_t{2} * expert];
    case TensorRole::stream_out:
      return tensors_[streams_ + size_t{2} * expert + 1];
    default:
      const Layer& at = layers_[layer];
      const Places& places = places_[at.of_places];
      return tensors_[at.first + places[static_cast<size_t>(role) - kFirstOfLayer] + expert];
  }
}

const TensorView& TensorTable::usual_matrix(const ModelConfig& config) const {
  uint32_t attends = 0;
  while (config.mixer.has(attends)) ++attends;  // one does
  const TensorView& q = at(TensorRole::attn_q, attends);
  for (uint32_t layer = 0; layer < config.n_layers && q.blocks == BlockType::none; ++layer) {
    if (!config.has_experts(layer)) continue;
    const TensorView& up = at(TensorRole::expert_up, layer, 0);
    return up.blocks == BlockType::none ? q : up;
  }
  return q;
}

uint64_t TensorTable::n_elements() const {
  uint64_t n = 0;
  for (const TensorView& t : tensors_) n += static_cast<uint64_t>(t.elements());
  return n;
}

}  // namespace blend
