// A Hugging Face model directory as a ModelSource: config.json, tokenizer.json, safetensors.
#pragma once

#include <memory>
#include <string>

#include "model/model_source.h"

namespace blend {

// True if `path` is a directory.
bool is_directory(const std::string& path);

// FORMAT, UNSUPPORTED, NOT_FOUND, IO and OUT_OF_MEMORY name the file and what in it is wrong.
Result<std::unique_ptr<ModelSource>> open_hf_directory(const std::string& path);

}  // namespace blend
