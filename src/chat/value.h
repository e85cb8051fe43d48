// Value: what a Jinja expression is worth, with Python's meaning of ==, truth, str() and repr().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "chat/text.h"

namespace blend::chat {

class Value;
struct Macro;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // in the order of insertion; names are texts

// What templates may change: the members of namespace(). The renderer owns them all, so that one
// that holds itself is no leak.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

// The loop that a body is run by; the renderer's, like namespaces.
struct Loop;

// Something to call: a function of the renderer or a method, by name, or a macro of the template.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> self;  // of a method; null: none
  const Macro* macro = nullptr;
};

struct Undefined {
  std::string name;  // for messages
};
struct None {};

// Immutable but for namespaces; copies share. Lists and dicts nest at most kMaxDepth deep.
class Value {
 public:
  static constexpr int kMaxDepth = 48;

  Value() : value_(Undefined{}) {}
  static Value undefined(std::string name) { return Value(Undefined{std::move(name)}); }
  static Value none() { return Value(None{}); }
  static Value of(bool value) { return Value(value); }
  static Value of(int64_t value) { return Value(value); }
  static Value of(double value) { return Value(value); }
  static Value of(Text text) { return Value(std::make_shared<const Text>(std::move(text))); }
  static Value text(std::string_view bytes, uint32_t origin = kTemplate) {
    return of(Text(bytes, origin));
  }
  static Value of(Namespace* space) { return Value(space); }
  static Value of(const Loop* loop) { return Value(loop); }
  static Value of(Callable callable) {
    return Value(std::make_shared<const Callable>(std::move(callable)));
  }
  // UNSUPPORTED: nested too deep.
  static Result<Value> list(List items);
  static Result<Value> dict(Dict items);
  static Result<Value> from_json(const Json& json, uint32_t origin);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  const Undefined* undefined() const { return std::get_if<Undefined>(&value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const Text* text() const { return shared<Text>(); }
  const List* list() const;
  const Dict* dict() const;
  const Callable* callable() const { return shared<Callable>(); }
  Namespace* space() const {
    auto* const p = std::get_if<Namespace*>(&value_);
    return p == nullptr ? nullptr : *p;
  }
  const Loop* loop() const {
    auto* const p = std::get_if<const Loop*>(&value_);
    return p == nullptr ? nullptr : *p;
  }

  // Booleans count as 0 and 1.
  bool as_integer(int64_t& out) const;
  bool as_number(double& out) const;
  bool is_number() const;
  bool truth() const;
  int depth() const;
  // What it takes to walk through all of it; more than a size_t counts is the most it counts.
  size_t weight() const;
  const char* kind() const;  // "a string", ...: for messages

 private:
  struct Items {
    List list;
    int depth;
    size_t weight;
  };
  struct Members {
    Dict dict;
    int depth;
    size_t weight;
  };
  template <typename T>
  explicit Value(T value) : value_(std::move(value)) {}
  template <typename T>
  const T* shared() const {
    auto* const p = std::get_if<std::shared_ptr<const T>>(&value_);
    return p == nullptr ? nullptr : p->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Items>, std::shared_ptr<const Members>, Namespace*,
               const Loop*, std::shared_ptr<const Callable>>
      value_;
};

struct Loop {
  Value items;  // a list
  size_t index = 0;
};

bool equal(const Value& a, const Value& b);
// a < b, where both are numbers or both are strings; nothing where they have no order.
std::optional<bool> less(const Value& a, const Value& b);
// The member of that name; null: none.
const Value* find(const Dict& dict, std::string_view name);

// str(): what {{ }} writes. UNSUPPORTED for what no prompt would want (a function, a loop).
Result<Text> to_text(const Value& value);
// json.dumps(ensure_ascii=False)
struct JsonForm {
  int64_t indent = -1;  // below 0: on one line
  std::string comma;    // "": ", ", or "," where lines are broken
  std::string colon = ": ";
};
Result<Text> to_json(const Value& value, const JsonForm& form);

}  // namespace blend::chat
