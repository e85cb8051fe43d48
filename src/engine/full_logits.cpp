#include "engine/full_logits.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/forward.h"

namespace blend {
namespace {

// Rows whose logits are computed together: bounds the scratch where a vocabulary is large.
constexpr uint32_t kRowsAtOnce = 8;

}  // namespace

Status full_logits(const Model& model, std::span<const int32_t> tokens, uint32_t first,
                   const RowLogitsFn& fn, const Watch& watch) {
  const auto rows = static_cast<uint32_t>(tokens.size());
  if (first >= rows) return Status::ok();
  Backend& b = model.backend();
  const ModelConfig& c = model.config();
  const uint32_t n_last = rows - first;
  BLEND_ASSIGN(const auto forward, Forward::create(model, rows, std::min(n_last, kRowsAtOnce)));
  BLEND_ASSIGN(const auto ropes, model.ropes(rows));
  BLEND_ASSIGN(const auto cache, b.make_kv_cache(c.one_of_each(), rows));
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), 0u);
  Tensor x = forward->x(rows);
  BLEND_RETURN_IF_ERROR(forward->embed(tokens.data(), x));
  for (uint32_t layer = 0; layer < c.n_kept(); ++layer) {
    BLEND_RETURN_IF_ERROR(watch.report(layer, c.n_kept()));
    const Tensor kv = forward->kv(layer, rows);
    const uint32_t stage = c.kind_of(layer);
    BLEND_RETURN_IF_ERROR(forward->compute_kv(layer, x, kv, watch));
    BLEND_RETURN_IF_ERROR(b.write_kv(*cache, stage, ropes->keys(layer), kv, pos.data()));
    const uint32_t* row_pos = pos.data();
    if (layer + 1 == c.n_kept()) {  // the others' output is not read
      x = x.slice(first, n_last);
      row_pos += first;
    }
    BLEND_RETURN_IF_ERROR(
        forward->finish_layer(layer, *cache, stage, *ropes, x, row_pos, watch, Forward::MassOut{}));
  }
  BLEND_RETURN_IF_ERROR(forward->finish_sharing(*cache, Forward::Holds::one_of_each, *ropes, x,
                                                pos.data() + first, watch));
  std::vector<float> logits(c.n_vocab);
  for (uint32_t at = 0; at < n_last; at += kRowsAtOnce) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const uint32_t n = std::min(kRowsAtOnce, n_last - at);
    BLEND_RETURN_IF_ERROR(forward->project_logits(x.slice(at, n)));
    for (uint32_t i = 0; i < n; ++i) {
      BLEND_RETURN_IF_ERROR(forward->read_logits(logits.data(), i));
      BLEND_RETURN_IF_ERROR(fn(first + at + i, logits));
    }
  }
  return Status::ok();
}

}  // namespace blend
