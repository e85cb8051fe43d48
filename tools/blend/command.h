// What the subcommands share: options, exit codes, and how a command is registered.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

// Exit codes, documented in docs/cli.md; scripts may rely on them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;        // the work failed
inline constexpr int kExitUsage = 2;        // the command line asks for something impossible
inline constexpr int kExitNotFound = 3;     // no such model, store, document or chunk
inline constexpr int kExitDamaged = 4;      // a model file or stored bytes are damaged
inline constexpr int kExitUntrusted = 5;    // blend verify: the limits are not kept
inline constexpr int kExitCancelled = 130;  // Ctrl-C, as shells have it

// The exit code for a BLEND_E_* code.
int exit_code_of(int32_t code);

// A failure of the command itself rather than of the library.
class CommandError : public std::runtime_error {
 public:
  CommandError(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// What every subcommand takes.
struct CommonOptions {
  bool json = false;
  uint32_t threads = 0;
  bool pin_threads = false;
  std::string backend = "cpu";
  uint64_t device_bytes = 0;
  std::string cache_dtype = "auto";
};
void add_common_options(CLI::App& app, CommonOptions& options);
void add_backend_option(CLI::App& app, CommonOptions& options);

// A context with the threads asked for; what failed goes to stderr as notes.
blendpp::Context make_context(const CommonOptions& options);
// A record of a failure as a note; what commands say themselves is left out.
void print_record(const blend_log_record& record);
// Its log goes to `log` instead.
blendpp::Context make_context(const CommonOptions& options, uint32_t log_level, blendpp::LogFn log);

// The server that several machines' stores share. User and password come from the environment.
struct RemoteChoice {
  std::string url;  // empty: none
  std::string space, ca, certificate, key;
};
void add_remote(CLI::App& app, RemoteChoice& remote);

// The store and how chunks are put into it.
struct StoreOptions {
  std::string path;
  std::string kv_dtype = "auto";
  std::string codec = "none";
  double codec_step = 1;
  std::string read_mode = "auto";
  uint64_t quota_bytes = 0;  // 0: the library's default
  std::string eviction = "lru";
  uint64_t most_variants = 0;  // likewise
  uint64_t ram_bytes = 0;
  bool checks = false;  // checks answers in idle time: for commands that keep running
  RemoteChoice remote;
};
void add_store_path(CLI::App& app, StoreOptions& options);
void add_store_options(CLI::App& app, StoreOptions& options);
void add_codec(CLI::App& app, StoreOptions& options);
blendpp::Store open_store(const blendpp::Context& ctx, const StoreOptions& options);
// For commands that only read: fails when there is no store, rather than making one.
blendpp::Store open_existing_store(const blendpp::Context& ctx, const std::string& path,
                                   bool read_only, const RemoteChoice& remote = {});

// Waits until all that was put has reached the remote tier, as long as there is progress: closing
// the store would give up after a while.
void wait_for_uploads(const blendpp::Store& store);

struct ModelChoice {
  std::string path;
  std::string weights = "auto";
  std::vector<blendpp::Lora> loras = {};
};
void add_model(CLI::App& app, ModelChoice& model);
blendpp::Model open_model(const blendpp::Context& ctx, const ModelChoice& model);

// Each adds its subcommand to `app`. The callback throws on failure and sets nothing otherwise.
void register_precompute(CLI::App& app);
void register_ask(CLI::App& app);
void register_serve(CLI::App& app);
void register_embed(CLI::App& app);
void register_eval(CLI::App& app);
void register_advise(CLI::App& app);
void register_perplexity(CLI::App& app);
void register_calibrate(CLI::App& app);
void register_verify(CLI::App& app);
void register_store_ls(CLI::App& store);
void register_store_label(CLI::App& store);
void register_store_stat(CLI::App& store);
void register_store_verify(CLI::App& store);
void register_store_remote(CLI::App& store);
void register_store_rm(CLI::App& store);
void register_store_care(CLI::App& store);   // repair, compact, export, import
void register_store_stays(CLI::App& store);  // pin, unpin, evict
void register_model_info(CLI::App& model);
void register_completion(CLI::App& app);  // reads all that is registered when it runs
void register_manual(CLI::App& app);      // likewise

}  // namespace blend_cli
