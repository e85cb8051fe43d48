// Reading by every way there is: the same rows, each once, and damage found by all of them.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "store/codec/codec.h"
#include "store/lmdb/catalog/manifest.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

StoreOptions with(ReadMode mode) {
  StoreOptions options;
  options.read_mode = mode;
  return options;
}

class StoreRead : public testing::TestWithParam<ReadMode> {
 protected:
  // Null, and the test skipped, where this machine does not have it.
  std::shared_ptr<Store> open(const std::string& path) {
    auto store = Store::open(path, with(GetParam()), {});
    if (store.is_ok()) return *store;
    EXPECT_EQ(BLEND_E_UNSUPPORTED, store.status().code()) << store.status().message();
    return nullptr;
  }
};
#define OPEN_OR_SKIP(store, path) \
  const auto store = open(path);  \
  if (store == nullptr) GTEST_SKIP() << read_mode_name(GetParam()) << " is not to be had here"

TEST_P(StoreRead, EveryRowComesBackOnce) {
  TempDir dir;
  OPEN_OR_SKIP(store, dir.path());
  if (GetParam() != ReadMode::best) {
    EXPECT_EQ(GetParam(), take(store->stat()).read_mode);
  }
  std::vector<std::shared_ptr<ChunkRecord>> all;
  uint32_t seed = 1;
  for (const ChunkShape& shape :
       {// Inside a tree page, a page, and rows that lie across two and three pieces.
        ChunkShape{1, 1, 1, DType::f16}, ChunkShape{2, 7, 3, DType::f32},
        ChunkShape{3, 33, 128, DType::bf16}, ChunkShape{4, 500, 333, DType::f32},
        ChunkShape{3, 512, 512, DType::bf16}, ChunkShape{2, 3, 300'000, DType::f16},
        ChunkShape{1, kPieceBytes / 4, 1, DType::f16},
        ChunkShape{1, kPieceBytes / 4 + 1, 1, DType::f16}}) {
    for (const Codec codec : {Codec::none, Codec::zstd}) {
      all.push_back(make_record(seed++, shape));
      all.back()->codec = codec;
      EXPECT_OK(store->put(*all.back()));
    }
  }
  const auto snapshot = take(store->snapshot());
  for (const uint32_t depth : {1u, 2u, 4u}) {
    for (const auto& r : all) {
      const auto source = take(snapshot->open(r->meta.id));
      SCOPED_TRACE(r->meta.shape.n_tokens);
      EXPECT_OK(compare_staged(*source, *r, depth));
    }
  }
}

// Packed, rows come as one piece that decodes to what the same source reads; only where the codec
// is one that a device decodes, and only after it was allowed.
TEST_P(StoreRead, PackedRowsAreHandedOnWhereThatIsAllowed) {
  TempDir dir;
  OPEN_OR_SKIP(store, dir.path());
  uint32_t seed = 1;
  for (const ChunkShape& shape :
       {ChunkShape{2, 1, 64, DType::f16, 32}, ChunkShape{2, 7, 3, DType::f32, 3},
        ChunkShape{3, 500, 1000, DType::f32, 100}, ChunkShape{2, 33, 128, DType::bf16, 64}}) {
    for (const Codec codec : {Codec::none, Codec::zstd, Codec::int8, Codec::int4}) {
      const auto record = make_record(seed++, shape);
      std::memset(record->data.data(), 0x35, record->data.bytes());  // numbers
      record->codec = codec;
      EXPECT_OK(store->put(*record));
      const auto snapshot = take(store->snapshot());
      const auto source = take(snapshot->open(record->meta.id));
      auto space = take(AlignedBuffer::allocate(source->stage_bytes()));
      std::vector<std::byte> want(shape.layer_bytes(0)), got(shape.layer_bytes(0));
      std::vector<RowRun> rows;
      CodecScratch scratch;
      const Packing packed = codec == Codec::int8   ? Packing::int8
                             : codec == Codec::int4 ? Packing::int4
                                                    : Packing::none;
      for (const bool allowed : {false, true}) {
        if (allowed) source->allow_packed();
        for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
          source->start_layer(layer, space.data());
          EXPECT_OK(source->finish_layer(layer, space.data(), rows));
          EXPECT_OK(source->read_layer(layer, want.data()));
          const RowRun& run = rows.front();
          ASSERT_EQ(run.packed.packing, allowed ? packed : Packing::none);
          if (run.packed.packing == Packing::none) continue;
          ASSERT_EQ(rows.size(), 1u);
          EXPECT_EQ(run.first, 0u);
          EXPECT_EQ(run.n, shape.n_tokens);
          EXPECT_EQ(run.v, run.k + run.packed.k_bytes);
          const size_t planes = run.packed.k_bytes + run.packed.v_bytes;
          const size_t padded = (planes + kLayerAlignment - 1) / kLayerAlignment * kLayerAlignment;
          EXPECT_OK(decode_layer(codec, shape, 0, {run.k, padded}, got.data(), scratch));
          EXPECT_TRUE(got == want) << codec_name(codec);
        }
      }
    }
  }
}

