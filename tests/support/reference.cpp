#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace blend::test {
namespace {

// y = W x; w: [rows, x.size()].
std::vector<double> multiply(const std::vector<double>& w, const std::vector<double>& x) {
  const size_t rows = w.size() / x.size();
  std::vector<double> y(rows);
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (size_t c = 0; c < x.size(); ++c) sum += w[r * x.size() + c] * x[c];
    y[r] = sum;
  }
  return y;
}

// y, with the root mean square of x.
std::vector<double> resized(std::vector<double> y, const std::vector<double>& x) {
  double of_x = 0, of_y = 0;
  for (const double e : x) of_x += e * e / static_cast<double>(x.size());
  for (const double e : y) of_y += e * e / static_cast<double>(y.size());
  for (double& e : y) e *= std::sqrt(of_x) / std::sqrt(std::max(of_y, 1e-5));
  return y;
}

}  // namespace

double round_to(double x, DType dtype) {
  const float f = static_cast<float>(x);
  if (dtype == DType::f16) return f16_to_f32(f32_to_f16(f));
  if (dtype == DType::bf16) return bf16_to_f32(f32_to_bf16(f));
  return x;
}

std::vector<double> log_probabilities(const std::vector<double>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double l : logits) sum += std::exp(l - top);
  std::vector<double> out(logits);
  for (double& l : out) l -= top + std::log(sum);
  return out;
}

std::vector<double> ReferenceModel::embed(int32_t token) const {
  std::vector<double> x = embed_row(token);
  const std::vector<double> first = x;
  for (const Matrix& in : stream_in_) {
    const std::vector<double> other = resized(multiply(in, first), first);
    x.insert(x.end(), other.begin(), other.end());
  }
  return x;
}

std::vector<double> ReferenceModel::embed_row(int32_t token) const {
  const auto* row = &embedding_[static_cast<size_t>(token) * config_.d_model];
  std::vector<double> x(row, row + config_.d_model);
  for (double& e : x) e *= static_cast<double>(config_.embedding_scale);
  return x;
}

std::vector<double> ReferenceModel::norm(const std::vector<double>& x, const Matrix& weight,
                                         double eps) {
  if (weight.empty()) return x;
  double sum = 0;
  for (const double e : x) sum += e * e;
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
  return out;
}

void ReferenceModel::rotate(uint32_t layer, double* row, uint32_t n_heads, size_t pos) const {
  const LayerAttention::Rope kind = config_.attention(layer).rope;
  if (kind == LayerAttention::Rope::none) return;
  const RopeParams& rope = kind == LayerAttention::Rope::local ? config_.local_rope : config_.rope;
  const uint32_t half = rope.rotary_dim / 2;
  for (uint32_t h = 0; h < n_heads; ++h) {
    double* head = row + static_cast<size_t>(h) * config_.heads(layer).dim;
    for (uint32_t i = 0; i < half; ++i) {
      double frequency = std::pow(rope.theta, -2.0 * i / rope.rotary_dim);
      if (!rope.freq_factors.empty()) frequency /= static_cast<double>(rope.freq_factors[i]);
      const double angle = static_cast<double>(pos) / rope.linear_scale * frequency;
      const bool interleaved = rope.layout == RopeLayout::interleaved;
      double& a = head[interleaved ? 2 * i : i];
      double& b = head[interleaved ? 2 * i + 1 : i + half];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = (a * std::sin(angle) + b * std::cos(angle)) * rope.attention_factor;
      a = turned * rope.attention_factor;
    }
  }
}

std::vector<double> ReferenceModel::rotate_rows(uint32_t layer,
                                                const std::vector<double>& k) const {
  std::vector<double> out(k);
  if (config_.mixer.has(layer)) return out;
  for (size_t row = 0; row < k.size() / plane_dim(layer); ++row) {
    rotate(layer, &out[row * plane_dim(layer)], config_.heads(layer).n_kv, row);
  }
  if (config_.qk_norm == QkNorm::after_rope) {
    const Matrix& weight = layers_[layer].k_norm;
    for (size_t i = 0; i < out.size(); ++i) out[i] *= weight[i % weight.size()];
  }
  return out;
}

std::vector<double> ReferenceModel::project(const Matrix& w, const Matrix& bias,
                                            const Matrix& head_norm,
                                            const std::vector<double>& x) const {
  std::vector<double> y = multiply(w, x);
  for (size_t i = 0; i < bias.size(); ++i) y[i] += bias[i];
  if (!head_norm.empty()) norm_heads(y, head_norm);
  return y;
}

void ReferenceModel::norm_heads(std::vector<double>& y, const Matrix& head_norm) const {
  const auto dim = static_cast<int64_t>(head_norm.size());
  for (auto head = y.begin(); head != y.end(); head += dim) {
    const std::vector<double> normed = norm({head, head + dim}, head_norm);
    std::copy(normed.begin(), normed.end(), head);
  }
}

