// Hints and the memory tier: what is needed stays, and is in memory when it is needed.
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "store/lmdb/catalog/manifest.h"
#include "store/ram/ram_tier.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr ChunkShape kChunk{4, 64, 32, DType::f16};  // 4 layers of 8 KiB
constexpr uint64_t kBytes = 4 * 8192;
const uint64_t kFootprint =
    encode_chunk(*make_record(0, kChunk), Codec::none).value().manifest.footprint();

std::shared_ptr<ChunkRecord> chunk(uint32_t i) { return make_record(i, kChunk); }
Sha256 id(uint32_t i) { return chunk(i)->meta.id; }
std::vector<Sha256> ids(std::initializer_list<uint32_t> list) {
  std::vector<Sha256> out;
  for (const uint32_t i : list) out.push_back(id(i));
  return out;
}

RamTier::Layer bytes_of(size_t n, uint8_t fill) {
  const auto owner = std::make_shared<std::vector<std::byte>>(n, std::byte{fill});
  return {owner, owner->data()};
}

void fill(RamTier& tier, uint32_t i, uint64_t version = 0) {
  for (uint32_t l = 0; l < kChunk.n_layers; ++l) {
    tier.put({id(i), version}, kChunk, l, bytes_of(kChunk.layer_bytes(0), static_cast<uint8_t>(i)));
  }
}

TEST(RamTier, KeepsItsBudgetAndDropsTheOldest) {
  RamTier tier(3 * kBytes);
  for (uint32_t i = 0; i < 3; ++i) fill(tier, i);
  EXPECT_EQ(3 * kBytes, tier.stat().bytes);
  EXPECT_TRUE(tier.complete({id(0), 0}));
  ASSERT_NE(nullptr, tier.find({id(0), 0}, 2));  // a hit
  fill(tier, 3);
  EXPECT_LE(tier.stat().bytes, tier.budget());
  EXPECT_TRUE(tier.complete({id(0), 0}));
  EXPECT_FALSE(tier.complete({id(1), 0}));
  EXPECT_EQ(std::byte{3}, *tier.find({id(3), 0}, 0));
  tier.drop(id(0));
  tier.drop(id(0));
  EXPECT_EQ(nullptr, tier.find({id(0), 0}, 0));
  EXPECT_EQ(2 * kBytes, tier.stat().bytes);
  EXPECT_EQ(2u, tier.stat().n_chunks);
}

TEST(RamTier, NeverServesAnotherVersion) {
  RamTier tier(4 * kBytes);
  fill(tier, 1, 7);
  EXPECT_FALSE(tier.complete({id(1), 8}));
  EXPECT_EQ(nullptr, tier.find({id(1), 8}, 0));  // and lets the old one go
  EXPECT_EQ(0u, tier.stat().bytes);
  fill(tier, 1, 7);
  fill(tier, 1, 8);
  EXPECT_TRUE(tier.complete({id(1), 8}));
  EXPECT_EQ(kBytes, tier.stat().bytes);
}

TEST(RamTier, WhatCannotBeWholeIsNotBegun) {
  RamTier tier(kBytes - 1);
  EXPECT_FALSE(tier.put({id(1), 0}, kChunk, 0, bytes_of(kChunk.layer_bytes(0), 1)));
  EXPECT_FALSE(tier.put({id(1), 0}, kChunk, 9, bytes_of(kChunk.layer_bytes(0), 1)));
  EXPECT_EQ(0u, tier.stat().bytes);
}

TEST(RamTier, WantedChunksStayTheLastGoFirst) {
  RamTier tier(3 * kBytes);
  tier.want(ids({2, 1, 0}));
  for (uint32_t i = 0; i < 3; ++i) fill(tier, i);
  fill(tier, 9);  // nobody wants it
  EXPECT_FALSE(tier.complete({id(9), 0}));
  EXPECT_EQ(3u, tier.stat().n_chunks);
  tier.want(ids({5, 2, 1, 0}));
  fill(tier, 5);
  EXPECT_TRUE(tier.complete({id(5), 0}));
  EXPECT_FALSE(tier.complete({id(0), 0}));  // needed last
  EXPECT_TRUE(tier.complete({id(1), 0}));
  tier.want({});
  fill(tier, 9);
  EXPECT_TRUE(tier.complete({id(9), 0}));
}

