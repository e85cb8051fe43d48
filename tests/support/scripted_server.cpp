#include "support/scripted_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/remote/client/resp.h"

namespace blend::test {
namespace {

constexpr size_t kMostHeard = 1u << 20;

}  // namespace

std::string joined(const std::vector<std::string>& command) {
  std::string out;
  for (const std::string& part : command) out += (out.empty() ? "" : " ") + part;
  return out;
}

bool ScriptedServer::Peer::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    pollfd p{fd_, POLLOUT, 0};
    if (stop_) return false;
    if (poll(&p, 1, 50) <= 0) continue;
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool ScriptedServer::Peer::pause(std::chrono::milliseconds time) const {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!stop_ && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return !stop_;
}

ScriptedServer::ScriptedServer(Answer answer) : answer_(std::move(answer)) {
  // Every address of loopback, so that one server can pass for many.
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof at;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      listen(listener_, 256) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return;
  }
  port_ = ntohs(at.sin_port);
  thread_ = std::thread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (Connection& connection : connections_) {
    (void)shutdown(connection.fd, SHUT_RDWR);
    connection.thread.join();
    close(connection.fd);
  }
  close(listener_);
}

std::string ScriptedServer::heard() const {
  const std::lock_guard lock(mutex_);
  return heard_;
}

void ScriptedServer::accept_all() {
  while (!stop_) {
    pollfd p{listener_, POLLIN, 0};
    if (poll(&p, 1, 20) <= 0) continue;
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    ++n_connections_;
    const std::lock_guard lock(mutex_);
    connections_.push_back({fd, std::thread([this, fd] { serve(fd); })});
  }
}

void ScriptedServer::serve(int fd) {
  class Source final : public ByteSource {
   public:
    Source(ScriptedServer& server, int fd) : server_(server), fd_(fd) {}
    Result<size_t> read(std::byte* out, size_t bytes) override {
      ++n_reads;
      const ssize_t n = recv(fd_, out, bytes, 0);
      if (n <= 0) return Status{BLEND_E_IO, "it has ended"};
      const std::lock_guard lock(server_.mutex_);
      const auto kept = std::min(static_cast<size_t>(n), kMostHeard - server_.heard_.size());
      server_.heard_.append(reinterpret_cast<const char*>(out), kept);
      return static_cast<size_t>(n);
    }

    uint64_t n_reads = 0;

   private:
    ScriptedServer& server_;
    int fd_;
  };
  Source source(*this, fd);
  RespReader reader(source);
  Peer peer(fd, stop_);
  while (!stop_) {
    const uint64_t before = source.n_reads;
    auto command = reader.read({64u << 20, 1u << 10, 2});
    if (!command.is_ok()) break;
    std::vector<std::string> parts;
    for (const Reply& part : command->list) parts.push_back(part.text);
    peer.has_waited_ = source.n_reads != before;
    if (!answer_(peer, parts)) break;
  }
  (void)shutdown(fd, SHUT_RDWR);
}

}  // namespace blend::test
