#include "chat/strings.h"

#include <algorithm>
#include <bit>

#include "chat/builder.h"
#include "chat/search.h"
#include "model/utf8.h"
#include "text/white_space.h"

namespace blend::chat {
namespace {

// The characters that strip() removes; by default white space.
class Stripped {
 public:
  static Result<Stripped> of(const Text* chars, Meter& meter) {
    Stripped out;
    if (chars == nullptr) return out;
    const std::string_view text = chars->bytes();
    out.given_ = true;
    BLEND_RETURN_IF_ERROR(meter.take(text.size(), 1 + sizeof(std::string_view)));
    for (size_t at = 0; at < text.size();) {
      const size_t n = utf8_length(text.substr(at));
      out.characters_.push_back(text.substr(at, n));
      at += n;
    }
    std::sort(out.characters_.begin(), out.characters_.end());
    out.cost_ = 1 + static_cast<size_t>(std::bit_width(out.characters_.size()));
    return out;
  }

  // The length of the text's first character if it is one of them; otherwise 0.
  size_t at(std::string_view text) const {
    if (!given_) return text::space_at(text);
    const std::string_view first = text.substr(0, utf8_length(text));
    return std::binary_search(characters_.begin(), characters_.end(), first) ? first.size() : 0;
  }
  size_t cost() const { return cost_; }  // of one call of at()

 private:
  bool given_ = false;
  std::vector<std::string_view> characters_;
  size_t cost_ = 1;
};

// Number of bytes that strip() removes at the start.
Result<size_t> leading(std::string_view text, const Stripped& gone, Meter& meter) {
  Meter::Pause pause(meter);
  size_t at = 0;
  while (at < text.size()) {
    const size_t n = gone.at(text.substr(at));
    if (n == 0) break;
    at += n;
    BLEND_RETURN_IF_ERROR(pause.after(gone.cost()));
  }
  return at;
}

// The end of the text that strip() leaves.
Result<size_t> trailing(std::string_view text, const Stripped& gone, Meter& meter) {
  Meter::Pause pause(meter);
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;  // of the last character
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    if (gone.at(text.substr(begin, end - begin)) != end - begin) break;
    end = begin;
    BLEND_RETURN_IF_ERROR(pause.after(gone.cost()));
  }
  return end;
}

}  // namespace

Result<Value> strip(const Text& text, const Value* chars, Side side, Meter& meter) {
  const Text* set = nullptr;
  if (chars != nullptr && !chars->is_none()) {
    set = chars->text();
    if (set == nullptr) return wrong("strip", *chars);
  }
  BLEND_ASSIGN(const Stripped gone, Stripped::of(set, meter));
  BLEND_RETURN_IF_ERROR(meter.take(text.size(), gone.cost()));
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  if ((side & kLeft) != 0) {
    BLEND_ASSIGN(begin, leading(bytes, gone, meter));
  }
  if ((side & kRight) != 0) {
    BLEND_ASSIGN(end, trailing(bytes, gone, meter));
  }
  return part_of(text, begin, std::max(begin, end), meter);
}

Result<Value> change_case(const std::string& name, bool jinja_words, const Text& text,
                          Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(text.weight()));
  BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue + text.size()));
  std::string out = text.bytes();
  bool begins = true;  // of a word, or of the text
  Meter::Pause pause(meter);
  for (char& c : out) {
    BLEND_RETURN_IF_ERROR(pause.after(1));
    if (static_cast<uint8_t>(c) >= 0x80) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "the chat template applies '%s' to a text that is not ASCII, which "
                        "libblend does not do",
                        name.c_str());
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool up = name == "upper" || (name != "lower" && begins);
    if (letter) c = static_cast<char>(up ? c & ~0x20 : c | 0x20);
    const bool ends = jinja_words ? text::space_at({&c, 1}) > 0 ||
                                        std::string_view("-({[<").find(c) != std::string_view::npos
                                  : !letter;
    begins = name == "title" && ends;
  }
  return Value::of(text.with_bytes(std::move(out)));
}

namespace {

// Puts `what` before every character and after the last one, at most `most` times; below 0: always.
Result<Value> put_between(const Text& text, const Text& what, int64_t most, Meter& meter) {
  const std::string_view bytes = text.bytes();
  TextBuilder out(meter);
  size_t at = 0;
  for (; at < bytes.size() && most != 0; most -= most > 0 ? 1 : 0) {
    const size_t end = at + utf8_length(bytes.substr(at));
    BLEND_RETURN_IF_ERROR(out.append(what));
    BLEND_RETURN_IF_ERROR(out.append(text, at, end));
    at = end;
  }
  BLEND_RETURN_IF_ERROR(out.append(text, at, text.size()));
  if (most != 0) BLEND_RETURN_IF_ERROR(out.append(what));
  return out.value();
}

}  // namespace

