// Answers that are compared with full prefill in idle time, and the ratio that follows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "engine/precompute.h"
#include "fusion/fidelity/fidelity_checks.h"
#include "fusion/idle/deferred_prefill.h"
#include "store/store.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"

namespace blend {
namespace {

class FidelityTest : public test::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    worker_ = std::make_shared<IdleWorker>(runtime());
    book_ = std::make_shared<FidelityBook>(nullptr, false);
    begin_checks(1);
  }
  void begin_checks(uint32_t every, uint32_t tokens = 32) {
    checks_ =
        std::make_unique<FidelityChecks>(worker_, book_, FidelityChecks::Options{every, tokens});
  }
  // The model holds the runtime, and outlives it.
  std::shared_ptr<Runtime> runtime() {
    return {std::shared_ptr<Runtime>(), const_cast<Runtime*>(&model_->runtime())};
  }

  FuseRequest request(uint64_t seed, double ratio, Policy policy = Policy::hkvd) const {
    FuseRequest r;
    r.options.policy = policy;
    r.options.ratio = RatioRequest::fixed(ratio);
    r.segments = {{SegmentKind::chunk, tokens(20, seed), std::nullopt},
                  {SegmentKind::chunk, tokens(24, seed + 1000), std::nullopt},
                  {SegmentKind::question, tokens(6, seed + 2000), std::nullopt}};
    return r;
  }
  Fused fuse(const FuseRequest& r) {
    StoreAccess access;
    access.store = &store_;
    access.kv_dtype = DType::f32;
    access.fidelity = book_.get();
    auto fused = blend::fuse(model_, access, r);
    EXPECT_TRUE(fused.is_ok()) << fused.status().message();
    return std::move(*fused);
  }
  // Generates, noting what a check needs.
  static Generated answer(Fused& fused, AnswerTrace& trace, uint32_t max_tokens = 12,
                          float temperature = 0) {
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.ignore_eos = true;
    options.sampler.temperature = temperature;
    options.sampler.seed = 5;
    GenerateCalls calls;
    calls.before = [&] { trace.note(fused.sequence->n_rows(), fused.sequence->logits()); };
    Utf8Stream text;
    Generated generated;
    const Status status = test::generate(*fused.sequence, options, calls, {}, text, generated);
    EXPECT_TRUE(status.is_ok()) << status.message();
    return generated;
  }
  // Fuses, answers and leaves the answer to be checked. False: it was not marked, or not taken.
  bool ask(uint64_t seed, double ratio, uint32_t max_tokens = 12) {
    Fused fused = fuse(request(seed, ratio));
    auto trace = checks_->mark(fused);
    if (!trace.has_value()) return false;
    answer(fused, *trace, max_tokens);
    return checks_->add(std::move(*trace), *fused.sequence);
  }
  FidelityKey key(Policy policy = Policy::hkvd) const {
    return {model_->fingerprint(), static_cast<uint32_t>(policy), static_cast<RecordUse>(5), 44};
  }
  // The record of fuses of request().
  RungRecord seen(double ratio, Policy policy = Policy::hkvd) {
    auto all = book_->all(nullptr);
    for (const auto& [k, record] : *all) {
      if (k == key(policy)) return record.rungs[rung_of(usual_share(ratio, 44))];
    }
    return {};
  }
  // Makes stored chunks those of other text, so that they mislead.
  void spoil() {
    for (auto& [id, record] : store_.chunks) {
      auto other = std::make_shared<ChunkRecord>();
      auto wrong = precompute_chunk(
          *model_, {},
          describe_chunk(*model_, DType::f32, {}, "", tokens(record->meta.tokens.size(), 777)), {});
      ASSERT_TRUE(wrong.is_ok());
      other->meta = record->meta;
      other->data = std::move((*wrong)->data);
      record = other;
    }
  }

  test::FakeStore store_;
  std::shared_ptr<IdleWorker> worker_;
  std::shared_ptr<FidelityBook> book_;
  std::unique_ptr<FidelityChecks> checks_;
};

TEST_F(FidelityTest, WhatRecomputesEverythingAgreesEverywhere) {
  for (uint64_t seed = 1; seed <= 3; ++seed) EXPECT_TRUE(ask(seed, 1));
  checks_->run_all();
  const RungRecord r = seen(1);
  EXPECT_EQ(r.n_checks, 3u);
  EXPECT_EQ(r.n_tokens, 36u);
  EXPECT_EQ(r.evidence.agreement(), 1);
  EXPECT_GT(r.identical, 2.9f);
  EXPECT_LT(r.mean_kl(), 1e-5);
  EXPECT_EQ(checks_->counts().done, 3u);
}

