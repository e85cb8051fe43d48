// Generations that run together while an allocation fails: each gives its own text or the prefix of
// it that it came to and OUT_OF_MEMORY, the others are not touched, nothing is leaked, and all can
// go on afterwards. Hangs if a step is left without a leader.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstring>
#include <thread>

#include "conformance/abi.h"
#include "conformance/random_prompt.h"
#include "fault/failing_malloc.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr size_t kRequests = 6, kTokens = 10;
// These are refused or cancelled by the host.
constexpr size_t kRefused = 1, kCancelled = 4;

// What a callback was told, in memory that is there already.
struct Heard {
  std::array<int32_t, kTokens + 1> tokens{};
  std::array<char, 16 * kTokens> text{};
  size_t n = 0, n_bytes = 0;
  size_t refuse = SIZE_MAX;              // this one
  const blend_cancel* cancel = nullptr;  // requested at the fourth

  static int32_t hear(void* user, int32_t token, const char* text, size_t n_bytes) {
    auto& h = *static_cast<Heard*>(user);
    if (token >= 0 && h.n < h.tokens.size()) h.tokens[h.n] = token;
    if (h.n_bytes + n_bytes <= h.text.size()) std::memcpy(&h.text[h.n_bytes], text, n_bytes);
    h.n_bytes += n_bytes;
    if (h.cancel != nullptr && h.n == 3) blend_cancel_request(h.cancel);
    return token >= 0 && h.n++ == h.refuse ? 17 : 0;
  }
  std::vector<int32_t> told() const { return {tokens.begin(), tokens.begin() + std::ptrdiff_t(n)}; }
  std::string_view said() const { return {text.data(), n_bytes}; }
};

// One of those that run together.
struct Request {
  Fusion fusion;
  blend_generate_options options{};
  Heard heard;
  int32_t code = 0;
  size_t n_generated = 0;
  blend_error* error = nullptr;
};