double ReferenceModel::growth(uint32_t layer, size_t pos) const {
  const RopeParams& rope = config_.rope;
  if (rope.q_growth == 0 || config_.attention(layer).rope != LayerAttention::Rope::main) return 1;
  const double turns = std::floor(static_cast<double>(pos) / rope.q_growth_rows);
  return 1 + rope.q_growth * std::log(1 + turns);
}

void ReferenceModel::project_kv(uint32_t layer, const std::vector<double>& x,
                                std::vector<double>& k, std::vector<double>& v) const {
  const Layer& w = layers_[layer];
  const std::vector<double> normed = norm(read(layer, x), w.attn_norm);
  if (config_.mixer.has(layer)) {
    std::vector<double> u;
    if (config_.mixer.kind == RowMixer::Kind::delta) {
      u = multiply(w.delta_qkv, normed);
      for (const double b : multiply(w.delta_b, normed)) u.push_back(1 / (1 + std::exp(-b)));
      const std::vector<double> a = multiply(w.delta_a, normed);
      for (size_t h = 0; h < a.size(); ++h) {
        u.push_back(-w.scan_decay[h] * std::log(1 + std::exp(a[h] + w.scan_bias[h])));
      }
    } else if (config_.mixer.kind == RowMixer::Kind::ssm) {
      u = multiply(w.ssm_xbc, normed);
      const std::vector<double> dt = multiply(w.ssm_dt, normed);
      for (size_t h = 0; h < dt.size(); ++h) {
        u.push_back(std::log(1 + std::exp(dt[h] + w.scan_bias[h])));
      }
    } else {
      u = multiply(w.conv_b, normed);
      const std::vector<double> factor = multiply(w.conv_x, normed);
      for (size_t i = 0; i < u.size(); ++i) u[i] *= factor[i];
    }
    const auto half = u.begin() + static_cast<int64_t>(u.size() / 2);
    k.insert(k.end(), u.begin(), half);
    v.insert(v.end(), half, u.end());
    return;
  }
  if (const Latent& latent = config_.latent; latent.any()) {
    const std::vector<double> row = multiply(w.latent_kv, normed);
    const auto cut = row.begin() + latent.rank;
    const std::vector<double> c =
        norm({row.begin(), cut}, w.latent_kv_norm, static_cast<double>(latent.eps));
    std::vector<double> kept(cut, row.end());
    kept.insert(kept.end(), c.begin(), c.end());
    const auto half = kept.begin() + static_cast<int64_t>(kept.size() / 2);
    k.insert(k.end(), kept.begin(), half);
    v.insert(v.end(), half, kept.end());
    return;
  }
  // Where K is normalised after RoPE, its weights come with the rotation.
  const bool late = config_.qk_norm == QkNorm::after_rope;
  const std::vector<double> row_k =
      project(w.k, w.k_bias, late ? Matrix(w.k_norm.size(), 1.0) : w.k_norm, normed);
  std::vector<double> row_v =
      project(config_.attention(layer).k_is_v ? w.k : w.v, w.v_bias, {}, normed);
  if (config_.v_norm) norm_heads(row_v, Matrix(config_.heads(layer).dim, 1.0));
  k.insert(k.end(), row_k.begin(), row_k.end());
  v.insert(v.end(), row_v.begin(), row_v.end());
}

std::vector<double> ReferenceModel::query(uint32_t layer, size_t pos,
                                          const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  const bool late = config_.qk_norm == QkNorm::after_rope;
  if (const Latent& latent = config_.latent; latent.any()) {
    std::vector<double> from = norm(x, w.attn_norm);
    if (latent.q_rank != 0) {
      from = norm(multiply(w.latent_q, from), w.latent_q_norm, static_cast<double>(latent.eps));
    }
    std::vector<double> q = multiply(w.q, from);
    for (size_t h = 0; h < config_.n_heads; ++h) {
      rotate(layer, &q[h * latent.q_dim() + latent.nope], 1, pos);
    }
    return q;
  }
  std::vector<double> q =
      project(w.q, w.q_bias, late ? Matrix() : w.q_norm, norm(of_pair(layer, x), w.attn_norm));
  rotate(layer, q.data(), config_.n_heads, pos);
  if (late) norm_heads(q, w.q_norm);
  for (double& e : q) e *= growth(layer, pos);
  return q;
}

std::vector<double> ReferenceModel::latent_of(size_t row, const std::vector<double>& k,
                                              const std::vector<double>& v) const {
  const auto half = static_cast<int64_t>(config_.latent.row() / 2);
  const auto at = static_cast<int64_t>(row) * half;
  std::vector<double> c(k.begin() + at + config_.latent.rope, k.begin() + at + half);
  c.insert(c.end(), v.begin() + at, v.begin() + at + half);
  return c;
}

std::vector<double> ReferenceModel::latent_key(uint32_t layer, size_t head, size_t row,
                                               const std::vector<double>& rotated_k,
                                               const std::vector<double>& v) const {
  const Latent& latent = config_.latent;
  const std::vector<double> c = latent_of(row, rotated_k, v);
  std::vector<double> key(latent.nope, 0.0);
  for (size_t r = 0; r < latent.rank; ++r) {
    const double* const column = &layers_[layer].latent_k[(head * latent.rank + r) * latent.nope];
    for (size_t n = 0; n < latent.nope; ++n) key[n] += column[n] * c[r];
  }
  const auto at = rotated_k.begin() + static_cast<int64_t>(row * (latent.row() / 2));
  key.insert(key.end(), at, at + latent.rope);
  return key;
}

