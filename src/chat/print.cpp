#include "chat/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/tokenizer/unicode.h"
#include "model/utf8.h"

namespace blend::chat {
namespace {

// repr(float): the shortest digits that read back as the same value, in Python's format.
std::string repr_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(buffer, end.ptr);
  if (plain && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string json_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return repr_of(value);
}

// Prints into a builder. Recursive: values nest at most Value::kMaxDepth deep.
class Printer {
 public:
  explicit Printer(TextBuilder& out) : out_(out) {}

  Status repr(const Value& value);
  Status json(const Value& value, const JsonForm& form, int level);

 private:
  Status put(std::string_view text) { return out_.append(text, kTemplate); }
  Status repr_text(const Text& text);
  Status repr_dict(const Dict& dict);
  Status json_text(const Text& text);
  Status json_list(const List& list, const JsonForm& form, int level);
  Status json_dict(const Dict& dict, const JsonForm& form, int level);
  Status json_name(const Value& name);
  Status new_line(const JsonForm& form, int level);

  TextBuilder& out_;
};

// repr(str), each byte with its origin.
Status Printer::repr_text(const Text& text) {
  const std::string_view s = text.bytes();
  const bool has_single = s.find('\'') != std::string_view::npos;
  const char quote = has_single && s.find('"') == std::string_view::npos ? '"' : '\'';
  BLEND_RETURN_IF_ERROR(put({&quote, 1}));
  size_t done = 0;  // characters that need no escape are appended in one piece
  for (size_t i = 0; i < s.size();) {
    const char c = s[i];
    char escaped[16] = {'\\', c, '\0'};
    size_t n = 1;
    bool stays = c != '\\' && c != quote;
    if (c == '\n' || c == '\r' || c == '\t') {
      escaped[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
      stays = false;
    } else if (stays && (static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) >= 0x7F)) {
      n = utf8_length(s.substr(i));
      uint32_t code = 0;
      stays = is_printable(s.substr(i, n), code);
      const char* const form = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
      if (!stays) std::snprintf(escaped, sizeof escaped, form, code);
    }
    if (!stays) {
      BLEND_RETURN_IF_ERROR(out_.append(text, done, i));
      BLEND_RETURN_IF_ERROR(out_.append(escaped, text.origin(i)));
      done = i + n;
    }
    i += n;
  }
  BLEND_RETURN_IF_ERROR(out_.append(text, done, s.size()));
  return put({&quote, 1});
}

Status Printer::repr_dict(const Dict& dict) {
  BLEND_RETURN_IF_ERROR(put("{"));
  for (size_t i = 0; i < dict.size(); ++i) {
    if (i > 0) BLEND_RETURN_IF_ERROR(put(", "));
    BLEND_RETURN_IF_ERROR(repr(dict[i].first));
    BLEND_RETURN_IF_ERROR(put(": "));
    BLEND_RETURN_IF_ERROR(repr(dict[i].second));
  }
  return put("}");
}

Status Printer::repr(const Value& value) {
  if (const Text* const text = value.text()) return repr_text(*text);
  if (const int64_t* const n = value.integer()) return put(std::to_string(*n));
  if (const double* const x = value.real()) return put(repr_of(*x));
  if (const bool* const b = value.boolean()) return put(*b ? "True" : "False");
  if (value.is_none()) return put("None");
  if (value.is_undefined()) return put("Undefined");
  if (const Dict* const dict = value.dict()) return repr_dict(*dict);
  const List* const list = value.list();
  if (list == nullptr) {
    return make_error(BLEND_E_UNSUPPORTED, "the template writes %s as text", value.kind());
  }
  BLEND_RETURN_IF_ERROR(put(value.is_tuple() ? "(" : "["));
  for (size_t i = 0; i < list->size(); ++i) {
    if (i > 0) BLEND_RETURN_IF_ERROR(put(", "));
    BLEND_RETURN_IF_ERROR(repr((*list)[i]));
  }
  return put(!value.is_tuple() ? "]" : list->size() == 1 ? ",)" : ")");
}

Status Printer::json_text(const Text& text) {
  static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f";
  static constexpr std::string_view kTo = "\"\\nrtbf";
  BLEND_RETURN_IF_ERROR(put("\""));
  const std::string_view s = text.bytes();
  size_t done = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (static_cast<uint8_t>(c) >= 0x20 && c != '"' && c != '\\') continue;
    char escaped[8];
    const size_t known = kFrom.find(c);
    if (known != std::string_view::npos) {
      std::snprintf(escaped, sizeof escaped, "\\%c", kTo[known]);
    } else {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
    }
    BLEND_RETURN_IF_ERROR(out_.append(text, done, i));
    BLEND_RETURN_IF_ERROR(out_.append(escaped, text.origin(i)));
    done = i + 1;
  }
  BLEND_RETURN_IF_ERROR(out_.append(text, done, s.size()));
  return put("\"");
}

Status Printer::new_line(const JsonForm& form, int level) {
  if (!form.indent) return Status::ok();
  BLEND_RETURN_IF_ERROR(put("\n"));
  for (int i = 0; i < level; ++i) BLEND_RETURN_IF_ERROR(out_.append(*form.indent));
  return Status::ok();
}

Status Printer::json_list(const List& list, const JsonForm& form, int level) {
  BLEND_RETURN_IF_ERROR(put("["));
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) BLEND_RETURN_IF_ERROR(out_.append(form.comma));
    BLEND_RETURN_IF_ERROR(new_line(form, level + 1));
    BLEND_RETURN_IF_ERROR(json(list[i], form, level + 1));
  }
  if (!list.empty()) BLEND_RETURN_IF_ERROR(new_line(form, level));
  return put("]");
}

