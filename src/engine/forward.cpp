#include "engine/forward.h"

#include <algorithm>
#include <cmath>

namespace blend {
namespace {

// Q | K | V of a row.
size_t qkv_dim(const ModelConfig& c) { return size_t{c.q_dim()} + size_t{2} * c.kv_dim(); }

// The widest inner rows of what every row goes through.
size_t widest(const ModelConfig& c) {
  uint32_t most = 1;
  for (uint32_t i = 0; i < c.n_layers; ++i) most = std::max(most, c.common_d_ff(i));
  return most;
}

}  // namespace

Result<std::unique_ptr<Forward>> Forward::create(const Model& model, uint32_t max_rows,
                                                 uint32_t max_logits) {
  std::unique_ptr<Forward> f(new Forward(model));
  const ModelConfig& c = model.config();
  Backend& b = model.backend();
  // Enough rows for GEMM to run at full speed; 512 x 2 x d_ff floats bound the memory of a long
  // prompt (32 MiB for a 1B shape instead of 200 at 3 K rows).
  f->block_ = std::min(max_rows, b.traits().block_rows);
  const auto allocate = [&](std::unique_ptr<DeviceBuffer>& out, size_t rows, size_t cols,
                            int64_t bytes) -> Status {
    BLEND_ASSIGN(out, b.allocate(rows * cols * static_cast<size_t>(bytes)));
    return Status::ok();
  };
  const int64_t kept = b.traits().activation_bytes, operand = b.traits().operand_bytes;
  BLEND_RETURN_IF_ERROR(allocate(f->x_, max_rows, c.d_model, kept));
  BLEND_RETURN_IF_ERROR(allocate(f->kv_, max_rows, c.widest_row(), kept));
  BLEND_RETURN_IF_ERROR(allocate(f->normed_, f->block_, c.d_model, operand));
  const uint32_t of_conv = c.conv.taps != 0 ? c.d_model : 0;
  BLEND_RETURN_IF_ERROR(allocate(f->q_, f->block_, std::max(c.q_dim(), of_conv), operand));
  size_t wide_bytes = 2 * std::max<size_t>(widest(c), of_conv) * static_cast<size_t>(operand);
  if (b.packed_qkv() != nullptr) {
    wide_bytes = std::max(wide_bytes, qkv_dim(c) * static_cast<size_t>(kept));
  }
  BLEND_ASSIGN(f->wide_, b.allocate(f->block_ * wide_bytes));
  BLEND_RETURN_IF_ERROR(allocate(f->act_, f->block_, widest(c), operand));
  BLEND_RETURN_IF_ERROR(allocate(f->logits_, max_logits, c.n_vocab, kept));
  if (c.post_norms || c.residual_scale != 1 || c.experts.count != 0) {
    BLEND_RETURN_IF_ERROR(allocate(f->added_, f->block_, c.d_model, kept));
  }
  if (const uint32_t rank = model.largest_lora_rank(); rank != 0) {
    BLEND_RETURN_IF_ERROR(allocate(f->low_, f->block_, rank, operand));
  }
  if (c.experts.count != 0) {
    BLEND_RETURN_IF_ERROR(allocate(f->scores_, f->block_, c.experts.count, kept));
    BLEND_ASSIGN(f->expert_scratch_, b.allocate(b.experts()->scratch_bytes(c, f->block_)));
  }
  return f;
}

Result<std::unique_ptr<Forward>> Forward::create_for_steps(const Model& model, uint32_t max_rows) {
  const BackendTraits& traits = model.backend().traits();
  if (traits.pads_steps) max_rows = traits.step_rows;
  BLEND_ASSIGN(std::unique_ptr<Forward> f, create(model, max_rows, max_rows));
  if (traits.pads_steps) f->product_rows_ = max_rows;
  return f;
}

Status Forward::matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) {
  Backend& b = model_.backend();
  BLEND_RETURN_IF_ERROR(b.matmul(w, padded(x), padded(y), accumulate));
  if (low_ == nullptr) return Status::ok();  // the model has no adapters
  const LoraWeights* const lora = model_.lora(w);
  if (lora == nullptr) return Status::ok();
  const Tensor low = padded(operand(*low_, static_cast<uint32_t>(x.rows), lora->rank));
  BLEND_RETURN_IF_ERROR(b.matmul(*lora->down, padded(x), low, false));
  return b.matmul(*lora->up, low, padded(y), true);
}

