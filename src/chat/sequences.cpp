// Items, slices and membership.
#include <algorithm>

#include "chat/builder.h"
#include "chat/compare.h"
#include "chat/functions.h"
#include "chat/search.h"
#include "model/utf8.h"

namespace blend::chat {
namespace {

Result<Value> undefined_item(const Value& index, Meter& meter) {
  const Text* const name = index.text();
  BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue));
  return Value::undefined(name == nullptr ? std::string_view("an item") : name->bytes());
}

// The i-th character; a negative i counts from the end.
Result<Value> character_of(const Text& text, int64_t i, Meter& meter) {
  const std::string_view bytes = text.bytes();
  BLEND_RETURN_IF_ERROR(meter.take(bytes.size()));
  if (i < 0) {
    BLEND_ASSIGN(const size_t n, count_characters(bytes, meter));
    i += static_cast<int64_t>(n);
  }
  size_t at = 0;
  Meter::Pause pause(meter);
  for (; i > 0 && at < bytes.size(); --i) {
    at += utf8_length(bytes.substr(at));
    BLEND_RETURN_IF_ERROR(pause.after(1));
  }
  if (i != 0 || at >= bytes.size()) return undefined_item(Value(), meter);
  return part_of(text, at, at + utf8_length(bytes.substr(at)), meter);
}

// The bounds of a slice of n items, by Python's rules.
struct Bounds {
  int64_t begin;
  int64_t end;
  int64_t step;

  size_t count() const {
    const int64_t way = step > 0 ? end - begin : begin - end;
    const int64_t by = step > 0 ? step : -step;
    return way <= 0 ? 0 : static_cast<size_t>((way - 1) / by + 1);
  }
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

Result<Value> item_of(const Value& value, const Value& index, Meter& meter) {
  int64_t i = 0;
  BLEND_RETURN_IF_ERROR(meter.take(4));
  if (value.dict() != nullptr) {
    BLEND_ASSIGN(const Value* const member, value.find(index, meter));
    if (member != nullptr) return *member;
  } else if (const List* const list = value.list(); list != nullptr && index.as_integer(i)) {
    const auto n = static_cast<int64_t>(list->size());
    if (i < 0) i += n;
    if (i >= 0 && i < n) return (*list)[static_cast<size_t>(i)];
  } else if (const Text* const text = value.text(); text != nullptr && index.as_integer(i)) {
    return character_of(*text, i, meter);
  } else if (const Namespace* const space = value.space();
             space != nullptr && index.text() != nullptr) {
    BLEND_RETURN_IF_ERROR(meter.take_search(space->members.size(), index.text()->size()));
    const auto member = space->members.find(index.text()->bytes());
    if (member != space->members.end()) return member->second;
  } else if (value.is_undefined()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is undefined", value.undefined_name());
  }
  return undefined_item(index, meter);
}

Result<Value> slice_of(const Value& value, const Value* begin, const Value* end, const Value* step,
                       Meter& meter) {
  if (const Text* const text = value.text()) {
    BLEND_RETURN_IF_ERROR(meter.take(text->size() + 1, 1 + sizeof(size_t)));
    BLEND_ASSIGN(const std::vector<size_t> at, characters(text->bytes(), meter));
    BLEND_ASSIGN(const Bounds b, bounds_of(static_cast<int64_t>(at.size()) - 1, begin, end, step));
    if (b.step == 1) {
      const auto first = static_cast<size_t>(b.begin);
      return part_of(*text, at[first], at[static_cast<size_t>(std::max(b.begin, b.end))], meter);
    }
    TextBuilder out(meter);
    for (int64_t i = b.begin; b.step > 0 ? i < b.end : i > b.end; i += b.step) {
      const auto character = static_cast<size_t>(i);
      BLEND_RETURN_IF_ERROR(out.append(*text, at[character], at[character + 1]));
    }
    return out.value();
  }
  const List* const list = value.list();
  if (list == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the template slices %s",
                      value.is_undefined() ? value.undefined_name() : value.kind());
  }
  BLEND_ASSIGN(const Bounds b, bounds_of(static_cast<int64_t>(list->size()), begin, end, step));
  BLEND_RETURN_IF_ERROR(take_list(b.count(), meter));
  List out;
  out.reserve(b.count());
  for (int64_t i = b.begin; b.step > 0 ? i < b.end : i > b.end; i += b.step) {
    out.push_back((*list)[static_cast<size_t>(i)]);
  }
  return Value::list(std::move(out), value.is_tuple());
}

Result<bool> contains(const Value& value, const Value& needle, Meter& meter) {
  if (const Text* const text = value.text()) {
    if (needle.text() == nullptr) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "the template looks for %s in a string",
                        needle.kind());
    }
    if (needle.text()->empty()) return true;
    BLEND_ASSIGN(const Search search, Search::of(needle.text()->bytes(), meter));
    BLEND_ASSIGN(const size_t at, search.find(text->bytes(), 0, meter));
    return at != std::string::npos;
  }
  if (const List* const list = value.list()) {
    for (const Value& item : *list) {
      BLEND_ASSIGN(const bool same, equal(item, needle, meter));
      if (same) return true;
    }
    return false;
  }
  if (value.dict() != nullptr) {
    if (needle.dict() != nullptr || (needle.list() != nullptr && !needle.is_tuple())) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "the template looks for %s among names",
                        needle.kind());
    }
    BLEND_ASSIGN(const Value* const member, value.find(needle, meter));
    return member != nullptr;
  }
  if (value.is_undefined()) return false;
  return make_error(BLEND_E_INVALID_ARGUMENT, "the template looks for something in %s",
                    value.kind());
}

Result<Value> listed(const Value& value, Meter& meter) {
  if (value.list() != nullptr) return value;
  BLEND_ASSIGN(List items, items_of(value, meter));
  return Value::list(std::move(items));
}

Result<List> items_of(const Value& value, Meter& meter) {
  List out;
  if (const List* const list = value.list()) {
    BLEND_RETURN_IF_ERROR(take_list(list->size(), meter));
    out = *list;
  } else if (const Dict* const dict = value.dict()) {
    BLEND_RETURN_IF_ERROR(take_list(dict->size(), meter));
    out.reserve(dict->size());
    for (const auto& [key, member] : *dict) out.push_back(key);
  } else if (const Text* const text = value.text()) {
    const std::string_view bytes = text->bytes();
    for (size_t at = 0; at < bytes.size();) {
      const size_t end = at + utf8_length(bytes.substr(at));
      BLEND_RETURN_IF_ERROR(meter.take(sizeof(Value)));
      BLEND_ASSIGN(Value character, part_of(*text, at, end, meter));
      out.push_back(std::move(character));
      at = end;
    }
  } else if (!value.is_undefined()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the template runs a loop over %s", value.kind());
  }
  return out;
}

}  // namespace blend::chat
