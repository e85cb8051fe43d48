// Which chunks a command is for, by what they are called: --label, --tag, --model, --tenant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "chunk_ids.h"

namespace blend_cli {

struct ChunkChoice {
  OnlyTenant tenant;
  std::string label;
  std::vector<std::string> tags;
  std::string model;
  bool unlabelled = false;

  // Whether anything but the tenant is given.
  bool is_made() const { return !label.empty() || !tags.empty() || !model.empty() || unlabelled; }
};
void add_chunk_choice(CLI::App& command, ChunkChoice& choice);
// In the order of their ids. A model that is a file or directory is opened for its fingerprint.
void list_chunks(const blendpp::Context& ctx, const blendpp::Store& store,
                 const ChunkChoice& choice, const blendpp::ChunkFn& fn);

// --tag, for commands that set tags; one word each.
CLI::Option* add_tags(CLI::App& command, std::vector<std::string>& tags, const std::string& says);
std::string joined_tags(const std::vector<std::string>& tags);

}  // namespace blend_cli