Status Forward::embed(const int32_t* tokens, Tensor x) {
  Backend& b = model_.backend();
  normed_of_ = q_of_ = {};
  BLEND_RETURN_IF_ERROR(b.embed(model_.embedding(), tokens, x));
  const float factor = model_.config().embedding_scale;
  return factor == 1 ? Status::ok() : b.scale(x, factor);
}

Result<Tensor> Forward::norm(uint32_t layer, Tensor xb) {
  const ModelConfig& c = model_.config();
  if (!c.pre_norms) return xb;
  const Tensor normed = operand(*normed_, static_cast<uint32_t>(xb.rows), c.d_model);
  const Known wanted{xb.data, xb.rows, layer};
  if (normed_of_ == wanted) return normed;
  normed_of_ = {};
  BLEND_RETURN_IF_ERROR(
      model_.backend().rms_norm(xb, *model_.layer(layer).attn_norm, c.rms_eps, normed));
  normed_of_ = wanted;
  return normed;
}

Status Forward::compute_kv(uint32_t layer, Tensor x, Tensor kv, const Watch& watch) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  q_of_ = {};
  for (int64_t first = 0; first < x.rows; first += block_) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const auto rows = static_cast<uint32_t>(std::min<int64_t>(block_, x.rows - first));
    normed_of_ = {};  // the caller may have written to x
    BLEND_ASSIGN(const Tensor normed, norm(layer, x.slice(first, rows)));
    const Tensor kvb = kv.slice(first, rows);
    if (c.conv.has(layer)) {
      const Tensor bx = operand(*wide_, rows, 2 * c.d_model);
      BLEND_RETURN_IF_ERROR(matmul(*w.conv_bx, normed, bx, false));
      BLEND_RETURN_IF_ERROR(b.conv()->gate(bx, kvb));
      continue;
    }
    BLEND_RETURN_IF_ERROR(matmul(*w.kv, normed, kvb, false));
    if (c.qkv_bias) BLEND_RETURN_IF_ERROR(b.add_bias(*w.kv_bias, kvb));
    if (w.k_norm != nullptr) BLEND_RETURN_IF_ERROR(norm_parts(*w.k_norm, c.n_kv_heads, kvb));
  }
  return Status::ok();
}

Status Forward::compute_qkv(uint32_t layer, KvCache& cache, const Ropes& ropes, Tensor x,
                            const uint32_t* pos, Tensor kv, const Watch& watch) {
  // More rows than a block has no room for their Q.
  if (model_.layer(layer).qkv != nullptr && x.rows <= block_) {
    BLEND_RETURN_IF_ERROR(watch.check());
    return project_qkv(layer, cache, ropes, x, pos, kv);
  }
  BLEND_RETURN_IF_ERROR(compute_kv(layer, x, kv, watch));
  return model_.backend().write_kv(cache, layer, ropes.keys(layer), kv, pos);
}

Status Forward::project_qkv(uint32_t layer, KvCache& cache, const Ropes& ropes, Tensor x,
                            const uint32_t* pos, Tensor kv) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  const auto rows = static_cast<uint32_t>(x.rows);
  normed_of_ = q_of_ = {};  // the caller may have written to x
  BLEND_ASSIGN(const Tensor normed, norm(layer, x));
  const QkvTarget to{&cache,
                     layer,
                     &ropes.queries(layer),
                     &ropes.keys(layer),
                     pos,
                     operand(*q_, rows, c.q_dim()),
                     kv,
                     padded(view(*wide_, rows, static_cast<uint32_t>(qkv_dim(c))))};
  BLEND_RETURN_IF_ERROR(model_.backend().packed_qkv()->project(
      {w.qkv.get(), w.qkv_bias.get(), w.q_norm.get(), w.k_norm.get(), c.rms_eps}, padded(normed),
      to));
  q_of_ = {x.data, x.rows, layer};
  return Status::ok();
}

