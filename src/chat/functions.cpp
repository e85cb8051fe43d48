#include "chat/functions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "chat/builder.h"
#include "chat/filters.h"
#include "chat/print.h"
#include "chat/strings.h"

namespace blend::chat {
namespace {

using Given = CallArguments;

// The parameters of filters and methods, in order. Any other argument is refused: it would
// otherwise be ignored without notice.
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
// These check their arguments themselves.
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

// A filter's argument `attribute`: a member, or a member of a member ("function.name", "0.name").
class Attribute {
 public:
  static Result<Attribute> of(const Value& given, Meter& meter) {
    Attribute out;
    int64_t i = 0;
    if (given.as_integer(i)) {
      out.path_.push_back(Value::of(i));
      return out;
    }
    const Text* const text = given.text();
    if (text == nullptr) return unknown("filter", std::string("attribute of ") + given.kind());
    const std::string_view bytes = text->bytes();
    for (size_t begin = 0; begin <= bytes.size();) {
      const std::string_view part = bytes.substr(begin, bytes.find('.', begin) - begin);
      BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue + part.size()));
      out.path_.push_back(index_of(part));
      begin += part.size() + 1;
    }
    return out;
  }

  // The attribute of an item. `otherwise`, unless it is null, replaces a member that is missing.
  Result<Value> of_item(const Value& item, const Value* otherwise, Meter& meter) const {
    Value at = item;
    for (const Value& name : path_) {
      BLEND_ASSIGN(Value member, item_of(at, name, meter));
      if (member.is_undefined() && name.text() != nullptr &&
          (is_method(at, name.text()->bytes()) || is_unknown_member(at, name.text()->bytes()))) {
        return unknown("method", name.text()->bytes() + " as an attribute");
      }
      if (member.is_undefined() && otherwise != nullptr) member = *otherwise;
      at = std::move(member);
    }
    return at;
  }

 private:
  // A part of digits only is an index.
  static Value index_of(std::string_view part) {
    int64_t i = 0;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (part.empty() || !std::all_of(part.begin(), part.end(), is_digit)) return Value::text(part);
    const auto done = std::from_chars(part.data(), part.data() + part.size(), i);
    return Value::of(done.ec == std::errc() ? i : INT64_MAX);
  }

  std::vector<Value> path_;
};

// The argument `attribute`, if it is given.
Result<std::optional<Attribute>> attribute_of(const Value* given, Meter& meter) {
  if (given == nullptr || given->is_none()) return std::optional<Attribute>();
  BLEND_ASSIGN(Attribute out, Attribute::of(*given, meter));
  return std::optional<Attribute>(std::move(out));
}

Result<Value> join(const Value& value, const Given& given, Meter& meter) {
  BLEND_ASSIGN(const Value listed_value, listed(value, meter));
  const Value* const between = given.get(0, "d");
  BLEND_ASSIGN(const std::optional<Attribute> attribute,
               attribute_of(given.get(1, "attribute"), meter));
  Text separator;
  if (between != nullptr) {
    BLEND_ASSIGN(separator, to_text(*between, meter));
  }
  TextBuilder out(meter);
  bool first = true;
  for (const Value& item : *listed_value.list()) {
    if (!first) BLEND_RETURN_IF_ERROR(out.append(separator));
    first = false;
    if (!attribute) {
      BLEND_RETURN_IF_ERROR(append_text(item, out));
      continue;
    }
    BLEND_ASSIGN(const Value member, attribute->of_item(item, nullptr, meter));
    BLEND_RETURN_IF_ERROR(append_text(member, out));
  }
  return out.value();
}

// ---- lists

Result<Value> length(const Value& value, Meter& meter) {
  if (const Text* const text = value.text()) {
    BLEND_RETURN_IF_ERROR(meter.take(text->size()));
    BLEND_ASSIGN(const size_t n, count_characters(text->bytes(), meter));
    return Value::of(static_cast<int64_t>(n));
  }
  if (value.list() != nullptr) return Value::of(static_cast<int64_t>(value.list()->size()));
  if (value.dict() != nullptr) return Value::of(static_cast<int64_t>(value.dict()->size()));
  if (value.is_undefined()) return Value::of(int64_t{0});
  return wrong("length", value);
}

// As Jinja has it: the items of a true value; a false one, such as none, counts as empty.
Result<List> items_of_true(const Value& value, Meter& meter) {
  return value.truth() ? items_of(value, meter) : Result<List>(List());
}

// map(attribute=...), map("filter", ...)
Result<Value> map(const Value& value, const Given& given, Meter& meter) {
  BLEND_ASSIGN(List items, items_of_true(value, meter));
  const bool by_attribute = given.positional.empty();
  BLEND_ASSIGN(const std::optional<Attribute> attribute,
               attribute_of(by_attribute ? given.get(0, "attribute") : nullptr, meter));
  const Value* otherwise = given.get(SIZE_MAX, "default");
  if (otherwise != nullptr && otherwise->is_none()) otherwise = nullptr;
  for (const auto& [key, option] : given.named) {
    if (by_attribute && key != "attribute" && key != "default") {
      return unknown("filter", "map(" + key + "=...)");
    }
  }
  Given rest;
  std::string filter;
  if (!attribute) {
    const Value* const name = given.get(0, "");
    if (name == nullptr || name->text() == nullptr) return unknown("filter", "map of no filter");
    BLEND_RETURN_IF_ERROR(meter.take(name->text()->size()));
    filter = name->text()->bytes();
    BLEND_RETURN_IF_ERROR(take_list(given.positional.size() + given.named.size(), meter));
    rest = given;
    rest.positional.erase(rest.positional.begin());
  }
  for (Value& item : items) {
    if (attribute) {
      BLEND_ASSIGN(item, attribute->of_item(item, otherwise, meter));
    } else {
      BLEND_ASSIGN(item, apply_filter(filter, item, rest, meter));
    }
  }
  return Value::list(std::move(items));
}

