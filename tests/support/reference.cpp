#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace blend::test {
namespace {

std::vector<double> to_double(const TensorView& t) {
  std::vector<double> out(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    if (t.dtype == DType::f32) {
      float f = 0;
      std::memcpy(&f, t.data + 4 * i, 4);
      out[i] = f;
    } else {
      uint16_t h = 0;
      std::memcpy(&h, t.data + 2 * i, 2);
      out[i] = t.dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
  }
  return out;
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
  const auto get = [&](TensorRole role, uint32_t layer) {
    return to_double(source.tensor(role, layer));
  };
  embedding_ = get(TensorRole::embedding, 0);
  output_norm_ = get(TensorRole::output_norm, 0);
  output_ = get(TensorRole::output, 0);
  for (uint32_t l = 0; l < config_.n_layers; ++l) {
    layers_.push_back(
        {get(TensorRole::attn_norm, l), get(TensorRole::attn_q, l), get(TensorRole::attn_k, l),
         get(TensorRole::attn_v, l), get(TensorRole::attn_out, l), get(TensorRole::ffn_norm, l),
         get(TensorRole::ffn_gate, l), get(TensorRole::ffn_up, l), get(TensorRole::ffn_down, l)});
  }
}

std::vector<double> ReferenceModel::embed(int32_t token) const {
  const auto* row = &embedding_[static_cast<size_t>(token) * config_.d_model];
  return {row, row + config_.d_model};
}

std::vector<double> ReferenceModel::norm(const std::vector<double>& x, const Matrix& weight) const {
  double sum = 0;
  for (const double e : x) sum += e * e;
  const double scale =
      1.0 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(config_.rms_eps));
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
  return out;
}

void ReferenceModel::rotate(double* row, uint32_t n_heads, size_t pos) const {
  const RopeParams& rope = config_.rope;
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
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }
}

std::vector<double> ReferenceModel::rotate_rows(const std::vector<double>& k) const {
  std::vector<double> out(k);
  for (size_t row = 0; row < k.size() / kv_dim(); ++row) {
    rotate(&out[row * kv_dim()], config_.n_kv_heads, row);
  }
  return out;
}

void ReferenceModel::project_kv(uint32_t layer, const std::vector<double>& x,
                                std::vector<double>& k, std::vector<double>& v) const {
  const std::vector<double> normed = norm(x, layers_[layer].attn_norm);
  const std::vector<double> row_k = multiply(layers_[layer].k, normed);
  const std::vector<double> row_v = multiply(layers_[layer].v, normed);
  k.insert(k.end(), row_k.begin(), row_k.end());
  v.insert(v.end(), row_v.begin(), row_v.end());
}

void ReferenceModel::attend_and_feed(uint32_t layer, size_t pos,
                                     const std::vector<double>& rotated_k,
                                     const std::vector<double>& v, std::vector<double>& x,
                                     const ReferenceTempering& tempering) const {
  const Layer& w = layers_[layer];
  std::vector<double> q = multiply(w.q, norm(x, w.attn_norm));
  rotate(q.data(), config_.n_heads, pos);

  const size_t dim = config_.head_dim;
  std::vector<double> mixed(q.size(), 0.0);
  std::vector<double> score(pos + 1);
  for (size_t h = 0; h < config_.n_heads; ++h) {
    const size_t kv_head = h / config_.group();
    for (size_t j = 0; j <= pos; ++j) {
      double dot = 0;
      for (size_t d = 0; d < dim; ++d) {
        dot += q[h * dim + d] * rotated_k[j * kv_dim() + kv_head * dim + d];
      }
      score[j] = dot / std::sqrt(static_cast<double>(dim));
    }
    double tempered = 0;  // sum of the tempered keys' exponentials
    for (size_t j = 0; j <= pos; ++j) {
      if (tempering.of(j)) tempered += std::exp(score[j] /= tempering.temperature);
    }
    for (size_t j = 0; j <= pos && tempered > 0; ++j) {
      if (tempering.of(j)) score[j] += (tempering.scale - 1) * std::log(tempered);
    }
    const double top = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (double& s : score) sum += s = std::exp(s - top);
    for (size_t j = 0; j <= pos; ++j) {
      for (size_t d = 0; d < dim; ++d) {
        mixed[h * dim + d] += score[j] / sum * v[j * kv_dim() + kv_head * dim + d];
      }
    }
  }
  const std::vector<double> attended = multiply(w.out, mixed);
  for (size_t i = 0; i < x.size(); ++i) x[i] += attended[i];

  const std::vector<double> normed = norm(x, w.ffn_norm);
  std::vector<double> gate = multiply(w.gate, normed);
  const std::vector<double> up = multiply(w.up, normed);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
  const std::vector<double> fed = multiply(w.down, gate);
  for (size_t i = 0; i < x.size(); ++i) x[i] += fed[i];
}