std::vector<double> ReferenceModel::probabilities(uint32_t layer, size_t pos, size_t head,
                                                  const std::vector<double>& q,
                                                  const std::vector<double>& rotated_k,
                                                  const std::vector<double>& v,
                                                  const ReferenceTempering& tempering) const {
  const Heads heads = config_.heads(layer);
  const bool latent = config_.latent.any();
  const size_t dim = latent ? config_.latent.q_dim() : heads.dim,
               window = config_.attention(layer).window;
  const double scale = config_.attn_scale != 0 ? static_cast<double>(config_.attn_scale)
                                               : 1 / std::sqrt(static_cast<double>(dim));
  std::vector<double> p(pos + 1, -INFINITY);
  for (size_t j = 0; j <= pos; ++j) {
    if (window != 0 && j + window <= pos) continue;
    std::vector<double> own;
    if (latent) own = latent_key(layer, head, j, rotated_k, v);
    const double* k = latent
                          ? own.data()
                          : &rotated_k[j * plane_dim(layer) + head / (heads.n / heads.n_kv) * dim];
    p[j] = 0;
    for (size_t d = 0; d < dim; ++d) p[j] += q[head * dim + d] * k[d];
    p[j] *= scale;
    const auto cap = static_cast<double>(config_.attn_softcap);
    if (cap != 0) p[j] = cap * std::tanh(p[j] / cap);
  }
  double tempered = 0;  // sum of the tempered keys' exponentials
  for (size_t j = 0; j <= pos; ++j) {
    if (tempering.of(j)) tempered += std::exp(p[j] /= tempering.temperature);
  }
  for (size_t j = 0; j <= pos && tempered > 0; ++j) {
    if (tempering.of(j)) p[j] += (tempering.scale - 1) * std::log(tempered);
  }
  const Matrix& sinks = layers_[layer].sinks;
  if (!sinks.empty()) p.push_back(sinks[head]);
  for (double& e : p = log_probabilities(p)) e = std::exp(e);
  p.resize(pos + 1);
  return p;
}

// A row between the layers of a pair is followed by what the first read.
std::vector<double> ReferenceModel::of_pair(uint32_t layer, const std::vector<double>& x) const {
  const auto d = static_cast<int64_t>(config_.d_model);
  return config_.reads_as_before(layer) ? std::vector<double>(x.begin() + d, x.end()) : x;
}

void ReferenceModel::add(std::vector<double>& x, std::vector<double> y, const Matrix& post,
                         float scale) const {
  if (!post.empty()) y = norm(y, post);
  for (size_t i = 0; i < y.size(); ++i) x[i] += static_cast<double>(scale) * y[i];
}

std::vector<double> ReferenceModel::convolve(uint32_t layer, size_t pos,
                                             const std::vector<double>& k,
                                             const std::vector<double>& v,
                                             const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  const size_t half = x.size() / 2, n_taps = config_.mixer.taps;
  std::vector<double> y = multiply(w.conv_c, norm(x, w.attn_norm));
  for (size_t i = 0; i < y.size(); ++i) {
    double sum = 0;
    for (size_t back = 0; back < n_taps && back <= pos; ++back) {
      const std::vector<double>& plane = i < half ? k : v;
      sum += w.conv_taps[i * n_taps + (n_taps - 1 - back)] * plane[(pos - back) * half + i % half];
    }
    y[i] *= sum;
  }
  return multiply(w.conv_out, y);
}

