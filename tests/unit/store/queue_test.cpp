// The write-back queue, and stores across fork and processes.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "store/queue/write_back.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

// A disk that waits for the test's word before each write, and remembers the order.
class SlowDisk {
 public:
  Status write(const ChunkRecord& r) {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return allowed_ > 0; });
    --allowed_;
    written_.push_back(r.meta.tokens[0]);
    if (r.meta.tokens[0] >= 1000) return {BLEND_E_IO, "no " + std::to_string(r.meta.tokens[0])};
    return Status::ok();
  }
  void allow(int n) {
    const std::lock_guard lock(mutex_);
    allowed_ += n;
    changed_.notify_all();
  }
  void wait_begun(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= n; });
  }
  std::vector<int32_t> written() {
    const std::lock_guard lock(mutex_);
    return written_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0;
  int begun_ = 0;
  std::vector<int32_t> written_;
};

constexpr ChunkShape kSmall{1, 8, 32, DType::f16};  // 1024 bytes of K and V, 32 of tokens
constexpr uint64_t kSmallBytes = 1024 + 32;

struct Queue {
  SlowDisk disk;
  std::vector<std::string> errors;
  std::unique_ptr<WriteBack> queue;
  std::mutex mutex;
  std::vector<size_t> batches;
  explicit Queue(uint64_t bytes, unsigned n_threads = 1, size_t batch_records = 1) {
    queue = std::make_unique<WriteBack>(
        WriteBack::Limits{bytes, n_threads, batch_records},
        [this](WriteBack::Batch batch, std::span<Status> statuses) {
          for (size_t i = 0; i < batch.size(); ++i) statuses[i] = disk.write(*batch[i]);
          const std::lock_guard lock(mutex);
          batches.push_back(batch.size());
        },
        [this](const Status& s) { errors.push_back(s.message()); });
  }
};

TEST(WriteBack, KeepsTheOrderAndFlushWaits) {
  Queue q(1 << 20);
  EXPECT_OK(q.queue->flush());  // nothing yet, no thread either
  for (uint32_t i = 0; i < 10; ++i) EXPECT_OK(q.queue->push(make_record(i, kSmall)));
  EXPECT_EQ(10 * kSmallBytes, q.queue->bytes());
  auto flushed = std::async(std::launch::async, [&] { return q.queue->flush(); });
  q.disk.allow(9);
  EXPECT_EQ(std::future_status::timeout, flushed.wait_for(std::chrono::milliseconds(20)));
  q.disk.allow(1);
  EXPECT_OK(flushed.get());
  EXPECT_EQ((std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), q.disk.written());
  EXPECT_EQ(0u, q.queue->bytes());
}

