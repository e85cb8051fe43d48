#include "chat/prompt.h"

#include <algorithm>

#include "base/json.h"
#include "chat/describe.h"
#include "chat/roles.h"
#include "chat/template.h"
#include "chat/tools.h"
#include "text/white_space.h"

namespace blend::chat {
namespace {

// Placeholder for a document that has no text here. Not white space, which a template could strip.
constexpr std::string_view kStored = "\xEF\xBF\xBC";

std::string_view text_of(const Document& document) {
  return document.stored ? kStored : document.text;
}

Result<std::vector<Turn>> turns_of(const std::vector<Message>& messages,
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
  std::vector<Turn> out(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    out[i].role = messages[i].role;
    Text& content = out[i].content;
    if (inside && i == last_user) {
      for (size_t d = 0; d < documents.size(); ++d) {
        content.append(text_of(documents[d]), kDocument + static_cast<uint32_t>(d));
        content.append("\n\n", kTemplate);
      }
    }
    content.append(messages[i].content, is_system(messages[i].role) ? kStable : kMessage);
    Result<Dict> members = read_members(messages[i].members);
    if (!members.is_ok()) return members.status().with_context("message " + std::to_string(i));
    out[i].members = std::move(*members);
  }
  return out;
}

Result<Value> messages_value(std::vector<Turn> turns) {
  List out;
  for (Turn& turn : turns) {
    Dict members = {{Value::text("role"), Value::text(turn.role, kStable)},
                    {Value::text("content"), Value::of(std::move(turn.content))}};
    for (auto& member : turn.members) members.push_back(std::move(member));
    BLEND_ASSIGN(Value message, Value::dict(std::move(members)));
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

// Variables that the host's variables may not replace. They were checked before, or are trusted;
// but the host's variables may come from the client of a server.
constexpr std::pair<std::string_view, const char*> kReserved[] = {
    {"messages", "give the conversation as the call's messages"},
    {"documents", "give documents as the call's documents"},
    {"bos_token", "it is the model's own; write another into the template itself"},
    {"eos_token", "it is the model's own; write another into the template itself"}};

// The host's variables, a JSON object or nothing.
Status add_variables(std::string_view text, bool has_tools, Variables& out) {
  if (text.empty()) return Status::ok();
  Result<Json> json = Json::parse(text);
  if (!json.is_ok() || json->object() == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "the template's variables are not a JSON object%s%s",
                      json.is_ok() ? "" : ": ", json.status().message().c_str());
  }
  for (const auto& [name, member] : *json->object()) {
    for (const auto& [reserved, instead] : kReserved) {
      if (name != reserved) continue;
      return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is no variable that the host may set: %s",
                        name.c_str(), instead);
    }
    if (has_tools && name == "tools") {
      return Status{BLEND_E_INVALID_ARGUMENT,
                    "'tools' are given twice, as an option and as a variable"};
    }
    Result<Value> value = Value::from_json(member, kStable);
    if (!value.is_ok()) return value.status().with_context("variable '" + name + "'");
    out.insert_or_assign(name, std::move(*value));
  }
  return Status::ok();
}

// The variables that transformers passes to templates.
Result<Variables> variables_of(const Template& source, const Tokenizer& tokenizer,
                               const std::vector<Message>& messages,
                               const std::vector<Document>& documents,
                               const PromptOptions& options) {
  const bool own_place = source.reads("documents");
  Variables out;
  BLEND_ASSIGN(std::vector<Turn> turns, turns_of(messages, documents, !own_place));
  BLEND_ASSIGN(Value tools, read_tools(options.tools));
  Meter meter(SIZE_MAX, options.cancel);  // printing takes memory in proportion to the values
  if (!tools.is_none() && !source.reads("tools")) {
    BLEND_RETURN_IF_ERROR(tell_tools(tools, turns, meter));
  }
  if (!source.has_word("tool_calls")) BLEND_RETURN_IF_ERROR(tell_calls(turns, meter));
  BLEND_ASSIGN(Value all, messages_value(std::move(turns)));
  out.emplace("messages", std::move(all));
  Value& given = out.emplace("documents", Value::none()).first->second;
  if (own_place && !documents.empty()) {
    BLEND_ASSIGN(given, documents_value(documents));
  }
  const bool has_tools = !tools.is_none();
  out.emplace("tools", std::move(tools));
  out.emplace("add_generation_prompt", Value::of(options.generation_prompt));
  const auto token = [&](const char* name, int32_t id) {
    if (id >= 0) out.emplace(name, Value::text(tokenizer.piece(id, BLEND_TOKENIZE_SPECIAL)));
  };
  token("bos_token", tokenizer.bos());
  token("eos_token", tokenizer.eos());
  BLEND_RETURN_IF_ERROR(add_variables(options.variables, has_tools, out));
  return out;
}

// Bytes [begin, end) of the rendered text. If `document` is set, they are exactly that document.
struct Part {
  size_t begin = 0;
  size_t end = 0;
  size_t document = SIZE_MAX;
  size_t first_run = 0;  // index in text.runs(); the next part's first_run is the end
};

std::vector<Part> parts_of(const Text& text, const std::vector<Document>& documents) {
  // Stripped once here, because a template may write a document in any number of runs.
  std::vector<std::string_view> wanted;
  wanted.reserve(documents.size());
  for (const Document& document : documents) wanted.push_back(text::stripped(text_of(document)));
  std::vector<Part> out;
  size_t begin = 0;
  for (size_t i = 0; i < text.runs().size(); ++i) {
    const Text::Run& run = text.runs()[i];
    const size_t document =
        run.origin >= kDocument ? size_t{run.origin} - kDocument : documents.size();
    const std::string_view bytes = std::string_view(text.bytes()).substr(begin, run.end - begin);
    if (document < documents.size() && text::stripped(bytes) == wanted[document]) {
      out.push_back({begin, run.end, document, i});
    } else if (out.empty() || out.back().document != SIZE_MAX) {
      out.push_back({begin, run.end, SIZE_MAX, i});
    } else {
      out.back().end = run.end;
    }
    begin = run.end;
  }
  return out;
}

// Which bytes of a part come from the host, as offsets from its begin.
TextMarks marks_of(const Text& text, const Part& part) {
  TextMarks marks;
  marks.continues = part.begin > 0;
  size_t from = part.begin;
  for (size_t i = part.first_run; from < part.end; ++i) {
    const Text::Run& run = text.runs()[i];
    if (run.origin != kTemplate) {
      marks.plain.emplace_back(from - part.begin, run.end - part.begin);
    }
    from = run.end;
  }
  return marks;
}

// Every document must be in the text; one given by its id exactly once, and unchanged.
Status check_documents(const Text& text, const std::vector<Part>& parts,
                       const std::vector<Document>& documents) {
  std::vector<size_t> whole(documents.size());
  std::vector<bool> anywhere(documents.size());
  for (const Part& part : parts) {
    if (part.document != SIZE_MAX) ++whole[part.document];
  }
  for (const Text::Run& run : text.runs()) {
    const size_t d = run.origin >= kDocument ? size_t{run.origin} - kDocument : documents.size();
    if (d < documents.size()) anywhere[d] = true;
  }
  for (size_t d = 0; d < documents.size(); ++d) {
    if (anywhere[d] && (!documents[d].stored || whole[d] == 1)) continue;
    return make_error(BLEND_E_UNSUPPORTED,
                      "the chat template has no place for document %zu%s: put its text into a "
                      "message",
                      d, documents[d].stored ? " as it is, and it is given by its id" : "");
  }
  return Status::ok();
}

// Whether all text before the first document is the same in many prompts (stable_head).
bool begins_stable(const Text& text, const std::vector<Part>& parts) {
  const auto document = std::find_if(parts.begin(), parts.end(),
                                     [](const Part& part) { return part.document != SIZE_MAX; });
  if (document == parts.end()) return true;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    if (begin >= document->begin) break;
    if (run.origin >= kMessage) return false;
    begin = run.end;
  }
  return true;
}

// How many of a part's first tokens are the same in many prompts. They end at the last control
// token before the first text that differs from prompt to prompt.
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
    if (piece.empty() || !tokenizer.piece(tokens[i], 0).empty()) continue;  // not a control token
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

// Appends what an answer begins with that must be a call.
Status begin_call(const Template& source, const Tokenizer& tokenizer, text::Prompt& out) {
  const std::string_view begin = call_form(source).begin;
  if (begin.empty()) return Status::ok();
  TextMarks marks;
  marks.continues = true;
  BLEND_ASSIGN(const std::vector<int32_t> tokens,
               tokenizer.encode_marked(begin, BLEND_TOKENIZE_SPECIAL, marks));
  if (out.segments.empty() || out.segments.back().kind != BLEND_SEGMENT_QUESTION) {
    out.segments.push_back({BLEND_SEGMENT_QUESTION, {}, SIZE_MAX});
  }
  std::vector<int32_t>& question = out.segments.back().tokens;
  question.insert(question.end(), tokens.begin(), tokens.end());
  out.text += begin;
  return Status::ok();
}

}  // namespace

