// blend serve: the model and the store behind OpenAI's API.
//
// HTTP is cpp-httplib's. A thread serves one request; only as many compute as there are slots. What
// is wrong with a request is found before its status is sent: a stream begins once it is fused,
// other answers when they are complete.
#include <httplib.h>
#include <openssl/crypto.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "../chat_prompt.h"
#include "../choices.h"
#include "../command.h"
#include "../corpus.h"
#include "../fidelity_report.h"
#include "../interrupt.h"
#include "../policy_spec.h"
#include "../progress.h"
#include "../table.h"
#include "answer.h"
#include "connection.h"
#include "counters.h"
#include "slots.h"

namespace blend_cli {
namespace {

using serve::Answer;
using serve::Connection;
using serve::HttpError;
using serve::Json;

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
  bool no_key = false;
  bool read_only = false;
  size_t parallel = 4;
  size_t queue = 64;
  uint64_t max_body = uint64_t{8} << 20;
  uint32_t max_tokens = 1024;
  uint32_t client_timeout_s = 30;
  uint32_t drain_s = 30;
  std::string policy = "auto";
  double ratio = 0;
  double agreement = 0;
  std::vector<std::string> given;
};

// No time is saved by a key that is wrong sooner.
bool same_key(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string read_key(const ServeOptions& options) {
  std::string key;
  if (!options.key_file.empty()) {
    std::ifstream file(options.key_file);
    if (!file || !std::getline(file, key) || key.empty()) {
      throw CommandError(kExitNotFound,
                         "--api-key-file: '" + options.key_file + "' has no key in its first line");
    }
  } else if (const char* const found = std::getenv("BLEND_API_KEY")) {
    key = found;
  }
  const bool loopback =
      options.host == "127.0.0.1" || options.host == "::1" || options.host == "localhost";
  if (key.empty() && !loopback && !options.no_key) {
    throw CommandError(kExitUsage, "--host " + options.host +
                                       " lets others in: give --api-key-file (or BLEND_API_KEY in "
                                       "the environment), or say --no-api-key");
  }
  return key;
}

constexpr int kGone = 499;  // what metrics and nobody else read: a client that left

// The routes, and what they share.
class Server {
 public:
  Server(const ServeOptions& options, const serve::Engine& engine, std::string key)
      : options_(options),
        engine_(engine),
        key_(std::move(key)),
        slots_(options.parallel, options.queue),
        http_({options.client_timeout_s, 2 * options.max_body, &closing_}) {
    // Beside those that compute or wait: who is told that there is no room, who asks for health,
    // and who says nothing until his time is over.
    const size_t n_threads = options.parallel + options.queue + 256;
    http_.new_task_queue = [n_threads] { return new httplib::ThreadPool(n_threads); };
    http_.set_payload_max_length(options.max_body);
    add_routes();
  }

  int bind() {
    int port = options_.port;
    if (port == 0) {
      port = http_.bind_to_any_port(options_.host.c_str());
    } else if (!http_.bind_to_port(options_.host.c_str(), port)) {
      port = -1;
    }
    if (port < 0 || !http_.keep_waiting(512)) {
      throw CommandError(kExitError, "cannot listen on " + options_.host + " port " +
                                         std::to_string(options_.port) +
                                         ": another process has it, or it is not this machine's");
    }
    return port;
  }
  // Comes back when all requests are done.
  void listen() { http_.listen_after_bind(); }
  // No more requests are taken; those that are told so are told by the server, which still listens:
  // a stopped one of cpp-httplib gives up answers whose status has been sent and whose body has not
  // begun.
  void drain() { stopping_ = true; }
  bool idle() const { return slots_.idle(); }
  void stop() {
    closing_ = true;
    http_.stop();
  }

 private:
  void fail(httplib::Response& response, const std::string& path, const HttpError& error) {
    response.status = error.status();
    if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "1");
    if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
    response.set_content(serve::dump(serve::error_json(error)), "application/json");
    counters_.request(path, error.status());
  }

  bool allowed(const httplib::Request& request) const {
    if (key_.empty() || request.path == "/health") return true;
    return same_key(request.get_header_value("Authorization"), "Bearer " + key_);
  }

  void add_routes() {
    // Before the body is read.
    http_.set_pre_routing_handler([this](const httplib::Request& request,
                                         httplib::Response& response) {
      if (!allowed(request)) {
        fail(response, "other", {401, "the API key is missing or wrong", "invalid_api_key"});
      } else if (std::strtoull(request.get_header_value("Content-Length").c_str(), nullptr, 10) >
                 options_.max_body) {
        fail(response, "other", too_large());
      } else {
        return httplib::Server::HandlerResponse::Unhandled;
      }
      return httplib::Server::HandlerResponse::Handled;
    });
    for (const bool chat : {true, false}) {
      const std::string path = chat ? "/v1/chat/completions" : "/v1/completions";
      http_.Post(path,
                 [this, path, chat](const httplib::Request& request, httplib::Response& response,
                                    const httplib::ContentReader& reader) {
                   complete(path, chat, request, response, reader);
                 });
    }
    http_.Get("/v1/models", [this](const httplib::Request&, httplib::Response& response) {
      reply(response, "/v1/models", {{"object", "list"}, {"data", Json::array({model_json()})}});
    });
    http_.Get(
        R"(/v1/models/(.+))", [this](const httplib::Request& request, httplib::Response& response) {
          if (request.matches[1] == engine_.name)
            return reply(response, "/v1/models", model_json());
          fail(response, "/v1/models",
               {404, "there is no such model; there is '" + engine_.name + "'", "model_not_found"});
        });
    http_.Get("/health", [this](const httplib::Request&, httplib::Response& response) {
      if (stopping_) return fail(response, "/health", {503, "the server is stopping"});
      reply(response, "/health", {{"status", "ok"}});
    });
    http_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      counters_.request("/metrics", 200);
      response.set_content(counters_.text(slots_.running(), slots_.waiting()) +
                               engine_.store->metrics("store") +
                               fidelity_metrics(fidelity_rows(*engine_.store)),
                           "text/plain; version=0.0.4");
    });
    http_.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      if (response.status == 413) return fail(response, "other", too_large());
      const char* const method = method_of(request.path);
      if (response.status == 404 && method != nullptr) {
        response.set_header("Allow", method);
        return fail(response, "other", {405, request.path + " takes " + method});
      }
      const bool known = response.status != 404;
      fail(
          response, "other",
          {response.status,
           known ? "the request cannot be read"
                 : "there are POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET "
                   "/health and GET /metrics"});
    });
    http_.set_exception_handler(
        [this](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
          fail(response, "other", {500, "an unforeseen failure"});
        });
  }

  void reply(httplib::Response& response, const std::string& path, const Json& value) {
    response.set_content(serve::dump(value), "application/json");
    counters_.request(path, 200);
  }

  Json model_json() const {
    return {{"id", engine_.name},
            {"object", "model"},
            {"created", started_},
            {"owned_by", "libblend"},
            {"context_length", engine_.model->info().context_length}};
  }

  // Of a path that there is; null: there is none.
  static const char* method_of(const std::string& path) {
    if (path == "/v1/chat/completions" || path == "/v1/completions") return "POST";
    const bool known = path == "/v1/models" || path == "/health" || path == "/metrics";
    return known ? "GET, HEAD" : nullptr;
  }

  HttpError too_large() const {
    return {413,
            "the body is larger than " + std::to_string(options_.max_body) + " bytes (--max-body)"};
  }

  std::string read_body(const httplib::Request& request, const httplib::Response& response,
                        const httplib::ContentReader& reader) const {
    if (request.is_multipart_form_data()) throw HttpError(415, "the body must be JSON, not a form");
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
      throw HttpError(411, "the body has neither Content-Length nor Transfer-Encoding");
    }
    std::string body;
    bool fits = true;  // also what was packed, and what came in chunks
    const bool whole = reader([&](const char* data, size_t n) {
      fits = n <= options_.max_body - body.size();
      if (fits) body.append(data, n);
      return fits;
    });
    if (!fits || response.status == 413) throw too_large();
    if (whole) return body;
    if (Connection::current()->late()) {
      throw HttpError(408, "the request did not come whole in " +
                               std::to_string(options_.client_timeout_s) +
                               " seconds (--client-timeout)");
    }
    throw HttpError(response.status == 415 ? 415 : 400, "the body cannot be read");
  }

  void complete(const std::string& path, bool chat, const httplib::Request& request,
                httplib::Response& response, const httplib::ContentReader& reader) {
    try {
      const Connection& client = *Connection::current();
      serve::Request asked =
          serve::read_request(read_body(request, response, reader), chat, options_.max_tokens);
      if (stopping_) throw HttpError(503, "the server is stopping");
      std::shared_ptr<void> slot = slots_.take();
      if (slot == nullptr) {
        throw HttpError(429, "all " + std::to_string(slots_.most()) + " places are taken and " +
                                 std::to_string(slots_.most_waiting()) + " requests wait");
      }
      if (!client.alive()) throw HttpError(kGone, "the client has gone");  // while it waited
      const bool stream = asked.stream;
      auto answer = std::make_shared<Answer>(engine_, std::move(asked));
      response.set_header("Cache-Control", "no-store");
      if (stream) {
        response.set_chunked_content_provider(
            "text/event-stream", [this, path, answer, slot](size_t, httplib::DataSink& sink) {
              generate(path, *answer, sink);
              return true;
            });
        return;
      }
      if (!answer->run(nullptr, [&] { return client.alive(); })) {
        throw HttpError(kGone, "the client has gone");
      }
      counters_.answer(answer->info(), answer->n_generated());
      reply(response, path, answer->whole());
    } catch (const HttpError& error) {
      if (error.status() == kGone) counters_.hang_up();
      fail(response, path, error);
    } catch (const blendpp::Error& error) {
      fail(response, path, serve::http_error(error));
    } catch (const std::exception& error) {
      fail(response, path, {500, error.what()});
    }
  }

  // A stream's events.
  void generate(const std::string& path, Answer& answer, httplib::DataSink& sink) {
    const auto send = [&](const std::string& text) { return sink.write(text.data(), text.size()); };
    bool listening = true;
    int status = 200;
    const auto tell = [&](const HttpError& error) {
      status = error.status();
      listening = send("data: " + serve::dump(serve::error_json(error)) + "\n\n");
    };
    try {
      listening = answer.run(send, [&] { return sink.is_writable(); });
    } catch (const blendpp::Error& error) {
      tell(serve::http_error(error));
    } catch (const std::exception& error) {
      tell({500, error.what()});
    }
    if (listening) {
      counters_.answer(answer.info(), answer.n_generated());
      counters_.request(path, status);
    } else {
      counters_.hang_up();
      counters_.request(path, kGone);
    }
    sink.done();
  }

  const ServeOptions& options_;
  const serve::Engine& engine_;
  const std::string key_;
  const int64_t started_ = std::time(nullptr);
  serve::Slots slots_;
  serve::Counters counters_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> closing_{false};
  serve::HttpServer http_;
};

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
  // Whether one came within a moment.
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
    fuse.terms = policy.terms.data();
    fuse.n_terms = policy.terms.size();
  }
  if (given("--ratio")) fuse.ratio = options.ratio;
  if (options.agreement > 0) {
    fuse.ratio = BLEND_RATIO_FIDELITY;
    fuse.agreement_target = options.agreement;
  }
  if (options.read_only) fuse.on_miss = BLEND_MISS_COMPUTE;
  set_chunk_prefix(fuse, corpus);
  fuse.tenant = options.corpus.tenant.c_str();
  return fuse;
}

