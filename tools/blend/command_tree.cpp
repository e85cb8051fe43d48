#include "command_tree.h"

#include <sstream>

namespace blend_cli {
namespace {

std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line, word;
  while (words >> word) line += line.empty() ? word : " " + word;
  return line;
}

// CLI11 writes them after the type: TEXT:{cpu,cuda,auto}.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  std::vector<std::string> choices;
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::istringstream list(type.substr(open + 1, close - open - 1));
  for (std::string choice; std::getline(list, choice, ',');) {
    choices.push_back(choice.substr(0, choice.find("->")));
  }
  return choices;
}

OptionInfo option_info(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  if (info.names.empty()) info.names.push_back(option.get_name());
  info.description = one_line(option.get_description());
  info.required = option.get_required();
  if (option.get_items_expected_max() > 0 && option.get_type_size_max() > 0) {
    const std::string type = option.get_type_name();
    info.choices = choices_in(type);
    info.value = type.substr(0, type.find(':'));
  }
  return info;
}

CommandInfo describe(const CLI::App& app, std::vector<std::string> path) {
  CommandInfo info;
  path.push_back(app.get_name());
  info.path = std::move(path);
  info.description = one_line(app.get_description());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? info.positionals : info.options).push_back(option_info(*option));
  }
  const auto any = [](const CLI::App*) { return true; };
  for (const CLI::App* sub : app.get_subcommands(any)) {
    if (!sub->get_group().empty()) info.subcommands.push_back(describe(*sub, info.path));
  }
  return info;
}

}  // namespace

std::string CommandInfo::name(const char* between) const {
  std::string text;
  for (const std::string& word : path) text += (text.empty() ? "" : between) + word;
  return text;
}

CommandInfo command_tree(const CLI::App& app) { return describe(app, {}); }

}  // namespace blend_cli
