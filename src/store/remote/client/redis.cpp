#include "store/remote/client/redis.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <system_error>

#include "base/threads/start_thread.h"

namespace blend {
namespace {

constexpr int kMostRedirects = 8;
constexpr size_t kMostNodes = 1024;  // Redis itself is not made for more
// Nodes that redirects name and that serve no slot, as far as is known, beside the seeds.
constexpr size_t kMostStrangers = 32;
// Between two looks at a cluster in trouble.
constexpr auto kBetweenLooks = std::chrono::milliseconds(200);

Status stopped() { return {BLEND_E_CANCELLED, "the store is being closed"}; }

// What the server answered in place of what was asked.
Status refused(const Reply& reply) {
  if (reply.type != Reply::Type::error) {
    return {BLEND_E_CORRUPT, "the key holds something else than a value"};
  }
  if (reply.is_error("WRONGTYPE")) return {BLEND_E_CORRUPT, "the key holds no string"};
  const bool full = reply.is_error("OOM ") || reply.is_error("MISCONF");
  return make_error(full ? BLEND_E_FULL : BLEND_E_IO, "the server refuses: %s",
                    quoted(reply).c_str());
}

}  // namespace

Result<std::unique_ptr<RedisEngine>> RedisEngine::create(const RemoteOptions& options,
                                                         OnChange on_change) {
  std::shared_ptr<const TlsContext> tls;
  if (options.url.tls) {
    BLEND_ASSIGN(tls, make_tls_context(options));
  }
  std::unique_ptr<RedisEngine> engine(
      new RedisEngine(options, std::move(tls), std::move(on_change)));
  try {
    engine->thread_ = start_thread([e = engine.get()] { e->look_after_nodes(); });
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the remote tier's thread: %s", e.what());
  }
  return engine;
}

RedisEngine::RedisEngine(const RemoteOptions& options, std::shared_ptr<const TlsContext> tls,
                         OnChange on_change)
    : options_(options), tls_(std::move(tls)), on_change_(std::move(on_change)) {
  for (const RemoteAddress& seed : options_.url.seeds) (void)node_at(seed);
}

RedisEngine::~RedisEngine() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void RedisEngine::stop() {
  std::vector<NodePtr> nodes;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    for (const auto& [name, node] : nodes_) nodes.push_back(node);
  }
  changed_.notify_all();
  for (const NodePtr& node : nodes) node->stop();
}

SteadyTime RedisEngine::new_deadline() const {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.timeout_ms);
}

// ---- Who serves what

RedisEngine::NodePtr RedisEngine::node_at(const RemoteAddress& address, bool redirect) {
  const std::string name = address.name();
  const MutexLock lock(mutex_);
  if (const auto it = nodes_.find(name); it != nodes_.end()) return it->second;
  if (redirect && nodes_.size() >= options_.url.seeds.size() + n_serving_ + kMostStrangers) {
    forget_strangers();
    if (nodes_.size() >= options_.url.seeds.size() + n_serving_ + kMostStrangers) return nullptr;
  }
  if (stopped_ || nodes_.size() >= kMostNodes) return nullptr;
  auto node = std::make_shared<Node>(address, options_, tls_,
                                     [this](const Node& changed, const Status& why) {
                                       wake();
                                       on_change_(changed.address().name(), why);
                                     });
  nodes_.emplace(name, node);
  return node;
}

std::vector<RedisEngine::NodePtr> RedisEngine::masters() const {
  const MutexLock lock(mutex_);
  std::vector<NodePtr> out;
  if (slots_.empty()) {
    for (const auto& [name, node] : nodes_) out.push_back(node);
    return out;
  }
  std::set<NodePtr> known;
  for (const NodePtr& node : slots_) {
    if (node != nullptr) known.insert(node);
  }
  out.assign(known.begin(), known.end());
  return out;
}

bool RedisEngine::reachable() const {
  const std::vector<NodePtr> all = masters();
  return std::any_of(all.begin(), all.end(), [](const NodePtr& node) { return !node->open(); });
}

void RedisEngine::wake() {
  {
    const MutexLock lock(mutex_);
    refresh_wanted_ = true;
  }
  changed_.notify_all();
}

