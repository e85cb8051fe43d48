// Embeddings as OpenAI's API has them.
#pragma once

#include <functional>
#include <string>

#include "answer.h"
#include "budget.h"

namespace blend_cli::serve {

struct EmbeddingAnswer {
  std::string body;  // JSON
  uint64_t n_tokens = 0;
};

// Computes what a request asks for; its memory is charged to `share`. `alive`: whether the client
// is still there. Throws HttpError and blendpp::Error.
EmbeddingAnswer embed(const Engine& engine, const EmbeddingRequest& request,
                      MemoryBudget::Share& share, const std::function<bool()>& alive);

}  // namespace blend_cli::serve
