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

}  // namespace blend_cli
