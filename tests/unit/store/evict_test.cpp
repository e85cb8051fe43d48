// Which chunks stay: quotas of the store and of tenants, policies, pins, time to live.
#include <lmdb.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "store/lmdb/catalog/manifest.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

// A clock that is ahead, or was.
namespace {
std::atomic<int64_t> clock_ahead_s{0};
}
extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const auto rc = static_cast<int>(syscall(SYS_clock_gettime, clock, out));
  if (rc == 0 && clock == CLOCK_REALTIME) out->tv_sec += clock_ahead_s;
  return rc;
}

namespace blend::test {
namespace {

constexpr int64_t kTenYears = int64_t{10} * 365 * 86400;

// Sets the clock as long as it lives.
struct ClockAhead {
  explicit ClockAhead(int64_t seconds) { clock_ahead_s = seconds; }
  ~ClockAhead() { clock_ahead_s = 0; }
};

constexpr ChunkShape kChunk{1, 64, 64, DType::f16};  // 16 KiB of K and V
const uint64_t kFootprint =
    encode_chunk(*make_record(0, kChunk), Codec::none).value().manifest.footprint();

// A store with room for `n` chunks of kChunk, and what it said.
struct Small {
  explicit Small(uint64_t n, StoreOptions o = {}) : options(o) {
    options.quota_bytes = n * kFootprint;
    open();
  }
  void open() {
    store.reset();
    store = open_store(dir.path(), options, [this](int32_t code, const std::string& message) {
      events.emplace_back(code, message);
    });
  }
  static std::shared_ptr<ChunkRecord> chunk(uint32_t i, std::string_view tenant = "") {
    auto r = make_record(i, kChunk);
    r->meta.tenant = tenant_tag(tenant);
    return r;
  }
  void put(uint32_t i, std::string_view tenant = "") { EXPECT_OK(store->put(*chunk(i, tenant))); }
  void put_all(uint32_t first, uint32_t last) {
    for (uint32_t i = first; i <= last; ++i) put(i);
  }
  bool has(uint32_t i) { return store->contains(chunk(i)->meta.id).value(); }
  std::set<uint32_t> held(uint32_t below) {
    std::set<uint32_t> all;
    for (uint32_t i = 0; i < below; ++i) {
      if (has(i)) all.insert(i);
    }
    return all;
  }
  Sha256 id(uint32_t i) { return chunk(i)->meta.id; }

