#include "chat/functions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "chat/arithmetic.h"
#include "chat/builder.h"
#include "chat/compare.h"
#include "chat/print.h"
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
Result<Value> folded(const Value& value, Meter& meter) {
  const Text* const text = value.text();
  if (text == nullptr) return value;
  BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue + text->size()));
  std::string lower = text->bytes();
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return Value::text(lower);
}

Result<Value> join(const Value& value, const Given& given, Meter& meter) {
  BLEND_ASSIGN(const Value listed_value, listed(value, meter));
  const Value* const between = given.get(0, "d");
  const Value* const attribute = given.get(1, "attribute");
  Text separator;
  if (between != nullptr) {
    BLEND_ASSIGN(separator, to_text(*between, meter));
  }
  TextBuilder out(meter);
  bool first = true;
  for (const Value& item : *listed_value.list()) {
    if (!first) BLEND_RETURN_IF_ERROR(out.append(separator));
    first = false;
    if (attribute == nullptr) {
      BLEND_RETURN_IF_ERROR(append_text(item, out));
      continue;
    }
    BLEND_ASSIGN(const Value member, item_of(item, *attribute, meter));
    BLEND_RETURN_IF_ERROR(append_text(member, out));
  }
  return out.value();
}

// ---- lists

Result<Value> length(const Value& value, Meter& meter) {
  if (const Text* const text = value.text()) {
    BLEND_RETURN_IF_ERROR(meter.take(text->size()));
    return Value::of(static_cast<int64_t>(count_characters(text->bytes())));
  }
  if (value.list() != nullptr) return Value::of(static_cast<int64_t>(value.list()->size()));
  if (value.dict() != nullptr) return Value::of(static_cast<int64_t>(value.dict()->size()));
  if (value.is_undefined()) return Value::of(int64_t{0});
  return wrong("length", value);
}

Result<Value> pairs(const Dict& dict, Meter& meter) {
  List out;
  BLEND_RETURN_IF_ERROR(take_list(dict.size(), meter));
  out.reserve(dict.size());
  for (const auto& [key, member] : dict) {
    BLEND_RETURN_IF_ERROR(take_list(2, meter));
    BLEND_ASSIGN(Value pair, Value::list({key, member}, true));
    out.push_back(std::move(pair));
  }
  return Value::list(std::move(out));
}

// Jinja runs through what is true: none has no items.
Result<List> items_of_true(const Value& value, Meter& meter) {
  return value.truth() ? items_of(value, meter) : Result<List>(List());
}

// map(attribute=...), map("filter", ...)
Result<Value> map(const Value& value, const Given& given, Meter& meter) {
  BLEND_ASSIGN(List items, items_of_true(value, meter));
  const Value* const attribute = given.get(SIZE_MAX, "attribute");
  const Value* const otherwise = given.get(SIZE_MAX, "default");
  Given rest;
  std::string filter;
  if (attribute == nullptr) {
    const Value* const name = given.get(0, "");
    if (name == nullptr || name->text() == nullptr) return unknown("filter", "map of no filter");
    BLEND_RETURN_IF_ERROR(meter.take(name->text()->size()));
    filter = name->text()->bytes();
    BLEND_RETURN_IF_ERROR(take_list(given.positional.size() + given.named.size(), meter));
    rest = given;
    rest.positional.erase(rest.positional.begin());
  }
  for (Value& item : items) {
    if (attribute != nullptr) {
      BLEND_ASSIGN(item, item_of(item, *attribute, meter));
      if (item.is_undefined() && otherwise != nullptr) item = *otherwise;
    } else {
      BLEND_ASSIGN(item, apply_filter(filter, item, rest, meter));
    }
  }
  return Value::list(std::move(items));
}

// What select and its like judge items by.
struct Judge {
  std::optional<Value> attribute;
  std::string test;  // "": whether it is true
  Given rest;        // of the test

  static Result<Judge> of(const std::string& name, const Given& given, Meter& meter) {
    Judge out;
    BLEND_RETURN_IF_ERROR(take_list(given.positional.size() + given.named.size(), meter));
    out.rest = given;
    std::vector<Value>& left = out.rest.positional;
    if (name.ends_with("attr")) {
      if (left.empty()) return unknown("filter", name + " of no attribute");
      out.attribute = left.front();
      left.erase(left.begin());
    }
    if (left.empty()) return out;
    const Text* const test = left.front().text();
    if (test == nullptr) return wrong(name.c_str(), left.front());
    BLEND_RETURN_IF_ERROR(meter.take(test->size()));
    out.test = test->bytes();
    left.erase(left.begin());
    return out;
  }
  Result<bool> holds(const Value& item, Meter& meter) const {
    Value judged = item;
    if (attribute) {
      BLEND_ASSIGN(judged, item_of(item, *attribute, meter));
    }
    if (test.empty()) return judged.truth();
    return apply_test(test, judged, rest, meter);
  }
};

