#include "chat/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/tokenizer/unicode.h"
#include "model/utf8.h"

namespace blend::chat {
namespace {

constexpr size_t kItemWeight = sizeof(Value);

size_t sum(size_t a, size_t b) {
  size_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? SIZE_MAX : out;
}

Status too_deep() {
  return make_error(BLEND_E_UNSUPPORTED, "the template nests lists and dicts more than %d deep",
                    Value::kMaxDepth);
}

// repr(float): the shortest digits that give the value back, as Python lays them out.
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

// repr(str), each byte with its origin.
void append_repr(const Text& text, Text& out) {
  const std::string& s = text.bytes();
  const bool has_single = s.find('\'') != std::string::npos;
  const char quote = has_single && s.find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1), kTemplate);
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    const uint32_t origin = text.origin(i);
    if (c == '\\' || c == quote) {
      const char escaped[] = {'\\', c};
      out.append({escaped, 2}, origin);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", origin);
    } else {
      const std::string_view character =
          std::string_view(s).substr(i, utf8_length(std::string_view(s).substr(i)));
      uint32_t code = 0;
      if (is_printable(character, code)) {
        out.append(text, i, i + character.size());
      } else {
        char escaped[16];
        const char* const form = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
        std::snprintf(escaped, sizeof escaped, form, code);
        out.append(escaped, origin);
      }
      i += character.size() - 1;
    }
  }
  out.append(std::string_view(&quote, 1), kTemplate);
}

void append_json_string(const Text& text, Text& out) {
  out.append("\"", kTemplate);
  const std::string& s = text.bytes();
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    const uint32_t origin = text.origin(i);
    switch (c) {
      case '"':
        out.append("\\\"", origin);
        break;
      case '\\':
        out.append("\\\\", origin);
        break;
      case '\n':
        out.append("\\n", origin);
        break;
      case '\r':
        out.append("\\r", origin);
        break;
      case '\t':
        out.append("\\t", origin);
        break;
      case '\b':
        out.append("\\b", origin);
        break;
      case '\f':
        out.append("\\f", origin);
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          char escaped[8];
          std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
          out.append(escaped, origin);
        } else {
          out.append({&c, 1}, origin);
        }
    }
  }
  out.append("\"", kTemplate);
}

// What str(), repr() and JSON have in common; false: none of these.
bool append_number(const Value& value, Text& out) {
  if (const int64_t* const n = value.integer()) {
    out.append(std::to_string(*n), kTemplate);
    return true;
  }
  if (const double* const x = value.real()) {
    out.append(repr_of(*x), kTemplate);
    return true;
  }
  return false;
}

Status no_text(const Value& value) {
  return make_error(BLEND_E_UNSUPPORTED, "the template writes %s as text", value.kind());
}

Status append_repr(const Value& value, Text& out) {
  if (append_number(value, out)) return Status::ok();
  if (value.is_none()) {
    out.append("None", kTemplate);
  } else if (const bool* const b = value.boolean()) {
    out.append(*b ? "True" : "False", kTemplate);
  } else if (const Text* const text = value.text()) {
    append_repr(*text, out);
  } else if (const List* const list = value.list()) {
    out.append("[", kTemplate);
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out.append(", ", kTemplate);
      BLEND_RETURN_IF_ERROR(append_repr((*list)[i], out));
    }
    out.append("]", kTemplate);
  } else if (const Dict* const dict = value.dict()) {
    out.append("{", kTemplate);
    for (size_t i = 0; i < dict->size(); ++i) {
      if (i > 0) out.append(", ", kTemplate);
      BLEND_RETURN_IF_ERROR(append_repr((*dict)[i].first, out));
      out.append(": ", kTemplate);
      BLEND_RETURN_IF_ERROR(append_repr((*dict)[i].second, out));
    }
    out.append("}", kTemplate);
  } else if (value.is_undefined()) {
    out.append("Undefined", kTemplate);
  } else {
    return no_text(value);
  }
  return Status::ok();
}

