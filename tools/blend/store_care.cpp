// blend store repair, compact, export, import: looking after a store.
#include <iostream>
#include <nlohmann/json.hpp>

#include "chunk_ids.h"
#include "chunk_table.h"
#include "command.h"
#include "interrupt.h"
#include "printable.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

using ull = unsigned long long;

struct StoreCareOptions {
  CommonOptions common;
  StoreOptions store;
  std::vector<std::string> ids;
  std::string path;  // of the file or of the copy
  bool replace = false;
};

void print_json(const nlohmann::json& out) {
  std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void repair(const StoreCareOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, false);
  nlohmann::json removed = nlohmann::json::array();
  store.repair([&](const blend_chunk_info& info, const char* problem) {
    nlohmann::json chunk = {{"id", blendpp::ChunkId(info.id).hex()}, {"problem", problem}};
    if (!options.common.json) {
      std::cout << chunk["id"].get<std::string>() << "  " << printable(problem) << '\n';
    }
    removed.push_back(std::move(chunk));
    return true;
  });
  if (options.common.json) {
    print_json({{"n_removed", removed.size()}, {"removed", removed}});
  } else {
    std::cout << format("%zu damaged chunks removed\n", removed.size());
  }
}

void compact(const StoreCareOptions& options) {
  uint64_t before = 0;
  uint64_t after = 0;
  if (options.path.empty()) {
    std::tie(before, after) = blendpp::Store::compact(options.store.path);
  } else {
    const blendpp::Context ctx = make_context(options.common);
    const blendpp::Store store = open_existing_store(ctx, options.store.path, true);
    store.copy(options.path);
    before = store.report().file_bytes;
    after = open_existing_store(ctx, options.path, true).stat().file_bytes;
  }
  if (options.common.json) {
    print_json({{"bytes_before", before}, {"bytes_after", after}});
  } else {
    std::cout << bytes_text(before) << " -> " << bytes_text(after) << '\n';
  }
}

void transfer(const StoreCareOptions& options, bool in) {
  const blendpp::Context ctx = make_context(options.common);
  blendpp::TransferOptions how;
  how.cancel = interrupt_token();
  uint64_t n = 0;
  if (in) {
    const blendpp::Store store = open_store(ctx, options.store);
    how.flags = options.replace ? BLEND_IMPORT_REPLACE : 0;
    ProgressBar bar("Importing", ProgressBar::Elsewhere::lines);
    how.on_progress = bar.callback();
    n = store.import_from(options.path, how);
    wait_for_uploads(store);
  } else {
    const blendpp::Store store = open_existing_store(ctx, options.store.path, true);
    const std::vector<blendpp::ChunkId> ids = options.ids.empty()
                                                  ? std::vector<blendpp::ChunkId>()
                                                  : resolve_ids(all_ids(store), options.ids);
    const std::vector<blend_chunk_id> raw(ids.begin(), ids.end());
    if (!raw.empty()) how.ids = raw.data();
    how.n_ids = raw.size();
    ProgressBar bar("Exporting", ProgressBar::Elsewhere::lines);
    how.on_progress = bar.callback();
    n = store.export_to(options.path, how);
  }
  if (options.common.json) {
    print_json({{"n_chunks", n}});
  } else {
    std::cout << format("%llu chunks %s\n", static_cast<ull>(n), in ? "imported" : "exported");
  }
}

}  // namespace

void register_store_care(CLI::App& store) {
  {
    auto options = std::make_shared<StoreCareOptions>();
    CLI::App* command =
        store.add_subcommand("repair", "Remove what is damaged, and mend the store's accounts");
    add_store_path(*command, options->store);
    add_common_options(*command, options->common);
    command->footer("Example:\n  blend store repair --store ./store");
    command->callback([options] { repair(*options); });
  }
  {
    auto options = std::make_shared<StoreCareOptions>();
    CLI::App* command =
        store.add_subcommand("compact", "Make the data file as small as its chunks");
    add_store_path(*command, options->store);
    command
        ->add_option("--out", options->path,
                     "Write a compact copy into this directory instead; the store may be in use")
        ->type_name("DIR");
    add_common_options(*command, options->common);
    command->footer(
        "Without --out no process may have the store open; the file is replaced atomically.\n\n"
        "Example:\n  blend store compact --store ./store");
    command->callback([options] { compact(*options); });
  }
  for (const bool in : {false, true}) {
    auto options = std::make_shared<StoreCareOptions>();
    CLI::App* command =
        in ? store.add_subcommand("import", "Put the chunks of an exported file")
           : store.add_subcommand("export", "Write chunks to a file, for another store");
    if (in) {
      add_store_options(*command, options->store);
      command->add_flag("--replace", options->replace, "Also chunks that are there already");
    } else {
      add_store_path(*command, options->store);
      add_ids(*command, options->ids);
    }
    command->add_option("--file", options->path, in ? "An exported file" : "The file to write")
        ->required()
        ->type_name("FILE");
    add_common_options(*command, options->common);
    command->footer(in ? "Ids are taken on trust: import files only from sources that you trust."
                         "\n\nExample:\n  blend store import --store ./other --file chunks.blend"
                       : "Without ids: every chunk that is sound.\n\n"
                         "Example:\n  blend store export --store ./store --file chunks.blend");
    command->callback([options, in] { transfer(*options, in); });
  }
}

}  // namespace blend_cli
