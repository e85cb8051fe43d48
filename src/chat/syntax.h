// The tree of a parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace blend::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Expression {
  enum class Kind : uint8_t {
    constant,
    name,
    list,
    tuple,
    dict,       // parts: name, value, name, value, ...
    member,     // parts[0].name
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]], null where left out
    call,       // parts[0](arguments)
    filter,     // parts[0] | name(arguments)
    test,       // parts[0] is name(arguments)
    condition,  // parts[0] if parts[1] else parts[2] (may be null)
    both,       // and
    either,     // or
    negation,   // not
    minus,
    plus,
    binary,   // parts[0] name parts[1]
    compare,  // parts[0] names[0] parts[1] names[1] parts[2] ...
  };
  Kind kind = Kind::constant;
  size_t line = 1;
  int depth = 1;  // of the tree below
  std::string name;
  Value constant;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> parts;
  Arguments arguments;
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

// The target of `set` and `for`: one name or several, or the member of a namespace.
struct Target {
  std::vector<std::string> names;
  std::string member;  // then names[0] is the namespace; "": none
  bool tuple = false;
};

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // null: no default
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    data,
    write,      // {{ value }}
    condition,  // if: branches, `otherwise`
    loop,       // for
    set,
    set_block,     // {% set x %}...{% endset %}
    filter_block,  // {% filter x %}...{% endfilter %}: value is the filters, with no operand
    macro,
    break_loop,
    continue_loop,
    body,  // of a tag that does nothing here ({% generation %})
  };
  Kind kind = Kind::data;
  size_t line = 1;
  std::string data;
  ExpressionPtr value;
  ExpressionPtr filter;  // of a loop: selects the items
  Target target;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body body;
  Body otherwise;
  Macro macro;
};

}  // namespace blend::chat
