// blend store push, pull: chunks to the remote tier and from there.
#include <iostream>
#include <nlohmann/json.hpp>

#include "chunk_ids.h"
#include "command.h"
#include "interrupt.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

using ull = unsigned long long;

struct StoreRemoteOptions {
  CommonOptions common;
  StoreOptions store;
  std::vector<std::string> ids;
};

void run(const StoreRemoteOptions& options, bool up) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store =
      up ? open_existing_store(ctx, options.store.path, true, options.store.remote)
         : open_store(ctx, options.store);
  std::vector<blendpp::ChunkId> ids;
  if (up && !options.ids.empty()) {
    ids = resolve_ids(all_ids(store), options.ids);
  } else {
    for (const std::string& id : options.ids) ids.push_back(blendpp::ChunkId::from_hex(id));
  }
  const std::vector<blend_chunk_id> raw(ids.begin(), ids.end());
  blendpp::TransferOptions how;
  how.cancel = interrupt_token();
  if (!raw.empty()) how.ids = raw.data();
  how.n_ids = raw.size();
  uint64_t n = 0;
  {
    ProgressBar bar(up ? "Pushing" : "Pulling", ProgressBar::Elsewhere::lines);
    how.on_progress = bar.callback();
    n = up ? store.remote_push(how) : store.remote_pull(how);
  }
  if (options.common.json) {
    std::cout << nlohmann::json{{"n_chunks", n}}.dump(2) << '\n';
  } else {
    std::cout << format("%llu chunks %s\n", static_cast<ull>(n), up ? "pushed" : "pulled");
  }
}

}  // namespace

void register_store_remote(CLI::App& store) {
  for (const bool up : {true, false}) {
    auto options = std::make_shared<StoreRemoteOptions>();
    CLI::App* command =
        up ? store.add_subcommand("push", "Put chunks into the remote tier that it does not have")
           : store.add_subcommand("pull", "Bring chunks from the remote tier that are not here");
    add_ids(*command, options->ids)->required(false);
    if (up) {
      add_store_path(*command, options->store);
      add_remote(*command, options->store.remote);
    } else {
      add_store_options(*command, options->store);
    }
    command->get_option("--remote")->required();
    add_common_options(*command, options->common);
    command->footer(up ? "Without ids: all chunks of the store.\n\nExample:\n"
                         "  blend store push --store ./store --remote redis://cache:6379"
                       : "Without ids: all chunks that are there. Ids are whole ones.\n\nExample:\n"
                         "  blend store pull --store ./store --remote redis://cache:6379");
    command->callback([options, up] { run(*options, up); });
  }
}

}  // namespace blend_cli
