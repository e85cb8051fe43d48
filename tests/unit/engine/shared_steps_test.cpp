// Sequences that decode together have the bits that each has by itself, whoever comes, goes, fails
// or is cancelled meanwhile.
#include "unit/engine/shared_steps_test.h"

#include <atomic>
#include <random>
#include <thread>

#include "base/threads/thread_cap.h"
#include "engine/generate.h"

namespace blend::test {

TEST_P(SharedStepsTest, OneThreadsSequencesGoInOneStep) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    model_ = open(shape.spec, 2, shape.form);
    ASSERT_NE(model_, nullptr);
    ASSERT_NE(model_->steps(), nullptr);
    const size_t fit = GetParam().step_rows, most = fit + (GetParam().slow ? 2 : 9);
    const size_t n_steps = GetParam().slow ? 1 : 3;
    std::vector<std::vector<std::vector<float>>> want;
    std::vector<std::vector<int32_t>> next;
    const auto rows_of = [&](size_t i) { return length(1 + 3 * i); };
    for (size_t i = 0; i < most; ++i) {
      next.push_back(tokens(n_steps, 100 + i));
      want.push_back(reference(rows_of(i), i, next[i]));
    }
    const std::vector<size_t> numbers =
        GetParam().slow ? std::vector<size_t>{5, most} : std::vector<size_t>{1, 2, 5, fit, most};
    for (const size_t n : numbers) {
      std::vector<std::unique_ptr<Sequence>> mine;
      for (size_t i = 0; i < n; ++i) {
        mine.push_back(prompt(rows_of(i), i, static_cast<uint32_t>(rows_of(i) + n_steps)));
      }
      for (size_t step = 0; step < n_steps; ++step) {
        const uint64_t steps = model_->steps()->n_steps(), rows = model_->steps()->n_rows();
        std::vector<Sequence::Append> appends;
        for (size_t i = 0; i < n; ++i) {
          appends.push_back({mine[i].get(), next[i][step], {}, nullptr, Status::ok()});
        }
        Sequence::append_each(appends);
        EXPECT_EQ(model_->steps()->n_steps() - steps, (n + fit - 1) / fit);
        EXPECT_EQ(model_->steps()->n_rows() - rows, n);
        for (size_t i = 0; i < n; ++i) {
          ASSERT_TRUE(appends[i].status.is_ok()) << appends[i].status.message();
          ASSERT_EQ(mine[i]->logits(), want[i][step]) << n << " sequences, step " << step;
        }
      }
    }
  }
}

TEST_P(SharedStepsTest, OneThatFailsLeavesTheOthersAlone) {
  const std::vector<int32_t> next = tokens(1, 9);
  const auto want = reference(5, 1, next);
  auto good = prompt(5, 1, 8), full = prompt(6, 2, 6), cancelled = prompt(7, 3, 9);
  CancelToken cancel;
  cancel.request();
  Watch watch;
  watch.cancel = &cancel;
  std::vector<Sequence::Append> appends;
  appends.push_back({full.get(), next[0], {}, nullptr, Status::ok()});
  appends.push_back({good.get(), next[0], {}, nullptr, Status::ok()});
  appends.push_back({cancelled.get(), next[0], watch, nullptr, Status::ok()});
  const std::vector<float> before = cancelled->logits();
  Sequence::append_each(appends);
  EXPECT_EQ(appends[0].status.code(), BLEND_E_CONTEXT_LENGTH);
  ASSERT_TRUE(appends[1].status.is_ok());
  EXPECT_EQ(appends[2].status.code(), BLEND_E_CANCELLED);
  EXPECT_EQ(good->logits(), want[0]);
  EXPECT_EQ(cancelled->logits(), before);
  EXPECT_EQ(cancelled->n_rows(), 7u);
}

