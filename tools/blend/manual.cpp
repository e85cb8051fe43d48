// blend manual: man pages made of the help texts. For packagers; not listed in the help.
#include <filesystem>
#include <fstream>
#include <string>

#include "command.h"
#include "command_tree.h"

namespace blend_cli {
namespace {

// A backslash, a dot or an apostrophe at a line's start and a hyphen mean something to troff.
std::string troff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  if (!out.empty() && (out.front() == '.' || out.front() == '\'')) out.insert(0, "\\&");
  return out;
}

// Keeps the lines of the help's footer.
std::string as_it_is(const std::string& text) {
  std::string out = ".nf\n", line;
  for (const char c : text + "\n") {
    if (c != '\n') {
      line += c;
      continue;
    }
    out += (line.empty() ? std::string() : troff(line)) + "\n";
    line.clear();
  }
  return out + ".fi\n";
}

void write_options(std::ostream& out, const std::vector<OptionInfo>& options) {
  for (const OptionInfo& option : options) {
    out << ".TP\n";
    for (size_t i = 0; i < option.names.size(); ++i) {
      out << (i == 0 ? "" : ", ") << "\\fB" << troff(option.names[i]) << "\\fR";
    }
    if (!option.choices.empty()) {
      out << " \\fI";
      for (size_t i = 0; i < option.choices.size(); ++i) {
        out << (i == 0 ? "" : "|") << troff(option.choices[i]);
      }
      out << "\\fR";
    } else if (!option.value.empty()) {
      out << " \\fI" << troff(option.value) << "\\fR";
    }
    out << "\n" << troff(option.description) << (option.required ? " (required)" : "") << "\n";
  }
}

void write_page(const CommandInfo& command, const std::string& footer,
                const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / (command.name("-") + ".1");
  std::ofstream out(path);
  std::string title = command.name("-");
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  out << ".TH \"" << troff(title) << "\" 1 \"\" \"libblend " << blend_version()
      << "\" \"libblend\"\n.SH NAME\n"
      << troff(command.name("-")) << " \\- " << troff(command.description) << "\n.SH SYNOPSIS\n\\fB"
      << command.name(" ") << "\\fR [\\fIoptions\\fR]";
  for (const OptionInfo& positional : command.positionals) {
    out << " \\fI" << troff(positional.names.front()) << "\\fR";
  }
  out << (command.subcommands.empty() ? "\n" : " \\fIcommand\\fR\n");
  if (!command.positionals.empty()) {
    out << ".SH ARGUMENTS\n";
    write_options(out, command.positionals);
  }
  out << ".SH OPTIONS\n";
  write_options(out, command.options);
  if (!command.subcommands.empty()) out << ".SH COMMANDS\n";
  for (const CommandInfo& sub : command.subcommands) {
    out << ".TP\n\\fB" << troff(sub.name("-")) << "\\fR(1)\n" << troff(sub.description) << "\n";
  }
  out << ".SH NOTES\n" << as_it_is(footer);
  out.close();
  if (!out) throw CommandError(kExitError, "cannot write " + path.string());
  for (const CommandInfo& sub : command.subcommands) write_page(sub, footer, folder);
}

}  // namespace

void register_manual(CLI::App& app) {
  const auto folder = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand("manual", "Write the man pages into a folder");
  sub->group("");
  sub->add_option("folder", *folder, "Where to")->required()->check(CLI::ExistingDirectory);
  sub->callback([&app, folder] { write_page(command_tree(app), app.get_footer(), *folder); });
}

}  // namespace blend_cli