void new_line(int64_t indent, int64_t level, Text& out) {
  if (indent < 0) return;
  out.append("\n", kTemplate);
  out.append(std::string(static_cast<size_t>(indent * level), ' '), kTemplate);
}

Status append_json(const Value& value, const JsonForm& form, int64_t level, Text& out) {
  const int64_t indent = form.indent;
  if (append_number(value, out)) return Status::ok();
  if (value.is_none()) {
    out.append("null", kTemplate);
  } else if (const bool* const b = value.boolean()) {
    out.append(*b ? "true" : "false", kTemplate);
  } else if (const Text* const text = value.text()) {
    append_json_string(*text, out);
  } else if (const List* const list = value.list()) {
    out.append("[", kTemplate);
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out.append(form.comma, kTemplate);
      new_line(indent, level + 1, out);
      BLEND_RETURN_IF_ERROR(append_json((*list)[i], form, level + 1, out));
    }
    if (!list->empty()) new_line(indent, level, out);
    out.append("]", kTemplate);
  } else if (const Dict* const dict = value.dict()) {
    out.append("{", kTemplate);
    for (size_t i = 0; i < dict->size(); ++i) {
      if (i > 0) out.append(form.comma, kTemplate);
      new_line(indent, level + 1, out);
      const Value& key = (*dict)[i].first;
      if (key.text() != nullptr) {
        append_json_string(*key.text(), out);
      } else {  // a number or a constant becomes a string
        out.append("\"", kTemplate);
        BLEND_RETURN_IF_ERROR(append_json(key, {}, 0, out));
        out.append("\"", kTemplate);
      }
      out.append(form.colon, kTemplate);
      BLEND_RETURN_IF_ERROR(append_json((*dict)[i].second, form, level + 1, out));
    }
    if (!dict->empty()) new_line(indent, level, out);
    out.append("}", kTemplate);
  } else {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the template writes %s as JSON", value.kind());
  }
  return Status::ok();
}

}  // namespace

Result<Value> Value::list(List items) {
  int depth = 0;
  size_t weight = kItemWeight;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth());
    weight = sum(weight, sum(kItemWeight, item.weight()));
  }
  if (depth >= kMaxDepth) return too_deep();
  return Value(std::make_shared<const Items>(Items{std::move(items), depth + 1, weight}));
}

Result<Value> Value::dict(Dict items) {
  int depth = 0;
  size_t weight = kItemWeight;
  for (const auto& [name, item] : items) {
    depth = std::max({depth, name.depth(), item.depth()});
    weight = sum(weight, sum(2 * kItemWeight, sum(name.weight(), item.weight())));
  }
  if (depth >= kMaxDepth) return too_deep();
  return Value(std::make_shared<const Members>(Members{std::move(items), depth + 1, weight}));
}

Result<Value> Value::from_json(const Json& json, uint32_t origin) {
  int64_t n = 0;
  double x = 0;
  if (json.is_null()) return none();
  if (const bool* const b = json.boolean()) return of(*b);
  if (const std::string* const s = json.string()) return text(*s, origin);
  if (const Json::Array* const array = json.array()) {
    List items;
    for (const Json& item : *array) {
      BLEND_ASSIGN(Value value, from_json(item, origin));
      items.push_back(std::move(value));
    }
    return list(std::move(items));
  }
  if (const Json::Object* const object = json.object()) {
    Dict items;
    for (const auto& [name, member] : *object) {
      BLEND_ASSIGN(Value value, from_json(member, origin));
      items.emplace_back(text(name, origin), std::move(value));
    }
    return dict(std::move(items));
  }
  if (json.real() != nullptr) return of(*json.real());  // 1.0 is written as 1.0
  if (json.integer(n)) return of(n);
  json.number(x);
  return make_error(BLEND_E_UNSUPPORTED, "%.17g is a whole number of more than 64 bits", x);
}

const List* Value::list() const {
  const Items* const items = shared<Items>();
  return items == nullptr ? nullptr : &items->list;
}