// Names of JSON objects are strings: a number or a constant is put in quotes.
Status Printer::json_name(const Value& name) {
  if (name.text() != nullptr) return json_text(*name.text());
  BLEND_RETURN_IF_ERROR(put("\""));
  BLEND_RETURN_IF_ERROR(json(name, {}, 0));
  return put("\"");
}

Status Printer::json_dict(const Dict& dict, const JsonForm& form, int level) {
  BLEND_RETURN_IF_ERROR(put("{"));
  for (size_t i = 0; i < dict.size(); ++i) {
    if (i > 0) BLEND_RETURN_IF_ERROR(out_.append(form.comma));
    BLEND_RETURN_IF_ERROR(new_line(form, level + 1));
    BLEND_RETURN_IF_ERROR(json_name(dict[i].first));
    BLEND_RETURN_IF_ERROR(out_.append(form.colon));
    BLEND_RETURN_IF_ERROR(json(dict[i].second, form, level + 1));
  }
  if (!dict.empty()) BLEND_RETURN_IF_ERROR(new_line(form, level));
  return put("}");
}

Status Printer::json(const Value& value, const JsonForm& form, int level) {
  if (const Text* const text = value.text()) return json_text(*text);
  if (const int64_t* const n = value.integer()) return put(std::to_string(*n));
  if (const double* const x = value.real()) return put(json_of(*x));
  if (const bool* const b = value.boolean()) return put(*b ? "true" : "false");
  if (value.is_none()) return put("null");
  if (const List* const list = value.list()) return json_list(*list, form, level);
  if (const Dict* const dict = value.dict()) return json_dict(*dict, form, level);
  return make_error(BLEND_E_INVALID_ARGUMENT, "the template writes %s as JSON", value.kind());
}

}  // namespace

Status append_text(const Value& value, TextBuilder& out) {
  if (const Text* const text = value.text()) return out.append(*text);
  return value.is_undefined() ? Status::ok() : Printer(out).repr(value);
}

Result<Text> to_text(const Value& value, Meter& meter) {
  TextBuilder out(meter);
  BLEND_RETURN_IF_ERROR(append_text(value, out));
  return out.take();
}

Result<Value> to_json(const Value& value, const JsonForm& form, Meter& meter) {
  TextBuilder out(meter);
  BLEND_RETURN_IF_ERROR(Printer(out).json(value, form, 0));
  return out.value();
}

}  // namespace blend::chat
