#include "chat/call_reader.h"

#include <algorithm>

#include "base/json.h"
#include "base/raw_json.h"
#include "chat/tool_list.h"

namespace blend::chat {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// Where the text before `end` ends, without white space after it; not before `begin`.
size_t end_of_text(std::string_view text, size_t begin, size_t end) {
  while (end > begin && kBlank.find(text[end - 1]) != kBlank.npos) --end;
  return end;
}

// How many bytes at the end of a text may be the beginning of `mark`.
size_t begun_mark(std::string_view text, std::string_view mark) {
  size_t n = std::min(text.size(), mark.size() - 1);
  while (n > 0 && text.substr(text.size() - n) != mark.substr(0, n)) --n;
  return n;
}

bool is_json(std::string_view text) { return Json::parse(text).is_ok(); }

// The text of a JSON string; nullopt for other JSON.
std::optional<std::string> decoded_string(std::string_view json) {
  if (json.empty() || json.front() != '"') return std::nullopt;
  Result<Json> value = Json::parse(json);
  if (!value.is_ok() || value->string() == nullptr) return std::nullopt;
  return *value->string();
}

}  // namespace

CallReader::CallReader(How how)
    : how_(std::move(how)),
      open_(how_.is_call ? "" : how_.form.open),
      close_(how_.is_call ? "" : how_.form.close) {
  scan_.in_call = how_.is_call;
}

template <typename Take>
std::string_view CallReader::unless_it_throws(Take take) {
  const size_t n_held = held_.size();
  const size_t n_calls = calls_.size();
  const Scan before = scan_;
  shown_.clear();
  try {
    take();
  } catch (...) {
    held_.resize(n_held);
    calls_.resize(n_calls);
    scan_ = before;
    throw;
  }
  // Nothing below throws.
  scan_.has_begun = scan_.has_begun || !shown_.empty();
  held_.erase(0, scan_.shown);
  scan_.call -= std::min(scan_.call, scan_.shown);
  scan_.at -= std::min(scan_.at, scan_.shown);
  scan_.shown = 0;
  return shown_;
}

std::string_view CallReader::add(int32_t token, std::string_view piece) {
  return unless_it_throws([&] {
    // A control token has no text of its own.
    if (token >= 0 && token == how_.open_token) held_ += open_;
    held_ += piece;
    take();
  });
}

void CallReader::take() {
  while (scan_.shown < held_.size() && (scan_.in_call ? take_call() : take_text())) {
  }
}

// In a form without a mark: whether the answer has begun with something, which may be a call.
bool CallReader::has_first_byte() {
  scan_.at = std::min(held_.find_first_not_of(kBlank, scan_.at), held_.size());
  if (scan_.at == held_.size()) return false;
  scan_.in_call = held_[scan_.at] == '{';
  scan_.call = scan_.at;
  return true;
}

// True: there is more to take.
bool CallReader::take_text() {
  const std::string_view text = held_;
  if (open_.empty()) {
    const bool may_be_call = !scan_.has_begun && shown_.empty();
    if (may_be_call && !has_first_byte()) return false;
    if (scan_.in_call) return true;
    shown_.append(text.substr(scan_.shown));
    scan_.shown = scan_.at = text.size();
    return false;
  }
  // What is held and was searched before is white space.
  const size_t open = text.find(open_, scan_.at);
  const size_t sure = std::min(open, text.size() - begun_mark(text.substr(scan_.at), open_));
  const size_t end = end_of_text(text, scan_.at, sure);
  if (end > scan_.at) {
    shown_.append(text.substr(scan_.shown, end - scan_.shown));
    scan_.shown = end;
    scan_.after_call = false;
  }
  scan_.at = sure;
  if (open == text.npos) return false;
  scan_.in_call = true;
  scan_.in_string = false;
  scan_.call = scan_.at = open + open_.size();
  return true;
}

// Where the mark after a call stands, outside of strings; npos: not yet. A string ends with its
// line.
size_t CallReader::find_close() {
  const std::string_view text = held_;
  for (; scan_.at < text.size(); ++scan_.at) {
    const char c = text[scan_.at];
    if (scan_.in_string && c == '\\') {
      if (scan_.at + 1 == text.size()) return text.npos;
      ++scan_.at;
    } else if (c == '"') {
      scan_.in_string = !scan_.in_string;
    } else if (c == '\n') {
      scan_.in_string = false;
    } else if (!scan_.in_string && c == close_[0]) {
      const std::string_view rest = text.substr(scan_.at);
      if (rest.starts_with(close_)) return scan_.at;
      if (close_.starts_with(rest)) return text.npos;
    }
  }
  return text.npos;
}