// A correct draft costs no step, and a wrong one leaves no trace.
TEST_P(SharedStepsTest, RowsAheadHaveTheBitsOfStepsOfTheirOwn) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    model_ = open(shape.spec, 2, shape.form);
    ASSERT_NE(model_, nullptr);
    // Across the borders of key blocks.
    const size_t kPrompt = GetParam().slow ? 55 : 21, kTokens = 20;
    const std::vector<int32_t> next = tokens(kTokens, 3);
    const auto want = reference(kPrompt, 2, next);
    for (const size_t right : {size_t{0}, size_t{1}, size_t{4}, size_t{30}}) {
      auto mine = prompt(kPrompt, 2, kPrompt + kTokens);
      auto other = prompt(7, 8, 7 + kTokens);  // shares every step
      const uint64_t before = model_->steps()->n_steps();
      for (size_t i = 0; i < kTokens; ++i) {
        std::vector<int32_t> ahead;
        for (size_t k = i + 1; k < kTokens && ahead.size() < right; ++k) ahead.push_back(next[k]);
        ahead.push_back(300);  // wrong, or one more than there is room for
        const bool there = mine->has_ahead(next[i]);
        std::vector<Sequence::Append> appends;
        appends.push_back({mine.get(), next[i], {}, nullptr, Status::ok(), ahead});
        if (!there) appends.push_back({other.get(), next[i], {}, nullptr, Status::ok()});
        Sequence::append_each(appends);
        for (const auto& a : appends) ASSERT_TRUE(a.status.is_ok()) << a.status.message();
        ASSERT_EQ(mine->logits(), want[i]) << right << " ahead, token " << i;
      }
      // All fit beside a token of each into a step.
      const size_t ahead = std::min(right, kTokens - 1);
      EXPECT_EQ(model_->steps()->n_steps() - before, (kTokens + ahead) / (1 + ahead));
    }
  }
}

// Whatever the threads do, each token's logits are those of the reference. Hangs if broken.
TEST_P(SharedStepsTest, RequestsThatComeAndGoHaveTheBitsOfEachAlone) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    model_ = open(shape.spec, 3, shape.form);
    ASSERT_NE(model_, nullptr);
    constexpr size_t kThreads = 9;
    const size_t n_rounds = GetParam().slow ? 1 : 6, most = GetParam().slow ? 5 : 12;
    struct Work {
      size_t n_prompt = 0, n_tokens = 0, fails_at = 0;  // fails_at: cancelled there, then goes on
      uint64_t seed = 0;
      std::vector<int32_t> next;
      std::vector<std::vector<float>> want;
      std::unique_ptr<Sequence> sequence;
    };
    std::mt19937 rng(5);
    std::vector<std::vector<Work>> work(kThreads);
    for (size_t t = 0; t < kThreads; ++t) {
      for (size_t r = 0; r < n_rounds; ++r) {
        Work w;
        w.n_prompt = 1 + rng() % 60;
        w.n_tokens = 1 + rng() % most;
        w.fails_at = rng() % (2 * most);
        w.seed = 1000 * t + r;
        w.next = tokens(w.n_tokens, w.seed + 1);
        w.want = reference(w.n_prompt, w.seed, w.next);
        w.sequence = prompt(w.n_prompt, w.seed, static_cast<uint32_t>(w.n_prompt + w.n_tokens));
        work[t].push_back(std::move(w));
      }
    }
    std::vector<CancelToken> cancels(kThreads);
    std::atomic<bool> over{false};
    std::atomic<uint32_t> n_cancelled{0}, n_wrong{0}, n_failed{0}, n_done{0};
    const auto drive = [&](size_t t) {
      const ThreadCap cap(static_cast<uint32_t>(t % 4));
      std::mt19937 own(static_cast<uint32_t>(t));
      for (Work& w : work[t]) {
        SharedSteps::Member member(*model_->steps());
        for (size_t i = 0; i < w.n_tokens;) {
          if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 400));
          Watch watch;
          watch.cancel = &cancels[t];
          // Some draft tokens, and some of those are wrong.
          std::vector<int32_t> ahead(w.next.begin() + static_cast<ptrdiff_t>(i) + 1, w.next.end());
          ahead.resize(own() % (ahead.size() + 1));
          if (!ahead.empty() && own() % 2 == 0) ahead[own() % ahead.size()] = 259;
          Sequence::Append one{w.sequence.get(), w.next[i], watch, &member, Status::ok(), ahead};
          Sequence::append_each({&one, 1});
          const Status s = std::move(one.status);
          if (s.code() == BLEND_E_CANCELLED) {
            cancels[t].reset();
            ++n_cancelled;
            n_wrong += w.sequence->n_rows() != w.n_prompt + i;
            continue;
          }
          n_failed += !s.is_ok();
          n_wrong += w.sequence->logits() != w.want[i];
          ++n_done;
          if (++i == w.fails_at) cancels[t].request();
        }
        // One more than there is room for.
        n_wrong +=
            w.sequence->append({&w.next[0], 1}, {}, &member).code() != BLEND_E_CONTEXT_LENGTH;
      }
    };
    std::thread disturb([&] {
      std::mt19937 own(77);
      uint32_t seen = 0;
      while (!over) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        // One a token at most: where steps are slow nobody would ever end his.
        if (const uint32_t done = n_done; done != seen) {
          seen = done;
          cancels[own() % kThreads].request();
        }
      }
    });
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) threads.emplace_back(drive, t);
    for (std::thread& t : threads) t.join();
    over = true;
    disturb.join();
    EXPECT_EQ(n_wrong, 0u);
    EXPECT_EQ(n_failed, 0u);
    EXPECT_GT(n_cancelled, 0u);
  }
}

