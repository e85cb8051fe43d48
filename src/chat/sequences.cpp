// Items, slices and membership.
#include <algorithm>

#include "chat/functions.h"
#include "model/utf8.h"

namespace blend::chat {
namespace {

Value undefined_item(const Value& index) {
  const Text* const name = index.text();
  return Value::undefined(name == nullptr ? "an item" : name->bytes().substr(0, 80));
}

// The bounds of a slice over n items, as Python has them.
struct Bounds {
  int64_t begin;
  int64_t end;
  int64_t step;
};

Result<Bounds> bounds_of(int64_t n, const Value* begin, const Value* end, const Value* step) {
  const auto read = [&](const Value* value, int64_t otherwise, int64_t low,
                        int64_t high) -> Result<int64_t> {
    int64_t i = 0;
    if (value == nullptr || value->is_none()) return otherwise;
    if (!value->as_integer(i)) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "the template slices by %s", value->kind());
    }
    if (i < 0) i = i < -n ? low : i + n;
    return std::clamp(i, low, high);
  };
  int64_t by = 1;
  if (step != nullptr && !step->is_none() && (!step->as_integer(by) || by == 0)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the template slices by steps of %s",
                      step->is_number() ? "0" : step->kind());
  }
  by = std::clamp<int64_t>(by, -n - 1, n + 1);
  Bounds out{0, 0, by};
  if (by > 0) {
    BLEND_ASSIGN(out.begin, read(begin, 0, 0, n));
    BLEND_ASSIGN(out.end, read(end, n, 0, n));
  } else {
    BLEND_ASSIGN(out.begin, read(begin, n - 1, -1, n - 1));
    BLEND_ASSIGN(out.end, read(end, -1, -1, n - 1));
  }
  return out;
}

}  // namespace

Result<Value> item_of(const Value& value, const Value& index) {
  int64_t i = 0;
  if (const Dict* const dict = value.dict()) {
    for (const auto& [key, member] : *dict) {
      if (equal(key, index)) return member;
    }
  } else if (const List* const list = value.list(); list != nullptr && index.as_integer(i)) {
    const auto n = static_cast<int64_t>(list->size());
    if (i < 0) i += n;
    if (i >= 0 && i < n) return (*list)[static_cast<size_t>(i)];
    return undefined_item(index);
  } else if (const Text* const text = value.text(); text != nullptr && index.as_integer(i)) {
    const std::vector<size_t> at = characters(text->bytes());
    const auto n = static_cast<int64_t>(at.size()) - 1;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return undefined_item(index);
    return Value::of(text->part(at[static_cast<size_t>(i)], at[static_cast<size_t>(i) + 1]));
  } else if (const Namespace* const space = value.space();
             space != nullptr && index.text() != nullptr) {
    for (const auto& [name, member] : space->members) {
      if (name == index.text()->bytes()) return member;
    }
  } else if (value.is_undefined()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is undefined",
                      value.undefined()->name.c_str());
  }
  return undefined_item(index);
}

Result<Value> slice_of(const Value& value, const Value* begin, const Value* end, const Value* step,
                       Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
  if (const Text* const text = value.text()) {
    const std::vector<size_t> at = characters(text->bytes());
    BLEND_ASSIGN(const Bounds b, bounds_of(static_cast<int64_t>(at.size()) - 1, begin, end, step));
    if (b.step == 1) {
      const auto first = static_cast<size_t>(b.begin);
      return Value::of(text->part(at[first], at[static_cast<size_t>(std::max(b.begin, b.end))]));
    }
    Text out;
    for (int64_t i = b.begin; b.step > 0 ? i < b.end : i > b.end; i += b.step) {
      out.append(*text, at[static_cast<size_t>(i)], at[static_cast<size_t>(i) + 1]);
    }
    return Value::of(std::move(out));
  }
  const List* const list = value.list();
  if (list == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the template slices %s",
                      value.is_undefined() ? value.undefined()->name.c_str() : value.kind());
  }
  BLEND_ASSIGN(const Bounds b, bounds_of(static_cast<int64_t>(list->size()), begin, end, step));
  List out;
  for (int64_t i = b.begin; b.step > 0 ? i < b.end : i > b.end; i += b.step) {
    out.push_back((*list)[static_cast<size_t>(i)]);
  }
  return Value::list(std::move(out));
}

Result<bool> contains(const Value& value, const Value& needle, Meter& meter) {
  if (const Text* const text = value.text()) {
    if (needle.text() == nullptr) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "the template looks for %s in a string",
                        needle.kind());
    }
    BLEND_RETURN_IF_ERROR(meter.take(text->size() + needle.text()->size()));
    return text->bytes().find(needle.text()->bytes()) != std::string::npos;
  }
  BLEND_RETURN_IF_ERROR(meter.take(value.weight()));
  if (const List* const list = value.list()) {
    return std::any_of(list->begin(), list->end(),
                       [&](const Value& item) { return equal(item, needle); });
  }
  if (const Dict* const dict = value.dict()) {
    return std::any_of(dict->begin(), dict->end(),
                       [&](const auto& member) { return equal(member.first, needle); });
  }
  if (value.is_undefined()) return false;
  return make_error(BLEND_E_INVALID_ARGUMENT, "the template looks for something in %s",
                    value.kind());
}

Result<List> items_of(const Value& value, Meter& meter) {
  List out;
  if (const List* const list = value.list()) {
    BLEND_RETURN_IF_ERROR(meter.take(list->size() * sizeof(Value)));
    out = *list;
  } else if (const Dict* const dict = value.dict()) {
    BLEND_RETURN_IF_ERROR(meter.take(dict->size() * sizeof(Value)));
    for (const auto& [key, member] : *dict) out.push_back(key);
  } else if (const Text* const text = value.text()) {
    BLEND_RETURN_IF_ERROR(meter.take(text->size() * (sizeof(Value) + sizeof(Text))));
    const std::vector<size_t> at = characters(text->bytes());
    for (size_t i = 0; i + 1 < at.size(); ++i) {
      out.push_back(Value::of(text->part(at[i], at[i + 1])));
    }
  } else if (!value.is_undefined()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the template runs a loop over %s", value.kind());
  }
  return out;
}

}  // namespace blend::chat
