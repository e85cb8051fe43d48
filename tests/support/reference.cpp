#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "model/tensor_table.h"

namespace blend::test {
namespace {

std::vector<double> to_double(const TensorView& t) {
  std::vector<float> values(static_cast<size_t>(t.elements()));
  decode_weights(t.dtype, t.blocks, t.data, values.size(), values.data());
  return {values.begin(), values.end()};
}

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
  using R = TensorRole;
  for (uint32_t l = 0; l < config_.n_layers; ++l) {
    const bool pre = config_.pre_norms;
    Layer w{pre ? norm_of(R::attn_norm, l) : Matrix(),
            where(R::attn_q, l),
            where(R::attn_k, l),
            where(R::attn_v, l),
            where(R::attn_out, l),
            pre ? norm_of(R::ffn_norm, l) : Matrix(),
            common(R::ffn_gate, R::shared_gate, l),
            common(R::ffn_up, R::shared_up, l),
            common(R::ffn_down, R::shared_down, l),
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            where(R::conv_b, l),
            where(R::conv_c, l),
            where(R::conv_x, l),
            where(R::conv_taps, l),
            where(R::conv_out, l)};
    for (uint32_t e = 0; config_.has_experts(l) && e < config_.experts.count; ++e) {
      w.expert_gate.push_back(to_double(source.expert_tensor(R::expert_gate, l, e)));
      w.expert_up.push_back(to_double(source.expert_tensor(R::expert_up, l, e)));
      w.expert_down.push_back(to_double(source.expert_tensor(R::expert_down, l, e)));
    }
    if (config_.has_experts(l)) w.router = get(R::router, l);
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
    if (config_.qkv_bias && !config_.conv.has(l)) {
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
      w.k_norm = norm_of(R::attn_k_norm, l);
    }
    if (has_tensor(R::attn_sinks, config_, l)) w.sinks = get(R::attn_sinks, l);
    if (config_.post_norms) {
      w.attn_post_norm = norm_of(R::attn_post_norm, l);
      w.ffn_post_norm = norm_of(R::ffn_post_norm, l);
    }
    layers_.push_back(std::move(w));
  }
}

std::vector<double> ReferenceModel::embed(int32_t token) const {
  const auto* row = &embedding_[static_cast<size_t>(token) * config_.d_model];
  std::vector<double> x(row, row + config_.d_model);
  for (double& e : x) e *= static_cast<double>(config_.embedding_scale);
  return x;
}

std::vector<double> ReferenceModel::norm(const std::vector<double>& x, const Matrix& weight) const {
  if (weight.empty()) return x;
  double sum = 0;
  for (const double e : x) sum += e * e;
  const double scale =
      1.0 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(config_.rms_eps));
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
    double* head = row + static_cast<size_t>(h) * config_.head_dim;
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
  if (config_.conv.has(layer)) return out;
  for (size_t row = 0; row < k.size() / kv_dim(); ++row) {
    rotate(layer, &out[row * kv_dim()], config_.n_kv_heads, row);
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
  const std::vector<double> normed = norm(x, w.attn_norm);
  if (config_.conv.has(layer)) {
    std::vector<double> u = multiply(w.conv_b, normed);
    const std::vector<double> factor = multiply(w.conv_x, normed);
    for (size_t i = 0; i < u.size(); ++i) u[i] *= factor[i];
    const auto half = u.begin() + static_cast<int64_t>(u.size() / 2);
    k.insert(k.end(), u.begin(), half);
    v.insert(v.end(), half, u.end());
    return;
  }
  // Where K is normalised after RoPE, its weights come with the rotation.
  const bool late = config_.qk_norm == QkNorm::after_rope;
  const std::vector<double> row_k =
      project(w.k, w.k_bias, late ? Matrix(w.k_norm.size(), 1.0) : w.k_norm, normed);
  const std::vector<double> row_v = project(w.v, w.v_bias, {}, normed);
  k.insert(k.end(), row_k.begin(), row_k.end());
  v.insert(v.end(), row_v.begin(), row_v.end());
}

std::vector<double> ReferenceModel::query(uint32_t layer, size_t pos,
                                          const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  const bool late = config_.qk_norm == QkNorm::after_rope;
  std::vector<double> q = project(w.q, w.q_bias, late ? Matrix() : w.q_norm, norm(x, w.attn_norm));
  rotate(layer, q.data(), config_.n_heads, pos);
  if (late) norm_heads(q, w.q_norm);
  for (double& e : q) e *= growth(layer, pos);
  return q;
}

std::vector<double> ReferenceModel::probabilities(uint32_t layer, size_t pos, size_t head,
                                                  const std::vector<double>& q,
                                                  const std::vector<double>& rotated_k,
                                                  const ReferenceTempering& tempering) const {
  const size_t dim = config_.head_dim, window = config_.attention(layer).window;
  const double scale = config_.attn_scale != 0 ? static_cast<double>(config_.attn_scale)
                                               : 1 / std::sqrt(static_cast<double>(dim));
  std::vector<double> p(pos + 1, -INFINITY);
  for (size_t j = 0; j <= pos; ++j) {
    if (window != 0 && j + window <= pos) continue;
    const double* k = &rotated_k[j * kv_dim() + head / config_.group() * dim];
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

void ReferenceModel::add(std::vector<double>& x, std::vector<double> y, const Matrix& post) const {
  if (!post.empty()) y = norm(y, post);
  for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<double>(config_.residual_scale) * y[i];
}

std::vector<double> ReferenceModel::convolve(uint32_t layer, size_t pos,
                                             const std::vector<double>& k,
                                             const std::vector<double>& v,
                                             const std::vector<double>& x) const {
  const Layer& w = layers_[layer];
  const size_t half = x.size() / 2, n_taps = config_.conv.taps;
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

uint32_t ReferenceModel::dependent_layer() const {
  uint32_t n = 0;
  for (uint32_t l = 0; l < config_.n_layers; ++l) {
    if (config_.conv.has(l)) continue;
    if (n++ == 1) return l;
  }
  return 0;
}

void ReferenceModel::attend_and_feed(uint32_t layer, size_t pos,
                                     const std::vector<double>& rotated_k,
                                     const std::vector<double>& v, std::vector<double>& x,
                                     const ReferenceTempering& tempering) const {
  const Layer& w = layers_[layer];
  const bool convolves = config_.conv.has(layer);
  const std::vector<double> q = convolves ? x : query(layer, pos, x);
  const size_t dim = config_.head_dim;
  std::vector<double> mixed(q.size(), 0.0);
  for (size_t h = 0; h < config_.n_heads && !convolves; ++h) {
    const std::vector<double> p = probabilities(layer, pos, h, q, rotated_k, tempering);
    for (size_t j = 0; j <= pos; ++j) {
      if (p[j] == 0) continue;
      for (size_t d = 0; d < dim; ++d) {
        mixed[h * dim + d] += p[j] * v[j * kv_dim() + h / config_.group() * dim + d];
      }
    }
  }
  add(x, convolves ? convolve(layer, pos, rotated_k, v, x) : project(w.out, w.out_bias, {}, mixed),
      w.attn_post_norm);

  const std::vector<double> normed = norm(x, w.ffn_norm);
  std::vector<double> fed(x.size(), 0.0);
  if (!w.gate.empty()) {
    fed = feed(w.gate, w.gate_bias, w.up, w.up_bias, w.down, w.down_bias, normed);
  }
  if (config_.has_experts(layer)) {
    const std::vector<double> more = feed_experts(w, normed);
    for (size_t i = 0; i < fed.size(); ++i) fed[i] += more[i];
  }
  add(x, fed, w.ffn_post_norm);
}

std::vector<double> ReferenceModel::feed(const Matrix& w_gate, const Matrix& gate_bias,
                                         const Matrix& w_up, const Matrix& up_bias,
                                         const Matrix& w_down, const Matrix& down_bias,
                                         const std::vector<double>& x) const {
  std::vector<double> gate = project(w_gate, gate_bias, {}, x);
  const std::vector<double> up = project(w_up, up_bias, {}, x);
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    if (config_.activation == Activation::clamped_silu) {
      const double bounded = std::min(g, 7.0), other = std::clamp(up[i], -7.0, 7.0);
      gate[i] = bounded / (1.0 + std::exp(-1.702 * bounded)) * (other + 1);
      continue;
    }
    gate[i] = config_.activation == Activation::silu
                  ? g / (1.0 + std::exp(-g))
                  : 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
    gate[i] *= up[i];
  }
  return project(w_down, down_bias, {}, gate);
}

std::vector<double> ReferenceModel::feed_experts(const Layer& w,
                                                 const std::vector<double>& x) const {
  const Experts& e = config_.experts;
  std::vector<double> score = project(w.router, w.router_bias, {}, x);
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
      groups.emplace_back(of[0] + of[1], g);
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
  std::vector<double> out(x.size(), 0.0);
  for (const size_t i : order) {
    const double weight = score[i] * static_cast<double>(e.scale) / (e.normalised ? sum : 1.0);
    const std::vector<double> y =
        feed(w.expert_gate[i], w.expert_gate_bias[i], w.expert_up[i], w.expert_up_bias[i],
             w.expert_down[i], w.expert_down_bias[i], x);
    for (size_t c = 0; c < out.size(); ++c) out[c] += weight * y[c];
  }
  return out;
}

std::vector<double> ReferenceModel::attention(uint32_t layer, size_t pos,
                                              const std::vector<double>& rotated_k,
                                              const std::vector<double>& x) const {
  std::vector<double> mean(pos + 1, 0.0);
  if (config_.conv.has(layer)) return mean;
  const std::vector<double> q = query(layer, pos, x);
  for (size_t h = 0; h < config_.n_heads; ++h) {
    const std::vector<double> p = probabilities(layer, pos, h, q, rotated_k, {});
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
    for (uint32_t l = 0; l < config_.n_layers; ++l) {
      std::vector<double> k, v;
      for (const auto& row : x) project_kv(l, row, k, v);
      see(l, x, k);
      const std::vector<double> rotated = rotate_rows(l, k);
      for (size_t i = 0; i < x.size(); ++i) attend_and_feed(l, i, rotated, v, x[i]);
    }
  };
  double n_attending = 0;
  for (uint32_t l = 0; l < config_.n_layers; ++l) n_attending += config_.conv.has(l) ? 0 : 1;
  std::vector<double> outside(n, 1.0), inside(n, 0.0);
  std::vector<int32_t> context;
  if (bos_ >= 0) context.push_back(bos_);
  context.insert(context.end(), tokens.begin(),
                 tokens.begin() + static_cast<int64_t>(std::min<size_t>(n, 64)));
  context.resize(std::min(context.size(), context_ - n));
  using Rows = std::vector<std::vector<double>>;
  const uint32_t layer = dependent_layer();
  std::vector<double> k_before;
  prefill_layers(context, [&](uint32_t l, const Rows&, const std::vector<double>& k) {
    if (l == layer) k_before = k;
  });

  std::vector<int32_t> all = prefix;
  all.insert(all.end(), tokens.begin(), tokens.end());
  prefill_layers(all, [&](uint32_t l, const Rows& x, const std::vector<double>& k) {
    const size_t before = prefix.size();
    const std::vector<double> rotated = rotate_rows(l, k);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<double> p = attention(l, before + i, rotated, x[before + i]);
      for (size_t j = before; j < p.size(); ++j) {
        inside[j - before] += p[j] / static_cast<double>(n - (j - before)) / n_attending;
      }
    }
    if (l != layer || context.empty()) return;
    // The same rows after the context instead of the prefix.
    std::vector<double> joined = k_before;
    joined.insert(joined.end(), k.begin() + static_cast<int64_t>(before * k.size() / x.size()),
                  k.end());
    const std::vector<double> turned = rotate_rows(l, joined);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<double> p = attention(l, context.size() + i, turned, x[before + i]);
      outside[i] = 0;
      for (size_t j = 0; j < context.size(); ++j) outside[i] += p[j];
    }
  });
  return {outside, inside};
}

std::vector<double> ReferenceModel::logits(const std::vector<double>& x) const {
  std::vector<double> out = multiply(output_, norm(x, output_norm_));
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
  for (uint32_t l = 0; l < config_.n_layers; ++l) {
    std::vector<double> k, v;
    for (const auto& row : x) project_kv(l, row, k, v);
    const std::vector<double> rotated = rotate_rows(l, k);
    for (size_t i = 0; i < x.size(); ++i) attend_and_feed(l, i, rotated, v, x[i]);
    out.kv.k.push_back(std::move(k));
    out.kv.v.push_back(std::move(v));
  }
  for (const auto& row : x) {
    out.logits.push_back(logits(row));
    out.hidden.push_back(norm(row, output_norm_));
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
    for (uint32_t l = 0; l < config_.n_layers; ++l) {
      std::vector<double>& plane = (*planes)[l];
      plane.erase(plane.begin(),
                  plane.begin() + static_cast<int64_t>(prefix.size() * plane_dim(l)));
      for (double& e : plane) e = round_to(e, dtype);
    }
  }
  return kv;
}

}  // namespace blend::test
