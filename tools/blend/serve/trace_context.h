// What a client says of itself for the log: the id of its request, and the trace that the request
// is a part of (W3C Trace Context, level 1). Nothing else of these fields gets anywhere.
#pragma once

#include <optional>
#include <string>

#include "http.h"

namespace blend_cli::serve {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits, not all zero
  std::string parent_id;  // 16 likewise: the caller's span
  std::string flags;      // 2
};

// The head's only traceparent, as the recommendation has it; nothing: there is none, or it is to be
// ignored. One of a later version is read as far as version 00 goes.
std::optional<TraceContext> trace_of(const HttpHead& head);

// A letter, a digit or one of "._~:@+/-": they need no quotes.
bool is_plain(char c);
// X-Request-Id of the head, if it is at most 128 plain characters and "="; otherwise 32 random
// hexadecimal digits.
std::string request_id_of(const HttpHead* head);
// 16 random hexadecimal digits.
std::string random_hex();

}  // namespace blend_cli::serve
