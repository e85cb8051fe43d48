// blend store rm: removes chunks.
#include <iostream>
#include <nlohmann/json.hpp>

#include "chunk_ids.h"
#include "command.h"
#include "table.h"

namespace blend_cli {
namespace {

struct StoreRmOptions {
  CommonOptions common;
  StoreOptions store;
  OnlyTenant tenant;
  std::vector<std::string> ids;
  bool all = false;
  bool yes = false;
};

// Of the remote tier only: the store's own chunks stay.
void remove_remote(const StoreRmOptions& options) {
  if (options.all) throw CommandError(kExitUsage, "--remote removes by id, not --all");
  if (options.tenant.has_value()) {
    throw CommandError(kExitUsage, "--remote removes by id, whoever's chunk it is: no --tenant");
  }
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store =
      open_existing_store(ctx, options.store.path, false, options.store.remote);
  std::vector<blendpp::ChunkId> doomed;
  for (const std::string& id : options.ids) doomed.push_back(blendpp::ChunkId::from_hex(id));
  nlohmann::json removed = nlohmann::json::array();
  for (const blendpp::ChunkId& id : doomed) {
    store.remove_remote(id);
    removed.push_back(id.hex());
  }
  if (options.common.json) {
    std::cout << nlohmann::json{{"removed", std::move(removed)}}.dump(2) << '\n';
  } else {
    std::cout << format("%zu chunks removed from the remote tier\n", doomed.size());
  }
}

void run(const StoreRmOptions& options) {
  if (options.all == !options.ids.empty()) {
    throw CommandError(kExitUsage, "give the ids of the chunks to remove, or --all");
  }
  if (options.all && !options.yes) {
    throw CommandError(kExitUsage, "--all removes every chunk of '" + options.store.path +
                                       "': add --yes to mean it");
  }
  if (!options.store.remote.url.empty()) return remove_remote(options);
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, false);
  const std::vector<blendpp::ChunkId> present = all_ids(store, options.tenant);
  std::vector<blendpp::ChunkId> doomed;
  if (options.all) {
    doomed = present;
  } else {
    // All are resolved before any is removed, so that a mistyped id removes nothing.
    doomed = resolve_ids(present, options.ids);
  }
  nlohmann::json removed = nlohmann::json::array();
  for (const blendpp::ChunkId& id : doomed) {
    options.tenant.has_value() ? store.remove(id, *options.tenant) : store.remove(id);
    removed.push_back(id.hex());
    if (!options.common.json) std::cout << "removed " << id.hex() << '\n';
  }
  if (options.common.json) {
    std::cout << nlohmann::json{{"removed", std::move(removed)}}.dump(2) << '\n';
  } else {
    std::cout << format("%zu chunks removed\n", doomed.size());
  }
}

}  // namespace

void register_store_rm(CLI::App& store) {
  auto options = std::make_shared<StoreRmOptions>();
  CLI::App* command = store.add_subcommand("rm", "Remove chunks by id, or all of them");
  add_ids(*command, options->ids);
  add_store_path(*command, options->store);
  add_only_tenant(*command, options->tenant);
  add_remote(*command, options->store.remote);
  command->add_flag("--all", options->all, "Remove every chunk; needs --yes");
  command->add_flag("--yes", options->yes, "Confirms --all");
  add_common_options(*command, options->common);
  command->footer(
      "With --remote: chunks of the remote tier, by their whole ids; those of the store stay.\n\n"
      "Example:\n"
      "  blend store rm 3f6c0a91 --store ./store\n"
      "  blend store rm --all --yes --store ./store");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
