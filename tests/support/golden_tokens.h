// The golden files of tests/conformance/tokenizers: small tokenizers of every kind and the ids that
// Hugging Face `tokenizers` gives with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace blend::test {

struct GoldenCase {
  std::string text;
  std::vector<int32_t> special;  // ids with special tokens recognised
  std::vector<int32_t> plain;    // and without
  std::string decoded;           // text of `special` by the `tokenizers` library
};

struct GoldenTokenizer {
  std::string json;  // tokenizer.json
  std::vector<GoldenCase> cases;
};

// `kind` as in the files' names. Throws std::runtime_error where a file is missing or broken.
GoldenTokenizer golden_tokenizer(const std::string& kind);

// The keys that a GGUF file of that byte-level tokenizer would have.
struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;  // 1 normal, 3 control, 4 user-defined
  std::vector<std::string> merges;
};
GgufVocabulary gguf_vocabulary(const GoldenTokenizer& golden);

}  // namespace blend::test