Status Forward::project_q(uint32_t layer, Tensor xb, Tensor q) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  q_of_ = {};
  BLEND_ASSIGN(const Tensor normed, norm(layer, xb));
  BLEND_RETURN_IF_ERROR(matmul(*w.q, normed, q, false));
  if (c.qkv_bias) BLEND_RETURN_IF_ERROR(b.add_bias(*w.q_bias, q));
  return w.q_norm == nullptr ? Status::ok() : norm_parts(*w.q_norm, c.n_heads, q);
}

Status Forward::norm_parts(const Weight& weight, uint32_t n_heads, Tensor x) {
  const ModelConfig& c = model_.config();
  const uint32_t parts = c.qk_norm == QkNorm::whole ? 1 : n_heads;
  return model_.backend().norm_heads(x, parts, weight, c.rms_eps);
}

// Norming after the rotation, which keeps a head's size, divides by the same as before it.
Status Forward::rope_q(uint32_t layer, const Ropes& ropes, const uint32_t* pos, Tensor q) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  BLEND_RETURN_IF_ERROR(model_.backend().rope_q(ropes.queries(layer), pos, c.head_dim, q));
  return w.late_q_norm == nullptr ? Status::ok() : norm_parts(*w.late_q_norm, c.n_heads, q);
}

Status Forward::project_q(uint32_t layer, const Ropes& ropes, Tensor xb, const uint32_t* pos,
                          Tensor q) {
  BLEND_RETURN_IF_ERROR(project_q(layer, xb, q));
  return rope_q(layer, ropes, pos, q);
}

AttentionRule Forward::rule(uint32_t layer) const {
  const ModelConfig& c = model_.config();
  return {c.score_scale(), c.attention(layer).window, c.attn_softcap,
          model_.layer(layer).attn_sinks.get()};
}

Status Forward::add_projected(const Weight& w, const Weight* bias, const Weight* post, Tensor in,
                              Tensor xb) {
  Backend& b = model_.backend();
  const ModelConfig& c = model_.config();
  if (post == nullptr && c.residual_scale == 1) {
    BLEND_RETURN_IF_ERROR(matmul(w, in, xb, true));
    return bias == nullptr ? Status::ok() : b.add_bias(*bias, xb);
  }
  const Tensor added = view(*added_, static_cast<uint32_t>(xb.rows), c.d_model);
  BLEND_RETURN_IF_ERROR(matmul(w, in, added, false));
  if (bias != nullptr) BLEND_RETURN_IF_ERROR(b.add_bias(*bias, added));
  return add_result(post, added, xb);
}

Status Forward::add_result(const Weight* post, Tensor added, Tensor xb) {
  Backend& b = model_.backend();
  const ModelConfig& c = model_.config();
  if (post != nullptr) BLEND_RETURN_IF_ERROR(b.rms_norm(added, *post, c.rms_eps, added));
  if (c.residual_scale != 1) BLEND_RETURN_IF_ERROR(b.scale(added, c.residual_scale));
  return b.add(xb, added);
}

Status Forward::attend(uint32_t layer, const KvCache& cache, uint32_t cache_layer,
                       TemperedRows* tempered, Tensor q, const uint32_t* pos) {
  Backend& b = model_.backend();
  if (tempered != nullptr && !tempered->empty()) {
    const Tempering tempering = tempered->at(layer, pos[q.rows - 1] + 1);
    if (tempering.slots != nullptr) {
      return b.fusion().attention_tempered(cache, cache_layer, rule(layer), q, pos, tempering, q,
                                           nullptr);
    }
  }
  return b.attention(cache, cache_layer, rule(layer), q, pos, q);
}

Result<Tensor> Forward::project_c(uint32_t layer, Tensor xb) {
  q_of_ = {};
  BLEND_ASSIGN(const Tensor normed, norm(layer, xb));
  const Tensor c = operand(*q_, static_cast<uint32_t>(xb.rows), model_.config().d_model);
  BLEND_RETURN_IF_ERROR(matmul(*model_.layer(layer).conv_c, normed, c, false));
  return c;
}

Status Forward::add_convolution(uint32_t layer, Tensor c, Tensor xb) {
  normed_of_ = {};  // of rows about to change
  const LayerWeights& w = model_.layer(layer);
  return add_projected(*w.conv_out, nullptr, w.attn_post_norm.get(), c, xb);
}

