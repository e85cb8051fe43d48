// Value: the value of a Jinja expression, with Python's types.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "chat/meter.h"
#include "chat/text.h"

namespace blend::chat {

class Value;
struct Macro;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // in the order of insertion
// Variables, and the names of a scope.
using Names = std::map<std::string, Value, std::less<>>;

// The members of namespace(), the only values that a template can change. The renderer owns them
// all, so that a namespace that contains itself does not leak.
struct Namespace;

// The state of a running loop (loop.h).
struct Loop;

// Something to call: a function of the renderer or a method, by name, or a macro of the template.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> self;  // of a method; null: none
  const Macro* macro = nullptr;
};

struct Undefined {
  std::shared_ptr<const std::string> name;  // for messages; null: none
};
struct None {};

// Immutable, except namespaces and loops; copies share their content. Lists and dicts nest at most
// kMaxDepth deep.
class Value {
 public:
  static constexpr int kMaxDepth = 48;

  Value() : value_(Undefined{}) {}
  static Value undefined(std::string_view name);
  static Value none() { return Value(None{}); }
  static Value of(bool value) { return Value(value); }
  static Value of(int64_t value) { return Value(value); }
  static Value of(double value) { return Value(value); }
  static Value of(Text text) { return Value(std::make_shared<const Text>(std::move(text))); }
  static Value text(std::string_view bytes, uint32_t origin = kTemplate) {
    return of(Text(bytes, origin));
  }
  static Value of(Namespace* space) { return Value(space); }
  static Value of(std::shared_ptr<Loop> loop) { return Value(std::move(loop)); }
  static Value of(Callable callable) {
    return Value(std::make_shared<const Callable>(std::move(callable)));
  }
  // UNSUPPORTED: nested too deep.
  static Result<Value> list(List items, bool tuple = false);
  // If a name is repeated, the last value counts, at the position of the first. INVALID_ARGUMENT: a
  // name is not a string, a number, a boolean or none.
  static Result<Value> dict(Dict items);
  static Result<Value> from_json(const Json& json, uint32_t origin);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  const char* undefined_name() const;  // "": unnamed, or not an undefined value
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const Text* text() const { return shared<Text>(); }
  const List* list() const;
  bool is_tuple() const;  // a list that is a tuple
  const Dict* dict() const;
  const Callable* callable() const { return shared<Callable>(); }
  Namespace* space() const {
    auto* const p = std::get_if<Namespace*>(&value_);
    return p == nullptr ? nullptr : *p;
  }
  Loop* loop() const {
    auto* const p = std::get_if<std::shared_ptr<Loop>>(&value_);
    return p == nullptr ? nullptr : p->get();
  }

  // The member of a dict by its name; null: no such member, or not a dict.
  Result<const Value*> find(const Value& name, Meter& meter) const;

  // Booleans count as 0 and 1.
  bool as_integer(int64_t& out) const;
  bool as_number(double& out) const;
  bool is_number() const;
  bool truth() const;
  int depth() const;
  // The cost of walking through all of it, at most SIZE_MAX.
  size_t weight() const;
  const char* kind() const;  // "a string", ...: for messages

 private:
  struct Items {
    List list;
    bool tuple;
    int depth;
    size_t weight;
  };
  struct Members {
    Dict dict;
    std::vector<uint32_t> order;  // by name
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
               std::shared_ptr<Loop>, std::shared_ptr<const Callable>>
      value_;
};

struct Namespace {
  Names members;
};

// Takes the fuel for a list of n items, or for a dict of these members.
Status take_list(size_t n, Meter& meter);
Status take_dict(const Dict& items, Meter& meter);

}  // namespace blend::chat
