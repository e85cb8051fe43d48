// Template: a chat template, rendered in a bounded number of steps.
//
// A small interpreter of the part of Jinja that chat templates use. Templates come from model
// files, which are never trusted: nesting, work and memory are bounded (see Meter), and a template
// can reach only the given values. Any other feature of Jinja is refused, and the message names it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "chat/value.h"

namespace blend::chat {

struct Syntax;

using Variables = Names;

// Immutable; safe for concurrent use.
class Template {
 public:
  static constexpr size_t kMaxSource = size_t{1} << 20;
  // The fuel of a rendering: kFuel, and kFuelPerWeight times the weight of its variables.
  static constexpr size_t kFuel = size_t{32} << 20;
  static constexpr size_t kFuelPerWeight = 64;
  // The same for the bytes of the rendered text. Tokenizing needs many times as much memory.
  static constexpr size_t kText = size_t{2} << 20;
  static constexpr size_t kTextPerWeight = 8;

  // FORMAT names the line; UNSUPPORTED names a feature that libblend does not have.
  static Result<Template> parse(std::string_view source);

  // Whether the template reads the variable.
  bool names_documents() const;
  bool names_tools() const;
  // Whether it has the word `tool_calls`: then it writes those of a message.
  bool names_tool_calls() const;

  // `now`: seconds since 1970, for strftime_now. INVALID_ARGUMENT: the template refuses the
  // variables (raise_exception), with its own words, or uses an undefined value. `cancel` may be
  // null.
  Result<Text> render(const Variables& variables, int64_t now, size_t fuel = kFuel,
                      const CancelToken* cancel = nullptr) const;

 private:
  explicit Template(std::shared_ptr<const Syntax> syntax) : syntax_(std::move(syntax)) {}
  std::shared_ptr<const Syntax> syntax_;
};

}  // namespace blend::chat