Status RedisEngine::refresh(SteadyTime deadline) {
  // One at a time; who waited for another finds its work done.
  const MutexLock one(refreshing_);
  std::vector<NodePtr> nodes;
  {
    const MutexLock lock(mutex_);
    if (stopped_) return stopped();
    for (const auto& [name, node] : nodes_) nodes.push_back(node);
  }
  Status last{BLEND_E_IO, "no node of the cluster answers"};
  for (const NodePtr& node : nodes) {
    if (node->open()) continue;
    if (std::chrono::steady_clock::now() >= deadline) break;  // of what one of them kept
    const std::array<std::string_view, 2> command = {"CLUSTER", "SLOTS"};
    auto reply = node->run(
        [&](Connection& connection) {
          return connection.call(command, deadline, {4u << 20, 1u << 20, 8});
        },
        deadline);
    if (!reply.is_ok()) {
      last = reply.status();
      if (last.code() == BLEND_E_CANCELLED) return last;
      continue;
    }
    const auto ranges = read_slots(*reply, node->address());
    if (!ranges.has_value()) {
      last = make_error(BLEND_E_IO, "%s is no node of a cluster: %s",
                        node->address().name().c_str(), quoted(*reply).c_str());
      continue;
    }
    std::vector<NodePtr> slots(kSlots);
    for (const SlotRange& range : *ranges) {
      const NodePtr master = node_at(range.master);
      for (uint32_t slot = range.first; slot <= range.last; ++slot) slots[slot] = master;
    }
    const MutexLock lock(mutex_);
    slots_ = std::move(slots);
    n_serving_ = std::set<NodePtr>(slots_.begin(), slots_.end()).size();
    return Status::ok();
  }
  return last;
}

Result<RedisEngine::NodePtr> RedisEngine::node_for(uint32_t slot, SteadyTime deadline) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      const MutexLock lock(mutex_);
      if (stopped_) return stopped();
      if (!options_.url.cluster) return nodes_.begin()->second;
      if (!slots_.empty()) {
        if (slots_[slot] != nullptr) return slots_[slot];
        return Status{BLEND_E_IO, "no node of the cluster serves the key's slot"};
      }
    }
    if (attempt == 0) BLEND_RETURN_IF_ERROR(refresh(deadline));
  }
  return Status{BLEND_E_IO, "no node of the cluster serves the key's slot"};
}

Result<Reply> RedisEngine::routed(std::string_view key, const Request& request) {
  const SteadyTime deadline = new_deadline();
  const uint32_t slot = options_.url.cluster ? slot_of(key) : 0;
  BLEND_ASSIGN(NodePtr node, node_for(slot, deadline));
  bool asking = false;
  for (int i = 0; i < kMostRedirects; ++i) {
    auto reply = node->run(
        [&](Connection& connection) -> Result<Reply> {
          if (asking) {
            const std::array<std::string_view, 1> command = {"ASKING"};
            BLEND_ASSIGN(const Reply allowed, connection.call(command, deadline, {}));
            if (allowed.type == Reply::Type::error) return allowed;
          }
          return request(connection, deadline);
        },
        deadline);
    if (!reply.is_ok()) return reply;
    if (reply->type != Reply::Type::error || !options_.url.cluster) return reply;
    const auto redirect = read_redirect(*reply, node->address());
    if (!redirect.has_value()) {
      // The slots may have changed under us: CLUSTERDOWN, TRYAGAIN.
      if (reply->is_error("CLUSTERDOWN")) wake();
      return reply;
    }
    node = node_at(redirect->to, true);
    if (node == nullptr) return Status{BLEND_E_IO, "the cluster names too many nodes"};
    asking = redirect->ask;
    if (!asking) {
      {
        const MutexLock lock(mutex_);
        if (!slots_.empty()) slots_[redirect->slot] = node;
      }
      wake();
    }
  }
  return Status{BLEND_E_IO, "the cluster sends us from node to node"};
}

// ---- The thread

void RedisEngine::look_after_nodes() {
  MutexLock lock(mutex_);
  while (!stopped_) {
    bool again = true;
    try {
      again = look_after_nodes_once();
    } catch (const std::bad_alloc&) {  // in a while
      refresh_wanted_ = true;
    }
    if (again) {
      changed_.wait_for(lock, kBetweenLooks, [&]() BLEND_REQUIRES(mutex_) { return stopped_; });
    } else {
      changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return stopped_ || refresh_wanted_; });
    }
  }
}

bool RedisEngine::look_after_nodes_once() {
  bool any_down = false;
  bool slots_down = false;  // while a master is down its slots may go to a replica at any time
  std::vector<NodePtr> nodes;
  for (const auto& [name, node] : nodes_) {
    any_down = any_down || node->open();
    nodes.push_back(node);
  }
  for (const NodePtr& node : slots_) slots_down = slots_down || (node != nullptr && node->open());
  const bool look = options_.url.cluster && (refresh_wanted_ || slots_down);
  refresh_wanted_ = false;
  {
    const MutexUnlock unlock(mutex_);
    for (const NodePtr& node : nodes) (void)node->probe(false);
    if (look) (void)refresh(new_deadline());
    nodes.clear();
  }
  forget_strangers();
  return look || any_down;
}

