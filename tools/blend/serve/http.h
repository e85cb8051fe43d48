// HTTP as the routes see it: heads, whole requests, answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace blend_cli::serve {

struct Visit;

using HttpFields = std::vector<std::pair<std::string, std::string>>;

// The part of a request before its body.
struct HttpHead {
  std::string method;
  std::string path;      // percent-decoded, without the query
  std::string host;      // of Host, or of the target where that names one
  unsigned version = 0;  // 10 or 11
  HttpFields fields;

  // The first field of this name, whatever its case; null: there is none.
  const std::string* field(std::string_view name) const;
  // Null also where there are several, of which none is the right one.
  const std::string* only_field(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  HttpFields fields = {};
};

// One request whose body is there, and the way to answer it. Its functions may be called from any
// thread, one at a time. One that is destroyed without an answer answers 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  HttpExchange() = default;
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  virtual const HttpHead& head() const = 0;
  // For the log.
  virtual Visit& visit() = 0;
  // The body; the memory that it was charged with is given back with the exchange.
  virtual std::string take_body() = 0;
  // Whether the client is there to be answered. One that closed its side of the connection is not.
  virtual bool alive() const = 0;

  virtual void respond(HttpResponse response) = 0;
  // Or in pieces. False: the client has gone, or was too slow to read and is dropped. write()
  // waits while a slow client leaves much of its answer unread.
  virtual bool begin(HttpResponse head) = 0;
  virtual bool write(std::string piece) = 0;
  virtual void end() = 0;
};

}  // namespace blend_cli::serve
