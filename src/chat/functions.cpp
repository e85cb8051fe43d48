#include "chat/functions.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/strings.h"

namespace blend::chat {
namespace {

using Given = CallArguments;

// The parameters of what is called, in their order; an argument that is none of them would be left
// out in silence.
struct Signature {
  std::string_view name;
  std::string_view parameters[3] = {};
};
constexpr Signature kFilters[] = {{"default", {"default_value", "boolean"}},
                                  {"d", {"default_value", "boolean"}},
                                  {"join", {"d", "attribute"}},
                                  {"int", {"default"}},
                                  {"float", {"default"}},
                                  {"trim", {"chars"}},
                                  {"replace", {"old", "new", "count"}},
                                  {"indent", {"width", "first", "blank"}}};
constexpr Signature kMethods[] = {{"strip", {"chars"}},
                                  {"lstrip", {"chars"}},
                                  {"rstrip", {"chars"}},
                                  {"split", {"sep", "maxsplit"}},
                                  {"rsplit", {"sep", "maxsplit"}},
                                  {"startswith", {"prefix"}},
                                  {"endswith", {"prefix"}},
                                  {"replace", {"old", "new", "count"}},
                                  {"join", {"iterable"}},
                                  {"find", {"sub"}},
                                  {"get", {"key", "default"}}};
// Those that look at their arguments themselves.
constexpr std::string_view kOpen[] = {"map",    "select", "reject",   "selectattr", "rejectattr",
                                      "tojson", "sort",   "dictsort", "unique",     "cycle"};

template <size_t n>
Status check_arguments(const char* what, const std::string& name, const Signature (&known)[n],
                       const Given& given) {
  if (std::find(std::begin(kOpen), std::end(kOpen), name) != std::end(kOpen)) return Status::ok();
  const auto found = std::find_if(std::begin(known), std::end(known),
                                  [&](const Signature& s) { return s.name == name; });
  const Signature none;
  const Signature& s = found == std::end(known) ? none : *found;
  const auto is_parameter = [&](std::string_view p) {
    return std::find(std::begin(s.parameters), std::end(s.parameters), p) != std::end(s.parameters);
  };
  const auto count =
      static_cast<size_t>(std::count_if(std::begin(s.parameters), std::end(s.parameters),
                                        [](std::string_view p) { return !p.empty(); }));
  if (given.positional.size() > count) {
    return unknown(what, name + " with " + std::to_string(given.positional.size()) + " arguments");
  }
  for (const auto& [key, value] : given.named) {
    if (is_parameter(key)) continue;
    std::string shown = name;
    shown.append("(").append(key).append("=...)");
    return unknown(what, shown);
  }
  return Status::ok();
}

// As Jinja compares texts where it asks not for their case; which have one libblend knows of ASCII.
Value folded(const Value& value) {
  if (value.text() == nullptr) return value;
  std::string lower = value.text()->bytes();
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return Value::text(lower);
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
  // Jinja runs through what is true: none has no items.
  BLEND_ASSIGN(List items, value.truth() ? items_of(value, meter) : List());
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
  // Jinja runs through what is true: none has no items.
  BLEND_ASSIGN(const List items, value.truth() ? items_of(value, meter) : List());
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

Result<Value> unique(const Value& value, const Given& given, Meter& meter) {
  if (!given.named.empty() || !given.positional.empty()) {
    return unknown("filter", "unique with arguments");
  }
  BLEND_ASSIGN(const List items, items_of(value, meter));
  List keys;
  List out;
  for (const Value& item : items) {
    BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
    const Value key = folded(item);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& v) { return equal(v, key); })) {
      continue;
    }
    keys.push_back(key);
    out.push_back(item);
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
  const auto key = [&](const Value& item) {
    return folded(name == "dictsort" ? (*item.list())[0] : item);
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
  if (value.is_undefined()) return wrong("int", value);
  int64_t n = 0;
  double x = 0;
  if (value.as_integer(n)) return Value::of(n);
  if (value.as_number(x) && std::fabs(x) < 9e18) return Value::of(static_cast<int64_t>(x));
  if (const Text* const text = value.text()) {
    const std::string_view s = stripped(text->bytes());
    const auto done = std::from_chars(s.data(), s.data() + s.size(), n);
    if (done.ec == std::errc() && done.ptr == s.data() + s.size()) return Value::of(n);
  }
  const Value* const otherwise = given.get(0, "default");
  return otherwise == nullptr ? Value::of(int64_t{0}) : *otherwise;
}

}  // namespace

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
  BLEND_RETURN_IF_ERROR(check_arguments("filter", name, kFilters, given));
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
    JsonForm form;
    for (const auto& [key, option] : given.named) {
      const List* const pair = option.list();
      if (key == "separators" && pair != nullptr && pair->size() == 2 &&
          (*pair)[0].text() != nullptr && (*pair)[1].text() != nullptr) {
        form.comma = (*pair)[0].text()->bytes();
        form.colon = (*pair)[1].text()->bytes();
      } else if (key != "indent" && !(key == "ensure_ascii" && !option.truth()) &&
                 !(key == "sort_keys" && !option.truth())) {
        return unknown("filter", "tojson(" + key + "=...)");
      }
    }
    if (!given.positional.empty()) return unknown("filter", "tojson with arguments without names");
    BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
    BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
    form.indent = width;
    BLEND_ASSIGN(Text text, to_json(value, form));
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
  if (name == "unique") return unique(value, given, meter);
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
  return change_case(name, true, text, meter);
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
  if (name == "callable") return value.callable() != nullptr || value.is_undefined();
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
  BLEND_RETURN_IF_ERROR(check_arguments("method", name, kMethods, given));
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
    return change_case(name, false, *text, meter);
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