TEST(WriteBack, AFullQueueBlocksTheWriter) {
  Queue q(3 * kSmallBytes);
  std::atomic<int> pushed{0};
  std::thread writer([&] {
    for (uint32_t i = 0; i < 6; ++i) {
      EXPECT_OK(q.queue->push(make_record(i, kSmall)));
      ++pushed;
    }
  });
  // Gets as far as `n`, however busy the machine, and then no farther.
  const auto stops_at = [&](int n) {
    for (int i = 0; i < 5000 && pushed < n; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(n, pushed);
  };
  q.disk.wait_begun(1);
  stops_at(3);
  EXPECT_LE(q.queue->bytes(), 3 * kSmallBytes);
  q.disk.allow(1);
  q.disk.wait_begun(2);
  stops_at(4);
  q.disk.allow(5);
  writer.join();
  EXPECT_OK(q.queue->flush());
  EXPECT_EQ(6u, q.disk.written().size());
}

TEST(WriteBack, ARecordLargerThanTheBoundFitsAnEmptyQueue) {
  Queue q(10);
  q.disk.allow(100);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_OK(q.queue->push(make_record(i, kSmall)));
  EXPECT_OK(q.queue->flush());
  EXPECT_EQ((std::vector<int32_t>{0, 1, 2}), q.disk.written());
}

TEST(WriteBack, PendingRecordsAreFoundUntilTheyAreWritten) {
  Queue q(1 << 20);
  const auto a = make_record(1, kSmall);
  const auto b = make_record(2, kSmall);
  EXPECT_OK(q.queue->push(a));
  EXPECT_OK(q.queue->push(b));
  q.disk.wait_begun(1);  // a is in flight
  EXPECT_EQ(a, q.queue->find(a->meta.id));
  EXPECT_EQ(b, q.queue->find(b->meta.id));
  EXPECT_EQ(2u, q.queue->pending().size());
  q.disk.allow(2);
  EXPECT_OK(q.queue->flush());
  EXPECT_EQ(nullptr, q.queue->find(a->meta.id));
  EXPECT_TRUE(q.queue->pending().empty());
}

TEST(WriteBack, ANewerRecordOfAnIdTakesItsPlace) {
  Queue q(1 << 20);
  EXPECT_OK(q.queue->push(make_record(1, kSmall)));
  q.disk.wait_begun(1);
  const auto old = make_record(2, kSmall);
  auto fresh = make_record(3, {2, 8, 32, DType::f16});
  fresh->meta.id = old->meta.id;
  EXPECT_OK(q.queue->push(old));
  EXPECT_OK(q.queue->push(fresh));
  EXPECT_EQ(fresh, q.queue->find(old->meta.id));
  EXPECT_EQ(2 * kSmallBytes + 1024, q.queue->bytes());
  q.disk.allow(10);
  EXPECT_OK(q.queue->flush());
  EXPECT_EQ((std::vector<int32_t>{1, 3}), q.disk.written());
}

TEST(WriteBack, CancelDropsWhatIsQueuedAndWaitsForWhatIsInFlight) {
  Queue q(1 << 20);
  const auto a = make_record(1, kSmall);
  const auto b = make_record(2, kSmall);
  EXPECT_OK(q.queue->push(a));
  EXPECT_OK(q.queue->push(b));
  q.disk.wait_begun(1);
  EXPECT_TRUE(q.queue->cancel(b->meta.id));
  EXPECT_FALSE(q.queue->cancel(b->meta.id));
  auto cancelled = std::async(std::launch::async, [&] { return q.queue->cancel(a->meta.id); });
  EXPECT_EQ(std::future_status::timeout, cancelled.wait_for(std::chrono::milliseconds(20)));
  q.disk.allow(1);
  EXPECT_FALSE(cancelled.get());
  EXPECT_OK(q.queue->push(b));  // again
  q.disk.allow(1);
  EXPECT_OK(q.queue->flush());
  EXPECT_EQ((std::vector<int32_t>{1, 2}), q.disk.written());
}

TEST(WriteBack, FlushGivesTheFirstErrorOnce) {
  Queue q(1 << 20);
  q.disk.allow(100);
  for (const uint32_t i : {1u, 1000u, 1001u, 2u}) {
    EXPECT_OK(q.queue->push(make_record(i, kSmall)));
  }
  q.queue->drain();
  const Status s = q.queue->flush();
  EXPECT_EQ(BLEND_E_IO, s.code());
  EXPECT_EQ("no 1000", s.message());
  EXPECT_OK(q.queue->flush());
  EXPECT_EQ((std::vector<std::string>{"no 1000", "no 1001"}), q.errors);
  EXPECT_EQ(4u, q.disk.written().size());  // an error does not stop the others
}

TEST(WriteBack, WhatWaitsIsWrittenTogether) {
  Queue q(1 << 20, 1, 4);
  EXPECT_OK(q.queue->push(make_record(0, kSmall)));
  q.disk.wait_begun(1);
  for (uint32_t i = 1; i < 10; ++i) {
    EXPECT_OK(q.queue->push(make_record(i == 3 ? 1000 : i, kSmall)));
  }
  EXPECT_TRUE(q.queue->cancel(make_record(2, kSmall)->meta.id));
  q.disk.allow(100);
  EXPECT_CODE(BLEND_E_IO, q.queue->flush());
  EXPECT_EQ((std::vector<int32_t>{0, 1, 1000, 4, 5, 6, 7, 8, 9}), q.disk.written());
  EXPECT_EQ((std::vector<size_t>{1, 4, 4}), q.batches);
  EXPECT_EQ(0u, q.queue->bytes());
  // Each has its own outcome.
  EXPECT_CODE(BLEND_E_IO, *q.queue->outcome(make_record(1000, kSmall)->meta.id, std::nullopt));
  EXPECT_OK(*q.queue->outcome(make_record(4, kSmall)->meta.id, std::nullopt));
}

TEST(WriteBack, LargeRecordsGoAlone) {
  Queue q(1 << 30, 1, 4);
  const ChunkShape large{1, 1024, 1024, DType::f16};  // 4 MiB: two are more than a batch
  EXPECT_OK(q.queue->push(make_record(0, kSmall)));
  q.disk.wait_begun(1);
  for (uint32_t i = 1; i <= 3; ++i) EXPECT_OK(q.queue->push(make_record(i, large)));
  q.disk.allow(100);
  EXPECT_OK(q.queue->flush());
  EXPECT_EQ((std::vector<size_t>{1, 1, 1, 1}), q.batches);
}

TEST(WriteBack, OneThreadWritesWhileAnotherDoes) {
  Queue q(1 << 20, 2);
  const auto a = make_record(1, kSmall);
  auto newer = make_record(3, kSmall);
  newer->meta.id = a->meta.id;
  EXPECT_OK(q.queue->push(a));
  EXPECT_OK(q.queue->push(make_record(2, kSmall)));
  q.disk.wait_begun(2);  // both
  // Never two of one id: it waits for the first, though another thread is free.
  EXPECT_OK(q.queue->push(newer));
  EXPECT_OK(q.queue->push(make_record(4, kSmall)));
  EXPECT_EQ(4u, q.queue->pending().size() + 1);  // by id
  auto flushed = std::async(std::launch::async, [&] { return q.queue->flush(); });
  q.disk.allow(1);
  EXPECT_EQ(std::future_status::timeout, flushed.wait_for(std::chrono::milliseconds(20)));
  q.disk.allow(3);
  EXPECT_OK(flushed.get());
  const std::vector<int32_t> written = q.disk.written();
  EXPECT_EQ(4u, written.size());
  EXPECT_LT(std::find(written.begin(), written.end(), 1),
            std::find(written.begin(), written.end(), 3));
  EXPECT_EQ(nullptr, q.queue->find(a->meta.id));
}

TEST(WriteBack, DestructionWritesWhatIsQueued) {
  Queue q(1 << 20);
  q.disk.allow(100);
  for (uint32_t i = 0; i < 5; ++i) EXPECT_OK(q.queue->push(make_record(i, kSmall)));
  q.queue.reset();
  EXPECT_EQ(5u, q.disk.written().size());
}

TEST(StoreQueue, QueuedChunksAreHitsAndSurviveClosing) {
  TempDir dir;
  auto store = open_store(dir.path());
  std::vector<std::shared_ptr<ChunkRecord>> records;
  for (uint32_t i = 0; i < 30; ++i) {
    records.push_back(make_record(i, {2, 100, 64, DType::f16}));
    EXPECT_OK(store->put_async(records.back()));
    EXPECT_TRUE(take(store->contains(records.back()->meta.id)));
    // At every moment: queued, in flight or written, there is no gap between them.
    EXPECT_OK(compare(*store, *records[i / 2]));
    EXPECT_OK(compare(*store, *records.back()));
  }
  store.reset();
  store = open_store(dir.path());
  for (const auto& r : records) EXPECT_OK(compare(*store, *r));
  EXPECT_EQ(30u, store->stat()->n_chunks);
}

TEST(StoreQueue, RemoveAndPutWinOverWhatIsQueued) {
  TempDir dir;
  auto store = open_store(dir.path());
  for (uint32_t i = 0; i < 20; ++i) {
    const auto old = make_record(i);
    auto fresh = make_record(1000 + i);
    fresh->meta.id = old->meta.id;
    EXPECT_OK(store->put_async(make_record(500 + i)));
    EXPECT_OK(store->put_async(old));
    if (i % 2 == 0) {
      EXPECT_OK(store->remove(old->meta.id));
      EXPECT_OK(store->flush());
      EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *old));
    } else {
      EXPECT_OK(store->put(*fresh));
      EXPECT_OK(store->flush());
      EXPECT_OK(compare(*store, *fresh));
    }
  }
}

