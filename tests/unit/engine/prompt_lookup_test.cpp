// Drafts of tokens, and that a generation with them is, to the bit, one without.
#include "engine/prompt_lookup.h"

#include <random>

#include "engine/generate.h"
#include "support/engine_fixture.h"

namespace blend {
namespace {

using Tokens = std::vector<int32_t>;

Tokens drafted(const Tokens& rows, int32_t next, uint32_t n_tokens, uint32_t match, size_t most) {
  PromptLookup lookup({n_tokens, match});
  const auto found = lookup.draft(rows, next, most);
  return {found.begin(), found.end()};
}

TEST(PromptLookup, GoesOnWhereTheTextReadsTheSame) {
  EXPECT_EQ(drafted({1, 2, 3, 4, 5, 9, 1, 2}, 3, 8, 3, 99), (Tokens{4, 5, 9}));
  EXPECT_EQ(drafted({1, 2, 3, 4, 5, 9, 1, 2}, 3, 2, 3, 99), (Tokens{4, 5}));
  EXPECT_EQ(drafted({1, 2, 3, 4, 5, 9, 1, 2}, 3, 8, 3, 1), (Tokens{4}));
  EXPECT_EQ(drafted({1, 2, 3, 4, 5, 9, 1, 2}, 3, 8, 4, 99), Tokens());
  EXPECT_EQ(drafted({1, 2, 3, 4, 5, 9, 1, 2}, 7, 8, 1, 99), Tokens());
  EXPECT_EQ(drafted({}, 7, 8, 1, 99), Tokens());
  EXPECT_EQ(drafted({7, 5, 7, 6}, 7, 8, 1, 99), (Tokens{6}));              // the latest of two
  EXPECT_EQ(drafted({3, 7, 5, 7, 6, 3}, 7, 8, 1, 99), (Tokens{5, 7}));     // the longest of two
  EXPECT_EQ(drafted({4, 8, 4, 8, 4}, 8, 6, 2, 99), (Tokens{4, 8, 4, 8}));  // it repeats itself
  EXPECT_EQ(drafted({4, 4, 4, 4, 4, 4, 4}, 4, 5, 2, 99), (Tokens{4, 4, 4, 4, 4}));
}

// Against a search that tries every place and length.
TEST(PromptLookup, FindsTheLongestOfAll) {
  std::mt19937 rng(3);
  for (int round = 0; round < 3000; ++round) {
    Tokens text(2 + rng() % 40);
    for (int32_t& t : text) t = static_cast<int32_t>(rng() % 3);
    const uint32_t most = 1 + rng() % 6, match = 1 + rng() % 4;
    const size_t n = text.size(), longest = std::max(most, match);
    size_t best = 0, behind = 0;
    for (size_t end = 1; end < n; ++end) {
      size_t same = 0;
      while (same < longest && same < end && text[end - 1 - same] == text[n - 1 - same]) ++same;
      if (same >= best && same > 0) best = same, behind = end;
    }
    Tokens want;
    Tokens all = text;
    for (size_t i = behind; best >= match && want.size() < std::min<size_t>(best, most); ++i) {
      want.push_back(all[i]);
      all.push_back(all[i]);
    }
    const int32_t next = text.back();
    text.pop_back();
    ASSERT_EQ(drafted(text, next, most, match, 99), want) << "round " << round;
  }
}

class LookupTest : public test::EngineTest {
 protected:
  struct Run {
    Tokens tokens;
    std::string text;
    std::vector<float> told;  // log probabilities
    std::vector<float> logits;
    Tokens rows;
    Generated account;
    int32_t code = 0;
    uint64_t n_steps = 0;
  };
  Run generated(GenerateOptions options, const Tokens& prompt, uint32_t capacity,
                LookupOptions lookup, bool quotes, size_t stop_at) {
    Run run;
    if (quotes) {  // as a model would that has read them
      options.rules.fn = [&prompt, i = size_t{3}](std::span<float> logits) mutable {
        logits[static_cast<size_t>(prompt[i++ % prompt.size()])] += 50;
        return 0;
      };
    }
    auto made = Sequence::create(model_, capacity);
    EXPECT_TRUE(made.is_ok());
    const std::unique_ptr<Sequence> s = std::move(*made);
    EXPECT_TRUE(s->append(prompt, {}).is_ok());
    options.lookup = lookup;
    GenerateCalls calls;
    calls.token = [&](int32_t t, const std::string& text) {
      run.tokens.push_back(t);
      run.text += text;
      return run.tokens.size() > stop_at ? 7 : 0;
    };
    calls.logprobs = [&](std::span<const Logprob> found) {
      for (const Logprob& p : found) run.told.push_back(p.logprob);
      return 0;
    };
    Utf8Stream text;
    const uint64_t before = model_->steps()->n_steps();
    run.code = test::generate(*s, options, calls, {}, text, run.account).code();
    run.n_steps = model_->steps()->n_steps() - before;
    // No draft is left.
    const int32_t t = 270;
    if (s->room() > 0) {
      EXPECT_TRUE(s->append({&t, 1}, {}).is_ok());
    }
    run.logits = s->logits();
    run.rows = s->tokens();
    return run;
  }
};

TEST_F(LookupTest, TheSameToTheBitAndInFewerSteps) {
  std::mt19937 rng(9);
  uint64_t n_steps = 0, n_plain = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    Tokens prompt = tokens(12, rng());
    // A text that says things twice.
    for (int i = 0; i < 3; ++i) {
      const auto at = static_cast<ptrdiff_t>(rng() % 7);
      const Tokens again(prompt.begin() + at, prompt.begin() + at + 6);
      prompt.insert(prompt.end(), again.begin(), again.end());
    }
    GenerateOptions o;
    o.max_tokens = 1 + rng() % 60;
    o.ignore_eos = rng() % 2 == 0;
    if (rng() % 3 == 0) {
      o.sampler.temperature = 0.7f;
      o.sampler.seed = rng();
    }
    if (rng() % 3 == 0) o.rules.repetition_penalty = 1.3f;
    if (rng() % 4 == 0) o.rules.frequency_penalty = 0.5f;
    o.top_logprobs = rng() % 3;
    if (rng() % 3 == 0) o.stop_texts = {"e", "zz"};
    const uint32_t capacity = static_cast<uint32_t>(prompt.size()) + rng() % 80;
    const size_t stop_at = rng() % 4 == 0 ? rng() % 20 : SIZE_MAX;
    const bool quotes = round % 2 == 0;
    const Run want = generated(o, prompt, capacity, {}, quotes, stop_at);
    const Run got =
        generated(o, prompt, capacity,
                  {1 + static_cast<uint32_t>(rng() % 16), 1 + static_cast<uint32_t>(rng() % 3)},
                  quotes, stop_at);
    ASSERT_EQ(got.tokens, want.tokens);
    ASSERT_EQ(got.text, want.text);
    ASSERT_EQ(got.told, want.told);
    ASSERT_EQ(got.code, want.code);
    ASSERT_EQ(got.account.n_tokens, want.account.n_tokens);
    ASSERT_EQ(got.account.stopped, want.account.stopped);
    ASSERT_EQ(got.rows, want.rows);
    ASSERT_EQ(got.logits, want.logits);
    EXPECT_LE(got.n_steps, want.n_steps);
    n_steps += got.n_steps;
    n_plain += want.n_steps;
  }
  EXPECT_LT(n_steps, n_plain * 3 / 4);
}

}  // namespace
}  // namespace blend
