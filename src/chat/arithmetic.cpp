#include "chat/arithmetic.h"

#include <cmath>

#include "chat/print.h"

namespace blend::chat {
namespace {

Status too_large() { return make_error(BLEND_E_UNSUPPORTED, "a number of more than 64 bits"); }

Status by_zero() { return make_error(BLEND_E_INVALID_ARGUMENT, "a division by 0"); }

Result<Value> power(int64_t n, int64_t m) {
  if (m < 0) {
    if (n == 0) return by_zero();
    return Value::of(std::pow(static_cast<double>(n), static_cast<double>(m)));
  }
  if (n == 0 || n == 1) return Value::of(m == 0 ? int64_t{1} : n);
  if (n == -1) return Value::of(int64_t{m % 2 == 0 ? 1 : -1});
  int64_t out = 1;
  for (int64_t i = 0; i < m; ++i) {
    if (__builtin_mul_overflow(out, n, &out)) return too_large();
  }
  return Value::of(out);
}

// The quotient is rounded down.
Result<Value> divide(const std::string& op, int64_t n, int64_t m) {
  if (m == 0) return by_zero();
  if (m == -1) {  // INT64_MIN / -1 overflows
    int64_t out = 0;
    if (op == "//" && __builtin_sub_overflow(int64_t{0}, n, &out)) return too_large();
    return Value::of(out);
  }
  const int64_t quotient = n / m - ((n % m != 0 && (n < 0) != (m < 0)) ? 1 : 0);
  return Value::of(op == "//" ? quotient : n - quotient * m);
}

Result<Value> combine_integers(const std::string& op, int64_t n, int64_t m) {
  int64_t out = 0;
  bool over = false;
  if (op == "**") return power(n, m);
  if (op == "//" || op == "%") return divide(op, n, m);
  if (op == "+") {
    over = __builtin_add_overflow(n, m, &out);
  } else if (op == "-") {
    over = __builtin_sub_overflow(n, m, &out);
  } else {
    over = __builtin_mul_overflow(n, m, &out);
  }
  return over ? Result<Value>(too_large()) : Value::of(out);
}

Result<Value> combine_numbers(const std::string& op, double x, double y) {
  if (op == "+") return Value::of(x + y);
  if (op == "-") return Value::of(x - y);
  if (op == "*") return Value::of(x * y);
  if (op == "**") {
    if (x == 0 && y < 0) return by_zero();
    const double out = std::pow(x, y);
    const bool finite = std::isfinite(x) && std::isfinite(y);
    if (finite && !std::isfinite(out)) {
      return make_error(BLEND_E_UNSUPPORTED, "the result of '**' is too large for a double");
    }
    return Value::of(out);
  }
  if (y == 0) return by_zero();
  if (op == "/") return Value::of(x / y);
  double rest = std::fmod(x, y);
  if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
  if (rest == 0) rest = std::copysign(0.0, y);
  if (op == "%") return Value::of(rest);
  const double quotient = (x - rest) / y;
  if (quotient == 0) return Value::of(std::copysign(0.0, x / y));
  return Value::of(std::round(quotient));
}

Result<Value> joined(const Value& a, const Value& b, Meter& meter) {
  TextBuilder out(meter);
  BLEND_RETURN_IF_ERROR(append_text(a, out));
  BLEND_RETURN_IF_ERROR(append_text(b, out));
  return out.value();
}

// The items of `a` and then of `b`, both of one kind.
Result<Value> appended(const Value& a, const Value& b, Meter& meter) {
  BLEND_RETURN_IF_ERROR(take_list(a.list()->size() + b.list()->size(), meter));
  List out;
  out.reserve(a.list()->size() + b.list()->size());
  out.insert(out.end(), a.list()->begin(), a.list()->end());
  out.insert(out.end(), b.list()->begin(), b.list()->end());
  return Value::list(std::move(out), a.is_tuple());
}

// A string or a list n times.
Result<Value> repeated(const Value& value, int64_t n, Meter& meter) {
  if (!value.truth()) n = 0;
  if (const Text* const text = value.text()) {
    TextBuilder out(meter);
    for (int64_t i = 0; i < n; ++i) BLEND_RETURN_IF_ERROR(out.append(*text));
    return out.value();
  }
  const List& list = *value.list();
  List out;
  BLEND_RETURN_IF_ERROR(take_list(0, meter));
  for (int64_t i = 0; i < n; ++i) {
    BLEND_RETURN_IF_ERROR(meter.take(list.size(), 2 * sizeof(Value)));
    out.insert(out.end(), list.begin(), list.end());
  }
  return Value::list(std::move(out), value.is_tuple());
}

// Whether a double holds n and all integers nearer to 0 exactly.
bool is_double(int64_t n) {
  constexpr int64_t kMost = int64_t{1} << 53;
  return -kMost <= n && n <= kMost;
}

bool is_sequence(const Value& v) { return v.text() != nullptr || v.list() != nullptr; }

}  // namespace

Result<Value> combine(const std::string& op, const Value& a, const Value& b, Meter& meter) {
  const bool texts = a.text() != nullptr && b.text() != nullptr;
  if (op == "~" || (op == "+" && texts)) return joined(a, b, meter);
  const bool lists = a.list() != nullptr && b.list() != nullptr && a.is_tuple() == b.is_tuple();
  if (op == "+" && lists) return appended(a, b, meter);
  int64_t n = 0;
  int64_t m = 0;
  if (op == "*" && is_sequence(a) && b.as_integer(m)) return repeated(a, m, meter);
  if (op == "*" && a.as_integer(n) && is_sequence(b)) return repeated(b, n, meter);
  if (op == "/" && a.as_integer(n) && b.as_integer(m) && !(is_double(n) && is_double(m))) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "'/' of whole numbers of more than 53 bits, which libblend does not support");
  }
  if (op != "/" && a.as_integer(n) && b.as_integer(m)) return combine_integers(op, n, m);
  double x = 0;
  double y = 0;
  if (a.as_number(x) && b.as_number(y)) return combine_numbers(op, x, y);
  for (const Value* const v : {&a, &b}) {
    if (v->is_undefined()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is undefined", v->undefined_name());
    }
  }
  if (op == "%" && a.text() != nullptr) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "'%%' on strings, which libblend does not support; give another template");
  }
  return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' between %s and %s", op.c_str(), a.kind(),
                    b.kind());
}

Result<Value> signed_value(const Value& value, bool minus) {
  int64_t n = 0;
  double x = 0;
  if (value.as_integer(n)) {
    if (!minus) return Value::of(n);
    return n == INT64_MIN ? Result<Value>(too_large()) : Value::of(-n);
  }
  if (value.as_number(x)) return Value::of(minus ? -x : x);
  return make_error(BLEND_E_INVALID_ARGUMENT, "a sign before %s", value.kind());
}

}  // namespace blend::chat
