// TextRules: which bytes may follow which in any text that a grammar gives.
//
// xgrammar's character classes take bytes that are not UTF-8 (surrogates, overlong forms), and its
// JSON strings control characters and halves of surrogate pairs, which strict parsers refuse.
#pragma once

#include <cstdint>
#include <string_view>

namespace blend::grammar {

// A finite automaton over bytes. Immutable; safe for concurrent use.
class TextRules {
 public:
  enum class Kind { text, json };
  // text_rules.cpp counts on their order.
  enum State : uint8_t {
    kStart,  // between characters
    kOne,    // bytes of a character that are still to come
    kTwo,
    kThree,
    kAfterE0,  // leads whose second byte is not any
    kAfterEd,
    kAfterF0,
    kAfterF4,
    kEscape,    // JSON: after a backslash
    kEscapeU,   // after \u
    kEscapeUd,  // after \ud: 8 to f would be half of a pair
    kHexThree,  // hexadecimal digits that are still to come
    kHexTwo,
    kHexOne,
    kForbidden,  // and it stays so
  };

  explicit TextRules(Kind kind) : json_(kind == Kind::json) {}

  State next(State state, uint8_t byte) const;
  State run(State state, std::string_view bytes) const {
    for (const char byte : bytes) state = next(state, static_cast<uint8_t>(byte));
    return state;
  }

 private:
  bool json_;
};

}  // namespace blend::grammar
