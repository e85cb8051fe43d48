// SlowRedis: a Redis in memory that is far away: what comes to it in one go it answers in one go,
// and no sooner than it takes there and back.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "support/scripted_server.h"

namespace blend::test {

// Thread-safe. Serves until it is destroyed.
class SlowRedis {
 public:
  SlowRedis();

  std::string url() const { return "redis://127.0.0.1:" + std::to_string(server_.port()); }
  // Latency of a round trip; and time of each command, as on a server that is overworked.
  void set_latency(std::chrono::milliseconds time) { latency_ = time; }
  void set_work(std::chrono::milliseconds time) { work_ = time; }

  uint64_t n_round_trips() const { return n_round_trips_; }
  uint64_t n_commands() const { return n_commands_; }
  uint64_t n_connections() const { return server_.n_connections(); }
  size_t n_keys() { return values().size(); }
  // All that lies there, and something else in its place, as whoever has the server may do it.
  using Values = std::map<std::string, std::string>;
  Values values();
  void set_values(Values values);

 private:
  bool answer(const ScriptedServer::Peer& peer, const std::vector<std::string>& command);
  std::string reply_to(const std::vector<std::string>& command);

  std::atomic<std::chrono::milliseconds> latency_{std::chrono::milliseconds(0)};
  std::atomic<std::chrono::milliseconds> work_{std::chrono::milliseconds(0)};
  std::atomic<uint64_t> n_round_trips_{0}, n_commands_{0};
  std::mutex mutex_;
  Values values_;          // mutex_
  ScriptedServer server_;  // last: it answers from the start
};

}  // namespace blend::test
