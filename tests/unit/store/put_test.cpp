// Puts that share a transaction, and values whose pages are written before the commit.
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/environment.h"
#include "store/lmdb/writer/group_commit.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

// Puts under turns; each transaction is what the test says.
struct Turns {
  GroupCommit turns;
  std::mutex mutex;
  std::vector<std::vector<int32_t>> committed;  // first token of each put, by transaction
  std::vector<std::shared_ptr<ChunkRecord>> records;

  explicit Turns(uint64_t most_bytes = 1 << 30) : turns(most_bytes) {}

  Status put(const std::shared_ptr<ChunkRecord>& record,
             const std::function<Status()>& transaction) {
    const EncodedChunk chunk = take(encode_chunk(*record, Codec::none));
    GroupCommit::Put turn(chunk, record->meta.tenant);
    GroupCommit::Put* const one = &turn;
    turns.run({&one, 1}, transaction);
    return turn.status();
  }
  std::vector<int32_t> take_all() {
    std::vector<int32_t> taken;
    while (GroupCommit::Put* put = turns.take()) {
      taken.push_back(put->chunk->manifest.meta.tokens[0]);
    }
    return taken;
  }
  Status commit() {
    const std::vector<int32_t> taken = take_all();
    const std::lock_guard lock(mutex);
    committed.push_back(taken);
    turns.finish();
    return Status::ok();
  }
  // The first put's transaction begins when `records` wait after it; all of them run
  // `transaction`.
  std::vector<Status> all_at_once(const std::function<Status()>& transaction) {
    std::vector<Status> done(records.size());
    std::atomic<bool> go{false};
    std::atomic<bool> first{true};
    std::atomic<size_t> n_waiting{0};
    std::vector<std::thread> threads;
    const auto led = [&] {
      while (first && !go) std::this_thread::yield();
      first = false;
      return transaction();
    };
    for (size_t i = 0; i < records.size(); ++i) {
      threads.emplace_back([&, i] {
        ++n_waiting;
        done[i] = put(records[i], led);
      });
      while (n_waiting <= i) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(3));  // in this order, as a rule
    }
    go = true;
    for (std::thread& t : threads) t.join();
    return done;
  }
};

TEST(GroupCommit, ThoseThatWaitShareATransaction) {
  Turns t;
  for (uint32_t i = 1; i <= 5; ++i) t.records.push_back(make_record(i));
  for (const Status& s : t.all_at_once([&] { return t.commit(); })) EXPECT_OK(s);
  ASSERT_EQ(1u, t.committed.size());
  EXPECT_EQ(5u, t.committed[0].size());
  EXPECT_OK(t.put(make_record(6), [&] { return t.commit(); }));
  EXPECT_EQ((std::vector<int32_t>{6}), t.committed[1]);
}

TEST(GroupCommit, TwoOfOneIdAndTooManyBytesDoNot) {
  const auto bytes = encode_chunk(*make_record(1), Codec::none)->manifest.footprint();
  Turns t(2 * bytes);
  for (const uint32_t i : {1u, 1u, 2u, 3u, 4u}) t.records.push_back(make_record(i));
  for (const Status& s : t.all_at_once([&] { return t.commit(); })) EXPECT_OK(s);
  size_t n = 0;
  for (const auto& group : t.committed) {
    EXPECT_LE(group.size(), 2u);
    EXPECT_LE(std::count(group.begin(), group.end(), 1), 1);
    n += group.size();
  }
  EXPECT_EQ(5u, n);
  // Larger than the bound: alone, not never.
  EXPECT_OK(t.put(make_record(9, {8, 512, 64, DType::f16}), [&] { return t.commit(); }));
}

TEST(GroupCommit, WhatOneMetIsNotTheOthers) {
  Turns t;
  for (uint32_t i = 1; i <= 4; ++i) t.records.push_back(make_record(i));
  std::atomic<int> n_transactions{0};
  const auto done = t.all_at_once([&] {
    ++n_transactions;
    const std::vector<int32_t> taken = t.take_all();
    if (std::count(taken.begin(), taken.end(), 3) != 0) {
      t.turns.fail({BLEND_E_FULL, "no room"});
    } else {
      t.turns.finish();
    }
    return Status::ok();
  });
  for (uint32_t i = 1; i <= 4; ++i) EXPECT_EQ(i == 3 ? BLEND_E_FULL : BLEND_OK, done[i - 1].code());
  EXPECT_EQ(5, n_transactions);  // all together, then each alone
}

