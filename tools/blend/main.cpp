// The `blend` command. Each subcommand is one file; this one turns outcomes into exit codes.
#include <clocale>
#include <exception>
#include <iostream>

#include "command.h"
#include "interrupt.h"

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
  register_eval(app);
  register_advise(app);
  register_perplexity(app);
  register_calibrate(app);
  register_verify(app);
  CLI::App* store = app.add_subcommand("store", "Look after a chunk store");
  store->require_subcommand(1);
  register_store_ls(*store);
  register_store_stat(*store);
  register_store_verify(*store);
  register_store_rm(*store);
  register_store_care(*store);
  register_store_stays(*store);
  register_store_remote(*store);
  CLI::App* model = app.add_subcommand("model", "Look at a model");
  model->require_subcommand(1);
  register_model_info(*model);
}

int run(int argc, char** argv) {
  CLI::App app("KV-cache fusion for retrieval-augmented prompts", "blend");
  register_all(app);
  try {
    install_interrupt_handler();
    app.parse(argc, argv);
    std::cout.flush();
    if (!std::cout) throw CommandError(kExitError, "cannot write to stdout");
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    // Help and version "fail" with 0; everything else is a usage error.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  } catch (const CommandError& error) {
    std::cerr << "blend: " << error.what() << '\n';
    return error.exit_code();
  } catch (const blendpp::Error& error) {
    std::cout.flush();
    std::cerr << "blend: " << error.what() << " (" << error.name() << ")\n";
    return exit_code_of(error.code());
  } catch (const std::exception& error) {
    std::cerr << "blend: " << error.what() << '\n';
    return kExitError;
  }
}

}  // namespace
}  // namespace blend_cli

// What can still throw (a failed allocation while reporting) may as well end the process.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return blend_cli::run(argc, argv); }
