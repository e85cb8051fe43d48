// Damage: whatever happens to the files, a read gives the right bytes or an error, never wrong
// bytes and never a crash.
#include <fcntl.h>
#include <lmdb.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/wire.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/page_format.h"
#include "store/lmdb/repair/check_pages.h"
#include "store/lmdb/writer/chunk_writer.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Thousands of damaged stores are opened and changed here, and every change is synced: in memory,
// where there is such a file system, that takes seconds.
class InMemory {
 public:
  InMemory() {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  }
  ~InMemory() { unsetenv("TMPDIR"); }
};

// A store's directory with one chunk of several pieces and some small ones.
struct Sample {
  InMemory in_memory;
  TempDir dir;
  std::vector<std::shared_ptr<ChunkRecord>> records;
  std::string bytes;  // of data.mdb

  Sample() {
    records.push_back(make_record(1, {3, 200, 512, DType::f16}));
    for (uint32_t i = 2; i < 6; ++i) records.push_back(make_record(i, {2, 40, 64, DType::bf16}));
    auto store = open_store(dir.path());
    for (const auto& r : records) EXPECT_OK(store->put(*r));
    // Leaves free pages, so that their list is damaged too.
    EXPECT_OK(store->put(*records[0]));
    const auto gone = make_record(9, {2, 300, 512, DType::f16});
    EXPECT_OK(store->put(*gone));
    EXPECT_OK(store->remove(gone->meta.id));
    store.reset();
    bytes = slurp(data());
  }
  std::string data() const { return dir.file("data.mdb"); }

  // Opens what is there now and reads, verifies, changes and closes it. Returns how many of the
  // records came back right. Wrong bytes fail the test.
  size_t use(const std::string& where) {
    size_t right = 0;
    auto store = Store::open(dir.path(), {}, {});
    if (!store.is_ok()) {
      EXPECT_FALSE(store.status().message().empty());
      return 0;
    }
    for (const auto& r : records) {
      const Status s = compare(**store, *r);
      EXPECT_NE(BLEND_E_INTERNAL, s.code()) << where << ": " << s.message();
      right += s.is_ok();
    }
    (void)(*store)->for_each(true, [](const ChunkMeta&, const std::string&) { return 0; });
    (void)(*store)->stat();
    for (const auto& r : records) {
      if ((*store)->put(*r).is_ok()) {
        const Status s = compare(**store, *r);
        EXPECT_NE(BLEND_E_INTERNAL, s.code()) << where << " after put: " << s.message();
      }
    }
    (void)(*store)->remove(records[0]->meta.id);
    return right;
  }
};

// Changes an LMDB file as another program would.
void with_lmdb(const std::string& path, const std::function<void(MDB_txn*)>& change) {
  MDB_env* env = nullptr;
  MDB_txn* txn = nullptr;
  ASSERT_EQ(0, mdb_env_create(&env));
  mdb_env_set_maxdbs(env, 8);
  ASSERT_EQ(0, mdb_env_open(env, path.c_str(), 0, 0644));
  ASSERT_EQ(0, mdb_txn_begin(env, nullptr, 0, &txn));
  change(txn);
  ASSERT_EQ(0, mdb_txn_commit(txn));
  mdb_env_close(env);
}

TEST(StoreDamage, FlippedKvByteIsCorruptAndNamed) {
  Sample sample;
  const auto& r = *sample.records[0];
  // Somewhere in layer 1, in every copy: pages that are free now may hold older ones.
  const std::string needle(reinterpret_cast<const char*>(r.k(1) + 100), 64);
  std::string bad = sample.bytes;
  size_t n_copies = 0;
  for (size_t at = 0; (at = bad.find(needle, at)) != std::string::npos; ++n_copies) {
    bad[at + 3] = static_cast<char>(bad[at + 3] ^ 0x10);
  }
  ASSERT_GT(n_copies, 0u);
  spill(sample.data(), bad);

  std::vector<std::string> events;
  auto store = open_store(sample.dir.path(), {}, [&](int32_t code, const std::string& message) {
    EXPECT_EQ(BLEND_E_CORRUPT, code);
    events.push_back(message);
  });
  auto snapshot = take(store->snapshot());
  auto source = take(snapshot->open(r.meta.id));
  std::vector<std::byte> out(r.meta.shape.layer_bytes(0));
  EXPECT_OK(source->read_layer(0, out.data()));
  const Status s = source->read_layer(1, out.data());
  EXPECT_EQ(BLEND_E_CORRUPT, s.code());
  EXPECT_NE(std::string::npos, s.message().find(to_hex(r.meta.id))) << s.message();
  EXPECT_NE(std::string::npos, s.message().find("layer 1")) << s.message();
  store->report_damage(r.meta.id, s);
  ASSERT_EQ(1u, events.size());
  EXPECT_EQ(s.message(), events[0]);
  EXPECT_EQ(1u, store->stat()->damaged);
  // Verify finds this one and no other; storing it again mends it.
  int damaged = 0;
  const auto visit = [&](const ChunkMeta& meta, const std::string& problem) {
    if (!problem.empty()) {
      ++damaged;
      EXPECT_EQ(r.meta.id, meta.id);
    }
    return 0;
  };
  EXPECT_OK(store->for_each(false, visit));
  EXPECT_EQ(0, damaged);
  EXPECT_CODE(BLEND_E_CORRUPT, store->for_each(true, visit));
  EXPECT_EQ(1, damaged);
  snapshot.reset();
  EXPECT_OK(store->put(r));
  EXPECT_OK(store->for_each(true, visit));
  EXPECT_EQ(1, damaged);
}

