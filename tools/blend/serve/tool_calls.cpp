#include "tool_calls.h"

#include <algorithm>

#include "json_body.h"
#include "raw_member.h"

namespace blend_cli::serve {
namespace {

constexpr std::string_view kWhite = " \t\r\n";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhite);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
}

// Where the text ends, without white space after it.
size_t end_of_text(std::string_view text) {
  const size_t last = text.find_last_not_of(kWhite);
  return last == text.npos ? 0 : last + 1;
}

// Where the end of a text begins that may go on to `mark`, with the white space before it.
size_t begin_of_mark(std::string_view text, std::string_view mark) {
  size_t n = std::min(text.size(), mark.size() - 1);
  while (n > 0 && text.substr(text.size() - n) != mark.substr(0, n)) --n;
  return end_of_text(text.substr(0, text.size() - n));
}

// Where `mark` stands in JSON from `at` on, outside of strings. A string ends with its line.
size_t find_outside_strings(std::string_view json, std::string_view mark, size_t at) {
  for (bool in_string = false; at < json.size(); ++at) {
    const char c = json[at];
    if (in_string && c == '\\') {
      ++at;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (c == '\n') {
      in_string = false;
    } else if (!in_string && json.substr(at).starts_with(mark)) {
      return at;
    }
  }
  return json.npos;
}

// The text of a JSON string; "": it is none.
std::string decoded(std::string_view json) {
  if (json.empty() || json.front() != '"') return {};
  const Json value = Json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

ToolForm tool_form(const blendpp::Model& model, const std::string& template_source) {
  ToolForm form{model.template_info(template_source)};
  const std::string_view open = form.info.call_open;
  const blendpp::Tokens tokens =
      open.empty() ? blendpp::Tokens() : model.tokenize(open, BLEND_TOKENIZE_SPECIAL);
  if (tokens.size() == 1 && model.detokenize(tokens, BLEND_TOKENIZE_RAW).empty()) {
    form.open_token = tokens[0];
  }
  return form;
}

blendpp::Prompt call_prompt(const blendpp::Model& model, const ToolForm& form,
                            const blendpp::Prompt& prompt) {
  const std::string_view begin = form.info.call_begin;
  if (begin.empty()) return prompt;
  const blendpp::Tokens more = model.tokenize(begin, BLEND_TOKENIZE_SPECIAL);
  blendpp::Prompt out;
  blendpp::Tokens question;  // which must be one segment
  for (const blend_segment& s : prompt.segments()) {
    if (s.id != nullptr) {
      out.chunk(blendpp::ChunkId(*s.id));
      continue;
    }
    blendpp::Tokens own(s.tokens, s.tokens + s.n_tokens);
    if (s.kind == BLEND_SEGMENT_QUESTION) {
      question = std::move(own);
    } else {
      out.add(s.kind, std::move(own));
    }
  }
  question.insert(question.end(), more.begin(), more.end());
  return out.question(std::move(question));
}

bool ToolCallReader::read_call(std::string_view text, bool is_cut) {
  text = trim(text);
  const bool is_whole = Json::accept(text);
  if (text.empty() || text.front() != '{') return false;
  if (!is_whole && !(is_cut && is_open(text))) return false;
  const std::string name = decoded(raw_member(text, "name"));
  if (std::find(names_.begin(), names_.end(), name) == names_.end()) return false;
  std::string_view arguments = raw_member(text, "arguments");
  if (arguments.empty()) arguments = raw_member(text, "parameters");
  arguments = trim(arguments);
  std::string made(arguments);
  if (is_whole) {
    // Some models write the arguments as a text of JSON, as the API has it.
    if (!arguments.empty() && arguments.front() == '"') made = decoded(arguments);
    if (made.empty() || made == "null") made = "{}";
    if (made.front() != '{' || !Json::accept(made)) return false;
  }
  calls_.push_back({name, std::move(made)});
  return true;
}

bool ToolCallReader::read_calls(std::string_view text, bool is_cut) {
  text = trim(text);
  if (text.empty() || text.front() != '[') return read_call(text, is_cut);
  if (!Json::accept(text) && !(is_cut && is_open(text))) return false;
  const size_t n_before = calls_.size();
  const std::vector<std::string_view> items = raw_items(text);
  for (size_t i = 0; i < items.size(); ++i) {
    if (read_call(items[i], is_cut && i + 1 == items.size())) continue;
    calls_.resize(n_before);
    return false;
  }
  return !items.empty();
}

std::string ToolCallReader::take(int32_t id, std::string_view piece) {
  // A control token has no text of its own.
  if (id >= 0 && id == open_token_) return take_text(open_) + std::string(piece);
  return take_text(piece);
}

std::string ToolCallReader::take_text(std::string_view piece) {
  held_ += piece;
  if (open_.empty() && !in_call_ && !has_begun_) {
    const size_t first = held_.find_first_not_of(kWhite);
    if (first == held_.npos) return {};
    in_call_ = held_[first] == '{';
  }
  std::string shown;
  while (!held_.empty()) {
    if (!in_call_) {
      const size_t at = open_.empty() ? held_.npos : held_.find(open_);
      size_t end = held_.size();
      if (at != held_.npos) {
        end = end_of_text(std::string_view(held_).substr(0, at));
      } else if (!open_.empty()) {
        end = begin_of_mark(held_, open_);
      }
      shown += held_.substr(0, end);
      held_.erase(0, end);
      if (at == std::string::npos) break;
      in_call_ = true;
      continue;
    }
    if (close_.empty() || held_.find(close_) == held_.npos) break;
    const size_t begin = held_.find(open_) + open_.size();
    const size_t close = find_outside_strings(held_, close_, begin);
    if (close == held_.npos) break;
    const size_t end = close + close_.size();
    if (!read_call(std::string_view(held_).substr(begin, close - begin), false)) {
      shown += held_.substr(0, end);
    }
    held_.erase(0, end);
    in_call_ = false;
  }
  has_begun_ = has_begun_ || !shown.empty();
  return shown;
}

std::string ToolCallReader::end(bool is_cut) {
  std::string rest = std::move(held_);
  held_.clear();
  if (in_call_) {
    std::string_view call = rest;
    const size_t open = open_.empty() ? call.npos : call.find(open_);
    if (open != call.npos) call.remove_prefix(open + open_.size());
    if (read_calls(call, is_cut)) return {};
  } else if (!calls_.empty() && trim(rest).empty()) {
    return {};  // white space after the last call
  }
  return rest;
}

}  // namespace blend_cli::serve
