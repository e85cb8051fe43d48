#include "store/remote/client/node.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace blend {

bool is_down(const Reply& reply) {
  return reply.is_error("LOADING") || reply.is_error("MASTERDOWN");
}

Result<std::unique_ptr<Connection>> Node::take(bool fresh, SteadyTime deadline, bool* reused) {
  *reused = false;
  {
    const MutexLock lock(mutex_);
    if (stopped_) return Status{BLEND_E_CANCELLED, "the store is being closed"};
    if (fresh) idle_.clear();
    while (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      if (!connection->in_step()) continue;
      *reused = true;
      return connection;
    }
  }
  return Connection::open(address_, host_, options_, tls_.get(), deadline);
}

// A connection at work, also where the work ends for want of memory.
struct Node::Busy {
  ~Busy() {
    const MutexLock lock(node.mutex_);
    std::erase(node.busy_, connection);
  }
  Node& node;
  Connection* const connection;
};

Result<Reply> Node::run(const Request& request, SteadyTime deadline) {
  const SteadyTime begin = std::chrono::steady_clock::now();
  if (begin >= deadline) return timed_out("there is no time left");
  Status last;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (open()) {
      return make_error(BLEND_E_IO, "%s is left alone until it answers again",
                        address_.name().c_str());
    }
    bool reused = false;
    auto connection = take(attempt > 0, deadline, &reused);
    if (!connection.is_ok()) {
      last = connection.status();
    } else {
      {
        const MutexLock lock(mutex_);
        if (stopped_) return Status{BLEND_E_CANCELLED, "the store is being closed"};
        busy_.push_back(connection->get());
      }
      Result<Reply> reply = [&] {
        const Busy busy{*this, connection->get()};
        return request(**connection);
      }();
      {
        const MutexLock lock(mutex_);
        if (stopped_) return Status{BLEND_E_CANCELLED, "the store is being closed"};
        if (reply.is_ok() && idle_.size() < options_.n_connections + 1) {
          idle_.push_back(std::move(*connection));
        }
      }
      if (reply.is_ok() && !is_down(*reply)) return reply;
      last = reply.is_ok() ? Status{BLEND_E_IO, quoted(*reply)} : reply.status();
      if (reply.is_ok()) break;
    }
    if (last.code() == BLEND_E_CANCELLED) return last;
    if (last.code() == BLEND_E_OUT_OF_MEMORY || last.code() == BLEND_E_INTERNAL)
      return last;                                    // our own
    if (last.code() == BLEND_E_CORRUPT) return last;  // the value's
    if (last.detail() == ETIMEDOUT) break;
  }
  if (open()) {
    // Another request of the same time has told already.
    return make_error(BLEND_E_IO, "%s is left alone until it answers again",
                      address_.name().c_str());
  }
  last = Status{BLEND_E_IO, address_.name() + ": " + last.message(), last.detail()};
  // Where other servers had most of the time, too little was left to say that this one is slow.
  if (last.detail() == ETIMEDOUT &&
      deadline - begin < std::chrono::milliseconds(options_.timeout_ms) / 2) {
    return last;
  }
  trip(last);
  return last;
}

void Node::shut_all() {
  idle_.clear();
  for (Connection* connection : busy_) connection->shut();
}

void Node::trip(const Status& why) {
  {
    const MutexLock lock(mutex_);
    probe_at_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.retry_ms);
    if (open_.exchange(true)) return;
    shut_all();
  }
  on_change_(*this, why);
}

bool Node::probe(bool now) {
  if (!open()) return true;
  const SteadyTime begin = std::chrono::steady_clock::now();
  {
    const MutexLock lock(mutex_);
    if (stopped_ || (!now && begin < probe_at_)) return false;
    probe_at_ = begin + std::chrono::milliseconds(options_.retry_ms);
  }
  const SteadyTime deadline = begin + std::chrono::milliseconds(options_.timeout_ms);
  auto connection = Connection::open(address_, host_, options_, tls_.get(), deadline);
  if (!connection.is_ok()) return false;
  const std::array<std::string_view, 1> ping = {"PING"};
  auto reply = (*connection)->call(ping, deadline, {});
  if (!reply.is_ok() || is_down(*reply)) return false;
  {
    const MutexLock lock(mutex_);
    if (stopped_) return false;
    idle_.push_back(std::move(*connection));
    open_.store(false);
  }
  on_change_(*this, Status::ok());
  return true;
}

void Node::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  shut_all();
}

}  // namespace blend
