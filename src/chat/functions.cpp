#include "chat/functions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

namespace blend::chat {
namespace {

using Given = CallArguments;

Status unknown(const char* what, const std::string& name) {
  return make_error(BLEND_E_UNSUPPORTED,
                    "the chat template uses the %s '%.60s', which libblend does not know; give "
                    "another template",
                    what, name.c_str());
}

Status wrong(const char* what, const Value& value) {
  return make_error(BLEND_E_INVALID_ARGUMENT, "the chat template applies '%s' to %s%s%s", what,
                    value.kind(), value.is_undefined() ? ": " : "",
                    value.is_undefined() ? value.undefined()->name.c_str() : "");
}

// ---- strings

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

enum Side : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };

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

Result<Value> change_case(const std::string& name, const Text& text, Meter& meter) {
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
    begins = name == "title" && !letter;
    out.append({&c, 1}, text.origin(i));
  }
  return Value::of(std::move(out));
}

Result<Value> replace(const Text& text, const Given& given, Meter& meter) {
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

Result<Value> split(const Text& text, const Given& given, bool from_right, Meter& meter) {
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
Result<Value> affix(const Text& text, const Given& given, bool front) {
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

Result<Value> join(const Value& value, const Given& given, Meter& meter) {
  BLEND_ASSIGN(List items, items_of(value, meter));
  const Value* const between = given.get(0, "d");
  const Value* const attribute = given.get(1, "attribute");
  Text separator;
  if (between != nullptr) {
    BLEND_ASSIGN(separator, to_text(*between));
  }
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (attribute != nullptr) {
      BLEND_ASSIGN(items[i], item_of(items[i], *attribute));
    }
    BLEND_RETURN_IF_ERROR(meter.take(items[i].weight() + separator.weight()));
    if (i > 0) out.append(separator);
    BLEND_ASSIGN(const Text text, to_text(items[i]));
    out.append(text);
  }
  return Value::of(std::move(out));
}

Result<Value> indent(const Text& text, const Given& given, Meter& meter) {
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
  const std::string& bytes = text.bytes();
  Text out;
  for (size_t begin = 0;;) {
    const size_t newline = bytes.find('\n', begin);
    const size_t end = newline == std::string::npos ? bytes.size() : newline;
    BLEND_RETURN_IF_ERROR(meter.take(by.weight() + end - begin + 1));
    const bool wanted = begin == 0 ? first != nullptr && first->truth()
                                   : end > begin || (blank != nullptr && blank->truth());
    if (wanted) out.append(by);
    if (newline == std::string::npos) {
      out.append(text, begin, end);
      return Value::of(std::move(out));
    }
    out.append(text, begin, end + 1);
    begin = end + 1;
  }
}

// ---- lists

Result<Value> length(const Value& value, Meter& meter) {
  if (const Text* const text = value.text()) {
    BLEND_RETURN_IF_ERROR(meter.take(text->size()));
    return Value::of(static_cast<int64_t>(characters(text->bytes()).size() - 1));
  }
  if (value.list() != nullptr) return Value::of(static_cast<int64_t>(value.list()->size()));
  if (value.dict() != nullptr) return Value::of(static_cast<int64_t>(value.dict()->size()));
  if (value.is_undefined()) return Value::of(int64_t{0});
  return wrong("length", value);
}

Result<Value> pairs(const Dict& dict, Meter& meter) {
  List out;
  BLEND_RETURN_IF_ERROR(meter.take(dict.size() * 4 * sizeof(Value)));
  for (const auto& [key, member] : dict) {
    BLEND_ASSIGN(Value pair, Value::list({key, member}));
    out.push_back(std::move(pair));
  }
  return Value::list(std::move(out));
}

// map(attribute=...), map("filter", ...)
Result<Value> map(const Value& value, const Given& given, Meter& meter) {
  BLEND_ASSIGN(List items, items_of(value, meter));
  const Value* const attribute = given.get(SIZE_MAX, "attribute");
  const Value* const otherwise = given.get(SIZE_MAX, "default");
  Given rest;
  std::string filter;
  if (attribute == nullptr) {
    const Value* const name = given.get(0, "");
    if (name == nullptr || name->text() == nullptr) return unknown("filter", "map of no filter");
    filter = name->text()->bytes();
    rest = given;
    rest.positional.erase(rest.positional.begin());
  }
  for (Value& item : items) {
    BLEND_RETURN_IF_ERROR(meter.take(1));
    if (attribute != nullptr) {
      BLEND_ASSIGN(item, item_of(item, *attribute));
      if (item.is_undefined() && otherwise != nullptr) item = *otherwise;
    } else {
      BLEND_ASSIGN(item, apply_filter(filter, item, rest, meter));
    }
  }
  return Value::list(std::move(items));
}

// select, reject, selectattr, rejectattr
Result<Value> select(const std::string& name, const Value& value, const Given& given,
                     Meter& meter) {
  BLEND_ASSIGN(const List items, items_of(value, meter));
  const bool by_attribute = name.ends_with("attr");
  const bool wanted = name.starts_with("select");
  Given rest = given;
  const auto take = [&] {
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) return unknown("filter", name + " of no attribute");
    attribute = take();
  }
  std::string test;
  if (!rest.positional.empty()) {
    const Value first = take();
    if (first.text() == nullptr) return wrong(name.c_str(), first);
    test = first.text()->bytes();
  }
  List out;
  for (const Value& item : items) {
    BLEND_RETURN_IF_ERROR(meter.take(1));
    Value judged = item;
    if (by_attribute) {
      BLEND_ASSIGN(judged, item_of(item, attribute));
    }
    bool holds = judged.truth();
    if (!test.empty()) {
      BLEND_ASSIGN(holds, apply_test(test, judged, rest, meter));
    }
    if (holds == wanted) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Result<Value> unique(const Value& value, Meter& meter) {
  BLEND_ASSIGN(const List items, items_of(value, meter));
  List out;
  for (const Value& item : items) {
    BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
    if (std::none_of(out.begin(), out.end(), [&](const Value& v) { return equal(v, item); })) {
      out.push_back(item);
    }
  }
  return Value::list(std::move(out));
}

Result<Value> sort(const std::string& name, const Value& value, const Given& given, Meter& meter) {
  if (!given.named.empty() || !given.positional.empty()) {
    return unknown("filter", name + " with arguments");
  }
  List items;
  if (name == "dictsort") {
    if (value.dict() == nullptr) return wrong("dictsort", value);
    BLEND_ASSIGN(const Value all, pairs(*value.dict(), meter));
    items = *all.list();
  } else {
    BLEND_ASSIGN(items, items_of(value, meter));
  }
  BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
  // Jinja sorts without regard to case; which texts have one libblend knows of ASCII.
  const auto key = [&](const Value& item) -> Value {
    const Value& v = name == "dictsort" ? (*item.list())[0] : item;
    if (v.text() == nullptr) return v;
    std::string lower = v.text()->bytes();
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    return Value::text(lower);
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(key(item), std::move(item));
  for (size_t i = 0; i < keyed.size(); ++i) {
    const Value& k = keyed[i].first;
    if (!less(keyed[0].first, k)) return wrong(name.c_str(), k);
    const double* const x = k.real();
    if (x != nullptr && std::isnan(*x)) return wrong(name.c_str(), k);
  }
  // Insertion by binary search keeps to what the meter has paid for, whatever the order.
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return less(a.first, b.first).value_or(false);
  });
  items.clear();
  for (auto& [k, item] : keyed) items.push_back(std::move(item));
  return Value::list(std::move(items));
}

// ---- numbers

Result<Value> to_integer(const Value& value, const Given& given) {
  int64_t n = 0;
  double x = 0;
  if (value.as_integer(n)) return Value::of(n);
  if (value.as_number(x) && std::fabs(x) < 9e18) return Value::of(static_cast<int64_t>(x));
  if (const Text* const text = value.text()) {
    const std::string_view s = text->bytes();
    const size_t begin = leading(s, nullptr);
    const size_t end = std::max(begin, trailing(s, nullptr));
    const auto done = std::from_chars(s.data() + begin, s.data() + end, n);
    if (done.ec == std::errc() && done.ptr == s.data() + end && end > begin) return Value::of(n);
  }
  const Value* const otherwise = given.get(0, "default");
  return otherwise == nullptr ? Value::of(int64_t{0}) : *otherwise;
}

}  // namespace

Status Meter::take(size_t n) {
  if (n > fuel_) {
    fuel_ = 0;
    return make_error(BLEND_E_UNSUPPORTED,
                      "the chat template takes more work or memory than libblend allows one; give "
                      "another template");
  }
  fuel_ -= n;
  return Status::ok();
}

const Value* CallArguments::get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<Value> apply_filter(const std::string& name, const Value& value, const Given& given,
                           Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(8));
  if (name == "default" || name == "d") {
    const Value* const otherwise = given.get(0, "default_value");
    const Value* const falsy = given.get(1, "boolean");
    const bool missing =
        value.is_undefined() || (falsy != nullptr && falsy->truth() && !value.truth());
    if (!missing) return value;
    return otherwise == nullptr ? Value::text("") : *otherwise;
  }
  if (name == "length" || name == "count") return length(value, meter);
  if (name == "tojson") {
    int64_t width = -1;
    if (const Value* const w = given.get(SIZE_MAX, "indent"); w != nullptr && !w->is_none()) {
      if (!w->as_integer(width)) return wrong("tojson", *w);
    }
    for (const auto& [key, option] : given.named) {
      if (key != "indent" && !(key == "ensure_ascii" && !option.truth())) {
        return unknown("filter", "tojson(" + key + "=...)");
      }
    }
    BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
    BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
    BLEND_ASSIGN(Text text, to_json(value, width));
    return Value::of(std::move(text));
  }
  if (name == "items") {
    if (value.is_undefined()) return Value::list({});
    return value.dict() == nullptr ? Result<Value>(wrong("items", value))
                                   : pairs(*value.dict(), meter);
  }
  if (name == "list" || name == "reverse") {
    if (name == "reverse" && value.text() != nullptr) {
      const Value step = Value::of(int64_t{-1});
      return slice_of(value, nullptr, nullptr, &step, meter);
    }
    BLEND_ASSIGN(List items, items_of(value, meter));
    if (name == "reverse") std::reverse(items.begin(), items.end());
    return Value::list(std::move(items));
  }
  if (name == "first" || name == "last") {
    BLEND_ASSIGN(const List items, items_of(value, meter));
    if (items.empty()) return Value::undefined("the " + name + " of no items");
    return name == "first" ? items.front() : items.back();
  }
  if (name == "join") return join(value, given, meter);
  if (name == "map") return map(value, given, meter);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return select(name, value, given, meter);
  }
  if (name == "unique") return unique(value, meter);
  if (name == "sort" || name == "dictsort") return sort(name, value, given, meter);
  if (name == "int") return to_integer(value, given);
  if (name == "float") {
    double x = 0;
    if (value.as_number(x)) return Value::of(x);
    return unknown("filter", "float of what is no number");
  }
  if (name == "abs") {
    int64_t n = 0;
    double x = 0;
    if (value.as_integer(n) && n != INT64_MIN) return Value::of(n < 0 ? -n : n);
    if (value.as_number(x)) return Value::of(std::fabs(x));
    return wrong("abs", value);
  }
  // The rest takes what str() makes of the value, as Jinja does.
  const bool known = name == "trim" || name == "upper" || name == "lower" || name == "title" ||
                     name == "capitalize" || name == "replace" || name == "string" ||
                     name == "safe" || name == "indent";
  if (!known) return unknown("filter", name);
  BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
  BLEND_ASSIGN(Text text, to_text(value));
  if (name == "string" || name == "safe") return Value::of(std::move(text));
  if (name == "trim") return strip(text, given.get(0, "chars"), kBoth, meter);
  if (name == "replace") return replace(text, given, meter);
  if (name == "indent") return indent(text, given, meter);
  return change_case(name, text, meter);
}

