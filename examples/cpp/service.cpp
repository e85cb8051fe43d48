// service.cpp - documents in, answers streamed out, several requests at a time on one context.
//
//   service [--model MODEL.gguf] [--store DIR] [--port N]
//
// What it answers is in examples/README.md. HTTP is cpp-httplib's (Debian: libcpp-httplib-dev),
// JSON nlohmann's. It listens on loopback, and should: that library has a thread for each client,
// no total deadlines, and evaluates ranges and regular expressions of untrusted clients. For a
// network see the server in tools/blend/serve. SIGTERM or SIGINT: it finishes what it has
// begun. A client that goes away ends its generation: the callback returns false, and that is all.
#include <httplib.h>
#include <pthread.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "retrieval.h"

#ifndef EXAMPLES
#define EXAMPLES "examples"
#endif

namespace {

using nlohmann::json;

// A request that cannot be served: status and what is wrong.
struct Bad : std::runtime_error {
  Bad(int status_, const std::string& message) : std::runtime_error(message), status(status_) {}
  int status;
};

// What the requests share. The library's objects are thread-safe; the rest has a mutex.
class Service {
 public:
  Service(const blendpp::Model& model, const blendpp::Store& store)
      : model_(model), store_(store) {}

  json add_document(const std::string& name, const std::string& text) {
    std::vector<example::Chunk> chunks = example::chunks_of(model_, {name, text}, 96);
    const size_t stored = example::store_chunks(model_, store_, chunks);
    const json answer = {{"name", name}, {"chunks", chunks.size()}, {"stored", stored}};
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!documents_.insert(name).second)
      throw Bad(409, "there is a document '" + name + "' already");
    for (auto& chunk : chunks) index_.add(std::move(chunk));
    return answer;
  }

  // The fused prompt of a question.
  std::shared_ptr<blendpp::Fusion> fuse(const std::string& question, uint32_t max_tokens,
                                        size_t top) {
    blendpp::FuseOptions options;
    options.reserve_tokens = max_tokens;
    return std::make_shared<blendpp::Fusion>(
        model_, &store_, example::prompt_of(model_, find(question, top), question), options);
  }

  // Streams an answer: `send(event, data)` returns false when nobody listens any more.
  template <typename Send>
  void answer(blendpp::Fusion& fusion, uint32_t max_tokens, Send send) {
    const blendpp::FusionInfo info = fusion.info();
    std::string text;
    blendpp::GenerateOptions options;
    options.max_tokens = max_tokens;
    const blendpp::Generated done = fusion.generate(options, [&](int32_t, std::string_view piece) {
      text += piece;
      return send("", json{{"text", piece}});
    });
    if (done.by_callback) return;
    const double ttft = static_cast<double>(info.ttft_ns);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      n_tokens_ += done.n_tokens;
      ttft_s_ += ttft / 1e9;
      ++n_answers_;
    }
    send("done", json{{"answer", example::stripped(text)},
                      {"ttft_ms", ttft / 1e6},
                      {"rows", info.n_rows},
                      {"reused", info.n_rows_reused},
                      {"recomputed", info.n_rows_selected}});
  }

  void count(const std::string& path, int code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++requests_[{path, code}];
  }

  std::string metrics() {
    std::ostringstream out;
    const std::lock_guard<std::mutex> lock(mutex_);
    out << "# TYPE blend_requests_total counter\n";
    for (const auto& [key, n] : requests_) {
      out << "blend_requests_total{path=\"" << key.first << "\",code=\"" << key.second << "\"} "
          << n << '\n';
    }
    out << "# TYPE blend_tokens_total counter\nblend_tokens_total " << n_tokens_ << '\n'
        << "# TYPE blend_ttft_seconds summary\nblend_ttft_seconds_sum " << ttft_s_
        << "\nblend_ttft_seconds_count " << n_answers_ << '\n';
    out << store_.metrics("documents");
    return out.str();
  }

 private:
  std::vector<example::Chunk> find(const std::string& question, size_t top) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (index_.size() == 0) throw Bad(404, "there are no documents: POST /documents first");
    return index_.best(question, top);
  }

  const blendpp::Model& model_;
  const blendpp::Store& store_;
  std::mutex mutex_;
  example::Bm25 index_;
  std::set<std::string> documents_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
  uint64_t n_tokens_ = 0;
  uint64_t n_answers_ = 0;
  double ttft_s_ = 0;
};

json body_of(const httplib::Request& request) {
  json body = json::parse(request.body, nullptr, false);
  if (!body.is_object()) throw Bad(400, "the body is not a JSON object");
  return body;
}

std::string text_of(const json& body, const char* name) {
  if (!body.contains(name) || !body[name].is_string() || body[name].get<std::string>().empty()) {
    throw Bad(400, std::string("'") + name + "' must be given, as a string");
  }
  return body[name];
}