Result<Value> replace(const Text& text, const CallArguments& given, Meter& meter) {
  const Value* const from = given.get(0, "old");
  const Value* const to = given.get(1, "new");
  int64_t most = -1;
  if (const Value* const count = given.get(2, "count"); count != nullptr && !count->is_none()) {
    if (!count->as_integer(most)) return wrong("replace", *count);
  }
  if (from == nullptr || from->text() == nullptr || to == nullptr || to->text() == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the chat template's 'replace' needs two strings");
  }
  if (from->text()->empty()) return put_between(text, *to->text(), most, meter);
  const std::string& what = from->text()->bytes();
  BLEND_ASSIGN(const Search search, Search::of(what, meter));
  TextBuilder out(meter);
  size_t done = 0;
  while (most != 0) {
    BLEND_ASSIGN(const size_t at, search.find(text.bytes(), done, meter));
    if (at == std::string::npos) break;
    BLEND_RETURN_IF_ERROR(out.append(text, done, at));
    BLEND_RETURN_IF_ERROR(out.append(*to->text()));
    done = at + what.size();
    if (most > 0) --most;
  }
  BLEND_RETURN_IF_ERROR(out.append(text, done, text.size()));
  return out.value();
}

namespace {

// The parts of a text, as a list.
class Parts {
 public:
  Parts(const Text& text, Meter& meter) : text_(text), meter_(meter) {}

  size_t size() const { return parts_.size(); }
  Status put(size_t begin, size_t end) {
    BLEND_RETURN_IF_ERROR(meter_.take(sizeof(Value)));
    BLEND_ASSIGN(Value part, part_of(text_, begin, end, meter_));
    parts_.push_back(std::move(part));
    return Status::ok();
  }
  Result<Value> value() {
    BLEND_RETURN_IF_ERROR(take_list(parts_.size(), meter_));
    return Value::list(std::move(parts_));
  }

