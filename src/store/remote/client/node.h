// Node: one server of a remote tier: its connections, and the breaker in front of it.
//
// A request that fails for the server's sake opens the breaker: every other request in flight ends,
// and later ones fail at once, until a probe in the background finds the server well. So a dead
// server costs whoever waits at most one timeout.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/threads/guarded.h"
#include "store/remote/client/connection.h"

namespace blend {

// What a server says while it cannot serve anything: it starts, or has lost its master.
bool is_down(const Reply& reply);

// Thread-safe.
class Node {
 public:
  // Called without locks, when the breaker opens (`why`) or closes (OK).
  using OnChange = std::function<void(const Node& node, const Status& why)>;

  Node(RemoteAddress address, const RemoteOptions& options, std::shared_ptr<const TlsContext> tls,
       OnChange on_change)
      : address_(std::move(address)),
        host_(address_),
        options_(options),
        tls_(std::move(tls)),
        on_change_(std::move(on_change)) {}

  const RemoteAddress& address() const { return address_; }
  bool open() const { return open_.load(std::memory_order_relaxed); }  // the breaker

  // Runs `request` on a connection, and once more on a fresh one if it breaks: requests must not
  // mind. A reply, though it be an error, closes nothing.
  using Request = std::function<Result<Reply>(Connection& connection)>;
  Result<Reply> run(const Request& request, SteadyTime deadline);
  // Asks a server whose breaker is open, if it is due or `now`; closes the breaker if it answers.
  // True: it is closed now.
  bool probe(bool now);
  void stop();  // as RemoteEngine

 private:
  struct Busy;
  Result<std::unique_ptr<Connection>> take(bool fresh, SteadyTime deadline, bool* reused);
  void trip(const Status& why);
  void shut_all() BLEND_REQUIRES(mutex_);

  const RemoteAddress address_;
  HostLookUp host_;
  const RemoteOptions& options_;
  const std::shared_ptr<const TlsContext> tls_;
  const OnChange on_change_;
  std::atomic<bool> open_{false};
  Mutex mutex_;
  bool stopped_ BLEND_GUARDED_BY(mutex_) = false;
  SteadyTime probe_at_ BLEND_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Connection>> idle_ BLEND_GUARDED_BY(mutex_);
  std::vector<Connection*> busy_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
