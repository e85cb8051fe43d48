#include "chat/prompt.h"

#include <algorithm>

#include "base/json.h"

namespace blend::chat {
namespace {

// Stands for a document that has no text here. No white space, so that no template trims it away.
constexpr std::string_view kStored = "\xEF\xBF\xBC";

std::string_view text_of(const Document& document) {
  return document.stored ? kStored : document.text;
}

bool is_system(std::string_view role) { return role == "system" || role == "developer"; }

Result<Value> message_value(const Message& message, Text content) {
  return Value::dict({{Value::text("role"), Value::text(message.role, kStable)},
                      {Value::text("content"), Value::of(std::move(content))}});
}

Result<Value> messages_value(const std::vector<Message>& messages,
                             const std::vector<Document>& documents, bool inside) {
  size_t last_user = messages.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "user") last_user = i;
  }
  if (inside && !documents.empty() && last_user == messages.size()) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "documents stand before the last message of the role 'user', and there is "
                      "none");
  }
  List out;
  for (size_t i = 0; i < messages.size(); ++i) {
    Text content;
    if (inside && i == last_user) {
      for (size_t d = 0; d < documents.size(); ++d) {
        content.append(text_of(documents[d]), kDocument + static_cast<uint32_t>(d));
        content.append("\n\n", kTemplate);
      }
    }
    content.append(messages[i].content, is_system(messages[i].role) ? kStable : kMessage);
    BLEND_ASSIGN(Value message, message_value(messages[i], std::move(content)));
    out.push_back(std::move(message));
  }
  return Value::list(std::move(out));
}

Result<Value> documents_value(const std::vector<Document>& documents) {
  List out;
  for (size_t d = 0; d < documents.size(); ++d) {
    const auto origin = kDocument + static_cast<uint32_t>(d);
    BLEND_ASSIGN(Value document,
                 Value::dict({{Value::text("title"), Value::text(documents[d].title, kMessage)},
                              {Value::text("text"), Value::text(text_of(documents[d]), origin)},
                              {Value::text("content"), Value::text(text_of(documents[d]), origin)},
                              {Value::text("doc_id"), Value::of(static_cast<int64_t>(d))}}));
    out.push_back(std::move(document));
  }
  return Value::list(std::move(out));
}

// What transformers gives its templates.
Result<Variables> variables_of(const Template& source, const Tokenizer& tokenizer,
                               const std::vector<Message>& messages,
                               const std::vector<Document>& documents,
                               const PromptOptions& options) {
  const bool own_place = source.names_documents();
  Variables out;
  BLEND_ASSIGN(Value all, messages_value(messages, documents, !own_place));
  out.emplace_back("messages", std::move(all));
  out.emplace_back("documents", Value::none());
  if (own_place && !documents.empty()) {
    BLEND_ASSIGN(out.back().second, documents_value(documents));
  }
  out.emplace_back("tools", Value::none());
  out.emplace_back("add_generation_prompt", Value::of(options.generation_prompt));
  const auto token = [&](const char* name, int32_t id) {
    if (id >= 0) out.emplace_back(name, Value::text(tokenizer.piece(id, BLEND_TOKENIZE_SPECIAL)));
  };
  token("bos_token", tokenizer.bos());
  token("eos_token", tokenizer.eos());
  if (options.variables.empty()) return out;
  Result<Json> json = Json::parse(options.variables);
  if (!json.is_ok() || json->object() == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the template's variables are no JSON object%s%s",
                      json.is_ok() ? "" : ": ", json.status().message().c_str());
  }
  for (const auto& [name, member] : *json->object()) {
    Result<Value> value = Value::from_json(member, kStable);
    if (!value.is_ok()) return value.status().with_context("variable '" + name + "'");
    const std::string& wanted = name;
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&wanted](const auto& v) { return v.first == wanted; });
    if (same != out.end()) {
      same->second = std::move(*value);
    } else {
      out.emplace_back(name, std::move(*value));
    }
  }
  return out;
}

// Bytes [begin, end) of the rendered text; `document`: all of that one, and nothing else.
struct Part {
  size_t begin = 0;
  size_t end = 0;
  size_t document = SIZE_MAX;
};

std::vector<Part> parts_of(const Text& text, const std::vector<Document>& documents) {
  std::vector<Part> out;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const size_t document =
        run.origin >= kDocument ? size_t{run.origin} - kDocument : documents.size();
    const std::string_view bytes = std::string_view(text.bytes()).substr(begin, run.end - begin);
    if (document < documents.size() && stripped(bytes) == stripped(text_of(documents[document]))) {
      out.push_back({begin, run.end, document});
    } else if (out.empty() || out.back().document != SIZE_MAX) {
      out.push_back({begin, run.end, SIZE_MAX});
    } else {
      out.back().end = run.end;
    }
    begin = run.end;
  }
  return out;
}

