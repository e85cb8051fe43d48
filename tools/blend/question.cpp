#include "question.h"

#include "choices.h"
#include "command.h"

namespace blend_cli {

namespace {

void append(blendpp::Tokens& to, const blendpp::Tokens& tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

blendpp::Tokens tokens_of(const blend_segment& segment) {
  return {segment.tokens, segment.tokens + segment.n_tokens};
}

}  // namespace

void add_prompt_form(CLI::App& app, PromptForm& form) {
  app.add_option("--system", form.system, "System text: stands first and is reused exactly")
      ->type_name("TEXT");
  app.add_flag("--special", form.special,
               "Recognize control tokens in --system and --question-template, as <|im_end|>");
  // Excludes --special, added above, but not the template, added below.
  add_chat_options(app, form.chat);
  app.add_option(
         "--question-template", form.question_template,
         "The text around the question, which replaces {question}; \\n is a new line. Default: '" +
             std::string(kDefaultQuestionTemplate) + "', with --chat {question}")
      ->check(check_question_template)
      ->type_name("TEXT");
}

std::string question_template_of(const PromptForm& form) {
  if (!form.question_template.empty()) return form.question_template;
  return form.chat.wanted ? "{question}" : kDefaultQuestionTemplate;
}

blendpp::Prompt make_prompt(const blendpp::Model& model, const PromptForm& form,
                            const std::vector<std::string>& documents,
                            const std::string& question) {
  const std::string question_template = question_template_of(form);
  if (form.chat.wanted) {
    return chat_prompt(model, form.chat, form.system, documents,
                       question_text(question_template, question));
  }
  return plain_prompt(model, form.system, documents, question_template, question, form.special);
}

Question make_question(const blendpp::Model& model, const Record& record, const PromptForm& form) {
  Question question;
  question.record = &record;
  question.prompt = make_prompt(model, form, record.chunks, record.question);
  blendpp::Tokens between;
  for (const blend_segment& segment : question.prompt.segments()) {
    const blendpp::Tokens tokens = tokens_of(segment);
    append(question.tokens, tokens);
    if (segment.kind == BLEND_SEGMENT_CHUNK) {
      question.chunks.push_back(tokens);
      question.before.push_back(std::move(between));
      between.clear();
      continue;
    }
    if (segment.kind == BLEND_SEGMENT_PREFIX) question.prefixes.push_back(tokens);
    append(question.chunks.empty() ? question.head : between, tokens);
  }
  if (question.chunks.empty()) {
    throw CommandError(kExitError, "line " + std::to_string(record.line) +
                                       ": the chat template changes every document, so that none "
                                       "is a chunk; give another with --chat-template");
  }
  return question;
}

}  // namespace blend_cli
