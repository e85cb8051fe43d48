// What a client says of itself for the log: the id of its request, and the trace that the request
// is a part of (W3C Trace Context, level 1). Nothing else of these fields gets anywhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http.h"

namespace blend_cli::serve {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits, not all zero
  std::string parent_id;  // 16 likewise: the caller's span
  std::string flags;      // 2
};

// A traceparent, as the recommendation has it; nothing: it is not one, and is to be ignored. One of
// a later version is read as far as version 00 goes.
std::optional<TraceContext> parse_traceparent(std::string_view text);
// Of the head's only such field.
std::optional<TraceContext> trace_of(const HttpHead& head);

// At most 128 letters, digits and "._~:@=+/-": what may stand in a header and in a log.
bool is_request_id(std::string_view text);
// X-Request-Id of the head, if it has a sound one, otherwise 32 random hexadecimal digits.
std::string request_id_of(const HttpHead* head);

}  // namespace blend_cli::serve
