#include "model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

#include "model/utf8.h"

namespace blend {
namespace {

constexpr size_t kMaxPattern = 16 << 10;      // bytes; the longest in use has about 400
constexpr uint32_t kMatchHeapKiB = 64 << 10;  // of one match
// Steps of one match: a fixed part, and one for every byte that is left (runs of white space are
// walked back over once). Past it, a pattern backtracks as no pre-tokenizer in good faith does.
constexpr uint32_t kMatchSteps = 1 << 20;
constexpr uint32_t kMatchStepsPerByte = 16;

// White_Space of Unicode, which is Oniguruma's \s. PCRE2's also takes U+180E, which is not included
// since Unicode 6.3.
constexpr const char* kSpaces =
    R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

Status differs(std::string_view what) {
  return make_error(BLEND_E_UNSUPPORTED, "a pattern with '%.*s' is not supported",
                    static_cast<int>(what.size()), what.data());
}

// One escape, which begins at `at`; moves `at` past it.
Status translate_escape(std::string_view pattern, bool in_class, size_t& at, std::string& out) {
  if (at + 1 >= pattern.size()) {
    return make_error(BLEND_E_FORMAT, "a pattern ends in a backslash");
  }
  const char c = pattern[at + 1];
  switch (c) {
    case 's':
      out += in_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
      break;
    case 'S':
      out += in_class ? std::string("\\S") : "[^" + std::string(kSpaces) + "]";
      break;
    case 'u':
      if (at + 6 > pattern.size() ||
          !std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(at) + 2,
                       pattern.begin() + static_cast<std::ptrdiff_t>(at) + 6, is_hex)) {
        return make_error(BLEND_E_FORMAT, "a pattern has '\\u' without four hexadecimal digits");
      }
      out += "\\x{" + std::string(pattern.substr(at + 2, 4)) + "}";
      at += 6;
      return Status::ok();
    case 'p':
    case 'P':
    case 'x':
      if (at + 2 < pattern.size() && pattern[at + 2] == '{') {
        const size_t close = pattern.find('}', at);
        if (close == std::string_view::npos) {
          return make_error(BLEND_E_FORMAT, "a pattern has '\\%c{' without '}'", c);
        }
        out += pattern.substr(at, close + 1 - at);
        at = close + 1;
        return Status::ok();
      }
      out += pattern.substr(at, 2);
      break;
    // Word characters, line ends and others that the two libraries define differently.
    case 'w':
    case 'W':
    case 'b':
    case 'B':
    case 'h':
    case 'H':
    case 'R':
    case 'X':
    case 'G':
    case 'K':
    case 'g':
    case 'k':
    case 'N':
    case 'O':
    case 'C':
    case 'Q':
    case 'Z':
      return differs(pattern.substr(at, 2));
    default:
      out += pattern.substr(at, 2);
      break;
  }
  at += 2;
  return Status::ok();
}

// "(?m" and the like, which change '.' and line ends.
bool sets_lines(std::string_view rest) {
  if (!rest.starts_with("(?")) return false;
  const std::string_view letters = rest.substr(2, rest.find_first_of(":)") - 2);
  return letters.find_first_not_of("imsxnUJ-^") == std::string_view::npos &&
         letters.find_first_of("msnUJ^") != std::string_view::npos;
}

// The pattern for PCRE2.
Result<std::string> translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t at = 0; at < pattern.size();) {
    const std::string_view rest = pattern.substr(at);
    if (rest[0] == '\\') {
      BLEND_RETURN_IF_ERROR(translate_escape(pattern, in_class, at, out));
      continue;
    }
    if (in_class) {
      // Only Oniguruma has sets within sets and their intersections.
      if (rest[0] == '[' || rest.starts_with("&&")) return differs(rest.substr(0, 2));
      in_class = rest[0] != ']';
    } else if (rest[0] == '[') {
      in_class = true;
      if (rest.starts_with("[]") || rest.starts_with("[^]")) return differs(rest.substr(0, 2));
    } else if (rest.starts_with("(*") || rest.starts_with("(?C") || rest.starts_with("(?R") ||
               rest.starts_with("(?&") || sets_lines(rest)) {
      return differs(rest.substr(0, 3));
    } else if (rest.starts_with("}+")) {
      return differs(rest.substr(0, 2));  // possessive to one, a repeat of a repeat to the other
    }
    out.push_back(rest[0]);
    ++at;
  }
  return out;
}