// select, reject, selectattr, rejectattr
Result<Value> select(const std::string& name, const Value& value, const Given& given,
                     Meter& meter) {
  BLEND_ASSIGN(List items, items_of_true(value, meter));
  BLEND_ASSIGN(const Judge judge, Judge::of(name, given, meter));
  const bool wanted = name.starts_with("select");
  List out;
  for (Value& item : items) {
    BLEND_RETURN_IF_ERROR(meter.take(sizeof(Value)));
    BLEND_ASSIGN(const bool holds, judge.holds(item, meter));
    if (holds == wanted) out.push_back(std::move(item));
  }
  return Value::list(std::move(out));
}

// What sorts items, and what finds those that are alike.
struct Keyed {
  Value key;
  size_t index;
};

Result<std::vector<Keyed>> keyed(const std::string& name, const List& items, Meter& meter) {
  const bool by_first = name == "dictsort";
  BLEND_RETURN_IF_ERROR(meter.take(items.size(), sizeof(Keyed)));
  std::vector<Keyed> out;
  out.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    BLEND_ASSIGN(Value key, folded(by_first ? (*items[i].list())[0] : items[i], meter));
    if (!is_name(key)) return unknown("filter", name + " of " + key.kind());
    BLEND_RETURN_IF_ERROR(meter.take_search(items.size(), name_bytes(key)));
    out.push_back({std::move(key), i});
  }
  return out;
}

void sort_by_key(std::vector<Keyed>& keys) {
  // By the index too, which keeps the order of what is alike: std::stable_sort takes memory.
  std::sort(keys.begin(), keys.end(), [](const Keyed& a, const Keyed& b) {
    const int order = compare_names(a.key, b.key);
    return order != 0 ? order < 0 : a.index < b.index;
  });
}

Result<Value> unique(const Value& value, const Given& given, Meter& meter) {
  if (!given.named.empty() || !given.positional.empty()) {
    return unknown("filter", "unique with arguments");
  }
  BLEND_ASSIGN(const List items, items_of(value, meter));
  BLEND_ASSIGN(std::vector<Keyed> keys, keyed("unique", items, meter));
  sort_by_key(keys);
  std::vector<size_t> first;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i == 0 || compare_names(keys[i - 1].key, keys[i].key) != 0) first.push_back(keys[i].index);
  }
  std::sort(first.begin(), first.end());
  BLEND_RETURN_IF_ERROR(take_list(2 * first.size(), meter));
  List out;
  for (const size_t i : first) out.push_back(items[i]);
  return Value::list(std::move(out));
}

// What Python puts in an order: numbers, or strings.
Status check_order(const std::string& name, const std::vector<Keyed>& keys) {
  for (const Keyed& one : keys) {
    const double* const x = one.key.real();
    const bool alike = one.key.is_number() == keys[0].key.is_number();
    if (!alike || one.key.is_none() || (x != nullptr && std::isnan(*x))) {
      return wrong(name.c_str(), one.key);
    }
  }
  return Status::ok();
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
  BLEND_ASSIGN(std::vector<Keyed> keys, keyed(name, items, meter));
  BLEND_RETURN_IF_ERROR(check_order(name, keys));
  sort_by_key(keys);
  BLEND_RETURN_IF_ERROR(take_list(items.size(), meter));
  List out;
  out.reserve(items.size());
  for (const Keyed& one : keys) out.push_back(items[one.index]);
  return Value::list(std::move(out));
}

// ---- numbers

// A text's number; false: it is none, or not as Python reads one.
template <typename T>
bool read_number(const Text& text, T& out) {
  std::string_view s = stripped(text.bytes());
  if (s.starts_with('+') && !s.starts_with("+-")) s.remove_prefix(1);
  const auto done = std::from_chars(s.data(), s.data() + s.size(), out);
  return done.ec == std::errc() && done.ptr == s.data() + s.size();
}

// int, float
Result<Value> to_number(const std::string& name, const Value& value, const Given& given,
                        Meter& meter) {
  const bool whole = name == "int";
  if (value.is_undefined()) return wrong(name.c_str(), value);
  int64_t n = 0;
  double x = NAN;
  bool known = value.as_number(x);
  if (whole && value.as_integer(n)) return Value::of(n);
  if (const Text* const text = value.text()) {
    BLEND_RETURN_IF_ERROR(meter.take(text->size()));
    if (whole && read_number(*text, n)) return Value::of(n);
    known = read_number(*text, x);
  }
  if (known && !whole) return Value::of(x);
  constexpr double kMost = 9e18;
  if (known && std::fabs(x) < kMost) return Value::of(static_cast<int64_t>(x));
  const Value* const otherwise = given.get(0, "default");
  if (otherwise != nullptr) return *otherwise;
  return whole ? Value::of(int64_t{0}) : Value::of(0.0);
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
                    value.kind(), value.is_undefined() ? ": " : "", value.undefined_name());
}