TEST_P(StoreRead, SeveralSourcesOfOneSnapshotAtOnce) {
  TempDir dir;
  OPEN_OR_SKIP(store, dir.path());
  std::vector<std::shared_ptr<ChunkRecord>> all;
  for (uint32_t i = 0; i < 4; ++i) {
    all.push_back(make_record(i + 1, {6, 300, 256, DType::f16}));
    EXPECT_OK(store->put(*all.back()));
  }
  const auto snapshot = take(store->snapshot());
  std::vector<std::thread> threads;
  for (const auto& r : all) {
    threads.emplace_back([&snapshot, &r] {
      for (int round = 0; round < 5; ++round) {
        const auto source = take(snapshot->open(r->meta.id));
        EXPECT_OK(compare_staged(*source, *r, 3));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST_P(StoreRead, WhatIsStartedMayBeGivenUp) {
  TempDir dir;
  OPEN_OR_SKIP(store, dir.path());
  const auto r = make_record(1, {8, 512, 512, DType::f16});
  EXPECT_OK(store->put(*r));
  const auto snapshot = take(store->snapshot());
  for (int round = 0; round < 10; ++round) {
    const auto source = take(snapshot->open(r->meta.id));
    {
      const auto space = take(AlignedBuffer::allocate(8 * source->stage_bytes()));
      for (uint32_t l = 0; l < 8; ++l) {
        source->start_layer(l, space.data() + l * (source->stage_bytes() / 4096 * 4096));
      }
      source->abandon();  // before the space goes
    }
    EXPECT_OK(compare_staged(*source, *r, 2));
  }
}

// Above every way of reading: what memory holds is served from there, the rest as before.
TEST_P(StoreRead, MemoryServesWhatTheDiskGave) {
  TempDir dir;
  StoreOptions options = with(GetParam());
  options.ram_bytes = 8 << 20;
  auto opened = Store::open(dir.path(), options, {});
  if (!opened.is_ok()) GTEST_SKIP() << opened.status().message();
  const auto store = *opened;
  for (const Codec codec : {Codec::none, Codec::zstd, Codec::int8}) {
    const auto r = make_record(static_cast<uint32_t>(codec) + 1, {5, 600, 333, DType::f32, 37});
    const ChunkShape& shape = r->meta.shape;
    r->codec = codec;
    for (size_t at = 0; at < r->data.bytes(); at += 4) {
      r->data.data()[at + 3] &= std::byte{0xbf};  // finite numbers, for int8
    }
    EXPECT_OK(store->put(*r));
    const auto snapshot = take(store->snapshot());
    auto want = std::make_shared<ChunkRecord>();  // as the codec gives it back
    want->meta = r->meta;
    want->data = take(AlignedBuffer::allocate(shape.total_bytes()));
    {
      const auto plain = open_store(dir.path());
      const auto before = take(plain->snapshot());
      const auto source = take(before->open(r->meta.id));
      for (uint32_t l = 0; l < shape.n_layers; ++l) EXPECT_OK(source->read_layer(l, want->k(l)));
    }
    const auto first = take(snapshot->open(r->meta.id));
    EXPECT_OK(compare_staged(*first, *want, 3));
    EXPECT_EQ(first->origin(), Origin::disk);
    const auto second = take(snapshot->open(r->meta.id));
    EXPECT_OK(compare_staged(*second, *want, 3));
    EXPECT_EQ(second->origin(), Origin::memory);
    EXPECT_OK(compare(*second, *want));
    EXPECT_EQ(second->origin(), Origin::memory);
    // A started layer stays, whatever leaves memory before it is finished.
    const auto third = take(snapshot->open(r->meta.id));
    const auto space = take(AlignedBuffer::allocate(third->stage_bytes()));
    third->start_layer(2, space.data());
    const auto large = make_record(99, {1, 600, 1600, DType::f32});
    EXPECT_OK(store->put(*large));
    EXPECT_OK(compare(*store, *large));
    EXPECT_EQ(large->meta.shape.total_bytes(), store->stat()->ram_bytes);
    std::vector<RowRun> rows;
    EXPECT_OK(third->finish_layer(2, space.data(), rows));
    EXPECT_EQ(third->origin(), Origin::memory);
    ASSERT_EQ(1u, rows.size());
    EXPECT_EQ(0, std::memcmp(rows[0].k, want->k(2), shape.layer_bytes(0)));
    third->start_layer(3, space.data());
    third->abandon();
    EXPECT_OK(compare_staged(*third, *want, 2));
  }
}

// Whoever opens and closes a store is a thread of the host's. The work of a ring that it had made
// would end the next system call of its own that has a time limit.
TEST_P(StoreRead, TheHostsThreadIsNotInterrupted) {
  TempDir dir;
  OPEN_OR_SKIP(first, dir.path());
  int pair[2];
  ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
  const timeval limit{0, 50'000};
  ASSERT_EQ(0, setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
  for (int round = 0; round < 5; ++round) {
    open(dir.path() + "/" + std::to_string(round)).reset();
    char byte = 0;
    EXPECT_EQ(-1, recv(pair[0], &byte, 1, 0));
    EXPECT_EQ(EAGAIN, errno) << "round " << round;
  }
  close(pair[0]);
  close(pair[1]);
}

// The bytes that were read are checked, not those in the map.
TEST_P(StoreRead, AFlippedBitIsCorrupt) {
  TempDir dir;
  const auto r = make_record(1, {3, 300, 512, DType::f16});
  for (const Codec codec : {Codec::none, Codec::zstd}) {
    r->codec = codec;
    {
      OPEN_OR_SKIP(store, dir.path());
      EXPECT_OK(store->put(*r));
    }
    const std::string file = dir.file("data.mdb");
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    // The mantissas of a plane are stored as they are by both.
    const auto encoded = take(encode_chunk(*r, codec));
    const std::string needle(
        reinterpret_cast<const char*>(encoded.stream + encoded.manifest.layers[1].offset +
                                      encoded.manifest.layers[1].length / 2),
        32);
    const size_t at = bytes.find(needle);
    ASSERT_NE(std::string::npos, at);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    std::ofstream(file, std::ios::binary) << bytes;
    OPEN_OR_SKIP(store, dir.path());
    const auto snapshot = take(store->snapshot());
    const auto source = take(snapshot->open(r->meta.id));
    const Status s = compare_staged(*source, *r, 2);
    EXPECT_EQ(BLEND_E_CORRUPT, s.code()) << s.message();
    EXPECT_NE(std::string::npos, s.message().find("layer 1")) << s.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, StoreRead,
                         testing::Values(ReadMode::best, ReadMode::uring, ReadMode::threads,
                                         ReadMode::mapped),
                         [](const auto& param_info) {
                           return std::string(param_info.param == ReadMode::uring
                                                  ? "uring"
                                                  : read_mode_name(param_info.param));
                         });

// As a container that forbids io_uring does: the next best way is found by itself, and asking for
// the forbidden one says why it is not there.
TEST(StoreReadForbidden, WithoutIoUringThreadsRead) {
  TempDir dir;
  const auto r = make_record(1, {3, 300, 512, DType::f16});
  EXPECT_OK(open_store(dir.path())->put(*r));
  const bool threads_work = Store::open(dir.path(), with(ReadMode::threads), {}).is_ok();
  const pid_t child = fork();
  ASSERT_NE(-1, child);
  if (child == 0) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{4, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      _exit(42);
    }
    const auto forced = Store::open(dir.path(), with(ReadMode::uring), {});
    if (forced.is_ok() || forced.status().code() != BLEND_E_UNSUPPORTED) _exit(10);
    if (forced.status().message().find("io_uring") == std::string::npos) _exit(11);
    auto store = Store::open(dir.path(), with(ReadMode::best), {});
    if (!store.is_ok()) _exit(12);
    const ReadMode want = threads_work ? ReadMode::threads : ReadMode::mapped;
    if ((*store)->stat()->read_mode != want) _exit(13);
    auto snapshot = (*store)->snapshot();
    if (!snapshot.is_ok()) _exit(14);
    auto source = (*snapshot)->open(r->meta.id);
    if (!source.is_ok()) _exit(15);
    _exit(compare_staged(**source, *r, 2).is_ok() ? 0 : 16);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 42) GTEST_SKIP() << "no seccomp here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
}

}  // namespace
}  // namespace blend::test
