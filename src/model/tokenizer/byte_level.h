// The characters by which GPT-2's vocabularies write bytes: those that print stand for themselves,
// the others are moved to U+0100 and up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace blend {

// The bytes that a vocabulary's text stands for; nullopt where a character stands for none.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace blend
