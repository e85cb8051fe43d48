#include "support/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/files/eintr.h"
#include "store/remote/client/resp.h"

extern char** environ;

namespace blend::test {
namespace {

using namespace std::chrono_literals;

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  timeval limit{5, 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

class FdSource final : public ByteSource {
 public:
  explicit FdSource(int fd) : fd_(fd) {}
  Result<size_t> read(std::byte* out, size_t bytes) override {
    // A socket with a time limit is interrupted without any handler, by io_uring's work too.
    const ssize_t n = retry_interrupted([&] { return ::read(fd_, out, bytes); });
    if (n <= 0) return Status{BLEND_E_IO, "it has ended"};
    return static_cast<size_t>(n);
  }

 private:
  int fd_;
};

void flatten(const Reply& reply, std::string& out) {
  if (reply.type == Reply::Type::integer) out += std::to_string(reply.integer) + "\n";
  if (!reply.text.empty()) out += reply.text + "\n";
  for (const Reply& item : reply.list) flatten(item, out);
}

}  // namespace

std::string redis_server_path() {
  for (const char* path : {"/usr/bin/redis-server", "/usr/local/bin/redis-server"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return {};
}

uint16_t free_port() {
  // A cluster's bus takes port + 10000, so both must be free, and small.
  for (int attempt = 0; attempt < 200; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int bus = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static uint32_t next = static_cast<uint32_t>(getpid()) * 7919;
    const auto port = static_cast<uint16_t>(12000 + (next += 13) % 20000);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    bool good = bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    at.sin_port = htons(static_cast<uint16_t>(port + 10000));
    good = good && bind(bus, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    close(fd);
    close(bus);
    if (good) return port;
  }
  return 0;
}

RedisServer::RedisServer(std::vector<std::string> arguments)
    : arguments_(std::move(arguments)), port_(free_port()) {}

RedisServer::~RedisServer() { kill9(); }

bool RedisServer::start() {
  std::vector<std::string> all = {redis_server_path(),
                                  "--bind",
                                  "127.0.0.1",
                                  "--dir",
                                  directory(),
                                  "--save",
                                  "",
                                  "--appendonly",
                                  "no",
                                  "--logfile",
                                  directory() + "/log",
                                  "--daemonize",
                                  "no"};
  if (tls_) {
    all.insert(all.end(), {"--port", "0", "--tls-port", std::to_string(port_)});
  } else {
    all.insert(all.end(), {"--port", std::to_string(port_)});
  }
  all.insert(all.end(), arguments_.begin(), arguments_.end());
  std::vector<char*> argv;
  for (std::string& part : all) argv.push_back(part.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  const int rc = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (rc != 0) return false;
  for (int i = 0; i < 200; ++i) {
    const int fd = connect_to(port_);
    if (fd >= 0) close(fd);
    if (fd >= 0 && (tls_ || !command({"PING"}).empty())) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

void RedisServer::kill9() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  (void)waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::pause(bool stopped) {
  if (pid_ > 0) kill(pid_, stopped ? SIGSTOP : SIGCONT);
}

std::string RedisServer::command(const std::vector<std::string>& parts,
                                 std::string_view auth) const {
  const int fd = connect_to(port_);
  if (fd < 0) return {};
  std::string bytes;
  if (!auth.empty()) {
    append_command_head(bytes, 2);
    append_bulk(bytes, "AUTH");
    append_bulk(bytes, auth);
  }
  append_command_head(bytes, parts.size());
  for (const std::string& part : parts) append_bulk(bytes, part);
  std::string out;
  if (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size())) {
    FdSource source(fd);
    RespReader reader(source);
    auto reply = reader.read({256u << 20, 1u << 20, 8});
    if (!auth.empty() && reply.is_ok()) reply = reader.read({256u << 20, 1u << 20, 8});
    if (reply.is_ok()) flatten(*reply, out);
  }
  close(fd);
  if (!out.empty()) out.pop_back();
  return out;
}

std::vector<std::string> RedisServer::keys() const {
  const std::string all = command({"KEYS", "*"});
  std::vector<std::string> out;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    out.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string RedisServer::log() const {
  std::ifstream in(directory() + "/log");
  return {std::istreambuf_iterator<char>(in), {}};
}

bool RedisCluster::start() {
  for (int i = 0; i < 6; ++i) {
    nodes.push_back(std::make_unique<RedisServer>(std::vector<std::string>{
        "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout",
        "2000", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}));
    if (!nodes.back()->start()) return false;
  }
  const auto port = [&](size_t i) { return std::to_string(nodes[i]->port()); };
  for (size_t i = 0; i < 3; ++i) {
    std::vector<std::string> slots = {"CLUSTER", "ADDSLOTSRANGE"};
    slots.push_back(std::to_string(i * 5461));
    slots.push_back(std::to_string(i == 2 ? 16383 : (i + 1) * 5461 - 1));
    if (nodes[i]->command(slots) != "OK") return false;
    // Or failovers could not be told apart.
    (void)nodes[i]->command({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
  }
  for (size_t i = 1; i < 6; ++i) {
    (void)nodes[0]->command({"CLUSTER", "MEET", "127.0.0.1", port(i)});
  }
  for (int tries = 0; tries < 200; ++tries) {
    bool all = true;
    for (const auto& node : nodes) {
      all = all &&
            node->command({"CLUSTER", "INFO"}).find("cluster_known_nodes:6") != std::string::npos;
    }
    if (all) break;
    std::this_thread::sleep_for(50ms);
  }
  for (size_t i = 3; i < 6; ++i) {
    const std::string master = nodes[i - 3]->command({"CLUSTER", "MYID"});
    for (int tries = 0; tries < 100; ++tries) {
      if (nodes[i]->command({"CLUSTER", "REPLICATE", master}) == "OK") break;
      std::this_thread::sleep_for(50ms);
    }
  }
  if (!wait_until_ok()) return false;
  // Replicas that are in step can take over.
  for (int tries = 0; tries < 200; ++tries) {
    bool all = true;
    for (size_t i = 3; i < 6; ++i) {
      all = all && nodes[i]->command({"INFO", "replication"}).find("master_link_status:up") !=
                       std::string::npos;
    }
    if (all) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

std::string RedisCluster::url() const {
  std::string url = "redis+cluster://";
  for (size_t i = 0; i < 3; ++i) {
    url += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(nodes[i]->port());
  }
  return url;
}

std::vector<size_t> RedisCluster::masters() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->command({"ROLE"}).compare(0, 6, "master") == 0) out.push_back(i);
  }
  return out;
}

bool RedisCluster::wait_until_ok() const {
  for (int tries = 0; tries < 400; ++tries) {
    bool all = true;
    for (const auto& node : nodes) {
      const std::string info = node->command({"CLUSTER", "INFO"});
      // One that was killed says nothing.
      all = all && (info.empty() || info.find("cluster_state:ok") != std::string::npos);
    }
    if (all) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

void RedisCluster::settle() const {
  for (const auto& node : nodes) {
    // "... myself,master ... 0-258 [391-<-ID] [423->-ID]"
    std::istringstream lines(node->command({"CLUSTER", "NODES"}));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("myself") == std::string::npos) continue;
      for (size_t at = line.find('['); at != std::string::npos; at = line.find('[', at + 1)) {
        const std::string slot = line.substr(at + 1, line.find('-', at) - at - 1);
        (void)node->command({"CLUSTER", "SETSLOT", slot, "STABLE"});
      }
    }
  }
}

std::string RedisCluster::told() const {
  std::string out;
  for (const auto& node : nodes) {
    out += std::to_string(node->port()) + ": " + node->command({"CLUSTER", "INFO"}) + "\n" +
           node->command({"CLUSTER", "NODES"}) + "\n";
  }
  return out;
}

int RedisCluster::move_slots(const std::vector<std::string>& slots, size_t to) const {
  const RedisServer& target = *nodes[to];
  const std::string target_id = target.command({"CLUSTER", "MYID"});
  const auto set = [](const RedisServer& node, const std::string& slot, const char* what,
                      const std::string& id) {
    return node.command({"CLUSTER", "SETSLOT", slot, what, id}) == "OK";
  };
  const auto move_keys = [&](const RedisServer& source, const std::string& slot) {
    for (;;) {
      const std::string key = source.command({"CLUSTER", "GETKEYSINSLOT", slot, "1"});
      if (key.empty()) return true;
      const std::string moved = source.command(
          {"MIGRATE", "127.0.0.1", std::to_string(target.port()), key, "0", "5000", "REPLACE"});
      if (moved != "OK" && moved != "NOKEY") return false;
    }
  };
  int n_moved = 0;
  for (const std::string& slot : slots) {
    for (const size_t from : masters()) {
      const RedisServer& source = *nodes[from];
      const std::string source_id = source.command({"CLUSTER", "MYID"});
      // Whoever does not have the slot refuses to send it, whoever has it to take it.
      if (from == to || !set(target, slot, "IMPORTING", source_id)) continue;
      if (!set(source, slot, "MIGRATING", target_id) || !move_keys(source, slot)) {
        (void)target.command({"CLUSTER", "SETSLOT", slot, "STABLE"});
        (void)source.command({"CLUSTER", "SETSLOT", slot, "STABLE"});
        continue;
      }
      n_moved += set(target, slot, "NODE", target_id) ? 1 : 0;
      for (const size_t master : masters()) {
        if (master != to) (void)set(*nodes[master], slot, "NODE", target_id);
      }
      break;
    }
  }
  return n_moved;
}

}  // namespace blend::test