void RedisEngine::forget_strangers() {
  if (slots_.empty()) return;
  const std::set<NodePtr> serving(slots_.begin(), slots_.end());
  std::erase_if(nodes_, [&](const auto& entry) {
    const std::vector<RemoteAddress>& seeds = options_.url.seeds;
    // Held by this map alone: nobody is at work on it.
    return entry.second.use_count() == 1 && !serving.contains(entry.second) &&
           std::find(seeds.begin(), seeds.end(), entry.second->address()) == seeds.end();
  });
}

// ---- What is asked of it

Result<Reply> RedisEngine::call(std::string_view key, std::span<const std::string_view> command,
                                const RespReader::Limits& limits) {
  return routed(key, [&](Connection& connection, SteadyTime deadline) {
    return connection.call(command, deadline, limits);
  });
}

namespace {

// GETEX gives the value and renews its time to live in one.
std::vector<std::string_view> read_command(std::string_view key, const std::string& ttl) {
  if (ttl == "0") return {"GET", key};
  return {"GETEX", key, "EX", ttl};
}

Result<std::string> value_of(Reply reply) {
  if (reply.type == Reply::Type::null) return Status{BLEND_E_NOT_FOUND, "no such key"};
  if (reply.type != Reply::Type::bulk) return refused(reply);
  return std::move(reply.text);
}

}  // namespace

Result<std::string> RedisEngine::get(std::string_view key, size_t most_bytes) {
  const std::string ttl = std::to_string(options_.ttl_s);
  const std::vector<std::string_view> command = read_command(key, ttl);
  BLEND_ASSIGN(Reply reply, routed(key, [&](Connection& connection, SteadyTime deadline) {
                 return connection.call(command, deadline, {most_bytes, 16, 4});
               }));
  return value_of(std::move(reply));
}

size_t RedisEngine::group_of(std::string_view key) const {
  const MutexLock lock(mutex_);
  if (slots_.empty()) return 0;
  return std::hash<const Node*>()(slots_[slot_of(key)].get());
}

void RedisEngine::get_all(std::span<const std::string> keys, size_t most_bytes, const Take& take) {
  const SteadyTime deadline = new_deadline();
  std::map<NodePtr, std::vector<size_t>> by_node;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto node = node_for(options_.url.cluster ? slot_of(keys[i]) : 0, deadline);
    if (node.is_ok()) {
      by_node[std::move(*node)].push_back(i);
    } else if (!take(i, node.status())) {
      return;
    }
  }
  std::vector<size_t> moved;
  for (const auto& [node, wanted] : by_node) {
    if (!get_from(*node, keys, wanted, most_bytes, take, moved)) return;
  }
  for (const size_t i : moved) {
    if (!take(i, get(keys[i], most_bytes))) return;
  }
}

bool RedisEngine::get_from(Node& node, std::span<const std::string> keys,
                           std::span<const size_t> wanted, size_t most_bytes, const Take& take,
                           std::vector<size_t>& moved) {
  const std::string ttl = std::to_string(options_.ttl_s);
  size_t n_done = 0;
  bool go_on = true;
  // On a new connection it goes on where the last one broke.
  const auto ask = [&](Connection& connection, SteadyTime deadline) -> Result<Reply> {
    std::vector<std::vector<std::string_view>> commands;
    for (const size_t i : wanted.subspan(n_done)) commands.push_back(read_command(keys[i], ttl));
    BLEND_RETURN_IF_ERROR(connection.send_all(commands, deadline));
    while (n_done < wanted.size()) {
      BLEND_ASSIGN(Reply reply, connection.receive(deadline, {most_bytes, 16, 4}));
      // No reply of this call: the connection has more of them to come.
      if (is_down(reply)) return Status{BLEND_E_IO, quoted(reply)};
      const size_t i = wanted[n_done++];
      if (options_.url.cluster && read_redirect(reply, node.address()).has_value()) {
        moved.push_back(i);
      } else {
        go_on = take(i, value_of(std::move(reply)));
      }
      if (!go_on && n_done < wanted.size()) {
        return Status{BLEND_E_CANCELLED, "nobody waits for the rest"};
      }
      deadline = new_deadline();  // each has the time that it would have alone
    }
    return Reply{};
  };
  while (go_on && n_done < wanted.size()) {
    const SteadyTime deadline = new_deadline();
    const auto asked =
        node.run([&](Connection& connection) { return ask(connection, deadline); }, deadline);
    if (asked.is_ok() || !go_on) break;
    // The connection is lost with a value that is too long; the others may be well.
    if (asked.status().code() == BLEND_E_CORRUPT) {
      go_on = take(wanted[n_done++], asked.status());
      continue;
    }
    while (go_on && n_done < wanted.size()) go_on = take(wanted[n_done++], asked.status());
  }
  return go_on;
}

