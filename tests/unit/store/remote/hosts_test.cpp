// Many hosts, each a process with a store of its own, and one cluster that all read and write at
// once: no error, no wrong row, and memory that stays as it is. BLEND_REMOTE_SECONDS says for how
// long, BLEND_REMOTE_HOSTS how many.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "store/remote/options.h"
#include "store/store.h"
#include "support/redis_server.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ChunkShape kShape{4, 64, 512, DType::f16};  // 512 KiB
constexpr uint32_t kChunks = 24;                      // that all of them want
constexpr uint64_t kMib = 1 << 20;

int asked_for(const char* name, int usual) {
  const char* const asked = std::getenv(name);
  return asked == nullptr ? usual : std::atoi(asked);
}

// The process's own memory, without the pages of mapped files.
uint64_t own_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "RssAnon: %llu", &kib) == 1) return kib << 10;
  }
  return 0;
}

// What a host tells at its end.
struct Account {
  uint64_t n_read = 0;    // whole chunks, right in every byte
  uint64_t n_missed = 0;  // not there, or being removed
  uint64_t n_wrong = 0;   // other bytes, or an error
  uint64_t hits = 0, errors = 0, downs = 0, read_bytes = 0, written_bytes = 0;
  uint64_t early_bytes = 0, late_bytes = 0;  // own_bytes(), warm and at the end
  char first_problem[200] = {};
};

Account live(uint32_t host, const std::string& url, double seconds) {
  Account account;
  TempDir directory;
  RemoteOptions remote;
  remote.url = take(parse_remote_url(url));
  remote.segment_bytes = 64 << 10;
  remote.timeout_ms = 300000;  // nothing is broken here, whatever else the machine does
  remote.n_connections = 2;
  auto opened = Store::open(directory.path() + "/s", {}, remote, {});
  if (!opened.is_ok()) {
    account.n_wrong = 1;
    return account;
  }
  const std::shared_ptr<Store> store = std::move(opened.value());
  std::vector<std::shared_ptr<ChunkRecord>> chunks;
  for (uint32_t seed = 0; seed < kChunks; ++seed) chunks.push_back(make_record(seed, kShape));
  std::mt19937 random(host);
  const auto note = [&](const Status& status) {
    if (account.n_wrong++ != 0) return;
    std::snprintf(account.first_problem, sizeof account.first_problem, "%s",
                  status.message().c_str());
  };
  const Clock::time_point begin = Clock::now();
  const std::chrono::duration<double> all(seconds);
  while (Clock::now() - begin < all) {
    const ChunkRecord& chunk = *chunks[random() % kChunks];
    const Status status = compare(*store, chunk);
    const int32_t code = status.code();
    if (status.is_ok()) {
      ++account.n_read;
    } else if (code == BLEND_E_NOT_FOUND || code == BLEND_E_CORRUPT) {
      ++account.n_missed;  // computed, and put for all
      if (const Status put = store->put(chunk); !put.is_ok()) note(put);
    } else {
      note(status);
    }
    // Downloaded chunks were kept on disk. Remove the chunk, or the disk would answer from now on.
    if (const Status flushed = store->flush(); !flushed.is_ok()) note(flushed);
    (void)store->remove(chunk.meta.id);
    // Now and then a chunk is removed from the cluster while others read it.
    if (random() % 64 == 0) (void)store->remote()->remove(chunk.meta.id);
    if (account.early_bytes == 0 && Clock::now() - begin > all / 4) {
      account.early_bytes = own_bytes();
    }
  }
  account.late_bytes = own_bytes();
  const RemoteStat stat = take(store->stat()).remote;
  account.hits = stat.hits;
  account.errors = stat.errors;
  account.downs = stat.downs;
  account.read_bytes = stat.read_bytes;
  account.written_bytes = stat.written_bytes;
  return account;
}

TEST(RemoteHosts, SixteenProcessesAndOneCluster) {
  SKIP_WITHOUT_REDIS();
  const auto hosts = static_cast<uint32_t>(asked_for("BLEND_REMOTE_HOSTS", 16));
  const double seconds = asked_for("BLEND_REMOTE_SECONDS", 4);
  RedisCluster cluster;
  ASSERT_TRUE(cluster.start());
  // Before there are threads that a fork would lose.
  std::vector<std::pair<pid_t, int>> children;
  for (uint32_t host = 0; host < hosts; ++host) {
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const Account account = live(host, cluster.url(), seconds);
      _exit(write(ends[1], &account, sizeof account) == sizeof account ? 0 : 1);
    }
    close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  Account sum;
  for (const auto& [child, end] : children) {
    Account account;
    EXPECT_EQ(static_cast<ssize_t>(sizeof account), read(end, &account, sizeof account));
    close(end);
    int status = 1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ(0u, account.n_wrong) << account.first_problem;
    EXPECT_EQ(0u, account.errors);
    EXPECT_EQ(0u, account.downs);
    EXPECT_GT(account.n_read, 0u);
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed for a while
    // Caches of the allocator fill slowly; what leaks a chunk now and then takes far more.
    EXPECT_LT(account.late_bytes, account.early_bytes + 16 * kMib);
#endif
    sum.n_read += account.n_read;
    sum.n_missed += account.n_missed;
    sum.n_wrong += account.n_wrong;
    sum.hits += account.hits;
    sum.errors += account.errors;
    sum.read_bytes += account.read_bytes;
    sum.written_bytes += account.written_bytes;
    sum.early_bytes += account.early_bytes;
    sum.late_bytes += account.late_bytes;
  }
  const auto mib = [](uint64_t bytes) { return static_cast<unsigned long long>(bytes / kMib); };
  std::printf(
      // A hit is a manifest that was found. Its rows may be gone, which is a miss for their reader.
      "%u hosts, %g s: %llu chunks read, %llu manifests found, %llu missed, %llu wrong, "
      "%llu errors; %llu MiB read, %llu written; memory of all %llu MiB after a quarter of the "
      "time, %llu at the end\n",
      hosts, seconds, static_cast<unsigned long long>(sum.n_read),
      static_cast<unsigned long long>(sum.hits), static_cast<unsigned long long>(sum.n_missed),
      static_cast<unsigned long long>(sum.n_wrong), static_cast<unsigned long long>(sum.errors),
      mib(sum.read_bytes), mib(sum.written_bytes), mib(sum.early_bytes), mib(sum.late_bytes));
}

}  // namespace
}  // namespace blend::test