// Several threads wait for the lead while it goes from hand to hand.
TEST_P(SharedStepsTest, GreedyTextIsThatOfEachAlone) {
  constexpr size_t kThreads = 8;
  const auto generated = [&](size_t i, bool together) {
    auto s = prompt(3 + 5 * i, i, 200);
    std::vector<int32_t> out;
    GenerateOptions options;
    options.max_tokens = static_cast<uint32_t>(10 + 7 * i);
    options.ignore_eos = true;
    Utf8Stream text;
    Generated account;
    const auto collect = [&](int32_t t, const std::string&) {
      out.push_back(t);
      return 0;
    };
    const Watch watch = together ? Watch{} : apart();
    EXPECT_TRUE(test::generate(*s, options, {collect, {}}, watch, text, account).is_ok());
    return out;
  };
  std::vector<std::vector<int32_t>> want(kThreads), got(kThreads);
  for (size_t i = 0; i < kThreads; ++i) want[i] = generated(i, false);
  EXPECT_EQ(model_->steps()->n_steps(), 0u);
  // A busy machine may run one thread after the other: then once more.
  for (int round = 0; round < 100; ++round) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { got[i] = generated(i, true); });
    }
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(got, want);
    if (model_->steps()->n_rows() > model_->steps()->n_steps()) return;
  }
  ADD_FAILURE() << "no two of them ever shared a step";
}