std::vector<double> ReferenceModel::delta(uint32_t layer, size_t pos, const std::vector<double>& k,
                                          const std::vector<double>& v,
                                          const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  const RowMixer& m = config_.mixer;
  const size_t half = plane_dim(layer), keys = size_t{m.k_heads} * m.k_dim,
               per = m.v_heads / m.k_heads;
  const auto kept = [&](size_t row, size_t i) {
    return i < half ? k[row * half + i] : v[row * half + i - half];
  };
  // q, k or v of a row, after the convolution; q and k of unit length.
  const auto part = [&](size_t row, size_t first, size_t n, bool unit) {
    std::vector<double> out(n);
    double length = 1e-6;
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t back = 0; back < m.taps && back <= row; ++back) {
        sum += w.scan_taps[(first + i) * m.taps + m.taps - 1 - back] * kept(row - back, first + i);
      }
      out[i] = sum / (1 + std::exp(-sum));
      length += out[i] * out[i];
    }
    for (double& e : out) e /= unit ? std::sqrt(length) : 1;
    return out;
  };
  std::vector<double> z = multiply(w.delta_z, norm(x, w.attn_norm));
  for (size_t h = 0; h < m.v_heads; ++h) {
    const size_t key = m.tiled ? h % m.k_heads : h / per;
    std::vector<double> state(size_t{m.k_dim} * m.v_dim, 0.0);
    for (size_t row = 0; row <= pos; ++row) {
      const std::vector<double> key_row = part(row, keys + key * m.k_dim, m.k_dim, true);
      const std::vector<double> value = part(row, 2 * keys + h * m.v_dim, m.v_dim, false);
      const double beta = kept(row, m.qkv_dim() + h);
      const double decay = std::exp(kept(row, m.qkv_dim() + m.v_heads + h));
      for (double& s : state) s *= decay;
      for (size_t c = 0; c < m.v_dim; ++c) {
        double read = 0;
        for (size_t i = 0; i < m.k_dim; ++i) read += key_row[i] * state[i * m.v_dim + c];
        for (size_t i = 0; i < m.k_dim; ++i) {
          state[i * m.v_dim + c] += key_row[i] * beta * (value[c] - read);
        }
      }
    }
    const std::vector<double> q = part(pos, key * m.k_dim, m.k_dim, true);
    std::vector<double> y(m.v_dim, 0.0);
    for (size_t c = 0; c < m.v_dim; ++c) {
      for (size_t i = 0; i < m.k_dim; ++i) y[c] += q[i] * state[i * m.v_dim + c];
      y[c] /= std::sqrt(static_cast<double>(m.k_dim));
    }
    y = norm(y, w.scan_norm);
    for (size_t c = 0; c < m.v_dim; ++c) {
      double& gate = z[h * m.v_dim + c];
      gate = y[c] * gate / (1 + std::exp(-gate));
    }
  }
  return multiply(w.scan_out, z);
}

// As the quadratic form of the Mamba-2 paper has it: y_t is a sum over the rows s <= t of
// (C_t B_s) exp(-A (dt_(s+1) + ... + dt_t)) dt_s x_s.
std::vector<double> ReferenceModel::mamba(uint32_t layer, size_t pos, const std::vector<double>& k,
                                          const std::vector<double>& v,
                                          const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  const RowMixer& m = config_.mixer;
  const size_t half = plane_dim(layer), inner = m.value_dim(), keys = size_t{m.k_heads} * m.k_dim,
               per = m.v_heads / m.k_heads;
  const auto kept = [&](size_t row, size_t i) {
    return i < half ? k[row * half + i] : v[row * half + i - half];
  };
  std::vector<std::vector<double>> xbc(pos + 1, std::vector<double>(m.qkv_dim()));
  for (size_t row = 0; row <= pos; ++row) {
    for (size_t i = 0; i < m.qkv_dim(); ++i) {
      double sum = w.ssm_taps_bias.empty() ? 0 : w.ssm_taps_bias[i];
      for (size_t back = 0; back < m.taps && back <= row; ++back) {
        sum += w.scan_taps[i * m.taps + m.taps - 1 - back] * kept(row - back, i);
      }
      xbc[row][i] = sum / (1 + std::exp(-sum));
    }
  }
  std::vector<double> y = multiply(w.ssm_z, norm(of_pair(layer, x), w.attn_norm));
  for (double& z : y) z = z / (1 + std::exp(-z));
  for (size_t h = 0; h < m.v_heads; ++h) {
    std::vector<double> sum(m.v_dim);
    for (size_t c = 0; c < m.v_dim; ++c) sum[c] = w.ssm_skip[h] * xbc[pos][h * m.v_dim + c];
    double passed = 0;
    for (size_t row = pos + 1; row-- > 0;) {
      const double dt = kept(row, m.qkv_dim() + h);
      double score = 0;
      for (size_t i = 0; i < m.k_dim; ++i) {
        const size_t b = inner + h / per * m.k_dim + i;
        score += xbc[pos][b + keys] * xbc[row][b];
      }
      score *= std::exp(-w.scan_decay[h] * passed) * dt;
      for (size_t c = 0; c < m.v_dim; ++c) sum[c] += score * xbc[row][h * m.v_dim + c];
      passed += dt;
    }
    for (size_t c = 0; c < m.v_dim; ++c) y[h * m.v_dim + c] *= sum[c];
  }
  const auto group = static_cast<int64_t>(inner / m.k_heads);
  for (int64_t at = 0; at < static_cast<int64_t>(w.scan_norm.size()); at += group) {
    const Matrix part(w.scan_norm.begin() + at, w.scan_norm.begin() + at + group);
    const std::vector<double> normed = norm({y.begin() + at, y.begin() + at + group}, part);
    std::copy(normed.begin(), normed.end(), y.begin() + at);
  }
  return multiply(w.scan_out, y);
}

uint32_t ReferenceModel::dependent_layer() const {
  if (config_.mixer.scans()) {
    for (uint32_t l = 1; l < config_.n_layers; ++l) {
      if (!config_.mixer.has(l)) return l;
    }
  }
  uint32_t n = 0;
  for (uint32_t l = 0; l < config_.n_layers; ++l) {
    if (config_.mixer.has(l)) continue;
    if (n++ == 1) return l;
  }
  return 0;
}