TEST(StoreQueue, ErrorsReachTheLogTheCounterAndFlush) {
  TempDir dir;
  StoreOptions options;
  options.quota_bytes = 64 << 10;
  std::atomic<int> events{0};
  auto store = open_store(dir.path(), options, [&](int32_t code, const std::string&) {
    EXPECT_EQ(BLEND_E_FULL, code);
    ++events;
  });
  const auto big = make_record(1, {1, 512, 512, DType::f16});
  EXPECT_OK(store->put_async(big));
  EXPECT_OK(store->put_async(make_record(2)));
  EXPECT_CODE(BLEND_E_FULL, store->flush());
  EXPECT_OK(store->flush());
  EXPECT_EQ(1, events);
  EXPECT_EQ(1u, store->stat()->write_errors);
  EXPECT_EQ(1u, store->stat()->written);
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *big));
}

// Runs `fn` in a child; its return is the exit status.
template <typename Fn>
int in_child(Fn fn) {
  const pid_t child = fork();
  if (child == 0) _exit(fn());
  int status = -1;
  EXPECT_EQ(child, waitpid(child, &status, 0));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

StoreOptions in_child_options() {
  StoreOptions options;
#if defined(__SANITIZE_THREAD__)
  // It ends a child that starts a thread, and to make a ring of io_uring takes one.
  options.read_mode = ReadMode::mapped;
#endif
  return options;
}

TEST(StoreFork, EveryCallInTheChildIsRefusedAndTheParentGoesOn) {
  TempDir dir;
  auto store = open_store(dir.path());
  const auto a = make_record(1);
  const auto b = make_record(2);
  EXPECT_OK(store->put(*a));
  EXPECT_OK(store->put_async(b));  // the thread runs
  auto snapshot = take(store->snapshot());
  auto source = take(snapshot->open(a->meta.id));
  EXPECT_EQ(0, in_child([&] {
              std::vector<std::byte> out(a->meta.shape.layer_bytes(0));
              if (store->snapshot().status().code() != BLEND_E_FORKED) return 1;
              if (store->contains(a->meta.id).status().code() != BLEND_E_FORKED) return 2;
              if (store->put(*a).code() != BLEND_E_FORKED) return 3;
              if (store->put_async(a).code() != BLEND_E_FORKED) return 4;
              if (store->flush().code() != BLEND_E_FORKED) return 5;
              if (store->remove(a->meta.id).code() != BLEND_E_FORKED) return 6;
              if (store->stat().status().code() != BLEND_E_FORKED) return 7;
              const auto visit = [](const ChunkMeta&, const std::string&) { return 0; };
              if (store->for_each(false, visit).code() != BLEND_E_FORKED) return 8;
              if (snapshot->open(a->meta.id).status().code() != BLEND_E_FORKED) return 9;
              source->prefetch(0);
              if (source->read_layer(0, out.data()).code() != BLEND_E_FORKED) return 10;
              // Opened again it works, beside the inherited one.
              auto own = Store::open(dir.path(), in_child_options(), {});
              if (!own.is_ok() || !compare(**own, *a).is_ok()) return 11;
              if (!(*own)->put(*make_record(3)).is_ok()) return 12;
              source.reset();
              snapshot.reset();
              store.reset();
              own.value().reset();
              return 0;
            }));
  EXPECT_OK(compare(*source, *a));
  source.reset();
  snapshot.reset();
  EXPECT_OK(store->flush());
  EXPECT_OK(store->put(*make_record(4)));
  for (const uint32_t i : {1u, 2u, 3u, 4u}) EXPECT_OK(compare(*store, *make_record(i)));
}

TEST(StoreProcesses, AReaderFollowsTheWriterOfAnotherProcess) {
  TempDir dir;
  constexpr uint32_t kChunks = 60;
  int ready[2];
  ASSERT_EQ(0, pipe(ready));
  const pid_t child = fork();
  if (child == 0) {
    // Its quota, and so its map, is far larger than the reader's.
    auto store = Store::open(dir.path(), {}, {});
    if (!store.is_ok()) _exit(1);
    char go = 0;
    if (read(ready[0], &go, 1) != 1) _exit(2);
    for (uint32_t i = 0; i < kChunks; ++i) {
      if (!(*store)->put(*make_record(i, {4, 500, 256, DType::f16})).is_ok()) _exit(3);
      if (i >= 10 && !(*store)->remove(make_record(i - 10, {4, 500, 256, DType::f16})->meta.id)) {
        _exit(4);
      }
    }
    store.value().reset();
    _exit(0);
  }
  StoreOptions small;
  small.quota_bytes = 1 << 20;
  auto store = open_store(dir.path(), small);
  ASSERT_EQ(1, write(ready[1], "g", 1));
  int status = 0;
  size_t hits = 0;
  for (pid_t ended = 0; ended == 0;) {
    ended = waitpid(child, &status, WNOHANG);
    for (uint32_t i = 0; i < kChunks; ++i) {
      const auto r = make_record(i, {4, 500, 256, DType::f16});
      const Status s = compare(*store, *r);
      ASSERT_TRUE(s.is_ok() || s.code() == BLEND_E_NOT_FOUND) << s.message();
      hits += s.is_ok();
    }
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_GE(hits, 10u);
  EXPECT_EQ(10u, store->stat()->n_chunks);
  EXPECT_OK(store->remove(make_record(kChunks - 1, {4, 500, 256, DType::f16})->meta.id));
  close(ready[0]);
  close(ready[1]);
}

// Starts `body` as process 1 of a PID namespace of its own.
template <typename Body>
pid_t start_as_process_one(const Body& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(255);
  const pid_t first = fork();
  if (first == 0) _exit(getpid() == 1 ? body() : 254);
  int status = 0;
  if (first < 0 || waitpid(first, &status, 0) != first) _exit(255);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 253);
}

// What `body` returned; -1: the system allows no namespace.
int result_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 252;
  return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

// Two containers: LMDB knows the processes that read by their numbers alone, and both are 1.
TEST(StoreProcesses, EqualNumbersInTwoNamespacesAreToldApartOrRefused) {
  TempDir dir;
  EXPECT_OK(open_store(dir.path())->put(*make_record(1)));
  const auto reads = [&](const std::shared_ptr<Store>& store) {
    return compare(*store, *make_record(1)).is_ok();
  };
  const int alone = result_of(start_as_process_one([&] {
    auto store = Store::open(dir.path(), {}, {});
    return store.is_ok() && reads(*store) ? 0 : 1;
  }));
  if (alone == -1) GTEST_SKIP() << "no PID namespace can be made here";
  EXPECT_EQ(0, alone);
  // One holds it open until the other has tried.
  int opened[2], tried[2];
  ASSERT_EQ(0, pipe(opened) | pipe(tried));
  const pid_t holder = start_as_process_one([&] {
    char go = 0;
    auto store = Store::open(dir.path(), {}, {});
    if (!store.is_ok() || write(opened[1], "o", 1) != 1 || read(tried[0], &go, 1) != 1) return 1;
    return reads(*store) ? 0 : 2;
  });
  char ready = 0;
  ASSERT_EQ(1, read(opened[0], &ready, 1));
  EXPECT_EQ(0, result_of(start_as_process_one([&] {
              const auto begin = std::chrono::steady_clock::now();
              const Status second = Store::open(dir.path(), {}, {}).status();
              if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5)) return 3;
              if (second.code() != BLEND_E_BUSY) return 4;
              return second.message().find("PID namespace") != std::string::npos ? 0 : 5;
            })));
  ASSERT_EQ(1, write(tried[1], "t", 1));
  EXPECT_EQ(0, result_of(holder));  // and goes on
  for (const int fd : {opened[0], opened[1], tried[0], tried[1]}) close(fd);
}

