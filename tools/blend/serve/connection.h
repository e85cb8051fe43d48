// A client's connection, as a server needs it that strangers talk to. cpp-httplib reads a head of
// any size and waits for as long as a byte comes now and then; here both have bounds.
#pragma once

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>

namespace blend_cli::serve {

struct ConnectionLimits {
  uint32_t client_s = 30;  // for all of a request to come, and for a reader to read on
  size_t most_bytes = 0;   // of a request behind its head, as they come: chunked ones are longer
  const std::atomic<bool>* closing = nullptr;  // nobody is waited for any more
  size_t most_head = 65536;
};

// Of one request, by the thread that serves it.
class Connection final : public httplib::Stream {
 public:
  Connection(socket_t socket, const ConnectionLimits& limits)
      : socket_(socket),
        limits_(limits),
        deadline_(Clock::now() + std::chrono::seconds(limits.client_s)) {
    current() = this;
  }
  ~Connection() override {
    current() = nullptr;
    linger();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The one that this thread serves.
  static Connection*& current() {
    static thread_local Connection* one = nullptr;
    return one;
  }

  // Whether the request had come whole when its time was over.
  bool late() const { return late_; }
  // Whether somebody is there to be answered.
  bool alive() const {
    char byte = 0;
    const ssize_t n = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
  }

  bool is_readable() const override { return begin_ < end_ || wait(POLLIN, milliseconds_left()); }
  bool is_writable() const override {
    return wait(POLLOUT, static_cast<int>(std::min<uint32_t>(limits_.client_s, 86400)) * 1000) &&
           alive();
  }
  ssize_t read(char* to, size_t size) override {
    if (begin_ == end_ && !fill()) return -1;
    const size_t n = std::min(size, end_ - begin_);
    std::copy_n(buffer_ + begin_, n, to);
    begin_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!is_writable()) return -1;
    ssize_t n = 0;
    do {
      n = ::send(socket_, from, size, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  // No `override`: cpp-httplib 0.10 has it not.
  void get_local_ip_and_port(std::string& ip, int& port) const { get_remote_ip_and_port(ip, port); }
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  int milliseconds_left() const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
  }
  bool wait(short what, int milliseconds) const {
    pollfd one = {socket_, what, 0};
    int n = 0;
    do {
      n = ::poll(&one, 1, milliseconds);
    } while (n < 0 && errno == EINTR);
    return n > 0;
  }
  bool fill() {
    constexpr int kMoment = 100;
    for (bool came = false; !came;) {
      const int left = milliseconds_left();
      late_ = left == 0;
      if (late_ || *limits_.closing) return false;
      came = wait(POLLIN, std::min(left, kMoment));
    }
    const ssize_t n = ::recv(socket_, buffer_, sizeof buffer_, 0);
    if (n <= 0) return false;
    begin_ = 0;
    end_ = static_cast<size_t>(n);
    for (size_t i = 0; i < end_ && !behind_head_; ++i) {
      if (++n_head_ > limits_.most_head) return false;
      if (buffer_[i] == '\n') {
        behind_head_ = blank_;
        blank_ = true;
      } else if (buffer_[i] != '\r') {
        blank_ = false;
      }
    }
    n_read_ += end_;
    return n_read_ <= limits_.most_head + limits_.most_bytes;
  }
  // A connection that is closed while bytes of the client are unread loses the answer that it was
  // given.
  void linger() const {
    ::shutdown(socket_, SHUT_WR);
    const auto end = Clock::now() + std::chrono::seconds(2);
    char waste[16384];
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - now).count();
      if (!wait(POLLIN, static_cast<int>(left)) || ::recv(socket_, waste, sizeof waste, 0) <= 0) {
        return;
      }
    }
  }

  const socket_t socket_;
  const ConnectionLimits& limits_;
  const Clock::time_point deadline_;
  char buffer_[4096];
  size_t begin_ = 0;
  size_t end_ = 0;
  bool blank_ = false;  // the line so far
  bool behind_head_ = false;
  size_t n_head_ = 0;
  size_t n_read_ = 0;
  bool late_ = false;
};

// cpp-httplib's server on such connections, a request each.
class HttpServer final : public httplib::Server {
 public:
  explicit HttpServer(const ConnectionLimits& limits) : limits_(limits) {}

  // Once it is bound. As distributions compile it, cpp-httplib has the system keep five connections
  // that come faster than they are taken; the next ones are reset.
  bool keep_waiting(int n) { return ::listen(svr_sock_, n) == 0; }

 private:
  bool process_and_close_socket(socket_t socket) override {
    bool done = false;
    {
      Connection connection(socket, limits_);
      done = process(*this, connection);
    }
    ::close(socket);
    return done;
  }
  // Newer ones want the addresses, which no answer tells.
  template <typename Self>
  static bool process(Self& self, Connection& connection) {
    bool closed = false;
    if constexpr (requires { self.process_request(connection, true, closed, nullptr); }) {
      return self.process_request(connection, true, closed, nullptr);
    } else {
      return self.process_request(connection, std::string(), 0, std::string(), 0, true, closed,
                                  nullptr);
    }
  }

  const ConnectionLimits limits_;
};

}  // namespace blend_cli::serve
