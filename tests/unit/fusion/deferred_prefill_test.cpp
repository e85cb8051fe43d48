#include "fusion/idle/deferred_prefill.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "engine/precompute.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"

namespace blend {
namespace {

using Clock = std::chrono::steady_clock;

// As long as somebody waits for the context, a layer takes a second: nothing is done by chance
// before the test has said what it wants.
class DeferredPrefillTest : public test::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    later_ = std::make_unique<DeferredPrefill>(std::make_shared<IdleWorker>(runtime()), store_);
    busy_.emplace(model_->runtime().foreground());
  }
  // The model holds the runtime, and outlives it.
  std::shared_ptr<Runtime> runtime() {
    return {std::shared_ptr<Runtime>(), const_cast<Runtime*>(&model_->runtime())};
  }
  DeferredChunk chunk(uint64_t seed, std::vector<int32_t> prefix = {}, size_t n = 9) const {
    DeferredChunk chunk;
    chunk.meta = describe_chunk(*model_, DType::f32, prefix, "", tokens(n, seed));
    chunk.prefix = std::move(prefix);
    return chunk;
  }
  Sha256 add(uint64_t seed, std::vector<int32_t> prefix = {}, size_t n = 9) {
    DeferredChunk added = chunk(seed, std::move(prefix), n);
    const Sha256 id = added.meta.id;
    EXPECT_TRUE(later_->add(model_, std::move(added)));
    return id;
  }

  std::shared_ptr<test::FakeStore> store_ = std::make_shared<test::FakeStore>();
  std::unique_ptr<DeferredPrefill> later_;
  std::optional<Foreground::Scope> busy_;
};

TEST_F(DeferredPrefillTest, FlushDoesAllOfItWhoeverWaits) {
  for (const uint64_t seed : {1u, 2u, 3u}) add(seed);
  EXPECT_EQ(later_->n_left(), 3u);
  EXPECT_TRUE(later_->flush().is_ok());
  EXPECT_EQ(later_->n_left(), 0u);
  EXPECT_EQ(store_->puts, 3);
  later_.reset();
  EXPECT_TRUE(log_.empty());
}

TEST_F(DeferredPrefillTest, APredecessorStandsBetweenThePassageAndTheChunk) {
  const std::vector<int32_t> head = tokens(3, 1), passage = tokens(12, 2), last = tokens(7, 3);
  std::vector<int32_t> all = head, before = head;
  all.insert(all.end(), passage.begin(), passage.end());
  all.insert(all.end(), last.begin(), last.end());
  before.insert(before.end(), last.begin(), last.end());
  DeferredChunk added = chunk(4, before);
  added.meta = describe_chunk(*model_, DType::f32, before, "", tokens(9, 4), RecordKind::preceded);
  added.prefix = head;
  added.contexts = {passage};
  added.predecessor = last;
  const Sha256 id = added.meta.id;
  ASSERT_TRUE(later_->add(model_, std::move(added)));
  ASSERT_TRUE(later_->flush().is_ok());
  ASSERT_EQ(store_->chunks.count(id), 1u);
  const ChunkRecord& made = *store_->chunks[id];
  auto wanted = precompute_chunk(*model_, all,
                                 describe_chunk(*model_, DType::f32, all, "", tokens(9, 4)), {});
  ASSERT_TRUE(wanted.is_ok());
  ASSERT_EQ(made.data.bytes(), (*wanted)->data.bytes());
  const auto* const is = reinterpret_cast<const float*>(made.data.data());
  const auto* const should = reinterpret_cast<const float*>((*wanted)->data.data());
  for (size_t i = 0; i < made.data.bytes() / sizeof(float); ++i) {
    ASSERT_NEAR(is[i], should[i], 1e-4f) << i;
  }
}

TEST_F(DeferredPrefillTest, StandsBackWhileSomebodyWaits) {
  const Sha256 id = add(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));  // enough for all of it otherwise
  EXPECT_FALSE(later_->outcome(id, Clock::now()).has_value());
}

TEST_F(DeferredPrefillTest, ItsEndGivesUpWhatIsLeftAndSaysHowMuch) {
  add(1);
  ASSERT_TRUE(later_->flush().is_ok());
  for (const uint64_t seed : {2u, 3u, 4u}) add(seed);
  while (store_->looks < 2) std::this_thread::yield();  // until the first of them is under way
  later_.reset();
  EXPECT_EQ(store_->puts, 1) << "what was under way as well as what had not begun";
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_EQ(log_[0].rfind(std::to_string(BLEND_E_CANCELLED) + " 3 deferred prefills", 0), 0u)
      << log_[0];
}

