// blend store label: sets labels and tags of stored chunks.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "chunk_choice.h"
#include "chunk_ids.h"
#include "command.h"

namespace blend_cli {
namespace {

struct StoreLabelOptions {
  CommonOptions common;
  StoreOptions store;
  std::vector<std::string> ids;
  std::optional<std::string> label;
  std::vector<std::string> tags;
  bool no_tags = false;
};

void run(const StoreLabelOptions& options) {
  if (!options.label.has_value() && options.tags.empty() && !options.no_tags) {
    throw CommandError(kExitUsage, "say what the chunks are called: --label, --tag or --no-tags");
  }
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store =
      open_existing_store(ctx, options.store.path, false, options.store.remote);
  const std::string tags = joined_tags(options.tags);
  const bool has_tags = options.no_tags || !tags.empty();
  nlohmann::json done = nlohmann::json::array();
  for (const blendpp::ChunkId& id : resolve_ids(all_ids(store), options.ids)) {
    store.set_label(id, options.label.has_value() ? options.label->c_str() : nullptr,
                    has_tags ? tags.c_str() : nullptr);
    done.push_back(id.hex());
    if (!options.common.json) std::cout << "named " << id.hex() << '\n';
  }
  if (options.common.json) std::cout << nlohmann::json{{"named", done}}.dump(2) << '\n';
}

}  // namespace

void register_store_label(CLI::App& store) {
  auto options = std::make_shared<StoreLabelOptions>();
  CLI::App* command = store.add_subcommand("label", "Set labels and tags of stored chunks");
  add_ids(*command, options->ids)->required();
  add_store_path(*command, options->store);
  command->add_option("--label", options->label, "The label; \"\" removes it")->type_name("LABEL");
  CLI::Option* tags = add_tags(*command, options->tags, "A tag, replacing those that are there");
  command->add_flag("--no-tags", options->no_tags, "Remove the tags")->excludes(tags);
  add_remote(*command, options->store.remote);
  add_common_options(*command, options->common);
  command->footer(
      "Labels and tags that are not given stay. The rows are not touched.\n\n"
      "Example:\n"
      "  blend store label 3f6c0a91 --label manual.pdf#3 --tag final --store ./store");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