Status Forward::convolve_each(uint32_t layer, std::span<StepRow> rows, Tensor x, Tensor kv) {
  Backend& b = model_.backend();
  BLEND_RETURN_IF_ERROR(compute_kv(layer, x, kv, {}));
  over_.clear();
  for (uint32_t i = 0; i < rows.size(); ++i) {
    StepRow& row = rows[i];
    if (row.cache == nullptr || !row.failure.is_ok()) continue;
    row.failure = b.write_kv(*row.cache, layer, row.ropes->keys(layer), kv.slice(i, 1), &row.pos);
    if (row.failure.is_ok()) over_.push_back({row.cache, i, row.pos});
  }
  BLEND_ASSIGN(const Tensor c, project_c(layer, x));
  BLEND_RETURN_IF_ERROR(b.conv()->convolve_each(layer, *model_.layer(layer).conv_taps, c, over_));
  return add_convolution(layer, c, x);
}

Status Forward::add_attention(uint32_t layer, Tensor q, Tensor xb) {
  normed_of_ = {};  // of rows about to change
  const LayerWeights& w = model_.layer(layer);
  return add_projected(*w.attn_out, w.attn_out_bias.get(), w.attn_post_norm.get(), q, xb);
}

Status Forward::add_feed_forward(uint32_t layer, Tensor xb) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  normed_of_ = {};
  const Tensor normed =
      c.pre_norms ? operand(*normed_, static_cast<uint32_t>(xb.rows), c.d_model) : xb;
  if (c.pre_norms) BLEND_RETURN_IF_ERROR(b.rms_norm(xb, *w.ffn_norm, c.rms_eps, normed));
  if (c.has_experts(layer)) return add_experts(layer, normed, xb);
  BLEND_ASSIGN(const Tensor act, inner_rows(layer, normed));
  return add_projected(*w.ffn_down, w.ffn_down_bias.get(), w.ffn_post_norm.get(), act, xb);
}

Result<Tensor> Forward::inner_rows(uint32_t layer, Tensor normed) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(normed.rows);
  const uint32_t d_ff = c.common_d_ff(layer);
  const Tensor wide = operand(*wide_, rows, 2 * d_ff), act = operand(*act_, rows, d_ff);
  BLEND_RETURN_IF_ERROR(matmul(*w.gate_up, normed, wide, false));
  if (w.gate_up_bias != nullptr) BLEND_RETURN_IF_ERROR(b.add_bias(*w.gate_up_bias, wide));
  BLEND_RETURN_IF_ERROR(b.glu(c.activation, wide, act));
  return act;
}

Status Forward::add_experts(uint32_t layer, Tensor normed, Tensor xb) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(xb.rows);
  const Tensor scores = view(*scores_, rows, c.experts.count);
  const Tensor added = view(*added_, rows, c.d_model);
  BLEND_RETURN_IF_ERROR(matmul(*w.router, normed, scores, false));
  if (w.router_bias != nullptr) BLEND_RETURN_IF_ERROR(b.add_bias(*w.router_bias, scores));
  const ExpertLayer experts{w.expert_gate_up.get(), w.expert_down.get(), w.router_choice.get(),
                            w.expert_gate_up_bias.get(), w.expert_down_bias.get()};
  BLEND_RETURN_IF_ERROR(b.experts()->run(experts, c, normed, scores, added, *expert_scratch_));
  if (w.gate_up != nullptr) {
    BLEND_ASSIGN(const Tensor act, inner_rows(layer, normed));
    BLEND_RETURN_IF_ERROR(matmul(*w.ffn_down, act, added, true));
  }
  return add_result(w.ffn_post_norm.get(), added, xb);
}