  TempDir dir;
  StoreOptions options;
  std::vector<std::pair<int32_t, std::string>> events;
  std::shared_ptr<Store> store;
};

using Set = std::set<uint32_t>;

TEST(StoreEvict, TheLeastRecentlyUsedGoesFirst) {
  Small s(4);
  s.put_all(0, 3);
  EXPECT_EQ((Set{0, 1, 2, 3}), s.held(8));
  EXPECT_TRUE(s.events.empty());
  EXPECT_OK(compare(*s.store, *s.chunk(0)));  // a hit
  s.put(4);
  EXPECT_EQ((Set{0, 2, 3, 4}), s.held(8));
  s.put(5);
  EXPECT_EQ((Set{0, 3, 4, 5}), s.held(8));
  ASSERT_EQ(2u, s.events.size());
  EXPECT_EQ(BLEND_EVENT_EVICTED, s.events[0].first);
  EXPECT_NE(std::string::npos, s.events[0].second.find(to_hex(s.id(1)))) << s.events[0].second;
  const StoreStat stat = s.store->stat().value();
  EXPECT_EQ(4u, stat.n_chunks);
  EXPECT_EQ(4 * kFootprint, stat.stored_bytes);
  EXPECT_EQ(2u, stat.totals.evicted_chunks);
  EXPECT_EQ(2 * kFootprint, stat.totals.evicted_bytes);
  EXPECT_EQ(0u, stat.totals.expired_chunks);
  for (const uint32_t i : {0u, 3u, 4u, 5u}) EXPECT_OK(compare(*s.store, *s.chunk(i)));
}

// What a process does whose clock is ten years ahead: this one, or another that has ended since.
template <typename Fn>
void while_ahead(Small& s, bool another, const Fn& fn) {
  s.store.reset();
  const pid_t child = another ? fork() : 0;
  if (child == 0) {
    const ClockAhead ahead(kTenYears);
    s.open();
    fn();
    s.store.reset();
    if (another) _exit(testing::Test::HasFailure() ? 1 : 0);
  } else {
    int status = 1;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
  }
  s.open();
}

// Put, or hit, while the clock was ten years ahead: a chunk is not kept for ten years by it.
TEST(StoreEvict, WhatAClockThatWasAheadHasStampedWasUsedJustNow) {
  for (const bool another : {true, false}) {
    SCOPED_TRACE(another ? "another process" : "the same");
    Small s(4);
    s.put(9);
    while_ahead(s, another, [&] {
      s.put_all(0, 1);
      EXPECT_OK(compare(*s.store, *s.chunk(9)));  // a hit
    });
    s.put_all(2, 3);  // 0, 1 and 9 have been brought back, in their order
    EXPECT_EQ((Set{1, 2, 3, 9}), s.held(10));
    s.put_all(4, 5);
    EXPECT_EQ((Set{2, 3, 4, 5}), s.held(10));
    const auto now = static_cast<uint64_t>(std::time(nullptr));
    EXPECT_LE(s.store->stat()->newest_use_us / 1'000'000, now + 1);
  }
}

TEST(StoreEvict, AClockThatWasAheadKeepsNoPlaceOfAFirstInFirstOut) {
  StoreOptions options;
  options.eviction = Eviction::fifo;
  Small s(4, options);
  while_ahead(s, true, [&] { s.put(0); });
  s.put(0);  // it keeps its place: the first
  s.put_all(1, 4);
  EXPECT_EQ((Set{1, 2, 3, 4}), s.held(8));
}

TEST(StoreEvict, AClockThatWasAheadDoesNotPutOffExpiry) {
  StoreOptions options;
  options.ttl_s = 1000;
  Small s(8, options);
  while_ahead(s, true, [&] { s.put(0); });
  s.put(1);
  EXPECT_TRUE(take(s.store->contains(s.id(0))));
  const ClockAhead later(5000);
  s.put(2);
  EXPECT_EQ((Set{2}), s.held(8));
}

TEST(StoreEvict, UseOutlivesTheProcess) {
  Small s(4);
  s.put_all(0, 3);
  EXPECT_OK(compare(*s.store, *s.chunk(1)));
  EXPECT_OK(compare(*s.store, *s.chunk(0)));
  s.open();
  EXPECT_EQ(2u, s.store->stat()->totals.disk_hits);
  EXPECT_EQ(1u, s.store->use(s.id(0))->uses);
  s.put(4);
  s.put(5);
  EXPECT_EQ((Set{0, 1, 4, 5}), s.held(8));
  s.put(6);
  EXPECT_EQ((Set{0, 4, 5, 6}), s.held(8));
}

TEST(StoreEvict, FifoIgnoresUse) {
  StoreOptions o;
  o.eviction = Eviction::fifo;
  Small s(3, o);
  s.put_all(0, 2);
  EXPECT_OK(compare(*s.store, *s.chunk(0)));
  s.put(3);
  EXPECT_EQ((Set{1, 2, 3}), s.held(8));
  s.put(1);  // a replacement keeps its place
  s.put(4);
  EXPECT_EQ((Set{2, 3, 4}), s.held(8));
}

TEST(StoreEvict, ReuseSparesWhatWasHitAgainAndAgain) {
  for (const Eviction kind : {Eviction::reuse, Eviction::lru}) {
    StoreOptions o;
    o.eviction = kind;
    Small s(4, o);
    s.put(0);
    for (int i = 0; i < 4; ++i) EXPECT_OK(compare(*s.store, *s.chunk(0)));
    s.open();
    // One pass over many chunks: least recently used would push 0 out.
    s.put_all(1, 6);
    EXPECT_EQ(kind == Eviction::reuse, s.has(0));
    // But not for ever.
    s.put_all(10, 40);
    EXPECT_FALSE(s.has(0));
    EXPECT_EQ(4u, s.store->stat()->n_chunks);
  }
}

TEST(StoreEvict, NeverMeansFull) {
  StoreOptions o;
  o.eviction = Eviction::never;
  Small s(2, o);
  s.put_all(0, 1);
  EXPECT_CODE(BLEND_E_FULL, s.store->put(*s.chunk(2)));
  EXPECT_EQ((Set{0, 1}), s.held(4));
  uint64_t n = 0;
  EXPECT_OK(s.store->evict(kFootprint, &n));  // asked for, it is done
  EXPECT_EQ(1u, n);
  EXPECT_EQ((Set{1}), s.held(4));
}

TEST(StoreEvict, WhatCannotFitPushesNothingOut) {
  Small s(4);
  s.put_all(0, 3);
  const Status full = s.store->put(*make_record(9, {4, 128, 64, DType::f16}));
  EXPECT_EQ(BLEND_E_FULL, full.code()) << full.message();
  EXPECT_NE(std::string::npos, full.message().find("quota_bytes")) << full.message();
  EXPECT_EQ((Set{0, 1, 2, 3}), s.held(8));
}

TEST(StoreEvict, OneLargeChunkTakesThePlaceOfManySmallOnesInBatches) {
  Small s(200);
  for (uint32_t i = 0; i < 200; ++i) s.put(i);
  const auto large = make_record(1000, {20, 256, 128, DType::f16});  // 160 times a small one
  EXPECT_OK(s.store->put(*large));
  EXPECT_OK(compare(*s.store, *large));
  const uint64_t n_left = s.store->stat()->n_chunks - 1;
  EXPECT_LT(n_left, 100u);  // more than one batch of them went
  EXPECT_LE(s.store->stat()->stored_bytes, s.options.quota_bytes);
  EXPECT_EQ(200 - n_left, s.events.size());
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(i >= 200 - n_left, s.has(i)) << i;
  EXPECT_OK(s.store->for_each(true, [](const ChunkMeta&, const std::string&) { return 0; }));
}

TEST(StoreEvict, PinnedChunksStay) {
  Small s(3);
  s.put_all(0, 2);
  EXPECT_OK(s.store->pin(s.id(0), true));
  EXPECT_OK(s.store->pin(s.id(0), true));
  EXPECT_EQ(1u, s.store->stat()->totals.pinned_chunks);
  EXPECT_EQ(kFootprint, s.store->stat()->totals.pinned_bytes);
  s.put_all(3, 5);
  EXPECT_TRUE(s.has(0));
  EXPECT_TRUE(s.store->use(s.id(0))->pinned);
  s.put(0);  // replaced, it stays pinned
  EXPECT_TRUE(s.store->use(s.id(0))->pinned);
  EXPECT_EQ(1u, s.store->stat()->totals.pinned_chunks);
  EXPECT_OK(s.store->pin(s.id(4), true));
  EXPECT_OK(s.store->pin(s.id(5), true));
  const Status full = s.store->put(*s.chunk(6));
  EXPECT_EQ(BLEND_E_FULL, full.code());
  EXPECT_NE(std::string::npos, full.message().find("pinned")) << full.message();
  s.put(4);  // a replacement needs no room
  s.open();
  EXPECT_EQ(3u, s.store->stat()->totals.pinned_chunks);
  EXPECT_OK(s.store->pin(s.id(0), false));
  s.put(6);
  EXPECT_EQ((Set{4, 5, 6}), s.held(8));
  EXPECT_OK(s.store->remove(s.id(4)));
  EXPECT_EQ(1u, s.store->stat()->totals.pinned_chunks);
  EXPECT_EQ(kFootprint, s.store->stat()->totals.pinned_bytes);
  EXPECT_CODE(BLEND_E_NOT_FOUND, s.store->pin(s.id(99), true));
  EXPECT_OK(s.store->put_async(s.chunk(7)));
  EXPECT_OK(s.store->pin(s.id(7), true));  // waits for its write
  EXPECT_TRUE(s.store->use(s.id(7))->pinned);
}

TEST(StoreEvict, TenantsKeepToTheirOwnQuota) {
  StoreOptions o;
  o.tenant_quota_bytes = 2 * kFootprint;
  Small s(6, o);
  s.put(0, "a");
  s.put(1, "b");
  s.put(2, "a");
  s.put(3, "a");  // its own oldest goes
  EXPECT_EQ((Set{1, 2, 3}), s.held(8));
  EXPECT_EQ(2 * kFootprint, s.store->tenant(tenant_tag("a"))->footprint);
  EXPECT_EQ(1u, s.store->tenant(tenant_tag("b"))->n_chunks);
  EXPECT_EQ(2 * kFootprint, s.store->tenant(tenant_tag("b"))->quota);
  EXPECT_OK(s.store->set_tenant_quota(tenant_tag("a"), 3 * kFootprint));
  s.open();
  s.put(4, "a");
  EXPECT_EQ((Set{1, 2, 3, 4}), s.held(8));
  EXPECT_OK(s.store->set_tenant_quota(tenant_tag("a"), 0));
  s.put(5, "a");  // now two are too many, and one comes
  EXPECT_EQ((Set{1, 4, 5}), s.held(8));
  // Everyone together keeps the store's quota, oldest first, whoever's they are.
  for (uint32_t i = 10; i < 14; ++i) s.put(i, "");
  EXPECT_EQ((Set{4, 5, 10, 11, 12, 13}), s.held(16));
  EXPECT_EQ(0u, s.store->tenant(tenant_tag("b"))->n_chunks);
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, s.store->set_tenant_quota(tenant_tag(""), 1));
  auto large = make_record(70, {4, 64, 64, DType::f16});
  large->meta.tenant = tenant_tag("c");
  EXPECT_CODE(BLEND_E_FULL, s.store->put(*large));
}

TEST(StoreEvict, ChunksExpireWhenNobodyUsesThem) {
  Small s(8);
  s.put_all(0, 2);
  s.options.ttl_s = 1;
  s.open();
  EXPECT_EQ((Set{0, 1, 2}), s.held(4));
  EXPECT_OK(s.store->pin(s.id(2), true));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_OK(compare(*s.store, *s.chunk(1)));  // renews it, before any batch is written
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ((Set{1, 2}), s.held(4));
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*s.store, *s.chunk(0)));
  EXPECT_EQ(3u, s.store->stat()->n_chunks);
  s.put(3);  // and any put sweeps
  EXPECT_EQ(3u, s.store->stat()->n_chunks);
  EXPECT_EQ(1u, s.store->stat()->totals.expired_chunks);
  EXPECT_EQ((Set{1, 2, 3}), s.held(4));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  uint64_t n = 0;
  EXPECT_OK(s.store->evict(s.options.quota_bytes, &n));
  EXPECT_EQ(2u, n);
  EXPECT_EQ((Set{2}), s.held(4));
}

