// A tokenizer of known pieces: every byte, some longer ones, and two tokens that end a text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "support/random_model.h"

namespace blend::test {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEos = 0, kEot = 1, kControl = 2, kFirstByte = 3;

  explicit ByteTokenizer(const std::vector<std::string>& longer = {}) : pieces_{"", "", ""} {
    for (int b = 0; b < 256; ++b) pieces_.emplace_back(1, static_cast<char>(b));
    pieces_.insert(pieces_.end(), longer.begin(), longer.end());
  }
  uint32_t n_vocab() const override { return static_cast<uint32_t>(pieces_.size()); }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return kEos; }
  bool add_bos() const override { return false; }
  std::span<const int32_t> closing() const override { return {}; }
  bool is_stop(int32_t token) const override { return token == kEos || token == kEot; }
  Result<std::vector<int32_t>> encode_marked(std::string_view, uint32_t,
                                             const TextMarks&) const override {
    return std::vector<int32_t>();
  }
  std::string piece(int32_t token, uint32_t) const override {
    return pieces_[static_cast<size_t>(token)];
  }
  Result<std::string> decode(std::span<const int32_t>, uint32_t) const override {
    return std::string();
  }
  void hash(Sha256Hasher& hasher) const override {
    for (const std::string& piece : pieces_) hasher.field(piece);
  }

 private:
  std::vector<std::string> pieces_;
};

inline std::shared_ptr<const GrammarVocabulary> vocabulary_of(const Tokenizer& tokenizer) {
  auto made = GrammarVocabulary::create(tokenizer);
  return made.is_ok() ? *made : nullptr;
}

// The tokens that may come next; none: the text is complete.
inline std::vector<int32_t> allowed(GrammarRun& run, const GrammarVocabulary& vocabulary,
                                    Status* status = nullptr) {
  Result<bool> complete = run.prepare(nullptr);
  if (status != nullptr) *status = complete.status();
  if (!complete.is_ok() || *complete) return {};
  std::vector<float> logits(vocabulary.n_tokens(), 0.0f);
  run.apply(logits);
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == 0.0f) tokens.push_back(static_cast<int32_t>(i));
  }
  return tokens;
}

// A text of tokens drawn evenly among those allowed; nothing: it did not end within `most`.
inline std::optional<std::string> drawn(const std::shared_ptr<const Grammar>& grammar,
                                        const Tokenizer& tokenizer, SplitMix& random, size_t most) {
  auto run = Grammar::start(grammar);
  std::string text;
  for (size_t i = 0; i < most; ++i) {
    const std::vector<int32_t> next = allowed(**run, grammar->vocabulary());
    if (next.empty()) return text;
    const int32_t token = next[random.below(next.size())];
    if (tokenizer.is_stop(token)) return text;
    text += tokenizer.piece(token, 0);
    if (!(*run)->accept(token, nullptr).is_ok()) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace blend::test