TEST_F(FidelityTest, AWrongRecordIsSeen) {
  for (uint64_t seed = 1; seed <= 6; ++seed) fuse(request(seed, 0));  // stores the chunks
  spoil();
  for (uint64_t seed = 1; seed <= 6; ++seed) EXPECT_TRUE(ask(seed, 0, 16));
  checks_->run_all();
  const RungRecord wrong = seen(0);
  EXPECT_EQ(wrong.n_tokens, 96u);
  EXPECT_LT(wrong.evidence.agreement(), 0.8);
  EXPECT_GT(wrong.mean_kl(), 0.01);
  EXPECT_EQ(wrong.identical, 0.0f);
}

// The fused cache's own preference is compared, not the token that was sampled.
TEST_F(FidelityTest, ASampledAnswerIsComparedByWhatTheCachePreferred) {
  Fused fused = fuse(request(1, 1));
  auto trace = checks_->mark(fused);
  ASSERT_TRUE(trace.has_value());
  answer(fused, *trace, 12, 5.0f);
  std::vector<int32_t> greedy;
  {
    Fused other = fuse(request(1, 1));
    AnswerTrace unused(key(), 1, other.sequence->n_rows());
    answer(other, unused);
    greedy = other.sequence->tokens();
  }
  EXPECT_NE(fused.sequence->tokens(), greedy) << "or the test shows nothing";
  EXPECT_TRUE(checks_->add(std::move(*trace), *fused.sequence));
  checks_->run_all();
  EXPECT_EQ(seen(1).evidence.agreement(), 1);
}

TEST_F(FidelityTest, KlIsThatOfBothDistributions) {
  // A vocabulary of no more than is kept: nothing is left out.
  AnswerTrace trace(key(), 0, 10);
  std::vector<float> fused(60), full(60);
  for (size_t i = 0; i < 60; ++i) {
    fused[i] = std::sin(static_cast<float>(i));
    full[i] = std::cos(static_cast<float>(2 * i));
  }
  trace.note(10, fused);
  CheckedAnswer out;
  trace.compare(0, full, out);
  double sum_p = 0, sum_q = 0, kl = 0;
  for (size_t i = 0; i < 60; ++i) {
    sum_p += std::exp(static_cast<double>(full[i]));
    sum_q += std::exp(static_cast<double>(fused[i]));
  }
  for (size_t i = 0; i < 60; ++i) {
    const double log_p = static_cast<double>(full[i]) - std::log(sum_p);
    kl += std::exp(log_p) * (log_p - static_cast<double>(fused[i]) + std::log(sum_q));
  }
  EXPECT_NEAR(out.kl, kl, 1e-4);
  EXPECT_EQ(out.n_kl, 1u);
  EXPECT_EQ(out.n_agree, 0u);
  // With more tokens it is a bound from below.
  fused.resize(300, 0.5f);
  full.resize(300, -0.5f);
  full[250] = 8;
  AnswerTrace more(key(), 0, 10);
  more.note(10, fused);
  CheckedAnswer bound;
  more.compare(0, full, bound);
  EXPECT_GT(bound.kl, 0);
}

TEST_F(FidelityTest, PositionsAreNotedOnceAndInOrder) {
  AnswerTrace trace(key(), 0, 10, 3);
  const std::vector<float> logits(300, 0.0f);
  trace.note(11, logits);
  EXPECT_EQ(trace.n_positions(), 0u) << "the first was left out";
  trace.note(10, logits);
  trace.note(10, logits);
  EXPECT_EQ(trace.n_positions(), 1u);
  for (uint32_t row = 11; row < 20; ++row) trace.note(row, logits);
  EXPECT_EQ(trace.n_positions(), 3u);
  EXPECT_TRUE(trace.full());
}

TEST_F(FidelityTest, AnAnswerCutShortIsCheckedAsFarAsItGoes) {
  Fused fused = fuse(request(1, 1));
  auto trace = checks_->mark(fused);
  ASSERT_TRUE(trace.has_value());
  EXPECT_FALSE(checks_->add(*trace, *fused.sequence)) << "no answer at all";
  trace->note(fused.sequence->n_rows(), fused.sequence->logits());
  EXPECT_TRUE(checks_->add(*trace, *fused.sequence)) << "a token that was not appended";
  EXPECT_FALSE(checks_->add(*trace, *fused.sequence)) << "of a fork: checked already";
  checks_->run_all();
  EXPECT_EQ(seen(1).n_tokens, 1u);
  EXPECT_EQ(seen(1).evidence.agreement(), 1);
}

TEST_F(FidelityTest, OneInNIsMarkedAndTheFirstOfAKind) {
  begin_checks(5);
  int first = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) first += ask(seed, 0.15) ? 1 : 0;
  EXPECT_EQ(first, 5) << "four of an unknown kind, and the fifth in turn";
  checks_->run_all();
  int later = 0;
  for (uint64_t seed = 6; seed <= 25; ++seed) later += ask(seed, 0.15) ? 1 : 0;
  EXPECT_EQ(later, 4);
  EXPECT_TRUE(ask(30, 0.6)) << "another ratio";
  begin_checks(FidelityChecks::kNever);
  EXPECT_FALSE(ask(31, 0.6));
}

