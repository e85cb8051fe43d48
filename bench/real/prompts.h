// Time to first token of prompts of one shape: by full prefill, by default, by plain reuse, and the
// first time, when nothing is stored.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/real/bed.h"

namespace blend::bench {

// llama_bench: the program of that name, or empty.
nlohmann::json measure_prompt(const RealBed& bed, const PromptShape& shape,
                              const std::string& llama_bench, const std::string& model);
// Tokens of chunks that are stored a second, beside those of one long prompt.
nlohmann::json measure_precompute(const RealBed& bed, const PromptShape& shape);
// A fuse of very many chunks, by what is done for each.
nlohmann::json measure_many(const RealBed& bed, const PromptShape& shape);

}  // namespace blend::bench
