// blend store ls: the chunks of a store.
#include <iostream>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "chunk_choice.h"
#include "chunk_table.h"
#include "command.h"
#include "table.h"

namespace blend_cli {
namespace {

struct StoreLsOptions {
  CommonOptions common;
  StoreOptions store;
  ChunkChoice choice;
};

void run(const StoreLsOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, true);
  Table table({"id", "tokens", "prefix", "dtype", "codec", "size", "stored", "last used (UTC)",
               "model", "label", "tags"});
  nlohmann::json chunks = nlohmann::json::array();
  size_t n = 0;
  uint64_t bytes = 0;
  list_chunks(ctx, store, options.choice, [&](const blend_chunk_info& info, const char*) {
    ++n;
    bytes += info.bytes;
    if (options.common.json) {
      chunks.push_back(chunk_json(info));
    } else {
      table.add({blendpp::ChunkId(info.id).hex(), std::to_string(info.n_tokens),
                 std::to_string(info.n_prefix_tokens), dtype_text(info.kv_dtype),
                 name_of(codec_choices(), info.codec), bytes_text(info.bytes),
                 bytes_text(info.stored_bytes), time_text(info.last_used_unix_s),
                 hex_text(info.fingerprint, 4), info.label, info.tags});
    }
    return true;
  });
  if (options.common.json) {
    std::cout << nlohmann::json{{"chunks", std::move(chunks)}}.dump(2) << '\n';
  } else {
    std::cout << table.str() << format("%zu chunks, %s\n", n, bytes_text(bytes).c_str());
  }
}

}  // namespace

void register_store_ls(CLI::App& store) {
  auto options = std::make_shared<StoreLsOptions>();
  CLI::App* command = store.add_subcommand("ls", "List the chunks, in the order of their ids");
  add_store_path(*command, options->store);
  add_chunk_choice(*command, options->choice);
  add_common_options(*command, options->common);
  command->footer(
      "\"prefix\" is the number of tokens that the chunk was prefilled after, \"model\" what the\n"
      "model's fingerprint begins with. In patterns * stands for any characters, ? for one.\n\n"
      "Example:\n"
      "  blend store ls --store ./store --label 'handbook/*' --tag lang=en\n"
      "  blend store ls --store ./store --json | jq -r '.chunks[].id'");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
