// blend serve: serves the model and the store by OpenAI's API.
//
// One thread owns the connections, and as many as --parallel compute. Errors in a request are found
// before its status is sent: a stream begins once it is fused, other answers when they are
// complete.
#include <openssl/crypto.h>
#include <pthread.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "../chat_prompt.h"
#include "../choices.h"
#include "../command.h"
#include "../corpus.h"
#include "../interrupt.h"
#include "../key_file.h"
#include "../policy_spec.h"
#include "../printable.h"
#include "../progress.h"
#include "../read_file.h"
#include "../table.h"
#include "access.h"
#include "answer.h"
#include "log.h"
#include "server.h"
#include "thread.h"

namespace blend_cli {
namespace {

using serve::Json;
using serve::Server;

struct ServeOptions {
  CommonOptions common;
  ModelChoice model;
  StoreOptions store;
  CorpusOptions corpus;
  ChatChoice chat;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string model_name;
  std::string key_file;
  std::string keys_file;
  bool no_key = false;
  std::vector<std::string> hosts;
  std::vector<std::string> origins;
  bool no_account = false;
  bool read_only = false;
  size_t parallel = 4;
  size_t queue = 64;
  uint64_t max_body = uint64_t{8} << 20;
  uint64_t request_memory = uint64_t{256} << 20;
  size_t connections = 1024;
  uint32_t max_tokens = 1024;
  uint32_t client_timeout_s = 30;
  uint32_t drain_s = 30;
  std::string policy = "auto";
  double ratio = 0;
  double agreement = 0;
  std::string log;  // "": notes
  std::string log_level = "info";
  std::vector<std::string> given;
};

const Choices& log_levels() {
  static const Choices kLevels = {{"error", BLEND_LOG_ERROR},
                                  {"warning", BLEND_LOG_WARNING},
                                  {"info", BLEND_LOG_INFO},
                                  {"debug", BLEND_LOG_DEBUG}};
  return kLevels;
}

serve::LogFormat log_format(const std::string& name) {
  if (name.empty()) return serve::LogFormat::notes;
  return name == "json" ? serve::LogFormat::json : serve::LogFormat::text;
}

// Reads a file whose text is to be cleansed later.
std::string read_secret(const std::string& option, const std::string& path) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  FileBytes file;
  interruptibly([&] { file = read_file(path, kMostBytes); });
  if (file.error != 0) {
    throw CommandError(kExitNotFound,
                       option + ": '" + path + "' cannot be read: " + std::strerror(file.error));
  }
  note_open_key_file(path);
  return std::move(file.bytes);
}

void read_keys(const ServeOptions& options, serve::Access& access) {
  if (!options.keys_file.empty()) {
    std::string text = read_secret("--api-keys", options.keys_file);
    try {
      access.read_keys(text);
      OPENSSL_cleanse(text.data(), text.size());
    } catch (const std::runtime_error& error) {
      throw CommandError(kExitUsage, "--api-keys: '" + options.keys_file + "': " + error.what());
    }
    return;
  }
  std::string key;
  if (!options.key_file.empty()) {
    key = read_secret("--api-key-file", options.key_file);
    const size_t end = std::min(key.find_first_of("\r\n"), key.size());
    OPENSSL_cleanse(key.data() + end, key.size() - end);
    key.resize(end);
    if (key.empty()) {
      throw CommandError(kExitNotFound,
                         "--api-key-file: '" + options.key_file + "' has no key in its first line");
    }
  } else if (const char* const found = std::getenv("BLEND_API_KEY")) {
    key = found;
  }
  if (!key.empty()) {
    access.set_key(key);
    OPENSSL_cleanse(key.data(), key.capacity());
  } else if (!serve::is_loopback(options.host) && !options.no_key) {
    throw CommandError(kExitUsage, "--host " + options.host +
                                       " lets others in: give --api-keys, --api-key-file (or "
                                       "BLEND_API_KEY in the environment), or say --no-api-key");
  }
}

// Makes room for descriptors of that many connections, besides those that model and store use.
size_t room_for_connections(size_t wanted) {
  constexpr rlim_t kOthers = 512;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t needed = wanted + kOthers;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < needed) {
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? needed : std::min(needed, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed) return wanted;
  const size_t room = static_cast<size_t>(limit.rlim_cur) / 2;
  print_note("--connections " + std::to_string(wanted) +
             ": the limit of open files leaves room for " + std::to_string(room));
  return room;
}

// Signals go to the one thread that waits for them: the first stops, the second (or the time that
// answers may take) cancels what still runs.
class Stopper {
 public:
  Stopper(Server& server, uint32_t drain_s, const sigset_t& signals)
      : thread_([&server, drain_s, signals] {
          int signal = 0;
          sigwait(&signals, &signal);
          server.drain();
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(drain_s);
          while (!server.idle() && std::chrono::steady_clock::now() < end) {
            if (next_signal(signals)) break;
          }
          if (!server.idle()) request_interrupt();
          const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(10);
          while (!server.idle() && std::chrono::steady_clock::now() < last) next_signal(signals);
          server.stop();
        }) {}
  ~Stopper() {
    pthread_kill(thread_.native_handle(), SIGTERM);  // where the server ended by itself
    thread_.join();
  }
  Stopper(const Stopper&) = delete;
  Stopper& operator=(const Stopper&) = delete;

