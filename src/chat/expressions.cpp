// Expressions.
#include "chat/arithmetic.h"
#include "chat/compare.h"
#include "chat/renderer.h"

namespace blend::chat {
namespace {

using Kind = Expression::Kind;

}  // namespace

Result<Value> Renderer::evaluate(const Expression& e, Value inside) {
  const Meter::Depth depth(meter_);
  BLEND_RETURN_IF_ERROR(depth.check());
  const size_t begin = operators_.size();
  Result<Value> value = innermost(e, std::move(inside));
  while (value.is_ok() && operators_.size() > begin) {
    const Expression& outer = *operators_.back();
    operators_.pop_back();
    value = apply(outer, std::move(*value));
  }
  operators_.resize(begin);
  return value;
}

Result<Value> Renderer::innermost(const Expression& e, Value inside) {
  const Expression* at = &e;
  while (true) {
    BLEND_RETURN_IF_ERROR(meter_.take(kStep));
    switch (at->kind) {
      case Kind::constant:
        return at->constant;
      case Kind::name:
        return named(*at);
      case Kind::list:
      case Kind::tuple:
        return evaluate_list(*at);
      case Kind::dict:
        return evaluate_dict(*at);
      case Kind::condition: {
        BLEND_ASSIGN(const bool holds, is_true(*at->parts[1]));
        at = at->parts[holds ? 0 : 2].get();
        if (at == nullptr) return Value::undefined("a condition without else");
        break;
      }
      default:
        operators_.push_back(at);
        if (at->parts[0] == nullptr) return inside;
        at = at->parts[0].get();
    }
  }
}

Result<Value> Renderer::apply(const Expression& e, Value value) {
  switch (e.kind) {
    case Kind::member:
      return member(value, e.name);
    case Kind::item:
      return evaluate_item(e, value);
    case Kind::slice:
      return evaluate_slice(e, value);
    case Kind::call:
      return call(e, value);
    case Kind::filter:
      return evaluate_filter(e, value);
    case Kind::test:
      return evaluate_test(e, value);
    case Kind::both:
    case Kind::either:
      if (value.truth() != (e.kind == Kind::both)) return value;
      return evaluate(*e.parts[1]);
    case Kind::negation:
      return Value::of(!value.truth());
    case Kind::minus:
    case Kind::plus:
      return signed_value(value, e.kind == Kind::minus);
    case Kind::binary:
      return evaluate_binary(e, value);
    case Kind::compare:
      return evaluate_compare(e, std::move(value));
    default:
      return Value();
  }
}

Result<Value> Renderer::named(const Expression& e) {
  BLEND_ASSIGN(const Value* const value, look_up(e.name));
  if (value != nullptr) return *value;
  if (calls_ > 0 && (e.name == "varargs" || e.name == "kwargs" || e.name == "caller")) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "'%s' of a macro, which libblend does not support; give another template",
                      e.name.c_str());
  }
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue));
  return built_in(e.name);
}

Result<Value> Renderer::evaluate_list(const Expression& e) {
  BLEND_RETURN_IF_ERROR(take_list(e.parts.size(), meter_));
  List items;
  items.reserve(e.parts.size());
  for (const ExpressionPtr& part : e.parts) {
    BLEND_ASSIGN(Value item, evaluate(*part));
    items.push_back(std::move(item));
  }
  return Value::list(std::move(items), e.kind == Kind::tuple);
}

Result<Value> Renderer::evaluate_dict(const Expression& e) {
  Dict members;
  members.reserve(e.parts.size() / 2);
  for (size_t i = 0; i + 1 < e.parts.size(); i += 2) {
    BLEND_ASSIGN(Value name, evaluate(*e.parts[i]));
    BLEND_ASSIGN(Value value, evaluate(*e.parts[i + 1]));
    members.emplace_back(std::move(name), std::move(value));
  }
  BLEND_RETURN_IF_ERROR(take_dict(members, meter_));
  return Value::dict(std::move(members));
}

Result<Value> Renderer::member(const Value& value, const std::string& name) {
  if (value.is_undefined()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is undefined", value.undefined_name());
  }
  if (value.loop() != nullptr) return loop_member(value, name);
  if (is_method(value, name)) return method_of(value, name);
  if (is_unknown_member(value, name)) return unknown("method", name);
  const Callable* const callable = value.callable();
  if (callable != nullptr && callable->macro != nullptr) {
    return macro_member(*callable->macro, name);
  }
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + name.size()));
  return item_of(value, Value::text(name), meter_);
}