// True: there is more to take.
bool CallReader::take_call() {
  if (close_.empty()) return false;
  const size_t close = find_close();
  if (close == held_.npos) return false;
  const size_t end = close + close_.size();
  const std::string_view call = std::string_view(held_).substr(scan_.call, close - scan_.call);
  scan_.after_call = read_call(call, false);
  if (!scan_.after_call) shown_.append(held_, scan_.shown, end - scan_.shown);
  scan_.shown = scan_.at = end;
  scan_.in_call = false;
  return true;
}

std::string_view CallReader::end(bool is_cut) {
  return unless_it_throws([&] {
    scan_.ended = true;
    const std::string_view held = held_, rest = held.substr(scan_.shown);
    // Outside of strings, what was not searched begins the mark after the call.
    const bool cut_in_mark = is_cut && !close_.empty() && !scan_.in_string;
    const size_t end = scan_.in_call && cut_in_mark ? scan_.at : held.size();
    const bool is_read = scan_.in_call
                             ? read_calls(held.substr(scan_.call, end - scan_.call), is_cut)
                             : scan_.after_call && trimmed(rest).empty();
    if (!is_read) shown_.append(rest);
    scan_.shown = held_.size();
  });
}

bool CallReader::read_call(std::string_view text, bool is_cut) {
  text = trimmed(text);
  const bool is_whole = is_json(text);
  if (text.empty() || text.front() != '{') return false;
  if (!is_whole && !(is_cut && is_open(text))) return false;
  Call call;
  const std::optional<std::string> name = decoded_string(raw_member(text, "name"));
  // Without a list of the functions, whatever has a name may be one.
  if (!name || name->empty() || name->find('\0') != name->npos) return false;
  if (how_.names && std::find(how_.names->begin(), how_.names->end(), *name) == how_.names->end()) {
    return false;
  }
  std::string_view arguments = raw_member(text, "arguments");
  if (arguments.empty()) arguments = raw_member(text, "parameters");
  arguments = trimmed(arguments);
  if (arguments.find('\0') != arguments.npos) return false;  // no JSON goes on so
  const bool may_be_object = arguments.empty() || arguments.front() == '{' ||
                             arguments.front() == '"' ||
                             std::string_view("null").starts_with(arguments);
  if (!is_whole && !may_be_object) return false;
  call.name = *name;
  call.arguments = arguments;
  call.is_cut = !is_whole;
  if (is_whole) {
    // Some models write the arguments as a text of JSON, as OpenAI's API has it.
    if (std::optional<std::string> inner = decoded_string(arguments)) {
      call.arguments = std::move(*inner);
    }
    if (call.arguments.empty() || call.arguments == "null") call.arguments = "{}";
    if (call.arguments.front() != '{' || !is_json(call.arguments)) return false;
  }
  calls_.push_back(std::move(call));
  return true;
}

bool CallReader::read_calls(std::string_view text, bool is_cut) {
  text = trimmed(text);
  if (text.empty() || text.front() != '[') return read_call(text, is_cut);
  if (!is_json(text) && !(is_cut && is_open(text))) return false;
  const size_t n_before = calls_.size();
  const std::vector<std::string_view> items = raw_items(text);
  for (size_t i = 0; i < items.size(); ++i) {
    if (read_call(items[i], is_cut && i + 1 == items.size())) continue;
    calls_.resize(n_before);
    return false;
  }
  return !items.empty();
}

namespace {

// Names of the functions in a list of tools; none: "".
Result<std::optional<std::vector<std::string>>> function_names(std::string_view tools) {
  std::optional<std::vector<std::string>> names;
  if (tools.empty()) return names;
  BLEND_ASSIGN(auto functions, listed_functions(tools));
  names.emplace();
  for (ListedFunction& function : functions) names->push_back(std::move(function.name));
  return names;
}

// -1: a call does not begin with one.
Result<int32_t> token_before_calls(const CallForm& form, const Tokenizer& tokenizer) {
  if (form.open[0] == '\0') return -1;
  BLEND_ASSIGN(const auto tokens, tokenizer.encode(form.open, BLEND_TOKENIZE_SPECIAL));
  if (tokens.size() != 1) return -1;
  BLEND_ASSIGN(const std::string text, tokenizer.decode(tokens, BLEND_TOKENIZE_RAW));
  return text.empty() ? tokens[0] : -1;
}

}  // namespace

Result<CallReader::How> how_to_read_calls(std::string_view source, const Tokenizer& tokenizer,
                                          std::string_view tools, bool is_call) {
  CallReader::How how;
  how.is_call = is_call;
  BLEND_ASSIGN(how.form, call_form(source));
  BLEND_ASSIGN(how.names, function_names(tools));
  BLEND_ASSIGN(how.open_token, token_before_calls(how.form, tokenizer));
  return how;
}

}  // namespace blend::chat