 private:
  // Whether a signal came within a moment.
  static bool next_signal(const sigset_t& signals) {
    timespec moment = {};
    moment.tv_nsec = 20'000'000;
    return sigtimedwait(&signals, nullptr, &moment) > 0;
  }
  std::thread thread_;
};

std::string name_of_model(const ServeOptions& options, const blendpp::Model& model) {
  if (!options.model_name.empty()) return options.model_name;
  const std::string own = model.info().name;
  if (!own.empty()) return own;
  std::filesystem::path path(options.model.path);
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

blendpp::FuseOptions fuse_options(const ServeOptions& options, const Corpus& corpus,
                                  const PolicySpec& policy) {
  blendpp::FuseOptions fuse;
  if (corpus.profile != nullptr) corpus.profile->apply(fuse);
  const auto given = [&](const char* name) {
    return std::find(options.given.begin(), options.given.end(), name) != options.given.end();
  };
  if (given("--policy")) {
    fuse.policy = policy.policy;
    fuse.selection.terms = policy.terms.data();
    fuse.selection.n_terms = policy.terms.size();
  }
  if (given("--ratio")) fuse.ratio = options.ratio;
  if (options.agreement > 0) {
    fuse.ratio = BLEND_RATIO_FIDELITY;
    fuse.agreement_target = options.agreement;
  }
  if (options.read_only) fuse.on_miss = BLEND_MISS_COMPUTE;
  set_chunk_prefix(fuse, corpus);
  return fuse;
}

StoreOptions with_checks(StoreOptions store) {
  store.checks = true;
  return store;
}

int bind(Server& server, const ServeOptions& options) {
  try {
    return server.bind();
  } catch (const std::system_error& error) {
    throw CommandError(kExitError, "cannot listen on " + options.host + " port " +
                                       std::to_string(options.port) + ": " +
                                       error.code().message());
  }
}

// A build may have none (BLEND_CHAT).
bool has_templates(const blendpp::Model& model) {
  try {
    model.template_info("-");
  } catch (const blendpp::Error& error) {
    return error.code() != BLEND_E_UNSUPPORTED;
  }
  return true;
}

// Errors in a template are found before the first request. A template that wants other messages
// than these is not wrong.
void read_template(serve::Engine& engine) {
  if (engine.template_source.empty() && !has_templates(*engine.model)) return;
  try {
    blendpp::ChatOptions options;
    options.template_source = engine.template_source.c_str();
    blendpp::render_chat(*engine.model, {{"user", "?"}}, {}, options);
  } catch (const blendpp::Error& error) {
    if (error.code() == BLEND_E_NOT_FOUND) return;  // completions need none
    if (error.code() != BLEND_E_INVALID_ARGUMENT) throw;
  }
  engine.call_id_length = engine.model->template_info(engine.template_source).call_id_length;
}

void run(const ServeOptions& options) {
  serve::ServerLog log(log_format(options.log), value_of(log_levels(), options.log_level));
  serve::Access access(options.corpus.tenant);
  read_keys(options, access);
  access.set_hosts(options.host, options.hosts);
  access.set_origins(options.origins);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const blendpp::Context ctx = make_context(
      options.common, log.level(), [&log](const blend_log_record& record) { log.record(record); });
  const blendpp::Model model = open_model(ctx, options.model);
  const blendpp::Store store = options.read_only
                                   ? open_existing_store(ctx, options.store.path, true)
                                   : open_store(ctx, with_checks(options.store));
  const Corpus corpus = make_corpus(model, options.corpus);
  if (corpus.profile != nullptr) {
    store.set_codec_profile(*corpus.profile);
    if (corpus.profile->info().trusted == 0) {
      print_note(
          "the profile trusts no ratio for this model: answers are fused at its ratio all the "
          "same; --profile none does without it");
    }
  }
  const PolicySpec policy = parse_policy(options.policy);
  std::string template_source;
  chat_options(options.chat, template_source);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  throw_if_interrupted();  // a signal that came before is not waited for
  std::signal(SIGPIPE, SIG_IGN);

  serve::Engine engine;
  engine.model = &model;
  engine.store = &store;
  engine.name = name_of_model(options, model);
  engine.fuse = fuse_options(options, corpus, policy);
  serve::GrammarCache grammars(model);
  engine.grammars = &grammars;
  engine.cancel = interrupt_token();
  engine.cancelled = &interrupted;
  engine.template_source = template_source;
  engine.account = !options.no_account;
  if (corpus.profile != nullptr) engine.trusted = corpus.profile->info().trusted != 0;
  read_template(engine);
  if (template_source.empty() && *model.info().chat_template == '\0') {
    print_note(
        "the model has no chat template, so /v1/chat/completions refuses requests: give one with "
        "--chat-template FILE");
  }
  serve::ServerOptions with;
  with.http.host = options.host;
  with.http.port = options.port;
  with.http.client_s = options.client_timeout_s;
  with.http.most_body = options.max_body;
  with.http.most_connections = room_for_connections(options.connections);
  with.parallel = options.parallel;
  with.queue = options.queue;
  with.max_tokens = options.max_tokens;
  with.request_memory = options.request_memory;
  Server server(with, engine, access, log);
  const int port = bind(server, options);
  const std::string host =
      options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  const std::string url = "http://" + host + ":" + std::to_string(port) + "/v1";
  if (options.common.json) {
    Json said = {{"url", url}, {"model", engine.name}, {"port", port}};
    if (engine.trusted) said["profile_trusted"] = *engine.trusted;
    std::cout << said.dump() << std::endl;
  } else {
    std::cout << "serving " << printable(engine.name) << " at " << url << std::endl;
  }
  log.write(BLEND_LOG_INFO, "server", "serving", {{"model", engine.name}, {"url", url}});
  {
    const Stopper stopper(server, options.drain_s, signals);
    const serve::Thread thread([&server] { server.run(); });
  }
  if (!options.read_only) store.flush();
  log.write(BLEND_LOG_INFO, "server", "stopped");
}

}  // namespace

void register_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve OpenAI's API over HTTP, with documents as chunks");
  add_model(*command, options->model);
  add_store_options(*command, options->store);
  command->add_flag("--read-only", options->read_only,
                    "Open the store to read: missing chunks are computed and not stored");
  add_fusing_options(*command, options->corpus);
  command
      ->add_option("--host", options->host,
                   "The address to listen on; others than this "
                   "machine's own need an API key")
      ->capture_default_str();
  command->add_option("--port", options->port, "0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--model-name", options->model_name,
                      "The model's name for clients; default: its own, or the file's");
  command
      ->add_option("--api-key-file", options->key_file,
                   "Clients must send the key in the first line of this file (or in the "
                   "environment's BLEND_API_KEY) as Authorization: Bearer KEY")
      ->type_name("FILE");
  command
      ->add_option("--api-keys", options->keys_file,
                   "Lines of KEY TENANT [parallel=N] [max-tokens=N] [metrics]: each key sees the "
                   "chunks of its tenant only, and has its own limits")
      ->type_name("FILE")
      ->excludes("--api-key-file");
  command->add_flag("--no-api-key", options->no_key, "Listen beyond this machine without a key");
  command
      ->add_option("--allow-host", options->hosts,
                   "Without a key: a further name by which clients may call this server")
      ->type_name("NAME");
  command
      ->add_option("--cors-origin", options->origins,
                   "Pages of this origin (https://app.example) may use the server; *: all")
      ->type_name("ORIGIN");
  command->add_flag("--no-account", options->no_account,
                    "Do not tell clients which of their tokens were in the store");
  command->add_option("--parallel", options->parallel, "Requests that compute at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--queue", options->queue,
                   "Requests that may wait to compute; more are refused (429)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command
      ->add_option("--connections", options->connections,
                   "Maximum number of connected clients; idle ones are disconnected when more come")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command
      ->add_option("--request-memory", options->request_memory,
                   "Memory for the bodies of all requests together; more are refused (503)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_option("--max-body", options->max_body, "Largest body of a request, e.g. 8MiB")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->capture_default_str();
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "Maximum tokens of an answer; also the default of a request")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--client-timeout", options->client_timeout_s,
                   "Seconds that a client may take to send its request, and to read a complete "
                   "answer; then it is disconnected")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command
      ->add_option("--drain", options->drain_s,
                   "Seconds that running answers may take after the server is told to stop")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command->add_option("--policy", options->policy, "Which rows are recomputed: " + policy_names())
      ->check(check_policy)
      ->type_name("POLICY")
      ->capture_default_str();
  CLI::Option* const ratio =
      command
          ->add_option("--ratio", options->ratio,
                       "Share of the reused rows that is recomputed; default: the ratio that keeps "
                       "--agreement")
          ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--agreement", options->agreement,
                   "Choose the ratio so that full prefill would prefer the same token at this "
                   "share of the answers' tokens, as measured by checks in idle time (/metrics); "
                   "default 0.98")
      ->check(CLI::Range(0.5, 0.999))
      ->excludes(ratio)
      ->type_name("SHARE");
  add_chat_template(*command, options->chat);
  CLI::Option* const log =
      command
          ->add_option("--log", options->log,
                       "Write requests, and what the library tells, to stderr: as lines of "
                       "key=value (text), or of JSON; default: warnings alone, as notes")
          ->check(CLI::IsMember({"text", "json"}));
  command
      ->add_option("--log-level", options->log_level,
                   "The least important that --log writes: error (also requests that failed), "
                   "warning, info (all requests) or debug (fuses)")
      ->check(CLI::IsMember(names_of(log_levels())))
      ->capture_default_str()
      ->needs(log);
  add_common_options(*command, options->common);
  command->footer(
      "POST /v1/chat/completions and /v1/completions (with \"stream\": true as events), POST\n"
      "/v1/embeddings, GET /v1/models, /health and /metrics. Retrieved passages are \"documents\": "
      "texts, or ids of\n"
      "stored chunks. On SIGTERM it takes no more requests, and answers the running ones.\n\n"
      "Example:\n"
      "  blend serve --model model.gguf --store ./store --port 8080");
  command->callback([options, command] {
    for (const char* name : {"--policy", "--ratio"}) {
      if (command->count(name) > 0) options->given.emplace_back(name);
    }
    run(*options);
  });
}

}  // namespace blend_cli
