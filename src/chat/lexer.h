// The words of a Jinja template, with the white space around tags taken away as Hugging Face's
// templates expect it (trim_blocks, lstrip_blocks).
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
    integer,  // digits, after 0x, 0o or 0b those of another base
    real,
    op,  // an operator or a bracket
    end,
  };
  Kind kind = Kind::end;
  std::string text;  // of strings what they stand for
  size_t line = 1;
};

// At the end stands a word of kind `end`. FORMAT names the line; UNSUPPORTED: there are more than
// `most`.
Result<std::vector<Word>> read_words(std::string_view source, size_t most);

}  // namespace blend::chat