TEST(StoreEvict, EvictOnRequest) {
  Small s(10);
  s.put_all(0, 9);
  uint64_t n = 0;
  EXPECT_OK(s.store->evict(4 * kFootprint, &n));
  EXPECT_EQ(6u, n);
  EXPECT_EQ((Set{6, 7, 8, 9}), s.held(10));
  EXPECT_OK(s.store->pin(s.id(7), true));
  EXPECT_CODE(BLEND_E_FULL, s.store->evict(0, &n));
  EXPECT_EQ(3u, n);
  EXPECT_EQ((Set{7}), s.held(10));
  EXPECT_CODE(BLEND_E_FULL, s.store->evict(0, &n));
  EXPECT_EQ(0u, n);
  // Evicted chunks are counted, though in the end something was in the way.
  const UseTotals totals = s.store->stat()->totals;
  EXPECT_EQ(9u, totals.evicted_chunks);
  EXPECT_EQ(9 * kFootprint, totals.evicted_bytes);
  EXPECT_EQ(1u, totals.pinned_chunks);
  StoreOptions read_only;
  read_only.read_only = true;
  auto reader = open_store(s.dir.path(), read_only);
  EXPECT_CODE(BLEND_E_READ_ONLY, reader->evict(0, &n));
  EXPECT_CODE(BLEND_E_READ_ONLY, reader->pin(s.id(7), false));
  EXPECT_CODE(BLEND_E_READ_ONLY, reader->set_tenant_quota(tenant_tag("a"), 1));
  EXPECT_OK(compare(*reader, *s.chunk(7)));
}