struct World {
  explicit World(uint64_t n, uint64_t ram = 0, Eviction eviction = Eviction::lru) {
    StoreOptions o;
    o.quota_bytes = n * kFootprint;
    o.ram_bytes = ram * kBytes;
    o.eviction = eviction;
    store = open_store(dir.path(), o);
  }
  bool has(uint32_t i) { return store->contains(id(i)).value(); }
  // Reading ahead goes on in the background.
  bool reaches(const std::function<bool(const StoreStat&)>& state) {
    for (int i = 0; i < 20'000; ++i) {
      if (state(store->stat().value())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  TempDir dir;
  std::shared_ptr<Store> store;
};

TEST(StoreHint, WhatIsNeededStaysAndWhatIsNeededLastGoesFirst) {
  for (const Eviction eviction : {Eviction::lru, Eviction::fifo}) {
    World w(8, 0, eviction);
    for (uint32_t i = 0; i < 8; ++i) EXPECT_OK(w.store->put(*chunk(i)));
    // Six fit the window of three quarters; 6 is beyond it.
    EXPECT_OK(w.store->hint(ids({1, 0, 3, 2, 5, 4, 6})));
    EXPECT_OK(w.store->put(*chunk(20)));
    EXPECT_FALSE(w.has(7));  // the only one that nobody needs, though the youngest
    EXPECT_OK(w.store->put(*chunk(21)));
    EXPECT_FALSE(w.has(20));
    EXPECT_OK(w.store->put(*chunk(22)));
    EXPECT_TRUE(w.has(6));  // beyond the window, but the unneeded go before it
    EXPECT_OK(w.store->pin(id(22), true));
    EXPECT_OK(w.store->put(*chunk(23)));
    EXPECT_FALSE(w.has(6));
    EXPECT_OK(w.store->pin(id(23), true));
    const Status full = w.store->put(*chunk(24));  // nobody needs it: nothing that is needed goes
    EXPECT_EQ(BLEND_E_FULL, full.code());
    EXPECT_NE(std::string::npos, full.message().find("hint")) << full.message();
    for (uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(w.has(i)) << i;
    // A chunk that is needed itself takes the place of what is needed after it.
    EXPECT_OK(w.store->hint(ids({1, 0, 30, 3, 2, 5, 4})));
    EXPECT_OK(w.store->put(*chunk(30)));
    EXPECT_FALSE(w.has(4));
    for (const uint32_t i : {0u, 1u, 2u, 3u, 5u, 30u}) EXPECT_TRUE(w.has(i)) << i;
    // Without a hint it is as before.
    EXPECT_OK(w.store->hint({}));
    EXPECT_OK(w.store->put(*chunk(31)));
    EXPECT_EQ(8u, w.store->stat()->n_chunks);
  }
}

TEST(StoreHint, ChunksAreInMemoryWhenTheyAreNeeded) {
  World w(20, 3);
  for (uint32_t i = 0; i < 6; ++i) EXPECT_OK(w.store->put(*chunk(i)));
  EXPECT_EQ(0u, w.store->stat()->ram_bytes);
  EXPECT_OK(w.store->hint(ids({4, 99, 4, 0})));
  EXPECT_TRUE(w.reaches([](const StoreStat& s) { return s.prefetched == 2; }));
  EXPECT_EQ(2 * kBytes, w.store->stat()->ram_bytes);
  EXPECT_OK(compare(*w.store, *chunk(4)));
  EXPECT_OK(compare(*w.store, *chunk(0)));
  EXPECT_EQ(2u, w.store->stat()->ram_hits);
  EXPECT_OK(compare(*w.store, *chunk(5)));  // from disk, and kept
  EXPECT_EQ(2u, w.store->stat()->ram_hits);
  EXPECT_OK(compare(*w.store, *chunk(5)));
  EXPECT_EQ(3u, w.store->stat()->ram_hits);
  EXPECT_EQ(3 * kBytes, w.store->stat()->ram_bytes);
  // The next queue: only as much as fits, the first first.
  EXPECT_OK(w.store->hint(ids({1, 2, 3, 0, 4})));
  EXPECT_TRUE(w.reaches([](const StoreStat& s) { return s.prefetched >= 4; }));
  EXPECT_LE(w.store->stat()->ram_bytes, 3 * kBytes);
  EXPECT_OK(compare(*w.store, *chunk(1)));
  EXPECT_OK(compare(*w.store, *chunk(2)));
  EXPECT_EQ(5u, w.store->stat()->ram_hits);
}

TEST(StoreRam, WhatIsReplacedRemovedOrEvictedIsNotServed) {
  World w(4, 8);
  auto other = open_store(w.dir.path());  // as another process would
  EXPECT_OK(w.store->put_async(chunk(1)));
  EXPECT_OK(w.store->flush());
  EXPECT_EQ(kBytes, w.store->stat()->ram_bytes);  // what is put in the background is kept at once
  EXPECT_OK(compare(*w.store, *chunk(1)));
  EXPECT_EQ(1u, w.store->stat()->ram_hits);
  auto changed = make_record(50, kChunk);
  changed->meta.id = id(1);
  EXPECT_OK(other->put(*changed));
  EXPECT_OK(compare(*w.store, *changed));
  EXPECT_OK(compare(*w.store, *changed));
  EXPECT_EQ(2u, w.store->stat()->ram_hits);
  EXPECT_OK(other->remove(id(1)));
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*w.store, *changed));
  EXPECT_OK(w.store->put_async(chunk(2)));
  EXPECT_OK(w.store->flush());
  for (uint32_t i = 10; i < 14; ++i) EXPECT_OK(w.store->put(*chunk(i)));
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*w.store, *chunk(2)));
  EXPECT_OK(w.store->remove(id(10)));
  EXPECT_EQ(0u, [&] {
    (void)compare(*w.store, *chunk(10));
    RamTier probe(1);
    return probe.stat().bytes;
  }());
}

