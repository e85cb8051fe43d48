// What a ReferenceModel reads of a weight file.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "model/tensor_table.h"
#include "support/reference.h"

namespace blend::test {
namespace {

std::vector<double> to_double(const TensorView& t) {
  std::vector<float> values(static_cast<size_t>(t.elements()));
  decode_weights(t.dtype, t.blocks, t.data, values.size(), values.data());
  return {values.begin(), values.end()};
}

}  // namespace

ReferenceModel::ReferenceModel(const std::string& path) {
  auto opened = open_model_source(path);
  if (!opened.is_ok()) throw std::runtime_error(opened.status().message());
  const ModelSource& source = **opened;
  config_ = source.config();
  bos_ = source.tokenizer().bos();
  context_ = config_.context_length;
  if (config_.short_context != 0 && context_ > config_.short_context) {
    config_.rope = config_.long_rope;
  }
  const auto get = [&](TensorRole role, uint32_t layer) {
    return to_double(source.tensor(role, layer));
  };
  const auto where = [&](TensorRole role, uint32_t layer) {
    return has_tensor(role, config_, layer) ? get(role, layer) : Matrix();
  };
  const auto norm_of = [&](TensorRole role, uint32_t layer) {
    std::vector<double> w = get(role, layer);
    for (double& e : w) e += static_cast<double>(config_.norm_offset);
    return w;
  };
  const auto common = [&](TensorRole dense, TensorRole shared, uint32_t layer) {
    if (has_tensor(dense, config_, layer)) return get(dense, layer);
    return has_tensor(shared, config_, layer) ? get(shared, layer) : Matrix();
  };
  embedding_ = get(TensorRole::embedding, 0);
  output_norm_ = norm_of(TensorRole::output_norm, 0);
  output_ = get(TensorRole::output, 0);
  if (config_.input_dim != 0) {
    input_embedding_ = get(TensorRole::input_embedding, 0);
    input_context_ = get(TensorRole::input_context, 0);
    input_norm_ = norm_of(TensorRole::input_norm, 0);
  }
  for (uint32_t i = 0; i + 1 < config_.n_streams; ++i) {
    stream_in_.push_back(to_double(source.expert_tensor(TensorRole::stream_in, 0, i)));
    stream_out_.push_back(to_double(source.expert_tensor(TensorRole::stream_out, 0, i)));
  }
  using R = TensorRole;
  for (uint32_t l = 0; l < config_.n_layers; ++l) {
    const bool pre = config_.pre_norms;
    // The second layer of a pair reads what the first has normalised.
    const uint32_t normed = config_.paired ? l / 2 * 2 : l;
    Layer w;
    w.attn_norm = pre ? norm_of(R::attn_norm, normed) : Matrix();
    w.q = where(R::attn_q, l);
    w.k = where(R::attn_k, l);
    w.v = where(R::attn_v, l);
    w.out = where(R::attn_out, l);
    w.ffn_norm = has_tensor(R::ffn_norm, config_, l) ? norm_of(R::ffn_norm, l) : Matrix();
    w.gate = common(R::ffn_gate, R::shared_gate, l);
    w.up = common(R::ffn_up, R::shared_up, l);
    w.down = common(R::ffn_down, R::shared_down, l);
    w.conv_b = where(R::conv_b, l);
    w.conv_c = where(R::conv_c, l);
    w.conv_x = where(R::conv_x, l);
    w.conv_taps = where(R::conv_taps, l);
    w.conv_out = where(R::conv_out, l);
    w.input_gate = where(R::input_gate, l);
    w.input_out = where(R::input_out, l);
    w.input_post_norm = config_.input_dim != 0 ? norm_of(R::input_post_norm, l) : Matrix();
    w.scale = where(R::layer_scale, l);
    w.laurel_in = where(R::laurel_in, l);
    w.laurel_out = where(R::laurel_out, l);
    w.laurel_norm = where(R::laurel_norm, l);
    w.stream_router = where(R::stream_router, l);
    w.stream_norm = where(R::stream_norm, l);
    w.stream_predict = where(R::stream_predict, l);
    w.stream_correct = where(R::stream_correct, l);
    w.stream_scale = where(R::stream_scale, l);
    if (config_.attn_gate && !w.q.empty()) {
      const auto head = static_cast<int64_t>(config_.head_dim) * config_.d_model;
      const Matrix both = std::move(w.q);
      w.q.clear();
      for (auto at = both.begin(); at != both.end(); at += 2 * head) {
        w.q.insert(w.q.end(), at, at + head);
        w.q_gate.insert(w.q_gate.end(), at + head, at + 2 * head);
      }
    }
    w.delta_qkv = where(R::delta_qkv, l);
    w.delta_z = where(R::delta_z, l);
    w.delta_b = where(R::delta_b, l);
    w.delta_a = where(R::delta_a, l);
    w.scan_taps = where(R::scan_taps, l);
    w.scan_decay = where(R::scan_decay, l);
    w.scan_bias = where(R::scan_bias, l);
    w.scan_norm = where(R::scan_norm, l);
    w.scan_out = where(R::scan_out, l);
    w.ssm_z = where(R::ssm_z, l);
    w.ssm_xbc = where(R::ssm_xbc, l);
    w.ssm_dt = where(R::ssm_dt, l);
    w.ssm_taps_bias = where(R::ssm_taps_bias, l);
    w.ssm_skip = where(R::ssm_skip, l);
    w.latent_kv = where(R::latent_kv, l);
    w.latent_kv_norm = where(R::latent_kv_norm, l);
    w.latent_k = where(R::latent_k, l);
    w.latent_v = where(R::latent_v, l);
    w.latent_q = where(R::latent_q, l);
    w.latent_q_norm = where(R::latent_q_norm, l);
    for (double& e : w.scan_decay) e = config_.mixer.decay_is_log ? std::exp(e) : -e;
    for (uint32_t e = 0; config_.has_experts(l) && e < config_.experts.count; ++e) {
      const bool gated = has_tensor(R::expert_gate, config_, l);
      w.expert_gate.push_back(gated ? to_double(source.expert_tensor(R::expert_gate, l, e))
                                    : Matrix());
      w.expert_up.push_back(to_double(source.expert_tensor(R::expert_up, l, e)));
      w.expert_down.push_back(to_double(source.expert_tensor(R::expert_down, l, e)));
    }
    if (config_.has_experts(l)) w.router = get(R::router, l);
    w.latent_in = where(R::latent_in, l);
    w.latent_out = where(R::latent_out, l);
    if (has_tensor(R::router_bias, config_, l)) w.router_bias = get(R::router_bias, l);
    // Of each expert, none where there are none.
    const auto biases = [&](R role) {
      const Matrix all = has_tensor(role, config_, l) ? get(role, l) : Matrix();
      const auto each = static_cast<int64_t>(all.size() / std::max(1u, config_.experts.count));
      std::vector<Matrix> out;
      for (uint32_t e = 0; e < config_.experts.count; ++e) {
        out.emplace_back(all.begin() + e * each, all.begin() + (e + 1) * each);
      }
      return out;
    };
    w.expert_gate_bias = biases(R::expert_gate_bias);
    w.expert_up_bias = biases(R::expert_up_bias);
    w.expert_down_bias = biases(R::expert_down_bias);
    if (has_tensor(R::router_choice, config_, l)) w.router_choice = get(R::router_choice, l);
    w.shared_weight = where(R::shared_weight, l);
    w.router_norm = where(R::router_norm, l);
    w.expert_scale = where(R::expert_scale, l);
    w.expert_norm = where(R::expert_norm, l);
    w.expert_post_norm = where(R::expert_post_norm, l);
    w.dense_post_norm = where(R::dense_post_norm, l);
    if (config_.qkv_bias && !config_.mixer.has(l)) {
      w.q_bias = get(R::attn_q_bias, l);
      w.k_bias = get(R::attn_k_bias, l);
      w.v_bias = get(R::attn_v_bias, l);
    }
    if (has_tensor(R::attn_out_bias, config_, l)) w.out_bias = get(R::attn_out_bias, l);
    if (has_tensor(R::ffn_gate_bias, config_, l)) {
      w.gate_bias = get(R::ffn_gate_bias, l);
      w.up_bias = get(R::ffn_up_bias, l);
      w.down_bias = get(R::ffn_down_bias, l);
    }
    if (has_tensor(R::attn_q_norm, config_, l)) {
      w.q_norm = norm_of(R::attn_q_norm, l);
      if (has_tensor(R::attn_k_norm, config_, l)) w.k_norm = norm_of(R::attn_k_norm, l);
    }
    if (has_tensor(R::attn_sinks, config_, l)) w.sinks = get(R::attn_sinks, l);
    if (config_.post_norms) {
      w.attn_post_norm = norm_of(R::attn_post_norm, l);
      w.ffn_post_norm = norm_of(R::ffn_post_norm, l);
    }
    layers_.push_back(std::move(w));
  }
}

}  // namespace blend::test