TEST(StoreEvict, AgreesWithAModelOfItOverRandomSteps) {
  // Least recently used with pins, by an independent list.
  Small s(12);
  std::mt19937 rng(5);
  std::deque<uint32_t> order;  // oldest first
  std::set<uint32_t> pinned;
  for (int step = 0; step < 600; ++step) {
    const uint32_t i = rng() % 40;
    const auto at = std::find(order.begin(), order.end(), i);
    const bool there = at != order.end() || pinned.contains(i);
    switch (rng() % 8) {
      case 0:
      case 1:
      case 2: {
        if (!there && order.empty()) break;
        s.put(i);
        if (!there && order.size() + pinned.size() == 12) order.pop_front();
        if (!pinned.contains(i)) {
          std::erase(order, i);
          order.push_back(i);
        }
        break;
      }
      case 3:
        if (pinned.size() < 6 && there) {
          EXPECT_OK(s.store->pin(s.id(i), true));
          std::erase(order, i);
          pinned.insert(i);
        }
        break;
      case 4:
        if (pinned.erase(i) > 0) {
          EXPECT_OK(s.store->pin(s.id(i), false));
          EXPECT_OK(compare(*s.store, *s.chunk(i)));  // its age is nobody's business here
          order.push_back(i);
        }
        break;
      case 5:
        EXPECT_EQ(there ? BLEND_OK : BLEND_E_NOT_FOUND, s.store->remove(s.id(i)).code());
        std::erase(order, i);
        pinned.erase(i);
        break;
      default:
        EXPECT_EQ(there ? BLEND_OK : BLEND_E_NOT_FOUND, compare(*s.store, *s.chunk(i)).code());
        if (at != order.end()) {
          order.erase(at);
          order.push_back(i);
        }
    }
    if (order.empty()) {
      s.put(50);
      order.push_back(50);
    }
    if (step % 60 == 59) s.open();
    if (step % 20 == 19) {
      Set want(order.begin(), order.end());
      want.insert(pinned.begin(), pinned.end());
      ASSERT_EQ(want, s.held(51)) << "step " << step;
      ASSERT_EQ(pinned.size(), s.store->stat()->totals.pinned_chunks);
      ASSERT_EQ(want.size() * kFootprint, s.store->stat()->stored_bytes);
    }
  }
}

