// One client's connection: reads a head and a body, hands the request on, writes the answer, and
// begins again. All of it runs on the server's thread, except Flow.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "growing_body.h"
#include "http_server.h"
#include "visit.h"

namespace blend_cli::serve {

constexpr size_t kMostHead = 65536;
constexpr size_t kMostFields = 128;

// What a connection waits for.
// kRead: the answer is complete, and the client has yet to read it.
enum class Phase { kHead, kBody, kAnswer, kRead, kLinger };
constexpr size_t kPhases = 5;

class Connection;

// What connections share.
struct Hall {
  const HttpOptions& options;
  const HttpHandler& handler;
  boost::asio::io_context& io;
  std::function<void()> on_room;  // a connection is free, or may now be closed for another
  bool draining = false;
  // By phase, longest in it first.
  std::array<std::list<Connection*>, kPhases> lists = {};
  size_t n() const {
    size_t all = 0;
    for (const auto& list : lists) all += list.size();
    return all;
  }
};

// State of the client, for the thread that writes an answer.
class Flow {
 public:
  // Waits for room. False: the client has gone, or took too long.
  bool add(size_t bytes, uint32_t patience_s);
  void written(size_t bytes);
  void leave();
  bool gone() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t waiting_ = 0;
  std::chrono::steady_clock::duration waited_{};
  bool gone_ = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Tcp = boost::asio::ip::tcp;
  Connection(Hall& hall, Tcp::socket socket);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void close();
  // Nothing of a request has come.
  bool silent() const;
  // When the connection came, or its phase began.
  std::chrono::steady_clock::time_point since() const { return since_; }
  // Called by its exchange.
  void respond(HttpResponse response);
  void begin(HttpResponse head);
  void write(std::string framed);
  void end();

 private:
  friend class Exchange;
  using Parser = boost::beast::http::request_parser<GrowingBody>;

  void enter(Phase phase);
  void leave();
  void arm(uint32_t seconds);
  void disarm() { timer_.expires_at(std::chrono::steady_clock::time_point::max()); }
  void late();
  void read_head();
  void read_head_on();
  void parse_head();
  void on_head(boost::beast::error_code error);
  // Null: it is sound; else the status and why.
  std::optional<std::pair<int, std::string>> judge_head();
  void go_on();
  void read_body();
  void on_body(boost::beast::error_code error);
  void hand_on();
  // The visit's end: `whole` if all of the answer was sent.
  void leave_visit(bool whole);
  void watch();
  void look_again();
  void fail(int status, const std::string& why);
  void queue(std::string bytes);
  void pump();
  void finish();
  void linger();

  Hall& hall_;
  Tcp::socket socket_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer watch_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpHead head_;
  bool head_read_ = false;
  std::optional<MemoryBudget::Share> share_;
  Phase phase_ = Phase::kHead;
  bool listed_ = true;  // in hall_.lists, at place_
  std::list<Connection*>::iterator place_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::shared_ptr<Flow> flow_;    // of the present request
  std::shared_ptr<Visit> visit_;  // likewise
  uint64_t watch_ = 0;            // which one counts
  bool reading_ = false;          // an operation has parser_ and buffer_
  std::string waiting_;           // to be written
  std::string writing_;
  size_t n_written_ = 0;  // of writing_
  bool is_writing_ = false;
  bool ended_ = false;  // the answer is all in waiting_ and writing_
  bool keep_ = false;   // another request may follow
};

}  // namespace blend_cli::serve
