#include "support/cutting_proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <vector>

namespace blend::test {
namespace {

sockaddr_in loopback(uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(port);
  return at;
}

struct Pair {
  int client = -1;
  int server = -1;
  uint64_t bytes = 0;

  void reset() const {
    // Not a polite end: what was on its way is lost.
    const linger now{1, 0};
    (void)setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(client);
    close(server);
  }
};

// All of it, to a socket that blocks. False: it broke.
bool pass_on(int to, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(to, data, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

CuttingProxy::CuttingProxy(uint16_t server) : server_(server) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at = loopback(0);
  socklen_t size = sizeof at;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return;
  }
  port_ = ntohs(at.sin_port);
  thread_ = std::thread([this] { run(); });
}

CuttingProxy::~CuttingProxy() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  close(listener_);
}

void CuttingProxy::run() {
  std::list<Pair> pairs;
  std::vector<char> buffer(256 << 10);
  auto free_at = std::chrono::steady_clock::now();
  while (!stop_) {
    std::vector<pollfd> all = {{listener_, POLLIN, 0}};
    for (const Pair& pair : pairs) {
      all.push_back({pair.client, POLLIN, 0});
      all.push_back({pair.server, POLLIN, 0});
    }
    if (poll(all.data(), all.size(), 20) <= 0) continue;
    size_t i = 1;
    for (auto pair = pairs.begin(); pair != pairs.end(); i += 2) {
      bool good = true;
      for (const bool from_server : {false, true}) {
        if (!good || all[i + (from_server ? 1 : 0)].revents == 0) continue;
        size_t most = buffer.size();
        const uint64_t limit = cut_after_;
        if (limit != 0) most = std::min<uint64_t>(most, limit - std::min(limit, pair->bytes));
        const double rate = rate_;
        if (rate > 0) most = std::min<size_t>(most, 64 << 10);
        const ssize_t n =
            most == 0 ? 0 : recv(from_server ? pair->server : pair->client, buffer.data(), most, 0);
        good = n > 0;
        if (!good) break;
        if (from_server && rate > 0) {
          // One link for all: each byte takes its time.
          free_at =
              std::max(free_at, std::chrono::steady_clock::now()) +
              std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(n) / rate * 1e9));
          std::this_thread::sleep_until(free_at);
        }
        good = pass_on(from_server ? pair->client : pair->server, buffer.data(),
                       static_cast<size_t>(n));
        pair->bytes += static_cast<uint64_t>(n);
        if (limit != 0 && pair->bytes >= limit) {
          good = false;
          ++n_cut_;
        }
      }
      if (good) {
        ++pair;
      } else {
        pair->reset();
        pair = pairs.erase(pair);
      }
    }
    if (all[0].revents != 0) {
      Pair pair;
      pair.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      pair.server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in to = loopback(server_);
      const int on = 1;
      (void)setsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (connect(pair.server, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
        pairs.push_back(pair);
      } else {
        pair.reset();
      }
    }
  }
  for (const Pair& pair : pairs) pair.reset();
}

}  // namespace blend::test