TEST_F(FidelityTest, TheInfoSaysThatItIsMarked) {
  Fused fused = fuse(request(1, 0.15));
  EXPECT_EQ(fused.info.flags & BLEND_FUSION_CHECKED, 0u);
  ASSERT_TRUE(checks_->mark(fused).has_value());
  EXPECT_NE(fused.info.flags & BLEND_FUSION_CHECKED, 0u);
}

TEST_F(FidelityTest, WhatIsNotApproximatedIsNotChecked) {
  Fused full = fuse(request(1, 0.15, Policy::full));
  EXPECT_FALSE(checks_->mark(full).has_value());
  FuseRequest exact = request(2, 0.15);
  exact.segments.erase(exact.segments.begin() + 1);  // the first chunk stands after nothing
  Fused fused = fuse(exact);
  EXPECT_EQ(fused.segments[0].exact, 1u);
  EXPECT_FALSE(checks_->mark(fused).has_value());
}

TEST_F(FidelityTest, GivesWayAndItsEndDoesNotWait) {
  const Foreground::Scope busy(model_->runtime().foreground());
  for (uint64_t seed = 1; seed <= 3; ++seed) EXPECT_TRUE(ask(seed, 0.15));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));  // enough for all of it otherwise
  EXPECT_EQ(checks_->counts().done, 0u);
  EXPECT_EQ(checks_->counts().queued, 3u);
  checks_->close();
  EXPECT_EQ(checks_->counts().queued, 0u);
  EXPECT_EQ(seen(0.15).n_checks, 0u);
  EXPECT_FALSE(ask(4, 0.15)) << "closed";
  checks_->run_all();
}

TEST_F(FidelityTest, MakesWayForAChunkThatIsWaitedFor) {
  const auto shared = std::make_shared<test::FakeStore>();
  checks_.reset();
  DeferredPrefill later(worker_, shared);
  begin_checks(1);
  auto busy = std::make_unique<Foreground::Scope>(model_->runtime().foreground());
  EXPECT_TRUE(ask(1, 0.15));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is under way, between layers
  DeferredChunk chunk;
  chunk.meta = describe_chunk(*model_, DType::f32, {}, "", tokens(9, 1));
  EXPECT_TRUE(later.add(model_, std::move(chunk)));
  EXPECT_TRUE(later.flush().is_ok());
  EXPECT_EQ(shared->puts, 1);
  EXPECT_EQ(checks_->counts().done, 0u) << "the chunk waited for it";
  busy.reset();
  checks_->run_all();
  EXPECT_EQ(seen(0.15).n_checks, 1u) << "begun again";
}

TEST_F(FidelityTest, WhatWaitsIsBounded) {
  const Foreground::Scope busy(model_->runtime().foreground());
  Fused fused = fuse(request(1, 0.15));
  auto trace = checks_->mark(fused);
  ASSERT_TRUE(trace.has_value());
  answer(fused, *trace, 2);
  int taken = 0;
  for (int i = 0; i < 70; ++i) {
    AnswerTrace another(key(), 0.15, trace->n_prompt());
    another.note(trace->n_prompt(), fused.sequence->logits());
    taken += checks_->add(std::move(another), *fused.sequence) ? 1 : 0;
  }
  EXPECT_GE(taken, static_cast<int>(FidelityChecks::kMostQueued));
  EXPECT_LE(taken, static_cast<int>(FidelityChecks::kMostQueued) + 1) << "one is under way";
  EXPECT_EQ(checks_->counts().dropped, static_cast<uint64_t>(70 - taken));
}

TEST_F(FidelityTest, TheRatioIsThatWhichKeepsTheTarget) {
  FuseRequest r = request(1, 0);
  r.options.ratio = RatioRequest::fidelity(0.98);
  const double first = 0.6;                                     // of chunks stored alone
  EXPECT_NEAR(fuse(r).info.ratio, share_of(first, 44), 1e-12);  // of 44 reused rows
  for (int i = 0; i < 40; ++i) book_->observe(key(), book_->ratio(key(), 0.98), {25, 25, 0, 0});
  const double now = book_->ratio(key(), 0.98);
  EXPECT_LT(now, first);
  const Fused fused = fuse(r);
  EXPECT_NEAR(fused.info.ratio, share_of(now, 44), 1e-12);
  EXPECT_NEAR(static_cast<double>(fused.info.n_rows_selected), share_of(now, 44) * 44, 1);
  // Calibration's word is the least.
  Profile profile;
  profile.prefixes = {{}};
  profile.max_kl = 1;
  profile.table.push_back({0, r.options.metric().code(), false, 0.99, 0, 0, 1.0, 10});
  r.options.calibration.profile = &profile;
  EXPECT_EQ(fuse(r).info.ratio, 0.99);
  // Another policy is another matter.
  FuseRequest other = request(1, 0, Policy::random);
  other.options.ratio = RatioRequest::fidelity(0.98);
  EXPECT_NEAR(fuse(other).info.ratio, share_of(first, 44), 1e-12);
}

