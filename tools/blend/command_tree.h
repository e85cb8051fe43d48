// What the command line offers, read from the same declarations as its help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace blend_cli {

struct OptionInfo {
  std::vector<std::string> names;    // as typed: -h, --help
  std::string description;           // one line
  std::string value;                 // "TEXT" or what the option takes; empty: nothing
  std::vector<std::string> choices;  // of the value, where only these are taken
  bool required = false;
};

struct CommandInfo {
  std::vector<std::string> path;  // "blend", "store", "ls"
  std::string description;
  std::vector<OptionInfo> options;
  std::vector<OptionInfo> positionals;
  std::vector<CommandInfo> subcommands;

  std::string name(const char* between) const;  // the path's words
};

CommandInfo command_tree(const CLI::App& app);

}  // namespace blend_cli