Result<Value> Renderer::method_of(const Value& value, const std::string& name) {
  BLEND_RETURN_IF_ERROR(meter_.take(2 * Meter::kValue));
  Callable method;
  method.name = name;
  method.self = std::make_shared<const Value>(value);
  return Value::of(std::move(method));
}

Result<Value> Renderer::macro_member(const Macro& macro, const std::string& name) {
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + macro.name.size()));
  if (name == "name") return Value::text(macro.name);
  // The parser supports no macro that takes these.
  if (name == "catch_kwargs" || name == "catch_varargs" || name == "caller") {
    return Value::of(false);
  }
  if (name != "arguments") return Value::undefined(name);
  BLEND_RETURN_IF_ERROR(take_list(macro.parameters.size(), meter_));
  List names;
  for (const auto& [parameter, otherwise] : macro.parameters) {
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + parameter.size()));
    names.push_back(Value::text(parameter));
  }
  return Value::list(std::move(names), true);
}

Result<Value> Renderer::evaluate_item(const Expression& e, const Value& value) {
  BLEND_ASSIGN(const Value index, evaluate(*e.parts[1]));
  BLEND_ASSIGN(Value item, item_of(value, index, meter_));
  if (!item.is_undefined() || index.text() == nullptr) return item;
  BLEND_RETURN_IF_ERROR(meter_.take(index.text()->size()));
  return member(value, index.text()->bytes());
}

Result<Value> Renderer::evaluate_slice(const Expression& e, const Value& value) {
  Value bounds[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (e.parts[i + 1] == nullptr) continue;
    BLEND_ASSIGN(bounds[i], evaluate(*e.parts[i + 1]));
    given[i] = &bounds[i];
  }
  return slice_of(value, given[0], given[1], given[2], meter_);
}

Result<Value> Renderer::evaluate_filter(const Expression& e, const Value& value) {
  BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
  return apply_filter(e.name, value, given, meter_);
}

Result<Value> Renderer::evaluate_test(const Expression& e, const Value& value) {
  BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
  BLEND_ASSIGN(const bool holds, apply_test(e.name, value, given, meter_));
  return Value::of(holds);
}

Result<Value> Renderer::evaluate_binary(const Expression& e, const Value& value) {
  BLEND_ASSIGN(const Value right, evaluate(*e.parts[1]));
  return combine(e.name, value, right, meter_);
}

Result<Value> Renderer::evaluate_compare(const Expression& e, Value left) {
  for (size_t i = 0; i < e.names.size(); ++i) {
    BLEND_ASSIGN(Value right, evaluate(*e.parts[i + 1]));
    BLEND_ASSIGN(const bool holds, compare(e.names[i], left, right));
    if (!holds) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Result<bool> Renderer::compare(const std::string& op, const Value& left, const Value& right) {
  if (op == "in" || op == "not in") {
    BLEND_ASSIGN(const bool found, contains(right, left, meter_));
    return found == (op == "in");
  }
  if (op == "==" || op == "!=") {
    BLEND_ASSIGN(const bool same, equal(left, right, meter_));
    return same == (op == "==");
  }
  // a <= b means a < b or a == b. For NaN, which has no order, neither is true.
  const bool swapped = op == ">" || op == ">=";
  const Value& small = swapped ? right : left;
  const Value& large = swapped ? left : right;
  BLEND_ASSIGN(const std::optional<bool> order, less(small, large, meter_));
  if (!order) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' between %s and %s", op.c_str(), left.kind(),
                      right.kind());
  }
  if (*order || op == "<" || op == ">") return *order;
  return equal(left, right, meter_);
}

Result<CallArguments> Renderer::arguments(const Arguments& given) {
  CallArguments out;
  if (given.positional.empty() && given.named.empty()) return out;
  BLEND_RETURN_IF_ERROR(take_list(given.positional.size() + given.named.size(), meter_));
  for (const ExpressionPtr& part : given.positional) {
    BLEND_ASSIGN(Value value, evaluate(*part));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, part] : given.named) {
    BLEND_ASSIGN(Value value, evaluate(*part));
    BLEND_RETURN_IF_ERROR(meter_.take(name.size()));
    out.named.emplace_back(name, std::move(value));
  }
  return out;
}

}  // namespace blend::chat
