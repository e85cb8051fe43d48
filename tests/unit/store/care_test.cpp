// Looking after a store: repair, compaction, copies, files of chunks, metrics.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "store/lmdb/files.h"
#include "store/metrics.h"
#include "store/store.h"
#include "store/transfer.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

std::shared_ptr<ChunkRecord> chunk(uint32_t i) {
  auto r = make_record(i, {1 + i % 3, 1 + i * 7 % 90, 64, i % 2 == 0 ? DType::f16 : DType::bf16});
  r->meta.tenant = tenant_tag(i % 2 == 0 ? "" : "odd");
  if (i % 3 == 0) r->meta.impact.resize(r->meta.shape.n_tokens, {0.25f, 0.5f});
  if (i % 4 < 2) r->meta.contexts.assign(1 + i % 16, Sha256{static_cast<uint8_t>(i)});
  r->meta.draft = i % 4 == 0;
  return r;
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spit(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

uint64_t size_of(const std::string& path) { return std::filesystem::file_size(path); }

struct World {
  World() : store(open_store(dir.file("s"))) {
    for (uint32_t i = 0; i < 12; ++i) EXPECT_OK(store->put(*chunk(i)));
  }
  TempDir dir;
  std::shared_ptr<Store> store;
};

TEST(StoreTransfer, ChunksArriveAsTheyLeft) {
  World w;
  const std::string file = w.dir.file("all.chunks");
  EXPECT_EQ(12u, take(export_chunks(*w.store, {}, file, {})).n_chunks);
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));
  auto other = open_store(w.dir.file("other"));
  EXPECT_OK(other->put(*chunk(3)));
  Transfer done;
  EXPECT_OK(import_chunks(*other, file, false, {}, &done));
  EXPECT_EQ(11u, done.n_chunks);
  EXPECT_EQ(1u, done.n_skipped);
  for (uint32_t i = 0; i < 12; ++i) EXPECT_OK(compare(*other, *chunk(i)));
  // Their tenant counts there too.
  EXPECT_EQ(w.store->tenant(tenant_tag("odd"))->footprint,
            other->tenant(tenant_tag("odd"))->footprint);
  EXPECT_OK(import_chunks(*other, file, true, {}, &done));
  EXPECT_EQ(12u, done.n_chunks);
  EXPECT_EQ(12u, other->stat()->n_chunks);
  const std::vector<Sha256> two = {chunk(5)->meta.id, chunk(2)->meta.id};
  EXPECT_EQ(2u, take(export_chunks(*w.store, two, file, {})).n_chunks);
  const std::vector<Sha256> none = {chunk(5)->meta.id, chunk(99)->meta.id};
  const std::string before = slurp(file);
  EXPECT_CODE(BLEND_E_NOT_FOUND, export_chunks(*w.store, none, file, {}).status());
  EXPECT_EQ(before, slurp(file)) << "a failed export replaced the file";
  EXPECT_CODE(BLEND_E_IO, export_chunks(*w.store, {}, w.dir.file("no/such/file"), {}).status());
}

// Evicted or removed while they are written: an export is of one snapshot.
TEST(StoreTransfer, AChunkThatGoesMeanwhileArrivesAsItsTenants) {
  World w;
  const std::string file = w.dir.file("two.chunks");
  const std::vector<Sha256> two = {chunk(2)->meta.id, chunk(5)->meta.id};
  const Watch watch{nullptr, [&](uint64_t done, uint64_t) {
                      if (done == 1) EXPECT_OK(w.store->remove(two[1]));
                      return 0;
                    }};
  EXPECT_EQ(2u, take(export_chunks(*w.store, two, file, watch)).n_chunks);
  auto other = open_store(w.dir.file("other"));
  Transfer done;
  EXPECT_OK(import_chunks(*other, file, false, {}, &done));
  EXPECT_OK(take(other->snapshot())->open(two[1], tenant_tag("odd")).status());
  EXPECT_EQ(1u, other->tenant(tenant_tag("odd"))->n_chunks);
}