TEST(StoreDamage, FlippedManifestIsAMissWithAnEventAndCanBePutAgain) {
  Sample sample;
  const auto& r = *sample.records[0];
  const std::string needle(reinterpret_cast<const char*>(r.meta.tokens.data()), 64);
  std::string bad = sample.bytes;
  for (size_t at = 0; (at = bad.find(needle, at)) != std::string::npos;) {
    bad[at + 5] = static_cast<char>(bad[at + 5] ^ 1);
  }
  spill(sample.data(), bad);
  int events = 0;
  auto store = open_store(sample.dir.path(), {}, [&](int32_t, const std::string&) { ++events; });
  EXPECT_CODE(BLEND_E_CORRUPT, compare(*store, r));
  EXPECT_EQ(1, events);
  EXPECT_FALSE(take(store->contains(r.meta.id)));
  {
    auto snapshot = take(store->snapshot());
    EXPECT_TRUE(take(snapshot->holds(r.meta.id))) << "so that it is opened, which says so";
    Sha256 other{};
    EXPECT_FALSE(take(snapshot->holds(other)));
  }
  StoreStat s = take(store->stat());
  EXPECT_EQ(1u, s.damaged);
  EXPECT_EQ(1u, s.misses);
  EXPECT_EQ(sample.records.size(), s.n_chunks);
  EXPECT_CODE(BLEND_E_CORRUPT, store->for_each(true, [](auto&, auto&) { return 0; }));
  EXPECT_OK(store->put(r));
  EXPECT_OK(compare(*store, r));
  s = take(store->stat());
  EXPECT_EQ(sample.records.size(), s.n_chunks);
  uint64_t bytes = 0;
  for (const auto& x : sample.records) bytes += x->data.bytes();
  EXPECT_EQ(bytes, s.bytes);
}

// Puts share transactions. The writes of one are counted, though the next one finds a description
// that is damaged and has everything counted again.
TEST(StoreDamage, ADamagedDescriptionCostsNoOtherPutOfItsTransactionItsCount) {
  TempDir dir;
  const auto a = make_record(1, {1, 3000, 8, DType::f16});  // descriptions of several pages
  const auto b = make_record(2, {1, 3000, 8, DType::f16});
  const auto other = make_record(3);
  {
    auto store = open_store(dir.path());
    EXPECT_OK(store->put(*b));
    EXPECT_OK(store->put(*other));
  }
  with_lmdb(dir.path(), [&](MDB_txn* txn) {
    MDB_dbi meta = 0;
    ASSERT_EQ(0, mdb_dbi_open(txn, "meta", 0, &meta));
    MDB_val key{b->meta.id.size(), b->meta.id.data()};
    MDB_val value{};
    ASSERT_EQ(0, mdb_get(txn, meta, &key, &value));
    std::string bytes(static_cast<const char*>(value.mv_data), value.mv_size);
    bytes[bytes.size() / 2] ^= 1;
    value = {bytes.size(), bytes.data()};
    ASSERT_EQ(0, mdb_put(txn, meta, &key, &value, 0));
  });
  auto store = open_store(dir.path());
  StoreCommon common;
  common.env = take(LmdbEnv::acquire(dir.path(), nullptr, false, 1));
  {
    ChunkWriter writer = take(ChunkWriter::begin(common));
    for (const auto& r : {a, b}) {
      const EncodedChunk chunk = take(encode_chunk(*r, Codec::none));
      bool found = false;
      EXPECT_OK(writer.erase(r->meta.id, &found));
      EXPECT_EQ(r == b, found);
      EXPECT_OK(writer.add(chunk.manifest, {chunk.stream, chunk.manifest.stream_bytes()}, {}));
    }
    EXPECT_OK(writer.commit());
  }
  const StoreStat stat = take(store->stat());
  EXPECT_EQ(3u, stat.n_chunks);
  EXPECT_EQ(a->data.bytes() + b->data.bytes() + other->data.bytes(), stat.bytes);
  EXPECT_EQ(3u, stat.texts.value_or(TextTotals{}).n_texts);
  for (const auto& r : {a, b, other}) EXPECT_OK(store->remove(r->meta.id));
  EXPECT_EQ(0u, store->stat()->stored_bytes);
  EXPECT_EQ(0u, store->stat()->texts.value_or(TextTotals{}).n_texts);
}

