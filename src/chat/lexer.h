// The words of a Jinja template. White space around tags is removed as Hugging Face's templates
// expect it (trim_blocks, lstrip_blocks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace blend::chat {

struct Word {
  enum class Kind : uint8_t {
    data,            // text outside of tags
    block_begin,     // {%
    block_end,       // %}
    variable_begin,  // {{
    variable_end,    // }}
    name,
    string,
    integer,  // decimal digits, or 0x, 0o or 0b and the digits of that base
    real,
    op,  // an operator or a bracket
    end,
  };
  Kind kind = Kind::end;
  std::string text;  // for a string its value, escapes resolved
  size_t line = 1;
};

// The last word has the kind `end`. FORMAT names the line; UNSUPPORTED: more than `most` words.
Result<std::vector<Word>> read_words(std::string_view source, size_t most);

}  // namespace blend::chat
