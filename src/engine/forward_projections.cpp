// Q, K and V of rows.
#include <algorithm>
#include <cstdint>

#include "engine/forward.h"

namespace blend {

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
                     padded(view(*wide_, rows, qkv_dim(c)))};
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
        padded(normed), into_, q, padded(view(*wide_, n, qkv_dim(c))));
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

}  // namespace blend