TEST(StoreDamage, AFlipAnywhereNeverGivesWrongBytes) {
  // Every byte of a tree or meta page would take long; a stride that is coprime to the fields'
  // sizes meets every kind of field, and all of the meta pages' first bytes are met.
  Sample sample;
  const size_t size = sample.bytes.size();
  std::vector<size_t> offsets;
  for (size_t page = 0; page + 4096 <= size; page += 4096) {
    const auto* p = reinterpret_cast<const unsigned char*>(sample.bytes.data()) + page;
    const unsigned flags = p[10] | p[11] << 8;
    const bool tree = flags == 1 || flags == 2;
    if (page < 8192) {
      for (size_t i = 0; i < 160; i += 1) offsets.push_back(page + i);
    } else if (tree) {
      for (size_t i = 0; i < 32; ++i) offsets.push_back(page + i);
      for (size_t i = 40; i < 4096; i += 397) offsets.push_back(page + i);
    } else if (flags == 4) {
      for (size_t i = 0; i < 18; ++i) offsets.push_back(page + i);
    } else if (page / 4096 % 29 == 0) {  // K and V
      offsets.push_back(page + 1777);
    }
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(BLEND_TEST_EMULATED)
  constexpr size_t kStep = 7;  // ten times slower
#else
  constexpr size_t kStep = 1;
#endif
  size_t right = 0;
  size_t n = 0;
  for (size_t i = 0; i < offsets.size(); i += kStep) {
    const size_t at = offsets[i];
    for (const int bit : {0, 7}) {
      if (bit == 7 && at % 3 != 0) continue;
      std::string bad = sample.bytes;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      spill(sample.data(), bad);
      right += sample.use("offset " + std::to_string(at));
      ++n;
      if (HasFailure()) return;
    }
  }
  // Most flips hit one chunk or none: the check at open is not just refusing everything.
  EXPECT_GT(right, n * sample.records.size() / 4);
  RecordProperty("flips", static_cast<int>(n));
}

TEST(StoreDamage, RandomBlocksOfGarbage) {
  Sample sample;
  std::mt19937 rng(5);
  for (int round = 0; round < 100; ++round) {
    std::string bad = sample.bytes;
    const size_t page = rng() % (bad.size() / 4096);
    const size_t at = page * 4096 + (round % 2 ? rng() % 4000 : 0);
    for (size_t i = at; i < bad.size() && i < at + 96; ++i) bad[i] = static_cast<char>(rng());
    spill(sample.data(), bad);
    sample.use("garbage at " + std::to_string(at));
    if (HasFailure()) return;
  }
}

TEST(StoreDamage, TruncatedDataFileIsRefused) {
  Sample sample;
  const size_t size = sample.bytes.size();
  for (const size_t keep : {size_t{1}, size_t{100}, size_t{4096}, size_t{8191}, size_t{8192},
                            size_t{20000}, size / 4, size / 2}) {
    spill(sample.data(), sample.bytes.substr(0, keep));
    const auto store = Store::open(sample.dir.path(), {}, {});
    ASSERT_FALSE(store.is_ok()) << keep;
    EXPECT_TRUE(store.status().code() == BLEND_E_CORRUPT || store.status().code() == BLEND_E_FORMAT)
        << keep << ": " << store.status().message();
  }
  // The last pages may be free ones: a store without them is whole, or else says so.
  for (size_t cut = 1; cut < size / 2; cut += 40'961) {
    spill(sample.data(), sample.bytes.substr(0, size - cut));
    sample.use("cut " + std::to_string(cut));
  }
}

TEST(StoreDamage, TruncatedWhileOpenIsAnErrorNotASignal) {
  Sample sample;
  auto store = open_store(sample.dir.path());
  ASSERT_EQ(0, truncate(sample.data().c_str(), 8192));
  const auto snapshot = store->snapshot();
  ASSERT_FALSE(snapshot.is_ok());
  EXPECT_EQ(BLEND_E_CORRUPT, snapshot.status().code());
  EXPECT_NE(std::string::npos, snapshot.status().message().find("truncated"));
  EXPECT_CODE(BLEND_E_CORRUPT, store->put(*sample.records[0]));
  EXPECT_CODE(BLEND_E_CORRUPT, store->stat().status());
}

// Nothing is left that LMDB could read through its map, or what is there is no meta page.
TEST(StoreDamage, CutToNothingOrWrittenOverWhileOpenIsAnErrorNotASignal) {
  for (const bool cut : {true, false}) {
    Sample sample;
    auto store = open_store(sample.dir.path());
    if (cut) {
      ASSERT_EQ(0, truncate(sample.data().c_str(), 0));
    } else {
      const int fd = open(sample.data().c_str(), O_WRONLY);
      const std::string garbage(8192, '\x5a');
      ASSERT_EQ(8192, pwrite(fd, garbage.data(), garbage.size(), 0));
      close(fd);
    }
    EXPECT_CODE(BLEND_E_CORRUPT, store->put(*sample.records[0]));
    EXPECT_CODE(BLEND_E_CORRUPT, store->snapshot().status());
    EXPECT_CODE(BLEND_E_CORRUPT, store->remove(sample.records[1]->meta.id));
    StoreOptions larger;
    larger.quota_bytes = 64ull << 30;  // wants a larger map
    const auto second = Store::open(sample.dir.path(), larger, {});
    EXPECT_FALSE(second.is_ok());
  }
}

TEST(StoreDamage, ALockFileCutShortWhileOpenIsAnErrorNotASignal) {
  Sample sample;
  auto store = open_store(sample.dir.path());
  const std::string lock = sample.dir.file("lock.mdb");
  const std::string table = slurp(lock);
  ASSERT_EQ(0, truncate(lock.c_str(), 0));
  EXPECT_CODE(BLEND_E_CORRUPT, store->put(*sample.records[0]));
  EXPECT_CODE(BLEND_E_CORRUPT, store->snapshot().status());
  std::ofstream(lock, std::ios::binary | std::ios::in) << table;  // its map is read as it closes
}

// Every page is in order, and one key is past what its parent says: LMDB lists it and does not find
// it.
TEST(StoreDamage, KeysOutOfOrderBetweenPagesAreRefused) {
  TempDir dir;
  {
    auto store = open_store(dir.path());
    for (uint32_t i = 0; i < 60; ++i) EXPECT_OK(store->put(*make_record(i)));
  }
  const std::string bytes = slurp(dir.file("data.mdb"));
  namespace pf = page_format;
  size_t n_changed = 0;
  for (size_t at = 0; at + 4096 <= bytes.size(); at += 4096) {
    std::string bad = bytes;
    auto* page = reinterpret_cast<std::byte*>(bad.data() + at);
    if (pf::header_at(page).flags != pf::kLeaf || pf::header_at(page).number != at / 4096) continue;
    const uint32_t n = (pf::lower_of(page) - pf::kHeaderBytes) / 2u;
    if (n < 2) continue;
    std::byte* const last = page + pf::node_place(page, n - 1);
    if (pf::node_key_bytes(last) != 32) continue;
    last[pf::kNodeHeaderBytes] = std::byte{0xff};
    last[pf::kNodeHeaderBytes + 1] = std::byte{0xff};
    spill(dir.file("data.mdb"), bad);
    const auto store = Store::open(dir.path(), {}, {});
    if (store.is_ok()) continue;  // the last page of a tree, or one that is free
    EXPECT_EQ(BLEND_E_CORRUPT, store.status().code());
    n_changed += store.status().message().find("other pages'") != std::string::npos;
  }
  EXPECT_GT(n_changed, 0u);
}

// LMDB reads its list of free pages from after the last transaction that it has read; 0 means that
// it has read none of it.
TEST(StoreDamage, PagesFreedByNoTransactionAreRefused) {
  Sample sample;
  { EXPECT_OK(open_store(sample.dir.path())->remove(sample.records[0]->meta.id)); }
  const std::string bytes = slurp(sample.dir.file("data.mdb"));
  namespace pf = page_format;
  const auto* file = reinterpret_cast<const std::byte*>(bytes.data());
  const auto meta_at = [&](uint64_t page) { return pf::Meta::at(file + page * 4096); };
  const pf::Meta meta = meta_at(meta_at(0).txn_id > meta_at(1).txn_id ? 0 : 1);
  const size_t at = meta.free_pages.root * 4096;
  ASSERT_EQ(pf::kLeaf, pf::header_at(file + at).flags);
  const size_t key = at + pf::node_place(file + at, 0) + pf::kNodeHeaderBytes;
  for (const uint64_t by : {uint64_t{0}, meta.txn_id + 1, ~uint64_t{0}}) {
    std::string bad = bytes;
    std::memcpy(bad.data() + key, &by, sizeof by);
    spill(sample.dir.file("data.mdb"), bad);
    EXPECT_CODE(BLEND_E_CORRUPT, Store::open(sample.dir.path(), {}, {}).status());
  }
  spill(sample.dir.file("data.mdb"), bytes);
  EXPECT_OK(compare(*open_store(sample.dir.path()), *sample.records[1]));
}

TEST(StoreRepair, RemovesWhatItSaysItRemoved) {
  Sample sample;
  with_lmdb(sample.dir.path(), [](MDB_txn* txn) {
    for (const char* name : {"meta", "chunks"}) {
      MDB_dbi dbi = 0;
      ASSERT_EQ(0, mdb_dbi_open(txn, name, 0, &dbi));
      for (std::string key :
           {std::string("stray"), std::string(33, '\x80'), std::string(40, 'z')}) {
        MDB_val k{key.size(), key.data()};
        ASSERT_EQ(0, mdb_put(txn, dbi, &k, &k, 0));
      }
    }
  });
  auto store = open_store(sample.dir.path());
  const auto damaged = [&] {
    size_t n = 0;
    (void)store->for_each(true, [&](const ChunkMeta&, const std::string& problem) {
      n += problem.empty() ? 0 : 1;
      return 0;
    });
    return n;
  };
  EXPECT_EQ(3u, damaged());
  uint64_t n = 0;
  size_t told = 0;
  EXPECT_OK(store->repair(
      [&](const ChunkMeta&, const std::string& problem) {
        EXPECT_NE(std::string::npos, problem.find("not a chunk id"));
        ++told;
        return 0;
      },
      &n));
  EXPECT_EQ(3u, n);
  EXPECT_EQ(3u, told);
  EXPECT_EQ(0u, damaged());
  EXPECT_OK(store->repair([](auto&, auto&) { return 0; }, &n));
  EXPECT_EQ(0u, n);
  for (const auto& r : sample.records) EXPECT_OK(compare(*store, *r));
}

TEST(StoreDamage, ForeignFilesAreRefused) {
  TempDir dir;
  std::string text(20000, 'x');
  spill(dir.file("data.mdb"), text);
  EXPECT_CODE(BLEND_E_FORMAT, Store::open(dir.path(), {}, {}).status());
  EXPECT_EQ(text, slurp(dir.file("data.mdb")));  // and left alone
  spill(dir.file("data.mdb"), "short");
  EXPECT_CODE(BLEND_E_FORMAT, Store::open(dir.path(), {}, {}).status());
}

void put_info(const std::string& path, std::string key, std::string value) {
  with_lmdb(path, [&](MDB_txn* txn) {
    MDB_dbi info = 0;
    ASSERT_EQ(0, mdb_dbi_open(txn, "info", MDB_CREATE, &info));
    MDB_val k{key.size(), key.data()};
    MDB_val v{value.size(), value.data()};
    ASSERT_EQ(0, mdb_put(txn, info, &k, &v, 0));
  });
}

TEST(StoreDamage, AnotherProgramsLmdbFileIsRefused) {
  TempDir dir;
  with_lmdb(dir.path(), [](MDB_txn* txn) {
    MDB_dbi dbi = 0;
    ASSERT_EQ(0, mdb_dbi_open(txn, "theirs", MDB_CREATE | MDB_DUPSORT, &dbi));
    for (char c : {'a', 'b', 'c'}) {
      MDB_val k{1, &c};
      ASSERT_EQ(0, mdb_put(txn, dbi, &k, &k, 0));
    }
  });
  EXPECT_CODE(BLEND_E_FORMAT, Store::open(dir.path(), {}, {}).status());
  put_info(dir.path(), "format", "something else of theirs");
  EXPECT_CODE(BLEND_E_FORMAT, Store::open(dir.path(), {}, {}).status());
}

TEST(StoreDamage, EmptyLmdbFileBecomesAStore) {
  // What a creator that was killed leaves behind.
  TempDir dir;
  with_lmdb(dir.path(), [](MDB_txn*) {});
  StoreOptions no_create;
  no_create.create = false;
  EXPECT_CODE(BLEND_E_NOT_FOUND, Store::open(dir.path(), no_create, {}).status());
  EXPECT_OK(open_store(dir.path())->put(*make_record(1)));
  TempDir empty;
  spill(empty.file("data.mdb"), "");
  EXPECT_CODE(BLEND_E_NOT_FOUND, Store::open(empty.path(), no_create, {}).status());
  EXPECT_OK(open_store(empty.path())->put(*make_record(1)));
}

TEST(StoreDamage, AnotherFormatVersionIsAMismatch) {
  TempDir dir;
  open_store(dir.path()).reset();
  std::string format = encode_format(kStoreFormatVersion);
  EXPECT_EQ(format[8], 3);  // the version
  format[8] = 4;
  put_info(dir.path(), "format", format);
  EXPECT_CODE(BLEND_E_CORRUPT, Store::open(dir.path(), {}, {}).status());
  ByteWriter sealed;
  sealed.bytes(format.data(), format.size() - 8);
  sealed.put<uint64_t>(checksum64(format.data(), format.size() - 8));
  put_info(dir.path(), "format", sealed.view());
  const Status s = Store::open(dir.path(), {}, {}).status();
  EXPECT_EQ(BLEND_E_MISMATCH, s.code());
  EXPECT_NE(std::string::npos, s.message().find("version 4")) << s.message();
}

TEST(StoreDamage, DamagedCountersAreCountedAnew) {
  TempDir dir;
  const auto a = make_record(1);
  EXPECT_OK(open_store(dir.path())->put(*a));
  put_info(dir.path(), "counters", std::string(136, 'x'));
  int events = 0;
  auto store = open_store(dir.path(), {}, [&](int32_t, const std::string&) { ++events; });
  EXPECT_EQ(1u, store->stat()->n_chunks);
  EXPECT_EQ(1, events);
  EXPECT_OK(store->put(*make_record(2)));
  EXPECT_EQ(2u, store->stat()->n_chunks);
  EXPECT_EQ(2, events);
}

// Sealed, and less than what is there: of another time, or forged.
TEST(StoreDamage, CountersThatAreTooSmallDoNotWrapAndAreMended) {
  TempDir dir;
  {
    auto store = open_store(dir.path());
    for (uint32_t i = 0; i < 6; ++i) EXPECT_OK(store->put(*make_record(i)));
  }
  put_info(dir.path(), "counters", encode_counters({}));
  auto store = open_store(dir.path());
  EXPECT_OK(store->remove(make_record(0)->meta.id));
  EXPECT_EQ(0u, store->stat()->n_chunks);
  EXPECT_EQ(0u, store->stat()->stored_bytes);
  EXPECT_OK(store->put(*make_record(7)));
  uint64_t n = 0;
  EXPECT_OK(store->repair([](auto&, auto&) { return 0; }, &n));
  EXPECT_EQ(0u, n);
  EXPECT_EQ(6u, store->stat()->n_chunks);
  const uint64_t stored = store->stat()->stored_bytes;
  EXPECT_OK(store->remove(make_record(7)->meta.id));
  EXPECT_EQ(stored / 6 * 5, store->stat()->stored_bytes);
}

TEST(StoreDamage, PiecesMissingCutOrAddedAreFound) {
  const auto r = make_record(1, {3, 400, 512, DType::f16});
  std::string key(36, '\0');
  std::memcpy(key.data(), r->meta.id.data(), 32);
  const auto change = [&](int piece, const std::function<void(MDB_txn*, MDB_dbi, MDB_val*)>& fn) {
    TempDir dir;
    EXPECT_OK(open_store(dir.path())->put(*r));
    key[35] = static_cast<char>(piece);
    with_lmdb(dir.path(), [&](MDB_txn* txn) {
      MDB_dbi chunks = 0;
      ASSERT_EQ(0, mdb_dbi_open(txn, "chunks", 0, &chunks));
      MDB_val k{key.size(), key.data()};
      fn(txn, chunks, &k);
    });
    auto store = open_store(dir.path());
    EXPECT_CODE(BLEND_E_CORRUPT, store->for_each(true, [](auto&, auto&) { return 0; }));
    const Status s = compare(*store, *r);
    EXPECT_OK(store->remove(r->meta.id));  // whatever its pieces are like
    EXPECT_OK(store->put(*r));
    EXPECT_OK(store->for_each(true, [](auto&, auto&) { return 0; }));
    return s;
  };
  std::string some(1000, 'x');
  EXPECT_CODE(BLEND_E_CORRUPT, change(1, [](MDB_txn* txn, MDB_dbi dbi, MDB_val* k) {
                ASSERT_EQ(0, mdb_del(txn, dbi, k, nullptr));
              }));
  EXPECT_CODE(BLEND_E_CORRUPT, change(1, [&](MDB_txn* txn, MDB_dbi dbi, MDB_val* k) {
                MDB_val v{some.size(), some.data()};
                ASSERT_EQ(0, mdb_put(txn, dbi, k, &v, 0));
              }));
  // One too many does not disturb reads.
  EXPECT_OK(change(3, [&](MDB_txn* txn, MDB_dbi dbi, MDB_val* k) {
    MDB_val v{some.size(), some.data()};
    ASSERT_EQ(0, mdb_put(txn, dbi, k, &v, 0));
  }));
}

TEST(StoreDamage, ManifestParserRefusesWhatIsSealedButWrong) {
  const auto r = make_record(1);
  const std::string good = encode_manifest(encode_chunk(*r, Codec::none)->manifest);
  const auto decode = [&](std::string bytes) {
    return decode_manifest(std::as_bytes(std::span(bytes)), r->meta.id);
  };
  ASSERT_TRUE(decode(good).is_ok());
  // Every cut, and every flipped bit.
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(BLEND_E_CORRUPT, decode(good.substr(0, n)).status().code());
    std::string bad = good;
    bad[n] = static_cast<char>(bad[n] ^ 4);
    EXPECT_EQ(BLEND_E_CORRUPT, decode(bad).status().code());
  }
  // A right checksum over wrong fields: fuzz with the seal renewed.
  std::mt19937 rng(3);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good.substr(0, good.size() - 8);
    if (rng() % 8 == 0) bad.resize(rng() % bad.size());
    for (uint32_t k = 1 + rng() % 3; k > 0 && !bad.empty(); --k) {
      bad[rng() % std::min<size_t>(bad.size(), rng() % 2 ? 108 : 4096)] = static_cast<char>(rng());
    }
    ByteWriter sealed;
    sealed.bytes(bad.data(), bad.size());
    sealed.put<uint64_t>(checksum64(bad.data(), bad.size()));
    auto m = decode(sealed.view());
    if (!m.is_ok()) continue;
    EXPECT_EQ(m->meta.tokens.size(), m->meta.shape.n_tokens);
    EXPECT_EQ(m->layers.size(), m->meta.shape.n_layers);
    if (m->meta.codec == Codec::none) {
      EXPECT_EQ(m->stream_bytes(), m->meta.shape.total_bytes());
    }
    EXPECT_EQ(m->stream_bytes(), m->meta.stored_bytes);
    EXPECT_LE(m->stream_bytes(),
              m->meta.shape.n_layers * longest_layer(m->meta.codec, m->meta.shape, 0));
    EXPECT_EQ(r->meta.id, m->meta.id);
  }
}

