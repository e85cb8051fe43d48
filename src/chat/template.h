// Template: a chat template, rendered in a bounded number of steps.
//
// A small interpreter of the part of Jinja that chat templates are written in. They come from model
// files, which are never trusted: nesting, work and memory are bounded (see Meter), and nothing but
// the values that are given can be reached. What is not known here is refused by name.
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
  // What a rendering may take beside what is in proportion to its variables: kFuelPerWeight times
  // what they weigh.
  static constexpr size_t kFuel = size_t{32} << 20;
  static constexpr size_t kFuelPerWeight = 64;
  // The same of the bytes that are rendered. Tokenizing them takes many times as many.
  static constexpr size_t kText = size_t{2} << 20;
  static constexpr size_t kTextPerWeight = 8;

  // FORMAT names the line; UNSUPPORTED what is not known here.
  static Result<Template> parse(std::string_view source);

  // Whether the template has a place of its own for documents.
  bool names_documents() const;

  // `now`: seconds since 1970 for strftime_now. INVALID_ARGUMENT: what the template itself says is
  // wrong with the variables (raise_exception), or an undefined value where one is needed.
  // `cancel` may be null.
  Result<Text> render(const Variables& variables, int64_t now, size_t fuel = kFuel,
                      const CancelToken* cancel = nullptr) const;

 private:
  explicit Template(std::shared_ptr<const Syntax> syntax) : syntax_(std::move(syntax)) {}
  std::shared_ptr<const Syntax> syntax_;
};

}  // namespace blend::chat
