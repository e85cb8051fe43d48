#include "chat/strings.h"

#include <algorithm>

namespace blend::chat {
namespace {

// Bytes that strip() takes from the start: white space, or the characters of `chars`.
size_t leading(std::string_view text, const Text* chars) {
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    if (chars == nullptr) {
      const size_t n = space_at(rest);
      if (n == 0) break;
      at += n;
      continue;
    }
    const size_t n = characters(rest.substr(0, 4))[1];
    if (chars->bytes().find(rest.substr(0, n)) == std::string::npos) break;
    at += n;
  }
  return at;
}

// Where what strip() leaves ends.
size_t trailing(std::string_view text, const Text* chars) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;  // of the last character
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    const std::string_view last = text.substr(begin, end - begin);
    const bool gone = chars == nullptr ? space_at(last) == last.size()
                                       : chars->bytes().find(last) != std::string::npos;
    if (!gone) break;
    end = begin;
  }
  return end;
}

}  // namespace

Result<Value> strip(const Text& text, const Value* chars, Side side, Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(text.weight()));
  const Text* set = nullptr;
  if (chars != nullptr && !chars->is_none()) {
    set = chars->text();
    if (set == nullptr) return wrong("strip", *chars);
    BLEND_RETURN_IF_ERROR(meter.take(text.size() / 8 * set->size()));
  }
  const std::string_view bytes = text.bytes();
  const size_t begin = (side & kLeft) != 0 ? leading(bytes, set) : 0;
  const size_t end = (side & kRight) != 0 ? trailing(bytes, set) : bytes.size();
  return Value::of(text.part(begin, std::max(begin, end)));
}

Result<Value> change_case(const std::string& name, bool jinja_words, const Text& text,
                          Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(text.weight() * 2));
  Text out;
  bool begins = true;  // a word, or the text
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text.bytes()[i];
    if (static_cast<uint8_t>(c) >= 0x80) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "the chat template applies '%s' to a text that is not ASCII, which "
                        "libblend does not do",
                        name.c_str());
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool up = name == "upper" || (name != "lower" && begins);
    if (letter) c = static_cast<char>(up ? c & ~0x20 : c | 0x20);
    const bool ends = jinja_words ? space_at({&c, 1}) > 0 ||
                                        std::string_view("-({[<").find(c) != std::string_view::npos
                                  : !letter;
    begins = name == "title" && ends;
    out.append({&c, 1}, text.origin(i));
  }
  return Value::of(std::move(out));
}

Result<Value> replace(const Text& text, const CallArguments& given, Meter& meter) {
  const Value* const from = given.get(0, "old");
  const Value* const to = given.get(1, "new");
  int64_t most = -1;
  if (const Value* const count = given.get(2, "count"); count != nullptr && !count->is_none()) {
    if (!count->as_integer(most)) return wrong("replace", *count);
  }
  if (from == nullptr || from->text() == nullptr || from->text()->empty() || to == nullptr ||
      to->text() == nullptr) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the chat template's 'replace' needs two strings, the first not empty");
  }
  Text out;
  size_t done = 0;
  const std::string& what = from->text()->bytes();
  for (size_t at = 0; most != 0 && (at = text.bytes().find(what, at)) != std::string::npos;) {
    BLEND_RETURN_IF_ERROR(meter.take(to->text()->weight() + 1));
    out.append(text, done, at);
    out.append(*to->text());
    done = at += what.size();
    if (most > 0) --most;
  }
  BLEND_RETURN_IF_ERROR(meter.take(text.weight()));
  out.append(text, done, text.size());
  return Value::of(std::move(out));
}

