// The promises of Store on LMDB: what is put comes back, whole, counted, and only so.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <thread>

#include "store/lmdb/catalog/manifest.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

TEST(Store, RoundTripsEveryShape) {
  TempDir dir;
  std::vector<std::shared_ptr<ChunkRecord>> records;
  uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const ChunkShape& s : {ChunkShape{1, 1, 1, dtype}, ChunkShape{1, 7, 3, dtype},
                                ChunkShape{5, 1, 64, dtype}, ChunkShape{3, 33, 128, dtype},
                                // More than three pieces, layers across their borders.
                                ChunkShape{7, 257, 512, dtype}}) {
      records.push_back(make_record(seed++, s));
    }
  }
  // Exactly one piece, exactly two, and a byte's neighbour of each.
  records.push_back(make_record(seed++, {1, (kPieceBytes / 4), 1, DType::f16}));
  records.push_back(make_record(seed++, {1, (kPieceBytes / 4) + 1, 1, DType::f16}));
  records.push_back(make_record(seed++, {2, (kPieceBytes / 4), 1, DType::f16}));
  for (int reopened = 0; reopened < 2; ++reopened) {
    auto store = open_store(dir.file("s"));
    if (reopened == 0) {
      for (const auto& r : records) EXPECT_OK(store->put(*r));
    }
    for (const auto& r : records) EXPECT_OK(compare(*store, *r));
    EXPECT_OK(store->for_each(true, [](const ChunkMeta&, const std::string& problem) {
      EXPECT_EQ("", problem);
      return 0;
    }));
  }
}

TEST(Store, KeepsWhatWasSeenOfTheRows) {
  TempDir dir;
  const auto plain = make_record(1), seen = make_record(2);
  for (uint32_t i = 0; i < seen->meta.shape.n_tokens; ++i) {
    seen->meta.impact.push_back({0.5f / static_cast<float>(i + 1), i == 3 ? 0.0f : 1.0f});
  }
  auto part = make_record(3);
  part->meta.impact.resize(2);
  for (int reopened = 0; reopened < 2; ++reopened) {
    auto store = open_store(dir.path());
    if (reopened == 0) {
      EXPECT_OK(store->put(*plain));
      EXPECT_OK(store->put(*seen));
      EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, store->put(*part));
    }
    const auto snapshot = take(store->snapshot());
    EXPECT_TRUE((*snapshot->open(plain->meta.id))->meta().impact.empty());
    EXPECT_EQ(seen->meta.impact, (*snapshot->open(seen->meta.id))->meta().impact);
    EXPECT_OK(compare(*store, *seen));
  }
}

TEST(Store, AManifestWithImpossibleAttentionIsDamaged) {
  for (const float wrong : {-0.1f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    auto record = make_record(4);
    record->meta.impact.resize(record->meta.shape.n_tokens, {0.1f, 0.2f});
    record->meta.impact.back().inside = wrong;
    const std::string bytes = encode_manifest(encode_chunk(*record, Codec::none)->manifest);
    const auto decoded = decode_manifest(std::as_bytes(std::span(bytes)), record->meta.id);
    EXPECT_CODE(BLEND_E_CORRUPT, decoded.status());
  }
}

TEST(Store, ADraftHasContextPassages) {
  auto record = make_record(4);
  record->meta.draft = true;
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, check_record(*record));
  const std::string bytes = encode_manifest(encode_chunk(*record, Codec::none)->manifest);
  EXPECT_CODE(BLEND_E_CORRUPT,
              decode_manifest(std::as_bytes(std::span(bytes)), record->meta.id).status());
}

TEST(Store, MissingChunkIsNotFoundAndCounted) {
  TempDir dir;
  auto store = open_store(dir.path());
  const auto r = make_record(1);
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *r));
  EXPECT_FALSE(store->contains(r->meta.id).value());
  EXPECT_CODE(BLEND_E_NOT_FOUND, store->remove(r->meta.id));
  EXPECT_OK(store->put(*r));
  EXPECT_TRUE(store->contains(r->meta.id).value());
  EXPECT_OK(compare(*store, *r));
  const StoreStat s = store->stat().value();
  EXPECT_EQ(1u, s.hits);
  EXPECT_EQ(1u, s.misses);
  EXPECT_EQ(1u, s.written);
  EXPECT_EQ(0u, s.damaged);
}