Status Forward::project_each(uint32_t layer, std::span<StepRow> rows, Tensor x, Tensor kv,
                             Tensor q) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto n = static_cast<uint32_t>(rows.size());
  if (w.qkv != nullptr) {
    normed_of_ = {};
    BLEND_ASSIGN(const Tensor normed, norm(layer, x));
    into_.clear();
    for (uint32_t i = 0; i < n; ++i) {
      const StepRow& row = rows[i];
      if (row.cache == nullptr || !row.failure.is_ok()) continue;
      into_.push_back({row.cache, &row.ropes->queries(layer), &row.ropes->keys(layer), i, row.pos});
    }
    return b.packed_qkv()->project_each(
        {w.qkv.get(), w.qkv_bias.get(), w.q_norm.get(), w.k_norm.get(), c.rms_eps}, layer,
        padded(normed), into_, q, padded(view(*wide_, n, static_cast<uint32_t>(qkv_dim(c)))));
  }
  BLEND_RETURN_IF_ERROR(compute_kv(layer, x, kv, {}));
  BLEND_RETURN_IF_ERROR(project_q(layer, x, q));
  const auto place = [&](const StepRow& row, uint32_t i) -> Status {
    BLEND_RETURN_IF_ERROR(
        b.write_kv(*row.cache, layer, row.ropes->keys(layer), kv.slice(i, 1), &row.pos));
    return rope_q(layer, *row.ropes, &row.pos, q.slice(i, 1));
  };
  for (uint32_t i = 0; i < n; ++i) {
    StepRow& row = rows[i];
    if (row.cache != nullptr && row.failure.is_ok()) row.failure = place(row, i);
  }
  return Status::ok();
}

Status Forward::step_layer(uint32_t layer, std::span<StepRow> rows, Tensor x, Tensor kv) {
  const auto n = static_cast<uint32_t>(rows.size());
  if (model_.config().conv.has(layer)) {
    BLEND_RETURN_IF_ERROR(convolve_each(layer, rows, x, kv));
    return add_feed_forward(layer, x);
  }
  const Tensor q = operand(*q_, n, model_.config().q_dim());
  q_of_ = {};
  BLEND_RETURN_IF_ERROR(project_each(layer, rows, x, kv, q));
  over_.clear();
  for (uint32_t i = 0; i < n; ++i) {
    StepRow& row = rows[i];
    if (row.cache == nullptr || !row.failure.is_ok()) continue;
    if (row.tempered != nullptr && !row.tempered->empty()) {
      row.failure = attend(layer, *row.cache, layer, row.tempered, q.slice(i, 1), &row.pos);
    } else {
      over_.push_back({row.cache, i, row.pos});
    }
  }
  BLEND_RETURN_IF_ERROR(model_.backend().attention_each(layer, rule(layer), q, over_));
  BLEND_RETURN_IF_ERROR(add_attention(layer, q, x));
  return add_feed_forward(layer, x);
}

Status Forward::finish_layer(uint32_t layer, const KvCache& cache, uint32_t cache_layer,
                             const Ropes& ropes, Tensor x, const uint32_t* pos, const Watch& watch,
                             MassOut out) {
  const ModelConfig& c = model_.config();
  Backend& b = model_.backend();
  const size_t n_slots = size_t{pos[x.rows - 1]} + 1;
  if (out.mass != nullptr) std::fill(out.mass, out.mass + n_slots, 0.0f);
  for (int64_t first = 0; first < x.rows; first += block_) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const auto rows = static_cast<uint32_t>(std::min<int64_t>(block_, x.rows - first));
    const Tensor xb = x.slice(first, rows);
    if (c.conv.has(layer)) {
      BLEND_ASSIGN(const Tensor of_c, project_c(layer, xb));
      BLEND_RETURN_IF_ERROR(b.conv()->convolve(cache, cache_layer, *model_.layer(layer).conv_taps,
                                               of_c, pos + first));
      BLEND_RETURN_IF_ERROR(add_convolution(layer, of_c, xb));
      BLEND_RETURN_IF_ERROR(watch.check());
      BLEND_RETURN_IF_ERROR(add_feed_forward(layer, xb));
      continue;
    }
    const Tensor q = operand(*q_, rows, c.q_dim());
    if (q_of_ != Known{xb.data, xb.rows, layer}) {
      BLEND_RETURN_IF_ERROR(project_q(layer, ropes, xb, pos + first, q));
    }
    q_of_ = {};  // attention overwrites it
    if (const int64_t begin = std::max<int64_t>(first, out.first);
        out.mass != nullptr && begin < first + rows) {
      const Tensor asked = q.slice(begin - first, first + rows - begin);
      BLEND_RETURN_IF_ERROR(
          b.fusion().attention_mass(cache, cache_layer, rule(layer), asked, pos + begin, out.mass));
    }
    BLEND_RETURN_IF_ERROR(attend(layer, cache, cache_layer, tempered_, q, pos + first));
    BLEND_RETURN_IF_ERROR(add_attention(layer, q, xb));
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_RETURN_IF_ERROR(add_feed_forward(layer, xb));
  }
  if (out.mass != nullptr) average(out.mass, n_slots, x.rows - out.first);
  return Status::ok();
}

