#include "text/plain.h"

namespace blend::text {
namespace {

constexpr std::string_view kPlace = "{question}";
constexpr std::string_view kUsual = "Question: {question}\nAnswer:";

// The template's text around its {question}s, in order: one part more than there are of these.
Result<std::vector<std::string_view>> around(std::string_view question_template) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t at = 0; (at = question_template.find(kPlace, begin)) != std::string_view::npos;) {
    out.push_back(question_template.substr(begin, at - begin));
    begin = at + kPlace.size();
  }
  if (out.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "the question's template has no place for it: it must contain {question}"};
  }
  out.push_back(question_template.substr(begin));
  return out;
}

// Control tokens are recognized in the template but not in the question, so each part is tokenized
// by itself.
Result<std::vector<int32_t>> special_question(const Tokenizer& tokenizer,
                                              const std::vector<std::string_view>& parts,
                                              std::string_view question) {
  std::vector<int32_t> out;
  bool first = true;
  const auto append = [&](std::string_view text, uint32_t flags) -> Status {
    if (text.empty()) return Status::ok();
    BLEND_ASSIGN(const std::vector<int32_t> tokens,
                 tokenizer.encode(text, flags | (first ? 0u : BLEND_TOKENIZE_RAW)));
    out.insert(out.end(), tokens.begin(), tokens.end());
    first = false;
    return Status::ok();
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) BLEND_RETURN_IF_ERROR(append(question, 0));
    BLEND_RETURN_IF_ERROR(append(parts[i], BLEND_TOKENIZE_SPECIAL));
  }
  return out;
}

Result<std::vector<int32_t>> opening(const Tokenizer& tokenizer, std::string_view system,
                                     bool special) {
  if (!system.empty()) {
    return tokenizer.encode(system, (tokenizer.add_bos() ? BLEND_TOKENIZE_BOS : 0u) |
                                        (special ? BLEND_TOKENIZE_SPECIAL : 0u));
  }
  if (tokenizer.add_bos() && tokenizer.bos() >= 0) return std::vector<int32_t>{tokenizer.bos()};
  return std::vector<int32_t>{};
}

}  // namespace

Result<std::string> put_question(std::string_view question_template, std::string_view question) {
  BLEND_ASSIGN(const auto parts, around(question_template));
  std::string out(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) out.append(question).append(parts[i]);
  return out;
}

Result<Prompt> make_plain_prompt(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& documents,
                                 std::string_view question, const PlainOptions& options) {
  const std::string_view question_template =
      options.question_template.empty() ? kUsual : options.question_template;
  BLEND_ASSIGN(const auto parts, around(question_template));
  BLEND_ASSIGN(const std::string asked, put_question(question_template, question));
  std::string system(options.system);
  if (!system.empty() && system.back() != '\n') system += '\n';
  const Watch watch{options.cancel, {}};
  Prompt out;
  out.text = system;
  BLEND_ASSIGN(std::vector<int32_t> head, opening(tokenizer, system, options.special));
  if (!head.empty()) out.segments.push_back({BLEND_SEGMENT_PREFIX, std::move(head), SIZE_MAX});
  for (const std::string& document : documents) {
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_ASSIGN(std::vector<int32_t> tokens, tokenizer.encode(document, 0));
    out.segments.push_back({BLEND_SEGMENT_CHUNK, std::move(tokens), SIZE_MAX});
    out.text += document;
  }
  BLEND_RETURN_IF_ERROR(watch.check());
  BLEND_ASSIGN(std::vector<int32_t> tokens, options.special
                                                ? special_question(tokenizer, parts, question)
                                                : tokenizer.encode(asked, 0));
  out.segments.push_back({BLEND_SEGMENT_QUESTION, std::move(tokens), SIZE_MAX});
  out.text += asked;
  return out;
}

}  // namespace blend::text
