// The `blend` command. Each subcommand is one file; this one turns outcomes into exit codes.
#include <clocale>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "command.h"
#include "interrupt.h"
#include "printable.h"
#include "progress.h"

namespace blend_cli {
namespace {

void register_all(CLI::App& app) {
  app.require_subcommand(1);
  app.set_version_flag("--version", blend_version());
  app.footer(
      "Exit codes: 0 ok, 1 the work failed, 2 usage, 3 not found, 4 damaged file or chunk,\n"
      "130 cancelled.\n\n"
      "Example:\n"
      "  blend precompute --model model.gguf --store ./store --docs ./documents\n"
      "  blend ask --model model.gguf --store ./store --docs ./documents --question \"Who ...?\"");
  register_precompute(app);
  register_ask(app);
  register_serve(app);
  register_embed(app);
  register_eval(app);
  register_advise(app);
  register_perplexity(app);
  register_calibrate(app);
  register_verify(app);
  CLI::App* store = app.add_subcommand("store", "Look after a chunk store");
  store->require_subcommand(1);
  register_store_ls(*store);
  register_store_label(*store);
  register_store_stat(*store);
  register_store_verify(*store);
  register_store_rm(*store);
  register_store_care(*store);
  register_store_stays(*store);
  register_store_remote(*store);
  CLI::App* model = app.add_subcommand("model", "Look at a model");
  model->require_subcommand(1);
  register_model_info(*model);
  register_completion(app);
  register_manual(app);
}

// CLI11 reports missing required options first, so that a misspelt command would be told of
// something else.
void refuse_unknown_words(const CLI::App& app, int argc, char** argv) {
  const auto all = [](const CLI::App*) { return true; };
  const CLI::App* command = &app;
  std::string path = "blend";
  int i = 1;
  for (; i < argc && argv[i][0] != '-' && !command->get_subcommands(all).empty(); ++i) {
    const CLI::App* next = nullptr;
    std::string known;
    for (const CLI::App* const sub : command->get_subcommands(all)) {
      if (sub->get_name() == argv[i]) next = sub;
      known += (known.empty() ? "" : ", ") + sub->get_name();
    }
    if (next == nullptr) {
      throw CommandError(kExitUsage,
                         "there is no command '" + path + " " + argv[i] + "'; there are " + known);
    }
    command = next;
    path += " " + next->get_name();
  }
  for (; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return;
    if (word.rfind("--", 0) != 0) continue;
    const std::string name = word.substr(0, word.find('='));
    if (command->get_option_no_throw(name) != nullptr) continue;
    throw CommandError(kExitUsage,
                       "'" + path + "' has no option " + name + "; --help lists those it has");
  }
}

// Help, the version, or what is wrong with the command line, which names words of it.
int tell(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out;
  std::ostringstream complaint;
  const int code = app.exit(error, out, complaint);
  std::cout << printable(out.str(), Keep::lines);
  std::cerr << printable(complaint.str(), Keep::lines);
  return code == 0 ? kExitOk : kExitUsage;
}

int run(int argc, char** argv) {
  CLI::App app("KV-cache fusion for retrieval-augmented prompts", "blend");
  register_all(app);
  try {
    install_interrupt_handler();
    refuse_unknown_words(app, argc, argv);
    app.parse(argc, argv);
    std::cout.flush();
    if (!std::cout) throw CommandError(kExitError, "cannot write to stdout");
    return kExitOk;
  } catch (const CLI::RequiredError& error) {
    // CLI11 reports what is missing first, even where a stray word is the cause.
    const std::vector<std::string> stray = app.remaining(true);
    if (stray.empty()) return tell(app, error);
    print_error("'" + stray.front() + "' is not expected here; --help lists what is");
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    // Help and version "fail" with 0; everything else is a usage error.
    return tell(app, error);
  } catch (const CommandError& error) {
    print_error(error.what());
    return error.exit_code();
  } catch (const blendpp::Error& error) {
    std::cout.flush();
    print_error(std::string(error.what()) + " (" + error.name() + ")");
    return exit_code_of(error.code());
  } catch (const std::exception& error) {
    print_error(error.what());
    return kExitError;
  }
}

}  // namespace
}  // namespace blend_cli

// What can still throw (a failed allocation while reporting) may as well end the process.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return blend_cli::run(argc, argv); }