uint32_t ReferenceModel::kv_layer(uint32_t layer) const {
  if (layer < n_kept()) return layer;
  const LayerAttention own = config_.attention(layer);
  uint32_t found = 0;
  for (uint32_t l = 0; l < n_kept(); ++l) {
    const LayerAttention other = config_.attention(l);
    if (other.window == own.window && other.rope == own.rope) found = l;
  }
  return found;
}

void ReferenceModel::finish(size_t pos, int32_t token, const ReferenceKv& kv,
                            std::vector<double>& x,
                            const std::vector<ReferenceTempering>& tempering) const {
  for (uint32_t l = n_kept(); l < config_.n_layers; ++l) {
    const uint32_t of = kv_layer(l);
    attend_and_feed(l, pos, token, rotate_rows(of, kv.k[of]), kv.v[of], x,
                    tempering.empty() ? ReferenceTempering() : tempering[of]);
  }
}

// Embeddings of each layer, as the paper of Gemma 4 and transformers write them.
std::vector<double> ReferenceModel::input(uint32_t layer, int32_t token,
                                          std::vector<double> x) const {
  const Layer& w = layers_[layer];
  const size_t n = config_.input_dim;
  const auto d = static_cast<double>(config_.d_model);
  const auto rows = [&](const Matrix& of, size_t first, size_t count) {
    const auto begin = of.begin() + static_cast<int64_t>(first);
    return Matrix(begin, begin + static_cast<int64_t>(count));
  };
  std::vector<double> context = multiply(
      rows(input_context_, layer * n * config_.d_model, n * config_.d_model), embed_row(token));
  for (double& e : context) e /= std::sqrt(d);
  context = norm(context, input_norm_);
  const auto id = static_cast<size_t>(token);
  const size_t in_table = id < config_.n_input_vocab() ? id : 0;
  const size_t row = in_table * config_.n_layers * n;
  for (size_t i = 0; i < w.stream_scale.size(); ++i) x[i] *= w.stream_scale[i];
  const Matrix own = rows(input_embedding_, row + layer * n, n);
  std::vector<double> gate = multiply(w.input_gate, x);
  for (size_t i = 0; i < n; ++i) {
    const double in = (own[i] * std::sqrt(static_cast<double>(n)) + context[i]) / std::sqrt(2.0);
    gate[i] = activate(gate[i]) * in;
  }
  return norm(multiply(w.input_out, gate), w.input_post_norm);
}

std::vector<double> ReferenceModel::stream(const std::vector<double>& x, size_t i) const {
  const auto d = static_cast<int64_t>(config_.d_model);
  const auto begin = x.begin() + static_cast<int64_t>(i) * d;
  return {begin, begin + d};
}

std::vector<double> ReferenceModel::route(uint32_t layer, const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  std::vector<double> normed = norm(x, w.stream_norm);
  for (double& e : normed) e /= config_.d_model;
  std::vector<double> m = multiply(w.stream_router, normed);
  for (double& e : m) e = std::tanh(e);
  return m;
}

std::vector<double> ReferenceModel::predict(uint32_t layer, const std::vector<double>& x) const {
  const size_t n = config_.n_streams, d = config_.d_model;
  const std::vector<double> c = multiply(layers_[layer].stream_predict, route(layer, stream(x, 0)));
  std::vector<double> out = x;
  for (size_t s = 0; s < n; ++s) {
    for (size_t t = 0; t < n; ++t) {
      for (size_t i = 0; i < d; ++i) out[s * d + i] += c[s * n + t] * x[t * d + i];
    }
  }
  return out;
}

std::vector<double> ReferenceModel::read(uint32_t layer, const std::vector<double>& x) const {
  return config_.n_streams == 1 ? of_pair(layer, x) : stream(predict(layer, x), 0);
}

void ReferenceModel::correct(uint32_t layer, const std::vector<double>& after,
                             std::vector<double>& x) const {
  const size_t d = config_.d_model;
  const std::vector<double> first = stream(x, 0);
  const std::vector<double> c = multiply(layers_[layer].stream_correct, route(layer, after));
  for (size_t s = 0; s < config_.n_streams; ++s) {
    for (size_t i = 0; i < d; ++i) x[s * d + i] += (1 + c[s]) * (after[i] - first[i]);
  }
}

std::vector<double> ReferenceModel::joined(const std::vector<double>& x) const {
  const std::vector<double> first = stream(x, 0);
  std::vector<double> sum = first;
  for (size_t s = 0; s < stream_out_.size(); ++s) {
    const std::vector<double> other = resized(multiply(stream_out_[s], stream(x, s + 1)), first);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  }
  for (double& e : sum) e /= config_.n_streams;
  return sum;
}

