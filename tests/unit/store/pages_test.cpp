// Stores on machines whose pages are larger than x86's, and stores that go from one such machine to
// another. LMDB makes a file with the pages of the machine, up to 32 KiB.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "fault/other_machine.h"
#include "store/lmdb/writer/writer.h"
#include "store/store.h"
#include "store/transfer.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr size_t kPages[] = {4096, 16384, 65536};

// With a map that emulators can take.
StoreOptions small(ReadMode mode = ReadMode::best) {
  StoreOptions options;
  options.quota_bytes = 64 << 20;
  options.read_mode = mode;
  return options;
}

uint32_t page_size_of(const std::string& store) {
  std::ifstream in(store + "/data.mdb", std::ios::binary);
  uint32_t bytes = 0;
  in.seekg(40);  // after the page's header, magic, version, address and map size
  in.read(reinterpret_cast<char*>(&bytes), sizeof bytes);
  return bytes;
}

// Values inside a tree page, at any place; that fill a page or some; of several pieces, with rows
// across them.
std::vector<std::shared_ptr<ChunkRecord>> chunks(uint32_t seed) {
  std::vector<std::shared_ptr<ChunkRecord>> all;
  for (const ChunkShape& shape :
       {ChunkShape{1, 1, 1, DType::f16}, ChunkShape{2, 7, 3, DType::f32},
        ChunkShape{2, 33, 30, DType::bf16}, ChunkShape{2, 61, 64, DType::f16},
        ChunkShape{3, 33, 128, DType::bf16}, ChunkShape{4, 100, 333, DType::f32}}) {
    for (const Codec codec : {Codec::none, Codec::zstd}) {
      all.push_back(make_record(seed++, shape));
      all.back()->codec = codec;
    }
  }
  return all;
}

void put_all(Store& store, uint32_t seed) {
  for (const auto& r : chunks(seed)) EXPECT_OK(store.put(*r));
}

void expect_all(const std::string& path, uint32_t seed) {
  for (const ReadMode mode : {ReadMode::uring, ReadMode::threads, ReadMode::mapped}) {
    SCOPED_TRACE(read_mode_name(mode));
    auto store = Store::open(path, small(mode), {});
    if (mode != ReadMode::mapped && store.status().code() == BLEND_E_UNSUPPORTED) continue;
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    const auto snapshot = take((*store)->snapshot());
    for (const auto& r : chunks(seed)) {
      EXPECT_OK(compare_staged(*take(snapshot->open(r->meta.id)), *r, 2));
      EXPECT_OK(compare(*take(snapshot->open(r->meta.id)), *r));
    }
    EXPECT_OK((*store)->for_each(true, [](const ChunkMeta&, const std::string& problem) {
      EXPECT_EQ(problem, "");
      return 0;
    }));
  }
}

class StorePages : public testing::TestWithParam<size_t> {};

TEST_P(StorePages, AStoreWorksOnPagesOfAnySize) {
  const OtherMachine machine(GetParam());
  TempDir dir;
  put_all(*open_store(dir.path(), small()), 1);
  EXPECT_EQ(page_size_of(dir.path()), std::min<size_t>(GetParam(), 32768));
  expect_all(dir.path(), 1);
  {
    // Pages are freed, used again and placed in front of commits.
    const auto store = open_store(dir.path(), small());
    for (uint32_t round = 0; round < 4; ++round) {
      put_all(*store, 100);
      for (const auto& r : chunks(100)) EXPECT_OK(store->remove(r->meta.id));
    }
    uint64_t n_evicted = 0;
    put_all(*store, 200);
    EXPECT_OK(store->evict(0, &n_evicted));
    EXPECT_EQ(n_evicted, 2 * chunks(1).size());
    put_all(*store, 1);
  }
  uint64_t before = 0, after = 0;
  EXPECT_OK(compact_store(dir.path(), &before, &after));
  EXPECT_LT(after, before);
  expect_all(dir.path(), 1);
}

TEST_P(StorePages, AStoreOfSmallerPagesIsOpened) {
  for (const size_t made_with : kPages) {
    if (made_with > GetParam()) continue;
    SCOPED_TRACE(made_with);
    TempDir dir;
    {
      const OtherMachine machine(made_with);
      put_all(*open_store(dir.path(), small()), 1);
    }
    const OtherMachine machine(GetParam());
    expect_all(dir.path(), 1);
    put_all(*open_store(dir.path(), small()), 100);
    EXPECT_EQ(page_size_of(dir.path()), std::min<size_t>(made_with, 32768));
    expect_all(dir.path(), 1);
    expect_all(dir.path(), 100);
  }
}

TEST_P(StorePages, AStoreOfLargerPagesIsRefusedAndGoesOverAsAFile) {
  for (const size_t made_with : kPages) {
    if (made_with <= GetParam()) continue;
    SCOPED_TRACE(made_with);
    TempDir dir;
    const std::string store = dir.file("store"), file = dir.file("chunks");
    {
      const OtherMachine machine(made_with);
      put_all(*open_store(store, small()), 1);
      EXPECT_OK(export_chunks(*open_store(store, small()), {}, file, {}).status());
    }
    {
      const OtherMachine machine(GetParam());
      const Status refused = Store::open(store, small(), {}).status();
      EXPECT_EQ(refused.code(), BLEND_E_UNSUPPORTED);
      EXPECT_NE(refused.message().find("export"), std::string::npos) << refused.message();
      Transfer done;
      EXPECT_OK(import_chunks(*open_store(dir.file("other"), small()), file, false, {}, &done));
      expect_all(dir.file("other"), 1);
    }
    const OtherMachine machine(made_with);
    expect_all(store, 1);
  }
}

// What a process leaves that is killed while LMDB writes its first two pages.
TEST_P(StorePages, AFileThatWasNeverBegunIsBegunAnew) {
  const OtherMachine machine(GetParam());
  TempDir dir;
  open_store(dir.file("whole"), small());
  const size_t page = page_size_of(dir.file("whole"));
  for (const size_t bytes : {page / 2, page, page + page / 2}) {
    const std::string path = dir.file(std::to_string(bytes));
    std::filesystem::create_directory(path);
    std::filesystem::copy_file(dir.file("whole/data.mdb"), path + "/data.mdb");
    // As LMDB writes them: nothing was committed.
    std::fstream out(path + "/data.mdb", std::ios::binary | std::ios::in | std::ios::out);
    const uint64_t none[3] = {~uint64_t{0}, 1, 0};  // root, last page, transaction
    out.seekp(16 + 24 + 2 * 48 - 8);
    out.write(reinterpret_cast<const char*>(none), sizeof none);
    out.close();
    std::filesystem::resize_file(path + "/data.mdb", bytes);
    put_all(*open_store(path, small()), 1);
    expect_all(path, 1);
  }
}

// Chunks of 17 KiB: LMDB gives each 32.
TEST_P(StorePages, TheMapHasRoomForWhatRoundingTakes) {
  const OtherMachine machine(GetParam());
  constexpr uint64_t kQuota = 100ull << 30;
  const double page = static_cast<double>(std::min<size_t>(GetParam(), 32768));
  const double taken = std::ceil(17.0 * 1024 / page) * page, counted = 20480;
  EXPECT_GT(static_cast<double>(map_bytes_for(kQuota, 0)),
            static_cast<double>(kQuota) / counted * taken);
}

INSTANTIATE_TEST_SUITE_P(Bytes, StorePages, testing::ValuesIn(kPages),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace blend::test