const Dict* Value::dict() const {
  const Members* const members = shared<Members>();
  return members == nullptr ? nullptr : &members->dict;
}

int Value::depth() const {
  if (const Items* const items = shared<Items>()) return items->depth;
  if (const Members* const members = shared<Members>()) return members->depth;
  // A method holds what it is of.
  if (const Callable* const c = callable(); c != nullptr && c->self != nullptr) {
    return c->self->depth() + 1;
  }
  return 0;
}

size_t Value::weight() const {
  if (const Text* const t = text()) return t->weight();
  if (const Items* const items = shared<Items>()) return items->weight;
  if (const Members* const members = shared<Members>()) return members->weight;
  return 1;
}

bool Value::as_integer(int64_t& out) const {
  if (const bool* const b = boolean()) {
    out = *b ? 1 : 0;
    return true;
  }
  if (const int64_t* const n = integer()) {
    out = *n;
    return true;
  }
  return false;
}

bool Value::as_number(double& out) const {
  if (const double* const x = real()) {
    out = *x;
    return true;
  }
  int64_t n = 0;
  if (!as_integer(n)) return false;
  out = static_cast<double>(n);
  return true;
}

bool Value::is_number() const {
  double x = 0;
  return as_number(x);
}

bool Value::truth() const {
  double x = 0;
  if (as_number(x)) return x != 0;
  if (const Text* const t = text()) return !t->empty();
  if (const List* const l = list()) return !l->empty();
  if (const Dict* const d = dict()) return !d->empty();
  return !is_undefined() && !is_none();
}

const char* Value::kind() const {
  if (is_undefined()) return "something undefined";
  if (is_none()) return "none";
  if (boolean() != nullptr) return "a boolean";
  if (is_number()) return "a number";
  if (text() != nullptr) return "a string";
  if (list() != nullptr) return "a list";
  if (dict() != nullptr) return "a mapping";
  if (space() != nullptr) return "a namespace";
  if (loop() != nullptr) return "a loop";
  return "a function";
}

bool equal(const Value& a, const Value& b) {
  double x = 0;
  double y = 0;
  int64_t n = 0;
  int64_t m = 0;
  if (a.as_integer(n) && b.as_integer(m)) return n == m;
  if (a.as_number(x) && b.as_number(y)) return x == y;
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes() == b.text()->bytes();
  if (a.list() != nullptr && b.list() != nullptr) {
    return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(),
                      equal);
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->size() != b.dict()->size()) return false;
    return std::all_of(a.dict()->begin(), a.dict()->end(), [&](const auto& member) {
      return std::any_of(b.dict()->begin(), b.dict()->end(), [&](const auto& other) {
        return equal(member.first, other.first) && equal(member.second, other.second);
      });
    });
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  return a.space() != nullptr && a.space() == b.space();
}

std::optional<bool> less(const Value& a, const Value& b) {
  int64_t n = 0;
  int64_t m = 0;
  if (a.as_integer(n) && b.as_integer(m)) return n < m;
  double x = 0;
  double y = 0;
  if (a.as_number(x) && b.as_number(y)) return x < y;
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes() < b.text()->bytes();
  return std::nullopt;
}

const Value* find(const Dict& dict, std::string_view name) {
  for (const auto& [key, value] : dict) {
    if (key.text() != nullptr && key.text()->bytes() == name) return &value;
  }
  return nullptr;
}

Result<Text> to_text(const Value& value) {
  if (const Text* const text = value.text()) return *text;
  Text out;
  if (value.is_undefined()) return out;
  BLEND_RETURN_IF_ERROR(append_repr(value, out));
  return out;
}

Result<Text> to_json(const Value& value, const JsonForm& form) {
  Text out;
  JsonForm f = form;
  f.indent = std::min<int64_t>(f.indent, 16);
  if (f.comma.empty()) f.comma = f.indent < 0 ? ", " : ",";
  BLEND_RETURN_IF_ERROR(append_json(value, f, 0, out));
  return out;
}

}  // namespace blend::chat
