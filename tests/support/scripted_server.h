// ScriptedServer: something on loopback that takes commands as Redis does and answers them as a
// test says, rightly or not at all.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace blend::test {

// Thread-safe. Serves until it is destroyed.
class ScriptedServer {
 public:
  // One connection, for what answers a command on it.
  class Peer {
   public:
    // False: the other side has gone, or the server ends.
    bool send(std::string_view bytes) const;
    bool pause(std::chrono::milliseconds time) const;
    // Whether the server had read everything when this command came: of several that come in one
    // go, the first.
    bool has_waited() const { return has_waited_; }

   private:
    friend class ScriptedServer;
    Peer(int fd, const std::atomic<bool>& stop) : fd_(fd), stop_(stop) {}
    const int fd_;
    const std::atomic<bool>& stop_;
    bool has_waited_ = true;
  };
  // Called on a thread of the connection. False: the connection is closed.
  using Answer = std::function<bool(const Peer& peer, const std::vector<std::string>& command)>;

  explicit ScriptedServer(Answer answer);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  uint16_t port() const { return port_; }
  uint64_t n_connections() const { return n_connections_; }
  // All that came, on all connections, as it came.
  std::string heard() const;

 private:
  struct Connection {
    int fd = -1;
    std::thread thread;
  };
  void accept_all();
  void serve(int fd);

  const Answer answer_;
  uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> n_connections_{0};
  mutable std::mutex mutex_;
  std::string heard_;                  // mutex_
  std::list<Connection> connections_;  // mutex_
  std::thread thread_;
};

// The commands as text, "GETEX key EX 60".
std::string joined(const std::vector<std::string>& command);

}  // namespace blend::test
