// Members of a request's body, and what is wrong with them.
#pragma once

#include <string>

#include "request.h"

namespace blend_cli::serve {

// The client is told which member is wrong.
[[noreturn]] inline void wrong(const std::string& name, const std::string& what) {
  throw HttpError(400, "'" + name + "' " + what, {}, name);
}

// The member if it is there and not null.
inline const Json* given(const Json& body, const char* name) {
  const auto it = body.find(name);
  return it == body.end() || it->is_null() ? nullptr : &*it;
}
inline Json* given(Json& body, const char* name) {
  const auto it = body.find(name);
  return it == body.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace blend_cli::serve
