// An HTTP/1.1 server for a network that strangers are on. One thread owns all connections and never
// computes; it hands on whole requests. Everything has a bound: heads, bodies, connections, the
// memory of all requests together, and the time that a client may take.
//
// Messages are parsed by Boost.Beast, sockets and timers are Asio's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "budget.h"
#include "http.h"

namespace blend_cli::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;            // 0: any that is free
  uint32_t client_s = 30;  // for a whole request to come, and for a whole answer to be read
  uint64_t most_body = 8 << 20;
  size_t most_connections = 1024;
  MemoryBudget* budget = nullptr;  // what bodies are charged to
};

// Called on the server's thread, so none may wait. None may throw but `visit`.
struct HttpHandler {
  // What the log is to know of a request, before anything else is called for it; not null. `head`:
  // null where it was not read. May throw std::bad_alloc; the connection then has its deadline
  // alone.
  std::function<std::shared_ptr<Visit>(const HttpHead* head)> visit;
  // A head has come. If this returns an answer, the body is not read; otherwise the body is read
  // and `request` is called.
  std::function<std::optional<HttpResponse>(const HttpHead& head)> head;
  std::function<void(std::shared_ptr<HttpExchange> exchange)> request;
  // The answer to bytes that are not HTTP, or too many. `head`: null where it was not read.
  std::function<HttpResponse(int status, const std::string& why, const HttpHead* head)> fault;
};

class HttpServer {
 public:
  HttpServer(const HttpOptions& options, HttpHandler handler);
  // All exchanges must be gone.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Listens; returns the port. Throws std::system_error.
  int bind();
  // Returns after stop(). Once.
  void run();
  // Clients that are connected. From any thread.
  size_t n_connections() const;
  // Connections end with their present request. From any thread, like stop().
  void drain();
  // Accepts nobody any more, and drops clients that do not read their answer in a moment.
  void stop();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace blend_cli::serve
