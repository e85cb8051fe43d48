#include "store/remote/client/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace blend {
namespace {

constexpr size_t kMostParts = 512;  // at once; IOV_MAX is 1024

// As Stream says, over TCP.
class PlainStream final : public Stream {
 public:
  explicit PlainStream(Socket socket) : socket_(std::move(socket)) {}

  Result<size_t> read(std::byte* out, size_t bytes, SteadyTime deadline) override {
    for (;;) {
      const ssize_t n = recv(socket_.get(), out, bytes, MSG_DONTWAIT);
      if (n > 0) return static_cast<size_t>(n);
      if (n == 0) return Status{BLEND_E_IO, "the server closed the connection", ECONNRESET};
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        return make_errno(BLEND_E_IO, errno, "cannot receive");
      }
      BLEND_RETURN_IF_ERROR(wait_for_socket(socket_.get(), POLLIN, deadline));
    }
  }

  Status write(std::span<iovec> parts, SteadyTime deadline) override {
    while (!parts.empty()) {
      if (parts[0].iov_len == 0) {
        parts = parts.subspan(1);
        continue;
      }
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = std::min(parts.size(), kMostParts);
      ssize_t n = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        BLEND_RETURN_IF_ERROR(wait_for_socket(socket_.get(), POLLOUT, deadline));
        continue;
      }
      if (n < 0) return make_errno(BLEND_E_IO, errno, "cannot send");
      auto left = static_cast<size_t>(n);
      while (left > 0) {
        const size_t step = std::min(left, parts[0].iov_len);
        parts[0].iov_base = static_cast<char*>(parts[0].iov_base) + step;
        parts[0].iov_len -= step;
        left -= step;
        if (parts[0].iov_len == 0) parts = parts.subspan(1);
      }
    }
    return Status::ok();
  }

  void shut() noexcept override { (void)shutdown(socket_.get(), SHUT_RDWR); }

  bool silent() noexcept override {
    std::byte next;
    const ssize_t n = recv(socket_.get(), &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  }

 private:
  const Socket socket_;
};

}  // namespace

Status timed_out(const char* what) { return make_errno(BLEND_E_IO, ETIMEDOUT, "%s", what); }

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Status wait_for_socket(int fd, short events, SteadyTime deadline) {
  for (;;) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) return timed_out("the server is too slow");
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
    pollfd p{fd, events, 0};
    const int rc = poll(&p, 1, static_cast<int>(std::min<long long>(ms, INT_MAX)));
    if (rc > 0) return Status::ok();  // what is wrong with it the call itself finds
    if (rc < 0 && errno != EINTR) return make_errno(BLEND_E_IO, errno, "cannot wait");
  }
}

Result<Socket> connect_socket(HostLookUp& host, SteadyTime deadline) {
  BLEND_ASSIGN(const std::vector<SocketAddress> addresses, host.get(deadline));
  Status last;
  for (const SocketAddress& a : addresses) {
    Socket socket(::socket(a.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) {
      last = make_errno(BLEND_E_IO, errno, "cannot make a socket");
      continue;
    }
    const int on = 1;
    (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&a.at), a.bytes) != 0) {
      int error = errno;
      if (error == EINPROGRESS) {
        last = wait_for_socket(socket.get(), POLLOUT, deadline);
        if (!last.is_ok()) continue;
        socklen_t size = sizeof error;
        if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      }
      if (error != 0) {
        last = make_errno(BLEND_E_IO, error, "cannot connect");
        continue;
      }
    }
    return socket;
  }
  return last;
}

std::unique_ptr<Stream> make_plain_stream(Socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace blend