TEST(Store, RefusesRecordsThatContradictThemselves) {
  TempDir dir;
  auto store = open_store(dir.path());
  auto tokens = make_record(1);
  tokens->meta.tokens.pop_back();
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, store->put(*tokens));
  auto bytes = make_record(1);
  bytes->meta.shape.n_layers += 1;
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, store->put(*bytes));
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, store->put_async(bytes));
  auto empty = make_record(1);
  empty->meta.shape.kv_dim = 0;
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, store->put(*empty));
  auto huge = make_record(1);
  huge->meta.shape = {0xffffffffu, 8, 0xffffffffu, DType::f32};
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, store->put(*huge));
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, store->put_async(nullptr));
  EXPECT_EQ(0u, store->stat()->n_chunks);
}

TEST(Store, CountersFollowPutReplaceAndRemove) {
  TempDir dir;
  const auto a = make_record(1, {2, 8, 16, DType::f16});
  const auto b = make_record(2, {3, 300, 256, DType::f32});
  const auto expect = [](Store& store, std::vector<const ChunkRecord*> records) {
    const StoreStat s = store.stat().value();
    uint64_t tokens = 0;
    uint64_t bytes = 0;
    for (const ChunkRecord* r : records) {
      tokens += r->meta.shape.n_tokens;
      bytes += r->data.bytes();
    }
    EXPECT_EQ(records.size(), s.n_chunks);
    EXPECT_EQ(tokens, s.n_tokens);
    EXPECT_EQ(bytes, s.bytes);
    EXPECT_GE(s.file_bytes, s.bytes);
  };
  auto store = open_store(dir.path());
  expect(*store, {});
  EXPECT_OK(store->put(*a));
  EXPECT_OK(store->put(*b));
  expect(*store, {a.get(), b.get()});
  EXPECT_OK(store->put(*b));
  expect(*store, {a.get(), b.get()});
  // The same id with other, fewer bytes: the new ones, and no stray pieces of the old.
  auto smaller = make_record(3, {1, 4, 8, DType::bf16});
  smaller->meta.id = b->meta.id;
  EXPECT_OK(store->put(*smaller));
  expect(*store, {a.get(), smaller.get()});
  EXPECT_OK(compare(*store, *smaller));
  EXPECT_OK(store->for_each(true, [](const ChunkMeta&, const std::string&) { return 0; }));
  EXPECT_OK(store->remove(a->meta.id));
  expect(*store, {smaller.get()});
  store.reset();
  store = open_store(dir.path());
  expect(*store, {smaller.get()});
  EXPECT_OK(store->remove(smaller->meta.id));
  expect(*store, {});
}

TEST(Store, ListsInOrderOfIdsAndStopsWhenAsked) {
  TempDir dir;
  auto store = open_store(dir.path());
  std::vector<Sha256> want;
  for (uint32_t i = 0; i < 20; ++i) {
    const auto r = make_record(i);
    want.push_back(r->meta.id);
    EXPECT_OK(i % 2 == 0 ? store->put(*r) : store->put_async(r));
  }
  std::sort(want.begin(), want.end());
  std::vector<Sha256> got;
  EXPECT_OK(store->for_each(false, [&](const ChunkMeta& meta, const std::string&) {
    got.push_back(meta.id);
    return 0;
  }));
  EXPECT_EQ(want, got);
  const Status stopped =
      store->for_each(true, [&, n = 0](auto&, auto&) mutable { return ++n == 3 ? 77 : 0; });
  EXPECT_EQ(BLEND_E_CALLBACK, stopped.code());
  EXPECT_EQ(77, stopped.detail());
  // A visitor may remove what it is shown.
  EXPECT_OK(store->for_each(false, [&](const ChunkMeta& meta, const std::string&) {
    return store->remove(meta.id).code();
  }));
  EXPECT_EQ(0u, store->stat()->n_chunks);
}

TEST(Store, SnapshotKeepsWhatIsRemovedOrReplaced) {
  TempDir dir;
  auto store = open_store(dir.path());
  const auto a = make_record(1, {4, 400, 256, DType::f16});
  const auto b = make_record(2, {4, 400, 256, DType::f16});
  EXPECT_OK(store->put(*a));
  EXPECT_OK(store->put(*b));
  auto before = take(store->snapshot());
  auto source = take(before->open(a->meta.id));
  EXPECT_OK(store->remove(a->meta.id));
  auto other = make_record(3, {4, 400, 256, DType::f16});
  other->meta.id = b->meta.id;
  EXPECT_OK(store->put(*other));
  for (uint32_t i = 10; i < 20; ++i) {  // would reuse pages that are free
    EXPECT_OK(store->put(*make_record(i, {4, 400, 256, DType::f16})));
  }
  EXPECT_OK(compare(*source, *a));
  EXPECT_OK(compare(*take(before->open(b->meta.id)), *b));
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *a));
  EXPECT_OK(compare(*store, *other));
}

