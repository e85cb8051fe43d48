// Tokens a second after contexts of several lengths.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/real/bed.h"

namespace blend::bench {

nlohmann::json measure_decoding(const RealBed& bed, size_t context, uint32_t n_tokens,
                                const std::string& llama_bench, const std::string& model);

}  // namespace blend::bench
