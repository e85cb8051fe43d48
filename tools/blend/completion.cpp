// blend completion: what a shell needs to complete the command's words.
#include <iostream>
#include <string>
#include <vector>

#include "command.h"
#include "command_tree.h"

namespace blend_cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

template <class Visit>
void each(const CommandInfo& command, const Visit& visit) {
  visit(command);
  for (const CommandInfo& sub : command.subcommands) each(sub, visit);
}

std::vector<std::string> words_of(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> names;
  for (const CommandInfo& command : commands) names.push_back(command.path.back());
  return names;
}

void print_bash(const CommandInfo& root) {
  std::cout << "# bash completion of blend, made by `blend completion bash`\n"
               "_blend() {\n"
               "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at=blend "
               "word words=\n"
               "  COMPREPLY=()\n"
               "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
               "    case \"$at $word\" in\n";
  each(root, [](const CommandInfo& command) {
    if (command.path.size() > 1) {
      std::cout << "      '" << command.name(" ") << "') at='" << command.name(" ") << "' ;;\n";
    }
  });
  std::cout << "    esac\n  done\n  case \"$at $prev\" in\n";
  each(root, [](const CommandInfo& command) {
    for (const OptionInfo& option : command.options) {
      if (option.value.empty()) continue;
      std::string pattern;
      for (const std::string& name : option.names) {
        pattern += (pattern.empty() ? "'" : "|'") + command.name(" ") + " " + name + "'";
      }
      std::cout << "    " << pattern << ") ";
      if (option.choices.empty()) {
        std::cout << "COMPREPLY=($(compgen -f -- \"$cur\")); compopt -o filenames; return";
      } else {
        std::cout << "COMPREPLY=($(compgen -W '" << joined(option.choices)
                  << "' -- \"$cur\")); return";
      }
      std::cout << " ;;\n";
    }
  });
  std::cout << "  esac\n  case \"$at\" in\n";
  each(root, [](const CommandInfo& command) {
    std::string words = joined(words_of(command.subcommands));
    for (const OptionInfo& option : command.options) {
      words += (words.empty() ? "" : " ") + joined(option.names);
    }
    std::cout << "    '" << command.name(" ") << "') words='" << words << "' ;;\n";
  });
  std::cout << "  esac\n"
               "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "}\n"
               "complete -F _blend blend\n";
}

// Inside zsh's '...[description]:...'.
std::string zsh_text(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      quoted += std::string("\\") + c;
    } else {
      quoted += c;
    }
  }
  return quoted;
}

void print_zsh(const CommandInfo& root) {
  std::cout << "#compdef blend\n# zsh completion of blend, made by `blend completion zsh`\n";
  each(root, [](const CommandInfo& command) {
    std::cout << "_" << command.name("_") << "() {\n";
    if (!command.subcommands.empty()) std::cout << "  local context state line\n";
    std::cout << "  _arguments";
    if (!command.subcommands.empty()) std::cout << " -C";
    for (const OptionInfo& option : command.options) {
      for (const std::string& name : option.names) {
        std::cout << " \\\n    '" << name << "[" << zsh_text(option.description) << "]";
        if (!option.choices.empty()) {
          std::cout << ":" << zsh_text(option.value) << ":(" << joined(option.choices) << ")";
        } else if (!option.value.empty()) {
          std::cout << ":" << zsh_text(option.value) << ":_files";
        }
        std::cout << "'";
      }
    }
    if (command.subcommands.empty()) {
      std::cout << "\n}\n";
      return;
    }
    std::cout << " \\\n    '1:command:((";
    for (const CommandInfo& sub : command.subcommands) {
      std::cout << sub.path.back() << "\\:\"" << zsh_text(sub.description) << "\" ";
    }
    std::cout << "))' \\\n    '*::argument:->rest'\n"
                 "  [[ $state == rest ]] || return\n  case $line[1] in\n";
    for (const CommandInfo& sub : command.subcommands) {
      std::cout << "    " << sub.path.back() << ") _" << sub.name("_") << " ;;\n";
    }
    std::cout << "  esac\n}\n";
  });
  std::cout << "_blend \"$@\"\n";
}

}  // namespace

void register_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* sub =
      app.add_subcommand("completion", "Print what bash or zsh needs to complete this command");
  sub->footer(
      "  blend completion bash > ~/.local/share/bash-completion/completions/blend\n"
      "  blend completion zsh > a folder of $fpath, as _blend");
  sub->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  sub->callback([&app, shell] {
    const CommandInfo root = command_tree(app);
    *shell == "bash" ? print_bash(root) : print_zsh(root);
  });
}

}  // namespace blend_cli
