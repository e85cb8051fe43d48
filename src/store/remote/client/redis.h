// RedisEngine: Valkey or Redis as a remote tier, one server or a cluster.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/threads/guarded.h"
#include "store/remote/client/cluster_slots.h"
#include "store/remote/client/engine.h"
#include "store/remote/client/node.h"

namespace blend {

// As RemoteEngine. A thread probes servers that are down and looks where slots have gone. Must not
// be destroyed in a forked child (the thread is not there): leak it.
class RedisEngine final : public RemoteEngine {
 public:
  // Called on any thread: a server is down (`why`), or well again (OK).
  using OnChange = std::function<void(const std::string& server, const Status& why)>;
  // Reaches nothing yet. INVALID_ARGUMENT and UNSUPPORTED: of TLS.
  static Result<std::unique_ptr<RedisEngine>> create(const RemoteOptions& options,
                                                     OnChange on_change);
  ~RedisEngine() override;

  Result<std::string> get(std::string_view key, size_t most_bytes) override;
  void get_all(std::span<const std::string> keys, size_t most_bytes, const Take& take) override;
  size_t group_of(std::string_view key) const override;
  Status get_into(std::string_view key, std::span<const Place> places) override;
  Status put(std::string_view key, ValueSource& value) override;
  Result<uint64_t> length(std::string_view key) override;
  Status remove(std::string_view key) override;
  Status scan(std::string_view prefix, const ScanLimits& limits,
              const std::function<Status(std::string_view key)>& fn) override;
  Status check() override;
  bool reachable() const override;
  void stop() override;

 private:
  using NodePtr = std::shared_ptr<Node>;
  using Request = std::function<Result<Reply>(Connection& connection, SteadyTime deadline)>;

  RedisEngine(const RemoteOptions& options, std::shared_ptr<const TlsContext> tls,
              OnChange on_change);
  SteadyTime new_deadline() const;
  // Sends the request to who serves the key, wherever that is by now.
  Result<Reply> routed(std::string_view key, const Request& request);
  Result<Reply> call(std::string_view key, std::span<const std::string_view> command,
                     const RespReader::Limits& limits);
  // get_all() from one node, in one go: the keys keys[wanted[i]]. False: nobody wants the rest.
  // moved: those that another node has, by what this one says.
  bool get_from(Node& node, std::span<const std::string> keys, std::span<const size_t> wanted,
                size_t most_bytes, const Take& take, std::vector<size_t>& moved);
  Result<NodePtr> node_for(uint32_t slot, SteadyTime deadline);
  // Null: there are too many. `redirect`: a server named it that is asked for a key, and does so as
  // often as it likes.
  NodePtr node_at(const RemoteAddress& address, bool redirect = false);
  std::vector<NodePtr> masters() const;
  // Asks the nodes that are known for the slots.
  Status refresh(SteadyTime deadline);
  void look_after_nodes();
  // Lets go of the mutex while it asks. True: it is to be done again in a while.
  bool look_after_nodes_once() BLEND_REQUIRES(mutex_);
  // Nodes that serve nothing and that nobody is at work on, but for the seeds.
  void forget_strangers() BLEND_REQUIRES(mutex_);
  void wake();

  const RemoteOptions options_;
  const std::shared_ptr<const TlsContext> tls_;
  const OnChange on_change_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, NodePtr> nodes_ BLEND_GUARDED_BY(mutex_);  // by address
  // [kSlots] of a cluster; empty: not known yet.
  std::vector<NodePtr> slots_ BLEND_GUARDED_BY(mutex_);
  size_t n_serving_ BLEND_GUARDED_BY(mutex_) = 0;  // nodes of slots_ when it was read
  bool refresh_wanted_ BLEND_GUARDED_BY(mutex_) = false;
  bool stopped_ BLEND_GUARDED_BY(mutex_) = false;
  Mutex refreshing_;  // one thread asks for the slots at a time
  std::thread thread_;
};

}  // namespace blend