double ReferenceModel::activate(double g) const {
  return config_.activation == Activation::silu
             ? g / (1.0 + std::exp(-g))
             : 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

void ReferenceModel::attend_and_feed(uint32_t layer, size_t pos, int32_t token,
                                     const std::vector<double>& rotated_k,
                                     const std::vector<double>& v, std::vector<double>& row,
                                     const ReferenceTempering& tempering) const {
  const Layer& w = layers_[layer];
  const bool mixes = config_.mixer.has(layer);
  std::vector<double> all = config_.n_streams == 1 ? row : predict(layer, row);
  std::vector<double> x = config_.n_streams == 1 ? row : stream(all, 0);
  const std::vector<double> q = mixes ? x : query(layer, pos, x);
  const std::vector<double> read = x;
  const Heads heads = config_.heads(layer);
  const size_t dim = heads.dim;
  std::vector<double> mixed(config_.latent.any() ? config_.result_dim(layer) : q.size(), 0.0);
  for (size_t h = 0; h < config_.n_heads && !mixes; ++h) {
    const std::vector<double> p = probabilities(layer, pos, h, q, rotated_k, v, tempering);
    if (const Latent& latent = config_.latent; latent.any()) {
      const auto size = static_cast<int64_t>(latent.value * latent.rank);
      const auto from = w.latent_v.begin() + static_cast<int64_t>(h) * size;
      const Matrix values(from, from + size);
      for (size_t j = 0; j <= pos; ++j) {
        if (p[j] == 0) continue;
        const std::vector<double> value = multiply(values, latent_of(j, rotated_k, v));
        for (size_t d = 0; d < latent.value; ++d) mixed[h * latent.value + d] += p[j] * value[d];
      }
      continue;
    }
    for (size_t j = 0; j <= pos; ++j) {
      if (p[j] == 0) continue;
      for (size_t d = 0; d < dim; ++d) {
        mixed[h * dim + d] += p[j] * v[j * plane_dim(layer) + h / (heads.n / heads.n_kv) * dim + d];
      }
    }
  }
  if (!w.q_gate.empty()) {
    const std::vector<double> gate = multiply(w.q_gate, norm(x, w.attn_norm));
    for (size_t i = 0; i < mixed.size(); ++i) mixed[i] /= 1 + std::exp(-gate[i]);
  }
  if (!mixes) {
    mixed = project(w.out, w.out_bias, {}, mixed);
  } else if (config_.mixer.kind == RowMixer::Kind::delta) {
    mixed = delta(layer, pos, rotated_k, v, x);
  } else if (config_.mixer.kind == RowMixer::Kind::ssm) {
    mixed = mamba(layer, pos, rotated_k, v, x);
  } else {
    mixed = convolve(layer, pos, rotated_k, v, x);
  }
  const ResultScales& scales = config_.result_scales;
  const float scale = mixes ? scales.mixer : scales.attention;
  add(x, mixed, w.attn_post_norm, scale);
  if (!w.laurel_in.empty()) {
    const std::vector<double> normed = norm(read, w.attn_norm);
    const std::vector<double> learned =
        norm(multiply(w.laurel_out, multiply(w.laurel_in, normed)), w.laurel_norm);
    for (size_t i = 0; i < x.size(); ++i) x[i] = (x[i] + normed[i] + learned[i]) / std::sqrt(2.0);
  }
  if (config_.reads_as_before(layer)) {
    x.resize(config_.d_model);
  } else if (config_.paired) {
    x.insert(x.end(), read.begin(), read.end());
    row = x;
    return;
  }
  add(x, feed_layer(layer, x), w.ffn_post_norm, scales.feed_forward);
  if (config_.n_streams > 1) {
    correct(layer, x, all);
    const std::vector<double> said = input(layer, token, stream(all, 0));
    for (size_t i = config_.d_model; i < all.size(); ++i) all[i] += said[i % config_.d_model];
    row = all;
    return;
  }
  if (config_.input_dim != 0) {
    const std::vector<double> said = input(layer, token, x);
    for (size_t i = 0; i < x.size(); ++i) x[i] += said[i];
  }
  for (size_t i = 0; i < x.size() && !w.scale.empty(); ++i) x[i] *= w.scale[0];
  row = x;
}

std::vector<double> ReferenceModel::feed_layer(uint32_t layer, const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  const std::vector<double> normed = norm(x, w.ffn_norm);
  std::vector<double> fed(x.size(), 0.0), more = fed;
  if (!w.up.empty()) {
    const double cut = config_.cuts_gate(layer) ? static_cast<double>(config_.gate_cuts[layer])
                                                : -std::numeric_limits<double>::infinity();
    fed = feed(w.gate, w.gate_bias, w.up, w.up_bias, w.down, w.down_bias, normed, cut);
  }
  if (!w.shared_weight.empty()) {
    const double weight = 1 / (1 + std::exp(-multiply(w.shared_weight, normed)[0]));
    for (double& e : fed) e *= weight;
  }
  if (config_.has_experts(layer) && config_.experts.beside_dense) {
    fed = norm(fed, w.dense_post_norm);
    std::vector<double> routed = norm(x, w.router_norm);
    for (double& e : routed) e /= std::sqrt(static_cast<double>(x.size()));
    more = norm(feed_experts(w, multiply(w.router, routed), norm(x, w.expert_norm)),
                w.expert_post_norm);
  } else if (config_.has_experts(layer)) {
    more = feed_experts(w, project(w.router, w.router_bias, {}, normed), normed);
  }
  for (size_t i = 0; i < fed.size(); ++i) fed[i] += more[i];
  return fed;
}

std::vector<double> ReferenceModel::feed(const Matrix& w_gate, const Matrix& gate_bias,
                                         const Matrix& w_up, const Matrix& up_bias,
                                         const Matrix& w_down, const Matrix& down_bias,
                                         const std::vector<double>& x, double cut) const {
  const std::vector<double> up = project(w_up, up_bias, {}, x);
  if (w_gate.empty()) {  // ReLU squared
    std::vector<double> inner = up;
    for (double& e : inner) e = std::max(e, 0.0) * std::max(e, 0.0);
    return multiply(w_down, inner);
  }
  std::vector<double> gate = project(w_gate, gate_bias, {}, x);
  if (std::isfinite(cut)) {
    double mean = 0, variance = 0;
    for (const double g : gate) mean += g / static_cast<double>(gate.size());
    for (const double g : gate) {
      variance += (g - mean) * (g - mean) / static_cast<double>(gate.size());
    }
    for (double& g : gate) g = std::max(0.0, g - (mean + cut * std::sqrt(variance)));
  }
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    if (config_.activation == Activation::clamped_silu) {
      const double bounded = std::min(g, 7.0), other = std::clamp(up[i], -7.0, 7.0);
      gate[i] = bounded / (1.0 + std::exp(-1.702 * bounded)) * (other + 1);
      continue;
    }
    gate[i] = activate(g) * up[i];
  }
  return project(w_down, down_bias, {}, gate);
}

