// blend store pin, unpin, evict: which chunks stay.
#include <iostream>
#include <nlohmann/json.hpp>

#include "chunk_ids.h"
#include "command.h"
#include "table.h"

namespace blend_cli {
namespace {

using ull = unsigned long long;

struct StoreStaysOptions {
  CommonOptions common;
  StoreOptions store;
  std::vector<std::string> ids;
  uint64_t target_bytes = 0;
};

void pin(const StoreStaysOptions& options, bool pinned) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, false);
  nlohmann::json done = nlohmann::json::array();
  for (const blendpp::ChunkId& id : resolve_ids(all_ids(store), options.ids)) {
    store.set_pinned(id, pinned);
    done.push_back(id.hex());
    if (!options.common.json) {
      std::cout << (pinned ? "pinned " : "unpinned ") << id.hex() << '\n';
    }
  }
  if (options.common.json) {
    std::cout << nlohmann::json{{pinned ? "pinned" : "unpinned", done}}.dump(2) << '\n';
  }
}

void evict(const StoreStaysOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, false);
  const uint64_t n = store.evict(options.target_bytes);
  const uint64_t left = store.report().stored_bytes;
  if (options.common.json) {
    std::cout << nlohmann::json{{"n_evicted", n}, {"stored_bytes", left}}.dump(2) << '\n';
  } else {
    std::cout << format("%llu chunks evicted, %s stored\n", static_cast<ull>(n),
                        bytes_text(left).c_str());
  }
}

}  // namespace

void register_store_stays(CLI::App& store) {
  for (const bool pinned : {true, false}) {
    auto options = std::make_shared<StoreStaysOptions>();
    CLI::App* command =
        pinned ? store.add_subcommand("pin", "Keep chunks from being evicted and from expiring")
               : store.add_subcommand("unpin", "Let pinned chunks be evicted again");
    add_ids(*command, options->ids)->required();
    add_store_path(*command, options->store);
    add_common_options(*command, options->common);
    command->footer(std::string("Example:\n  blend store ") + (pinned ? "pin" : "unpin") +
                    " 3f6c0a91 --store ./store");
    command->callback([options, pinned] { pin(*options, pinned); });
  }
  auto options = std::make_shared<StoreStaysOptions>();
  CLI::App* command =
      store.add_subcommand("evict", "Evict the chunks that were unused longest, down to a size");
  add_store_path(*command, options->store);
  command->add_option("--to", options->target_bytes, "Bytes that may stay, e.g. 4GiB")
      ->required()
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  add_common_options(*command, options->common);
  command->footer("Example:\n  blend store evict --to 4GiB --store ./store");
  command->callback([options] { evict(*options); });
}

}  // namespace blend_cli
