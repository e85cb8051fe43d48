#include "chat/compare.h"

#include <algorithm>
#include <cmath>

namespace blend::chat {
namespace {

template <typename T>
int order_of(T a, T b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// Compares an integer and a double exactly; `b` is a number.
int order_of(int64_t a, double b) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (b >= kEnd) return -1;
  if (b < -kEnd) return 1;
  const double whole = std::trunc(b);
  const int order = order_of(a, static_cast<int64_t>(whole));
  return order != 0 ? order : order_of(whole, b);
}

// Nothing if one is NaN. Both must be numbers.
std::optional<int> compare_numbers(const Value& a, const Value& b) {
  int64_t n = 0;
  int64_t m = 0;
  const bool whole_a = a.as_integer(n);
  const bool whole_b = b.as_integer(m);
  if (whole_a && whole_b) return order_of(n, m);
  const double* const x = a.real();
  const double* const y = b.real();
  if ((x != nullptr && std::isnan(*x)) || (y != nullptr && std::isnan(*y))) return std::nullopt;
  if (whole_a) return order_of(n, *y);
  if (whole_b) return -order_of(m, *x);
  return order_of(*x, *y);
}

Result<bool> equal_lists(const Value& a, const Value& b, Meter& meter) {
  const List& left = *a.list();
  const List& right = *b.list();
  if (left.size() != right.size() || a.is_tuple() != b.is_tuple()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    BLEND_ASSIGN(const bool same, equal(left[i], right[i], meter));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(const Value& a, const Value& b, Meter& meter) {
  if (a.dict()->size() != b.dict()->size()) return false;
  for (const auto& [name, member] : *a.dict()) {
    BLEND_ASSIGN(const Value* const other, b.find(name, meter));
    if (other == nullptr) return false;
    BLEND_ASSIGN(const bool same, equal(member, *other, meter));
    if (!same) return false;
  }
  return true;
}

}  // namespace

Result<bool> equal(const Value& a, const Value& b, Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(4));
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (const Text* const s = a.text(), * const t = b.text(); s != nullptr && t != nullptr) {
    if (s == t) return true;
    if (s->size() != t->size()) return false;
    BLEND_RETURN_IF_ERROR(meter.take(s->size() / 8));
    return s->bytes() == t->bytes();
  }
  // A list or dict equals itself, even if it contains NaN, as in Python.
  if (a.list() != nullptr && b.list() != nullptr) {
    return a.list() == b.list() ? Result<bool>(true) : equal_lists(a, b, meter);
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    return a.dict() == b.dict() ? Result<bool>(true) : equal_dicts(a, b, meter);
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  return a.space() != nullptr && a.space() == b.space();
}

Result<std::optional<bool>> less(const Value& a, const Value& b, Meter& meter) {
  using Order = std::optional<bool>;
  BLEND_RETURN_IF_ERROR(meter.take(4));
  if (a.is_number() && b.is_number()) {
    const std::optional<int> order = compare_numbers(a, b);
    return Order(order.has_value() && *order < 0);
  }
  if (const Text* const s = a.text(), * const t = b.text(); s != nullptr && t != nullptr) {
    BLEND_RETURN_IF_ERROR(meter.take(std::min(s->size(), t->size()) / 8));
    return Order(s->bytes() < t->bytes());
  }
  const List* const left = a.list();
  const List* const right = b.list();
  if (left == nullptr || right == nullptr || a.is_tuple() != b.is_tuple()) return Order();
  for (size_t i = 0; i < std::min(left->size(), right->size()); ++i) {
    BLEND_ASSIGN(const bool same, equal((*left)[i], (*right)[i], meter));
    if (!same) return less((*left)[i], (*right)[i], meter);
  }
  return Order(left->size() < right->size());
}

bool is_name(const Value& value) {
  return value.text() != nullptr || value.is_number() || value.is_none();
}

int compare_names(const Value& a, const Value& b) {
  const auto rank = [](const Value& v) { return v.is_none() ? 0 : v.is_number() ? 1 : 2; };
  if (const int order = order_of(rank(a), rank(b)); order != 0) return order;
  if (a.is_none()) return 0;
  if (a.text() != nullptr) return a.text()->bytes().compare(b.text()->bytes());
  if (const std::optional<int> order = compare_numbers(a, b)) return *order;
  const auto is_nan = [](const Value& v) { return v.real() != nullptr && std::isnan(*v.real()); };
  return order_of(is_nan(b) ? 1 : 0, is_nan(a) ? 1 : 0);  // NaN comes before all numbers
}

size_t name_bytes(const Value& name) { return name.text() == nullptr ? 8 : name.text()->size(); }

}  // namespace blend::chat
