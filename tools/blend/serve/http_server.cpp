#include "http_server.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "http_connection.h"

namespace blend_cli::serve {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;

class HttpServer::State {
 public:
  State(const HttpOptions& options, HttpHandler handler)
      : options_(options),
        handler_(std::move(handler)),
        hall_{options_, handler_, io_, [this] { on_room(); }},
        guard_(asio::make_work_guard(io_)),
        acceptor_(io_),
        timer_(io_) {}

  // io_'s destructor closes the connections that are left.
  ~State() { hall_.on_room = nullptr; }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int bind() {
    // The first address that takes it: localhost has several.
    Tcp::resolver resolver(io_);
    boost::system::error_code error;
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port),
                                        Tcp::resolver::passive, error);
    if (error) throw std::system_error(error);
    for (const auto& entry : found) {
      error = listen(entry.endpoint());
      if (!error) return acceptor_.local_endpoint().port();
    }
    throw std::system_error(error);
  }

  void run() {
    accept();
    for (bool again = true; again;) {
      try {
        io_.run();
        again = false;
      } catch (const std::exception&) {
        // Out of memory, most likely. That connection gets no more events, but its deadline.
        asio::post(io_, [this] { accept(); });
      }
    }
  }

  size_t n_connections() const { return n_connections_; }

  void drain() {
    asio::post(io_, [this] {
      hall_.draining = true;
      for_each([](Connection& one) {
        if (one.silent()) one.close();
      });
    });
  }

  void stop() {
    asio::post(io_, [this] {
      boost::system::error_code ignored;
      stopping_ = true;
      hall_.draining = true;
      acceptor_.close(ignored);
      guard_.reset();
      for (const Phase phase : {Phase::kHead, Phase::kBody, Phase::kLinger}) close_all(phase);
      timer_.expires_after(std::chrono::seconds(2));
      timer_.async_wait([this](const boost::system::error_code&) {
        close_all(Phase::kAnswer);
        close_all(Phase::kRead);
      });
      leave_if_empty();
    });
  }

 private:
  boost::system::error_code listen(const Tcp::endpoint& endpoint) {
    boost::system::error_code error;
    const auto sound = [&] {
      boost::system::error_code ignored;
      if (error) acceptor_.close(ignored);
      return !error;
    };
    acceptor_.open(endpoint.protocol(), error);
    if (!sound()) return error;
    // So that a port is free again at once when a server has ended. It lets no second server share
    // the port, as SO_REUSEPORT would.
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!sound()) return error;
    acceptor_.bind(endpoint, error);
    if (!sound()) return error;
    acceptor_.listen(1024, error);
    sound();
    return error;
  }

  void accept() {
    if (stopping_ || accepting_) return;
    // Where all connections are being answered, the next ones wait in the system's queue.
    if (hall_.n() >= options_.most_connections && oldest() == nullptr) return;
    accepting_ = true;
    acceptor_.async_accept([this](const boost::system::error_code& error, Tcp::socket socket) {
      accepting_ = false;
      if (!acceptor_.is_open()) return;
      if (!error) {
        // One accepted while all others began to be answered is too many.
        if (hall_.n() < options_.most_connections || make_room()) {
          std::make_shared<Connection>(hall_, std::move(socket))->start();
          n_connections_ = hall_.n();
        }
        return accept();
      }
      // Out of descriptors, most likely: one client less, and another try in a moment.
      make_room();
      timer_.expires_after(std::chrono::milliseconds(50));
      timer_.async_wait([this](const boost::system::error_code& e) {
        if (!e) accept();
      });
    });
  }

  // Connections to close when others come: first those already answered, then those that take
  // longest to send a request, then those that take longest to read.
  Connection* oldest() const {
    const auto front = [&](Phase phase) {
      const auto& list = hall_.lists[static_cast<size_t>(phase)];
      return list.empty() ? nullptr : list.front();
    };
    if (Connection* const done = front(Phase::kLinger)) return done;
    Connection* const head = front(Phase::kHead);
    Connection* const body = front(Phase::kBody);
    if (head == nullptr && body == nullptr) return front(Phase::kRead);
    if (head == nullptr || body == nullptr) return head == nullptr ? body : head;
    return head->since() <= body->since() ? head : body;
  }
  bool make_room() {
    Connection* const one = oldest();
    if (one != nullptr) one->close();
    return one != nullptr;
  }

  void on_room() {
    n_connections_ = hall_.n();
    if (stopping_) return leave_if_empty();
    accept();
  }
  void leave_if_empty() {
    if (hall_.n() == 0) timer_.cancel();
  }

  template <typename Do>
  void for_each(const Do& what) {
    for (auto& list : hall_.lists) {
      for (Connection* const one : std::list<Connection*>(list)) what(*one);
    }
  }
  void close_all(Phase phase) {
    for (Connection* const one : std::list<Connection*>(hall_.lists[static_cast<size_t>(phase)])) {
      one->close();
    }
  }

  const HttpOptions options_;
  const HttpHandler handler_;
  Hall hall_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  Tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  std::atomic<size_t> n_connections_{0};
  bool accepting_ = false;
  bool stopping_ = false;
};

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler)
    : state_(std::make_unique<State>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;
int HttpServer::bind() { return state_->bind(); }
void HttpServer::run() { state_->run(); }
size_t HttpServer::n_connections() const { return state_->n_connections(); }
void HttpServer::drain() { state_->drain(); }
void HttpServer::stop() { state_->stop(); }

}  // namespace blend_cli::serve