TEST(Store, SnapshotMayMoveBetweenThreads) {
  TempDir dir;
  auto store = open_store(dir.path());
  const auto a = make_record(1);
  EXPECT_OK(store->put(*a));
  auto snapshot = take(store->snapshot());
  std::thread([&] {
    auto source = take(snapshot->open(a->meta.id));
    EXPECT_OK(compare(*source, *a));
    source.reset();
    snapshot.reset();
  }).join();
  EXPECT_OK(store->put(*make_record(2)));
}

TEST(Store, ReadsRefuseALayerThatIsNotThere) {
  TempDir dir;
  auto store = open_store(dir.path());
  const auto a = make_record(1);
  EXPECT_OK(store->put(*a));
  std::vector<std::byte> out(a->meta.shape.layer_bytes(0));
  auto snapshot = take(store->snapshot());
  auto disk = take(snapshot->open(a->meta.id));
  disk->prefetch(99);
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, disk->read_layer(2, out.data()));
  auto memory = make_memory_source(a);
  memory->prefetch(99);
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, memory->read_layer(2, out.data()));
  EXPECT_OK(compare(*memory, *a));
}

TEST(Store, QuotaIsKeptAndNamed) {
  TempDir dir;
  StoreOptions options;
  options.quota_bytes = 3 << 20;
  options.eviction = Eviction::never;
  auto store = open_store(dir.path(), options);
  const ChunkShape mib{1, 512, 512, DType::f16};  // 1 MiB of K and V
  const auto a = make_record(1, mib);
  EXPECT_OK(store->put(*a));
  const auto b = make_record(2, mib);
  EXPECT_OK(store->put(*b));
  const auto c = make_record(3, mib);
  const Status full = store->put(*c);
  EXPECT_EQ(BLEND_E_FULL, full.code());
  EXPECT_NE(std::string::npos, full.message().find("3145728")) << full.message();
  EXPECT_NE(std::string::npos, full.message().find("quota_bytes")) << full.message();
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *c));
  EXPECT_OK(compare(*store, *a));
  EXPECT_EQ(2u, store->stat()->n_chunks);
  // A replacement needs no more room than the difference.
  EXPECT_OK(store->put(*a));
  EXPECT_OK(store->remove(a->meta.id));
  EXPECT_OK(store->put(*c));
  EXPECT_OK(compare(*store, *c));
}

TEST(Store, QuotaHoldsThroughHundredsOfReplacements) {
  // Freed pages come back: the file stays within its map however often chunks change.
  TempDir dir;
  StoreOptions options;
  options.quota_bytes = 8 << 20;
  auto store = open_store(dir.path(), options);
  std::vector<std::shared_ptr<ChunkRecord>> live;
  std::mt19937 rng(7);
  for (uint32_t i = 0; i < 150; ++i) {
    const ChunkShape shape{1 + static_cast<uint32_t>(rng() % 4),
                           1 + static_cast<uint32_t>(rng() % 500), 256, DType::f16};
    while (live.size() >= 4) {
      const size_t victim = rng() % live.size();
      ASSERT_TRUE(store->remove(live[victim]->meta.id).is_ok());
      live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
    }
    live.push_back(make_record(i, shape));
    const Status put = store->put(*live.back());
    ASSERT_TRUE(put.is_ok()) << i << ": " << put.message();
    if (i % 10 == 0) {  // the page walk at open must never complain about a sound store
      store.reset();
      store = open_store(dir.path(), options);
      ASSERT_NE(nullptr, store);
    }
  }
  for (const auto& r : live) EXPECT_OK(compare(*store, *r));
}

