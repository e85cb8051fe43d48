// The tokenizer of a Hugging Face directory: tokenizer.json, and what tokenizer_config.json,
// config.json and generation_config.json add to it.
#pragma once

#include <memory>
#include <string>

#include "base/json_reader.h"
#include "model/tokenizer.h"

namespace blend {

struct HfTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string chat_template;  // a Jinja template; "" where the directory has none
};

// `config`: the directory's config.json. n_vocab: rows of the embedding; tokens beyond it, which
// the model has no vector for, are left out.
Result<HfTokenizer> open_hf_tokenizer(const std::string& directory, const JsonView& config,
                                      uint32_t n_vocab);

}  // namespace blend
