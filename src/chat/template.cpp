#include "chat/template.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "chat/clock.h"
#include "chat/functions.h"
#include "chat/parser.h"

namespace blend::chat {
namespace {

using Kind = Expression::Kind;

// Of macros that call one another.
constexpr int kMaxCalls = 16;
// Of expressions and blocks inside one another, through all calls: what bounds the stack.
constexpr int kMaxDepth = 320;

// One rendering. Not thread-safe.
class Renderer {
 public:
  Renderer(const Variables& variables, int64_t now, size_t fuel) : meter_(fuel), now_(now) {
    scopes_.push_back({variables, false});
    scopes_.push_back({{}, false});  // of the template
  }

  Result<Text> run(const Body& body) {
    Text out;
    BLEND_ASSIGN([[maybe_unused]] const Flow flow, run_body(body, out));
    return out;
  }

 private:
  enum class Flow : uint8_t { next, break_loop, continue_loop };
  static constexpr size_t kOutermost = 2;  // scopes: the variables, and the template's own names
  struct Scope {
    Variables names;
    bool closed;  // what is called in it does not see the scopes before it, but the template's
  };

  class Depth {
   public:
    explicit Depth(int& depth) : depth_(++depth) {}
    ~Depth() { --depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Status check() const {
      if (depth_ <= kMaxDepth) return Status::ok();
      return make_error(BLEND_E_UNSUPPORTED, "the chat template nests more than %d deep",
                        kMaxDepth);
    }

   private:
    int& depth_;
  };

  // ---- names

  const Value* look_up(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      for (const auto& [key, value] : scopes_[i].names) {
        if (key == name) return &value;
      }
      if (scopes_[i].closed) i = std::min<size_t>(i, kOutermost);
    }
    return nullptr;
  }

  static void put(Variables& names, const std::string& name, Value value) {
    for (auto& [key, old] : names) {
      if (key != name) continue;
      old = std::move(value);
      return;
    }
    names.emplace_back(name, std::move(value));
  }

  Status assign(const Target& target, Value value) {
    BLEND_RETURN_IF_ERROR(meter_.take(sizeof(Value)));
    if (!target.member.empty()) {
      const Value* const space = look_up(target.names[0]);
      if (space == nullptr || space->space() == nullptr) {
        return make_error(BLEND_E_INVALID_ARGUMENT,
                          "'%s' is no namespace, and only one can be "
                          "assigned to",
                          target.names[0].c_str());
      }
      put(space->space()->members, target.member, std::move(value));
      return Status::ok();
    }
    Variables& names = scopes_.back().names;
    if (!target.tuple) {
      put(names, target.names[0], std::move(value));
      return Status::ok();
    }
    BLEND_ASSIGN(const List items, items_of(value, meter_));
    if (items.size() != target.names.size()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "%zu values for %zu names", items.size(),
                        target.names.size());
    }
    for (size_t i = 0; i < items.size(); ++i) put(names, target.names[i], items[i]);
    return Status::ok();
  }

  // ---- statements