class FidelityBookTest : public ::testing::Test {
 protected:
  std::shared_ptr<Store> open(bool read_only = false) {
    StoreOptions options;
    options.read_only = read_only;
    auto store = Store::open(dir_.path(), options, {});
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return *store;
  }
  static FidelityKey key(uint8_t model = 1, uint64_t n_rows = kUsualRows) {
    Sha256 fingerprint;
    fingerprint.fill(model);
    return {fingerprint, BLEND_POLICY_CASCADE, static_cast<RecordUse>(3), n_rows};
  }
  static uint64_t n_checks(FidelityBook& book, double ratio, uint8_t model = 1) {
    book.look(key(model).fingerprint);
    return book.n_checks(key(model), ratio);
  }

  test::TempDir dir_;
  const CheckedAnswer good_{25, 25, 8, 0.01};
};

TEST_F(FidelityBookTest, SurvivesTheStore) {
  double now = 0;
  {
    FidelityBook book(open(), false);
    for (int i = 0; i < 30; ++i) book.observe(key(), book.ratio(key(), 0.98), good_);
    book.observe(key(2), 0.15, good_);
    now = book.ratio(key(), 0.98);
    EXPECT_LT(now, 0.2);
  }
  FidelityBook again(open(), false);
  again.look(key().fingerprint);
  EXPECT_EQ(again.ratio(key(), 0.98), now);
  EXPECT_GT(n_checks(again, 0.2), 0u);
  EXPECT_EQ(n_checks(again, 0.15, 2), 1u);
  EXPECT_EQ(again.all(nullptr)->size(), 2u);
  const FidelityKey second = key(2);
  EXPECT_EQ(again.all(&second.fingerprint)->size(), 1u);
}

TEST_F(FidelityBookTest, ShortPromptsDoNotLowerTheRatioOfLongOnes) {
  const FidelityKey short_one = key(1, kUsualRows - 1);
  {
    FidelityBook book(open(), false);
    for (int i = 0; i < 30; ++i) book.observe(short_one, book.ratio(short_one, 0.98), good_);
    EXPECT_LT(book.ratio(short_one, 0.98), 0.2);
    EXPECT_EQ(book.ratio(key(), 0.98), 0.2);
  }
  FidelityBook again(open(), false);
  again.look(key().fingerprint);
  EXPECT_LT(again.ratio(short_one, 0.98), 0.2);
  EXPECT_EQ(again.ratio(key(), 0.98), 0.2);
}

TEST_F(FidelityBookTest, TwoThatHaveTheStoreOpenAddUp) {
  FidelityBook a(open(), false), b(open(), false);
  for (int i = 0; i < 3; ++i) {
    a.observe(key(), 0.15, good_);
    b.observe(key(), 0.15, good_);
  }
  EXPECT_EQ(n_checks(b, 0.15), 6u);
  FidelityBook c(open(), false);
  EXPECT_EQ(n_checks(c, 0.15), 6u);
}

TEST_F(FidelityBookTest, AReadOnlyStoreIsReadAndTheRestIsInMemory) {
  {
    FidelityBook book(open(), false);
    book.observe(key(), 0.15, good_);
  }
  {
    FidelityBook reader(open(true), true);
    reader.observe(key(), 0.15, good_);
    EXPECT_EQ(n_checks(reader, 0.15), 2u);
  }
  FidelityBook again(open(), false);
  EXPECT_EQ(n_checks(again, 0.15), 1u);
}

TEST_F(FidelityBookTest, ADamagedRecordIsAsGoodAsNone) {
  auto store = open();
  {
    FidelityBook book(store, false);
    for (int i = 0; i < 30; ++i) book.observe(key(), book.ratio(key(), 0.98), good_);
  }
  ASSERT_TRUE(store
                  ->change_note(key().note_name(),
                                [](std::span<const std::byte>) { return std::string("nonsense"); })
                  .is_ok());
  FidelityBook book(store, false);
  book.look(key().fingerprint);
  EXPECT_EQ(book.ratio(key(), 0.98), 0.2);
  EXPECT_TRUE(book.all(nullptr).is_ok());
  book.observe(key(), 0.3, good_);
  FidelityBook mended(store, false);
  EXPECT_EQ(n_checks(mended, 0.3), 1u);
}

}  // namespace
}  // namespace blend
