// BpeTokenizer: text through normalization, pre-tokenization and ranked merges, as Hugging Face
// `tokenizers` does it; also for GGUF vocabularies of model `gpt2`.
//
// The ids are those of `tokenizers` for valid UTF-8. Other text is cut into its valid parts
// and the bytes between them, which become byte tokens, so that decoding returns the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/text_steps.h"

namespace blend {

// How a token's text becomes bytes again.
struct TextDecoder {
  bool byte_level = false;     // the text's characters stand for bytes
  bool byte_fallback = false;  // "<0x41>" is a byte
  std::vector<std::pair<std::string, std::string>> replace;  // in each token's text, in order
  std::string strip;         // one character, which encode put in front of the text
  uint32_t strip_count = 0;  // as many of it are dropped from the text's start
};

struct BpeTokenizerSpec {
  std::vector<std::string> tokens;  // by id, as the file writes them
  BpeSpec bpe;                      // pieces may be fewer than tokens
  std::vector<AddedToken> added;
  std::vector<NormalizeStep> normalize;
  std::vector<SplitStep> split;
  TextDecoder decoder;
  int32_t bos = -1;
  int32_t eos = -1;
  bool add_bos = false;
  std::vector<int32_t> closing;  // after a text that is embedded
  std::vector<int32_t> stop;     // besides eos
};

// Immutable; safe for concurrent use.
class BpeTokenizer final : public Tokenizer {
 public:
  // FORMAT names the inconsistency: an id outside the vocabulary, an added token without a text.
  static Result<std::unique_ptr<BpeTokenizer>> create(BpeTokenizerSpec spec);

  uint32_t n_vocab() const override { return static_cast<uint32_t>(tokens_.size()); }
  int32_t bos() const override { return bos_; }
  int32_t eos() const override { return eos_; }
  bool add_bos() const override { return add_bos_; }
  std::span<const int32_t> closing() const override { return closing_; }
  bool is_stop(int32_t token) const override;
  Result<std::vector<int32_t>> encode_marked(std::string_view text, uint32_t flags,
                                             const TextMarks& marks) const override;
  std::string piece(int32_t token, uint32_t flags) const override;
  Result<std::string> decode(std::span<const int32_t> tokens, uint32_t flags) const override;
  void hash(Sha256Hasher& hasher) const override;

 private:
  // Kind of a token.
  enum class Kind : uint8_t { piece, added, control };
  struct Encoder;

  BpeTokenizer(std::vector<std::string> tokens, BpeSpec bpe)
      : tokens_(std::move(tokens)), bpe_(std::move(bpe)) {}
  Status take_added(std::vector<AddedToken> added);
  Status encode_apart(std::string_view text, std::string_view part, bool begins,
                      const TextMarks& marks, Encoder& encoder) const;
  Status encode_part(std::string_view text, bool begins, Encoder& encoder) const;
  Status encode_normal(std::string_view text, bool begins, Encoder& encoder) const;

  std::vector<std::string> tokens_;
  std::vector<Kind> kinds_;
  Bpe bpe_;
  AddedTokens verbatim_;          // looked for in the unchanged text
  AddedTokens normalized_;        // in the normalized text
  AddedTokens normalized_plain_;  // in the text normalized without prefix
  std::vector<NormalizeStep> normalize_;
  std::vector<SplitStep> split_;
  TextDecoder decoder_;
  int32_t bos_ = -1;
  int32_t eos_ = -1;
  bool add_bos_ = false;
  std::vector<int32_t> closing_;
  std::vector<int32_t> stop_;
};

}  // namespace blend