StoreOptions with_checks(StoreOptions store) {
  store.checks = true;
  return store;
}

void run(const ServeOptions& options) {
  const std::string key = read_key(options);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  const blendpp::Store store = options.read_only
                                   ? open_existing_store(ctx, options.store.path, true)
                                   : open_store(ctx, with_checks(options.store));
  const Corpus corpus = make_corpus(model, options.corpus);
  if (corpus.profile != nullptr) {
    corpus.profile->apply(store);
    if (corpus.profile->info().trusted == 0) {
      print_note(
          "the profile trusts no ratio for this model: answers are fused at its ratio all the "
          "same; --profile none does without it");
    }
  }
  const PolicySpec policy = parse_policy(options.policy);
  throw_if_interrupted();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  serve::Engine engine;
  engine.model = &model;
  engine.store = &store;
  engine.name = name_of_model(options, model);
  engine.fuse = fuse_options(options, corpus, policy);
  engine.cancel = interrupt_token();
  chat_options(options.chat, engine.template_source);
  Server server(options, engine, key);
  const int port = server.bind();
  const std::string host =
      options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  const std::string url = "http://" + host + ":" + std::to_string(port) + "/v1";
  if (options.common.json) {
    std::cout << Json{{"url", url}, {"model", engine.name}, {"port", port}}.dump() << std::endl;
  } else {
    std::cout << "serving " << engine.name << " at " << url << std::endl;
  }
  {
    const Stopper stopper(server, options.drain_s, signals);
    server.listen();
  }
  if (!options.read_only) store.flush();
}

}  // namespace

