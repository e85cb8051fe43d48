// Values as text: Python's str() and repr(), and JSON.
#pragma once

#include <optional>

#include "chat/builder.h"
#include "chat/value.h"

namespace blend::chat {

// str(), which {{ }} writes. UNSUPPORTED: a value that makes no sense in a prompt (a function, a
// loop).
Status append_text(const Value& value, TextBuilder& out);
Result<Text> to_text(const Value& value, Meter& meter);
// json.dumps(ensure_ascii=False)
struct JsonForm {
  std::optional<Text> indent;  // for one level; nothing: all on one line
  Text comma{", "};
  Text colon{": "};
};
Result<Value> to_json(const Value& value, const JsonForm& form, Meter& meter);

}  // namespace blend::chat