std::vector<double> ReferenceModel::attention(uint32_t layer, size_t pos,
                                              const std::vector<double>& rotated_k,
                                              const std::vector<double>& x) const {
  std::vector<double> q = multiply(layers_[layer].q, norm(x, layers_[layer].attn_norm));
  rotate(q.data(), config_.n_heads, pos);
  const size_t dim = config_.head_dim;
  std::vector<double> mean(pos + 1, 0.0);
  for (size_t h = 0; h < config_.n_heads; ++h) {
    std::vector<double> p(pos + 1, 0.0);
    for (size_t j = 0; j <= pos; ++j) {
      const double* k = &rotated_k[j * kv_dim() + h / config_.group() * dim];
      for (size_t d = 0; d < dim; ++d) p[j] += q[h * dim + d] * k[d];
      p[j] /= std::sqrt(static_cast<double>(dim));
    }
    p = log_probabilities(p);
    for (size_t j = 0; j <= pos; ++j) mean[j] += std::exp(p[j]) / config_.n_heads;
  }
  return mean;
}

ReferenceModel::Impact ReferenceModel::context_impact(const std::vector<int32_t>& tokens,
                                                      const std::vector<int32_t>& prefix) const {
  const size_t n = tokens.size();
  // Attention of every row of the last n, layer by layer, up to `n_layers`.
  const auto attend = [&](std::vector<int32_t> all, uint32_t n_layers, const auto& see) {
    all.insert(all.end(), tokens.begin(), tokens.end());
    const size_t before = all.size() - n;
    std::vector<std::vector<double>> x;
    for (const int32_t token : all) x.push_back(embed(token));
    for (uint32_t l = 0; l < n_layers; ++l) {
      std::vector<double> k, v;
      for (const auto& row : x) project_kv(l, row, k, v);
      const std::vector<double> rotated = rotate_rows(k);
      for (size_t i = 0; i < n; ++i)
        see(l, i, before, attention(l, before + i, rotated, x[before + i]));
      for (size_t i = 0; i < x.size(); ++i) attend_and_feed(l, i, rotated, v, x[i]);
    }
  };
  std::vector<double> outside(n, 1.0), inside(n, 0.0);
  std::vector<int32_t> context;
  if (bos_ >= 0) context.push_back(bos_);
  context.insert(context.end(), tokens.begin(),
                 tokens.begin() + static_cast<int64_t>(std::min<size_t>(n, 64)));
  context.resize(std::min(context.size(), context_ - n));
  const uint32_t layer = config_.n_layers > 1 ? 1 : 0;
  attend(context, layer + 1,
         [&](uint32_t l, size_t i, size_t before, const std::vector<double>& p) {
           if (l != layer || before == 0) return;
           outside[i] = 0;
           for (size_t j = 0; j < before; ++j) outside[i] += p[j];
         });
  attend(prefix, config_.n_layers,
         [&](uint32_t, size_t, size_t before, const std::vector<double>& p) {
           for (size_t j = before; j < p.size(); ++j) {
             inside[j - before] += p[j] / static_cast<double>(n - (j - before)) / config_.n_layers;
           }
         });
  return {outside, inside};
}

std::vector<double> ReferenceModel::logits(const std::vector<double>& x) const {
  return multiply(output_, norm(x, output_norm_));
}

ReferencePrefill ReferenceModel::prefill(const std::vector<int32_t>& tokens) const {
  ReferencePrefill out;
  out.kv.n_rows = tokens.size();
  std::vector<std::vector<double>> x;
  for (const int32_t token : tokens) x.push_back(embed(token));
  for (uint32_t l = 0; l < config_.n_layers; ++l) {
    std::vector<double> k, v;
    for (const auto& row : x) project_kv(l, row, k, v);
    const std::vector<double> rotated = rotate_rows(k);
    for (size_t i = 0; i < x.size(); ++i) attend_and_feed(l, i, rotated, v, x[i]);
    out.kv.k.push_back(std::move(k));
    out.kv.v.push_back(std::move(v));
  }
  for (const auto& row : x) out.logits.push_back(logits(row));
  return out;
}

ReferenceKv ReferenceModel::chunk(const std::vector<int32_t>& tokens,
                                  const std::vector<int32_t>& prefix, DType dtype) const {
  std::vector<int32_t> all(prefix);
  all.insert(all.end(), tokens.begin(), tokens.end());
  ReferenceKv kv = prefill(all).kv;
  kv.n_rows = tokens.size();
  for (auto* planes : {&kv.k, &kv.v}) {
    for (auto& plane : *planes) {
      plane.erase(plane.begin(), plane.begin() + static_cast<int64_t>(prefix.size() * kv_dim()));
      for (double& e : plane) e = round_to(e, dtype);
    }
  }
  return kv;
}

}  // namespace blend::test
