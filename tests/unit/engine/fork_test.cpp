// A forked sequence is what one of its own would be, whatever becomes of the one it came from.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string_view>

#include "engine/sequence.h"
#include "support/engine_fixture.h"

// Memory for a file that runs out: fails with this.
namespace {
std::atomic<int> reserving_fails{0};
}
extern "C" int fallocate(int fd, int mode, off_t at, off_t bytes) {
  const int error = reserving_fails;
  if (error == 0) return static_cast<int>(syscall(SYS_fallocate, fd, mode, at, bytes));
  errno = error;
  return -1;
}

namespace blend {
namespace {

class ForkTest : public test::EngineTest {
 protected:
  static constexpr uint32_t kCapacity = 200;

  std::unique_ptr<Sequence> make(uint32_t capacity = kCapacity) {
    auto s = Sequence::create(model_, capacity);
    EXPECT_TRUE(s.is_ok()) << s.status().message();
    return std::move(*s);
  }
  static std::unique_ptr<Sequence> forked(Sequence& of) {
    auto s = of.fork();
    EXPECT_TRUE(s.is_ok()) << s.status().message();
    return std::move(*s);
  }

  // The calls on a sequence, to be repeated on one that was never forked.
  using Act = std::function<Status(Sequence&)>;
  struct Live {
    std::unique_ptr<Sequence> sequence;
    std::vector<Act> past;

    void act(const Act& act) {
      const Status done = act(*sequence);
      ASSERT_TRUE(done.is_ok()) << done.message();
      past.push_back(act);
    }
  };
  Act appends(size_t n, uint64_t seed) {
    return [t = tokens(n, seed)](Sequence& s) { return s.append(t, {}); };
  }

  void check(const Live& live) {
    auto own = make();
    for (const Act& act : live.past) ASSERT_TRUE(act(*own).is_ok());
    ASSERT_EQ(live.sequence->tokens(), own->tokens());
    ASSERT_EQ(live.sequence->logits(), own->logits());
    for (const int32_t t : tokens(2, 99)) {  // which see every row
      ASSERT_TRUE(live.sequence->append({&t, 1}, {}).is_ok());
      ASSERT_TRUE(own->append({&t, 1}, {}).is_ok());
      ASSERT_EQ(live.sequence->logits(), own->logits());
    }
  }
};

TEST_F(ForkTest, WhateverIsDoneToTheOthersItIsWhatItWouldBeByItself) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    test::RandomModelSpec spec;
    spec.head_dim = 64;
    BackendSpec backend;
    backend.cache = dtype;
    model_ = load(spec, 2, {}, backend);
    ASSERT_NE(model_, nullptr);
    for (uint32_t round = 0; round < 6; ++round) {
      std::mt19937 rng(round);
      std::vector<Live> all(1);
      all[0].sequence = make();
      all[0].act(appends(1 + rng() % 100, round));
      for (int i = 0; i < 60; ++i) {
        const size_t which = rng() % all.size();
        Live& live = all[which];
        Sequence& s = *live.sequence;
        const uint32_t n = s.n_rows();
        switch (rng() % 6) {
          case 0:
            if (all.size() < 8) {
              Live other{forked(s), live.past};
              ASSERT_NE(other.sequence, nullptr);
              all.push_back(std::move(other));
            }
            break;
          case 1: {
            const uint32_t first = rng() % n, n_old = 1 + rng() % std::min(9u, n - first);
            if (n_old == n) break;
            live.act([=, t = tokens(rng() % 5, rng())](Sequence& of) {
              return of.replace(first, n_old, t, {});
            });
            break;
          }
          case 2:
            if (n + 24 < kCapacity) live.act(appends(2 + rng() % 20, rng()));
            break;
          case 3:
            if (all.size() > 1 && rng() % 3 == 0) {
              check(live);
              all.erase(all.begin() + static_cast<ptrdiff_t>(which));
            }
            break;
          default:
            if (n + 4 < kCapacity) live.act(appends(1, rng()));
        }
        if (HasFatalFailure()) return;
      }
      for (const Live& live : all) {
        check(live);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// If a file in memory must not be as large as the cache, the fork copies, and no signal is raised.
TEST_F(ForkTest, WithoutSharedMemoryItIsACopy) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  Live one{make(), {}};
  one.act(appends(50, 1));
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Live two{forked(*one.sequence), one.past};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_NE(two.sequence, nullptr);
  one.act(appends(5, 2));
  two.act(appends(3, 3));
  check(one);
  check(two);
}

// Under strict overcommit, in a full cgroup: told at once, where a page that is written later and
// cannot be had would be SIGBUS.
TEST_F(ForkTest, WhereSharedMemoryRunsOutItIsToldBeforeItIsWritten) {
  Live one{make(), {}};
  one.act(appends(50, 1));
  for (const int error : {ENOSPC, ENOMEM}) {
    reserving_fails = error;
    const auto none = one.sequence->fork();
    reserving_fails = 0;
    EXPECT_EQ(none.status().code(), BLEND_E_OUT_OF_MEMORY) << none.status().message();
  }
  reserving_fails = EOPNOTSUPP;  // a kernel that cannot: a copy
  Live two{forked(*one.sequence), one.past};
  reserving_fails = 0;
  Live three{forked(*one.sequence), one.past};
  one.act(appends(5, 2));
  two.act(appends(3, 3));
  three.act(appends(4, 4));
  for (const Live* live : {&one, &two, &three}) check(*live);
}

// Sanitizers' own memory grows with what is touched and with what was freed.
#if !defined(BLEND_TEST_EMULATED) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// What the process holds, each page that it shares with itself counted once. Pages of files are
// left out: its share of the program's own doubles when another process that runs it ends.
size_t held() {
  size_t kib = 0;
  std::FILE* const f = std::fopen("/proc/self/smaps_rollup", "r");
  if (f == nullptr) return 0;
  char line[256];
  while (std::fgets(line, sizeof line, f) != nullptr) {
    for (const std::string_view name : {"Pss_Anon:", "Pss_Shmem:"}) {
      if (std::string_view(line).starts_with(name))
        kib += std::strtoull(line + name.size(), nullptr, 10);
    }
  }
  (void)std::fclose(f);
  return kib << 10;
}

TEST_F(ForkTest, CostsTheRowsThatCome) {
  test::RandomModelSpec spec;
  spec.context = 2048;
  spec.head_dim = 64;
  model_ = load(spec);
  const ModelConfig& c = model_->config();
  const size_t row = size_t{2} * c.n_layers * c.kv_dim() * sizeof(float);
  constexpr uint32_t kRows = 1500, kForks = 16;
  auto one = make(2048);
  ASSERT_TRUE(one->append(tokens(kRows, 1), {}).is_ok());
  auto first = forked(*one);
  // It looks at what they share, which counts from then on.
  ASSERT_TRUE(first->append(tokens(1, 2), {}).is_ok());
  const size_t before = held();
  if (before == 0) GTEST_SKIP() << "the system does not tell";
  std::vector<std::unique_ptr<Sequence>> others;
  for (uint32_t i = 0; i < kForks; ++i) {
    others.push_back(forked(*one));
    for (const int32_t t : tokens(16, i)) ASSERT_TRUE(others[i]->append({&t, 1}, {}).is_ok());
  }
  // Sixteen rows begin and end in the middle of a page of sixteen; what else they hold is small.
  EXPECT_LT(held() - before, kForks * (3 * 16 * row + (64 << 10)));
  EXPECT_GT(kForks * kRows * row, 4 * kForks * (3 * 16 * row + (64 << 10)));  // as copies
}
#endif

}  // namespace
}  // namespace blend
