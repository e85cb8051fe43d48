// Chunk ids on the command line: whole, or their first digits.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

// The positional argument ID ...
CLI::Option* add_ids(CLI::App& command, std::vector<std::string>& ids);

// Of every chunk in the store, in order.
std::vector<blendpp::ChunkId> all_ids(const blendpp::Store& store);
// The chunks whose ids begin with each of `digits`; throws when one fits none or several.
std::vector<blendpp::ChunkId> resolve_ids(const std::vector<blendpp::ChunkId>& present,
                                          const std::vector<std::string>& digits);

}  // namespace blend_cli
