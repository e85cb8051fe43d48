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
  // The same of a host's source. NOT_FOUND: it is empty, for a model may have none.
  static Result<Template> parse_given(std::string_view source);

  // Whether the template reads a variable, one of kAsked (parser.h).
  bool reads(std::string_view variable) const;
  // Whether the word stands anywhere in it. One with `tool_calls` writes those of a message.
  bool has_word(std::string_view word) const { return source_.find(word) != source_.npos; }

  // `now`: seconds since 1970, for strftime_now. INVALID_ARGUMENT: the template refuses the
  // variables (raise_exception), with its own words, or uses an undefined value. `cancel` may be
  // null.
  Result<Text> render(const Variables& variables, int64_t now, size_t fuel = kFuel,
                      const CancelToken* cancel = nullptr) const;

 private:
  Template(std::string_view source, std::shared_ptr<const Syntax> syntax)
      : source_(source), syntax_(std::move(syntax)) {}
  std::string source_;
  std::shared_ptr<const Syntax> syntax_;
};

}  // namespace blend::chat
