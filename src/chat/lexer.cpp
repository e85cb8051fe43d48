#include "chat/lexer.h"

#include <algorithm>

#include "text/white_space.h"

namespace blend::chat {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

void append_utf8(uint32_t c, std::string& out) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

// Reads a source from left to right.
class Lexer {
 public:
  Lexer(std::string_view source, size_t most) : most_(most) {
    source_.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
      const bool cr = source[i] == '\r';
      if (cr && i + 1 < source.size() && source[i + 1] == '\n') continue;
      source_.push_back(cr ? '\n' : source[i]);
    }
    if (source_.ends_with('\n')) source_.pop_back();  // one, as Jinja does
  }

  Result<std::vector<Word>> read() {
    while (at_ < source_.size()) {
      BLEND_RETURN_IF_ERROR(check_size());
      BLEND_RETURN_IF_ERROR(read_data());
    }
    put(Word::Kind::end, "");
    return std::move(words_);
  }

 private:
  bool here(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  void put(Word::Kind kind, std::string text) { words_.push_back({kind, std::move(text), line_}); }
  void advance(size_t n) {
    const auto from = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<size_t>(std::count(from, from + static_cast<std::ptrdiff_t>(n), '\n'));
    at_ += n;
  }
  Status wrong(const char* what) const {
    return make_error(BLEND_E_FORMAT, "line %zu of the chat template: %s", line_, what);
  }
  Status refused(const char* what) const {
    return make_error(BLEND_E_UNSUPPORTED,
                      "line %zu of the chat template: %s, which libblend does not support; give "
                      "another template",
                      line_, what);
  }
  // Number of bytes of white space in source_ from `at` on.
  size_t space_after(size_t at) const {
    const size_t begin = at;
    while (const size_t n = text::space_at(std::string_view(source_).substr(at))) at += n;
    return at - begin;
  }
  // Removes white space at the end of `data`, which a tag follows. With '-' that is all of it.
  // Otherwise, before a block, it is the indentation, if nothing else precedes the tag on its line.
  void trim_before_tag(std::string& data, char sign, bool block) const {
    if (sign == '-') {
      data.resize(text::stripped_right(data).size());
    } else if (block && sign != '+') {
      const size_t line = data.rfind('\n') + 1;  // 0: none
      const bool blank = text::stripped(std::string_view(data).substr(line)).empty();
      if (blank && (line > 0 || line_starts_)) data.resize(line);
    }
  }

  Status check_size() const {
    if (words_.size() <= most_) return Status::ok();
    return make_error(BLEND_E_UNSUPPORTED, "a chat template of more than %zu words", most_);
  }

  // Reads the text up to the next tag, and the tag.
  Status read_data() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tag = source_.size();
        break;
      }
      const char c = source_[tag + 1];
      if (c == '{' || c == '%' || c == '#') break;
      ++tag;
    }
    std::string data = source_.substr(at_, tag - at_);
    const bool tagged = tag < source_.size();
    const char sign = tagged && tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (tagged) trim_before_tag(data, sign, source_[tag + 1] != '{');
    if (!data.empty()) put(Word::Kind::data, std::move(data));
    advance(tag - at_);
    if (!tagged) return Status::ok();
    const char kind = source_[at_ + 1];
    advance(sign == '-' || sign == '+' ? 3 : 2);
    line_starts_ = false;
    if (kind == '#') return read_comment();
    if (kind == '{') {
      put(Word::Kind::variable_begin, "");
      return read_inside("}}", Word::Kind::variable_end);
    }
    if (take_raw()) return read_raw();
    put(Word::Kind::block_begin, "");
    return read_inside("%}", Word::Kind::block_end);
  }

  // Takes the rest of a tag {% raw %}. A newline after it is kept.
  bool take_raw() {
    constexpr std::string_view kRaw = "raw";
    size_t i = at_ + space_after(at_);
    if (source_.compare(i, kRaw.size(), kRaw) != 0) return false;
    i += kRaw.size();
    i += space_after(i);
    const char sign = i < source_.size() && source_[i] == '-' ? '-' : '\0';
    if (sign == '-') ++i;
    if (source_.compare(i, 2, "%}") != 0) return false;
    advance(i + 2 - at_);
    after_tag(sign, false);
    return true;
  }

  Status read_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return wrong("a comment has no end '#}'");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_tag(sign, true);
    return Status::ok();
  }

  // Reads text verbatim up to {% endraw %}.
  Status read_raw() {
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      size_t i = tag + 2;
      const char left = i < source_.size() ? source_[i] : '\0';
      if (left == '-' || left == '+') ++i;
      i += space_after(i);
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      i += space_after(i);
      const char right = i < source_.size() ? source_[i] : '\0';
      if (right == '-' || right == '+') ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      std::string data = source_.substr(at_, tag - at_);
      trim_before_tag(data, left, true);
      if (!data.empty()) put(Word::Kind::data, std::move(data));
      advance(i + 2 - at_);
      after_tag(right, true);
      return Status::ok();
    }
    return wrong("'{% raw %}' has no '{% endraw %}'");
  }

  // Skips the white space that is removed after the tag that has just ended.
  void after_tag(char sign, bool block) {
    line_starts_ = false;
    if (sign == '-') {
      const size_t n = space_after(at_);
      line_starts_ = n > 0 && source_[at_ + n - 1] == '\n';
      advance(n);
    } else if (block && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      advance(1);
      line_starts_ = true;
    }
  }

  // Reads words up to the end of the tag.
  Status read_inside(std::string_view closing, Word::Kind end) {
    std::string brackets;
    while (at_ < source_.size()) {
      BLEND_RETURN_IF_ERROR(check_size());
      const char c = source_[at_];
      if (const size_t space = space_after(at_)) {
        advance(space);
        continue;
      }
      const bool signed_end = (c == '-' || (c == '+' && end == Word::Kind::block_end)) &&
                              std::string_view(source_).substr(at_ + 1).starts_with(closing);
      if (brackets.empty() && (signed_end || here(closing))) {
        put(end, "");
        advance(closing.size() + (signed_end ? 1 : 0));
        after_tag(signed_end ? c : '\0', end == Word::Kind::block_end);
        return Status::ok();
      }
      if (begins_name(c)) {
        read_name();
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '"' || c == '\'') {
        BLEND_RETURN_IF_ERROR(read_string(c));
      } else {
        BLEND_RETURN_IF_ERROR(read_operator(brackets));
      }
    }
    return wrong("a tag has no end");
  }

  void read_name() {
    size_t n = 1;
    while (at_ + n < source_.size() &&
           (begins_name(source_[at_ + n]) || is_digit(source_[at_ + n]))) {
      ++n;
    }
    put(Word::Kind::name, source_.substr(at_, n));
    advance(n);
  }

  // Length of an integer that begins with 0x, 0o or 0b; 0: there is none.
  size_t based_number() const {
    if (source_[at_] != '0' || at_ + 1 >= source_.size()) return 0;
    const char base = static_cast<char>(source_[at_ + 1] | 0x20);
    const std::string_view digits = base == 'x'   ? "0123456789abcdefABCDEF"
                                    : base == 'o' ? "01234567"
                                    : base == 'b' ? "01"
                                                  : "";
    size_t end = at_ + 2;
    for (size_t i = end; !digits.empty() && i < source_.size(); ++i) {
      if (source_[i] == '_' && i == end) continue;
      if (digits.find(source_[i]) == std::string_view::npos) break;
      end = i + 1;
    }
    return end > at_ + 2 ? end - at_ : 0;
  }

  void read_number() {
    std::string text;
    bool real = false;
    size_t i = at_;
    if (const size_t n = based_number()) {
      std::copy_if(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                   source_.begin() + static_cast<std::ptrdiff_t>(at_ + n), std::back_inserter(text),
                   [](char c) { return c != '_'; });
      put(Word::Kind::integer, text);
      advance(n);
      return;
    }
    const auto digits = [&] {
      while (i < source_.size() && (is_digit(source_[i]) || source_[i] == '_')) {
        if (source_[i] != '_') text.push_back(source_[i]);
        ++i;
      }
    };
    digits();
    if (i + 1 < source_.size() && source_[i] == '.' && is_digit(source_[i + 1])) {
      real = true;
      text.push_back(source_[i++]);
      digits();
    }
    if (i < source_.size() && (source_[i] == 'e' || source_[i] == 'E')) {
      size_t exponent = i + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        real = true;
        text += source_.substr(i, exponent - i);
        i = exponent;
        digits();
      }
    }
    put(real ? Word::Kind::real : Word::Kind::integer, text);
    advance(i - at_);
  }

  // Reads a string with Python's escapes, except \N{...}.
  Status read_string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      const char c = source_[i];
      if (c != '\\') {
        text.push_back(c);
        continue;
      }
      if (++i >= source_.size()) break;
      BLEND_RETURN_IF_ERROR(read_escape(i, text));
    }
    if (i >= source_.size()) return wrong("a string has no end");
    put(Word::Kind::string, std::move(text));
    advance(i + 1 - at_);
    return Status::ok();
  }

  // On entry source_[i] is the character after the backslash, on return the escape's last one.
  Status read_escape(size_t& i, std::string& text) const {
    static constexpr std::string_view kFrom = "ntrbfav\\'\"";
    static constexpr std::string_view kTo = "\n\t\r\b\f\a\v\\'\"";
    const char c = source_[i];
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      text.push_back(kTo[at]);
      return Status::ok();
    }
    if (c == '\n') return Status::ok();
    size_t most = 0;
    uint32_t base = 16;
    size_t begin = i + 1;
    if (c == 'x' || c == 'u' || c == 'U') {
      most = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    } else if (c >= '0' && c <= '7') {
      most = 3;
      base = 8;
      begin = i;
    } else if (c == 'N') {
      return refused("an escape \\N{...} of a string");
    } else if (static_cast<uint8_t>(c) >= 0x80) {
      return refused("a backslash before a character that is not ASCII");
    } else {
      text.push_back('\\');
      text.push_back(c);
      return Status::ok();
    }
    uint32_t value = 0;
    size_t n = 0;
    for (; n < most && begin + n < source_.size(); ++n) {
      const char d = source_[begin + n];
      const uint32_t digit = is_digit(d)              ? static_cast<uint32_t>(d - '0')
                             : (d >= 'a' && d <= 'f') ? static_cast<uint32_t>(d - 'a' + 10)
                             : (d >= 'A' && d <= 'F') ? static_cast<uint32_t>(d - 'A' + 10)
                                                      : 99;
      if (digit >= base) break;
      value = value * base + digit;
    }
    if (base == 16 && n != most) return wrong("a string's escape has too few digits");
    if (value >= 0xD800 && value < 0xE000) return refused("a string's escape of a surrogate");
    if (value > 0x10FFFF) {
      return wrong("a string's escape is not a character");
    }
    append_utf8(value, text);
    i = begin + n - 1;
    return Status::ok();
  }

  Status read_operator(std::string& brackets) {
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (!here(two)) continue;
      put(Word::Kind::op, std::string(two));
      advance(2);
      return Status::ok();
    }
    const char c = source_[at_];
    if (static_cast<uint8_t>(c) >= 0x80) return refused("a name of other letters than ASCII's");
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos) {
      return make_error(BLEND_E_FORMAT, "line %zu of the chat template: a character '%c' (0x%02x)",
                        line_, c >= 0x20 && c < 0x7f ? c : '?', static_cast<uint8_t>(c));
    }
    if (c == '(' || c == '[' || c == '{') {
      brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) return wrong("brackets do not match");
      brackets.pop_back();
    }
    put(Word::Kind::op, std::string(1, c));
    advance(1);
    return Status::ok();
  }

  std::string source_;
  size_t at_ = 0;
  size_t line_ = 1;
  bool line_starts_ = true;  // only white space stands between here and the line's start
  std::vector<Word> words_;
  size_t most_;
};

}  // namespace

Result<std::vector<Word>> read_words(std::string_view source, size_t most) {
  return Lexer(source, most).read();
}

}  // namespace blend::chat
