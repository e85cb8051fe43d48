// A server that is far away, or overworked: it answers, each time within its timeout. A fuse asks
// it for all its chunks at once and waits for all of them together; flushing and closing end.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <mutex>

#include "store/remote/options.h"
#include "store/store.h"
#include "support/slow_redis.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr ChunkShape kShape{2, 32, 64, DType::f16};
constexpr uint32_t kChunks = 20;

RemoteOptions remote_of(const SlowRedis& server) {
  RemoteOptions r;
  r.url = take(parse_remote_url(server.url()));
  r.segment_bytes = 64 << 10;
  r.timeout_ms = 60000;
  r.fuse_ms = 60000;
  r.drain_ms = 60000;
  return r;
}

struct Host {
  explicit Host(const RemoteOptions& remote) {
    const Told told = [this](int32_t code, const std::string& message) {
      const std::lock_guard lock(mutex);
      events.emplace_back(code, message);
    };
    store = take(Store::open(directory.path() + "/store", {}, remote, log_to(told)));
  }
  std::string told(int32_t code) {
    const std::lock_guard lock(mutex);
    std::string all;
    for (const auto& [c, message] : events) all += c == code ? message + "\n" : "";
    return all;
  }
  RemoteStat stat() const { return take(store->stat()).remote; }
  TempDir directory;
  std::mutex mutex;
  std::vector<std::pair<int32_t, std::string>> events;  // mutex
  std::shared_ptr<Store> store;
};

std::vector<std::shared_ptr<ChunkRecord>> some_records(uint32_t first, uint32_t n = kChunks) {
  std::vector<std::shared_ptr<ChunkRecord>> out;
  for (uint32_t i = 0; i < n; ++i) out.push_back(make_record(first + i, kShape));
  return out;
}

std::vector<Sha256> ids_of(const std::vector<std::shared_ptr<ChunkRecord>>& records) {
  std::vector<Sha256> ids;
  for (const auto& r : records) ids.push_back(r->meta.id);
  return ids;
}

// What another host has put there.
void put_there(const RemoteOptions& remote,
               const std::vector<std::shared_ptr<ChunkRecord>>& records) {
  Host other(remote);
  for (const auto& r : records) EXPECT_OK(other.store->put(*r));
  EXPECT_OK(other.store->flush());
  EXPECT_EQ(records.size(), other.stat().written);
}

