// Embeddings: one vector for each text, made of the hidden states that the final norm of a model
// gives the text's rows.
//
// Texts are short, and a product of few rows does not use the CPU as well as one of many. So texts
// go through the layers together, as chunks do (chunk_prefill.h): every product is of the rows of
// all, and in each layer they take turns in the slots of a cache of one layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/model.h"

namespace blend {

struct EmbedOptions {
  Pooling pooling = Pooling::unsaid;  // unsaid: as the model's file says
  uint32_t n_dimensions = 0;          // that are kept, the first ones; 0: all
  bool normalize = true;              // to a Euclidean length of 1
};

// The width of the vectors. INVALID_ARGUMENT: more dimensions than the model has; UNSUPPORTED: the
// file says a pooling that is not known.
Result<uint32_t> embedding_width(const Model& model, const EmbedOptions& options);

// out: [n_texts, width]; undefined after an error. `next` gives the tokens of each text, in order,
// while others are computed: at least one and at most the model's context. Memory does not depend
// on n_texts. `watch` hears of texts. A vector may differ in rounding with the texts that it is
// computed with: a product of few rows may have another order of sums.
// Errors: those of `next`; NUMERIC names the text; OUT_OF_MEMORY, CANCELLED, CALLBACK.
using NextTokens = std::function<Result<std::vector<int32_t>>(size_t text)>;
Status embed_texts(const Model& model, size_t n_texts, const NextTokens& next,
                   const EmbedOptions& options, float* out, const Watch& watch);

}  // namespace blend
