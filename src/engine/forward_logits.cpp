// What is read after the last layer: hidden states and logits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/forward.h"

namespace blend {

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