 private:
  const Text& text_;
  Meter& meter_;
  List parts_;
};

// Splits at white space, at most `most` times; below 0: always.
Result<Value> split_at_space(const Text& text, int64_t most, Meter& meter) {
  const std::string_view bytes = text.bytes();
  BLEND_ASSIGN(const Stripped space, Stripped::of(nullptr, meter));
  BLEND_RETURN_IF_ERROR(meter.take(bytes.size(), 2));
  Parts out(text, meter);
  Meter::Pause pause(meter);
  for (size_t at = 0; at < bytes.size();) {
    BLEND_ASSIGN(const size_t gap, leading(bytes.substr(at), space, meter));
    at += gap;
    if (at >= bytes.size()) break;
    size_t end = at;
    if (most >= 0 && static_cast<int64_t>(out.size()) >= most) {
      end = bytes.size();  // the last part keeps the white space after it
    } else {
      for (; end < bytes.size() && text::space_at(bytes.substr(end)) == 0; ++end) {
        BLEND_RETURN_IF_ERROR(pause.after(1));
      }
    }
    BLEND_RETURN_IF_ERROR(out.put(at, end));
    if (most >= 0 && static_cast<int64_t>(out.size()) > most) break;
    at = end;
  }
  return out.value();
}

// The first `most` positions of `separator`, ascending; below 0: all.
Result<std::vector<size_t>> cuts_of(std::string_view text, std::string_view separator, int64_t most,
                                    Meter& meter) {
  BLEND_ASSIGN(const Search search, Search::of(separator, meter));
  std::vector<size_t> out;
  for (size_t at = 0; most < 0 || static_cast<int64_t>(out.size()) < most;) {
    BLEND_ASSIGN(at, search.find(text, at, meter));
    if (at == std::string::npos) break;
    BLEND_RETURN_IF_ERROR(meter.take(sizeof(size_t)));
    out.push_back(at);
    at += separator.size();
  }
  return out;
}

// The last `most` positions, found from the right; ascending.
Result<std::vector<size_t>> cuts_from_right(std::string_view text, std::string_view separator,
                                            int64_t most, Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(text.size() + separator.size()));
  const std::string reversed(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  BLEND_ASSIGN(std::vector<size_t> out, cuts_of(reversed, reversed_separator, most, meter));
  for (size_t& cut : out) cut = text.size() - cut - separator.size();
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

Result<Value> split(const Text& text, const CallArguments& given, bool from_right, Meter& meter) {
  const Value* const by = given.get(0, "sep");
  int64_t most = -1;
  if (const Value* const count = given.get(1, "maxsplit")) {
    if (!count->as_integer(most)) return wrong("split", *count);
  }
  if (by == nullptr || by->is_none()) {
    if (from_right && most >= 0) return unknown("method", "rsplit with a number and no separator");
    return split_at_space(text, most, meter);
  }
  if (by->text() == nullptr || by->text()->empty()) return wrong("split", *by);
  const std::string_view separator = by->text()->bytes();
  BLEND_ASSIGN(const std::vector<size_t> cuts,
               from_right ? cuts_from_right(text.bytes(), separator, most, meter)
                          : cuts_of(text.bytes(), separator, most, meter));
  Parts out(text, meter);
  size_t begin = 0;
  for (const size_t cut : cuts) {
    BLEND_RETURN_IF_ERROR(out.put(begin, cut));
    begin = cut + separator.size();
  }
  BLEND_RETURN_IF_ERROR(out.put(begin, text.size()));
  return out.value();
}

// Tests one string, or each of a tuple.
Result<Value> affix(const Text& text, const CallArguments& given, bool front, Meter& meter) {
  const Value* const what = given.get(0, "prefix");
  if (what == nullptr) return wrong("startswith", Value());
  const auto matches = [&](const Value& v) -> Result<bool> {
    if (v.text() == nullptr) return wrong("startswith", v);
    const std::string& affix = v.text()->bytes();
    BLEND_RETURN_IF_ERROR(meter.take(2 + affix.size() / 8));
    return front ? text.bytes().starts_with(affix) : text.bytes().ends_with(affix);
  };
  if (what->is_tuple()) {
    for (const Value& one : *what->list()) {
      BLEND_ASSIGN(const bool found, matches(one));
      if (found) return Value::of(true);
    }
    return Value::of(false);
  }
  BLEND_ASSIGN(const bool found, matches(*what));
  return Value::of(found);
}

Result<Value> find_text(const Text& text, const CallArguments& given, Meter& meter) {
  const Value* const what = given.get(0, "sub");
  if (what == nullptr || what->text() == nullptr) return wrong("find", Value());
  if (what->text()->empty()) return Value::of(int64_t{0});
  BLEND_ASSIGN(const Search search, Search::of(what->text()->bytes(), meter));
  BLEND_ASSIGN(const size_t at, search.find(text.bytes(), 0, meter));
  if (at == std::string::npos) return Value::of(int64_t{-1});
  BLEND_RETURN_IF_ERROR(meter.take(at));
  const std::string_view before = std::string_view(text.bytes()).substr(0, at);
  BLEND_ASSIGN(const size_t n, count_characters(before, meter));
  return Value::of(static_cast<int64_t>(n));
}

namespace {

// Length of the line end at the start of `text`, by the rules of str.splitlines(); 0: none.
size_t line_end_at(std::string_view text) {
  if (text.starts_with("\r\n")) return 2;
  const auto lead = static_cast<uint8_t>(text[0]);
  if ((lead >= 10 && lead <= 13) || (lead >= 28 && lead <= 30)) return 1;
  if (text.starts_with("\xC2\x85")) return 2;
  return text.starts_with("\xE2\x80\xA8") || text.starts_with("\xE2\x80\xA9") ? 3 : 0;
}

}  // namespace

// Every line end becomes a newline.
Result<Value> indent(const Text& text, const CallArguments& given, Meter& meter) {
  int64_t width = 4;
  Text by;
  if (const Value* const w = given.get(0, "width"); w != nullptr && w->text() != nullptr) {
    BLEND_RETURN_IF_ERROR(meter.take(w->text()->weight()));
    by = *w->text();
  } else {
    if (w != nullptr && !w->as_integer(width)) return wrong("indent", *w);
    const size_t spaces = width < 0 ? 0 : static_cast<size_t>(width);
    BLEND_RETURN_IF_ERROR(meter.take(spaces));
    by = Text(std::string(spaces, ' '));
  }
  const Value* const first = given.get(1, "first");
  const Value* const blank = given.get(2, "blank");
  const std::string_view bytes = text.bytes();
  TextBuilder out(meter);
  Meter::Pause pause(meter);
  for (size_t begin = 0;;) {
    size_t end = begin;
    size_t gap = 0;
    for (; end < bytes.size() && (gap = line_end_at(bytes.substr(end))) == 0; ++end) {
      BLEND_RETURN_IF_ERROR(pause.after(1));
    }
    BLEND_RETURN_IF_ERROR(meter.take(end - begin));
    const bool wanted = begin == 0 ? first != nullptr && first->truth()
                                   : end > begin || (blank != nullptr && blank->truth());
    if (wanted) BLEND_RETURN_IF_ERROR(out.append(by));
    BLEND_RETURN_IF_ERROR(out.append(text, begin, end));
    if (end == bytes.size()) return out.value();
    BLEND_RETURN_IF_ERROR(out.append("\n", text.origin(end)));
    begin = end + gap;
  }
}

}  // namespace blend::chat
