// Tests: `value is name(...)`.
#include <optional>

#include "chat/arithmetic.h"
#include "chat/compare.h"
#include "chat/functions.h"

namespace blend::chat {

Result<bool> apply_test(const std::string& name, const Value& value, const CallArguments& given,
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

}  // namespace blend::chat
