// Faults of every kind, one after the other, while hosts read: what is read is right or a miss, and
// no read waits longer than its deadlines allow. BLEND_REMOTE_ROUNDS says how many rounds.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "store/remote/options.h"
#include "store/store.h"
#include "support/cutting_proxy.h"
#include "support/redis_server.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

using namespace std::chrono_literals;

constexpr ChunkShape kShape{4, 64, 512, DType::f16};
constexpr uint32_t kChunks = 6;
constexpr uint32_t kTimeoutMs = 300;

int rounds_of(int usual) {
  const char* const asked = std::getenv("BLEND_REMOTE_ROUNDS");
  return asked == nullptr ? usual : std::atoi(asked);
}

RemoteOptions options_of(const std::string& url) {
  RemoteOptions r;
  r.url = take(parse_remote_url(url));
  r.segment_bytes = 64 << 10;
  r.timeout_ms = kTimeoutMs;
  r.retry_ms = 100;
  return r;
}

// Reads through a host that has forgotten what it had.
class Reader {
 public:
  explicit Reader(const RemoteOptions& remote)
      : store_(take(Store::open(directory_.path() + "/s", {}, remote, {}))) {}

  // OK or a miss; wrong bytes fail the test.
  bool read(const ChunkRecord& record) {
    (void)store_->flush();
    (void)store_->remove(record.meta.id);
    const auto begin = std::chrono::steady_clock::now();
    const Status status = compare(*store_, record);
    slowest_ = std::max(slowest_, std::chrono::steady_clock::now() - begin);
    EXPECT_TRUE(status.is_ok() || status.code() == BLEND_E_NOT_FOUND ||
                status.code() == BLEND_E_CORRUPT)
        << status.message();
    return status.is_ok();
  }
  void put(const ChunkRecord& record) {
    EXPECT_OK(store_->put(record));
    (void)store_->flush();
  }
  // Look-up and one wait, each with its deadline, and room for a machine with other work.
  void expect_patient() const {
    EXPECT_LT(std::chrono::duration_cast<std::chrono::milliseconds>(slowest_).count(),
              10 * kTimeoutMs);
  }
  Store& store() { return *store_; }

 private:
  TempDir directory_;
  std::shared_ptr<Store> store_;
  std::chrono::steady_clock::duration slowest_{};
};

std::vector<std::shared_ptr<ChunkRecord>> some_chunks() {
  std::vector<std::shared_ptr<ChunkRecord>> all;
  for (uint32_t seed = 0; seed < kChunks; ++seed) all.push_back(make_record(seed, kShape));
  return all;
}

TEST(RemoteChaos, ConnectionsCutAtEveryNthByte) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  const auto chunks = some_chunks();
  CuttingProxy proxy(server.port());
  RemoteOptions remote = options_of("redis://127.0.0.1:" + std::to_string(proxy.port()));
  remote.n_connections = 2;
  Reader direct(options_of(server.url()));
  for (const auto& chunk : chunks) direct.put(*chunk);
  const int rounds = rounds_of(40);
  int n_read = 0;
  for (int round = 1; round <= rounds; ++round) {
    // From the first bytes of a reply to past a whole chunk, ever coarser.
    proxy.cut_after(static_cast<uint64_t>(round) * static_cast<uint64_t>(round) * 613);
    Reader reader(remote);
    for (int i = 0; i < 3; ++i) n_read += reader.read(*chunks[(round + i) % kChunks]) ? 1 : 0;
    // Half a put must not be taken for one.
    if (round % 5 == 0) reader.put(*make_record(1000 + static_cast<uint32_t>(round), kShape));
    reader.expect_patient();
  }
  EXPECT_GT(proxy.n_cut(), 0u);
  EXPECT_GT(n_read, 0);
  for (int round = 5; round <= rounds; round += 5) {
    (void)direct.read(*make_record(1000 + static_cast<uint32_t>(round), kShape));
  }
  proxy.cut_after(0);
  Reader healed(remote);
  for (const auto& chunk : chunks) {
    if (!healed.read(*chunk)) healed.put(*chunk);
  }
  for (const auto& chunk : chunks) EXPECT_TRUE(healed.read(*chunk));
}