// The test by which select and similar filters keep items.
struct Judge {
  std::optional<Attribute> attribute;
  std::string test;  // "": keep items that are true
  Given rest;        // of the test

  static Result<Judge> of(const std::string& name, const Given& given, Meter& meter) {
    Judge out;
    BLEND_RETURN_IF_ERROR(take_list(given.positional.size() + given.named.size(), meter));
    out.rest = given;
    std::vector<Value>& left = out.rest.positional;
    if (name.ends_with("attr")) {
      if (left.empty()) return unknown("filter", name + " of no attribute");
      BLEND_ASSIGN(out.attribute, Attribute::of(left.front(), meter));
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
      BLEND_ASSIGN(judged, attribute->of_item(item, nullptr, meter));
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

}  // namespace

Status unknown(const char* what, const std::string& name) {
  return make_error(BLEND_E_UNSUPPORTED,
                    "the chat template uses the %s '%.60s', which libblend does not support; give "
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

// The indentation of one level: a text, or a number of spaces.
Result<std::optional<Text>> indentation(const Value& option, Meter& meter) {
  int64_t n = 0;
  if (option.is_none()) return std::optional<Text>();
  if (const Text* const text = option.text()) {
    BLEND_RETURN_IF_ERROR(meter.take(text->weight()));
    return std::optional<Text>(*text);
  }
  if (!option.as_integer(n)) return wrong("tojson", option);
  const size_t spaces = n < 0 ? 0 : static_cast<size_t>(n);
  BLEND_RETURN_IF_ERROR(meter.take(spaces));
  return std::optional<Text>(Text(std::string(spaces, ' ')));
}

Result<Value> tojson(const Value& value, const Given& given, Meter& meter) {
  JsonForm form;
  bool separated = false;
  for (const auto& [key, option] : given.named) {
    if (key == "separators") {
      if (option.is_none()) continue;
      const List* const pair = option.list();
      if (pair == nullptr || pair->size() != 2 || (*pair)[0].text() == nullptr ||
          (*pair)[1].text() == nullptr) {
        return unknown("filter", "tojson(separators=...) of other than two strings");
      }
      separated = true;
      BLEND_RETURN_IF_ERROR(meter.take((*pair)[0].weight() + (*pair)[1].weight()));
      form.comma = *(*pair)[0].text();
      form.colon = *(*pair)[1].text();
    } else if (key == "indent") {
      BLEND_ASSIGN(form.indent, indentation(option, meter));
    } else if ((key != "ensure_ascii" && key != "sort_keys") || option.truth()) {
      return unknown("filter", "tojson(" + key + "=...)");
    }
  }
  if (!given.positional.empty()) return unknown("filter", "tojson with arguments without names");
  if (!separated && form.indent) form.comma = Text(",");
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
  if (value.as_integer(n)) {
    if (n == INT64_MIN) return unknown("filter", "abs of more than 64 bits");
    return Value::of(n < 0 ? -n : n);
  }
  if (value.as_number(x)) return Value::of(std::fabs(x));
  return wrong("abs", value);
}

// The arguments of the filter replace, converted to strings.
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

// Filters that Jinja applies to str(value).
Result<Value> filter_text(const std::string& name, const Value& value, const Given& given,
                          Meter& meter) {
  const bool known = name == "trim" || name == "upper" || name == "lower" || name == "title" ||
                     name == "capitalize" || name == "replace" || name == "string" ||
                     name == "safe" || name == "indent";
  if (!known) return unknown("filter", name);
  // Jinja's indent appends a newline to the value, which must be a string.
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
  // map() applies filters, which may be map() again.
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

bool is_unknown_member(const Value& self, std::string_view name) {
  static constexpr std::string_view kOfText[] = {
      "casefold",   "center",       "count",       "encode",      "expandtabs", "format",
      "format_map", "index",        "isalnum",     "isalpha",     "isascii",    "isdecimal",
      "isdigit",    "islower",      "isnumeric",   "isprintable", "isspace",    "istitle",
      "isupper",    "isidentifier", "ljust",       "maketrans",   "partition",  "rfind",
      "rindex",     "rjust",        "rpartition",  "splitlines",  "swapcase",   "translate",
      "zfill",      "removeprefix", "removesuffix"};
  static constexpr std::string_view kOfDict[] = {"clear",   "copy",       "fromkeys", "pop",
                                                 "popitem", "setdefault", "update"};
  static constexpr std::string_view kOfList[] = {"append", "clear",   "copy",   "count",
                                                 "extend", "index",   "insert", "pop",
                                                 "remove", "reverse", "sort"};
  static constexpr std::string_view kOfNumber[] = {
      "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
      "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
      "numerator",        "real",      "to_bytes"};
  const auto among = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return true;
  if (self.text() != nullptr) return among(kOfText);
  if (self.dict() != nullptr) return among(kOfDict);
  if (self.list() != nullptr) return among(kOfList);
  return self.is_number() && among(kOfNumber);
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
  for (const Value& item : *all.list()) {  // str.join refuses other types, the filter does not
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
    if (key->dict() != nullptr || (key->list() != nullptr && !key->is_tuple())) {
      return wrong("get", *key);
    }
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
