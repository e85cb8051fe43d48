// RemoteEngine: what a remote tier asks of the server behind it: values under keys, and no more, so
// that another server can follow. What the values hold is record.h's business.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "store/remote/client/value_source.h"

namespace blend {

using SteadyTime = std::chrono::steady_clock::time_point;

// Where a part of a value goes.
struct Place {
  std::byte* at = nullptr;
  size_t bytes = 0;
};

// What a list of keys may cost at most, whatever a server says: a server that lies would never end.
struct ScanLimits {
  uint64_t rounds = 1u << 20;  // requests; each passes about a thousand keys of the server
  uint64_t bytes = 16ull << 30;
  std::chrono::milliseconds time = std::chrono::hours(1);
};

// Thread-safe. Every call but scan() ends within the engine's timeout, whatever the server does.
// Codes of all calls: IO (not reached, too slow, refused), CANCELLED (after stop()).
class RemoteEngine {
 public:
  virtual ~RemoteEngine() = default;

  // A whole value, which renews its time to live. NOT_FOUND. CORRUPT: longer than that.
  virtual Result<std::string> get(std::string_view key, size_t most_bytes) = 0;
  // Several values, each as get() gives it, asked for side by side. `take` is called on this
  // thread, once for each key and in any order, until it gives false: nobody wants the rest. May
  // take a timeout for each value that comes.
  using Take = std::function<bool(size_t index, Result<std::string> value)>;
  virtual void get_all(std::span<const std::string> keys, size_t most_bytes, const Take& take) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!take(i, get(keys[i], most_bytes))) return;
    }
  }
  // Keys of one group lie on one server, as far as is known.
  virtual size_t group_of(std::string_view) const { return 0; }
  // A value straight into `places`. CORRUPT: of another length than theirs together. After an
  // error their bytes mean nothing.
  virtual Status get_into(std::string_view key, std::span<const Place> places) = 0;
  // FULL: the server has no room.
  virtual Status put(std::string_view key, ValueSource& value) = 0;
  // Of the value; 0: there is none. Renews its time to live.
  virtual Result<uint64_t> length(std::string_view key) = 0;
  virtual Status remove(std::string_view key) = 0;  // OK also where there was none
  // Every key with that prefix, in no order, some maybe twice. A status of `fn` ends it. CORRUPT:
  // the list goes past a limit.
  virtual Status scan(std::string_view prefix, const ScanLimits& limits,
                      const std::function<Status(std::string_view key)>& fn) = 0;
  // Whether the server answers, and takes us.
  virtual Status check() = 0;
  // False: all that could be asked is known to be down, and calls would fail at once.
  virtual bool reachable() const = 0;
  // Ends the calls in flight and all later ones.
  virtual void stop() = 0;
};

}  // namespace blend