TEST(Store, ManySmallChunksGrowTheTreesAndReopen) {
  TempDir dir;
  auto store = open_store(dir.path());
  std::map<uint32_t, std::shared_ptr<ChunkRecord>> live;
  std::mt19937 rng(11);
  for (uint32_t i = 0; i < 400; ++i) {
    const auto r = make_record(i, {1, 1 + static_cast<uint32_t>(rng() % 900), 2, DType::f16});
    ASSERT_TRUE(store->put_async(r).is_ok());
    live[i] = r;
  }
  EXPECT_OK(store->flush());
  for (uint32_t i = 0; i < 400; i += 1 + rng() % 2) {
    ASSERT_TRUE(store->remove(live[i]->meta.id).is_ok());
    live.erase(i);
    if (i % 16 == 0) {
      store.reset();
      store = open_store(dir.path());
      ASSERT_NE(nullptr, store);
    }
  }
  EXPECT_EQ(live.size(), store->stat()->n_chunks);
  for (const auto& [i, r] : live) EXPECT_OK(compare(*store, *r));
}

TEST(Store, TwoObjectsOnOneDirectoryShareIt) {
  TempDir dir;
  std::filesystem::create_directory_symlink(dir.path(), dir.file("link"));
  auto one = open_store(dir.path());
  auto two = open_store(dir.file("link"));
  const auto a = make_record(1);
  EXPECT_OK(one->put(*a));
  EXPECT_OK(compare(*two, *a));
  const auto b = make_record(2);
  EXPECT_OK(two->put(*b));
  two.reset();
  EXPECT_OK(compare(*one, *b));  // closing one leaves the other's locks alone
  two = open_store(dir.path());
  one.reset();
  EXPECT_OK(compare(*two, *a));
}

TEST(Store, SecondObjectWithLargerQuotaGrowsTheMap) {
  TempDir dir;
  StoreOptions small;
  small.quota_bytes = 1 << 20;
  auto one = open_store(dir.path(), small);
  const auto a = make_record(1);
  EXPECT_OK(one->put(*a));
  auto snapshot = take(one->snapshot());
  auto two = open_store(dir.path());  // the map has to wait for the snapshot
  EXPECT_OK(compare(*take(snapshot->open(a->meta.id)), *a));
  EXPECT_OK(two->put(*make_record(2)));
  snapshot.reset();
  const auto big = make_record(3, {8, 2048, 1024, DType::f16});  // 64 MiB: past the small map
  EXPECT_OK(two->put(*big));
  EXPECT_OK(compare(*one, *big));
  EXPECT_CODE(BLEND_E_FULL, one->put(*make_record(4, {1, 512, 512, DType::f16})));
}

TEST(Store, OpenedAndClosedByManyThreadsAtOnce) {
  TempDir dir;
  const auto a = make_record(1);
  EXPECT_OK(open_store(dir.path())->put(*a));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        auto store = Store::open(dir.path(), {}, {});
        ASSERT_TRUE(store.is_ok()) << store.status().message();
        EXPECT_OK(compare(**store, *a));
      }
    });
  }
  for (auto& t : threads) t.join();
}

TEST(Store, ReadersAndAWriterAtOnce) {
  TempDir dir;
  auto store = open_store(dir.path());
  std::vector<std::shared_ptr<ChunkRecord>> records;
  for (uint32_t i = 0; i < 12; ++i) records.push_back(make_record(i, {3, 200, 128, DType::f16}));
  EXPECT_OK(store->put(*records[0]));
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      std::mt19937 rng(static_cast<uint32_t>(t));
      int hits = 0;
      while (!done || hits == 0) {
        const auto& r = records[rng() % records.size()];
        const Status s = compare(*store, *r);
        EXPECT_TRUE(s.is_ok() || s.code() == BLEND_E_NOT_FOUND) << s.message();
        hits += s.is_ok();
      }
    });
  }
  for (int round = 0; round < 4; ++round) {
    for (const auto& r : records) EXPECT_OK(round % 2 ? store->put_async(r) : store->put(*r));
    for (size_t i = 1; i < records.size(); i += 2) EXPECT_OK(store->remove(records[i]->meta.id));
  }
  done = true;
  for (auto& r : readers) r.join();
  EXPECT_OK(store->flush());
}