Result<Value> split(const Text& text, const CallArguments& given, bool from_right, Meter& meter) {
  const Value* const by = given.get(0, "sep");
  int64_t most = -1;
  if (const Value* const count = given.get(1, "maxsplit")) {
    if (!count->as_integer(most)) return wrong("split", *count);
  }
  BLEND_RETURN_IF_ERROR(meter.take(text.weight() * 2));
  const std::string_view bytes = text.bytes();
  List out;
  const auto put = [&](size_t begin, size_t end) -> Status {
    BLEND_RETURN_IF_ERROR(meter.take(sizeof(Value) + sizeof(Text)));
    out.push_back(Value::of(text.part(begin, end)));
    return Status::ok();
  };
  if (by == nullptr || by->is_none()) {
    if (from_right && most >= 0) return unknown("method", "rsplit with a number and no separator");
    for (size_t at = 0; at < bytes.size();) {
      at += leading(bytes.substr(at), nullptr);
      if (at >= bytes.size()) break;
      size_t end = at;
      if (most >= 0 && static_cast<int64_t>(out.size()) >= most) {
        end = trailing(bytes, nullptr);
      } else {
        while (end < bytes.size() && space_at(bytes.substr(end)) == 0) ++end;
      }
      BLEND_RETURN_IF_ERROR(put(at, end));
      if (most >= 0 && static_cast<int64_t>(out.size()) > most) break;
      at = end;
    }
    return Value::list(std::move(out));
  }
  if (by->text() == nullptr || by->text()->empty()) return wrong("split", *by);
  const std::string_view sep = by->text()->bytes();
  std::vector<size_t> cuts;
  if (!from_right) {
    for (size_t at = 0; (at = bytes.find(sep, at)) != std::string::npos; at += sep.size()) {
      if (most >= 0 && static_cast<int64_t>(cuts.size()) >= most) break;
      BLEND_RETURN_IF_ERROR(meter.take(sizeof(size_t)));
      cuts.push_back(at);
    }
  } else {
    for (size_t end = bytes.size(); end >= sep.size();) {
      if (most >= 0 && static_cast<int64_t>(cuts.size()) >= most) break;
      const size_t at = bytes.rfind(sep, end - sep.size());
      if (at == std::string::npos) break;
      BLEND_RETURN_IF_ERROR(meter.take(sizeof(size_t)));
      cuts.push_back(at);
      end = at;
    }
    std::reverse(cuts.begin(), cuts.end());
  }
  size_t begin = 0;
  for (const size_t cut : cuts) {
    BLEND_RETURN_IF_ERROR(put(begin, cut));
    begin = cut + sep.size();
  }
  BLEND_RETURN_IF_ERROR(put(begin, bytes.size()));
  return Value::list(std::move(out));
}

// One string, or any of several.
Result<Value> affix(const Text& text, const CallArguments& given, bool front) {
  const Value* const what = given.get(0, "prefix");
  if (what == nullptr) return wrong("startswith", Value());
  const auto matches = [&](const Value& v) {
    if (v.text() == nullptr) return false;
    return front ? text.bytes().starts_with(v.text()->bytes())
                 : text.bytes().ends_with(v.text()->bytes());
  };
  if (const List* const list = what->list()) {
    return Value::of(std::any_of(list->begin(), list->end(), matches));
  }
  if (what->text() == nullptr) return wrong("startswith", *what);
  return Value::of(matches(*what));
}

namespace {

// Bytes of the line's end that `text` begins with, as str.splitlines() has them; 0: none.
size_t line_end_at(std::string_view text) {
  if (text.starts_with("\r\n")) return 2;
  const auto lead = static_cast<uint8_t>(text[0]);
  if ((lead >= 10 && lead <= 13) || (lead >= 28 && lead <= 30)) return 1;
  if (text.starts_with("\xC2\x85")) return 2;
  return text.starts_with("\xE2\x80\xA8") || text.starts_with("\xE2\x80\xA9") ? 3 : 0;
}

}  // namespace

// Every end of a line becomes a newline.
Result<Value> indent(const Text& text, const CallArguments& given, Meter& meter) {
  int64_t width = 4;
  Text by;
  if (const Value* const w = given.get(0, "width"); w != nullptr && w->text() != nullptr) {
    by = *w->text();
  } else {
    if (w != nullptr && !w->as_integer(width)) return wrong("indent", *w);
    by = Text(std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 64)), ' '));
  }
  const Value* const first = given.get(1, "first");
  const Value* const blank = given.get(2, "blank");
  const std::string_view bytes = text.bytes();
  Text out;
  for (size_t begin = 0;;) {
    size_t end = begin;
    size_t gap = 0;
    while (end < bytes.size() && (gap = line_end_at(bytes.substr(end))) == 0) ++end;
    BLEND_RETURN_IF_ERROR(meter.take(by.weight() + end - begin + 1));
    const bool wanted = begin == 0 ? first != nullptr && first->truth()
                                   : end > begin || (blank != nullptr && blank->truth());
    if (wanted) out.append(by);
    out.append(text, begin, end);
    if (end == bytes.size()) return Value::of(std::move(out));
    out.append("\n", text.origin(end));
    begin = end + gap;
  }
}

}  // namespace blend::chat