TEST(RemoteChaos, OneServer) {
  SKIP_WITHOUT_REDIS();
  RedisServer server({"--enable-debug-command", "yes"});
  ASSERT_TRUE(server.start()) << server.log();
  const auto chunks = some_chunks();
  std::mt19937 random(22);
  Reader a(options_of(server.url()));
  Reader b(options_of(server.url()));
  const int rounds = rounds_of(60);
  int n_read = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    for (const auto& chunk : chunks) a.put(*chunk);
    const std::vector<std::string> keys = server.keys();
    const std::string key = keys.empty() ? "none" : keys[random() % keys.size()];
    switch (random() % 9) {
      case 0:
        server.kill9();
        (void)b.read(*chunks[random() % kChunks]);
        ASSERT_TRUE(server.start()) << server.log();
        break;
      case 1:
        server.pause(true);
        (void)b.read(*chunks[random() % kChunks]);
        server.pause(false);
        break;
      case 2:
        (void)server.command({"SETRANGE", key, std::to_string(random() % 65536), "\x7f"});
        break;
      case 3:
        (void)server.command({"DEL", key});
        break;
      case 4:
        (void)server.command({"SET", key, std::string(random() % 200, 'x')});
        break;
      case 5:
        (void)server.command({"APPEND", key, "more"});
        break;
      case 6:
        if (keys.size() > 1) {  // another chunk's value
          (void)server.command({"COPY", keys[random() % keys.size()], key, "REPLACE"});
        }
        break;
      case 7:
        (void)server.command({"CONFIG", "SET", "maxmemory", "2mb"});
        (void)server.command({"CONFIG", "SET", "maxmemory-policy",
                              random() % 2 == 0 ? "allkeys-lru" : "noeviction"});
        a.put(*make_record(2000 + static_cast<uint32_t>(round), kShape));
        (void)b.read(*chunks[random() % kChunks]);
        (void)server.command({"CONFIG", "SET", "maxmemory", "0"});
        break;
      default: {
        std::thread sleeper([&] { (void)server.command({"DEBUG", "SLEEP", "0.5"}); });
        (void)b.read(*chunks[random() % kChunks]);
        sleeper.join();
      }
    }
    for (const auto& chunk : chunks) n_read += b.read(*chunk) ? 1 : 0;
  }
  // How many come through depends on how long the breakers stay open beside how fast the rounds go.
  EXPECT_GT(n_read, 0);
  b.expect_patient();
  // With the server whole again everything is to be had again.
  (void)server.command({"FLUSHALL"});
  uint32_t n_back = 0;
  for (int i = 0; i < 200 && n_back < kChunks; ++i, std::this_thread::sleep_for(100ms)) {
    n_back = 0;
    for (const auto& chunk : chunks) {
      a.put(*chunk);
      n_back += b.read(*chunk) ? 1u : 0u;
    }
  }
  EXPECT_EQ(n_back, kChunks);
}

TEST(RemoteChaos, ACluster) {
  SKIP_WITHOUT_REDIS();
  RedisCluster cluster;
  ASSERT_TRUE(cluster.start());
  const auto chunks = some_chunks();
  std::mt19937 random(22);
  Reader a(options_of(cluster.url()));
  Reader b(options_of(cluster.url()));
  const int rounds = rounds_of(9);
  int n_read = 0;
  int n_moved = 0;
  const auto read_all = [&] {
    for (const auto& chunk : chunks) n_read += b.read(*chunk) ? 1 : 0;
  };
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    for (const auto& chunk : chunks) a.put(*chunk);
    const std::vector<size_t> masters = cluster.masters();
    ASSERT_FALSE(masters.empty());
    const size_t any = random() % masters.size();
    RedisServer& victim = *cluster.nodes[masters[any]];
    switch (round % 3) {
      case 0:
        victim.kill9();
        read_all();
        std::this_thread::sleep_for(3000ms);
        ASSERT_TRUE(victim.start()) << victim.log();
        cluster.settle();
        ASSERT_TRUE(cluster.wait_until_ok()) << cluster.told();
        break;
      case 1:
        for (const auto& node : cluster.nodes) {
          if (node->command({"ROLE"}).compare(0, 5, "slave") != 0) continue;
          if (node->command({"CLUSTER", "FAILOVER"}) != "OK") continue;
          read_all();
          // Wait until it is a master, so that slots are not moved to one that stops being a
          // master.
          for (int i = 0; i < 100 && node->command({"ROLE"}).compare(0, 6, "master") != 0; ++i) {
            std::this_thread::sleep_for(50ms);
          }
          break;
        }
        break;
      default: {  // slots that are in use move while they are read, and end elsewhere
        std::vector<std::string> slots;
        for (const std::string& key : victim.keys()) {
          if (slots.size() < 12) slots.push_back(victim.command({"CLUSTER", "KEYSLOT", key}));
        }
        const size_t to = masters[(any + 1) % masters.size()];
        std::thread mover([&] { n_moved += cluster.move_slots(slots, to); });
        read_all();
        mover.join();
        cluster.settle();
        ASSERT_TRUE(cluster.wait_until_ok()) << cluster.told();
        // Until the replicas know, too: one that takes over before leaves the slot without a node.
        std::this_thread::sleep_for(2000ms);
      }
    }
    read_all();
  }
  std::printf("%d rounds, %d chunks read, %d slots moved\n", rounds, n_read, n_moved);
  EXPECT_TRUE(rounds < 3 || n_moved > 0);
  EXPECT_GT(n_read, 0);
  b.expect_patient();
}

}  // namespace
}  // namespace blend::test