Status RedisEngine::get_into(std::string_view key, std::span<const Place> places) {
  const std::string ttl = std::to_string(options_.ttl_s);
  const std::vector<std::string_view> command = read_command(key, ttl);
  bool taken = false;
  BLEND_ASSIGN(const Reply reply, routed(key, [&](Connection& connection, SteadyTime deadline) {
                 return connection.call_into(command, places, &taken, deadline);
               }));
  if (taken) return Status::ok();
  if (reply.type == Reply::Type::null) return {BLEND_E_NOT_FOUND, "no such key"};
  if (reply.type == Reply::Type::bulk) return {BLEND_E_CORRUPT, "the value has another length"};
  return refused(reply);
}

Status RedisEngine::put(std::string_view key, ValueSource& value) {
  const std::string ttl = std::to_string(options_.ttl_s);
  std::vector<std::string_view> command = {"SET", key};
  if (options_.ttl_s != 0) command.insert(command.end(), {"EX", ttl});
  BLEND_ASSIGN(const Reply reply, routed(key, [&](Connection& connection, SteadyTime deadline) {
                 return connection.call_with(command, value, deadline);
               }));
  return reply.type == Reply::Type::text ? Status::ok() : refused(reply);
}

Result<uint64_t> RedisEngine::length(std::string_view key) {
  const std::array<std::string_view, 2> command = {"STRLEN", key};
  BLEND_ASSIGN(const Reply reply, call(key, command, {}));
  if (reply.type != Reply::Type::integer || reply.integer < 0) return refused(reply);
  if (reply.integer > 0 && options_.ttl_s != 0) {
    const std::string ttl = std::to_string(options_.ttl_s);
    const std::array<std::string_view, 3> touch = {"EXPIRE", key, ttl};
    BLEND_ASSIGN(const Reply touched, call(key, touch, {}));
    if (touched.type == Reply::Type::error) return refused(touched);
  }
  return static_cast<uint64_t>(reply.integer);
}

Status RedisEngine::remove(std::string_view key) {
  const std::array<std::string_view, 2> command = {"UNLINK", key};
  BLEND_ASSIGN(const Reply reply, call(key, command, {}));
  return reply.type == Reply::Type::integer ? Status::ok() : refused(reply);
}

Status RedisEngine::scan(std::string_view prefix, const ScanLimits& limits,
                         const std::function<Status(std::string_view key)>& fn) {
  if (options_.url.cluster) BLEND_RETURN_IF_ERROR(refresh(new_deadline()));
  const std::string pattern = std::string(prefix) + "*";
  const SteadyTime end = std::chrono::steady_clock::now() + limits.time;
  uint64_t n_rounds = 0;
  uint64_t n_bytes = 0;
  for (const NodePtr& node : masters()) {
    std::string cursor = "0";
    for (;;) {
      const SteadyTime deadline = new_deadline();
      const std::array<std::string_view, 6> command = {"SCAN",  cursor,  "MATCH",
                                                       pattern, "COUNT", "1000"};
      BLEND_ASSIGN(const Reply reply,
                   node->run(
                       [&](Connection& connection) {
                         return connection.call(command, deadline, {16u << 20, 1u << 18, 4});
                       },
                       deadline));
      if (reply.type != Reply::Type::list || reply.list.size() != 2 ||
          reply.list[1].type != Reply::Type::list) {
        return refused(reply);
      }
      for (const Reply& key : reply.list[1].list) {
        BLEND_RETURN_IF_ERROR(fn(key.text));
        n_bytes += key.text.size();
      }
      const std::string& next = reply.list[0].text;
      if (next == "0" || next.empty()) break;
      if (next == cursor || ++n_rounds >= limits.rounds || n_bytes > limits.bytes ||
          std::chrono::steady_clock::now() >= end) {
        return {BLEND_E_CORRUPT, "the server's list of keys has no end"};
      }
      cursor = next;
    }
  }
  return Status::ok();
}

Status RedisEngine::check() {
  if (options_.url.cluster) BLEND_RETURN_IF_ERROR(refresh(new_deadline()));
  const std::vector<NodePtr> all = masters();
  for (const NodePtr& node : all) {
    const SteadyTime deadline = new_deadline();
    const std::array<std::string_view, 1> command = {"PING"};
    BLEND_ASSIGN(
        const Reply reply,
        node->run([&](Connection& connection) { return connection.call(command, deadline, {}); },
                  deadline));
    if (reply.type == Reply::Type::error) return refused(reply);
  }
  return Status::ok();
}

}  // namespace blend
