// The characters by which GPT-2's vocabularies write bytes: printing ones stand for themselves,
// the others are moved to U+0100 and up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace blend {

// The bytes of a vocabulary's text; nullopt where a character stands for none.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace blend