uint32_t number_of(const json& body, const char* name, uint32_t otherwise) {
  if (!body.contains(name)) return otherwise;
  if (!body[name].is_number_unsigned() || body[name] == 0 || body[name] > 1'000'000) {
    throw Bad(400, std::string("'") + name + "' must be a number above 0");
  }
  return body[name];
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Runs a handler, and gives what it throws a status.
template <typename Handler>
void serve(Service& service, const std::string& path, httplib::Response& response,
           Handler handler) {
  const auto failed = [&](int status, const char* message) {
    response.status = status;
    response.set_content(dump({{"error", message}}), "application/json");
  };
  try {
    response.status = 200;
    handler();
    if (path == "/ask") return;  // counted when its stream ends
  } catch (const Bad& error) {
    failed(error.status, error.what());
  } catch (const blendpp::Error& error) {
    const bool asked_wrongly =
        error.code() == BLEND_E_INVALID_ARGUMENT || error.code() == BLEND_E_CONTEXT_LENGTH;
    failed(asked_wrongly ? 400 : 500, error.what());
  } catch (const std::exception& error) {
    failed(500, error.what());
  }
  service.count(path, response.status);
}

// Connections that wait to be taken: of 5, which is its own, some are lost when fifty clients come
// at once.
class Server : public httplib::Server {
 public:
  bool keep_waiting(int n) { return ::listen(svr_sock_, n) == 0; }
};

void add_routes(httplib::Server& server, Service& service) {
  server.Post("/documents", [&](const httplib::Request& request, httplib::Response& response) {
    serve(service, "/documents", response, [&] {
      const json body = body_of(request);
      response.set_content(dump(service.add_document(text_of(body, "name"), text_of(body, "text"))),
                           "application/json");
    });
  });
  server.Post("/ask", [&](const httplib::Request& request, httplib::Response& response) {
    serve(service, "/ask", response, [&] {
      const json body = body_of(request);
      const uint32_t max_tokens = number_of(body, "max_tokens", 32);
      // Fused before the status is sent: what is wrong with a prompt has one of its own.
      auto fusion = service.fuse(text_of(body, "question"), max_tokens, number_of(body, "top", 6));
      response.set_header("Cache-Control", "no-store");
      response.set_chunked_content_provider(
          "text/event-stream", [&service, fusion, max_tokens](size_t, httplib::DataSink& sink) {
            const auto send = [&](const std::string& event, const json& data) {
              const std::string text =
                  (event.empty() ? "" : "event: " + event + "\n") + "data: " + dump(data) + "\n\n";
              return sink.write(text.data(), text.size());
            };
            int code = 200;
            try {
              service.answer(*fusion, max_tokens, [&](const std::string& event, const json& data) {
                // Counted before its end is told: who reads /metrics next finds it there.
                if (event == "done") service.count("/ask", 200);
                const bool sent = send(event, data);
                if (!sent) code = 499;
                return sent;
              });
            } catch (const blendpp::Error& error) {
              code = 500;
              send("error", {{"error", error.what()}});
            }
            if (code != 200) service.count("/ask", code);
            sink.done();
            return true;
          });
    });
  });
  server.Get("/metrics", [&](const httplib::Request&, httplib::Response& response) {
    serve(service, "/metrics", response,
          [&] { response.set_content(service.metrics(), "text/plain; version=0.0.4"); });
  });
  server.set_error_handler([&](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    service.count("other", response.status);
    response.set_content(dump({{"error", "there are POST /documents, POST /ask and GET /metrics"}}),
                         "application/json");
  });
}

void run(std::map<std::string, std::string>& options) {
  // Signals go to the one thread that waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  const example::TemporaryFolder folder;
  blendpp::ContextOptions context;
  context.on_log = [](const blend_log_record& record) {
    std::fprintf(stderr, "%s\n", record.message);
  };
  const blendpp::Context ctx(context);
  const blendpp::Model model(ctx, options["--model"]);
  const std::string& kept = options["--store"];
  const blendpp::Store store(ctx, kept.empty() ? folder.path() : kept);
  Service service(model, store);

  Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(64); };
  server.set_keep_alive_max_count(1);  // a thread serves a request, not a client
  server.set_payload_max_length(4 << 20);
  add_routes(server, service);
  int port = std::stoi(options["--port"]);
  if (port == 0) {
    port = server.bind_to_any_port("127.0.0.1");
  } else if (!server.bind_to_port("127.0.0.1", port)) {
    port = -1;
  }
  if (port < 0 || !server.keep_waiting(128)) {
    throw std::runtime_error("port " + options["--port"] + " cannot be had");
  }
  std::thread stopper([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    server.stop();
  });
  std::printf("listening on http://127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server.listen_after_bind();                      // comes back when all requests are done
  pthread_kill(stopper.native_handle(), SIGTERM);  // where it ended by itself
  stopper.join();
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--model", EXAMPLES "/models/blend-qa.gguf"},
      {"--store", ""},  // kept between runs; a temporary folder without it
      {"--port", "8080"},
  };
  try {
    example::parse_options(argc, argv, options);
    run(options);
    return 0;
  } catch (const blendpp::Error& error) {
    std::fprintf(stderr, "%s (%s)\n", error.what(), error.name());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