Result<text::Prompt> make_prompt(const Template& source, const Tokenizer& tokenizer,
                                 const std::vector<Message>& messages,
                                 const std::vector<Document>& documents,
                                 const PromptOptions& options) {
  for (size_t d = 0; d < documents.size(); ++d) {
    if (text::stripped(text_of(documents[d])).empty()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "document %zu has no text but white space", d);
    }
  }
  BLEND_ASSIGN(const Variables variables,
               variables_of(source, tokenizer, messages, documents, options));
  if (options.must_call && !variables.at("tools").truth()) {
    return Status{
        BLEND_E_INVALID_ARGUMENT,
        "the answer must be a call, and there are no tools: give the functions that may be "
        "called"};
  }
  const Watch watch{options.cancel, {}};
  BLEND_ASSIGN(const Text text,
               source.render(variables, options.now, Template::kFuel, options.cancel));
  const std::vector<Part> parts = parts_of(text, documents);
  BLEND_RETURN_IF_ERROR(check_documents(text, parts, documents));
  const bool has_tools = !options.tools.empty() && !variables.at("tools").is_none();
  if (has_tools && !source.reads("tools") && !tells_tools(text.bytes())) {
    return Status{BLEND_E_UNSUPPORTED,
                  "the chat template has no place for tools, neither `tools` nor a system message: "
                  "put them into a message"};
  }
  text::Prompt out;
  out.text = text.bytes();
  out.stable_head = begins_stable(text, parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
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
  if (options.must_call) BLEND_RETURN_IF_ERROR(begin_call(source, tokenizer, out));
  return out;
}

Result<text::Prompt> make_prompt(std::string_view source, const Tokenizer& tokenizer,
                                 const std::vector<Message>& messages,
                                 const std::vector<Document>& documents,
                                 const PromptOptions& options) {
  BLEND_ASSIGN(const auto parsed, Template::parse_given(source));
  return make_prompt(parsed, tokenizer, messages, documents, options);
}

}  // namespace blend::chat