class GenerationsMemory : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    RandomModelSpec spec;
    spec.n_layers = 2;
    spec.n_vocab = 300;
    ctx_ = make_ctx(2);
    model_ = open_model(ctx_, write_random_model(spec, dir_.file("model.gguf")), GetParam());
    blend_cancel* cancel = nullptr;
    ASSERT_EQ(blend_cancel_create(&cancel, nullptr), BLEND_OK);
    cancel_.reset(cancel);
    SplitMix rng(5);
    for (size_t i = 0; i < kRequests; ++i) {
      const Prompt prompt = {
          {BLEND_SEGMENT_QUESTION, random_tokens(rng, spec.n_vocab, 3 + 4 * i), false}};
      parents_.push_back(fuse(model_, Store(), prompt, {.policy = BLEND_POLICY_FULL}));
      Request alone = request(i);
      alone.options.draft_tokens = 0;
      generate(alone);
      ASSERT_EQ(alone.code, BLEND_OK);
      want_.push_back(alone.heard);
    }
  }

  Request request(size_t i) const {
    Request r;
    blend_fusion* fork = nullptr;
    EXPECT_EQ(blend_fusion_fork(&fork, parents_[i].get(), nullptr), BLEND_OK);
    r.fusion.reset(fork);
    EXPECT_EQ(blend_generate_options_init(&r.options, sizeof r.options), BLEND_OK);
    r.options.max_tokens = kTokens;
    r.options.ignore_eos = 1;
    if (i % 3 == 2) r.options.draft_tokens = 4, r.options.draft_match = 1;
    if (i % 3 == 0) r.options.repetition_penalty = 1.3f;
    if (i == 3) r.options.stop_texts = &never_, r.options.n_stop_texts = 1;
    return r;
  }
  static void generate(Request& r) {
    r.code = blend_fusion_generate(r.fusion.get(), &r.options, Heard::hear, &r.heard,
                                   &r.n_generated, &r.error);
  }

  // All at once while allocation `n` fails; false: there were fewer. `call`: of the whole batch.
  bool together(std::vector<Request>& all, uint64_t n, bool sticky, bool batch, int32_t& call) {
    std::vector<blend_generate_request> requests;
    for (Request& r : all) {
      requests.push_back(
          {sizeof(blend_generate_request), r.fusion.get(), &r.options, Heard::hear, &r.heard});
    }
    std::array<int32_t, kRequests> codes{};
    std::array<size_t, kRequests> n_generated{};
    std::array<blend_error*, kRequests> errors{};
    std::barrier begin(kRequests + 1), end(kRequests + 1);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kRequests && !batch; ++i) {
      threads.emplace_back([&, i] {
        begin.arrive_and_wait();
        generate(all[i]);
        end.arrive_and_wait();
      });
    }
    call = BLEND_OK;
    blend_error* error = nullptr;
    bool fired = false;
    {
      const FailingMalloc failing(n, sticky);
      if (batch) {
        call = blend_generate_batch(codes.data(), n_generated.data(), errors.data(),
                                    requests.data(), kRequests, &error);
      } else {
        begin.arrive_and_wait();
        end.arrive_and_wait();
      }
      fired = failing.fired();
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(call < 0, error != nullptr);
    blend_error_free(error);
    for (size_t i = 0; i < kRequests && batch; ++i) {
      all[i].code = call < 0 ? call : codes[i];
      all[i].n_generated = n_generated[i];
      all[i].error = errors[i];
    }
    return fired;
  }

  // Whether it failed for want of memory.
  bool check(size_t i, Request& r, bool whole_call) const {
    const std::vector<int32_t> want = want_[i].told(), got = r.heard.told();
    EXPECT_EQ(r.n_generated, got.size());
    EXPECT_LE(got.size(), want.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin())) << "request " << i;
    const bool failed = r.code == BLEND_E_OUT_OF_MEMORY;
    size_t n = want.size();
    if (failed) {
      EXPECT_TRUE(whole_call || r.error != nullptr);
      n = got.size();
    } else if (i == kRefused) {
      EXPECT_EQ(r.code, BLEND_E_CALLBACK);
      n = 3;
    } else if (i == kCancelled) {
      EXPECT_EQ(r.code, BLEND_E_CANCELLED);
      n = 4;
    } else {
      EXPECT_EQ(r.code, BLEND_OK) << "request " << i << ": " << blend_error_message(r.error);
      EXPECT_EQ(r.heard.said(), want_[i].said()) << "request " << i;
    }
    EXPECT_EQ(got.size(), n) << "request " << i;
    blend_error_free(r.error);
    r.error = nullptr;
    return failed;
  }

  // From where its cache ends; what was told last may not be there yet.
  void go_on(size_t i, Request& r) const {
    const size_t there = tokens_of(r.fusion).size() - tokens_of(parents_[i]).size();
    EXPECT_LE(there, kTokens);
    EXPECT_LE(r.heard.n, there + 1);
    if (there == kTokens) return;
    r.heard = {};
    r.options.cancel = nullptr;
    r.options.max_tokens = static_cast<uint32_t>(kTokens - there);
    // Which counts this call's tokens only.
    if (r.options.repetition_penalty != 1) r.options.penalty_context = uint32_t(there);
    generate(r);
    EXPECT_EQ(r.code, BLEND_OK) << blend_error_message(r.error);
    const std::vector<int32_t> want = want_[i].told();
    EXPECT_EQ(r.heard.told(), std::vector(want.begin() + std::ptrdiff_t(there), want.end()))
        << "request " << i << " after " << there;
    blend_error_free(r.error);
  }

  void sweep(bool sticky, bool batch) {
    int64_t before = 0;
    size_t n_failed = 0, n_rounds = 0, n_spared = 0;
    bool fired = true;
    for (uint64_t n = 1; fired && !HasFailure(); n += 1 + n / 40) {
      SCOPED_TRACE("allocation " + std::to_string(n));
      std::vector<Request> all;
      for (size_t i = 0; i < kRequests; ++i) all.push_back(request(i));
      all[kRefused].heard.refuse = 2;
      all[kCancelled].heard.cancel = all[kCancelled].options.cancel = cancel_.get();
      blend_cancel_reset(cancel_.get());
      int32_t call = 0;
      fired = together(all, n, sticky, batch, call);
      size_t failed = 0;
      for (size_t i = 0; i < kRequests; ++i) failed += check(i, all[i], call < 0);
      if (call < 0) {
        for (const Request& r : all) EXPECT_EQ(r.heard.n, 0u) << "told, and then the call failed";
      } else if (!sticky) {
        EXPECT_LE(failed, 1u) << "one allocation failed more than one request";
      }
      for (size_t i = 0; i < kRequests; ++i) go_on(i, all[i]);
      n_failed += failed;
      n_spared += fired && failed == 0;
      if (++n_rounds == 1) before = live_blocks();
    }
    EXPECT_GT(n_rounds, 20u);
    EXPECT_GT(n_failed, 10u);
    if (!sticky) {
      EXPECT_GT(n_spared, 0u) << "no request ever found room by itself";
    }
    EXPECT_LE(live_blocks() - before, int64_t(n_rounds / 10 + 20));
  }

  TempDir dir_;
  Ctx ctx_;
  Model model_;
  Cancel cancel_;
  std::vector<Fusion> parents_;
  std::vector<Heard> want_;
  blend_text never_{"\x01never\x02", 7};
};

TEST_P(GenerationsMemory, OneAllocationFailsInABatch) { sweep(false, true); }
TEST_P(GenerationsMemory, AllLaterOnesFailInABatch) { sweep(true, true); }
TEST_P(GenerationsMemory, OneAllocationFailsOnThreads) { sweep(false, false); }
TEST_P(GenerationsMemory, AllLaterOnesFailOnThreads) { sweep(true, false); }

INSTANTIATE_TEST_SUITE_P(Weights, GenerationsMemory,
                         testing::Values(BLEND_WEIGHTS_PACKED, BLEND_WEIGHTS_MAPPED,
                                         BLEND_WEIGHTS_INT8),
                         [](const auto& which) {
                           return which.param == BLEND_WEIGHTS_PACKED   ? "Packed"
                                  : which.param == BLEND_WEIGHTS_MAPPED ? "Mapped"
                                                                        : "Int8";
                         });

}  // namespace
}  // namespace blend::test