void register_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "Answer over HTTP, by OpenAI's API, documents as chunks");
  add_model(*command, options->model);
  add_store_options(*command, options->store);
  command->add_flag("--read-only", options->read_only,
                    "Open the store to read: what it lacks is computed and not stored");
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
  command->add_flag("--no-api-key", options->no_key, "Listen beyond this machine without a key");
  command->add_option("--parallel", options->parallel, "Requests that compute at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--queue", options->queue,
                   "Requests that may wait for that; more are refused (429)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_option("--max-body", options->max_body, "Largest body of a request, e.g. 8MiB")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->capture_default_str();
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "Most tokens of an answer, and of one whose request says nothing")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--client-timeout", options->client_timeout_s,
                   "Seconds a client may take to send or to read on; then it is left")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command
      ->add_option("--drain", options->drain_s,
                   "Seconds that answers may take to end when the server is told to stop")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command->add_option("--policy", options->policy, "Which rows are recomputed: " + policy_names())
      ->check(check_policy)
      ->type_name("POLICY")
      ->capture_default_str();
  CLI::Option* const ratio =
      command
          ->add_option(
              "--ratio", options->ratio,
              "Share of the reused rows that is recomputed; default: what keeps --agreement")
          ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option(
          "--agreement", options->agreement,
          "Choose the ratio so that full prefill would prefer the same token at this share "
          "of the answers' tokens, as idle checks see it (/metrics); default 0.98")
      ->check(CLI::Range(0.5, 0.999))
      ->excludes(ratio)
      ->type_name("SHARE");
  add_chat_template(*command, options->chat);
  add_common_options(*command, options->common);
  command->footer(
      "POST /v1/chat/completions and /v1/completions (with \"stream\": true as events), GET\n"
      "/v1/models, /health and /metrics. Retrieved passages are \"documents\": texts, or ids of\n"
      "stored chunks. SIGTERM: no more requests, those that run are answered.\n\nExample:\n"
      "  blend serve --model model.gguf --store ./store --port 8080");
  command->callback([options, command] {
    for (const char* name : {"--policy", "--ratio"}) {
      if (command->count(name) > 0) options->given.emplace_back(name);
    }
    run(*options);
  });
}

}  // namespace blend_cli
