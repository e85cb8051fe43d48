// The number of threads changes when things happen, not what is computed; several fuses may run on
// one context at once.
#include <gtest/gtest.h>

#include <thread>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

class Threads : public testing::Test {
 protected:
  Threads() {
    RandomModelSpec spec;
    spec.context = 1024;
    path_ = write_random_model(spec, dir_.file("model.gguf"));
    SplitMix rng(77);
    while (prompts_.size() < 4) {
      RandomPrompt p = random_prompt(rng, spec.n_vocab, 300);
      if (p.prompt.size() > 3) prompts_.push_back(std::move(p));
    }
  }

  FuseCase how(size_t prompt) const {
    FuseCase c{.policy = BLEND_POLICY_HKVD, .ratio = 0.2};
    c.chunk_prefix = prompts_[prompt].chunk_prefix;
    return c;
  }

  TempDir dir_;
  std::string path_;
  std::vector<RandomPrompt> prompts_;
};

TEST_F(Threads, NumberOfThreadsChangesNothing) {
  std::vector<std::vector<float>> first;
  std::vector<std::vector<uint32_t>> first_selected;
  for (const uint32_t n_threads : {1u, 2u, 5u}) {
    const Ctx ctx = make_ctx(n_threads);
    const Model model = open_model(ctx, path_);
    const Store store = open_store(ctx, dir_.file("store" + std::to_string(n_threads)));
    for (size_t p = 0; p < prompts_.size(); ++p) {
      const Fusion f = fuse(model, store, prompts_[p].prompt, how(p));
      ASSERT_TRUE(f);
      if (n_threads == 1) {
        first.push_back(logits(f));
        first_selected.push_back(selected(f));
      } else {
        EXPECT_LE(max_difference(logits(f), first[p]), 2e-5) << n_threads << " threads";
        EXPECT_EQ(selected(f), first_selected[p]) << n_threads << " threads";
      }
    }
  }
}

TEST_F(Threads, ConcurrentFusesGiveTheSameBitsAsAlone) {
  const Ctx ctx = make_ctx(3);
  const Model model = open_model(ctx, path_);
  const Store store = open_store(ctx, dir_.file("store"));
  const ReferenceModel reference(path_);
  std::vector<std::vector<float>> alone;
  for (size_t p = 0; p < prompts_.size(); ++p) {
    const Fusion f = fuse(model, store, prompts_[p].prompt, how(p));
    ASSERT_TRUE(f);
    expect_like_reference(reference, f, prompts_[p].prompt, how(p));
    decode(f, {4});
    alone.push_back(logits(f));
  }
  std::vector<std::thread> threads;
  for (size_t p = 0; p < prompts_.size(); ++p) {
    threads.emplace_back([&, p] {
      for (int i = 0; i < 5; ++i) {
        const Fusion f = fuse(model, store, prompts_[p].prompt, how(p));
        decode(f, {4});
        EXPECT_EQ(logits(f), alone[p]) << "prompt " << p;
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

// Misses at once: each thread prefills and stores what it lacks, and none sees half a chunk.
TEST_F(Threads, ConcurrentMissesGiveTheSameBits) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  std::vector<float> want;
  {
    const Store store = open_store(ctx, dir_.file("alone"));
    want = logits(fuse(model, store, prompts_[0].prompt, how(0)));
  }
  for (int round = 0; round < 3; ++round) {
    const Store store = open_store(ctx, dir_.file("together" + std::to_string(round)));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back(
          [&] { EXPECT_EQ(logits(fuse(model, store, prompts_[0].prompt, how(0))), want); });
    }
    for (std::thread& t : threads) t.join();
  }
}

}  // namespace
}  // namespace blend::test
