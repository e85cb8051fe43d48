#include "engine/forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace blend {
namespace {

// Q | K | V of a row.
size_t qkv_dim(const ModelConfig& c) { return size_t{c.q_dim()} + size_t{2} * c.kv_dim(); }

bool has_inputs(const ModelConfig& c) { return c.input_dim != 0; }

bool scales_results(const ModelConfig& c) { return c.result_scales != ResultScales(); }

// The widest inner rows of what every row goes through.
size_t widest(const ModelConfig& c) {
  uint32_t most = 1;
  for (uint32_t i = 0; i < c.n_layers; ++i) most = std::max(most, c.common_d_ff(i));
  return most;
}

// Q of heads as the model makes it, and their values, where it attends over latent rows.
size_t of_heads(const ModelConfig& c) {
  return c.latent.any() ? size_t{c.n_heads} * std::max(c.latent.q_dim(), c.latent.value) : 0;
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
  if (c.paired) BLEND_RETURN_IF_ERROR(allocate(f->read_, max_rows, c.d_model, operand));
  BLEND_RETURN_IF_ERROR(allocate(f->q_, f->block_, std::max(c.widest_q(), c.mixed_dim()), operand));
  const size_t of_conv = c.mixer.kind == RowMixer::Kind::conv ? c.d_model : 0;
  const size_t wide =
      std::max({2 * widest(c), 2 * of_conv, size_t{c.attn_gate ? c.q_dim() : 0}, of_heads(c)});
  size_t wide_bytes = wide * static_cast<size_t>(operand);
  if (b.packed_qkv() != nullptr) {
    wide_bytes = std::max(wide_bytes, qkv_dim(c) * static_cast<size_t>(kept));
  }
  BLEND_ASSIGN(f->wide_, b.allocate(f->block_ * wide_bytes));
  const size_t inner = std::max(widest(c), size_t{c.latent.q_rank});
  BLEND_RETURN_IF_ERROR(allocate(f->act_, f->block_, inner, operand));
  BLEND_RETURN_IF_ERROR(allocate(f->logits_, max_logits, c.n_vocab, kept));
  if (c.post_norms || scales_results(c) || c.experts.count != 0 || has_inputs(c) ||
      c.n_streams > 1 || c.laurel_rank != 0) {
    BLEND_RETURN_IF_ERROR(allocate(f->added_, f->block_, c.d_model, kept));
  }
  if (const uint32_t rank = model.largest_lora_rank(); rank != 0) {
    BLEND_RETURN_IF_ERROR(allocate(f->low_, f->block_, rank, kept));  // f32 of an embedding
  }
  if (has_inputs(c)) {
    f->tokens_.assign(max_rows, 0);
    f->input_rows_.assign(f->block_, 0);
    for (std::unique_ptr<DeviceBuffer>* const out : {&f->own_, &f->context_, &f->gated_}) {
      BLEND_RETURN_IF_ERROR(allocate(*out, f->block_, c.input_dim, kept));
    }
  }
  if (c.n_streams > 1) {
    f->others_.resize(c.n_streams - 1);
    f->in_order_.resize(f->block_);
    std::iota(f->in_order_.begin(), f->in_order_.end(), 0u);
    for (std::unique_ptr<DeviceBuffer>& other : f->others_) {
      BLEND_RETURN_IF_ERROR(allocate(other, max_rows, c.d_model, kept));
    }
    BLEND_RETURN_IF_ERROR(allocate(f->before_, f->block_, c.d_model, kept));
    BLEND_RETURN_IF_ERROR(allocate(f->stream_scores_, f->block_, c.n_streams, kept));
  }
  if (c.laurel_rank != 0) {
    BLEND_RETURN_IF_ERROR(allocate(f->laurel_, f->block_, c.laurel_rank, operand));
  }
  if (c.experts.count != 0) {
    BLEND_RETURN_IF_ERROR(allocate(f->scores_, f->block_, c.experts.count, kept));
    if (c.experts.beside_dense) {
      BLEND_RETURN_IF_ERROR(allocate(f->experts_, f->block_, c.d_model, kept));
    }
    if (c.experts.latent != 0) {
      BLEND_RETURN_IF_ERROR(allocate(f->latent_in_, f->block_, c.experts.latent, kept));
      BLEND_RETURN_IF_ERROR(allocate(f->latent_out_, f->block_, c.experts.latent, kept));
    }
    BLEND_ASSIGN(f->expert_scratch_, b.allocate(b.experts()->scratch_bytes(c, f->block_)));
  }
  return f;
}

Result<std::unique_ptr<Forward>> Forward::create_for_steps(const Model& model, uint32_t max_rows) {
  const BackendTraits& traits = model.backend().traits();
  if (traits.pads_steps) max_rows = traits.step_rows;
  BLEND_ASSIGN(std::unique_ptr<Forward> f, create(model, max_rows, max_rows));
  if (traits.pads_steps) f->product_rows_ = max_rows;
  f->for_steps_ = true;
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
  normed_of_ = q_of_ = {};
  if (has_inputs(model_.config())) std::copy_n(tokens, x.rows, tokens_.data() + place_of(x));
  BLEND_RETURN_IF_ERROR(embed_rows(tokens, x));
  const float factor = model_.config().embedding_scale;
  if (factor != 1) BLEND_RETURN_IF_ERROR(model_.backend().scale(x, factor));
  return others_.empty() ? Status::ok() : split(x);
}

Status Forward::embed_rows(const int32_t* tokens, Tensor x) {
  Backend& b = model_.backend();
  BLEND_RETURN_IF_ERROR(b.embed(model_.embedding(), tokens, x));
  const LoraWeights* const lora = low_ == nullptr ? nullptr : model_.lora(model_.embedding());
  for (int64_t first = 0; lora != nullptr && first < x.rows; first += block_) {
    const auto rows = static_cast<uint32_t>(std::min<int64_t>(block_, x.rows - first));
    const Tensor low = view(*low_, rows, lora->rank);
    BLEND_RETURN_IF_ERROR(b.embed(*lora->down, tokens + first, low));
    BLEND_RETURN_IF_ERROR(b.matmul(*lora->up, padded(low), padded(x.slice(first, rows)), true));
  }
  return Status::ok();
}

Status Forward::take(const Forward& from, Tensor src, const uint32_t* places, Tensor dst) {
  normed_of_ = q_of_ = {};
  if (has_inputs(model_.config())) {
    const int32_t* const there = from.tokens_.data() + from.place_of(src);
    int32_t* const here = tokens_.data() + place_of(dst);
    for (int64_t i = 0; i < dst.rows; ++i) here[i] = there[places[i]];
  }
  for (size_t i = 0; i < others_.size(); ++i) {
    const Tensor all = from.other_stream(i, src), some = other_stream(i, dst);
    BLEND_RETURN_IF_ERROR(model_.backend().gather(all, places, some));
  }
  if (read_ != nullptr) {
    const auto rows_of = [](const Forward& f, Tensor x) {
      return f.operand(*f.read_, 0, static_cast<uint32_t>(x.cols)).slice(f.place_of(x), x.rows);
    };
    BLEND_RETURN_IF_ERROR(model_.backend().gather(rows_of(from, src), places, rows_of(*this, dst)));
  }
  return model_.backend().gather(src, places, dst);
}

Result<Tensor> Forward::norm(uint32_t layer, Tensor xb) {
  const ModelConfig& c = model_.config();
  if (!c.pre_norms) return xb;
  const Tensor normed = read_ != nullptr
                            ? operand(*read_, 0, c.d_model).slice(place_of(xb), xb.rows)
                            : operand(*normed_, static_cast<uint32_t>(xb.rows), c.d_model);
  if (c.reads_as_before(layer)) return normed;
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
    if (c.mixer.has(layer) && c.mixer.scans()) {
      BLEND_RETURN_IF_ERROR(matmul(*w.scan_in, normed, kvb, false));
      BLEND_RETURN_IF_ERROR(scale_projected(kvb));
      BLEND_RETURN_IF_ERROR(b.scan()->prepare(c.mixer, scan(layer), kvb));
      continue;
    }
    if (c.mixer.has(layer)) {
      const Tensor bx = operand(*wide_, rows, 2 * c.d_model);
      BLEND_RETURN_IF_ERROR(matmul(*w.conv_bx, normed, bx, false));
      BLEND_RETURN_IF_ERROR(b.conv()->gate(bx, kvb));
      continue;
    }
    BLEND_RETURN_IF_ERROR(matmul(*w.kv, normed, kvb, false));
    if (c.latent.any()) {
      BLEND_RETURN_IF_ERROR(b.latent()->norm(kvb, *w.latent_norm, c.latent.eps));
      continue;
    }
    if (c.qkv_bias) BLEND_RETURN_IF_ERROR(b.add_bias(*w.kv_bias, kvb));
    const Heads heads = c.heads(layer);
    if (w.k_norm != nullptr) BLEND_RETURN_IF_ERROR(norm_parts(*w.k_norm, heads.n_kv, kvb));
    if (c.v_norm) {
      BLEND_RETURN_IF_ERROR(b.family()->norm_values(kvb, heads.n_kv, heads.dim, c.rms_eps));
    }
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
  if (c.latent.any()) return project_latent_q(layer, normed, q);
  BLEND_RETURN_IF_ERROR(matmul(*w.q, normed, q, false));
  if (c.qkv_bias) BLEND_RETURN_IF_ERROR(b.add_bias(*w.q_bias, q));
  return w.q_norm == nullptr ? Status::ok() : norm_parts(*w.q_norm, c.n_heads, q);
}

Status Forward::project_latent_q(uint32_t layer, Tensor normed, Tensor q) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(normed.rows);
  const Tensor heads = operand(*wide_, rows, c.q_rows(layer));
  if (w.latent_q != nullptr) {
    const Tensor low = operand(*act_, rows, c.latent.q_rank);
    BLEND_RETURN_IF_ERROR(matmul(*w.latent_q, normed, low, false));
    BLEND_RETURN_IF_ERROR(b.rms_norm(low, *w.latent_q_norm, c.latent.eps, low));
    normed = low;
  }
  BLEND_RETURN_IF_ERROR(matmul(*w.q, normed, heads, false));
  return b.latent()->ask(c.latent, *w.latent_k, of_steps(heads), q);
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
  BLEND_RETURN_IF_ERROR(model_.backend().rope_q(ropes.queries(layer), pos, c.key_dim(layer), q));
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

Status Forward::scale_projected(Tensor kept) {
  const RowMixer& m = model_.config().mixer;
  const uint32_t keys = m.k_heads * m.k_dim;
  uint32_t first = 0, part = 1;  // z's scale is not for these
  for (const uint32_t n : {m.value_dim(), keys, keys, m.v_heads}) {
    const float scale = m.scales[part++];
    if (scale != 1) {
      BLEND_RETURN_IF_ERROR(model_.backend().family()->scale_part(kept, first, n, scale));
    }
    first += n;
  }
  return Status::ok();
}

Status Forward::add_projected(const Weight& w, const Weight* bias, const Weight* post, float scale,
                              Tensor in, Tensor xb) {
  Backend& b = model_.backend();
  const ModelConfig& c = model_.config();
  if (post == nullptr && scale == 1) {
    BLEND_RETURN_IF_ERROR(matmul(w, in, xb, true));
    return bias == nullptr ? Status::ok() : b.add_bias(*bias, xb);
  }
  const Tensor added = view(*added_, static_cast<uint32_t>(xb.rows), c.d_model);
  BLEND_RETURN_IF_ERROR(matmul(w, in, added, false));
  if (bias != nullptr) BLEND_RETURN_IF_ERROR(b.add_bias(*bias, added));
  return add_result(post, scale, added, xb);
}

Status Forward::add_result(const Weight* post, float scale, Tensor added, Tensor xb) {
  Backend& b = model_.backend();
  const ModelConfig& c = model_.config();
  if (post != nullptr) BLEND_RETURN_IF_ERROR(b.rms_norm(added, *post, c.rms_eps, added));
  if (scale != 1) BLEND_RETURN_IF_ERROR(b.scale(added, scale));
  return b.add(xb, added);
}

Status Forward::attend(uint32_t layer, const KvCache& cache, uint32_t cache_layer,
                       TemperedRows* tempered, Tensor q, const uint32_t* pos, uint32_t last) {
  Backend& b = model_.backend();
  if (model_.config().sees_ahead) {
    return attend_both_ways(layer, cache, cache_layer, q, pos, last);
  }
  if (tempered != nullptr && !tempered->empty()) {
    // Rows are stale where their K and V are kept.
    const uint32_t kept = model_.config().kv_layer(layer);
    const Tempering tempering = tempered->at(kept, pos[q.rows - 1] + 1);
    if (tempering.slots != nullptr) {
      return b.fusion().attention_tempered(cache, cache_layer, rule(layer), q, pos, tempering, q,
                                           nullptr);
    }
  }
  return b.attention(cache, cache_layer, rule(layer), q, pos, q);
}

// A row that is taken to stand at the last slot that it sees sees the same: attention itself looks
// back only. With a window of w it sees w - 1 rows to each side.
Status Forward::attend_both_ways(uint32_t layer, const KvCache& cache, uint32_t cache_layer,
                                 Tensor q, const uint32_t* pos, uint32_t last) {
  Backend& b = model_.backend();
  AttentionRule rows = rule(layer);
  const uint32_t side = rows.window == 0 ? last : rows.window - 1;
  const auto n = static_cast<size_t>(q.rows);
  std::vector<uint32_t> seen(n, last);
  size_t whole = 0;  // rows whose window ends before the sequence does
  while (whole < n && pos[whole] + uint64_t{side} < last) {
    seen[whole] = pos[whole] + side;
    ++whole;
  }
  if (whole > 0) {
    rows.window = 2 * side + 1;
    const Tensor part = q.slice(0, static_cast<int64_t>(whole));
    BLEND_RETURN_IF_ERROR(b.attention(cache, cache_layer, rows, part, seen.data(), part));
  }
  // The last slot cuts off more and more of the others' windows.
  for (size_t i = whole; i < n;) {
    rows.window = pos[i] > side ? last - (pos[i] - side) + 1 : 0;
    size_t end = i + 1;
    while (rows.window == 0 && end < n && pos[end] <= side) ++end;
    const Tensor part = q.slice(static_cast<int64_t>(i), static_cast<int64_t>(end - i));
    BLEND_RETURN_IF_ERROR(b.attention(cache, cache_layer, rows, part, seen.data() + i, part));
    i = end;
  }
  return Status::ok();
}

ScanLayer Forward::scan(uint32_t layer) const {
  const LayerWeights& w = model_.layer(layer);
  return {w.mixer_taps.get(),      w.scan_decay.get(),      w.scan_bias.get(), w.scan_norm.get(),
          model_.config().rms_eps, w.mixer_taps_bias.get(), w.ssm_skip.get()};
}

Result<Tensor> Forward::project_gate(uint32_t layer, Tensor xb) {
  q_of_ = {};
  BLEND_ASSIGN(const Tensor normed, norm(layer, xb));
  const Tensor gate = operand(*q_, static_cast<uint32_t>(xb.rows), model_.config().mixed_dim());
  BLEND_RETURN_IF_ERROR(matmul(*model_.layer(layer).mixer_gate, normed, gate, false));
  const float scale = model_.config().mixer.scales[0];
  if (scale != 1) BLEND_RETURN_IF_ERROR(model_.backend().scale(gate, scale));
  return gate;
}

Status Forward::mix(uint32_t layer, const KvCache& cache, uint32_t cache_layer, Tensor gate,
                    const uint32_t* pos, const Watch& watch) {
  const RowMixer& mixer = model_.config().mixer;
  Backend& b = model_.backend();
  if (mixer.scans()) {
    return b.scan()->mix(mixer, scan(layer), cache, cache_layer, gate, pos, watch);
  }
  return b.conv()->convolve(cache, cache_layer, *model_.layer(layer).mixer_taps, gate, pos);
}

Status Forward::add_mixed(uint32_t layer, Tensor mixed, Tensor xb) {
  normed_of_ = {};  // of rows about to change
  const LayerWeights& w = model_.layer(layer);
  return add_projected(*w.mixer_out, nullptr, w.attn_post_norm.get(),
                       model_.config().result_scales.mixer, mixed, xb);
}

Status Forward::mix_each(uint32_t layer, std::span<StepRow> rows, Tensor x, Tensor kv) {
  Backend& b = model_.backend();
  BLEND_RETURN_IF_ERROR(compute_kv(layer, x, kv, {}));
  over_.clear();
  for (uint32_t i = 0; i < rows.size(); ++i) {
    StepRow& row = rows[i];
    if (row.cache == nullptr || !row.failure.is_ok()) continue;
    row.failure = b.write_kv(*row.cache, layer, row.ropes->keys(layer), kv.slice(i, 1), &row.pos);
    if (row.failure.is_ok()) over_.push_back({row.cache, i, row.pos});
  }
  BLEND_ASSIGN(const Tensor gate, project_gate(layer, x));
  const RowMixer& mixer = model_.config().mixer;
  if (mixer.scans()) {
    BLEND_RETURN_IF_ERROR(b.scan()->mix_each(mixer, scan(layer), layer, gate, over_));
  } else {
    BLEND_RETURN_IF_ERROR(
        b.conv()->convolve_each(layer, *model_.layer(layer).mixer_taps, gate, over_));
  }
  return add_mixed(layer, gate, x);
}

Status Forward::add_attention(uint32_t layer, Tensor q, Tensor xb) {
  const LayerWeights& w = model_.layer(layer);
  if (w.q_gate != nullptr) {
    BLEND_ASSIGN(const Tensor normed, norm(layer, xb));
    const Tensor gate = operand(*wide_, static_cast<uint32_t>(xb.rows), model_.config().q_dim());
    BLEND_RETURN_IF_ERROR(matmul(*w.q_gate, normed, gate, false));
    BLEND_RETURN_IF_ERROR(model_.backend().scan()->gate(gate, q));
  }
  if (const ModelConfig& c = model_.config(); c.latent.any()) {
    const Tensor mean = q;
    q = operand(*wide_, static_cast<uint32_t>(xb.rows), c.result_dim(layer));
    BLEND_RETURN_IF_ERROR(
        model_.backend().latent()->values(c.latent, *w.latent_v, of_steps(mean), q));
  }
  if (!others_.empty()) {
    BLEND_RETURN_IF_ERROR(copy(xb, view(*before_, static_cast<uint32_t>(xb.rows), xb.cols)));
  }
  const float scale = model_.config().result_scales.attention;
  if (laurel_ == nullptr) {
    normed_of_ = {};  // of rows about to change
    return add_projected(*w.attn_out, w.attn_out_bias.get(), w.attn_post_norm.get(), scale, q, xb);
  }
  BLEND_ASSIGN(const Tensor normed, norm(layer, xb));
  normed_of_ = {};
  BLEND_RETURN_IF_ERROR(
      add_projected(*w.attn_out, w.attn_out_bias.get(), w.attn_post_norm.get(), scale, q, xb));
  return add_laurel(layer, normed, xb);
}

Status Forward::add_feed_forward(uint32_t layer, Tensor xb) {
  BLEND_RETURN_IF_ERROR(add_fed(layer, xb));
  if (!others_.empty()) BLEND_RETURN_IF_ERROR(correct(layer, xb));
  if (has_inputs(model_.config())) BLEND_RETURN_IF_ERROR(add_inputs(layer, xb));
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
  const bool keeps = layer < c.n_kept();
  if (keeps) {
    BLEND_RETURN_IF_ERROR(compute_kv(layer, x, kv, {}));
  } else {
    normed_of_ = {};
  }
  BLEND_RETURN_IF_ERROR(project_q(layer, x, q));
  const auto place = [&](const StepRow& row, uint32_t i) -> Status {
    if (keeps) {
      BLEND_RETURN_IF_ERROR(
          b.write_kv(*row.cache, layer, row.ropes->keys(layer), kv.slice(i, 1), &row.pos));
    }
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
  if (model_.config().mixer.has(layer)) {
    BLEND_RETURN_IF_ERROR(mix_each(layer, rows, x, kv));
    return add_feed_forward(layer, x);
  }
  const Tensor q = operand(*q_, n, model_.config().asked_dim(layer));
  const uint32_t kept = model_.config().kv_layer(layer);
  q_of_ = {};
  BLEND_RETURN_IF_ERROR(project_each(layer, rows, x, kv, q));
  over_.clear();
  for (uint32_t i = 0; i < n; ++i) {
    StepRow& row = rows[i];
    if (row.cache == nullptr || !row.failure.is_ok()) continue;
    if (row.tempered != nullptr && !row.tempered->empty()) {
      row.failure = attend(layer, *row.cache, kept, row.tempered, q.slice(i, 1), &row.pos, row.pos);
    } else {
      over_.push_back({row.cache, i, row.pos});
    }
  }
  BLEND_RETURN_IF_ERROR(model_.backend().attention_each(kept, rule(layer), q, over_));
  BLEND_RETURN_IF_ERROR(add_attention(layer, q, x));
  return add_feed_forward(layer, x);
}

Status Forward::finish_sharing(const KvCache& cache, Holds holds, const Ropes& ropes, Tensor x,
                               const uint32_t* pos, const Watch& watch) {
  const ModelConfig& c = model_.config();
  for (uint32_t layer = c.n_kept(); layer < c.n_layers; ++layer) {
    normed_of_ = {};
    const uint32_t in = holds == Holds::all_layers ? c.kv_layer(layer) : c.kind_of(layer);
    BLEND_RETURN_IF_ERROR(finish_layer(layer, cache, in, ropes, x, pos, watch, {}));
  }
  return Status::ok();
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
    if (c.mixer.has(layer)) {
      BLEND_ASSIGN(const Tensor gate, project_gate(layer, xb));
      BLEND_RETURN_IF_ERROR(mix(layer, cache, cache_layer, gate, pos + first, watch));
      BLEND_RETURN_IF_ERROR(add_mixed(layer, gate, xb));
      BLEND_RETURN_IF_ERROR(watch.check());
      BLEND_RETURN_IF_ERROR(add_feed_forward(layer, xb));
      continue;
    }
    const Tensor q = operand(*q_, rows, c.asked_dim(layer));
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
    const uint32_t last = pos[x.rows - 1];
    BLEND_RETURN_IF_ERROR(attend(layer, cache, cache_layer, tempered_, q, pos + first, last));
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
  if (model_.config().mixer.has(layer)) {
    BLEND_ASSIGN(const Tensor gate, project_gate(layer, x));
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      BLEND_RETURN_IF_ERROR(watch.check());
      BLEND_RETURN_IF_ERROR(place(i));
      if (part.out.mass != nullptr) {
        std::fill_n(part.out.mass, size_t{pos[part.first + part.n_rows - 1]} + 1, 0.0f);
      }
      BLEND_RETURN_IF_ERROR(mix(layer, cache, cache_layer, gate.slice(part.first, part.n_rows),
                                pos + part.first, watch));
    }
    BLEND_RETURN_IF_ERROR(add_mixed(layer, gate, x));
    BLEND_RETURN_IF_ERROR(watch.check());
    return add_feed_forward(layer, x);
  }
  const Tensor q = operand(*q_, static_cast<uint32_t>(x.rows), model_.config().asked_dim(layer));
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
    const uint32_t last = own_pos[part.n_rows - 1];
    BLEND_RETURN_IF_ERROR(attend(layer, cache, cache_layer, tempered_, own, own_pos, last));
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
  if (c.mixer.has(layer)) return Status::ok();
  for (int64_t first = 0; first < x.rows; first += block_) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const auto rows = static_cast<uint32_t>(std::min<int64_t>(block_, x.rows - first));
    const Tensor q = operand(*q_, rows, c.asked_dim(layer));
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
    const Tensor q = operand(*q_, rows, c.asked_dim(layer));
    BLEND_RETURN_IF_ERROR(project_q(layer, ropes, x.slice(first, rows), pos + first, q));
    BLEND_RETURN_IF_ERROR(model_.backend().fusion().attention_tempered(
        cache, layer, rule(layer), q, pos + first, {outside.data(), 1.0f, 1.0f}, q, mass + first));
  }
  return Status::ok();
}

Status Forward::hidden_states(Tensor x, float* out) {
  Backend& b = model_.backend();
  normed_of_ = {};
  BLEND_ASSIGN(const Tensor whole, joined(x));
  BLEND_RETURN_IF_ERROR(b.rms_norm(whole, model_.output_norm(), model_.config().rms_eps, x));
  return b.download(x, out);
}

Status Forward::project_logits(Tensor x) {
  const ModelConfig& c = model_.config();
  Backend& b = model_.backend();
  normed_of_ = {};
  BLEND_ASSIGN(const Tensor whole, joined(x));
  const Tensor normed = operand(*normed_, static_cast<uint32_t>(x.rows), c.d_model);
  BLEND_RETURN_IF_ERROR(b.rms_norm(whole, model_.output_norm(), c.rms_eps, normed));
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
