#include "engine/sequence.h"

#include <cmath>

#include "engine/generate.h"
#include "support/engine_fixture.h"

namespace blend {
namespace {

using test::EngineTest;

class SequenceTest : public EngineTest {
 protected:
  std::unique_ptr<Sequence> make(uint32_t capacity) {
    auto s = Sequence::create(model_, capacity);
    EXPECT_TRUE(s.is_ok()) << s.status().message();
    return std::move(*s);
  }
};

float max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST_F(SequenceTest, TokenByTokenEqualsOneGo) {
  const std::vector<int32_t> prompt = tokens(37, 1);
  auto whole = make(64);
  ASSERT_TRUE(whole->append(prompt, {}).is_ok());
  auto steps = make(64);
  for (const int32_t t : prompt) ASSERT_TRUE(steps->append({&t, 1}, {}).is_ok());
  EXPECT_EQ(whole->n_rows(), 37u);
  EXPECT_EQ(steps->n_rows(), 37u);
  EXPECT_LT(max_difference(whole->logits(), steps->logits()), 1e-4f);
}

// More rows than pass through the wide scratch at once (512).
TEST_F(SequenceTest, LongPromptsPassInBlocks) {
  test::RandomModelSpec spec;
  spec.context = 1400;
  model_ = load(spec);
  const std::vector<int32_t> prompt = tokens(1301, 2);
  auto whole = make(1400);
  ASSERT_TRUE(whole->append(prompt, {}).is_ok());
  auto parts = make(1400);
  for (size_t at = 0; at < prompt.size(); at += 100) {
    const auto part = std::span(prompt).subspan(at, std::min<size_t>(100, prompt.size() - at));
    ASSERT_TRUE(parts->append(part, {}).is_ok());
  }
  EXPECT_LT(max_difference(whole->logits(), parts->logits()), 1e-4f);
}

TEST_F(SequenceTest, AFailedAppendLeavesItAsItWas) {
  auto s = make(20);
  ASSERT_TRUE(s->append(tokens(10, 3), {}).is_ok());
  const std::vector<float> before = s->logits();
  EXPECT_EQ(s->append(tokens(11, 4), {}).code(), BLEND_E_CONTEXT_LENGTH);
  CancelToken cancel;
  cancel.request();
  Watch watch;
  watch.cancel = &cancel;
  EXPECT_EQ(s->append(tokens(5, 5), watch).code(), BLEND_E_CANCELLED);
  // Cancelled in the middle: slots after the end are dirty, which must not show.
  watch = {};
  watch.progress = [](uint64_t done, uint64_t) { return done == 2 ? 7 : 0; };
  const Status stopped = s->append(tokens(5, 6), watch);
  EXPECT_EQ(stopped.code(), BLEND_E_CALLBACK);
  EXPECT_EQ(stopped.detail(), 7);
  EXPECT_EQ(s->n_rows(), 10u);
  EXPECT_EQ(s->logits(), before);
  auto fresh = make(20);
  ASSERT_TRUE(fresh->append(tokens(10, 3), {}).is_ok());
  ASSERT_TRUE(fresh->append(tokens(3, 7), {}).is_ok());
  ASSERT_TRUE(s->append(tokens(3, 7), {}).is_ok());
  EXPECT_EQ(s->logits(), fresh->logits());
}

// Stopped at every layer: neither the rows before nor those that would have moved may show it.
TEST_F(SequenceTest, AFailedReplaceLeavesItAsItWas) {
  auto s = make(64), twin = make(64);
  for (Sequence* each : {s.get(), twin.get()}) {
    ASSERT_TRUE(each->append(tokens(40, 3), {}).is_ok());
  }
  const auto put = tokens(5, 4);
  for (uint64_t layer = 0; layer < model_->config().n_layers; ++layer) {
    for (const uint64_t n_old : {0u, 11u, 32u}) {
      Watch watch;
      watch.progress = [&](uint64_t done, uint64_t) { return done == layer ? 7 : 0; };
      EXPECT_EQ(s->replace(8, n_old, put, watch).code(), BLEND_E_CALLBACK);
      EXPECT_EQ(s->replace(0, n_old + 1, {}, watch).code(), BLEND_E_CALLBACK);
    }
  }
  // Cancelled when the last layer is computed: the rows have not moved yet.
  CancelToken cancel;
  Watch late;
  late.cancel = &cancel;
  late.progress = [&](uint64_t done, uint64_t total) {
    if (done + 1 == total) cancel.request();
    return 0;
  };
  EXPECT_EQ(s->replace(8, 11, put, late).code(), BLEND_E_CANCELLED);
  EXPECT_EQ(s->tokens(), twin->tokens());
  EXPECT_EQ(s->logits(), twin->logits());
  ASSERT_TRUE(s->append(tokens(3, 7), {}).is_ok());
  ASSERT_TRUE(twin->append(tokens(3, 7), {}).is_ok());
  EXPECT_EQ(s->logits(), twin->logits());
}

TEST_F(SequenceTest, GenerationIsGreedyDecodingAndContinues) {
  auto by_hand = make(64);
  ASSERT_TRUE(by_hand->append(tokens(9, 8), {}).is_ok());
  std::vector<int32_t> expected;
  for (int i = 0; i < 12; ++i) {
    const auto& l = by_hand->logits();
    expected.push_back(static_cast<int32_t>(std::max_element(l.begin(), l.end()) - l.begin()));
    ASSERT_TRUE(by_hand->append({&expected.back(), 1}, {}).is_ok());
  }
  auto s = make(64);
  ASSERT_TRUE(s->append(tokens(9, 8), {}).is_ok());
  std::vector<int32_t> got;
  GenerateOptions options;
  options.ignore_eos = true;
  Generated generated;
  Utf8Stream text;
  for (const uint32_t n : {5u, 7u}) {
    options.max_tokens = n;
    const auto collect = [&](int32_t token, const std::string&) {
      got.push_back(token);
      return 0;
    };
    ASSERT_TRUE(test::generate(*s, options, {collect, {}}, {}, text, generated).is_ok());
    EXPECT_EQ(generated.n_tokens, n);
    EXPECT_FALSE(generated.stopped);
  }
  EXPECT_EQ(got, expected);

  // A stop token ends it and is not reported.
  auto again = make(64);
  ASSERT_TRUE(again->append(tokens(9, 8), {}).is_ok());
  options.max_tokens = 64;
  options.stop_tokens = {expected[3]};
  ASSERT_TRUE(test::generate(*again, options, {}, {}, text, generated).is_ok());
  EXPECT_TRUE(generated.stopped);
  EXPECT_LE(generated.n_tokens, 3u);
}

TEST_F(SequenceTest, GenerationEndsWhereTheCacheEnds) {
  auto s = make(12);
  ASSERT_TRUE(s->append(tokens(9, 8), {}).is_ok());
  GenerateOptions options;
  options.ignore_eos = true;
  Generated generated;
  Utf8Stream text;
  ASSERT_TRUE(test::generate(*s, options, {}, {}, text, generated).is_ok());
  EXPECT_EQ(generated.n_tokens, 3u);
  EXPECT_EQ(s->n_rows(), 12u);
}

}  // namespace
}  // namespace blend