std::vector<double> ReferenceModel::feed_experts(const Layer& w, std::vector<double> score,
                                                 const std::vector<double>& x) const {
  const Experts& e = config_.experts;
  if (!e.sigmoid) score = log_probabilities(score);
  for (double& s : score) s = e.sigmoid ? 1 / (1 + std::exp(-s)) : std::exp(s);
  std::vector<size_t> order(e.count);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto choice = [&](size_t i) {
    return score[i] + (w.router_choice.empty() ? 0.0 : w.router_choice[i]);
  };
  if (e.groups > 1) {
    const size_t size = e.count / e.groups;
    std::vector<std::pair<double, size_t>> groups;  // worst first
    for (size_t g = 0; g < e.groups; ++g) {
      std::vector<double> of;
      for (size_t i = g * size; i < (g + 1) * size; ++i) of.push_back(choice(i));
      std::sort(of.rbegin(), of.rend());
      groups.emplace_back(of[0] + (e.groups_by_best ? 0 : of[1]), g);
    }
    std::sort(groups.begin(), groups.end());
    groups.resize(e.groups - e.used_groups);
    std::erase_if(order, [&](size_t i) {
      return std::any_of(groups.begin(), groups.end(),
                         [&](const auto& group) { return i / size == group.second; });
    });
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return choice(a) > choice(b); });
  order.resize(e.used);
  double sum = 0;
  for (const size_t i : order) sum += score[i];
  const std::vector<double> read = w.latent_in.empty() ? x : multiply(w.latent_in, x);
  std::vector<double> out(read.size(), 0.0);
  for (const size_t i : order) {
    double weight = score[i] * static_cast<double>(e.scale) / (e.normalised ? sum : 1.0);
    if (!w.expert_scale.empty()) weight *= w.expert_scale[i];
    const std::vector<double> y = feed(w.expert_gate[i], w.expert_gate_bias[i], w.expert_up[i],
                                       w.expert_up_bias[i], w.expert_down[i], w.expert_down_bias[i],
                                       read, -std::numeric_limits<double>::infinity());
    for (size_t c = 0; c < out.size(); ++c) out[c] += weight * y[c];
  }
  return w.latent_out.empty() ? out : multiply(w.latent_out, out);
}

std::vector<double> ReferenceModel::attention(uint32_t layer, size_t pos,
                                              const std::vector<double>& rotated_k,
                                              const std::vector<double>& v,
                                              const std::vector<double>& x) const {
  std::vector<double> mean(pos + 1, 0.0);
  if (config_.mixer.has(layer)) return mean;
  const std::vector<double> q = query(layer, pos, read(layer, x));
  for (size_t h = 0; h < config_.n_heads; ++h) {
    const std::vector<double> p = probabilities(layer, pos, h, q, rotated_k, v, {});
    for (size_t j = 0; j <= pos; ++j) mean[j] += p[j] / config_.n_heads;
  }
  return mean;
}

