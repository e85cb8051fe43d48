#include "chat/template.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "chat/arithmetic.h"
#include "chat/builder.h"
#include "chat/clock.h"
#include "chat/compare.h"
#include "chat/functions.h"
#include "chat/loop.h"
#include "chat/parser.h"
#include "chat/print.h"

namespace blend::chat {

namespace {

using Kind = Expression::Kind;

// Of macros that call one another.
constexpr int kMaxCalls = 16;
// Of one step, in fuel.
constexpr size_t kStep = 8;

// Kept out of the frames of what calls it: they lie on the stack as often as a template nests.
#define BLEND_CHAT_APART [[gnu::noinline]]

// One rendering. Not thread-safe.
class Renderer {
 public:
  Renderer(const Variables& variables, int64_t now, size_t fuel, const CancelToken* cancel)
      : meter_(fuel, cancel), now_(now), variables_(variables) {
    scopes_.emplace_back();  // of the template
  }

  Result<Text> run(const Body& body) {
    TextBuilder out(meter_);
    BLEND_ASSIGN([[maybe_unused]] const Flow flow, run_body(body, out));
    return out.take();
  }

 private:
  enum class Flow : uint8_t { next, break_loop, continue_loop };
  static constexpr size_t kOutermost = 1;  // scopes: the template's own names
  struct Scope {
    Names names;
    bool closed =
        false;  // what is called in it does not see the scopes before it, but the template's
  };

  // ---- names

  Result<const Value*> look_up(const std::string& name) {
    for (size_t i = scopes_.size(); i-- > 0;) {
      const Names& names = scopes_[i].names;
      BLEND_RETURN_IF_ERROR(meter_.take_search(names.size(), name.size()));
      const auto found = names.find(name);
      if (found != names.end()) return &found->second;
      if (scopes_[i].closed) i = std::min<size_t>(i, kOutermost);
    }
    BLEND_RETURN_IF_ERROR(meter_.take_search(variables_.size(), name.size()));
    const auto found = variables_.find(name);
    const Value* const none = nullptr;
    return found == variables_.end() ? none : &found->second;
  }

  Status put(Names& names, const std::string& name, Value value) {
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + name.size()));
    BLEND_RETURN_IF_ERROR(meter_.take_search(names.size(), name.size()));
    names.insert_or_assign(name, std::move(value));
    return Status::ok();
  }