// Conversations of random turns, forks, look-up, calls that the host ends, cancels or that do not
// fit: the greedy text of each is that of the same conversation by itself, which was never forked,
// cancelled or looked anything up.
TEST_P(SharedStepsTest, GreedyTextOfConversationsThatForkAndFail) {
  enum class Kind { generate, turn, fork, too_long };
  struct Act {
    Kind kind;
    uint32_t n = 0;
    uint64_t seed = 0;
    uint32_t ends_at = 0;  // the host's callback fails at this token; 0: not
    bool looks_up = false;
  };
  struct Told {
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    bool operator==(const Told&) const = default;
  };
  constexpr uint32_t kRoom = 260;
  std::atomic<uint32_t> n_cancelled{0}, n_forked{0}, n_failed{0}, n_tokens{0};

  // Generates `act.n` tokens more, however often it is cancelled.
  const auto generate = [&](Sequence& s, const Act& act, CancelToken* cancel, Told& told) {
    const bool together = cancel != nullptr;
    const size_t rows = s.n_rows();
    std::vector<int32_t> out;
    for (;;) {
      GenerateOptions options;
      options.max_tokens = act.n - static_cast<uint32_t>(out.size());
      options.ignore_eos = true;
      if (together && act.looks_up) options.lookup = {5, 1};
      const auto collect = [&](int32_t t, const std::string&) {
        out.push_back(t);
        ++n_tokens;
        return out.size() == act.ends_at ? 1 : 0;
      };
      Watch watch = together ? Watch{} : apart();
      watch.cancel = cancel;
      Utf8Stream text;
      Generated account;
      const Status status = test::generate(s, options, {collect, {}}, watch, text, account);
      if (status.code() != BLEND_E_CANCELLED) {
        n_failed += together && status.code() == BLEND_E_CALLBACK;
        EXPECT_TRUE(status.is_ok() || status.code() == BLEND_E_CALLBACK) << status.message();
        break;
      }
      ++n_cancelled;
      cancel->reset();
      out.resize(s.n_rows() - rows);  // one that was told may not be in the cache yet
      if (out.size() == act.n) break;
    }
    told.tokens.insert(told.tokens.end(), out.begin(), out.end());
  };
  // cancel: null where it is alone.
  const auto converse = [&](std::span<const Act> acts, uint64_t seed, CancelToken* cancel) {
    auto s = prompt(5 + seed % 20, seed, kRoom);
    std::vector<std::unique_ptr<Sequence>> parents;
    Told told;
    for (const Act& act : acts) {
      if (act.kind == Kind::generate) generate(*s, act, cancel, told);
      if (act.kind == Kind::turn) {
        const Status status = s->append(tokens(act.n, act.seed), cancel ? Watch{} : apart());
        EXPECT_TRUE(status.is_ok()) << status.message();
      }
      if (act.kind == Kind::too_long) {
        const auto many = tokens(kRoom + 1, act.seed);
        EXPECT_EQ(s->append(many, {}).code(), BLEND_E_CONTEXT_LENGTH);
      }
      if (act.kind == Kind::fork && cancel != nullptr) {
        auto other = s->fork();
        EXPECT_TRUE(other.is_ok()) << other.status().message();
        ++n_forked;
        // The next calls on one do not affect the other.
        Told unheard;
        generate(*s, {Kind::generate, act.n, 0, 0, true}, cancel, unheard);
        parents.push_back(std::move(s));
        s = std::move(*other);
      }
    }
    told.logits = s->logits();
    return told;
  };

  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    model_ = open(shape.spec, 3, shape.form);
    ASSERT_NE(model_, nullptr);
    constexpr size_t kThreads = 6, kEach = 3;
    std::mt19937 rng(11);
    std::vector<std::vector<Act>> acts(kThreads * kEach);
    std::vector<Told> want, got(kThreads * kEach);
    for (size_t i = 0; i < acts.size(); ++i) {
      const size_t n = 4 + rng() % 4;
      for (size_t a = 0; a < n; ++a) {
        Act act{static_cast<Kind>(a == 0 ? 0 : rng() % 4)};
        act.n = static_cast<uint32_t>(2 + rng() % 10);
        act.seed = rng();
        if (rng() % 4 == 0) act.ends_at = static_cast<uint32_t>(1 + rng() % act.n);
        act.looks_up = rng() % 2 == 0;
        acts[i].push_back(act);
      }
      want.push_back(converse(acts[i], i, nullptr));
    }
    std::vector<CancelToken> cancels(kThreads);
    std::vector<std::thread> threads;
    std::atomic<size_t> n_left{kThreads};
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t; i < acts.size(); i += kThreads) {
          got[i] = converse(acts[i], i, &cancels[t]);
        }
        --n_left;
      });
    }
    std::mt19937 own(78);
    for (uint32_t seen = n_tokens; n_left > 0;) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      // One a token at most, so that all end however slow steps are.
      if (const uint32_t now = n_tokens; now != seen) {
        seen = now;
        cancels[own() % kThreads].request();
      }
    }
    for (std::thread& t : threads) t.join();
    for (size_t i = 0; i < acts.size(); ++i) {
      EXPECT_EQ(got[i].tokens, want[i].tokens) << "conversation " << i;
      EXPECT_TRUE(got[i].logits == want[i].logits) << "conversation " << i;
    }
    EXPECT_GT(model_->steps()->n_rows(), model_->steps()->n_steps());
  }
  EXPECT_GT(n_cancelled, 0u);
  EXPECT_GT(n_forked, 0u);
  EXPECT_GT(n_failed, 0u);
}

}  // namespace blend::test