ReferenceModel::Impact ReferenceModel::context_impact(const std::vector<int32_t>& tokens,
                                                      const std::vector<int32_t>& prefix) const {
  const size_t n = tokens.size();
  // A prefill of `all`; see(l, rows before the layer, their K before RoPE).
  const auto prefill_layers = [&](const std::vector<int32_t>& all, const auto& see) {
    std::vector<std::vector<double>> x;
    for (const int32_t token : all) x.push_back(embed(token));
    for (uint32_t l = 0; l < n_kept(); ++l) {
      std::vector<double> k, v;
      for (const auto& row : x) project_kv(l, row, k, v);
      see(l, x, k, v);
      const std::vector<double> rotated = rotate_rows(l, k);
      for (size_t i = 0; i < x.size(); ++i) attend_and_feed(l, i, all[i], rotated, v, x[i]);
    }
  };
  double n_attending = 0;
  for (uint32_t l = 0; l < n_kept(); ++l) n_attending += config_.mixer.has(l) ? 0 : 1;
  std::vector<double> outside(n, 1.0), inside(n, 0.0);
  std::vector<int32_t> first;  // that prompts begin with
  if (!prefix.empty()) first.push_back(prefix[0]);
  if (prefix.empty() && bos_ >= 0) first.push_back(bos_);
  const size_t room = context_ - n;
  first.resize(std::min(first.size(), room));
  const size_t n_beginning = std::min({n, size_t{64}, room - first.size()});
  const size_t n_context = first.size() + n_beginning;
  using Rows = std::vector<std::vector<double>>;
  const uint32_t layer = dependent_layer();
  std::vector<double> k_first, v_first;
  prefill_layers(first, [&](uint32_t l, const Rows&, const std::vector<double>& k,
                            const std::vector<double>& v) {
    if (l == layer) k_first = k, v_first = v;
  });

  std::vector<int32_t> all = prefix;
  all.insert(all.end(), tokens.begin(), tokens.end());
  prefill_layers(all, [&](uint32_t l, const Rows& x, const std::vector<double>& k,
                          const std::vector<double>& v) {
    const size_t before = prefix.size();
    const std::vector<double> rotated = rotate_rows(l, k);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<double> p = attention(l, before + i, rotated, v, x[before + i]);
      for (size_t j = before; j < p.size(); ++j) {
        inside[j - before] += p[j] / static_cast<double>(n - (j - before)) / n_attending;
      }
    }
    if (l != layer || n_context == 0) return;
    // The same rows after the first token and their own beginning instead of the prefix.
    const auto after_it = [&](std::vector<double> rows, const std::vector<double>& own) {
      const auto row = static_cast<int64_t>(own.size() / x.size());
      const auto begin = own.begin() + static_cast<int64_t>(before) * row;
      rows.insert(rows.end(), begin, begin + static_cast<int64_t>(n_beginning) * row);
      rows.insert(rows.end(), begin, own.end());
      return rows;
    };
    const std::vector<double> turned = rotate_rows(l, after_it(k_first, k));
    const std::vector<double> values = after_it(v_first, v);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<double> p = attention(l, n_context + i, turned, values, x[before + i]);
      outside[i] = 0;
      for (size_t j = 0; j < n_context; ++j) outside[i] += p[j];
    }
  });
  return {outside, inside};
}

std::vector<double> ReferenceModel::logits(const std::vector<double>& x) const {
  std::vector<double> out = multiply(output_, norm(joined(x), output_norm_));
  for (double& l : out) l *= static_cast<double>(config_.logit_scale);
  const auto cap = static_cast<double>(config_.logit_softcap);
  if (cap != 0) {
    for (double& l : out) l = cap * std::tanh(l / cap);
  }
  return out;
}

ReferencePrefill ReferenceModel::prefill(const std::vector<int32_t>& tokens) const {
  ReferencePrefill out;
  out.kv.n_rows = tokens.size();
  std::vector<std::vector<double>> x;
  for (const int32_t token : tokens) x.push_back(embed(token));
  for (uint32_t l = 0; l < n_kept(); ++l) {
    std::vector<double> k, v;
    for (const auto& row : x) project_kv(l, row, k, v);
    const std::vector<double> rotated = rotate_rows(l, k);
    for (size_t i = 0; i < x.size(); ++i) attend_and_feed(l, i, tokens[i], rotated, v, x[i]);
    out.kv.k.push_back(std::move(k));
    out.kv.v.push_back(std::move(v));
  }
  for (size_t i = 0; i < x.size(); ++i) finish(i, tokens[i], out.kv, x[i]);
  for (const auto& row : x) {
    out.logits.push_back(logits(row));
    out.hidden.push_back(norm(joined(row), output_norm_));
  }
  return out;
}

ReferenceKv ReferenceModel::chunk(const std::vector<int32_t>& tokens,
                                  const std::vector<int32_t>& prefix, DType dtype) const {
  std::vector<int32_t> all(prefix);
  all.insert(all.end(), tokens.begin(), tokens.end());
  ReferenceKv kv = prefill(all).kv;
  kv.n_rows = tokens.size();
  for (auto* planes : {&kv.k, &kv.v}) {
    for (uint32_t l = 0; l < n_kept(); ++l) {
      std::vector<double>& plane = (*planes)[l];
      plane.erase(plane.begin(),
                  plane.begin() + static_cast<int64_t>(prefix.size() * plane_dim(l)));
      for (double& e : plane) e = round_to(e, dtype);
    }
  }
  return kv;
}

}  // namespace blend::test
