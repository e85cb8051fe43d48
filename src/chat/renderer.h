// Renderer: one rendering of a template.
//
// Its methods are in statements.cpp, loops.cpp, expressions.cpp and calls.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/builder.h"
#include "chat/functions.h"
#include "chat/loop.h"
#include "chat/syntax.h"
#include "chat/template.h"

namespace blend::chat {

// Not inlined, to keep the callers' frames small: they are on the stack once for each level of
// nesting.
#define BLEND_CHAT_APART [[gnu::noinline]]

// What a statement does with the loop around it.
enum class Flow : uint8_t { next, break_loop, continue_loop };

// Not thread-safe.
class Renderer {
 public:
  Renderer(const Variables& variables, int64_t now, size_t fuel, const CancelToken* cancel)
      : meter_(fuel, cancel), now_(now), variables_(variables) {
    scopes_.emplace_back();  // the template's own names
  }

  Result<Text> run(const Body& body);

 private:
  static constexpr size_t kStep = 8;       // fuel for a step
  static constexpr size_t kOutermost = 1;  // scopes: the template's own names
  struct Scope {
    Names names;
    bool closed = false;  // a macro's call, which sees only itself and the template's own names
  };

  // Names.
  Result<const Value*> look_up(const std::string& name);
  Status put(Names& names, const std::string& name, Value value);
  BLEND_CHAT_APART Status assign(const Target& target, Value value);

  // Statements.
  Result<Flow> run_body(const Body& body, TextBuilder& out);
  // Variables that the body sets are dropped after it.
  BLEND_CHAT_APART Result<Flow> run_scoped(const Body& body, TextBuilder& out);
  // Adds the line to an error, if it has none yet.
  BLEND_CHAT_APART static Status located(Status status, size_t line);
  Result<Flow> run(const Statement& s, TextBuilder& out);
  static Result<Flow> after(Status status);
  BLEND_CHAT_APART Status write(const Statement& s, TextBuilder& out);
  BLEND_CHAT_APART Status set(const Statement& s);
  BLEND_CHAT_APART Result<Flow> run_condition(const Statement& s, TextBuilder& out);
  BLEND_CHAT_APART Result<bool> is_true(const Expression& e);
  BLEND_CHAT_APART Result<Flow> run_block(const Statement& s, TextBuilder& out);
  // The filters see the variables that the body sets.
  BLEND_CHAT_APART Result<Flow> fill_block(const Statement& s, Value& value);
  BLEND_CHAT_APART Status define(const Macro& macro);

  // Loops.
  BLEND_CHAT_APART Result<std::shared_ptr<Loop>> begin_loop(const Statement& s);
  Result<Flow> run_loop(const Statement& s, TextBuilder& out);
  BLEND_CHAT_APART Result<Flow> run_items(const Statement& s, const std::shared_ptr<Loop>& loop,
                                          TextBuilder& out);
  // The next item that passes the filter; nothing at the end.
  Result<std::optional<Value>> take_item(Loop& loop);
  // Evaluates the loop's filter. The filter sees the scopes of the loop's beginning, wherever it is
  // evaluated: later scopes are put aside. Loops in those scopes cannot evaluate their filters
  // then.
  BLEND_CHAT_APART Result<bool> passes(Loop& loop, const Value& item);
  Status look_ahead(Loop& loop);
  // Takes all remaining items.
  BLEND_CHAT_APART Result<int64_t> length_of(Loop& loop);
  BLEND_CHAT_APART Result<Value> loop_member(const Value& value, const std::string& name);

  // Expressions.
  // `inside`: the text of a filter block, to which the innermost filter is applied.
  Result<Value> evaluate(const Expression& e, Value inside = Value());
  // The operand that the rest of the expression is applied to, step by step. So a chain of
  // operators, members and filters needs no more stack than one of them, however long it is.
  BLEND_CHAT_APART Result<Value> innermost(const Expression& e, Value inside);
  BLEND_CHAT_APART Result<Value> apply(const Expression& e, Value value);
  BLEND_CHAT_APART Result<Value> named(const Expression& e);
  BLEND_CHAT_APART Result<Value> evaluate_list(const Expression& e);
  BLEND_CHAT_APART Result<Value> evaluate_dict(const Expression& e);
  // value.name: first a method, as with getattr(), then a member.
  BLEND_CHAT_APART Result<Value> member(const Value& value, const std::string& name);
  Result<Value> method_of(const Value& value, const std::string& name);
  Result<Value> macro_member(const Macro& macro, const std::string& name);
  BLEND_CHAT_APART Result<Value> evaluate_item(const Expression& e, const Value& value);
  BLEND_CHAT_APART Result<Value> evaluate_slice(const Expression& e, const Value& value);
  BLEND_CHAT_APART Result<Value> evaluate_filter(const Expression& e, const Value& value);
  BLEND_CHAT_APART Result<Value> evaluate_test(const Expression& e, const Value& value);
  BLEND_CHAT_APART Result<Value> evaluate_binary(const Expression& e, const Value& value);
  BLEND_CHAT_APART Result<Value> evaluate_compare(const Expression& e, Value left);
  BLEND_CHAT_APART Result<bool> compare(const std::string& op, const Value& left,
                                        const Value& right);
  BLEND_CHAT_APART Result<CallArguments> arguments(const Arguments& given);

  // Calls.
  static Value built_in(const std::string& name);
  BLEND_CHAT_APART Result<Value> call(const Expression& e, const Value& what);
  BLEND_CHAT_APART Result<Value> call_function(const std::string& name, const CallArguments& given);
  static Result<Value> cycle(const Loop& loop, const CallArguments& given);
  // dict(a=1), dict(mapping, a=1)
  Result<Value> make_dict(const CallArguments& given);
  static Status raise(const CallArguments& given);
  Result<Value> make_namespace(const CallArguments& given);
  Result<Value> range(const CallArguments& given);
  BLEND_CHAT_APART Result<Value> call_macro(const Macro& macro, const CallArguments& given);
  // Sets a macro's parameters in the scope of the call.
  BLEND_CHAT_APART Status bind_parameters(const Macro& macro, const CallArguments& given);

  Meter meter_;
  int64_t now_;
  const Variables& variables_;
  std::vector<Scope> scopes_;
  std::vector<size_t> asides_;  // for each running loop filter the number of scopes that it sees
  std::vector<const Expression*> operators_;  // operators that wait for their operand
  std::vector<std::unique_ptr<Namespace>> owned_spaces_;
  int calls_ = 0;
};

}  // namespace blend::chat