TEST(StoreRam, ASnapshotOfBeforeStillReadsTheOldBytes) {
  World w(8, 8);
  EXPECT_OK(w.store->put_async(chunk(1)));
  EXPECT_OK(w.store->flush());
  auto before = take(w.store->snapshot());
  auto changed = make_record(50, kChunk);
  changed->meta.id = id(1);
  EXPECT_OK(w.store->put_async(changed));
  EXPECT_OK(w.store->flush());
  EXPECT_OK(compare(*take(before->open(id(1))), *chunk(1)));
  EXPECT_OK(compare(*w.store, *changed));
  EXPECT_OK(compare(*take(before->open(id(1))), *chunk(1)));
}

// Layers that lie in memory which a device reads are not copied to the reader's ring; what another
// thread drops stays for whoever has its rows.
TEST(StoreRam, RowsThatADeviceReadsAreHandedOnWhereTheyLie) {
  for (const bool put_here : {true, false}) {  // or read from disk by the first look-up
    TempDir dir;
    std::map<const std::byte*, size_t> given;  // and not taken back
    size_t n_given = 0;
    StoreOptions options;
    options.ram_bytes = 8 * kBytes;
    options.host_memory = [&](size_t bytes) {
      auto* const p = new std::byte[bytes];
      given[p] = bytes;
      ++n_given;
      return std::shared_ptr<std::byte>(p, [&](std::byte* at) {
        std::memset(at, 0, given[at]);
        given.erase(at);
        delete[] at;
      });
    };
    auto store = take(Store::open(dir.path(), options, {}));
    const auto want = chunk(1);
    if (put_here) {
      EXPECT_OK(store->put_async(want));
      EXPECT_OK(store->flush());
    } else {
      EXPECT_OK(store->put(*want));
      EXPECT_OK(compare(*store, *want));
    }
    EXPECT_EQ(kChunk.n_layers, n_given);
    auto snapshot = take(store->snapshot());
    auto source = take(snapshot->open(id(1)));
    auto space = take(AlignedBuffer::allocate(source->stage_bytes()));
    std::vector<RowRun> rows;
    source->start_layer(0, space.data());
    EXPECT_OK(source->finish_layer(0, space.data(), rows));
    ASSERT_EQ(1u, rows.size());
    const auto owner = given.upper_bound(rows[0].k);
    ASSERT_TRUE(owner != given.begin());
    EXPECT_LT(rows[0].k, std::prev(owner)->first + std::prev(owner)->second) << "a copy";
    EXPECT_EQ(Origin::memory, source->origin());
    EXPECT_OK(store->remove(id(1)));
    source->abandon();  // as a reader does when it has staged the last layer
    EXPECT_EQ(1u, given.size()) << "the layer that is in use, and no other";
    EXPECT_EQ(0, std::memcmp(rows[0].k, want->k(0), kChunk.plane_bytes(0)));
    EXPECT_EQ(0, std::memcmp(rows[0].v, want->v(0), kChunk.plane_bytes(0)));
    source->start_layer(1, space.data());
    EXPECT_EQ(0u, given.size());
    EXPECT_OK(source->finish_layer(1, space.data(), rows));  // from disk: the snapshot has it
    EXPECT_EQ(0, std::memcmp(rows[0].k, want->k(1), kChunk.plane_bytes(0)));
    source.reset();
    snapshot.reset();
    store.reset();
  }
}

