// Chunk ids on the command line: whole, or their first digits.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

// The positional argument ID ...
CLI::Option* add_ids(CLI::App& command, std::vector<std::string>& ids);

// --tenant for commands that list or remove: without it, all tenants' chunks.
using OnlyTenant = std::optional<std::string>;
void add_only_tenant(CLI::App& command, OnlyTenant& tenant);
void list_chunks(const blendpp::Store& store, const OnlyTenant& tenant, const blendpp::ChunkFn& fn);
// In order.
std::vector<blendpp::ChunkId> all_ids(const blendpp::Store& store, const OnlyTenant& tenant = {});
// The chunks whose ids begin with each of `digits`; throws when one fits none or several.
std::vector<blendpp::ChunkId> resolve_ids(const std::vector<blendpp::ChunkId>& present,
                                          const std::vector<std::string>& digits);

}  // namespace blend_cli
