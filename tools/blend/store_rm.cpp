// blend store rm: removes chunks.
#include <iostream>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "chunk_choice.h"
#include "chunk_ids.h"
#include "command.h"
#include "printable.h"
#include "table.h"

namespace blend_cli {
namespace {

struct StoreRmOptions {
  CommonOptions common;
  StoreOptions store;
  ChunkChoice choice;
  std::vector<std::string> ids;
  bool all = false;
  bool yes = false;
  bool dry_run = false;
};

// Removes from the remote tier only: the store's own chunks stay.
void remove_remote(const StoreRmOptions& options) {
  if (options.all || options.choice.is_made() || options.dry_run) {
    throw CommandError(kExitUsage,
                       "--remote removes by id: no --all, --label, --tag, --model or --dry-run");
  }
  if (options.choice.tenant.has_value()) {
    throw CommandError(kExitUsage, "--remote removes by id, for every tenant: leave out --tenant");
  }
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store =
      open_existing_store(ctx, options.store.path, false, options.store.remote);
  std::vector<blendpp::ChunkId> doomed;
  for (const std::string& id : options.ids) doomed.push_back(blendpp::ChunkId::from_hex(id));
  nlohmann::json removed = nlohmann::json::array();
  for (const blendpp::ChunkId& id : doomed) {
    store.remote_remove(id);
    removed.push_back(id.hex());
  }
  if (options.common.json) {
    std::cout << nlohmann::json{{"removed", std::move(removed)}}.dump(2) << '\n';
  } else {
    std::cout << format("%zu chunks removed from the remote tier\n", doomed.size());
  }
}

void run(const StoreRmOptions& options) {
  const int n_ways =
      (options.all ? 1 : 0) + (options.ids.empty() ? 0 : 1) + (options.choice.is_made() ? 1 : 0);
  if (n_ways != 1) {
    throw CommandError(kExitUsage,
                       "say which chunks to remove in one way: by their ids, by --label, --tag, "
                       "--model and --unlabelled, or --all");
  }
  if (options.all && !options.yes && !options.dry_run) {
    throw CommandError(kExitUsage, "--all removes every chunk of '" + options.store.path +
                                       "': add --yes to mean it");
  }
  if (!options.store.remote.url.empty()) return remove_remote(options);
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, options.dry_run);
  std::vector<blendpp::ChunkId> doomed;
  std::unordered_map<std::string, std::string> labels;  // by id
  list_chunks(ctx, store, options.choice, [&](const blend_chunk_info& info, const char*) {
    const blendpp::ChunkId id(info.id);
    doomed.push_back(id);
    labels[id.hex()] = info.label;
    return true;
  });
  // All are resolved before any is removed, so that a mistyped id removes nothing.
  if (!options.ids.empty()) doomed = resolve_ids(doomed, options.ids);
  const OnlyTenant& tenant = options.choice.tenant;
  nlohmann::json removed = nlohmann::json::array();
  for (const blendpp::ChunkId& id : doomed) {
    if (!options.dry_run) store.remove(id, tenant);
    removed.push_back(id.hex());
    if (options.common.json) continue;
    const std::string& label = labels[id.hex()];
    std::cout << (options.dry_run ? "would remove " : "removed ") << id.hex()
              << (label.empty() ? "" : "  " + printable(label)) << '\n';
  }
  if (options.common.json) {
    const char* key = options.dry_run ? "would_remove" : "removed";
    std::cout << nlohmann::json{{key, std::move(removed)}}.dump(2) << '\n';
  } else {
    std::cout << format("%zu chunks %s\n", doomed.size(),
                        options.dry_run ? "would be removed" : "removed");
  }
}

}  // namespace

void register_store_rm(CLI::App& store) {
  auto options = std::make_shared<StoreRmOptions>();
  CLI::App* command = store.add_subcommand("rm", "Remove chunks by id, label, tag or model");
  add_ids(*command, options->ids);
  add_store_path(*command, options->store);
  add_chunk_choice(*command, options->choice);
  add_remote(*command, options->store.remote);
  command->add_flag("--all", options->all, "Remove every chunk; needs --yes");
  command->add_flag("--yes", options->yes, "Confirms --all");
  command->add_flag("--dry-run", options->dry_run, "Only show what would be removed");
  add_common_options(*command, options->common);
  command->footer(
      "With --remote: chunks of the remote tier, by their whole ids; those of the store stay.\n\n"
      "Example:\n"
      "  blend store rm 3f6c0a91 --store ./store\n"
      "  blend store rm --label manual.pdf --dry-run --store ./store\n"
      "  blend store rm --all --yes --store ./store");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
