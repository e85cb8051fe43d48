// The random models as Hugging Face directories: the same weights as the GGUF of the same spec, in
// the names, the order of rows and the config.json that transformers reads.
#pragma once

#include <string>

#include "support/random_model.h"

namespace blend::test {

// Makes the directory `path` and fills it: config.json, model.safetensors, tokenizer.json.
// Quantized weights are written as the F32 numbers they stand for, which such a directory has no
// blocks for. Streams; throws std::runtime_error when that fails. Returns `path`.
std::string write_random_hf(const RandomModelSpec& spec, const std::string& path);

}  // namespace blend::test
