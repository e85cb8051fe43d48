// Rows of several streams, and Laurel blocks (ModelConfig).
#include <cmath>

#include "engine/forward.h"

namespace blend {

StreamRows Forward::streams(Tensor xb) {
  other_rows_.clear();
  for (size_t i = 0; i < others_.size(); ++i) other_rows_.push_back(other_stream(i, xb));
  return {xb, other_rows_};
}

Status Forward::copy(Tensor from, Tensor to) {
  return model_.backend().gather(from, in_order_.data(), to);
}

Status Forward::split(Tensor x) {
  for (int64_t first = 0; first < x.rows; first += block_) {
    const Tensor xb = x.slice(first, std::min<int64_t>(block_, x.rows - first));
    for (size_t i = 0; i < others_.size(); ++i) {
      const Tensor other = other_stream(i, xb);
      BLEND_RETURN_IF_ERROR(matmul(model_.stream_in(i), xb, other, false));
      BLEND_RETURN_IF_ERROR(model_.backend().streams()->match(xb, other));
    }
    BLEND_RETURN_IF_ERROR(predict(0, xb));
  }
  return Status::ok();
}

Result<Tensor> Forward::score_streams(uint32_t layer, Tensor xb) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(xb.rows);
  const Tensor normed = operand(*normed_, rows, c.d_model);
  const Tensor scores = view(*stream_scores_, rows, c.n_streams);
  normed_of_ = {};
  BLEND_RETURN_IF_ERROR(b.rms_norm(xb, *w.stream_norm, c.rms_eps, normed));
  BLEND_RETURN_IF_ERROR(matmul(*w.stream_router, normed, scores, false));
  BLEND_RETURN_IF_ERROR(b.scale(scores, 1 / static_cast<float>(c.d_model)));
  return scores;
}

Status Forward::predict(uint32_t layer, Tensor xb) {
  BLEND_ASSIGN(const Tensor scores, score_streams(layer, xb));
  return model_.backend().streams()->predict(*model_.layer(layer).stream_predict, scores,
                                             streams(xb));
}

Status Forward::correct(uint32_t layer, Tensor xb) {
  const Tensor before = view(*before_, static_cast<uint32_t>(xb.rows), model_.config().d_model);
  BLEND_ASSIGN(const Tensor scores, score_streams(layer, xb));
  return model_.backend().streams()->correct(*model_.layer(layer).stream_correct, scores, before,
                                             streams(xb));
}

Result<Tensor> Forward::joined(Tensor x) {
  if (others_.empty()) return x;
  Backend& b = model_.backend();
  const ModelConfig& c = model_.config();
  const auto rows = static_cast<uint32_t>(x.rows);
  const Tensor sum = view(*added_, rows, c.d_model), one = view(*before_, rows, c.d_model);
  BLEND_RETURN_IF_ERROR(copy(x, sum));
  for (size_t i = 0; i < others_.size(); ++i) {
    BLEND_RETURN_IF_ERROR(matmul(model_.stream_out(i), other_stream(i, x), one, false));
    BLEND_RETURN_IF_ERROR(b.streams()->match(x, one));
    BLEND_RETURN_IF_ERROR(b.add(sum, one));
  }
  BLEND_RETURN_IF_ERROR(b.scale(sum, 1 / static_cast<float>(c.n_streams)));
  return sum;
}

Status Forward::add_laurel(uint32_t layer, Tensor normed, Tensor xb) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(layer);
  Backend& b = model_.backend();
  const auto rows = static_cast<uint32_t>(xb.rows);
  const Tensor low = operand(*laurel_, rows, c.laurel_rank), added = view(*added_, rows, c.d_model);
  BLEND_RETURN_IF_ERROR(matmul(*w.laurel_in, normed, low, false));
  BLEND_RETURN_IF_ERROR(matmul(*w.laurel_out, low, added, false));
  BLEND_RETURN_IF_ERROR(b.rms_norm(added, *w.laurel_norm, c.rms_eps, added));
  BLEND_RETURN_IF_ERROR(b.add(xb, normed));
  BLEND_RETURN_IF_ERROR(b.add(xb, added));
  return b.scale(xb, std::sqrt(0.5f));
}

}  // namespace blend