TEST(StoreDamage, AChunkThatClaimsTerabytesIsOneDamagedChunk) {
  Sample sample;
  const auto record = make_record(77, {2, 200, 256, DType::f16});
  for (const Codec codec : {Codec::none, Codec::zstd}) {
    SCOPED_TRACE(static_cast<int>(codec));
    Manifest claims = encode_chunk(*record, codec)->manifest;
    claims.meta.shape.kv_dim = 1u << 31;
    uint64_t at = 0;
    for (LayerExtent& layer : claims.layers) {
      layer.offset = at;
      layer.length = longest_layer(codec, claims.meta.shape, 0);
      at += layer.length;
    }
    std::string bytes = encode_manifest(claims);
    ASSERT_TRUE(decode_manifest(std::as_bytes(std::span(bytes)), record->meta.id).is_ok());
    with_lmdb(sample.dir.path(), [&](MDB_txn* txn) {
      MDB_dbi meta = 0;
      ASSERT_EQ(0, mdb_dbi_open(txn, "meta", 0, &meta));
      MDB_val k{record->meta.id.size(), const_cast<uint8_t*>(record->meta.id.data())};
      MDB_val v{bytes.size(), bytes.data()};
      ASSERT_EQ(0, mdb_put(txn, meta, &k, &v, 0));
    });
    auto store = open_store(sample.dir.path());
    size_t sound = 0;
    EXPECT_CODE(BLEND_E_CORRUPT,
                store->for_each(true, [&](const ChunkMeta&, const std::string& problem) {
                  sound += problem.empty();
                  return 0;
                }));
    EXPECT_EQ(sample.records.size(), sound);
    EXPECT_CODE(BLEND_E_CORRUPT, compare(*store, *record));
    uint64_t n_removed = 0;
    EXPECT_OK(store->repair([](auto&, auto&) { return 0; }, &n_removed));
    EXPECT_EQ(1u, n_removed);
  }
}