TEST(RemoteSlow, AFuseAsksForAllItsChunksInOneRoundTrip) {
  SlowRedis server;
  const auto there = some_records(0, kChunks / 2);
  put_there(remote_of(server), there);
  auto all = some_records(100, kChunks / 2);  // which nobody has
  all.insert(all.end(), there.begin(), there.end());
  Host host(remote_of(server));
  server.set_latency(200ms);
  const uint64_t before = server.n_round_trips();
  const auto snapshot = take(host.store->snapshot());
  EXPECT_TRUE(snapshot->asks_others());
  snapshot->expect(ids_of(all));
  std::vector<std::unique_ptr<ChunkSource>> found;
  for (const auto& r : all) {
    auto opened = snapshot->open(r->meta.id);
    if (opened.is_ok()) {
      found.push_back(std::move(*opened));
    } else {
      EXPECT_CODE(BLEND_E_NOT_FOUND, opened.status());
    }
  }
  // One, or a few where a busy machine sent the commands in pieces.
  EXPECT_LE(server.n_round_trips() - before, 4u);
  ASSERT_EQ(there.size(), found.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_OK(compare(*found[i], *there[i]));
  EXPECT_EQ(there.size(), host.stat().hits);
  EXPECT_EQ(all.size() - there.size(), host.stat().misses);
  EXPECT_EQ(0u, host.stat().late);
}

// All look-ups of a snapshot share one time limit, whatever their number; some are answered within
// it.
TEST(RemoteSlow, TheLookUpsOfAFuseHaveOneTimeTogether) {
  SlowRedis server;
  const auto all = some_records(0);
  put_there(remote_of(server), all);
  RemoteOptions remote = remote_of(server);
  remote.fuse_ms = 700;
  Host host(remote);
  server.set_work(200ms);  // 4 s for all of them
  const auto snapshot = take(host.store->snapshot());
  snapshot->expect(ids_of(all));
  uint64_t n_late = 0;
  uint64_t n_found = 0;
  for (const auto& r : all) {
    const auto opened = snapshot->open(r->meta.id);
    n_found += opened.is_ok() ? 1 : 0;
    if (opened.is_ok()) continue;
    EXPECT_CODE(BLEND_E_NOT_FOUND, opened.status());
    EXPECT_EQ(ETIMEDOUT, opened.status().detail());
    ++n_late;
  }
  EXPECT_GE(n_late, kChunks / 2) << n_found;
  EXPECT_EQ(n_late, host.stat().late);
  EXPECT_EQ(n_late, host.stat().misses);
  // Nobody waits for the rest, so it is not asked for either.
  snapshot->expect(ids_of(some_records(100)));
  EXPECT_CODE(BLEND_E_NOT_FOUND, snapshot->open(make_record(100, kShape)->meta.id).status());
}

TEST(RemoteSlow, WhoAnswersNothingInTimeIsLeftAloneAndThatIsTold) {
  SlowRedis server;
  RemoteOptions remote = remote_of(server);
  remote.fuse_ms = 100;
  remote.retry_ms = 600000;
  Host host(remote);
  server.set_latency(1500ms);  // below its timeout
  const auto look_up = [&](uint32_t first) {
    const auto snapshot = take(host.store->snapshot());
    const auto all = some_records(first);
    snapshot->expect(ids_of(all));
    for (const auto& r : all) {
      EXPECT_CODE(BLEND_E_NOT_FOUND, snapshot->open(r->meta.id).status());
    }
  };
  look_up(0);
  EXPECT_FALSE(host.stat().reachable);
  EXPECT_EQ(uint64_t{kChunks}, host.stat().misses);
  EXPECT_NE(std::string::npos, host.told(BLEND_EVENT_REMOTE_DOWN).find("in time"));
  const uint64_t before = server.n_commands();
  look_up(100);
  EXPECT_EQ(before, server.n_commands()) << "the next fuse does not wait for it";
}

// Put chunks are uploaded nevertheless: no call waits for that.
TEST(RemoteSlow, WhatIsPutGoesUpWhileFusesLeaveItAlone) {
  SlowRedis server;
  RemoteOptions remote = remote_of(server);
  remote.fuse_ms = 1;
  remote.retry_ms = 600000;
  Host host(remote);
  server.set_latency(100ms);
  const auto snapshot = take(host.store->snapshot());
  const Sha256 absent = make_record(50, kShape)->meta.id;
  snapshot->expect({&absent, 1});
  EXPECT_CODE(BLEND_E_NOT_FOUND, snapshot->open(absent).status());
  EXPECT_FALSE(host.stat().reachable);
  EXPECT_OK(host.store->put(*make_record(1, kShape)));
  EXPECT_OK(host.store->flush());
  EXPECT_EQ(1u, host.stat().written);
  EXPECT_EQ(0u, host.stat().dropped);
}

TEST(RemoteSlow, FlushingAndClosingEndAndSayWhatWasGivenUp) {
  SlowRedis server;
  RemoteOptions remote = remote_of(server);
  remote.drain_ms = 300;
  Host host(remote);
  server.set_latency(500ms);  // 20 chunks, three ways there and back each, two at a time: 15 s
  for (const auto& r : some_records(0)) EXPECT_OK(host.store->put(*r));
  const auto begin = Clock::now();
  EXPECT_OK(host.store->flush());
  EXPECT_GT(host.stat().queued, kChunks / 2);
  for (const auto& r : some_records(0)) EXPECT_OK(compare(*host.store, *r));
  host.store.reset();
  EXPECT_LT(Clock::now() - begin, 8s);
  const std::string told = host.told(BLEND_E_CANCELLED);
  EXPECT_NE(std::string::npos, told.find("gave up")) << told;
  EXPECT_NE(std::string::npos, told.find("blend store push")) << told;
  EXPECT_LT(server.n_keys(), 2 * kChunks);
}

// What sealing promises of a server that keeps old values, and what not (docs/remote.md).
TEST(RemoteSealed, WhatIsBroughtBackIsRightAndMayBeOldAndAnotherSpaceEndsIt) {
  SlowRedis server;
  RemoteOptions remote = remote_of(server);
  remote.seal_key = std::string(32, 's');
  const auto record = make_record(1, kShape);
  put_there(remote, {record});
  const SlowRedis::Values old = server.values();
  {
    Host host(remote);
    EXPECT_OK(host.store->remote()->remove(record->meta.id));
    EXPECT_EQ(0u, server.n_keys());
    EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*host.store, *record));
  }
  server.set_values(old);
  EXPECT_OK(compare(*Host(remote).store, *record));  // removed, and there again
  // A value under the name of another space is refused, whatever key the server returns it for.
  RemoteOptions next = remote;
  next.space = "blend-2";
  SlowRedis::Values renamed;
  for (const auto& [key, value] : old) renamed["blend-2" + key.substr(remote.space.size())] = value;
  server.set_values(renamed);
  Host host(next);
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*host.store, *record));
  EXPECT_CODE(BLEND_E_CORRUPT, host.store->remote()->verify(record->meta.id));
}

TEST(RemoteSlow, ClosingDoesNotWaitForWhatIsReadAhead) {
  SlowRedis server;
  const auto large = make_record(7, {4, 512, 1024, DType::f16});  // 8 MiB: 128 segments
  put_there(remote_of(server), {large});
  Host host(remote_of(server));
  server.set_latency(500ms);  // 16 s with four connections
  const Sha256 id = large->meta.id;
  EXPECT_OK(host.store->hint({&id, 1}));
  for (int i = 0; i < 1000 && host.stat().read_bytes == 0; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  const auto begin = Clock::now();
  host.store.reset();
  EXPECT_LT(Clock::now() - begin, 8s);
}

}  // namespace
}  // namespace blend::test