Result<bool> apply_test(const std::string& name, const Value& value, const Given& given,
                        Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(4));
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.text() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "iterable" || name == "sequence") {
    return value.text() != nullptr || value.list() != nullptr || value.dict() != nullptr ||
           value.is_undefined();
  }
  if (name == "number") return value.is_number();
  if (name == "integer") return value.integer() != nullptr;
  if (name == "float") return value.real() != nullptr;
  if (name == "boolean") return value.boolean() != nullptr;
  if (name == "true") return value.boolean() != nullptr && *value.boolean();
  if (name == "false") return value.boolean() != nullptr && !*value.boolean();
  if (name == "callable") return value.callable() != nullptr;
  if (name == "odd" || name == "even" || name == "divisibleby") {
    int64_t n = 0;
    int64_t by = 2;
    const Value* const other = given.get(0, "num");
    if (!value.as_integer(n)) return wrong(name.c_str(), value);
    if (name == "divisibleby" && (other == nullptr || !other->as_integer(by) || by == 0)) {
      return wrong(name.c_str(), value);
    }
    if (by == -1) return true;  // whose remainder of the least integer is none of C++'s
    return name == "odd" ? n % 2 != 0 : n % by == 0;
  }
  const Value* const other = given.get(0, "other");
  const bool compares = name == "eq" || name == "equalto" || name == "==" || name == "ne" ||
                        name == "sameas" || name == "in" || name == "lt" || name == "le" ||
                        name == "gt" || name == "ge";
  if (!compares || other == nullptr) return unknown("test", name);
  if (name == "in") return contains(*other, value, meter);
  BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
  if (name == "sameas") {
    const bool constants = (value.boolean() != nullptr && other->boolean() != nullptr) ||
                           value.is_none() || other->is_none();
    if (!constants) return unknown("test", "sameas of other than true, false and none");
    return equal(value, *other);
  }
  if (name == "ne") return !equal(value, *other);
  if (name == "eq" || name == "equalto" || name == "==") return equal(value, *other);
  const bool swapped = name == "gt" || name == "le";
  const std::optional<bool> order = swapped ? less(*other, value) : less(value, *other);
  if (!order) return wrong(name.c_str(), value);
  return name == "lt" || name == "gt" ? *order : !*order;
}

