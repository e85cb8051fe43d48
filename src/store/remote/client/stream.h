// Stream: bytes to and from a server, plain or through TLS (tls/), with deadlines.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"
#include "store/remote/client/engine.h"
#include "store/remote/client/host_look_up.h"

namespace blend {

// Used by one thread, but for shut(). Raises no SIGPIPE. IO: it ended, failed, or the deadline
// passed (then the detail is ETIMEDOUT).
class Stream {
 public:
  virtual ~Stream() = default;  // closes
  // At least one byte, at most `bytes`.
  virtual Result<size_t> read(std::byte* out, size_t bytes, SteadyTime deadline) = 0;
  // All of it. The parts' entries are changed.
  virtual Status write(std::span<iovec> parts, SteadyTime deadline) = 0;
  // Ends what is under way and all that follows. Any thread, while the stream lives.
  virtual void shut() noexcept = 0;
  // Whether nothing has come that was not read, as far as can be told without reading it.
  virtual bool silent() noexcept { return true; }
};

// Closes the descriptor on every way out. Move-only.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&&) = delete;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Waits for POLLIN or POLLOUT. IO with ETIMEDOUT.
Status wait_for_socket(int fd, short events, SteadyTime deadline);
// A connected TCP socket that does not block.
Result<Socket> connect_socket(HostLookUp& host, SteadyTime deadline);
std::unique_ptr<Stream> make_plain_stream(Socket socket);

Status timed_out(const char* what);

}  // namespace blend
