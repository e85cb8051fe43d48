#include "question.h"

#include "choices.h"

namespace blend_cli {

Question make_question(const blendpp::Model& model, const Record& record,
                       const blendpp::Tokens& system, const std::string& question_template) {
  Question question;
  question.record = &record;
  question.system = system;
  const auto append = [&](const blendpp::Tokens& tokens) {
    question.tokens.insert(question.tokens.end(), tokens.begin(), tokens.end());
  };
  if (!system.empty()) {
    question.prompt.prefix(system);
    append(system);
  }
  for (const std::string& chunk : record.chunks) {
    question.chunks.push_back(model.tokenize(chunk));
    question.prompt.chunk(question.chunks.back());
    append(question.chunks.back());
  }
  const blendpp::Tokens asked = model.tokenize(question_text(question_template, record.question));
  question.prompt.question(asked);
  append(asked);
  return question;
}

blendpp::Tokens question_tokens(const blendpp::Model& model, const std::string& question_template,
                                const std::string& question, bool special) {
  if (!special) return model.tokenize(question_text(question_template, question));
  constexpr std::string_view kPlace = "{question}";
  blendpp::Tokens tokens;
  bool first = true;
  const auto append = [&](const std::string& text, uint32_t flags) {
    if (text.empty()) return;
    const blendpp::Tokens part = model.tokenize(text, flags | (first ? 0u : BLEND_TOKENIZE_RAW));
    tokens.insert(tokens.end(), part.begin(), part.end());
    first = false;
  };
  size_t begin = 0;
  for (size_t at = 0; (at = question_template.find(kPlace, begin)) != std::string::npos;) {
    append(unescaped(question_template.substr(begin, at - begin)), BLEND_TOKENIZE_SPECIAL);
    append(question, 0);
    begin = at + kPlace.size();
  }
  append(unescaped(question_template.substr(begin)), BLEND_TOKENIZE_SPECIAL);
  return tokens;
}

}  // namespace blend_cli
