// SpmTokenizer: SentencePiece-style BPE with byte fallback (GGUF `tokenizer.ggml.model` = "llama").
//
// Kudo & Richardson 2018; the treatment of spaces, special tokens and missing keys is llama.cpp's,
// so that both give the same ids for the same file. Three differences, all for untrusted input:
// control, unknown and byte tokens are never built by merging (SentencePiece does not either, so
// plain text can never become a control token), invalid UTF-8 becomes one byte token a byte, and a
// score that is NaN counts as the lowest.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "model/tokenizer.h"

namespace blend {

// The numbers are GGUF's `tokenizer.ggml.token_type`; others count as normal for decoding and are
// never produced.
enum class TokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

struct SpmVocab {
  std::vector<std::string> tokens;
  std::vector<float> scores;   // [tokens]
  std::vector<int32_t> types;  // [tokens], TokenType; empty: guessed from the texts
  int32_t bos = -1;            // -1: none
  int32_t eos = -1;
  int32_t unk = -1;
  std::vector<int32_t> stop;  // besides eos
  bool add_bos = true;
  bool closes_with_eos = false;  // a text that is embedded ends with EOS
  bool add_space_prefix = true;
  // Special tokens swallow the white space after them (Phi-3, whose GGUF files have no key for
  // it), except <unk>, <s> and <|endoftext|>.
  bool strips_right = false;
};

// Immutable; safe for concurrent use.
class SpmTokenizer final : public Tokenizer {
 public:
  // FORMAT names the inconsistency: lengths that differ, an id outside the vocabulary.
  static Result<std::unique_ptr<SpmTokenizer>> create(SpmVocab vocab);

  uint32_t n_vocab() const override { return static_cast<uint32_t>(vocab_.tokens.size()); }
  int32_t bos() const override { return vocab_.bos; }
  int32_t eos() const override { return vocab_.eos; }
  bool add_bos() const override { return vocab_.add_bos; }
  std::span<const int32_t> closing() const override {
    return {&vocab_.eos, vocab_.closes_with_eos && vocab_.eos >= 0 ? 1u : 0u};
  }
  bool is_stop(int32_t token) const override;
  Result<std::vector<int32_t>> encode_marked(std::string_view text, uint32_t flags,
                                             const TextMarks& marks) const override;
  std::string piece(int32_t token, uint32_t flags) const override;
  Result<std::string> decode(std::span<const int32_t> tokens, uint32_t flags) const override;
  void hash(Sha256Hasher& hasher) const override;

 private:
  explicit SpmTokenizer(SpmVocab vocab) : vocab_(std::move(vocab)) {}
  TokenType type(int32_t token) const {
    return static_cast<TokenType>(vocab_.types[static_cast<size_t>(token)]);
  }
  void guess_types();
  void index();
  void index_bytes();
  int byte_of_token(int32_t id) const;  // its byte; -1: it stands for none
  int32_t find(std::string_view piece) const;
  struct Fragment;
  std::vector<Fragment> split_special(std::string_view text, bool all,
                                      const TextMarks& marks) const;
  bool strips_right(int32_t token) const;
  void encode_plain(std::string_view text, bool space_prefix, std::vector<int32_t>& out) const;
  void emit(std::string_view symbol, std::vector<int32_t>& out) const;

  SpmVocab vocab_;
  std::unordered_map<std::string_view, int32_t> pieces_;  // into vocab_.tokens
  size_t longest_piece_ = 0;
  std::array<int32_t, 256> bytes_{};  // byte tokens, -1: none
  std::vector<int32_t> special_;      // control, unknown and user-defined; longest text first
};

}  // namespace blend