TEST(GroupCommit, NoMemoryAndNoTransactionSettleThoseThatWereTaken) {
  Turns t;
  for (uint32_t i = 1; i <= 3; ++i) t.records.push_back(make_record(i));
  const auto done = t.all_at_once([&]() -> Status {
    (void)t.take_all();
    throw std::bad_alloc();
  });
  for (const Status& s : done) EXPECT_CODE(BLEND_E_OUT_OF_MEMORY, s);
  EXPECT_CODE(BLEND_E_IO, t.put(make_record(4), [&] {
    (void)t.turns.take();
    return Status{BLEND_E_IO, "cannot go on"};
  }));
  // Before it took anybody.
  for (const Status& s : t.all_at_once([] { return Status{BLEND_E_IO, "cannot begin"}; })) {
    EXPECT_CODE(BLEND_E_IO, s);
  }
  EXPECT_OK(t.put(make_record(5), [&] { return t.commit(); }));
}

TEST(GroupCommit, WhatIsGivenBackGoesFirstNextTime) {
  Turns t;
  int n = 0;
  EXPECT_OK(t.put(make_record(1), [&] {
    EXPECT_NE(nullptr, t.turns.take());
    if (++n == 1) {
      t.turns.give_back();
      return Status::ok();  // it only made room
    }
    t.turns.finish();
    return Status::ok();
  }));
  EXPECT_EQ(2, n);
}

TEST(StorePut, ManyThreadsEachGetTheirOwnAnswer) {
  TempDir dir;
  StoreOptions options;
  options.quota_bytes = 4 << 20;
  auto store = open_store(dir.path(), options);
  // 64 KiB each; every eighth is larger than the quota.
  const auto record = [](uint32_t i) {
    return make_record(
        i, i % 8 == 7 ? ChunkShape{8, 512, 512, DType::f16} : ChunkShape{1, 64, 256, DType::f16});
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 8; ++i) {
        const auto r = record(8 * t + i);
        EXPECT_EQ(i == 7 ? BLEND_E_FULL : BLEND_OK, store->put(*r).code());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  store.reset();
  store = open_store(dir.path(), options);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(i % 8 == 7 ? BLEND_E_NOT_FOUND : BLEND_OK, compare(*store, *record(i)).code());
  }
  EXPECT_EQ(28u, store->stat()->n_chunks);
}

TEST(StorePut, PlacedValuesOfEveryLengthAreReadAndFreed) {
  TempDir dir;
  StoreOptions options;
  options.quota_bytes = 64 << 20;
  auto store = open_store(dir.path(), options);
  const auto env = take(LmdbEnv::acquire(dir.path(), nullptr, false, 1));
  if (env->placing() == LmdbEnv::Placing::off) GTEST_SKIP() << "not with this LMDB";
  // Around the pieces' length, the pages' and the least that is placed: 2 * tokens * 8 bytes.
  std::vector<std::shared_ptr<ChunkRecord>> records;
  for (const uint32_t bytes : {1u << 20, (1u << 20) - 16, (1u << 20) + 16, 65536u, 65520u, 65552u,
                               69632u, 69616u, 3u << 20, (2u << 20) - 32}) {
    for (const uint32_t more : {0u, 16u}) {
      records.push_back(make_record(static_cast<uint32_t>(records.size()),
                                    {1, (bytes + more) / 16, 4, DType::f16}));
    }
  }
  for (const auto& r : records) EXPECT_OK(store->put(*r));
  EXPECT_EQ(LmdbEnv::Placing::on, env->placing());
  for (const auto& r : records) EXPECT_OK(compare(*store, *r));
  for (size_t i = 0; i < records.size(); i += 2) EXPECT_OK(store->remove(records[i]->meta.id));
  // Into pages that were freed, and past what the page cache may remember of them.
  for (size_t i = 0; i < records.size(); i += 2) {
    records[i] = make_record(static_cast<uint32_t>(100 + i), records[i]->meta.shape);
    EXPECT_OK(store->put(*records[i]));
  }
  for (const ReadMode mode : {ReadMode::best, ReadMode::threads, ReadMode::mapped}) {
    options.read_mode = mode;
    auto other = Store::open(dir.path(), options, {});
    if (other.status().code() == BLEND_E_UNSUPPORTED) continue;  // no O_DIRECT on this file system
    for (const auto& r : records) EXPECT_OK(compare(**other, *r));
  }
  EXPECT_OK(store->for_each(true, [](const ChunkMeta&, const std::string&) { return 0; }));
  EXPECT_EQ(records.size(), store->stat()->n_chunks);
}

}  // namespace
}  // namespace blend::test