TEST(StoreTransfer, AnyChangedByteIsRefusedAndNothingWrongIsPut) {
  World w;
  const std::string file = w.dir.file("two.chunks");
  const std::vector<Sha256> two = {chunk(1)->meta.id, chunk(0)->meta.id};
  EXPECT_OK(export_chunks(*w.store, two, file, {}).status());
  const std::string sound = slurp(file);
  auto other = open_store(w.dir.file("other"));
  std::mt19937 rng(3);
  for (size_t at = 0; at < sound.size(); at += 1 + rng() % 40) {
    std::string bad = sound;
    bad[at] = static_cast<char>(bad[at] ^ (1 << rng() % 8));
    spit(file, bad);
    Transfer done;
    const Status status = import_chunks(*other, file, true, {}, &done);
    ASSERT_FALSE(status.is_ok()) << "byte " << at;
    ASSERT_TRUE(status.code() == BLEND_E_CORRUPT || status.code() == BLEND_E_FORMAT ||
                status.code() == BLEND_E_MISMATCH)
        << status.message();
    ASSERT_LE(done.n_chunks, 2u);
  }
  for (size_t n = 0; n < sound.size(); n += 1 + rng() % 60) {
    spit(file, sound.substr(0, n));
    Transfer done;
    const Status status = import_chunks(*other, file, true, {}, &done);
    ASSERT_FALSE(status.is_ok()) << n << " bytes";
  }
  spit(file, sound + "x");
  Transfer done;
  EXPECT_CODE(BLEND_E_CORRUPT, import_chunks(*other, file, true, {}, &done));
  spit(file, "a text");
  EXPECT_CODE(BLEND_E_FORMAT, import_chunks(*other, file, true, {}, &done));
  EXPECT_CODE(BLEND_E_NOT_FOUND, import_chunks(*other, w.dir.file("none"), true, {}, &done));
  EXPECT_CODE(BLEND_E_FORMAT, import_chunks(*other, w.dir.path(), true, {}, &done));
  for (const uint32_t i : {0u, 1u}) {
    const Status got = compare(*other, *chunk(i));
    EXPECT_TRUE(got.is_ok() || got.code() == BLEND_E_NOT_FOUND) << got.message();
  }
}

TEST(StoreTransfer, StopsWhenAskedAndKeepsTheQuota) {
  World w;
  const std::string file = w.dir.file("all.chunks");
  EXPECT_OK(export_chunks(*w.store, {}, file, {}).status());
  CancelToken cancel;
  cancel.request();
  const Watch watch{&cancel, {}};
  EXPECT_CODE(BLEND_E_CANCELLED, export_chunks(*w.store, {}, w.dir.file("x"), watch).status());
  EXPECT_FALSE(std::filesystem::exists(w.dir.file("x")));
  EXPECT_FALSE(std::filesystem::exists(w.dir.file("x.part")));
  StoreOptions small;
  small.quota_bytes = 100'000;
  auto other = open_store(w.dir.file("other"), small);
  Transfer done;
  EXPECT_CODE(BLEND_E_CANCELLED, import_chunks(*other, file, false, watch, &done));
  EXPECT_OK(import_chunks(*other, file, false, {}, &done));
  EXPECT_EQ(12u, done.n_chunks);
  EXPECT_LE(other->stat()->stored_bytes, small.quota_bytes);
  EXPECT_LT(other->stat()->n_chunks, 12u);
}

// Each writes a file of its own until that has its name.
TEST(StoreTransfer, ManyToOnePathLeaveOneWholeFile) {
  World w;
  const std::string file = w.dir.file("all.chunks");
  std::vector<std::thread> threads;
  std::atomic<int> bad{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) bad += export_chunks(*w.store, {}, file, {}).is_ok() ? 0 : 1;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(0, bad);
  Transfer done;
  EXPECT_OK(import_chunks(*open_store(w.dir.file("other")), file, false, {}, &done));
  EXPECT_EQ(12u, done.n_chunks);
  size_t n_files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(w.dir.path())) {
    ++n_files;
  }
  EXPECT_EQ(3u, n_files);  // two stores and the file
}

TEST(StoreTransfer, PipesAreRefusedAndNotWaitedFor) {
  World w;
  const std::string pipe = w.dir.file("pipe");
  ASSERT_EQ(0, mkfifo(pipe.c_str(), 0600));
  Transfer done;
  EXPECT_CODE(BLEND_E_FORMAT, import_chunks(*w.store, pipe, false, {}, &done));
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, export_chunks(*w.store, {}, pipe, {}).status());
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(StoreRepair, DropsWhatIsDamagedAndKeepsTheRest) {
  World w;
  EXPECT_OK(w.store->pin(chunk(4)->meta.id, true));
  w.store.reset();
  // One byte of chunk 7's V.
  const auto victim = chunk(7);
  std::string bytes = slurp(w.dir.file("s/data.mdb"));
  const std::string part(reinterpret_cast<const char*>(victim->v(0)), 64);
  const size_t at = bytes.find(part);
  ASSERT_NE(std::string::npos, at);
  bytes[at + 10] = static_cast<char>(bytes[at + 10] ^ 4);
  spit(w.dir.file("s/data.mdb"), bytes);
  w.store = open_store(w.dir.file("s"));
  uint64_t n = 0;
  std::vector<Sha256> told;
  EXPECT_OK(w.store->repair(
      [&](const ChunkMeta& meta, const std::string& problem) {
        EXPECT_NE("", problem);
        told.push_back(meta.id);
        return 0;
      },
      &n));
  EXPECT_EQ(1u, n);
  EXPECT_EQ(std::vector<Sha256>{victim->meta.id}, told);
  EXPECT_OK(w.store->for_each(true, [](const ChunkMeta&, const std::string&) { return 0; }));
  for (uint32_t i = 0; i < 12; ++i) {
    const Status got = compare(*w.store, *chunk(i));
    EXPECT_EQ(i == 7 ? BLEND_E_NOT_FOUND : BLEND_OK, got.code()) << i << got.message();
  }
  EXPECT_TRUE(w.store->use(chunk(4)->meta.id)->pinned);
  EXPECT_EQ(1u, w.store->stat()->totals.pinned_chunks);
}

