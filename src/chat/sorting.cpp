// sort, dictsort and unique.
#include <algorithm>
#include <cmath>

#include "chat/compare.h"
#include "chat/filters.h"
#include "model/tokenizer/unicode.h"

namespace blend::chat {
namespace {

using Given = CallArguments;

// The text in lower case, by which Jinja compares. UNSUPPORTED: capital letters beyond ASCII.
Result<Value> folded(const std::string& filter, const Value& value, Meter& meter) {
  const Text* const text = value.text();
  if (text == nullptr) return value;
  BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue + text->size()));
  std::string lower = text->bytes();
  for (size_t i = 0; i < lower.size(); ++i) {
    char& c = lower[i];
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
    if (static_cast<uint8_t>(c) >= 0xC0 && is_upper_case(std::string_view(lower).substr(i))) {
      return unknown("filter", filter + " of capital letters beyond ASCII");
    }
  }
  return Value::text(lower);
}

// The key by which items are sorted and compared, and the item's index.
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
    BLEND_ASSIGN(Value key, folded(name, by_first ? (*items[i].list())[0] : items[i], meter));
    if (!is_name(key)) return unknown("filter", name + " of " + key.kind());
    BLEND_RETURN_IF_ERROR(meter.take_search(items.size(), name_bytes(key)));
    out.push_back({std::move(key), i});
  }
  return out;
}

// Sorts in pieces, so that a cancel is noticed between them.
Status sort_by_key(std::vector<Keyed>& keys, Meter& meter) {
  constexpr size_t kPiece = 1024;
  // Comparing the index too makes the sort stable without the memory of std::stable_sort.
  const auto before = [](const Keyed& a, const Keyed& b) {
    const int order = compare_names(a.key, b.key);
    return order != 0 ? order < 0 : a.index < b.index;
  };
  const size_t n = keys.size();
  const auto at = [](std::vector<Keyed>& all, size_t i) {
    return all.begin() + static_cast<std::ptrdiff_t>(i);
  };
  for (size_t begin = 0; begin < n; begin += kPiece) {
    BLEND_RETURN_IF_ERROR(meter.take(0));
    std::sort(at(keys, begin), at(keys, std::min(n, begin + kPiece)), before);
  }
  if (n <= kPiece) return Status::ok();
  BLEND_RETURN_IF_ERROR(meter.take(n, sizeof(Keyed)));
  std::vector<Keyed> merged(n);
  for (size_t half = kPiece; half < n; half *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * half) {
      size_t left = begin;
      const size_t middle = std::min(n, begin + half);
      size_t right = middle;
      const size_t end = std::min(n, middle + half);
      for (size_t out = begin; out < end; ++out) {
        if (out % kPiece == 0) BLEND_RETURN_IF_ERROR(meter.take(0));
        const bool from_left = right == end || (left < middle && !before(keys[right], keys[left]));
        merged[out] = std::move(keys[from_left ? left++ : right++]);
      }
    }
    keys.swap(merged);
  }
  return Status::ok();
}

// Keys must be all numbers or all strings, which Python can order.
Status check_order(const std::string& name, const std::vector<Keyed>& keys) {
  for (const Keyed& one : keys) {
    const double* const x = one.key.real();
    const bool alike = one.key.is_number() == keys[0].key.is_number();
    if (!alike || one.key.is_none()) return wrong(name.c_str(), one.key);
    if (x != nullptr && std::isnan(*x)) return unknown("filter", name + " of a number that is NaN");
  }
  return Status::ok();
}

}  // namespace

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

Result<Value> unique(const Value& value, const Given& given, Meter& meter) {
  if (!given.named.empty() || !given.positional.empty()) {
    return unknown("filter", "unique with arguments");
  }
  BLEND_ASSIGN(const List items, items_of(value, meter));
  BLEND_ASSIGN(std::vector<Keyed> keys, keyed("unique", items, meter));
  BLEND_RETURN_IF_ERROR(sort_by_key(keys, meter));
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
  BLEND_RETURN_IF_ERROR(sort_by_key(keys, meter));
  BLEND_RETURN_IF_ERROR(take_list(items.size(), meter));
  List out;
  out.reserve(items.size());
  for (const Keyed& one : keys) out.push_back(items[one.index]);
  return Value::list(std::move(out));
}

}  // namespace blend::chat