// A small file system of this process's own at `path`.
bool mount_small(const std::string& path) {
  return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, "size=4m") == 0;
}

// Data written through a map needs space on the disk first.
TEST(StoreDamage, AFullFileSystemIsFullFromTheFirstPageOn) {
  TempDir dir;
  const pid_t child = fork();
  ASSERT_NE(-1, child);
  if (child == 0) {
    if (!mount_small(dir.path())) _exit(77);
    const int filler = open(dir.file("filler").c_str(), O_RDWR | O_CREAT, 0600);
    int full = 0, made = 0;
    for (off_t room = 0; room < (256 << 10); room += 4096) {
      if (ftruncate(filler, 0) != 0) _exit(78);
      struct statvfs st {};
      if (statvfs(dir.path().c_str(), &st) != 0) _exit(78);
      const off_t left = static_cast<off_t>(st.f_bavail * st.f_bsize) - room;
      if (posix_fallocate(filler, 0, left) != 0) _exit(78);
      const std::string path = dir.file("store-" + std::to_string(room));
      {
        auto store = Store::open(path, {}, {});
        const Status put = store.is_ok() ? (*store)->put(*make_record(1)) : store.status();
        if (!put.is_ok() && put.code() != BLEND_E_FULL) {
          fprintf(stderr, "%d: %s\n", put.code(), put.message().c_str());
          _exit(79);
        }
        ++(put.is_ok() ? made : full);
      }
      std::filesystem::remove_all(path);
    }
    _exit(full > 10 && made > 10 ? 0 : 80);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(StoreDamage, FullDiskIsFullAndLosesNothing) {
  TempDir dir;
  const auto a = make_record(1, {2, 200, 256, DType::f16});
  const auto b = make_record(2, {8, 500, 512, DType::f16});
  EXPECT_OK(open_store(dir.path())->put(*a));
  // A limit on the size of files stands for the full disk; in a child, for it is per process.
  const pid_t child = fork();
  ASSERT_NE(-1, child);
  if (child == 0) {
    signal(SIGXFSZ, SIG_DFL);  // which would end a host that has no handler
    for (const uint64_t room : {100'000u, 1'000'001u, 3'000'000u}) {
      const auto now = std::filesystem::file_size(dir.file("data.mdb"));
      const struct rlimit limit { now + room, RLIM_INFINITY };
      setrlimit(RLIMIT_FSIZE, &limit);
      auto store = Store::open(dir.path(), {}, {});
      if (!store.is_ok()) _exit(10);
      if ((*store)->put(*b).code() != BLEND_E_FULL) _exit(11);
      if ((*store)->put_async(b).code() != BLEND_OK) _exit(12);
      if ((*store)->flush().code() != BLEND_E_FULL) _exit(13);
      if (!compare(**store, *a).is_ok()) _exit(14);
      if (compare(**store, *b).code() != BLEND_E_NOT_FOUND) _exit(15);
      if ((*store)->stat()->write_errors != 1) _exit(16);
      const struct rlimit none { RLIM_INFINITY, RLIM_INFINITY };
      setrlimit(RLIMIT_FSIZE, &none);
      if (!(*store)->put(*make_record(3)).is_ok()) _exit(17);  // goes on when there is room
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << status << ' ' << WEXITSTATUS(status);
  auto store = open_store(dir.path());
  EXPECT_OK(compare(*store, *a));
  EXPECT_OK(store->put(*b));
  EXPECT_OK(compare(*store, *b));
  EXPECT_OK(store->for_each(true, [](auto&, auto&) { return 0; }));
}

}  // namespace
}  // namespace blend::test