bool is_method(const Value& self, std::string_view name) {
  static constexpr std::string_view kOfText[] = {
      "strip", "lstrip", "rstrip", "split",      "rsplit",  "startswith", "endswith",
      "upper", "lower",  "title",  "capitalize", "replace", "join",       "find"};
  static constexpr std::string_view kOfDict[] = {"items", "keys", "values", "get"};
  if (self.text() != nullptr) {
    return std::find(std::begin(kOfText), std::end(kOfText), name) != std::end(kOfText);
  }
  if (self.dict() != nullptr) {
    return std::find(std::begin(kOfDict), std::end(kOfDict), name) != std::end(kOfDict);
  }
  return self.loop() != nullptr && name == "cycle";
}

Result<Value> call_method(const std::string& name, const Value& self, const Given& given,
                          Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(8));
  if (const Text* const text = self.text()) {
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
      const Side side = name == "strip" ? kBoth : name == "lstrip" ? kLeft : kRight;
      return strip(*text, given.get(0, "chars"), side, meter);
    }
    if (name == "split" || name == "rsplit") return split(*text, given, name == "rsplit", meter);
    if (name == "startswith" || name == "endswith") {
      return affix(*text, given, name == "startswith");
    }
    if (name == "replace") return replace(*text, given, meter);
    if (name == "join") {
      Given by;
      by.positional.push_back(self);
      const Value* const items = given.get(0, "iterable");
      if (items == nullptr) return wrong("join", Value());
      return join(*items, by, meter);
    }
    if (name == "find") {
      const Value* const what = given.get(0, "sub");
      if (what == nullptr || what->text() == nullptr) return wrong("find", Value());
      BLEND_RETURN_IF_ERROR(meter.take(text->size()));
      const size_t at = text->bytes().find(what->text()->bytes());
      if (at == std::string::npos) return Value::of(int64_t{-1});
      return Value::of(static_cast<int64_t>(
          characters(std::string_view(text->bytes()).substr(0, at)).size() - 1));
    }
    return change_case(name, *text, meter);
  }
  if (const Dict* const dict = self.dict()) {
    if (name == "items") return pairs(*dict, meter);
    if (name == "get") {
      const Value* const key = given.get(0, "key");
      const Value* const otherwise = given.get(1, "default");
      if (key == nullptr) return wrong("get", Value());
      BLEND_ASSIGN(Value member, item_of(self, *key));
      if (!member.is_undefined()) return member;
      return otherwise == nullptr ? Value::none() : *otherwise;
    }
    BLEND_RETURN_IF_ERROR(meter.take(dict->size() * sizeof(Value)));
    List out;
    for (const auto& [key, member] : *dict) out.push_back(name == "keys" ? key : member);
    return Value::list(std::move(out));
  }
  if (const Loop* const loop = self.loop(); loop != nullptr && !given.positional.empty()) {
    return given.positional[loop->index % given.positional.size()];
  }
  return unknown("method", name);
}

}  // namespace blend::chat
