// The logits of full prefill at the last rows of a text: what a model would have gone on with at
// each of them.
#pragma once

#include <functional>
#include <span>

#include "engine/model.h"

namespace blend {

// Prefills `tokens` in full, which fit the model's context, and calls `fn` with the logits
// [n_vocab] of each row from `first` on, in order. Keeps the K and V of one layer at a time.
// `watch` hears of layers. An error of `fn` ends it. NUMERIC, OUT_OF_MEMORY, CANCELLED, CALLBACK.
using RowLogitsFn = std::function<Status(uint32_t row, std::span<const float> logits)>;
Status full_logits(const Model& model, std::span<const int32_t> tokens, uint32_t first,
                   const RowLogitsFn& fn, const Watch& watch);

}  // namespace blend