TEST(StoreCompact, TheFileShrinksToItsChunks) {
  World w;
  for (uint32_t i = 100; i < 140; ++i) {
    const auto r = make_record(i, {4, 200, 128, DType::f16});
    EXPECT_OK(w.store->put(*r));
    EXPECT_OK(w.store->remove(r->meta.id));
  }
  uint64_t before = 0;
  uint64_t after = 0;
  EXPECT_CODE(BLEND_E_BUSY, compact_store(w.dir.file("s"), &before, &after));
  EXPECT_OK(w.store->copy_to(w.dir.file("copy/of/it")));  // beside its use
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, w.store->copy_to(w.dir.file("copy/of/it")));
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, w.store->copy_to(w.dir.file("s")));
  const uint64_t stored = w.store->stat()->stored_bytes;
  w.store.reset();
  EXPECT_OK(compact_store(w.dir.file("s"), &before, &after));
  EXPECT_EQ(after, size_of(w.dir.file("s/data.mdb")));
  EXPECT_LT(after, before);
  EXPECT_LT(after, stored + (256u << 10));
  EXPECT_FALSE(std::filesystem::exists(w.dir.file("s/data.mdb.compact")));
  for (const char* path : {"s", "copy/of/it"}) {
    auto store = open_store(w.dir.file(path));
    for (uint32_t i = 0; i < 12; ++i) EXPECT_OK(compare(*store, *chunk(i)));
    EXPECT_EQ(12u, store->stat()->n_chunks);
    EXPECT_OK(store->put(*chunk(50)));
    EXPECT_OK(store->remove(chunk(3)->meta.id));
    EXPECT_OK(store->for_each(true, [](const ChunkMeta&, const std::string&) { return 0; }));
  }
  EXPECT_CODE(BLEND_E_NOT_FOUND, compact_store(w.dir.file("none"), &before, &after));
}

TEST(StoreCompact, WaitsForNobodyAndIsSeenByEverybody) {
  // Another process has it open: BUSY. While it is compacted again and again, processes that open
  // it always find every chunk.
  World w;
  w.store.reset();
  int ready[2];
  int done[2];
  ASSERT_EQ(0, pipe(ready));
  ASSERT_EQ(0, pipe(done));
  const pid_t holder = fork();
  if (holder == 0) {
    auto own = Store::open(w.dir.file("s"), {}, {});
    char c = 0;
    if (!own.is_ok() || write(ready[1], "r", 1) != 1 || read(done[0], &c, 1) != 1) _exit(1);
    own.value().reset();
    _exit(0);
  }
  char c = 0;
  ASSERT_EQ(1, read(ready[0], &c, 1));
  uint64_t before = 0;
  uint64_t after = 0;
  EXPECT_CODE(BLEND_E_BUSY, compact_store(w.dir.file("s"), &before, &after));
  ASSERT_EQ(1, write(done[1], "d", 1));
  int status = 0;
  ASSERT_EQ(holder, waitpid(holder, &status, 0));
  EXPECT_EQ(0, status);

  std::vector<pid_t> openers;
  for (uint32_t p = 0; p < 2; ++p) {
    const pid_t opener = fork();
    if (opener == 0) {
      for (uint32_t i = 0; i < 25; ++i) {
        auto own = Store::open(w.dir.file("s"), {}, {});
        if (!own.is_ok()) {
          std::fprintf(stderr, "%s\n", own.status().message().c_str());
          _exit(1);
        }
        for (uint32_t k = 0; k < 12; ++k) {
          if (!compare(**own, *chunk(k)).is_ok()) _exit(2);
        }
        if (!(*own)->put(*make_record(1000 + p)).is_ok()) _exit(3);
      }
      _exit(0);
    }
    openers.push_back(opener);
  }
  int n_compacted = 0;
  for (size_t left = openers.size(); left > 0;) {
    const Status compacted = compact_store(w.dir.file("s"), &before, &after);
    n_compacted += compacted.is_ok();
    EXPECT_TRUE(compacted.is_ok() || compacted.code() == BLEND_E_BUSY) << compacted.message();
    usleep(1000);  // or nobody else ever gets in
    if (waitpid(-1, &status, WNOHANG) > 0) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      --left;
    }
  }
  EXPECT_OK(compact_store(w.dir.file("s"), &before, &after));
  w.store = open_store(w.dir.file("s"));
  for (uint32_t i = 0; i < 12; ++i) EXPECT_OK(compare(*w.store, *chunk(i)));
  for (uint32_t p = 0; p < 2; ++p) EXPECT_OK(compare(*w.store, *make_record(1000 + p)));
  EXPECT_EQ(14u, w.store->stat()->n_chunks);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

