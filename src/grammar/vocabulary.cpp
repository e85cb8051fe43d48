#include "grammar/vocabulary.h"

#include "grammar/text_rules.h"
#include "grammar/xgrammar/glue.h"

namespace blend {

using grammar::TextRules;

Result<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::create(
    const Tokenizer& tokenizer) {
  std::shared_ptr<GrammarVocabulary> v(new GrammarVocabulary());
  Sha256Hasher hasher;
  tokenizer.hash(hasher);
  v->fingerprint_ = hasher.finish();

  const size_t n = tokenizer.n_vocab();
  const size_t n_words = (n + 31) / 32;
  v->stops_.assign(n_words, 0);
  v->in_text_.assign(n_words, 0);
  v->in_json_.assign(n_words, 0);
  const TextRules text(TextRules::Kind::text), json(TextRules::Kind::json);
  std::vector<std::string> pieces(n);
  std::vector<int32_t> stops;
  v->ends_.push_back(0);
  for (size_t i = 0; i < n; ++i) {
    const auto token = static_cast<int32_t>(i);
    const uint32_t bit = uint32_t{1} << (i % 32);
    if (tokenizer.is_stop(token)) {
      stops.push_back(token);
      v->stops_[i / 32] |= bit;
    } else {
      pieces[i] = tokenizer.piece(token, 0);
    }
    const std::string& piece = pieces[i];
    if (!piece.empty()) {
      if (text.run(TextRules::kStart, piece) != TextRules::kForbidden) v->in_text_[i / 32] |= bit;
      if (json.run(TextRules::kStart, piece) != TextRules::kForbidden) v->in_json_[i / 32] |= bit;
    }
    v->bytes_ += piece;
    v->ends_.push_back(static_cast<uint32_t>(v->bytes_.size()));
  }
  std::string wrong;
  v->glue_ = xgrammar_glue::make_vocabulary(pieces, stops, wrong);
  if (v->glue_ == nullptr) {
    return make_error(BLEND_E_UNSUPPORTED, "no grammar can be made for this tokenizer: %.300s",
                      wrong.c_str());
  }
  return std::shared_ptr<const GrammarVocabulary>(std::move(v));
}

GrammarVocabulary::~GrammarVocabulary() { xgrammar_glue::destroy(glue_); }

}  // namespace blend
