#include "engine/forward.h"

#include <algorithm>
#include <numeric>

namespace blend {
namespace {

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
    wide_bytes = std::max(wide_bytes, static_cast<size_t>(qkv_dim(c)) * static_cast<size_t>(kept));
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

}  // namespace blend
