// A GGUF file as a ModelSource.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/gguf_reader.h"
#include "model/model_source.h"

namespace blend {

// A source over `file`, which must not change while `owner` lives; the source keeps a share of
// it. FORMAT, UNSUPPORTED and OUT_OF_MEMORY as blend_model_open.
Result<std::unique_ptr<ModelSource>> open_llama_gguf(std::span<const std::byte> file,
                                                     std::shared_ptr<const void> owner);

// Frequencies are divided by scaling factors; smaller ones would make angles overflow.
inline constexpr double kMinRopeFactor = 1e-6;

// RoPE's tensors: its factors of Llama 3.1, and of LongRoPE for short and for long prompts.
inline constexpr const char* kRopeFreqs = "rope_freqs.weight";
inline constexpr const char* kRopeShort = "rope_factors_short.weight";
inline constexpr const char* kRopeLong = "rope_factors_long.weight";

// Its steps, one in each file. Hyperparameters; n_vocab is the tokenizer's and weight_dtype the
// tensors', so they are left alone here.
Result<ModelConfig> read_gguf_config(const GgufReader& gguf);
// Layers of `block_count` at the end that predict further tokens (multi-token prediction). libblend
// does not run them.
Result<uint32_t> gguf_layers_ahead(const GgufReader& gguf, const std::string& architecture);
// The [n] values of an F32 tensor whose length a key states.
Result<std::vector<float>> read_f32_vector(const GgufReader& gguf, const GgufTensor& t, uint64_t n,
                                           const std::string& belongs_to);

}  // namespace blend
