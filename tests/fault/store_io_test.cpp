// Fails the Nth write, sync or rename of every call that changes a store, for N = 1, 2, ... until
// the call makes fewer: nothing that was acknowledged is lost, the store opens again, and the call
// then succeeds.
#include <filesystem>
#include <functional>
#include <set>

#include "fault/failing_io.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/store.h"
#include "store/transfer.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr ChunkShape kChunk{3, 200, 64, DType::f16};
constexpr uint32_t kChunks = 5;

std::shared_ptr<ChunkRecord> chunk(uint32_t i) { return make_record(i, kChunk); }

class StoreIo : public testing::TestWithParam<IoFault> {
 protected:
  StoreIo() {
    options_.quota_bytes = kChunks * encode_chunk(*chunk(0), Codec::none)->manifest.footprint();
  }

  std::shared_ptr<Store> open() {
    const auto told = [this](const LogRecord& record) {
      if (record.code == BLEND_EVENT_EVICTED) evicted_.insert(record.message.substr(6, 64));
    };
    auto store = Store::open(path_, options_, Log(BLEND_LOG_INFO, told));
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return store.is_ok() ? store.value() : nullptr;
  }

  // Makes a store of five chunks, which fills it, for every N. `call` may close and open it.
  void sweep(const std::function<Status(std::shared_ptr<Store>&)>& call) {
    int n_failures = 0;
    for (uint64_t n = 1;; ++n) {
      TempDir dir;
      dir_ = &dir;
      path_ = dir.file("s");
      evicted_.clear();
      auto store = open();
      ASSERT_NE(nullptr, store);
      for (uint32_t i = 0; i < kChunks; ++i) ASSERT_TRUE(store->put(*chunk(i)).is_ok());
      bool fired = false;
      Status status;
      {
        const FaultyIo faulty(GetParam(), n);
        status = call(store);
        fired = faulty.fired();
      }
      if (!status.is_ok()) ++n_failures;
      if (!fired) {
        EXPECT_TRUE(status.is_ok()) << status.message();
        break;
      }
      store.reset();
      store = open();
      ASSERT_NE(nullptr, store) << "call " << n << " failed and the store does not open";
      EXPECT_OK(store->for_each(true, [](const ChunkMeta&, const std::string& problem) {
        EXPECT_EQ("", problem);
        return 0;
      }));
      uint64_t n_there = 0;
      for (uint32_t i = 0; i < kChunks; ++i) {
        const Status got = compare(*store, *chunk(i));
        n_there += got.is_ok();
        const bool gone = removable_.contains(i) || evicted_.contains(to_hex(chunk(i)->meta.id));
        EXPECT_TRUE(got.is_ok() || (gone && got.code() == BLEND_E_NOT_FOUND))
            << "call " << n << ", chunk " << i << ": " << got.message();
      }
      EXPECT_LE(store->stat()->stored_bytes, options_.quota_bytes);
      if (HasFailure()) return;
      status = call(store);
      EXPECT_TRUE(status.is_ok()) << "call " << n << ", tried again: " << status.message();
      ASSERT_LT(n, 500u);
    }
    // If calls are interrupted by a signal, only LMDB's own may fail.
    if (GetParam() != IoFault::interrupt) {
      EXPECT_GE(n_failures, 2);
    }
  }

  StoreOptions options_;
  TempDir* dir_ = nullptr;
  std::string path_;
  std::set<std::string> evicted_;  // as the store told, in hexadecimal
  std::set<uint32_t> removable_;   // chunks whose leaving was asked for
};

TEST_P(StoreIo, EvictingPut) {
  removable_ = {0};  // the oldest: a commit may succeed and its put still be told an error
  sweep([](auto& store) { return store->put(*chunk(100)); });
}

TEST_P(StoreIo, BackgroundPut) {
  removable_ = {0};
  sweep([](auto& store) {
    BLEND_RETURN_IF_ERROR(store->put_async(chunk(100)));
    return store->flush();
  });
}

TEST_P(StoreIo, EvictAndPin) {
  removable_ = {1, 2, 3};
  sweep([](auto& store) {
    BLEND_RETURN_IF_ERROR(store->pin(chunk(0)->meta.id, true));
    uint64_t n = 0;
    const uint64_t two = store->stat()->quota_bytes / kChunks * 2;
    return store->evict(two, &n);
  });
}

TEST_P(StoreIo, Remove) {
  removable_ = {2};
  sweep([](auto& store) {
    const Status removed = store->remove(chunk(2)->meta.id);
    return removed.code() == BLEND_E_NOT_FOUND ? Status::ok() : removed;
  });
}

TEST_P(StoreIo, Compact) {
  sweep([this](auto& store) {
    store.reset();
    uint64_t before = 0;
    uint64_t after = 0;
    const Status compacted = compact_store(path_, &before, &after);
    EXPECT_FALSE(std::filesystem::exists(path_ + "/data.mdb.compact"));
    if (!compacted.is_ok()) return compacted;
    BLEND_ASSIGN(store, Store::open(path_, options_, {}));
    return compare(*store, *chunk(2));
  });
}

TEST_P(StoreIo, Copy) {
  sweep([this](auto& store) {
    std::filesystem::remove_all(dir_->file("copy"));
    BLEND_RETURN_IF_ERROR(store->copy_to(dir_->file("copy")));
    BLEND_ASSIGN(const auto copy, Store::open(dir_->file("copy"), options_, {}));
    return compare(*copy, *chunk(3));
  });
}

TEST_P(StoreIo, ExportAndImport) {
  removable_ = {0, 1, 2, 3, 4};
  sweep([this](auto& store) {
    const std::string file = dir_->file("chunks");
    BLEND_RETURN_IF_ERROR(export_chunks(*store, {}, file, {}).status());
    uint64_t n = 0;
    BLEND_RETURN_IF_ERROR(store->evict(0, &n));
    Transfer done;
    return import_chunks(*store, file, false, {}, &done);
  });
}

TEST_P(StoreIo, Open) {
  sweep([this](auto& store) {
    store.reset();
    BLEND_ASSIGN(const auto other, Store::open(dir_->file("new"), options_, {}));
    return other->put(*chunk(7));
  });
}

// All of it is ours: write() and fsync() of the file and of its directory.
TEST(StoreInterrupted, ExportGoesOn) {
  const TempDir dir;
  auto opened = Store::open(dir.file("s"), {}, {});
  ASSERT_TRUE(opened.is_ok());
  const std::shared_ptr<Store> store = opened.value();
  for (uint32_t i = 0; i < kChunks; ++i) ASSERT_TRUE(store->put(*chunk(i)).is_ok());
  for (uint64_t n = 1;; ++n) {
    const FaultyIo faulty(IoFault::interrupt, n);
    SCOPED_TRACE(n);
    EXPECT_OK(export_chunks(*store, {}, dir.file("chunks"), {}).status());
    if (!faulty.fired()) {
      EXPECT_GT(n, 4u);
      break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nth, StoreIo,
                         testing::Values(IoFault::fail_eio, IoFault::fail_full, IoFault::interrupt),
                         [](const auto& which) {
                           return which.param == IoFault::fail_eio    ? "Eio"
                                  : which.param == IoFault::fail_full ? "FullFromThere"
                                                                      : "Interrupted";
                         });

}  // namespace
}  // namespace blend::test
