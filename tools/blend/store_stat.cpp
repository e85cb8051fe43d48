// blend store stat: totals of a store.
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "table.h"

namespace blend_cli {
namespace {

struct Options {
  CommonOptions common;
  StoreOptions store;
};

void run(const Options& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::StoreStat stat = open_existing_store(ctx, options.store.path, true).stat();
  // The counters since opening are all zero here: this process did nothing yet.
  if (options.common.json) {
    const nlohmann::json out = {{"n_chunks", stat.n_chunks},
                                {"n_tokens", stat.n_tokens},
                                {"bytes", stat.bytes},
                                {"file_bytes", stat.file_bytes},
                                {"quota_bytes", stat.quota_bytes}};
    std::cout << out.dump(2) << '\n';
    return;
  }
  Table table({"chunks", std::to_string(stat.n_chunks)});
  table.add({"tokens", std::to_string(stat.n_tokens)});
  table.add({"K and V", bytes_text(stat.bytes)});
  table.add({"data file", bytes_text(stat.file_bytes)});
  table.add({"quota", bytes_text(stat.quota_bytes)});
  std::cout << table.str();
}

}  // namespace

void register_store_stat(CLI::App& store) {
  auto options = std::make_shared<Options>();
  CLI::App* command = store.add_subcommand("stat", "Totals: chunks, tokens, bytes");
  add_store_path(*command, options->store);
  add_common_options(*command, options->common);
  command->footer("Example:\n  blend store stat --store ./store");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
