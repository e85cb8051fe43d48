// Real servers for the tests of the remote tier: redis-server of the distribution, on loopback and
// ports that were free, ended with the object.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace blend::test {

// Empty: it is not installed.
std::string redis_server_path();
uint16_t free_port();

#define SKIP_WITHOUT_REDIS()                                                            \
  if (::blend::test::redis_server_path().empty())                                       \
  GTEST_SKIP() << "redis-server is not installed: scripts/setup installs it (Debian's " \
                  "redis-server); without it nothing of the remote tier is tried"

// One server. Not thread-safe.
class RedisServer {
 public:
  // arguments: as on redis-server's command line, such as "--requirepass", "x".
  explicit RedisServer(std::vector<std::string> arguments = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  bool start();  // also again, after kill9(), on the same port; waits until it answers
  void kill9();
  void pause(bool stopped);  // SIGSTOP, SIGCONT
  uint16_t port() const { return port_; }
  const std::string& directory() const { return directory_.path(); }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  // By a connection of its own, plain, without a password: the reply as text, "" without one.
  std::string command(const std::vector<std::string>& parts, std::string_view auth = {}) const;
  std::vector<std::string> keys() const;
  std::string log() const;
  void set_tls(bool tls) { tls_ = tls; }

 private:
  std::vector<std::string> arguments_;
  uint16_t port_ = 0;
  pid_t pid_ = -1;
  bool tls_ = false;
  TempDir directory_;
};

// Three masters and as many replicas.
class RedisCluster {
 public:
  bool start();
  std::string url() const;  // of the first three as seeds
  std::vector<std::unique_ptr<RedisServer>> nodes;
  // Indices of the nodes that say they are masters.
  std::vector<size_t> masters() const;
  bool wait_until_ok() const;
  // Forgets moves of slots that did not end, as `redis-cli --cluster fix` does: a node that still
  // waits for a slot does not hear who has it.
  void settle() const;
  std::string told() const;  // what each node thinks of the cluster
  // Moves these slots to the master with the index `to`, key by key as redis-cli does. One whose
  // nodes do not play along stays where it was. How many moved.
  int move_slots(const std::vector<std::string>& slots, size_t to) const;
};

}  // namespace blend::test
