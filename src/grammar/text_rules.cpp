#include "grammar/text_rules.h"

#include <cstring>

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

}  // namespace

TextRules::State TextRules::next(State state, uint8_t byte) const {
  switch (state) {
    case kStart:
      if (json_ && byte < 0x20) return kForbidden;
      return json_ && byte == '\\' ? kEscape : begin_character(byte);
    case kOne:
      return within(byte, 0x80, 0xbf) ? kStart : kForbidden;
    case kTwo:
      return within(byte, 0x80, 0xbf) ? kOne : kForbidden;
    case kThree:
      return within(byte, 0x80, 0xbf) ? kTwo : kForbidden;
    case kAfterE0:
      return within(byte, 0xa0, 0xbf) ? kOne : kForbidden;
    case kAfterEd:
      return within(byte, 0x80, 0x9f) ? kOne : kForbidden;
    case kAfterF0:
      return within(byte, 0x90, 0xbf) ? kTwo : kForbidden;
    case kAfterF4:
      return within(byte, 0x80, 0x8f) ? kTwo : kForbidden;
    case kEscape:
      if (byte == 'u') return kEscapeU;
      return byte != 0 && std::strchr("\"\\/bfnrt", byte) != nullptr ? kStart : kForbidden;
    case kEscapeU:
      if (byte == 'd' || byte == 'D') return kEscapeUd;
      return is_hex(byte) ? kHexThree : kForbidden;
    case kEscapeUd:
      return within(byte, '0', '7') ? kHexTwo : kForbidden;
    case kHexThree:
      return is_hex(byte) ? kHexTwo : kForbidden;
    case kHexTwo:
      return is_hex(byte) ? kHexOne : kForbidden;
    case kHexOne:
      return is_hex(byte) ? kStart : kForbidden;
    case kForbidden:
      break;
  }
  return kForbidden;
}

}  // namespace blend::grammar