const Value* CallArguments::get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

namespace {

Result<Value> tojson(const Value& value, const Given& given, Meter& meter) {
  JsonForm form;
  for (const auto& [key, option] : given.named) {
    const List* const pair = option.list();
    if (key == "separators" && pair != nullptr && pair->size() == 2 &&
        (*pair)[0].text() != nullptr && (*pair)[1].text() != nullptr) {
      BLEND_RETURN_IF_ERROR(meter.take((*pair)[0].weight() + (*pair)[1].weight()));
      form.comma = (*pair)[0].text()->bytes();
      form.colon = (*pair)[1].text()->bytes();
    } else if (key == "indent") {
      if (!option.is_none() && !option.as_integer(form.indent)) return wrong("tojson", option);
    } else if ((key != "ensure_ascii" && key != "sort_keys") || option.truth()) {
      return unknown("filter", "tojson(" + key + "=...)");
    }
  }
  if (!given.positional.empty()) return unknown("filter", "tojson with arguments without names");
  return to_json(value, form, meter);
}

Result<Value> default_of(const Value& value, const Given& given) {
  const Value* const otherwise = given.get(0, "default_value");
  const Value* const falsy = given.get(1, "boolean");
  const bool missing =
      value.is_undefined() || (falsy != nullptr && falsy->truth() && !value.truth());
  if (!missing) return value;
  return otherwise == nullptr ? Value::text("") : *otherwise;
}

Result<Value> first_or_last(const std::string& name, const Value& value, Meter& meter) {
  BLEND_ASSIGN(const Value items, listed(value, meter));
  if (items.list()->empty()) return Value::undefined("the " + name + " of no items");
  return name == "first" ? items.list()->front() : items.list()->back();
}

// list, reverse
Result<Value> as_list(const std::string& name, const Value& value, Meter& meter) {
  if (name == "reverse" && value.text() != nullptr) {
    const Value step = Value::of(int64_t{-1});
    return slice_of(value, nullptr, nullptr, &step, meter);
  }
  BLEND_ASSIGN(List items, items_of(value, meter));
  if (name == "reverse") std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Result<Value> absolute(const Value& value) {
  int64_t n = 0;
  double x = 0;
  if (value.as_integer(n) && n != INT64_MIN) return Value::of(n < 0 ? -n : n);
  if (value.as_number(x)) return Value::of(std::fabs(x));
  return wrong("abs", value);
}

// What replace() is given as a filter, which makes strings of it first.
Result<Given> as_texts(const Given& given, Meter& meter) {
  Given out;
  for (size_t i = 0; i < 2; ++i) {
    const Value* const one = given.get(i, i == 0 ? "old" : "new");
    if (one == nullptr) return wrong("replace", Value());
    BLEND_ASSIGN(Text text, to_text(*one, meter));
    BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue));
    out.positional.push_back(Value::of(std::move(text)));
  }
  if (const Value* const count = given.get(2, "count")) out.positional.push_back(*count);
  return out;
}

// Filters of what str() makes of the value, as Jinja has them.
Result<Value> filter_text(const std::string& name, const Value& value, const Given& given,
                          Meter& meter) {
  const bool known = name == "trim" || name == "upper" || name == "lower" || name == "title" ||
                     name == "capitalize" || name == "replace" || name == "string" ||
                     name == "safe" || name == "indent";
  if (!known) return unknown("filter", name);
  // Jinja adds a newline to what it indents.
  if (name == "indent" && value.text() == nullptr) return wrong("indent", value);
  Value said = value;
  if (value.text() == nullptr) {
    TextBuilder out(meter);
    BLEND_RETURN_IF_ERROR(append_text(value, out));
    BLEND_ASSIGN(said, out.value());
  }
  const Text& text = *said.text();
  if (name == "string" || name == "safe") return said;
  if (name == "trim") return strip(text, given.get(0, "chars"), kBoth, meter);
  if (name == "replace") {
    BLEND_ASSIGN(const Given texts, as_texts(given, meter));
    return replace(text, texts, meter);
  }
  if (name == "indent") return indent(text, given, meter);
  return change_case(name, true, text, meter);
}

}  // namespace