Status Forward::finish_parts(uint32_t layer, const KvCache& cache, uint32_t cache_layer,
                             const Ropes& ropes, Tensor x, const uint32_t* pos,
                             std::span<const Part> parts, const Place& place, const Watch& watch) {
  if (parts.size() == 1) {
    BLEND_RETURN_IF_ERROR(place(0));
    return finish_layer(layer, cache, cache_layer, ropes, x, pos, watch, parts[0].out);
  }
  Backend& b = model_.backend();
  if (model_.config().conv.has(layer)) {
    BLEND_ASSIGN(const Tensor c, project_c(layer, x));
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      BLEND_RETURN_IF_ERROR(watch.check());
      BLEND_RETURN_IF_ERROR(place(i));
      if (part.out.mass != nullptr) {
        std::fill_n(part.out.mass, size_t{pos[part.first + part.n_rows - 1]} + 1, 0.0f);
      }
      BLEND_RETURN_IF_ERROR(b.conv()->convolve(cache, cache_layer, *model_.layer(layer).conv_taps,
                                               c.slice(part.first, part.n_rows), pos + part.first));
    }
    BLEND_RETURN_IF_ERROR(add_convolution(layer, c, x));
    BLEND_RETURN_IF_ERROR(watch.check());
    return add_feed_forward(layer, x);
  }
  const Tensor q = operand(*q_, static_cast<uint32_t>(x.rows), model_.config().q_dim());
  BLEND_RETURN_IF_ERROR(project_q(layer, ropes, x, pos, q));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_RETURN_IF_ERROR(place(i));
    const Tensor own = q.slice(part.first, part.n_rows);
    const uint32_t* const own_pos = pos + part.first;
    if (float* const mass = part.out.mass; mass != nullptr) {
      const uint32_t n_asked = part.n_rows - part.out.first;
      const size_t n_slots = size_t{own_pos[part.n_rows - 1]} + 1;
      std::fill(mass, mass + n_slots, 0.0f);
      BLEND_RETURN_IF_ERROR(b.fusion().attention_mass(cache, cache_layer, rule(layer),
                                                      own.slice(part.out.first, n_asked),
                                                      own_pos + part.out.first, mass));
      average(mass, n_slots, n_asked);
    }
    BLEND_RETURN_IF_ERROR(attend(layer, cache, cache_layer, tempered_, own, own_pos));
  }
  BLEND_RETURN_IF_ERROR(add_attention(layer, q, x));
  BLEND_RETURN_IF_ERROR(watch.check());
  return add_feed_forward(layer, x);
}

void Forward::average(float* mass, size_t n_slots, int64_t n_rows) const {
  const float share =
      1.0f / (static_cast<float>(n_rows) * static_cast<float>(model_.config().n_heads));
  for (size_t j = 0; j < n_slots; ++j) mass[j] *= share;
}

Status Forward::attention_mass(uint32_t layer, const KvCache& cache, const Ropes& ropes, Tensor x,
                               const uint32_t* pos, float* mass, const Watch& watch) {
  const ModelConfig& c = model_.config();
  const size_t n_slots = static_cast<size_t>(pos[x.rows - 1]) + 1;
  std::fill(mass, mass + n_slots, 0.0f);
  if (c.conv.has(layer)) return Status::ok();
  for (int64_t first = 0; first < x.rows; first += block_) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const auto rows = static_cast<uint32_t>(std::min<int64_t>(block_, x.rows - first));
    const Tensor q = operand(*q_, rows, c.q_dim());
    BLEND_RETURN_IF_ERROR(project_q(layer, ropes, x.slice(first, rows), pos + first, q));
    BLEND_RETURN_IF_ERROR(
        model_.backend().fusion().attention_mass(cache, layer, rule(layer), q, pos + first, mass));
  }
  average(mass, n_slots, x.rows);
  return Status::ok();
}

