// blend store verify: reads every byte and checks it.
#include <iostream>
#include <nlohmann/json.hpp>

#include "chunk_table.h"
#include "command.h"
#include "interrupt.h"
#include "printable.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

struct StoreVerifyOptions {
  CommonOptions common;
  StoreOptions store;
};

// Every chunk of the remote tier.
void verify_remote(const StoreVerifyOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store =
      open_existing_store(ctx, options.store.path, true, options.store.remote);
  nlohmann::json damaged = nlohmann::json::array();
  size_t n_sound = 0;
  std::string damage;
  blendpp::TransferOptions how;
  how.cancel = interrupt_token();
  try {
    store.remote_verify(
        [&](const blend_chunk_id* id, const char* problem) {
          if (problem == nullptr) {
            ++n_sound;
            return true;
          }
          const std::string hex = id == nullptr ? "" : blendpp::ChunkId(*id).hex();
          if (!options.common.json)
            std::cout << (hex.empty() ? "?" : hex) << "  " << printable(problem) << '\n';
          damaged.push_back({{"id", hex}, {"problem", problem}});
          return true;
        },
        how);
  } catch (const blendpp::Error& error) {
    if (error.code() != BLEND_E_CORRUPT) throw;
    damage = error.what();
  }
  if (options.common.json) {
    const nlohmann::json out = {
        {"n_sound", n_sound}, {"n_damaged", damaged.size()}, {"damaged", damaged}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << format("%zu sound, %zu damaged in the remote tier\n", n_sound, damaged.size());
  }
  if (!damage.empty()) throw CommandError(kExitDamaged, damage);
}

void run(const StoreVerifyOptions& options) {
  if (!options.store.remote.url.empty()) return verify_remote(options);
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, true);
  const uint64_t total = store.report().bytes;
  nlohmann::json damaged = nlohmann::json::array();
  size_t n_sound = 0;
  uint64_t bytes = 0;
  std::string damage;  // the library's sentence, when there is any
  {
    ProgressBar bar("Verifying", ProgressBar::Elsewhere::lines);
    try {
      store.list(true, [&](const blend_chunk_info& info, const char* problem) {
        throw_if_interrupted();
        bytes += info.bytes;
        bar.update(bytes, total);
        if (problem == nullptr) {
          ++n_sound;
        } else {
          nlohmann::json chunk = chunk_json(info);
          chunk["problem"] = problem;
          damaged.push_back(std::move(chunk));
        }
        return true;
      });
    } catch (const blendpp::Error& error) {
      if (error.code() != BLEND_E_CORRUPT) throw;
      damage = error.what();
    }
  }
  if (options.common.json) {
    const nlohmann::json out = {
        {"n_sound", n_sound}, {"n_damaged", damaged.size()}, {"damaged", damaged}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    for (const nlohmann::json& chunk : damaged) {
      std::cout << chunk["id"].get<std::string>() << "  "
                << printable(chunk["problem"].get<std::string>()) << '\n';
    }
    std::cout << format("%zu sound, %zu damaged\n", n_sound, damaged.size());
  }
  if (!damage.empty()) {
    throw CommandError(kExitDamaged, damage + "; remove damaged chunks with `blend store rm`");
  }
}

}  // namespace

void register_store_verify(CLI::App& store) {
  auto options = std::make_shared<StoreVerifyOptions>();
  CLI::App* command =
      store.add_subcommand("verify", "Read every chunk and check it against its checksums");
  add_store_path(*command, options->store);
  add_remote(*command, options->store.remote);
  add_common_options(*command, options->common);
  command->footer(
      "Damaged chunks stay in the store; fuses treat them as misses. Exit code 4 if there are any."
      " With --remote: the chunks of the remote tier, read whole.\n\nExample:\n  blend store "
      "verify --store ./store && echo sound");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
