// The API's routes, and the state they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "access.h"
#include "answer.h"
#include "budget.h"
#include "counters.h"
#include "http_server.h"
#include "log.h"
#include "workers.h"

namespace blend_cli::serve {

struct ServerOptions {
  HttpOptions http;
  size_t parallel = 4;
  size_t queue = 64;
  uint32_t max_tokens = 1024;
  size_t request_memory = size_t{256} << 20;  // of all bodies, as they come and as they are read
};

class Server {
 public:
  // `engine`, `access` and `log` must outlive it. Throws std::system_error.
  Server(const ServerOptions& options, const Engine& engine, const Access& access, ServerLog& log);

  // Listens; returns the port. Throws std::system_error.
  int bind() { return http_.bind(); }
  // Returns when it is stopped.
  void run() { http_.run(); }
  // No more requests are taken; those that come are told so.
  void drain() {
    stopping_ = true;
    http_.drain();
  }
  bool idle() const { return workers_.idle(); }
  void stop() { http_.stop(); }

 private:
  HttpHandler handler();
  std::optional<HttpResponse> on_head(const HttpHead& head);
  void on_request(const std::shared_ptr<HttpExchange>& exchange);
  HttpResponse route(const HttpHead& head);
  HttpResponse preflight(const HttpHead& head, const char* allow);
  Workers::Last complete(const std::shared_ptr<HttpExchange>& exchange, const Client& client);
  Workers::Last stream(const std::shared_ptr<HttpExchange>& exchange, Answer& answer);
  // Each counts the request.
  HttpResponse fail(const HttpHead* head, const char* route, const HttpError& error);
  HttpResponse reply(const HttpHead& head, const char* route, const Json& value) {
    return reply(head, route, dump(value));
  }
  HttpResponse reply(const HttpHead& head, const char* route, std::string body);
  Json model_json() const;

  const ServerOptions options_;
  std::string profile_metrics() const;  // "": there is no profile
  const Engine& engine_;
  const Access& access_;
  ServerLog& log_;
  const int64_t started_ = std::time(nullptr);
  Counters counters_;
  std::atomic<bool> stopping_{false};
  MemoryBudget budget_;
  HttpServer http_;
  Workers workers_;  // ends first: they hold exchanges
};

}  // namespace blend_cli::serve
