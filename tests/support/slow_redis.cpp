#include "support/slow_redis.h"

#include <sstream>

#include "store/remote/client/resp.h"

namespace blend::test {
namespace {

std::string text_of_number(size_t n) {
  std::ostringstream out;
  out << ':' << n << "\r\n";
  return out.str();
}

}  // namespace

SlowRedis::SlowRedis()
    : server_([this](const auto& peer, const auto& command) { return answer(peer, command); }) {}

SlowRedis::Values SlowRedis::values() {
  const std::lock_guard lock(mutex_);
  return values_;
}

void SlowRedis::set_values(Values values) {
  const std::lock_guard lock(mutex_);
  values_ = std::move(values);
}

bool SlowRedis::answer(const ScriptedServer::Peer& peer, const std::vector<std::string>& command) {
  ++n_commands_;
  if (peer.has_waited()) {
    ++n_round_trips_;
    if (!peer.pause(latency_)) return false;
  }
  return peer.pause(work_) && peer.send(reply_to(command));
}

std::string SlowRedis::reply_to(const std::vector<std::string>& command) {
  const std::lock_guard lock(mutex_);
  const std::string& name = command.at(0);
  if (name == "PING") return "+PONG\r\n";
  if (command.size() < 2) return "-ERR what?\r\n";
  const auto found = values_.find(command[1]);
  const bool there = found != values_.end();
  if (name == "SET") {
    values_[command[1]] = command.at(2);
    return "+OK\r\n";
  }
  if (name == "GET" || name == "GETEX") {
    std::string out;
    if (there) append_bulk(out, found->second);
    return there ? out : "$-1\r\n";
  }
  if (name == "STRLEN") return text_of_number(there ? found->second.size() : 0);
  if (name == "EXPIRE") return there ? ":1\r\n" : ":0\r\n";
  if (name == "UNLINK") return values_.erase(command[1]) == 1 ? ":1\r\n" : ":0\r\n";
  return "-ERR unknown command\r\n";
}

}  // namespace blend::test