// Changes an index of the store as damage would.
void change_index(const std::string& path, const char* name, bool drop, bool values) {
  MDB_env* env = nullptr;
  ASSERT_EQ(0, mdb_env_create(&env));
  mdb_env_set_maxdbs(env, 8);
  ASSERT_EQ(0, mdb_env_open(env, path.c_str(), 0, 0666));
  MDB_txn* txn = nullptr;
  MDB_dbi dbi = 0;
  ASSERT_EQ(0, mdb_txn_begin(env, nullptr, 0, &txn));
  ASSERT_EQ(0, mdb_dbi_open(txn, name, 0, &dbi));
  if (drop) {
    ASSERT_EQ(0, mdb_drop(txn, dbi, 0));
  } else {
    MDB_cursor* cursor = nullptr;
    ASSERT_EQ(0, mdb_cursor_open(txn, dbi, &cursor));
    std::vector<std::pair<std::string, std::string>> all;
    MDB_val k{};
    MDB_val v{};
    while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) {
      all.emplace_back(std::string(static_cast<char*>(k.mv_data), k.mv_size),
                       std::string(static_cast<char*>(v.mv_data), v.mv_size));
    }
    mdb_cursor_close(cursor);
    ASSERT_EQ(0, mdb_drop(txn, dbi, 0));
    for (auto& [key, value] : all) {
      std::string& hit = values ? value : key;
      hit[hit.size() / 2] = static_cast<char>(hit[hit.size() / 2] ^ 0x10);
      k = {key.size(), key.data()};
      v = {value.size(), value.data()};
      ASSERT_EQ(0, mdb_put(txn, dbi, &k, &v, 0));
    }
  }
  ASSERT_EQ(0, mdb_txn_commit(txn));
  mdb_env_close(env);
}

TEST(StoreEvict, ADamagedIndexIsMadeAnew) {
  struct Damage {
    const char* name;
    bool drop, values;
  };
  for (const Damage d : {Damage{"order", true, false}, Damage{"order", false, false},
                         Damage{"uses", true, false}, Damage{"uses", false, true},
                         Damage{"uses", false, false}, Damage{"tenants", true, false}}) {
    Small s(6);
    s.put_all(0, 2);
    s.put(3, "a");
    s.put(4, "a");
    s.put(5);
    s.store.reset();
    change_index(s.dir.path(), d.name, d.drop, d.values);
    s.open();
    for (uint32_t i = 0; i < 6; ++i) EXPECT_OK(compare(*s.store, *s.chunk(i)));
    s.put_all(6, 16);
    EXPECT_EQ(6u, s.store->stat()->n_chunks) << d.name;
    EXPECT_EQ((Set{11, 12, 13, 14, 15, 16}), s.held(20)) << d.name;
    EXPECT_OK(s.store->pin(s.id(12), true));
  }
}