// Long compactions one after another, as a process that waits to open the store sees them: the lock
// is held, the lock file is emptied, and soon the lock is held again. The first ones leave no time
// in between, the others enough for who tries again at once.
TEST(StoreCompact, LetsInWhoWaitedBeforeTheNextOne) {
  World w;
  w.store.reset();
  const std::string lock_file = w.dir.file("s/lock.mdb");
  int ready[2];
  ASSERT_EQ(0, pipe(ready));
  const pid_t test = getpid();
  const pid_t compactor = fork();
  ASSERT_GE(compactor, 0);
  if (compactor == 0) {
    const Fd fd(open(lock_file.c_str(), O_RDWR));
    struct flock lock {};
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    for (int i = 0; getppid() == test; ++i) {
      lock.l_type = F_WRLCK;
      if (fcntl(fd.get(), F_SETLKW, &lock) != 0) _exit(1);
      if (i == 0 && write(ready[1], "r", 1) != 1) _exit(2);
      usleep(60'000);
      if (ftruncate(fd.get(), 0) != 0) _exit(3);
      lock.l_type = F_UNLCK;
      if (fcntl(fd.get(), F_SETLK, &lock) != 0) _exit(4);
      if (i >= 8) usleep(10'000);
    }
    _exit(5);  // the test is gone
  }
  close(ready[1]);  // so that the read ends where the child fails
  char c = 0;
  EXPECT_EQ(1, read(ready[0], &c, 1));
  if (!HasFailure()) EXPECT_OK(Store::open(w.dir.file("s"), {}, {}).status());
  kill(compactor, SIGKILL);
  int status = 0;
  ASSERT_EQ(compactor, waitpid(compactor, &status, 0));
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  close(ready[0]);
}

// A figure of the disk's hits is what is left of all hits: never less than none, whoever is
// counting meanwhile.
TEST(StoreMetrics, HitsOfMemoryAreNoMoreThanAllHits) {
  TempDir dir;
  StoreOptions options;
  options.ram_bytes = 1 << 20;
  auto store = open_store(dir.path(), options);
  const auto r = make_record(1);
  EXPECT_OK(store->put_async(r));
  EXPECT_OK(store->flush());
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) {
      auto snapshot = take(store->snapshot());
      for (int i = 0; i < 1000; ++i) EXPECT_OK(snapshot->open(r->meta.id).status());
    }
  });
  uint64_t n_ram = 0;
  for (int i = 0; i < 20'000 && !HasFailure(); ++i) {
    const StoreStat stat = take(store->stat());
    EXPECT_LE(stat.ram_hits, stat.hits) << "after " << i;
    EXPECT_LE(stat.variant_hits, stat.hits);
    n_ram = stat.ram_hits;
  }
  over = true;
  reader.join();
  EXPECT_GT(n_ram, 0u);
}

TEST(StoreMetrics, TextHasEveryFigureOnceAndEscapesItsLabel) {
  World w;
  const auto metrics = store_metrics(w.store->stat().value(), 1.5e9);
  const std::string text = prometheus_text(metrics, "a\"b\\c\nd");
  EXPECT_NE(std::string::npos, text.find("\nblend_store_chunks{store=\"a\\\"b\\\\c\\nd\"} 12\n"));
  EXPECT_NE(std::string::npos,
            text.find("blend_store_hits_total{store=\"a\\\"b\\\\c\\nd\",tier=\"ram\"} 0\n"));
  EXPECT_NE(std::string::npos,
            text.find("blend_store_quota_bytes{store=\"a\\\"b\\\\c\\nd\"} 17179869184\n"));
  std::set<std::string> seen;
  std::string previous;
  for (const Metric& m : metrics) {
    EXPECT_TRUE(seen.insert(std::string(m.name) + m.labels).second) << m.name;
    const std::string name = m.name;
    EXPECT_EQ(m.counter, name.ends_with("_total")) << name;
    if (name != previous) {
      const std::string head = "# TYPE " + name + (m.counter ? " counter\n" : " gauge\n");
      EXPECT_EQ(text.find(head), text.rfind(head)) << name;
      EXPECT_NE(std::string::npos, text.find(head)) << name;
    }
    previous = name;
  }
  EXPECT_EQ('\n', text.back());
}

}  // namespace
}  // namespace blend::test