  Result<Flow> run_body(const Body& body, Text& out) {
    const Depth depth(depth_);
    BLEND_RETURN_IF_ERROR(depth.check());
    for (const auto& statement : body) {
      BLEND_RETURN_IF_ERROR(meter_.take(1));
      Result<Flow> flow = run(*statement, out);
      if (!flow.is_ok()) return located(flow.status(), statement->line);
      if (*flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  // The innermost line only.
  static Status located(Status status, size_t line) {
    if (status.message().starts_with("line ")) return status;
    return status.with_context("line " + std::to_string(line) + " of the chat template");
  }

  Result<Flow> run(const Statement& s, Text& out) {
    switch (s.kind) {
      case Statement::Kind::data:
        BLEND_RETURN_IF_ERROR(meter_.take(s.data.size()));
        out.append(s.data, kTemplate);
        return Flow::next;
      case Statement::Kind::write: {
        BLEND_ASSIGN(const Value value, evaluate(*s.value));
        BLEND_RETURN_IF_ERROR(meter_.take(value.weight()));
        BLEND_ASSIGN(const Text text, to_text(value));
        out.append(text);
        return Flow::next;
      }
      case Statement::Kind::condition:
        for (const auto& [when, body] : s.branches) {
          BLEND_ASSIGN(const Value value, evaluate(*when));
          if (value.truth()) return run_body(body, out);
        }
        return run_body(s.otherwise, out);
      case Statement::Kind::loop:
        return run_loop(s, out);
      case Statement::Kind::set: {
        BLEND_ASSIGN(Value value, evaluate(*s.value));
        BLEND_RETURN_IF_ERROR(assign(s.target, std::move(value)));
        return Flow::next;
      }
      case Statement::Kind::set_block:
      case Statement::Kind::filter_block: {
        Text inside;
        BLEND_ASSIGN(const Flow flow, run_body(s.body, inside));
        Value value = Value::of(std::move(inside));
        if (s.value != nullptr) {
          BLEND_ASSIGN(value, filtered(*s.value, std::move(value)));
        }
        if (s.kind == Statement::Kind::set_block) {
          BLEND_RETURN_IF_ERROR(assign(s.target, std::move(value)));
        } else {
          BLEND_ASSIGN(const Text text, to_text(value));
          out.append(text);
        }
        return flow;
      }
      case Statement::Kind::macro: {
        // Its body would see the names around it, wherever it is called.
        if (scopes_.size() > kOutermost) {
          return make_error(BLEND_E_UNSUPPORTED,
                            "macro '%.60s' inside a loop or another macro, which libblend does not "
                            "know; give another template",
                            s.macro.name.c_str());
        }
        Callable macro;
        macro.name = s.macro.name;
        macro.macro = &s.macro;
        put(scopes_.back().names, s.macro.name, Value::of(std::move(macro)));
        return Flow::next;
      }
      case Statement::Kind::break_loop:
        return Flow::break_loop;
      case Statement::Kind::continue_loop:
        return Flow::continue_loop;
      case Statement::Kind::body:
        return run_body(s.body, out);
    }
    return Flow::next;
  }

  Result<Flow> run_loop(const Statement& s, Text& out) {
    BLEND_ASSIGN(const Value over, evaluate(*s.value));
    BLEND_ASSIGN(List items, items_of(over, meter_));
    if (s.filter != nullptr) {
      List kept;
      for (Value& item : items) {
        scopes_.push_back({{}, false});
        const Status assigned = assign(s.target, item);
        Result<Value> holds = assigned.is_ok() ? evaluate(*s.filter) : Result<Value>(assigned);
        scopes_.pop_back();
        if (!holds.is_ok()) return holds.status();
        if (holds->truth()) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    if (items.empty()) return run_body(s.otherwise, out);
    const size_t n = items.size();
    auto loop = std::make_unique<Loop>();
    BLEND_RETURN_IF_ERROR(meter_.take(sizeof(Loop) + n * sizeof(Value)));
    BLEND_ASSIGN(loop->items, Value::list(std::move(items)));
    Loop* const now = loop.get();
    owned_loops_.push_back(std::move(loop));
    Status failed;
    for (size_t i = 0; i < n && failed.is_ok(); ++i) {
      now->index = i;
      scopes_.push_back({{}, false});
      put(scopes_.back().names, "loop", Value::of(static_cast<const Loop*>(now)));
      failed = meter_.take(1);
      if (failed.is_ok()) failed = assign(s.target, (*now->items.list())[i]);
      Flow flow = Flow::next;
      if (failed.is_ok()) {
        Result<Flow> done = run_body(s.body, out);
        failed = done.status();
        if (done.is_ok()) flow = *done;
      }
      scopes_.pop_back();
      if (flow == Flow::break_loop) break;
    }
    if (!failed.is_ok()) return failed;
    return Flow::next;
  }

  // ---- expressions

  Result<Value> evaluate(const Expression& e) {
    const Depth depth(depth_);
    BLEND_RETURN_IF_ERROR(depth.check());
    BLEND_RETURN_IF_ERROR(meter_.take(1));
    switch (e.kind) {
      case Kind::constant:
        return e.constant;
      case Kind::name: {
        if (const Value* const value = look_up(e.name)) return *value;
        if (calls_ > 0 && (e.name == "varargs" || e.name == "kwargs")) {
          return make_error(BLEND_E_UNSUPPORTED,
                            "'%s' of a macro, which libblend does not know; give another template",
                            e.name.c_str());
        }
        return built_in(e.name);
      }
      case Kind::list: {
        List items;
        for (const ExpressionPtr& part : e.parts) {
          BLEND_ASSIGN(Value item, evaluate(*part));
          items.push_back(std::move(item));
        }
        BLEND_RETURN_IF_ERROR(meter_.take(items.size() * sizeof(Value)));
        return Value::list(std::move(items));
      }
      case Kind::dict:
        return evaluate_dict(e);
      case Kind::member: {
        BLEND_ASSIGN(const Value value, evaluate(*e.parts[0]));
        return member(value, e.name);
      }
      case Kind::item: {
        BLEND_ASSIGN(const Value value, evaluate(*e.parts[0]));
        BLEND_ASSIGN(const Value index, evaluate(*e.parts[1]));
        if (value.text() != nullptr) BLEND_RETURN_IF_ERROR(meter_.take(value.text()->size()));
        BLEND_ASSIGN(Value item, item_of(value, index));
        if (item.is_undefined() && index.text() != nullptr) {
          return member(value, index.text()->bytes());
        }
        return item;
      }
      case Kind::slice:
        return evaluate_slice(e);
      case Kind::call:
        return call(e);
      case Kind::filter:
        return filtered(e, Value());
      case Kind::test: {
        BLEND_ASSIGN(const Value value, evaluate(*e.parts[0]));
        BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
        BLEND_ASSIGN(const bool holds, apply_test(e.name, value, given, meter_));
        return Value::of(holds);
      }
      case Kind::condition: {
        BLEND_ASSIGN(const Value when, evaluate(*e.parts[1]));
        if (when.truth()) return evaluate(*e.parts[0]);
        if (e.parts[2] == nullptr) return Value::undefined("a condition without else");
        return evaluate(*e.parts[2]);
      }
      case Kind::both:
      case Kind::either: {
        BLEND_ASSIGN(Value left, evaluate(*e.parts[0]));
        if (left.truth() != (e.kind == Kind::both)) return left;
        return evaluate(*e.parts[1]);
      }
      case Kind::negation: {
        BLEND_ASSIGN(const Value value, evaluate(*e.parts[0]));
        return Value::of(!value.truth());
      }
      case Kind::minus:
      case Kind::plus:
        return evaluate_sign(e);
      case Kind::binary: {
        BLEND_ASSIGN(const Value a, evaluate(*e.parts[0]));
        BLEND_ASSIGN(const Value b, evaluate(*e.parts[1]));
        return combine(e.name, a, b);
      }
      case Kind::compare:
        return evaluate_compare(e);
    }
    return Value();
  }

  // value.name: a method first, as getattr() has it, then a member.
  Result<Value> member(const Value& value, const std::string& name) {
    if (value.is_undefined()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is undefined",
                        value.undefined()->name.c_str());
    }
    if (const Loop* const loop = value.loop(); loop != nullptr && name != "cycle") {
      return loop_member(*loop, name);
    }
    if (is_method(value, name)) {
      Callable method;
      method.name = name;
      method.self = std::make_shared<const Value>(value);
      return Value::of(std::move(method));
    }
    return item_of(value, Value::text(name));
  }

  static Result<Value> loop_member(const Loop& loop, const std::string& name) {
    const List& items = *loop.items.list();
    const auto n = static_cast<int64_t>(items.size());
    const auto i = static_cast<int64_t>(loop.index);
    if (name == "index") return Value::of(i + 1);
    if (name == "index0") return Value::of(i);
    if (name == "revindex") return Value::of(n - i);
    if (name == "revindex0") return Value::of(n - i - 1);
    if (name == "first") return Value::of(i == 0);
    if (name == "last") return Value::of(i + 1 == n);
    if (name == "length") return Value::of(n);
    // Of loops that call themselves, which there are none of here.
    if (name == "depth") return Value::of(int64_t{1});
    if (name == "depth0") return Value::of(int64_t{0});
    if (name == "previtem") {
      return i > 0 ? items[loop.index - 1] : Value::undefined("loop.previtem");
    }
    if (name == "nextitem") {
      return i + 1 < n ? items[loop.index + 1] : Value::undefined("loop.nextitem");
    }
    return make_error(BLEND_E_UNSUPPORTED,
                      "'loop.%s', which libblend does not know; give another "
                      "template",
                      name.c_str());
  }

  Result<Value> evaluate_dict(const Expression& e) {
    Dict members;
    for (size_t i = 0; i + 1 < e.parts.size(); i += 2) {
      BLEND_ASSIGN(Value name, evaluate(*e.parts[i]));
      BLEND_ASSIGN(Value value, evaluate(*e.parts[i + 1]));
      BLEND_RETURN_IF_ERROR(meter_.take(2 * sizeof(Value)));
      const auto same = std::find_if(members.begin(), members.end(),
                                     [&](const auto& m) { return equal(m.first, name); });
      if (same != members.end()) {
        same->second = std::move(value);
      } else {
        members.emplace_back(std::move(name), std::move(value));
      }
    }
    return Value::dict(std::move(members));
  }

  Result<Value> evaluate_slice(const Expression& e) {
    BLEND_ASSIGN(const Value value, evaluate(*e.parts[0]));
    Value bounds[3];
    const Value* given[3] = {};
    for (size_t i = 0; i < 3; ++i) {
      if (e.parts[i + 1] == nullptr) continue;
      BLEND_ASSIGN(bounds[i], evaluate(*e.parts[i + 1]));
      given[i] = &bounds[i];
    }
    return slice_of(value, given[0], given[1], given[2], meter_);
  }

  Result<Value> evaluate_sign(const Expression& e) {
    BLEND_ASSIGN(Value value, evaluate(*e.parts[0]));
    int64_t n = 0;
    double x = 0;
    if (value.as_integer(n)) {
      if (e.kind == Kind::plus) return Value::of(n);
      if (n != INT64_MIN) return Value::of(-n);
    } else if (value.as_number(x)) {
      return Value::of(e.kind == Kind::minus ? -x : x);
    }
    return make_error(BLEND_E_INVALID_ARGUMENT, "a sign before %s", value.kind());
  }

  Result<Value> evaluate_compare(const Expression& e) {
    BLEND_ASSIGN(Value left, evaluate(*e.parts[0]));
    for (size_t i = 0; i < e.names.size(); ++i) {
      BLEND_ASSIGN(Value right, evaluate(*e.parts[i + 1]));
      const std::string& op = e.names[i];
      bool holds = false;
      if (op == "in" || op == "not in") {
        BLEND_ASSIGN(holds, contains(right, left, meter_));
        holds = holds == (op == "in");
      } else {
        BLEND_RETURN_IF_ERROR(meter_.take(std::min(left.weight(), right.weight())));
        if (op == "==" || op == "!=") {
          holds = equal(left, right) == (op == "==");
        } else {
          const bool swapped = op == ">" || op == "<=";
          const std::optional<bool> order = swapped ? less(right, left) : less(left, right);
          if (!order) {
            return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' between %s and %s", op.c_str(),
                              left.kind(), right.kind());
          }
          holds = op == "<" || op == ">" ? *order : !*order;
        }
      }
      if (!holds) return Value::of(false);
      left = std::move(right);
    }
    return Value::of(true);
  }

  Result<Value> combine(const std::string& op, const Value& a, const Value& b) {
    if (op == "~" || (op == "+" && a.text() != nullptr && b.text() != nullptr)) {
      BLEND_RETURN_IF_ERROR(meter_.take(a.weight()));
      BLEND_RETURN_IF_ERROR(meter_.take(b.weight()));
      BLEND_ASSIGN(Text out, to_text(a));
      BLEND_ASSIGN(const Text right, to_text(b));
      out.append(right);
      return Value::of(std::move(out));
    }
    if (op == "+" && a.list() != nullptr && b.list() != nullptr) {
      BLEND_RETURN_IF_ERROR(meter_.take((a.list()->size() + b.list()->size() + 1) * sizeof(Value)));
      List out = *a.list();
      out.insert(out.end(), b.list()->begin(), b.list()->end());
      return Value::list(std::move(out));
    }
    int64_t n = 0;
    int64_t m = 0;
    if (op == "*" && a.text() != nullptr && b.as_integer(m)) {
      Text out;
      for (; m > 0; --m) {
        BLEND_RETURN_IF_ERROR(meter_.take(a.weight() + 1));
        out.append(*a.text());
      }
      return Value::of(std::move(out));
    }
    if (a.as_integer(n) && b.as_integer(m) && op != "/") return combine_integers(op, n, m);
    double x = 0;
    double y = 0;
    if (a.as_number(x) && b.as_number(y)) {
      if (op == "+") return Value::of(x + y);
      if (op == "-") return Value::of(x - y);
      if (op == "*") return Value::of(x * y);
      if (op == "**") return Value::of(std::pow(x, y));
      if (y != 0) {
        if (op == "/") return Value::of(x / y);
        if (op == "//") return Value::of(std::floor(x / y));
        if (op == "%") return Value::of(x - y * std::floor(x / y));
      }
      return make_error(BLEND_E_INVALID_ARGUMENT, "a division by 0");
    }
    for (const Value* const v : {&a, &b}) {
      if (v->is_undefined()) {
        return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is undefined",
                          v->undefined()->name.c_str());
      }
    }
    if (op == "%" && a.text() != nullptr) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "'%%' on strings, which libblend does not know; give "
                        "another template");
    }
    return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' between %s and %s", op.c_str(), a.kind(),
                      b.kind());
  }