TEST_F(DeferredPrefillTest, WhatIsWaitedForGoesFirst) {
  std::vector<Sha256> ids;
  const size_t n = ChunkPrefill::kFullRows;  // each by itself
  for (uint64_t seed = 1; seed <= 5; ++seed) ids.push_back(add(seed, {}, n));
  EXPECT_FALSE(later_->outcome(ids[4], Clock::now()).has_value()) << "a look does not wait";
  const auto done = later_->outcome(ids[4], {});
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->is_ok()) << done->message();
  ASSERT_TRUE(later_->flush().is_ok());
  // One may have been under way.
  const auto at = std::find(store_->order.begin(), store_->order.end(), ids[4]);
  EXPECT_LE(at - store_->order.begin(), 1);
  EXPECT_EQ(store_->puts, 5);
}

TEST_F(DeferredPrefillTest, ShortOnesAfterTheSamePrefixGoTogether) {
  const Sha256 other = add(9, {7});  // under way, or alone in front, until all are queued
  const std::vector<Sha256> ids = {add(1), add(2, {5}), add(3)};
  ASSERT_TRUE(later_->flush().is_ok());
  EXPECT_EQ(store_->order, (std::vector<Sha256>{other, ids[0], ids[2], ids[1]}));
}

TEST_F(DeferredPrefillTest, OneThatFailsDoesNotTakeTheOthersWithIt) {
  add(9, {7});
  const Sha256 first = add(1), last_of_three = [&] {
    add(2, {}, model_->context_length() + 1);
    return add(3);
  }();
  EXPECT_EQ(later_->flush().code(), BLEND_E_CONTEXT_LENGTH);
  EXPECT_EQ(store_->puts, 3);
  EXPECT_EQ(log_.size(), 1u);
  for (const Sha256& id : {first, last_of_three}) EXPECT_TRUE(later_->outcome(id, {})->is_ok());
}

TEST_F(DeferredPrefillTest, AFailureIsRememberedUntilItIsQueuedAgain) {
  store_->put_status = {BLEND_E_FULL, "no room"};
  const Sha256 id = add(1);
  for (int i = 0; i < 2; ++i) {
    const auto outcome = later_->outcome(id, {});
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->code(), BLEND_E_FULL) << i;
  }
  EXPECT_EQ(later_->flush().code(), BLEND_E_FULL);
  EXPECT_EQ(log_.size(), 1u);
  store_->put_status = Status::ok();
  store_->chunks.clear();
  EXPECT_EQ(add(1), id);
  const auto again = later_->outcome(id, {});
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->is_ok()) << again->message();
  EXPECT_TRUE(later_->outcome(chunk(2).meta.id, {})->is_ok()) << "never queued: not its business";
}

TEST_F(DeferredPrefillTest, ATimeThatRunsOutLeavesItQueued) {
  const Sha256 id = add(1, std::vector<int32_t>(300, 260));  // long enough not to be done at once
  const auto soon = Clock::now() + std::chrono::nanoseconds(1);
  (void)later_->outcome(id, soon);
  EXPECT_TRUE(later_->flush().is_ok());
  EXPECT_EQ(store_->puts, 1);
}

// Has a job as often as it is asked.
class Busy final : public IdleWorker::Client {
 public:
  bool work() override {
    ++done_;
    return !stop_;
  }
  std::atomic<int> done_{0};
  std::atomic<bool> stop_{false};
};

TEST_F(DeferredPrefillTest, AClientThatAlwaysHasWorkLeavesOthersTheirTurn) {
  const auto worker = std::make_shared<IdleWorker>(runtime());
  Busy first, second;
  worker->enter(first);
  worker->enter(second);
  ASSERT_TRUE(worker->start());
  worker->notify();
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (second.done_ < 10 && Clock::now() < until) std::this_thread::yield();
  EXPECT_GE(second.done_, 10);
  EXPECT_GE(first.done_, 9);
  {
    // While somebody waits for the first, the others wait.
    const IdleWorker::Urgent urgent(*worker);
    const int begin = first.done_;
    while (first.done_ < begin + 100 && Clock::now() < until) std::this_thread::yield();
    const int before = second.done_, from = first.done_;
    while (first.done_ < from + 100 && Clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(second.done_, before);
    EXPECT_GE(first.done_, from + 100);
  }
  first.stop_ = second.stop_ = true;
  worker->leave(second);
  worker->leave(first);
}

}  // namespace
}  // namespace blend