TEST(Store, ReadOnlyRefusesWritesAndNeverCreates) {
  TempDir dir;
  StoreOptions read_only;
  read_only.read_only = true;
  EXPECT_CODE(BLEND_E_NOT_FOUND, Store::open(dir.file("none"), read_only, {}).status());
  EXPECT_FALSE(std::filesystem::exists(dir.file("none")));
  EXPECT_CODE(BLEND_E_NOT_FOUND, Store::open(dir.path(), read_only, {}).status());
  EXPECT_FALSE(std::filesystem::exists(dir.file("data.mdb")));

  const auto a = make_record(1);
  for (const bool shared : {false, true}) {
    auto writer = open_store(dir.path());
    EXPECT_OK(writer->put(*a));
    if (!shared) writer.reset();
    auto reader = open_store(dir.path(), read_only);
    EXPECT_OK(compare(*reader, *a));
    EXPECT_CODE(BLEND_E_READ_ONLY, reader->put(*a));
    EXPECT_CODE(BLEND_E_READ_ONLY, reader->put_async(a));
    EXPECT_CODE(BLEND_E_READ_ONLY, reader->remove(a->meta.id));
    EXPECT_OK(reader->flush());
    // The other way round: a writer joins the reader.
    auto late = open_store(dir.path());
    EXPECT_OK(late->put(*make_record(2)));
  }
}

TEST(Store, PathsThatCannotBeStores) {
  TempDir dir;
  StoreOptions no_create;
  no_create.create = false;
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, Store::open("", {}, {}).status());
  EXPECT_CODE(BLEND_E_NOT_FOUND, Store::open(dir.file("none"), no_create, {}).status());
  std::ofstream(dir.file("file")) << "text";
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, Store::open(dir.file("file"), {}, {}).status());
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, Store::open(dir.file("file/below"), {}, {}).status());
  StoreOptions no_quota;
  no_quota.quota_bytes = 0;
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, Store::open(dir.path(), no_quota, {}).status());
  std::filesystem::create_directories(dir.file("odd/data.mdb"));
  EXPECT_CODE(BLEND_E_FORMAT, Store::open(dir.file("odd"), {}, {}).status());
  // Missing parents are made.
  auto deep = open_store(dir.file("a//b/./c/"));
  EXPECT_OK(deep->put(*make_record(1)));
  EXPECT_TRUE(std::filesystem::exists(dir.file("a/b/c/data.mdb")));
  EXPECT_OK(Store::open(dir.file("a/b/c"), no_create, {}).status());
}

TEST(Store, NoPermissionIsIo) {
  if (geteuid() == 0) GTEST_SKIP() << "root may do everything; run as another user";
  TempDir dir;
  std::filesystem::create_directory(dir.file("locked"));
  chmod(dir.file("locked").c_str(), 0555);
  EXPECT_CODE(BLEND_E_IO, Store::open(dir.file("locked"), {}, {}).status());
  EXPECT_CODE(BLEND_E_IO, Store::open(dir.file("locked/below"), {}, {}).status());
}

TEST(Store, UnlimitedQuotaOpens) {
  TempDir dir;
  StoreOptions options;
  options.quota_bytes = UINT64_MAX;
  auto store = Store::open(dir.path(), options, {});
  // A machine that limits address space may refuse; it must say so and not crash.
  if (!store.is_ok()) {
    EXPECT_CODE(BLEND_E_OUT_OF_MEMORY, store.status());
    return;
  }
  EXPECT_OK(store.value()->put(*make_record(1)));
}

TEST(ChunkId, EveryFieldCounts) {
  Sha256 f{};
  const std::array<int32_t, 2> t{1, 2};
  const std::array<int32_t, 3> more{1, 2, 0};
  const Sha256 id = chunk_id(f, DType::f16, {}, "", t);
  EXPECT_EQ(id, chunk_id(f, DType::f16, {}, "", t));
  EXPECT_NE(id, chunk_id(f, DType::bf16, {}, "", t));
  EXPECT_NE(id, chunk_id(f, DType::f16, t, "", t));
  EXPECT_NE(id, chunk_id(f, DType::f16, {}, "x", t));
  EXPECT_NE(id, chunk_id(f, DType::f16, {}, "", more));
  EXPECT_NE(chunk_id(f, DType::f16, t, "", {}), chunk_id(f, DType::f16, {}, "", t));
  f[31] = 1;
  EXPECT_NE(id, chunk_id(f, DType::f16, {}, "", t));
  // Fixed for ever: an id that changes empties every store.
  f[31] = 0;
  EXPECT_EQ("2cc7b1d4cb1df0efd1f424a8ebcf4a89a976c31038dd5725df6e8a9797511672",
            to_hex(chunk_id(f, DType::f16, {}, "", t)));
}

}  // namespace
}  // namespace blend::test