  static Result<Value> combine_integers(const std::string& op, int64_t n, int64_t m) {
    int64_t out = 0;
    bool over = false;
    if (op == "+") {
      over = __builtin_add_overflow(n, m, &out);
    } else if (op == "-") {
      over = __builtin_sub_overflow(n, m, &out);
    } else if (op == "*") {
      over = __builtin_mul_overflow(n, m, &out);
    } else if (op == "**") {
      if (m < 0 || m > 64) over = true;
      out = 1;
      for (int64_t i = 0; i < m && !over; ++i) over = __builtin_mul_overflow(out, n, &out);
    } else {
      if (m == 0) return make_error(BLEND_E_INVALID_ARGUMENT, "a division by 0");
      if (m == -1) {  // whose quotient of the least integer is none
        over = op == "//" && __builtin_sub_overflow(int64_t{0}, n, &out);
      } else {
        const int64_t quotient = n / m - ((n % m != 0 && (n < 0) != (m < 0)) ? 1 : 0);
        out = op == "//" ? quotient : n - quotient * m;
      }
    }
    if (over) {
      return make_error(BLEND_E_UNSUPPORTED, "a number of more than 64 bits");
    }
    return Value::of(out);
  }

  Result<CallArguments> arguments(const Arguments& given) {
    CallArguments out;
    for (const ExpressionPtr& part : given.positional) {
      BLEND_ASSIGN(Value value, evaluate(*part));
      out.positional.push_back(std::move(value));
    }
    for (const auto& [name, part] : given.named) {
      BLEND_ASSIGN(Value value, evaluate(*part));
      out.named.emplace_back(name, std::move(value));
    }
    return out;
  }