  BLEND_CHAT_APART Status assign(const Target& target, Value value) {
    if (!target.member.empty()) {
      BLEND_ASSIGN(const Value* const space, look_up(target.names[0]));
      if (space == nullptr || space->space() == nullptr) {
        return make_error(BLEND_E_INVALID_ARGUMENT,
                          "'%s' is no namespace, and only one can be assigned to",
                          target.names[0].c_str());
      }
      return put(space->space()->members, target.member, std::move(value));
    }
    if (!target.tuple) return put(scopes_.back().names, target.names[0], std::move(value));
    BLEND_ASSIGN(const Value all, listed(value, meter_));
    const List& items = *all.list();
    if (items.size() != target.names.size()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "%zu values for %zu names", items.size(),
                        target.names.size());
    }
    for (size_t i = 0; i < items.size(); ++i) {
      BLEND_RETURN_IF_ERROR(put(scopes_.back().names, target.names[i], items[i]));
    }
    return Status::ok();
  }

  // ---- statements

  Result<Flow> run_body(const Body& body, TextBuilder& out) {
    const Meter::Depth depth(meter_);
    BLEND_RETURN_IF_ERROR(depth.check());
    for (const auto& statement : body) {
      BLEND_RETURN_IF_ERROR(meter_.take(kStep));
      Result<Flow> flow = run(*statement, out);
      if (!flow.is_ok()) return located(flow.status(), statement->line);
      if (*flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  // What the body sets is gone after it.
  BLEND_CHAT_APART Result<Flow> run_scoped(const Body& body, TextBuilder& out) {
    scopes_.emplace_back();
    Result<Flow> flow = run_body(body, out);
    scopes_.pop_back();
    return flow;
  }

  // The innermost line only.
  BLEND_CHAT_APART static Status located(Status status, size_t line) {
    if (status.code() == BLEND_E_CANCELLED || status.message().starts_with("line ")) return status;
    return status.with_context("line " + std::to_string(line) + " of the chat template");
  }

  Result<Flow> run(const Statement& s, TextBuilder& out) {
    switch (s.kind) {
      case Statement::Kind::data:
        return after(out.append(s.data, kTemplate));
      case Statement::Kind::write:
        return after(write(s, out));
      case Statement::Kind::condition:
        return run_condition(s, out);
      case Statement::Kind::loop:
        return run_loop(s, out);
      case Statement::Kind::set:
        return after(set(s));
      case Statement::Kind::set_block:
      case Statement::Kind::filter_block:
        return run_block(s, out);
      case Statement::Kind::macro:
        return after(define(s.macro));
      case Statement::Kind::break_loop:
        return Flow::break_loop;
      case Statement::Kind::continue_loop:
        return Flow::continue_loop;
      case Statement::Kind::body:
        return run_scoped(s.body, out);
    }
    return Flow::next;
  }
  static Result<Flow> after(Status status) {
    return status.is_ok() ? Result<Flow>(Flow::next) : Result<Flow>(std::move(status));
  }

  BLEND_CHAT_APART Status write(const Statement& s, TextBuilder& out) {
    BLEND_ASSIGN(const Value value, evaluate(*s.value));
    return append_text(value, out);
  }

  BLEND_CHAT_APART Status set(const Statement& s) {
    BLEND_ASSIGN(Value value, evaluate(*s.value));
    return assign(s.target, std::move(value));
  }

  BLEND_CHAT_APART Result<Flow> run_condition(const Statement& s, TextBuilder& out) {
    for (const auto& [when, body] : s.branches) {
      BLEND_ASSIGN(const bool holds, is_true(*when));
      if (holds) return run_body(body, out);
    }
    return run_body(s.otherwise, out);
  }
  BLEND_CHAT_APART Result<bool> is_true(const Expression& e) {
    BLEND_ASSIGN(const Value value, evaluate(e));
    return value.truth();
  }

  BLEND_CHAT_APART Result<Flow> run_block(const Statement& s, TextBuilder& out) {
    Value value;
    scopes_.emplace_back();
    Result<Flow> flow = fill_block(s, value);
    scopes_.pop_back();
    if (!flow.is_ok() || *flow != Flow::next) return flow;
    if (s.kind == Statement::Kind::set_block) return after(assign(s.target, std::move(value)));
    return after(append_text(value, out));
  }
  // The filters see what the body sets.
  BLEND_CHAT_APART Result<Flow> fill_block(const Statement& s, Value& value) {
    TextBuilder inside(meter_);
    BLEND_ASSIGN(const Flow flow, run_body(s.body, inside));
    if (flow != Flow::next) return flow;
    BLEND_ASSIGN(value, inside.value());
    if (s.value == nullptr) return flow;
    BLEND_ASSIGN(value, evaluate(*s.value, std::move(value)));
    return flow;
  }

  BLEND_CHAT_APART Status define(const Macro& macro) {
    // Its body would see the names around it, wherever it is called.
    if (scopes_.size() > kOutermost) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "macro '%.60s' inside a loop or another macro, which libblend does not "
                        "know; give another template",
                        macro.name.c_str());
    }
    Callable callable;
    callable.name = macro.name;
    callable.macro = &macro;
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + macro.name.size()));
    return put(scopes_.back().names, macro.name, Value::of(std::move(callable)));
  }

  // ---- loops

  BLEND_CHAT_APART Result<std::shared_ptr<Loop>> begin_loop(const Statement& s) {
    BLEND_ASSIGN(const Value over, evaluate(*s.value));
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + sizeof(Loop)));
    auto loop = std::make_shared<Loop>();
    BLEND_ASSIGN(loop->items, listed(over, meter_));
    loop->depth = loop->items.depth();
    loop->length = loop->items.list()->size();
    if (s.filter != nullptr) loop->statement = &s;
    loop->scopes = scopes_.size();
    loop->asides = asides_.size();
    return loop;
  }

  Result<Flow> run_loop(const Statement& s, TextBuilder& out) {
    BLEND_ASSIGN(const std::shared_ptr<Loop> loop, begin_loop(s));
    Result<Flow> flow = turns(s, loop, out);
    loop->ended = true;
    return flow;
  }

  BLEND_CHAT_APART Result<Flow> turns(const Statement& s, const std::shared_ptr<Loop>& loop,
                                      TextBuilder& out) {
    BLEND_ASSIGN(std::optional<Value> item, take_item(*loop));
    // As Jinja has it: what stands after `else` is for a loop no turn of which came to its end.
    bool ended = false;
    while (item) {
      loop->now = std::move(*item);
      scopes_.emplace_back();
      Status status = put(scopes_.back().names, "loop", Value::of(loop));
      if (status.is_ok()) status = assign(s.target, loop->now);
      Flow flow = Flow::next;
      if (status.is_ok()) {
        Result<Flow> done = run_body(s.body, out);
        status = done.status();
        if (done.is_ok()) flow = *done;
      }
      scopes_.pop_back();
      BLEND_RETURN_IF_ERROR(status);
      ended = ended || flow == Flow::next;
      if (flow == Flow::break_loop) break;
      BLEND_ASSIGN(item, take_item(*loop));
      if (!item) break;
      loop->before = std::move(loop->now);
      ++loop->index;
    }
    return ended ? Result<Flow>(Flow::next) : run_scoped(s.otherwise, out);
  }

  // The next item that the filter lets through; nothing at the end.
  Result<std::optional<Value>> take_item(Loop& loop) {
    if (loop.after) return std::exchange(loop.after, std::nullopt);
    while (loop.next < loop.items.list()->size()) {
      BLEND_RETURN_IF_ERROR(meter_.take(kStep));
      const Value item = (*loop.items.list())[loop.next++];
      if (loop.statement == nullptr) return std::optional<Value>(item);
      BLEND_ASSIGN(const bool let, passes(loop, item));
      if (let) return std::optional<Value>(item);
    }
    return std::optional<Value>();
  }

  // The filter sees what the loop saw where it began, from wherever it is asked: later scopes are
  // put aside. They may be those of a loop inside, which then cannot be asked.
  BLEND_CHAT_APART Result<bool> passes(Loop& loop, const Value& item) {
    if (loop.judges) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "a loop's filter asks what the loop comes to");
    }
    if (loop.ended) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "a loop with a filter is asked for its items after its end, which "
                        "libblend does not know; give another template");
    }
    for (size_t i = loop.asides; i < asides_.size(); ++i) {
      if (loop.scopes <= asides_[i]) continue;
      return make_error(BLEND_E_UNSUPPORTED,
                        "a loop's filter asks a loop inside of it for its items, which libblend "
                        "does not know; give another template");
    }
    const auto first = scopes_.begin() + static_cast<std::ptrdiff_t>(loop.scopes);
    std::vector<Scope> inner(std::make_move_iterator(first),
                             std::make_move_iterator(scopes_.end()));
    scopes_.resize(loop.scopes);
    scopes_.emplace_back();
    Result<bool> out = false;
    loop.judges = true;
    asides_.push_back(loop.scopes);
    if (Status assigned = assign(loop.statement->target, item); assigned.is_ok()) {
      out = is_true(*loop.statement->filter);
    } else {
      out = std::move(assigned);
    }
    asides_.pop_back();
    loop.judges = false;
    scopes_.resize(loop.scopes);
    std::move(inner.begin(), inner.end(), std::back_inserter(scopes_));
    return out;
  }

  Status look_ahead(Loop& loop) {
    if (loop.after) return Status::ok();
    BLEND_ASSIGN(loop.after, take_item(loop));
    return Status::ok();
  }

  // Takes all that is left.
  BLEND_CHAT_APART Result<int64_t> length_of(Loop& loop) {
    if (loop.statement != nullptr) {
      List rest;
      while (true) {
        BLEND_ASSIGN(std::optional<Value> item, take_item(loop));
        if (!item) break;
        BLEND_RETURN_IF_ERROR(meter_.take(2 * sizeof(Value)));
        rest.push_back(std::move(*item));
      }
      loop.length = loop.index + 1 + rest.size();
      BLEND_ASSIGN(loop.items, Value::list(std::move(rest)));
      loop.next = 0;
      loop.statement = nullptr;
    }
    return static_cast<int64_t>(loop.length);
  }

  BLEND_CHAT_APART Result<Value> loop_member(const Value& value, const std::string& name) {
    Loop& loop = *value.loop();
    const auto i = static_cast<int64_t>(loop.index);
    if (name == "index") return Value::of(i + 1);
    if (name == "index0") return Value::of(i);
    if (name == "first") return Value::of(i == 0);
    // Of loops that call themselves, which there are none of here.
    if (name == "depth") return Value::of(int64_t{1});
    if (name == "depth0") return Value::of(int64_t{0});
    if (name == "previtem") return loop.before ? *loop.before : Value::undefined("loop.previtem");
    if (name == "cycle") return method_of(value, name);
    if (name == "last" || name == "nextitem") {
      BLEND_RETURN_IF_ERROR(look_ahead(loop));
      if (name == "last") return Value::of(!loop.after.has_value());
      return loop.after ? *loop.after : Value::undefined("loop.nextitem");
    }
    if (name == "length" || name == "revindex" || name == "revindex0") {
      BLEND_ASSIGN(const int64_t n, length_of(loop));
      return Value::of(name == "length" ? n : name == "revindex" ? n - i : n - i - 1);
    }
    return make_error(BLEND_E_UNSUPPORTED,
                      "'loop.%.60s', which libblend does not know; give another template",
                      name.c_str());
  }

  // ---- expressions

  // `inside`: what the innermost filter of a block is applied to, which has no expression.
  Result<Value> evaluate(const Expression& e, Value inside = Value()) {
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

  // What the others of the expression are applied to, one after another: chains of operators,
  // members and filters, however long, take no more of the stack than one of them.
  BLEND_CHAT_APART Result<Value> innermost(const Expression& e, Value inside) {
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

  BLEND_CHAT_APART Result<Value> apply(const Expression& e, Value value) {
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

  BLEND_CHAT_APART Result<Value> named(const Expression& e) {
    BLEND_ASSIGN(const Value* const value, look_up(e.name));
    if (value != nullptr) return *value;
    if (calls_ > 0 && (e.name == "varargs" || e.name == "kwargs" || e.name == "caller")) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "'%s' of a macro, which libblend does not know; give another template",
                        e.name.c_str());
    }
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue));
    return built_in(e.name);
  }

  BLEND_CHAT_APART Result<Value> evaluate_list(const Expression& e) {
    BLEND_RETURN_IF_ERROR(take_list(e.parts.size(), meter_));
    List items;
    items.reserve(e.parts.size());
    for (const ExpressionPtr& part : e.parts) {
      BLEND_ASSIGN(Value item, evaluate(*part));
      items.push_back(std::move(item));
    }
    return Value::list(std::move(items), e.kind == Kind::tuple);
  }

  BLEND_CHAT_APART Result<Value> evaluate_dict(const Expression& e) {
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

  // value.name: a method first, as getattr() has it, then a member.
  BLEND_CHAT_APART Result<Value> member(const Value& value, const std::string& name) {
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

  Result<Value> method_of(const Value& value, const std::string& name) {
    BLEND_RETURN_IF_ERROR(meter_.take(2 * Meter::kValue));
    Callable method;
    method.name = name;
    method.self = std::make_shared<const Value>(value);
    return Value::of(std::move(method));
  }

  Result<Value> macro_member(const Macro& macro, const std::string& name) {
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + macro.name.size()));
    if (name == "name") return Value::text(macro.name);
    // What such a macro would take, which there is none of here.
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

  BLEND_CHAT_APART Result<Value> evaluate_item(const Expression& e, const Value& value) {
    BLEND_ASSIGN(const Value index, evaluate(*e.parts[1]));
    BLEND_ASSIGN(Value item, item_of(value, index, meter_));
    if (!item.is_undefined() || index.text() == nullptr) return item;
    BLEND_RETURN_IF_ERROR(meter_.take(index.text()->size()));
    return member(value, index.text()->bytes());
  }

  BLEND_CHAT_APART Result<Value> evaluate_slice(const Expression& e, const Value& value) {
    Value bounds[3];
    const Value* given[3] = {};
    for (size_t i = 0; i < 3; ++i) {
      if (e.parts[i + 1] == nullptr) continue;
      BLEND_ASSIGN(bounds[i], evaluate(*e.parts[i + 1]));
      given[i] = &bounds[i];
    }
    return slice_of(value, given[0], given[1], given[2], meter_);
  }

  BLEND_CHAT_APART Result<Value> evaluate_filter(const Expression& e, const Value& value) {
    BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
    return apply_filter(e.name, value, given, meter_);
  }

  BLEND_CHAT_APART Result<Value> evaluate_test(const Expression& e, const Value& value) {
    BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
    BLEND_ASSIGN(const bool holds, apply_test(e.name, value, given, meter_));
    return Value::of(holds);
  }

  BLEND_CHAT_APART Result<Value> evaluate_binary(const Expression& e, const Value& value) {
    BLEND_ASSIGN(const Value right, evaluate(*e.parts[1]));
    return combine(e.name, value, right, meter_);
  }

  BLEND_CHAT_APART Result<Value> evaluate_compare(const Expression& e, Value left) {
    for (size_t i = 0; i < e.names.size(); ++i) {
      BLEND_ASSIGN(Value right, evaluate(*e.parts[i + 1]));
      BLEND_ASSIGN(const bool holds, compare(e.names[i], left, right));
      if (!holds) return Value::of(false);
      left = std::move(right);
    }
    return Value::of(true);
  }

  BLEND_CHAT_APART Result<bool> compare(const std::string& op, const Value& left,
                                        const Value& right) {
    if (op == "in" || op == "not in") {
      BLEND_ASSIGN(const bool found, contains(right, left, meter_));
      return found == (op == "in");
    }
    if (op == "==" || op == "!=") {
      BLEND_ASSIGN(const bool same, equal(left, right, meter_));
      return same == (op == "==");
    }
    // a <= b where a < b or a == b: of numbers that have no order neither holds.
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

  BLEND_CHAT_APART Result<CallArguments> arguments(const Arguments& given) {
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

  BLEND_CHAT_APART Result<Value> call(const Expression& e, const Value& what) {
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
    if (f->self != nullptr && f->self->loop() != nullptr) return cycle(*f->self->loop(), given);
    if (f->self != nullptr) return call_method(f->name, *f->self, given, meter_);
    return call_function(f->name, given);
  }

  BLEND_CHAT_APART Result<Value> call_function(const std::string& name,
                                               const CallArguments& given) {
    if (name == "raise_exception") return raise(given);
    if (name == "namespace") return make_namespace(given);
    if (name == "range") return range(given);
    if (name == "dict") return make_dict(given);
    const Value* const format = given.get(0, "format");
    if (format == nullptr || format->text() == nullptr) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "strftime_now needs a format");
    }
    BLEND_ASSIGN(const std::string text, format_time(format->text()->bytes(), now_));
    BLEND_RETURN_IF_ERROR(meter_.take(8 * Meter::kValue + text.size()));
    const std::vector<Text::Run>& runs = format->text()->runs();
    const bool own = std::all_of(runs.begin(), runs.end(),
                                 [](const Text::Run& run) { return run.origin == kTemplate; });
    return Value::text(text, own ? kTemplate : kMessage);
  }

  static Result<Value> cycle(const Loop& loop, const CallArguments& given) {
    if (given.positional.empty() || !given.named.empty()) return unknown("method", "cycle");
    return given.positional[loop.index % given.positional.size()];
  }

  // dict(a=1), dict(mapping, a=1)
  Result<Value> make_dict(const CallArguments& given) {
    Dict members;
    if (!given.positional.empty()) {
      const Dict* const of = given.positional[0].dict();
      if (of == nullptr || given.positional.size() > 1) {
        return make_error(BLEND_E_UNSUPPORTED, "dict() of %s, which libblend does not know",
                          given.positional[0].kind());
      }
      BLEND_RETURN_IF_ERROR(take_dict(*of, meter_));
      members = *of;
    }
    for (const auto& [name, value] : given.named) {
      BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + name.size()));
      members.emplace_back(Value::text(name), value);
    }
    BLEND_RETURN_IF_ERROR(take_dict(members, meter_));
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
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + sizeof(Namespace)));
    owned_spaces_.push_back(std::make_unique<Namespace>());
    Namespace* const space = owned_spaces_.back().get();
    for (const auto& [name, value] : given.named) {
      BLEND_RETURN_IF_ERROR(put(space->members, name, value));
    }
    return Value::of(space);
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
      BLEND_RETURN_IF_ERROR(meter_.take(2 * sizeof(Value)));
      out.push_back(Value::of(i));
      if (__builtin_add_overflow(i, n[2], &i)) break;
    }
    return Value::list(std::move(out));
  }

  BLEND_CHAT_APART Result<Value> call_macro(const Macro& macro, const CallArguments& given) {
    if (++calls_ > kMaxCalls) {
      return make_error(BLEND_E_UNSUPPORTED, "macros call one another more than %d deep",
                        kMaxCalls);
    }
    scopes_.push_back({{}, true});
    TextBuilder out(meter_);
    Status status = give(macro, given);
    if (status.is_ok()) status = run_body(macro.body, out).status();
    scopes_.pop_back();
    --calls_;
    BLEND_RETURN_IF_ERROR(status);
    return out.value();
  }

  // A macro's parameters, into the scope of the call.
  BLEND_CHAT_APART Status give(const Macro& macro, const CallArguments& given) {
    if (given.positional.size() > macro.parameters.size()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "macro '%s' takes %zu arguments and is given %zu",
                        macro.name.c_str(), macro.parameters.size(), given.positional.size());
    }
    Names named;
    for (const auto& [name, value] : given.named) BLEND_RETURN_IF_ERROR(put(named, name, value));
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, otherwise] = macro.parameters[i];
      Value value = Value::undefined(name);
      if (i < given.positional.size()) {
        value = given.positional[i];
      } else if (const auto found = named.extract(name); !found.empty()) {
        value = found.mapped();
      } else if (otherwise != nullptr) {
        BLEND_ASSIGN(value, evaluate(*otherwise));
      }
      BLEND_RETURN_IF_ERROR(put(scopes_.back().names, name, std::move(value)));
    }
    if (named.empty()) return Status::ok();
    return make_error(BLEND_E_INVALID_ARGUMENT, "macro '%.60s' takes no argument '%.60s' here",
                      macro.name.c_str(), named.begin()->first.c_str());
  }

  Meter meter_;
  int64_t now_;
  const Variables& variables_;
  std::vector<Scope> scopes_;
  std::vector<size_t> asides_;  // of filters that are asked: how many scopes are not put aside
  std::vector<const Expression*> operators_;  // that wait for what they are applied to
  std::vector<std::unique_ptr<Namespace>> owned_spaces_;
  int calls_ = 0;
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

Result<Text> Template::render(const Variables& variables, int64_t now, size_t fuel,
                              const CancelToken* cancel) const {
  size_t weight = 0;
  for (const auto& [name, value] : variables) {
    if (__builtin_add_overflow(weight, value.weight(), &weight)) return Status::out_of_memory();
  }
  size_t more = 0;
  if (__builtin_mul_overflow(weight, kFuelPerWeight, &more) ||
      __builtin_add_overflow(fuel, more, &fuel)) {
    return Status::out_of_memory();
  }
  BLEND_ASSIGN(Text text, Renderer(variables, now, fuel, cancel).run(syntax_->body));
  if (text.size() <= kText + weight * kTextPerWeight) return text;
  return make_error(BLEND_E_UNSUPPORTED,
                    "the chat template makes %zu bytes of what it is given, which is more than "
                    "libblend allows one; give another template",
                    text.size());
}

}  // namespace blend::chat
