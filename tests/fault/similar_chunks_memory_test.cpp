// Fails each allocation of SimilarChunks: a call that fails says so and leaves the corpus as it
// was.
#include <gtest/gtest.h>

#include <vector>

#include "corpus/similar_chunks.h"
#include "fault/failing_malloc.h"

namespace blend {
namespace {

Sha256 id_of(uint8_t number) { return {number}; }

std::vector<int32_t> tokens_of(int32_t number) {
  std::vector<int32_t> tokens = {1, 2, -3};
  // Some are past what the table of terms has an array for.
  while (tokens.size() < 20)
    tokens.push_back(100'000 * number + static_cast<int32_t>(tokens.size()));
  return tokens;
}

void fill(SimilarChunks& index, uint8_t n) {
  for (uint8_t i = 0; i < n; ++i) ASSERT_TRUE(index.add(id_of(i), tokens_of(i)).is_ok());
}

void expect_equal(const SimilarChunks& got, const SimilarChunks& want, uint64_t n) {
  EXPECT_EQ(got.n_chunks(), want.n_chunks()) << n;
  const auto a = got.similar_to(tokens_of(99), {.n = 20});
  const auto b = want.similar_to(tokens_of(99), {.n = 20});
  ASSERT_TRUE(a.is_ok() && b.is_ok()) << n;
  ASSERT_EQ(a.value().size(), b.value().size()) << n;
  for (size_t i = 0; i < a.value().size(); ++i) {
    EXPECT_EQ(a.value()[i].id, b.value()[i].id) << n;
    EXPECT_EQ(a.value()[i].similarity, b.value()[i].similarity) << n;
  }
}

TEST(SimilarChunksMemory, AnAddThatFailsChangesNothing) {
  SimilarChunks before, after;
  fill(before, 12);
  fill(after, 13);
  const std::vector<int32_t> tokens = tokens_of(12);
  bool fired = true;
  uint64_t n = 1;
  for (; fired && n < 500; ++n) {
    SimilarChunks index;
    fill(index, 12);
    Status status;
    {
      const test::FailingMalloc failing(n, true);
      status = index.add(id_of(12), tokens);
      fired = failing.fired();
    }
    EXPECT_EQ(status.code(), fired ? BLEND_E_OUT_OF_MEMORY : BLEND_OK) << n;
    expect_equal(index, fired ? before : after, n);
    ASSERT_TRUE(index.add(id_of(12), tokens_of(12)).is_ok()) << n;
    expect_equal(index, after, n);
  }
  EXPECT_FALSE(fired);
  EXPECT_GT(n, 20U) << "a list for each token";
}

TEST(SimilarChunksMemory, ALookUpThatFailsLeavesNothing) {
  SimilarChunks want;
  fill(want, 12);
  const std::vector<int32_t> tokens = tokens_of(99);
  bool fired = true;
  uint64_t n = 1;
  for (; fired && n < 100; ++n) {
    SimilarChunks index;
    fill(index, 12);
    int32_t code = BLEND_OK;
    {
      const test::FailingMalloc failing(n, true);
      code = index.similar_to(tokens, {}).status().code();
      fired = failing.fired();
    }
    EXPECT_EQ(code, fired ? BLEND_E_OUT_OF_MEMORY : BLEND_OK) << n;
    expect_equal(index, want, n);
  }
  EXPECT_FALSE(fired);
  EXPECT_GT(n, 5U);
}

// The sweep needs memory; the removal does not.
TEST(SimilarChunksMemory, ARemovalNeverFails) {
  SimilarChunks index, want;
  fill(index, 100);
  for (uint8_t i = 90; i < 100; ++i) ASSERT_TRUE(want.add(id_of(i), tokens_of(i)).is_ok());
  {
    const test::FailingMalloc failing(1, true);
    for (uint8_t i = 0; i < 90; ++i) EXPECT_TRUE(index.remove(id_of(i)));
    EXPECT_TRUE(failing.fired());
  }
  expect_equal(index, want, 0);
  EXPECT_TRUE(index.remove(id_of(90)));
  EXPECT_TRUE(want.remove(id_of(90)));
  expect_equal(index, want, 1);
}

}  // namespace
}  // namespace blend