  // `inside`: what the innermost filter of a block is applied to, which has no expression.
  Result<Value> filtered(const Expression& e, Value inside) {
    Value value = std::move(inside);
    if (e.parts[0] != nullptr) {
      const bool block = e.parts[0]->kind == Kind::filter && !value.is_undefined();
      if (block) {
        BLEND_ASSIGN(value, filtered(*e.parts[0], std::move(value)));
      } else {
        BLEND_ASSIGN(value, evaluate(*e.parts[0]));
      }
    }
    BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
    return apply_filter(e.name, value, given, meter_);
  }

  // ---- functions

  static Value built_in(const std::string& name) {
    for (const char* const known :
         {"raise_exception", "strftime_now", "namespace", "range", "dict"}) {
      if (name != known) continue;
      Callable function;
      function.name = name;
      return Value::of(std::move(function));
    }
    return Value::undefined(name);
  }

  Result<Value> call(const Expression& e) {
    BLEND_ASSIGN(const Value what, evaluate(*e.parts[0]));
    const Callable* const f = what.callable();
    if (f == nullptr) {
      const Expression& callee = *e.parts[0];
      return make_error(BLEND_E_UNSUPPORTED,
                        "the chat template calls '%.60s', which libblend does not know; give "
                        "another template",
                        callee.name.empty() ? what.kind() : callee.name.c_str());
    }
    BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
    if (f->macro != nullptr) return call_macro(*f->macro, given);
    if (f->self != nullptr) return call_method(f->name, *f->self, given, meter_);
    if (f->name == "raise_exception") return raise(given);
    if (f->name == "namespace") return make_namespace(given);
    if (f->name == "range") return range(given);
    if (f->name == "strftime_now") {
      const Value* const format = given.get(0, "format");
      if (format == nullptr || format->text() == nullptr) {
        return make_error(BLEND_E_INVALID_ARGUMENT, "strftime_now needs a format");
      }
      BLEND_ASSIGN(const std::string text, format_time(format->text()->bytes(), now_));
      BLEND_RETURN_IF_ERROR(meter_.take(text.size()));
      return Value::text(text);
    }
    Dict members;  // dict(a=1), dict(mapping, a=1)
    if (!given.positional.empty()) {
      const Dict* const of = given.positional[0].dict();
      if (of == nullptr || given.positional.size() > 1) {
        return make_error(BLEND_E_UNSUPPORTED, "dict() of %s, which libblend does not know",
                          given.positional[0].kind());
      }
      BLEND_RETURN_IF_ERROR(meter_.take(of->size() * 2 * sizeof(Value)));
      members = *of;
    }
    for (const auto& [name, value] : given.named) {
      const std::string& wanted = name;
      const auto same = std::find_if(members.begin(), members.end(), [&wanted](const auto& m) {
        return m.first.text() != nullptr && m.first.text()->bytes() == wanted;
      });
      if (same != members.end()) {
        same->second = value;
      } else {
        members.emplace_back(Value::text(name), value);
      }
    }
    return Value::dict(std::move(members));
  }

