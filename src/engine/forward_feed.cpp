// What a layer adds to rows after attention: feed-forward, experts, its own embedding of tokens.
#include <algorithm>
#include <cmath>

#include "engine/forward.h"

namespace blend {

Status Forward::add_feed_forward(uint32_t layer, Tensor xb) {
  BLEND_RETURN_IF_ERROR(add_fed(layer, xb));
  if (!others_.empty()) BLEND_RETURN_IF_ERROR(correct(layer, xb));
  if (model_.config().input_dim != 0) BLEND_RETURN_IF_ERROR(add_inputs(layer, xb));
  const float scale = model_.layer(layer).scale;
  if (scale != 1) BLEND_RETURN_IF_ERROR(model_.backend().scale(xb, scale));
  const bool last = layer + 1 == model_.config().n_layers;
  return others_.empty() || last ? Status::ok() : predict(layer + 1, xb);
}

// The token's embedding is scaled by sqrt(d_model) in the model, and its product with input_context
// by the inverse: neither is done here.
Status Forward::add_inputs(uint32_t layer, Tensor xb) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(xb.rows);
  const int32_t* const tokens = tokens_.data() + place_of(xb);
  const Tensor own = view(*own_, rows, c.input_dim), context = view(*context_, rows, c.input_dim),
               gated = view(*gated_, rows, c.input_dim), added = view(*added_, rows, c.d_model);
  const Tensor embedded = operand(*normed_, rows, c.d_model);
  normed_of_ = {};
  BLEND_RETURN_IF_ERROR(embed_rows(tokens, embedded));
  BLEND_RETURN_IF_ERROR(b.matmul(*w.input_context, padded(embedded), padded(context), false));
  BLEND_RETURN_IF_ERROR(b.rms_norm(context, *model_.input_norm(), c.rms_eps, context));
  const auto n_inputs = static_cast<int32_t>(c.n_input_vocab());
  std::transform(tokens, tokens + rows, input_rows_.begin(),
                 [&](int32_t token) { return token < n_inputs ? token : 0; });
  BLEND_RETURN_IF_ERROR(b.family()->embed_part(*model_.input_embedding(), input_rows_.data(),
                                               layer * c.input_dim, own));
  BLEND_RETURN_IF_ERROR(b.scale(own, std::sqrt(static_cast<float>(c.input_dim))));
  BLEND_RETURN_IF_ERROR(b.add(own, context));
  BLEND_RETURN_IF_ERROR(b.scale(own, std::sqrt(0.5f)));
  Tensor read = xb;
  if (w.stream_scale != nullptr) {
    read = added;
    BLEND_RETURN_IF_ERROR(b.streams()->weigh(xb, *w.stream_scale, read));
  }
  BLEND_RETURN_IF_ERROR(matmul(*w.input_gate, read, gated, false));
  BLEND_RETURN_IF_ERROR(b.family()->gate(c.activation, gated, own));
  BLEND_RETURN_IF_ERROR(matmul(*w.input_out, gated, added, false));
  BLEND_RETURN_IF_ERROR(b.rms_norm(added, *w.input_post_norm, c.rms_eps, added));
  if (others_.empty()) return b.add(xb, added);
  for (size_t i = 0; i < others_.size(); ++i) {
    BLEND_RETURN_IF_ERROR(b.add(other_stream(i, xb), added));
  }
  return Status::ok();
}

Status Forward::add_fed(uint32_t layer, Tensor xb) {
  const ModelConfig& c = model_.config();
  if (!c.feeds(layer)) return Status::ok();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  if (c.has_experts(layer) && c.experts.beside_dense) return add_both(layer, xb);
  normed_of_ = {};
  const Tensor normed =
      c.pre_norms ? operand(*normed_, static_cast<uint32_t>(xb.rows), c.d_model) : xb;
  if (c.pre_norms) BLEND_RETURN_IF_ERROR(b.rms_norm(xb, *w.ffn_norm, c.rms_eps, normed));
  if (c.has_experts(layer)) return add_experts(layer, normed, xb);
  BLEND_ASSIGN(const Tensor act, inner_rows(layer, normed));
  return add_projected(*w.ffn_down, w.ffn_down_bias.get(), w.ffn_post_norm.get(),
                       c.result_scales.feed_forward, act, xb);
}