TEST(StoreProcesses, TwoWritersTakeTurns) {
  TempDir dir;
  auto store = open_store(dir.path());
  const pid_t child = fork();
  if (child == 0) {
    auto own = Store::open(dir.path(), {}, {});
    if (!own.is_ok()) _exit(1);
    for (uint32_t i = 0; i < 40; ++i) {
      if (!(*own)->put(*make_record(i)).is_ok()) _exit(2);
    }
    own.value().reset();
    _exit(0);
  }
  for (uint32_t i = 100; i < 140; ++i) EXPECT_OK(store->put(*make_record(i)));
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_OK(compare(*store, *make_record(i)));
    EXPECT_OK(compare(*store, *make_record(100 + i)));
  }
  EXPECT_EQ(80u, store->stat()->n_chunks);
}

TEST(StoreProcesses, ClosingOneOfTwoObjectsKeepsTheLocksOfTheOther) {
  // A second environment in this process would drop the file locks when it closes: a process that
  // opens the store then takes itself for the first one, clears the readers and reuses their pages.
  TempDir dir;
  auto one = open_store(dir.path());
  const auto a = make_record(1, {2, 500, 256, DType::f16});
  EXPECT_OK(one->put(*a));
  open_store(dir.path()).reset();
  auto snapshot = take(one->snapshot());
  EXPECT_EQ(0, in_child([&] {
              auto own = Store::open(dir.path(), {}, {});
              if (!own.is_ok() || !(*own)->remove(a->meta.id).is_ok()) return 1;
              for (uint32_t i = 10; i < 20; ++i) {
                if (!(*own)->put(*make_record(i, {2, 500, 256, DType::f16})).is_ok()) return 2;
              }
              own.value().reset();
              return 0;
            }));
  EXPECT_OK(compare(*take(snapshot->open(a->meta.id)), *a));
}

TEST(StoreProcesses, ADeadReaderDoesNotHoldPages) {
  // A reader that died with a snapshot would keep every freed page from being used again.
  TempDir dir;
  StoreOptions options;
  options.quota_bytes = 4 << 20;
  auto store = open_store(dir.path(), options);
  EXPECT_OK(store->put(*make_record(1)));
  EXPECT_EQ(0, in_child([&] {
              auto own = Store::open(dir.path(), options, {});
              if (!own.is_ok()) return 1;
              auto snapshot = (*own)->snapshot();
              _exit(snapshot.is_ok() ? 0 : 2);  // holding it
            }));
  store.reset();
  store = open_store(dir.path(), options);  // clears it
  for (uint32_t i = 0; i < 40; ++i) {
    const auto r = make_record(10 + i, {1, 512, 1024, DType::f16});
    const Status put = store->put(*r);
    ASSERT_TRUE(put.is_ok()) << i << ": " << put.message();
    EXPECT_OK(store->remove(r->meta.id));
  }
  EXPECT_LT(store->stat()->file_bytes, 30u << 20);
}

}  // namespace
}  // namespace blend::test