  static Status raise(const CallArguments& given) {
    std::string message;
    if (const Value* const v = given.get(0, "message"); v != nullptr && v->text() != nullptr) {
      message = v->text()->bytes().substr(0, 400);
    }
    return make_error(BLEND_E_INVALID_ARGUMENT, "the model's chat template refuses: %s",
                      message.c_str());
  }

  Result<Value> make_namespace(const CallArguments& given) {
    if (!given.positional.empty()) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "namespace() of a mapping, which libblend does not know");
    }
    BLEND_RETURN_IF_ERROR(meter_.take(sizeof(Namespace) + given.named.size() * sizeof(Value)));
    owned_spaces_.push_back(std::make_unique<Namespace>());
    owned_spaces_.back()->members = given.named;
    return Value::of(owned_spaces_.back().get());
  }

  Result<Value> range(const CallArguments& given) {
    int64_t n[3] = {0, 0, 1};
    const size_t count = given.positional.size();
    if (count < 1 || count > 3) return make_error(BLEND_E_INVALID_ARGUMENT, "range() of nothing");
    for (size_t i = 0; i < count; ++i) {
      if (!given.positional[i].as_integer(n[count == 1 ? 1 : i])) {
        return make_error(BLEND_E_INVALID_ARGUMENT, "range() of %s", given.positional[i].kind());
      }
    }
    if (n[2] == 0) return make_error(BLEND_E_INVALID_ARGUMENT, "range() in steps of 0");
    List out;
    for (int64_t i = n[0]; n[2] > 0 ? i < n[1] : i > n[1];) {
      BLEND_RETURN_IF_ERROR(meter_.take(sizeof(Value)));
      out.push_back(Value::of(i));
      if (__builtin_add_overflow(i, n[2], &i)) break;
    }
    return Value::list(std::move(out));
  }

  Result<Value> call_macro(const Macro& macro, const CallArguments& given) {
    if (++calls_ > kMaxCalls) {
      return make_error(BLEND_E_UNSUPPORTED, "macros call one another more than %d deep",
                        kMaxCalls);
    }
    if (given.positional.size() > macro.parameters.size()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "macro '%s' takes %zu arguments and is given %zu",
                        macro.name.c_str(), macro.parameters.size(), given.positional.size());
    }
    scopes_.push_back({{}, true});
    Text out;
    Status failed;
    for (size_t i = 0; i < macro.parameters.size() && failed.is_ok(); ++i) {
      const auto& [name, otherwise] = macro.parameters[i];
      Value value = Value::undefined(name);
      if (const Value* const v = given.get(i, name)) {
        value = *v;
      } else if (otherwise != nullptr) {
        Result<Value> computed = evaluate(*otherwise);
        failed = computed.status();
        if (computed.is_ok()) value = std::move(*computed);
      }
      put(scopes_.back().names, name, std::move(value));
    }
    if (failed.is_ok()) failed = run_body(macro.body, out).status();
    scopes_.pop_back();
    --calls_;
    if (!failed.is_ok()) return failed;
    return Value::of(std::move(out));
  }

  Meter meter_;
  int64_t now_;
  std::vector<Scope> scopes_;
  std::vector<std::unique_ptr<Namespace>> owned_spaces_;
  std::vector<std::unique_ptr<Loop>> owned_loops_;
  int calls_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxSource) {
    return make_error(BLEND_E_UNSUPPORTED, "a chat template of %zu bytes; up to %zu are read",
                      source.size(), kMaxSource);
  }
  BLEND_ASSIGN(Syntax syntax, chat::parse(source));
  return Template(std::make_shared<const Syntax>(std::move(syntax)));
}

bool Template::names_documents() const { return syntax_->names_documents; }

Result<Text> Template::render(const Variables& variables, int64_t now, size_t fuel) const {
  for (const auto& [name, value] : variables) {
    size_t more = 0;
    if (__builtin_mul_overflow(value.weight(), size_t{64}, &more) ||
        __builtin_add_overflow(fuel, more, &fuel)) {
      return Status::out_of_memory();
    }
  }
  return Renderer(variables, now, fuel).run(syntax_->body);
}

}  // namespace blend::chat