Result<Tensor> Forward::inner_rows(uint32_t layer, Tensor normed) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(normed.rows);
  const uint32_t d_ff = c.common_d_ff(layer);
  const Tensor wide = operand(*wide_, rows, 2 * d_ff), act = operand(*act_, rows, d_ff);
  if (w.gate_up == nullptr) {  // nothing but up
    BLEND_RETURN_IF_ERROR(matmul(*w.ffn_up, normed, act, false));
    BLEND_RETURN_IF_ERROR(b.family()->gate(c.activation, act, act));
    return act;
  }
  BLEND_RETURN_IF_ERROR(matmul(*w.gate_up, normed, wide, false));
  if (w.gate_up_bias != nullptr) BLEND_RETURN_IF_ERROR(b.add_bias(*w.gate_up_bias, wide));
  if (c.cuts_gate(layer)) BLEND_RETURN_IF_ERROR(b.family()->cut(wide, d_ff, c.gate_cuts[layer]));
  if (c.gate_scale != 1) {
    BLEND_RETURN_IF_ERROR(b.family()->scale_part(wide, 0, d_ff, c.gate_scale));
  }
  BLEND_RETURN_IF_ERROR(b.glu(c.activation, wide, act));
  return act;
}

Status Forward::add_experts(uint32_t layer, Tensor normed, Tensor xb) {
  const LayerWeights& w = model_.layer(layer);
  const Tensor added = view(*added_, static_cast<uint32_t>(xb.rows), model_.config().d_model);
  BLEND_RETURN_IF_ERROR(route(layer, normed));
  BLEND_RETURN_IF_ERROR(run_experts(layer, normed, added));
  if (w.ffn_down != nullptr) {
    BLEND_ASSIGN(const Tensor act, inner_rows(layer, normed));
    if (w.shared_weight != nullptr) {
      BLEND_RETURN_IF_ERROR(model_.backend().experts()->weigh(*w.shared_weight, normed, act));
    }
    BLEND_RETURN_IF_ERROR(matmul(*w.ffn_down, act, added, true));
  }
  return add_result(w.ffn_post_norm.get(), model_.config().result_scales.feed_forward, added, xb);
}

Status Forward::route(uint32_t layer, Tensor x) {
  const LayerWeights& w = model_.layer(layer);
  const Tensor scores =
      view(*scores_, static_cast<uint32_t>(x.rows), model_.config().experts.count);
  BLEND_RETURN_IF_ERROR(matmul(*w.router, x, scores, false));
  return w.router_bias == nullptr ? Status::ok()
                                  : model_.backend().add_bias(*w.router_bias, scores);
}

Status Forward::run_experts(uint32_t layer, Tensor x, Tensor y) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  const Tensor scores = view(*scores_, static_cast<uint32_t>(x.rows), c.experts.count);
  const ExpertLayer experts{w.expert_gate_up.get(),   w.expert_down.get(),
                            w.router_choice.get(),    w.expert_gate_up_bias.get(),
                            w.expert_down_bias.get(), w.expert_scale.get()};
  if (c.experts.latent == 0) {
    return model_.backend().experts()->run(experts, c, of_steps(x), scores, y, *expert_scratch_);
  }
  const auto rows = static_cast<uint32_t>(x.rows);
  const Tensor in = view(*latent_in_, rows, c.experts.latent),
               out = view(*latent_out_, rows, c.experts.latent);
  BLEND_RETURN_IF_ERROR(matmul(*w.latent_in, x, in, false));
  BLEND_RETURN_IF_ERROR(
      model_.backend().experts()->run(experts, c, of_steps(in), scores, out, *expert_scratch_));
  return matmul(*w.latent_out, out, y, false);
}

Status Forward::add_both(uint32_t layer, Tensor xb) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(xb.rows);
  const Tensor normed = operand(*normed_, rows, c.d_model), added = view(*added_, rows, c.d_model),
               routed = view(*experts_, rows, c.d_model);
  normed_of_ = {};
  BLEND_RETURN_IF_ERROR(b.rms_norm(xb, *w.ffn_norm, c.rms_eps, normed));
  BLEND_ASSIGN(const Tensor act, inner_rows(layer, normed));
  BLEND_RETURN_IF_ERROR(matmul(*w.ffn_down, act, added, false));
  BLEND_RETURN_IF_ERROR(b.rms_norm(added, *w.dense_post_norm, c.rms_eps, added));
  BLEND_RETURN_IF_ERROR(b.rms_norm(xb, *w.router_norm, c.rms_eps, normed));
  BLEND_RETURN_IF_ERROR(route(layer, normed));
  BLEND_RETURN_IF_ERROR(
      b.scale(view(*scores_, rows, c.experts.count), 1 / std::sqrt(static_cast<float>(c.d_model))));
  BLEND_RETURN_IF_ERROR(b.rms_norm(xb, *w.expert_norm, c.rms_eps, normed));
  BLEND_RETURN_IF_ERROR(run_experts(layer, normed, routed));
  BLEND_RETURN_IF_ERROR(b.rms_norm(routed, *w.expert_post_norm, c.rms_eps, routed));
  BLEND_RETURN_IF_ERROR(b.add(added, routed));
  return add_result(w.ffn_post_norm.get(), c.result_scales.feed_forward, added, xb);
}

}  // namespace blend