// What of a part is the host's, counted from its begin.
TextMarks marks_of(const Text& text, const Part& part) {
  TextMarks marks;
  marks.continues = part.begin > 0;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const size_t from = std::max(begin, part.begin);
    const size_t to = std::min(run.end, part.end);
    if (run.origin != kTemplate && from < to) {
      marks.plain.emplace_back(from - part.begin, to - part.begin);
    }
    begin = run.end;
  }
  return marks;
}

// How many of a part's first tokens are the same in many prompts: up to the last control token that
// stands before what is not.
size_t stable_tokens(const Text& text, const Part& part, const TextMarks& marks,
                     const std::vector<int32_t>& tokens, const Tokenizer& tokenizer) {
  size_t limit = part.end;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    if (run.origin >= kMessage && run.end > part.begin) {
      limit = std::clamp(begin, part.begin, part.end);
      break;
    }
    begin = run.end;
  }
  if (limit == part.end) return tokens.size();
  const std::string_view bytes =
      std::string_view(text.bytes()).substr(part.begin, part.end - part.begin);
  size_t stable = 0;
  size_t at = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string piece = tokenizer.piece(tokens[i], BLEND_TOKENIZE_SPECIAL);
    if (piece.empty() || !tokenizer.piece(tokens[i], 0).empty()) continue;  // no control token
    size_t found = bytes.find(piece, at);
    while (found != std::string_view::npos && marks.touches_plain(found, found + piece.size())) {
      found = bytes.find(piece, found + 1);
    }
    if (found == std::string_view::npos) break;
    at = found + piece.size();
    if (part.begin + at > limit) break;
    stable = i + 1;
  }
  return stable;
}

}  // namespace

Result<Prompt> make_prompt(const Template& source, const Tokenizer& tokenizer,
                           const std::vector<Message>& messages,
                           const std::vector<Document>& documents, const PromptOptions& options) {
  for (size_t d = 0; d < documents.size(); ++d) {
    if (stripped(text_of(documents[d])).empty()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "document %zu has no text but white space", d);
    }
  }
  BLEND_ASSIGN(const Variables variables,
               variables_of(source, tokenizer, messages, documents, options));
  BLEND_ASSIGN(const Text text, source.render(variables, options.now));
  const std::vector<Part> parts = parts_of(text, documents);
  std::vector<size_t> seen(documents.size());
  for (const Part& part : parts) {
    if (part.document != SIZE_MAX) ++seen[part.document];
  }
  for (size_t d = 0; d < documents.size(); ++d) {
    const bool lost = documents[d].stored ? seen[d] != 1 : seen[d] == 0;
    bool anywhere = seen[d] > 0;
    for (const Text::Run& run : text.runs()) anywhere |= run.origin == kDocument + d;
    if ((documents[d].stored && lost) || !anywhere) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "the chat template has no place for document %zu%s: put its text into a "
                        "message",
                        d, documents[d].stored ? " as it is, and it is given by its id" : "");
    }
  }
  Prompt out;
  out.text = text.bytes();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const bool is_document = part.document != SIZE_MAX;
    if (is_document && documents[part.document].stored) {
      out.segments.push_back({BLEND_SEGMENT_CHUNK, {}, part.document});
      continue;
    }
    const std::string_view bytes =
        std::string_view(text.bytes()).substr(part.begin, part.end - part.begin);
    if (is_document) {
      BLEND_ASSIGN(std::vector<int32_t> tokens,
                   tokenizer.encode(text_of(documents[part.document]), 0));
      out.segments.push_back({BLEND_SEGMENT_CHUNK, std::move(tokens), SIZE_MAX});
      continue;
    }
    const TextMarks marks = marks_of(text, part);
    BLEND_ASSIGN(std::vector<int32_t> tokens,
                 tokenizer.encode_marked(bytes, BLEND_TOKENIZE_SPECIAL, marks));
    const size_t stable = i == 0 ? stable_tokens(text, part, marks, tokens, tokenizer) : 0;
    const auto split = tokens.begin() + static_cast<std::ptrdiff_t>(stable);
    if (stable > 0) {
      out.segments.push_back({BLEND_SEGMENT_PREFIX, {tokens.begin(), split}, SIZE_MAX});
    }
    if (split != tokens.end()) {
      const uint32_t kind = i + 1 == parts.size() ? BLEND_SEGMENT_QUESTION : BLEND_SEGMENT_TEXT;
      out.segments.push_back({kind, {split, tokens.end()}, SIZE_MAX});
    }
  }
  return out;
}

}  // namespace blend::chat