TEST(StoreEvict, AStoreWithoutAnIndexGetsOne) {
  Small s(4);
  s.put_all(0, 3);
  s.store.reset();
  MDB_env* env = nullptr;
  ASSERT_EQ(0, mdb_env_create(&env));
  mdb_env_set_maxdbs(env, 8);
  ASSERT_EQ(0, mdb_env_open(env, s.dir.path().c_str(), 0, 0666));
  MDB_txn* txn = nullptr;
  ASSERT_EQ(0, mdb_txn_begin(env, nullptr, 0, &txn));
  for (const char* name : {"uses", "order", "tenants"}) {
    MDB_dbi dbi = 0;
    ASSERT_EQ(0, mdb_dbi_open(txn, name, 0, &dbi));
    ASSERT_EQ(0, mdb_drop(txn, dbi, 1));
  }
  MDB_dbi info = 0;
  ASSERT_EQ(0, mdb_dbi_open(txn, "info", 0, &info));
  MDB_val key{4, const_cast<char*>("uses")};
  ASSERT_EQ(0, mdb_del(txn, info, &key, nullptr));
  ASSERT_EQ(0, mdb_txn_commit(txn));
  mdb_env_close(env);

  StoreOptions read_only;
  read_only.read_only = true;
  auto reader = open_store(s.dir.path(), read_only);  // nothing is known, nothing is changed
  EXPECT_OK(compare(*reader, *s.chunk(2)));
  EXPECT_CODE(BLEND_E_NOT_FOUND, reader->use(s.id(2)).status());
  EXPECT_EQ(0u, reader->stat()->newest_use_us);
  s.open();  // beside the reader
  s.put(4);
  EXPECT_FALSE(s.has(0));  // the oldest by its time of creation
  EXPECT_EQ(4u, s.store->stat()->n_chunks);
  EXPECT_OK(compare(*reader, *s.chunk(2)));
}

TEST(StoreEvict, ADeadReaderIsClearedByTheNextPut) {
  // Killed with a snapshot in its hands, it would keep every page that eviction frees from being
  // used again: the file would grow without bound.
  StoreOptions o;
  Small s(40, o);
  s.put(0);
  int ready[2];
  ASSERT_EQ(0, pipe(ready));
  const pid_t child = fork();
  if (child == 0) {
    auto own = Store::open(s.dir.path(), s.options, {});
    if (!own.is_ok()) _exit(1);
    auto snapshot = (*own)->snapshot();
    if (!snapshot.is_ok() || write(ready[1], "r", 1) != 1) _exit(2);
    pause();
    _exit(3);
  }
  char byte = 0;
  ASSERT_EQ(1, read(ready[0], &byte, 1));
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  for (uint32_t i = 0; i < 400; ++i) s.put(100 + i);
  EXPECT_LE(s.store->stat()->stored_bytes, s.options.quota_bytes);
  EXPECT_LT(s.store->stat()->file_bytes, 2 * s.options.quota_bytes + (1u << 20));
  close(ready[0]);
  close(ready[1]);
}

TEST(StoreEvict, SeveralProcessesAndThreadsKeepOneQuota) {
  Small s(24);
  std::vector<pid_t> children;
  for (uint32_t p = 0; p < 3; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      auto own = Store::open(s.dir.path(), s.options, {});
      if (!own.is_ok()) _exit(1);
      std::atomic<int> failed{0};
      std::thread reader([&] {
        std::mt19937 rng(p);
        for (int i = 0; i < 200 && failed == 0; ++i) {
          const Status got = compare(**own, *Small::chunk(rng() % 300));
          if (!got.is_ok() && got.code() != BLEND_E_NOT_FOUND) failed = 2;
        }
      });
      for (uint32_t i = 0; i < 60 && failed == 0; ++i) {
        const auto chunk = Small::chunk(p * 100 + i);
        const Status put = i % 2 == 0 ? (*own)->put(*chunk) : (*own)->put_async(chunk);
        if (!put.is_ok()) failed = 3;
      }
      if (!(*own)->flush().is_ok()) failed = 4;
      reader.join();
      own.value().reset();
      _exit(failed);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  s.open();
  const StoreStat stat = s.store->stat().value();
  EXPECT_EQ(24u, stat.n_chunks);
  EXPECT_EQ(24 * kFootprint, stat.stored_bytes);
  EXPECT_EQ(180u - 24u, stat.totals.evicted_chunks);
  EXPECT_OK(s.store->for_each(true, [](const ChunkMeta&, const std::string& problem) {
    EXPECT_EQ("", problem);
    return 0;
  }));
}

}  // namespace
}  // namespace blend::test
