// HostLookUp: the addresses of a host, by the system's resolver, which knows no deadline and may
// take half a minute. So it is asked on a thread of its own, and whoever waits goes when his time
// is over; whoever comes next waits for the same answer.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <thread>
#include <vector>

#include "store/remote/client/engine.h"
#include "store/remote/options.h"

namespace blend {

struct SocketAddress {
  sockaddr_storage at{};
  socklen_t bytes = 0;
};

// Thread-safe.
class HostLookUp {
 public:
  explicit HostLookUp(RemoteAddress address);
  // A thread that still waits for the resolver is left behind, and nothing else.
  ~HostLookUp();
  HostLookUp(const HostLookUp&) = delete;
  HostLookUp& operator=(const HostLookUp&) = delete;

  // At least one. IO: there is no such host, or the deadline passed (then the detail is ETIMEDOUT).
  Result<std::vector<SocketAddress>> get(SteadyTime deadline);

 private:
  struct State;
  const RemoteAddress address_;
  const std::shared_ptr<State> state_;  // also the thread's
};

}  // namespace blend