TEST(StoreRam, ReadersHintsAndPutsAtOnce) {
  World w(12, 4);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(t);
      while (!done) {
        const Status got = compare(*w.store, *chunk(rng() % 24));
        EXPECT_TRUE(got.is_ok() || got.code() == BLEND_E_NOT_FOUND) << got.message();
      }
    });
  }
  threads.emplace_back([&] {
    std::mt19937 rng(7);
    while (!done) {
      std::vector<Sha256> queue;
      for (int i = 0; i < 8; ++i) queue.push_back(id(rng() % 24));
      EXPECT_OK(w.store->hint(queue));
      std::this_thread::yield();
    }
  });
  for (uint32_t i = 0; i < 120; ++i) {
    const Status put =
        i % 2 == 0 ? w.store->put(*chunk(i % 24)) : w.store->put_async(chunk(i % 24));
    EXPECT_TRUE(put.is_ok() || put.code() == BLEND_E_FULL) << put.message();
  }
  (void)w.store->flush();
  done = true;
  for (auto& t : threads) t.join();
  EXPECT_LE(w.store->stat()->ram_bytes, 4 * kBytes);
  EXPECT_OK(w.store->for_each(true, [](const ChunkMeta&, const std::string&) { return 0; }));
}

TEST(StoreRam, AStoreClosesWhileItReadsAhead) {
  for (int round = 0; round < 200; ++round) {
    World w(8, 8);
    for (uint32_t i = 0; i < 4; ++i) EXPECT_OK(w.store->put(*chunk(i)));
    EXPECT_OK(w.store->hint(std::vector<Sha256>{id(0), id(1), id(2), id(3)}));
    if (round % 2 == 0) std::this_thread::yield();
  }
}

TEST(StoreWait, TellsWhatBecameOfEachBackgroundPut) {
  World w(2);
  bool pending = false;
  EXPECT_CODE(BLEND_E_NOT_FOUND, w.store->wait(id(1), std::nullopt, &pending));
  EXPECT_OK(w.store->put_async(chunk(1)));
  const auto large = make_record(2, {40, 64, 32, DType::f16});
  EXPECT_OK(w.store->put_async(large));
  EXPECT_OK(w.store->put_async(chunk(3)));
  EXPECT_OK(w.store->wait(id(1), std::nullopt, &pending));
  EXPECT_FALSE(pending);
  EXPECT_CODE(BLEND_E_FULL, w.store->wait(large->meta.id, std::nullopt, &pending));
  EXPECT_OK(w.store->wait(id(3), std::nullopt, &pending));
  EXPECT_CODE(BLEND_E_FULL, w.store->wait(large->meta.id, std::nullopt, &pending));  // still
  EXPECT_CODE(BLEND_E_FULL, w.store->flush());
  // Put again, in a form that fits: the old error is history.
  auto small = make_record(2, kChunk);
  small->meta.id = large->meta.id;
  EXPECT_OK(w.store->put_async(small));
  EXPECT_OK(w.store->wait(large->meta.id, std::nullopt, &pending));
  EXPECT_OK(w.store->remove(id(3)));
  EXPECT_CODE(BLEND_E_NOT_FOUND, w.store->wait(id(3), std::nullopt, &pending));
}

}  // namespace
}  // namespace blend::test
