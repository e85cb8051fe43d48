// What a value is once it is sent.
#pragma once

#include <string>

#include "store/remote/client/value_source.h"

namespace blend::test {

inline Result<std::string> text_of(ValueSource& value) {
  BLEND_RETURN_IF_ERROR(value.begin());
  std::string out;
  for (bool last = false; !last;) {
    std::vector<Part> parts;
    BLEND_RETURN_IF_ERROR(value.next(parts, &last));
    for (const Part& part : parts) {
      out.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
  }
  return out;
}

}  // namespace blend::test
