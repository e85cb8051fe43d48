#include "grammar/text_rules.h"

#include <cstring>
#include <iterator>

namespace blend::grammar {
namespace {

using Rules = TextRules;

Rules::State begin_character(uint8_t byte) {
  if (byte < 0x80) return Rules::kStart;
  if (byte < 0xc2) return Rules::kForbidden;
  if (byte < 0xe0) return Rules::kOne;
  if (byte == 0xe0) return Rules::kAfterE0;
  if (byte == 0xed) return Rules::kAfterEd;
  if (byte < 0xf0) return Rules::kTwo;
  if (byte == 0xf0) return Rules::kAfterF0;
  if (byte < 0xf4) return Rules::kThree;
  return byte == 0xf4 ? Rules::kAfterF4 : Rules::kForbidden;
}

bool is_hex(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f') ||
         (byte >= 'A' && byte <= 'F');
}

bool within(uint8_t byte, uint8_t low, uint8_t high) { return byte >= low && byte <= high; }

// The bytes that may come next in a character, and what is then still to come: of kOne to kAfterF4.
struct Following {
  uint8_t low, high;
  Rules::State next;
};
constexpr Following kFollowing[] = {{0x80, 0xbf, Rules::kStart}, {0x80, 0xbf, Rules::kOne},
                                    {0x80, 0xbf, Rules::kTwo},   {0xa0, 0xbf, Rules::kOne},
                                    {0x80, 0x9f, Rules::kOne},   {0x90, 0xbf, Rules::kTwo},
                                    {0x80, 0x8f, Rules::kTwo}};
static_assert(std::size(kFollowing) == Rules::kAfterF4 - Rules::kOne + 1);

}  // namespace

TextRules::State TextRules::next(State state, uint8_t byte) const {
  if (state >= kOne && state <= kAfterF4) {
    const Following& f = kFollowing[state - kOne];
    return within(byte, f.low, f.high) ? f.next : kForbidden;
  }
  if (state >= kHexThree && state <= kHexOne) {
    if (!is_hex(byte)) return kForbidden;
    return state == kHexOne ? kStart : static_cast<State>(state + 1);
  }
  switch (state) {
    case kStart:
      if (json_ && byte < 0x20) return kForbidden;
      return json_ && byte == '\\' ? kEscape : begin_character(byte);
    case kEscape:
      if (byte == 'u') return kEscapeU;
      return byte != 0 && std::strchr("\"\\/bfnrt", byte) != nullptr ? kStart : kForbidden;
    case kEscapeU:
      if (byte == 'd' || byte == 'D') return kEscapeUd;
      return is_hex(byte) ? kHexThree : kForbidden;
    case kEscapeUd:
      return within(byte, '0', '7') ? kHexTwo : kForbidden;
    default:
      return kForbidden;
  }
}

}  // namespace blend::grammar