Status Forward::outside_mass(uint32_t layer, const KvCache& cache, const Ropes& ropes, Tensor x,
                             const uint32_t* pos, uint32_t n_outside, float* mass,
                             const Watch& watch) {
  const ModelConfig& c = model_.config();
  std::vector<uint8_t> outside(size_t{pos[x.rows - 1]} + 1, 0);
  std::fill(outside.begin(), outside.begin() + n_outside, uint8_t{1});
  for (int64_t first = 0; first < x.rows; first += block_) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const auto rows = static_cast<uint32_t>(std::min<int64_t>(block_, x.rows - first));
    const Tensor q = operand(*q_, rows, c.q_dim());
    BLEND_RETURN_IF_ERROR(project_q(layer, ropes, x.slice(first, rows), pos + first, q));
    BLEND_RETURN_IF_ERROR(model_.backend().fusion().attention_tempered(
        cache, layer, rule(layer), q, pos + first, {outside.data(), 1.0f, 1.0f}, q, mass + first));
  }
  return Status::ok();
}

Status Forward::hidden_states(Tensor x, float* out) {
  Backend& b = model_.backend();
  normed_of_ = {};
  BLEND_RETURN_IF_ERROR(b.rms_norm(x, model_.output_norm(), model_.config().rms_eps, x));
  return b.download(x, out);
}

Status Forward::project_logits(Tensor x) {
  const ModelConfig& c = model_.config();
  Backend& b = model_.backend();
  normed_of_ = {};
  const Tensor normed = operand(*normed_, static_cast<uint32_t>(x.rows), c.d_model);
  BLEND_RETURN_IF_ERROR(b.rms_norm(x, model_.output_norm(), c.rms_eps, normed));
  const Tensor logits = view(*logits_, static_cast<uint32_t>(x.rows), c.n_vocab);
  BLEND_RETURN_IF_ERROR(matmul(model_.output(), normed, logits, false));
  return c.logit_scale == 1 ? Status::ok() : b.scale(logits, c.logit_scale);
}

uint32_t Forward::finish_logits(float* logits) const {
  const ModelConfig& c = model_.config();
  for (uint32_t i = 0; i < c.n_vocab; ++i) {
    if (c.logit_softcap != 0) logits[i] = c.logit_softcap * std::tanh(logits[i] / c.logit_softcap);
    if (!std::isfinite(logits[i])) return i;
  }
  return c.n_vocab;
}

Status Forward::check_finite(uint32_t first_bad) const {
  if (first_bad == model_.config().n_vocab) return Status::ok();
  return make_error(BLEND_E_NUMERIC,
                    "the logit of token %u is not finite: the activations overflowed or a cached "
                    "chunk holds values of another model",
                    first_bad);
}

Status Forward::read_logits(float* logits, uint32_t row) {
  BLEND_RETURN_IF_ERROR(model_.backend().download(
      view(*logits_, row + 1, model_.config().n_vocab).slice(row, 1), logits));
  return check_finite(finish_logits(logits));
}

Status Forward::read_logits(std::span<float* const> out, std::span<Status> failures) {
  Backend& b = model_.backend();
  const auto n = static_cast<uint32_t>(out.size());
  const uint32_t n_vocab = model_.config().n_vocab;
  const Tensor all = view(*logits_, n, n_vocab);
  if (b.device_memory() == nullptr) {
    for (uint32_t i = 0; i < n; ++i) {
      if (out[i] != nullptr) failures[i] = read_logits(out[i], i);
    }
    return Status::ok();
  }
  if (host_logits_ == nullptr) {
    BLEND_ASSIGN(host_logits_, b.allocate_host(size_t{block_} * n_vocab * sizeof(float)));
  }
  auto* const there = static_cast<float*>(host_logits_->data());
  BLEND_RETURN_IF_ERROR(b.download(all, there));
  // A step takes the device some milliseconds; half a megabyte a row must not take as long.
  std::vector<uint32_t> bad(n, n_vocab);
  model_.runtime().pool().parallel_for(n, 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      if (out[i] == nullptr) continue;
      std::copy_n(there + i * n_vocab, n_vocab, out[i]);
      bad[i] = finish_logits(out[i]);
    }
  });
  for (uint32_t i = 0; i < n; ++i) failures[i] = check_finite(bad[i]);
  return Status::ok();
}

}  // namespace blend