Result<Value> apply_filter(const std::string& name, const Value& value, const Given& given,
                           Meter& meter) {
  // map() applies filters, of which one may be map().
  const Meter::Depth depth(meter);
  BLEND_RETURN_IF_ERROR(depth.check());
  BLEND_RETURN_IF_ERROR(meter.take(32));
  BLEND_RETURN_IF_ERROR(check_arguments("filter", name, kFilters, given));
  if (name == "default" || name == "d") return default_of(value, given);
  if (name == "length" || name == "count") return length(value, meter);
  if (name == "tojson") return tojson(value, given, meter);
  if (name == "items") {
    if (value.is_undefined()) return Value::list({});
    return value.dict() == nullptr ? Result<Value>(wrong("items", value))
                                   : pairs(*value.dict(), meter);
  }
  if (name == "list" || name == "reverse") return as_list(name, value, meter);
  if (name == "first" || name == "last") return first_or_last(name, value, meter);
  if (name == "join") return join(value, given, meter);
  if (name == "map") return map(value, given, meter);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return select(name, value, given, meter);
  }
  if (name == "unique") return unique(value, given, meter);
  if (name == "sort" || name == "dictsort") return sort(name, value, given, meter);
  if (name == "int" || name == "float") return to_number(name, value, given, meter);
  if (name == "abs") return absolute(value);
  return filter_text(name, value, given, meter);
}

Result<bool> apply_test(const std::string& name, const Value& value, const Given& given,
                        Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(32));
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
    const Value* const num = given.get(0, "num");
    const Value by = name == "divisibleby" && num != nullptr ? *num : Value::of(int64_t{2});
    if (!value.is_number() || !by.is_number() || (name == "divisibleby" && num == nullptr)) {
      return wrong(name.c_str(), value);
    }
    BLEND_ASSIGN(const Value rest, combine("%", value, by, meter));
    return equal(rest, Value::of(int64_t{name == "odd" ? 1 : 0}), meter);
  }
  const Value* const other = given.get(0, "other");
  const bool compares = name == "eq" || name == "equalto" || name == "==" || name == "ne" ||
                        name == "sameas" || name == "in" || name == "lt" || name == "le" ||
                        name == "gt" || name == "ge";
  if (!compares || other == nullptr) return unknown("test", name);
  if (name == "in") return contains(*other, value, meter);
  if (name == "sameas") {
    const bool constants = (value.boolean() != nullptr && other->boolean() != nullptr) ||
                           value.is_none() || other->is_none();
    if (!constants) return unknown("test", "sameas of other than true, false and none");
    return equal(value, *other, meter);
  }
  if (name == "ne") {
    BLEND_ASSIGN(const bool same, equal(value, *other, meter));
    return !same;
  }
  if (name == "eq" || name == "equalto" || name == "==") return equal(value, *other, meter);
  const bool swapped = name == "gt" || name == "le";
  BLEND_ASSIGN(const std::optional<bool> order,
               swapped ? less(*other, value, meter) : less(value, *other, meter));
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
  return false;
}

namespace {

Result<Value> call_of_text(const std::string& name, const Value& self, const Given& given,
                           Meter& meter) {
  const Text& text = *self.text();
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Side side = name == "strip" ? kBoth : name == "lstrip" ? kLeft : kRight;
    return strip(text, given.get(0, "chars"), side, meter);
  }
  if (name == "split" || name == "rsplit") return split(text, given, name == "rsplit", meter);
  if (name == "startswith" || name == "endswith") {
    return affix(text, given, name == "startswith", meter);
  }
  if (name == "replace") return replace(text, given, meter);
  if (name == "find") return find_text(text, given, meter);
  if (name != "join") return change_case(name, false, text, meter);
  Given by;
  by.positional.push_back(self);
  const Value* const items = given.get(0, "iterable");
  if (items == nullptr) return wrong("join", Value());
  BLEND_ASSIGN(const Value all, listed(*items, meter));
  for (const Value& item : *all.list()) {  // str.join is strict where the filter is not
    if (item.text() == nullptr) return wrong("join", item);
  }
  return join(all, by, meter);
}

Result<Value> call_of_dict(const std::string& name, const Value& self, const Given& given,
                           Meter& meter) {
  const Dict& dict = *self.dict();
  if (name == "items") return pairs(dict, meter);
  if (name == "get") {
    const Value* const key = given.get(0, "key");
    const Value* const otherwise = given.get(1, "default");
    if (key == nullptr) return wrong("get", Value());
    BLEND_ASSIGN(const Value* const member, self.find(*key, meter));
    if (member != nullptr) return *member;
    return otherwise == nullptr ? Value::none() : *otherwise;
  }
  BLEND_RETURN_IF_ERROR(take_list(dict.size(), meter));
  List out;
  out.reserve(dict.size());
  for (const auto& [key, member] : dict) out.push_back(name == "keys" ? key : member);
  return Value::list(std::move(out));
}

}  // namespace

Result<Value> call_method(const std::string& name, const Value& self, const Given& given,
                          Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(32));
  BLEND_RETURN_IF_ERROR(check_arguments("method", name, kMethods, given));
  if (self.text() != nullptr) return call_of_text(name, self, given, meter);
  if (self.dict() != nullptr) return call_of_dict(name, self, given, meter);
  return unknown("method", name);
}

}  // namespace blend::chat