template <typename T, void (*release)(T*)>
struct Release {
  void operator()(T* p) const { release(p); }
};
using CompileContext = std::unique_ptr<pcre2_compile_context,
                                       Release<pcre2_compile_context, pcre2_compile_context_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Release<pcre2_match_context, pcre2_match_context_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Release<pcre2_match_data, pcre2_match_data_free>>;

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* c) : code(c) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return make_error(BLEND_E_UNSUPPORTED, "a pattern of %zu bytes; up to %zu are allowed",
                      pattern.size(), kMaxPattern);
  }
  BLEND_ASSIGN(std::string translated, translate(pattern));
  return compile_translated(std::move(translated), pattern);
}

Result<Regex> Regex::literal(std::string_view text) {
  if (text.size() > kMaxPattern / 8) {
    return make_error(BLEND_E_UNSUPPORTED, "a text of %zu bytes to split at; up to %zu are allowed",
                      text.size(), kMaxPattern / 8);
  }
  std::string quoted;
  for (const char c : text) {
    // After a backslash, characters other than letters and digits stand for themselves.
    const auto byte = static_cast<uint8_t>(c);
    const bool plain =
        byte >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == '\0') {
      quoted += "\\x00";
    } else {
      if (!plain) quoted.push_back('\\');
      quoted.push_back(c);
    }
  }
  return compile_translated(std::move(quoted), text);
}

Result<Regex> Regex::compile_translated(std::string translated, std::string_view pattern) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return Status::out_of_memory();
  pcre2_set_parens_nest_limit(context.get(), 64);
  int error = 0;
  PCRE2_SIZE where = 0;
  // Oniguruma's ^ and $ hold at every line.
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions,
                    &error, &where, context.get());
  if (code == nullptr) {
    if (error == PCRE2_ERROR_HEAP_FAILED || error == PCRE2_ERROR_NOMEMORY) {
      return Status::out_of_memory();
    }
    char text[160] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    return make_error(BLEND_E_FORMAT, "the pattern '%.120s' is not valid: %s",
                      std::string(pattern).c_str(), text);
  }
  Regex regex;
  // From here on the code has an owner, whatever throws.
  std::unique_ptr<pcre2_code, Release<pcre2_code, pcre2_code_free>> guard(code);
  regex.code_ = std::make_shared<const Code>(code);
  (void)guard.release();
  regex.pattern_ = pattern;
  // Machines that forbid writing code at run time interpret it.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return regex;
}

Status Regex::find_all(std::string_view text, std::vector<TextRange>& out) const {
  out.clear();
  if (text.empty()) return Status::ok();
  const MatchContext context(pcre2_match_context_create(nullptr));
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (context == nullptr || data == nullptr) return Status::out_of_memory();
  pcre2_set_heap_limit(context.get(), kMatchHeapKiB);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at < text.size();) {
    const uint64_t steps = kMatchSteps + uint64_t{kMatchStepsPerByte} * (text.size() - at);
    pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<uint64_t>(
                                             steps, std::numeric_limits<uint32_t>::max())));
    int rc = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(),
                         context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // its stack is small and fixed
      rc = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) return Status::ok();
    if (rc == PCRE2_ERROR_NOMEMORY) return Status::out_of_memory();
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(data.get());
    if (rc < 0 || range[0] < at || range[1] < range[0] || range[1] > text.size()) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "the tokenizer's pattern '%.120s' takes too long after byte %zu of a text "
                        "of %zu (PCRE2 %d)",
                        pattern_.c_str(), at, text.size(), rc);
    }
    out.push_back({range[0], range[1]});
    at = range[1];
    // An empty match does not occur twice at one position.
    if (range[0] == range[1]) at += at < text.size() ? utf8_length(text.substr(at)) : 1;
  }
  return Status::ok();
}

}  // namespace blend
