// n_threads of a call's options: each call keeps it, the results are the same bits, and the
// context's threads are pinned if asked for.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "conformance/random_prompt.h"
#include "conformance/step_host.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

std::set<std::string> threads_of_process() {
  std::set<std::string> out;
  DIR* dir = opendir("/proc/self/task");
  if (dir == nullptr) return out;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') out.insert(entry->d_name);
  }
  closedir(dir);
  return out;
}

// A line of a thread's status, without its name.
std::string status_of(const std::string& thread, const std::string& name) {
  std::ifstream in("/proc/self/task/" + thread + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) return line.substr(name.size() + 1);
  }
  return {};
}

// `call` is given where its error goes.
template <typename Call>
Outcome outcome_of(const Call& call) {
  blend_error* error = nullptr;
  const int32_t code = call(&error);
  return outcome(code, error);
}

class CallThreads : public testing::Test {
 protected:
  CallThreads() {
    RandomModelSpec spec;
    spec.context = 2048;
    spec.n_vocab = 2048;
    spec.d_model = 128;
    spec.head_dim = 16;
    path_ = write_random_model(spec, dir_.file("model.gguf"));
    SplitMix rng(5);
    for (const size_t n : {500, 400}) {
      prompt_.push_back({.kind = BLEND_SEGMENT_CHUNK, .tokens = random_tokens(rng, 2048, n)});
    }
    prompt_.push_back({.kind = BLEND_SEGMENT_QUESTION, .tokens = random_tokens(rng, 2048, 9)});
    other_.push_back({.kind = BLEND_SEGMENT_CHUNK, .tokens = random_tokens(rng, 2048, 300)});
    other_.push_back({.kind = BLEND_SEGMENT_QUESTION, .tokens = random_tokens(rng, 2048, 7)});
  }

  static FuseCase how(uint32_t n_threads, uint32_t on_miss = BLEND_MISS_FAIL) {
    FuseCase c{.policy = BLEND_POLICY_HKVD, .ratio = 0.2, .on_miss = on_miss};
    c.n_threads = n_threads;
    return c;
  }

  TempDir dir_;
  std::string path_;
  Prompt prompt_, other_;
};

TEST_F(CallThreads, TheBitsAreTheSameForAnyNumber) {
  const Ctx ctx = make_ctx(3);
  const Model model = open_model(ctx, path_);
  std::vector<std::vector<float>> want;
  for (const uint32_t n : {0u, 1u, 2u, 3u, 9u, uint32_t{INT32_MAX}}) {
    const Store store = open_store(ctx, dir_.file("store" + std::to_string(n)), BLEND_DTYPE_F16);
    std::vector<std::vector<float>> got;
    const Fusion f = fuse(model, store, prompt_, how(n, BLEND_MISS_PRECOMPUTE));
    got.push_back(logits(f));
    got.push_back(deviation(f));
    decode(f, {7, 8, 9});
    got.push_back(logits(f));
    replace(f, 100, 5, {1, 2});
    got.push_back(logits(f));
    EXPECT_EQ(try_extend(f, store, other_, how(n, BLEND_MISS_PRECOMPUTE)).code, BLEND_OK);
    got.push_back(logits(f));
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << n << " threads";
  }
}

// Two requests at once, each with its share of the threads.
TEST_F(CallThreads, SharesOfOneContextGiveTheSameBits) {
  const Ctx ctx = make_ctx(4);
  const Model model = open_model(ctx, path_);
  const Store store = open_store(ctx, dir_.file("store"), BLEND_DTYPE_F16);
  std::vector<float> want;
  {
    const Fusion alone = fuse(model, store, prompt_, how(0, BLEND_MISS_PRECOMPUTE));
    decode(alone, {4});
    want = logits(alone);
  }
  std::vector<std::thread> threads;
  for (const uint32_t n : {2u, 2u, 1u, 0u}) {
    threads.emplace_back([&, n] {
      for (int i = 0; i < 3; ++i) {
        const Fusion f = fuse(model, store, prompt_, how(n));
        decode(f, {4});
        EXPECT_EQ(logits(f), want) << n << " threads";
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

// Calls of one thread, seen from outside: the context's threads sleep through them. And through the
// same calls without a number they do not.
class OneThread : public CallThreads {
 protected:
  OneThread() {
    std::thread([] {}).join();  // with the first thread ThreadSanitizer starts one of its own
    const std::set<std::string> before = threads_of_process();
    ctx_ = make_ctx(3);
    for (const std::string& thread : threads_of_process()) {
      if (!before.contains(thread)) workers_.insert(thread);
    }
    EXPECT_EQ(workers_.size(), 2u);
    model_ = open_model(ctx_, path_);
    store_ = open_store(ctx_, dir_.file("store"), BLEND_DTYPE_F16);
    precompute_all(model_, store_, prompt_, {});
    precompute_all(model_, store_, other_, {});
  }

  // How often the workers went to sleep so far, when all of them do.
  std::map<std::string, std::string> sleeps() const {
    for (std::map<std::string, std::string> last;;) {
      std::map<std::string, std::string> now;
      bool asleep = true;
      for (const std::string& worker : workers_) {
        now[worker] = status_of(worker, "voluntary_ctxt_switches");
        EXPECT_NE(now[worker], "");
        asleep = asleep && status_of(worker, "State").find('S') != std::string::npos;
      }
      if (asleep && now == last) return now;
      last = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // `call` is given n_threads.
  void expect_kept(const char* name, const std::function<void(uint32_t)>& call) {
    const auto before = sleeps();
    call(1);
    const auto after_one = sleeps();
    EXPECT_EQ(after_one, before) << name << " of one thread woke others";
    call(0);
    EXPECT_NE(sleeps(), after_one) << name << " of all threads woke none: the test sees nothing";
  }

  template <typename Options>
  static Options options_with(int32_t (*init)(Options*, size_t), uint32_t n_threads) {
    Options options;
    EXPECT_EQ(init(&options, sizeof options), BLEND_OK);
    options.n_threads = n_threads;
    return options;
  }

  // For options whose defaults are zero.
  template <typename Options>
  static Options options_with(uint32_t n_threads) {
    Options options{};
    options.struct_size = sizeof options;
    options.n_threads = n_threads;
    return options;
  }

  template <typename Call>
  static void expect_ok(const Call& call) {
    const Outcome o = outcome_of(call);
    EXPECT_GE(o.code, 0) << o.message;
  }

  // Generates three tokens.
  void generate(const Fusion& f, uint32_t n_threads) {
    auto options = options_with(blend_generate_options_init, n_threads);
    options.max_tokens = 3;
    options.ignore_eos = 1;
    expect_ok([&](blend_error** error) {
      return blend_fusion_generate(f.get(), &options, nullptr, nullptr, nullptr, error);
    });
  }

  Ctx ctx_;
  std::set<std::string> workers_;
  Model model_;
  Store store_;
};

TEST_F(OneThread, FusionsAndWhatFollowsThem) {
  Fusion f;
  expect_kept("fuse", [&](uint32_t n) { f = fuse(model_, store_, prompt_, how(n)); });
  // Later calls keep the number of the fuse.
  const Fusion one = fuse(model_, store_, prompt_, how(1)), all = std::move(f);
  const auto of = [&](uint32_t n) -> const Fusion& { return n == 1 ? one : all; };
  expect_kept("decode", [&](uint32_t n) { decode(of(n), {3, 4, 5}); });
  expect_kept("generate", [&](uint32_t n) { generate(of(n), 0); });
  expect_kept("replace", [&](uint32_t n) { replace(of(n), 50, 4, {6}); });
  expect_kept("save", [&](uint32_t n) {
    expect_ok([&](blend_error** error) {
      return blend_fusion_save(of(n).get(), store_.get(), nullptr, nullptr, nullptr, error);
    });
    expect_ok([&](blend_error** error) { return blend_store_flush(store_.get(), error); });
  });
  expect_kept("extend", [&](uint32_t n) {
    EXPECT_EQ(try_extend(of(n), store_, other_, how(0)).code, BLEND_OK);
  });
  // Unless they say otherwise.
  expect_kept("generate of its own", [&](uint32_t n) { generate(of(1 - n), n == 0 ? 9 : n); });
  expect_kept("extend of its own", [&](uint32_t n) {
    EXPECT_EQ(try_extend(of(1 - n), store_, other_, how(n == 0 ? 9 : n)).code, BLEND_OK);
  });
  expect_kept("decode after it", [&](uint32_t n) { decode(of(1 - n), {3, 4, 5}); });
}

TEST_F(OneThread, Batches) {
  const std::vector<blend_segment> segments = segments_of(prompt_);
  const auto batch = [&](uint32_t first, uint32_t second) {
    const FuseCase hows[2] = {how(first), how(second)};
    const blend_fuse_options options[2] = {options_of(hows[0]), options_of(hows[1])};
    blend_fuse_request requests[2];
    for (int i = 0; i < 2; ++i) {
      requests[i] = blend_fuse_request{}, requests[i].struct_size = sizeof requests[i];
      requests[i].segments = segments.data();
      requests[i].n_segments = segments.size();
      requests[i].options = &options[i];
    }
    blend_fusion* out[2] = {};
    expect_ok([&](blend_error** error) {
      return blend_fuse_batch(out, nullptr, model_.get(), store_.get(), requests, 2, error);
    });
    return std::pair<Fusion, Fusion>(out[0], out[1]);
  };
  expect_kept("a batch", [&](uint32_t n) { batch(1, n); });
  expect_kept("a batch with a larger number", [&](uint32_t n) { batch(n == 0 ? 2 : n, 1); });
  const auto made = batch(1, 0);
  expect_kept("decode", [&](uint32_t n) { decode(n == 1 ? made.first : made.second, {3, 4, 5}); });
}

TEST_F(OneThread, ChunksAndWhatAMissLeavesBehind) {
  SplitMix rng(6);
  expect_kept("precompute", [&](uint32_t n) {
    const auto options = options_with<blend_precompute_options>(n);
    const std::vector<int32_t> tokens = random_tokens(rng, 2048, 200);
    expect_ok([&](blend_error** error) {
      return blend_precompute(model_.get(), store_.get(), tokens.data(), tokens.size(), &options,
                              nullptr, error);
    });
  });
  expect_kept("a miss prefilled after its fuse", [&](uint32_t n) {
    Prompt missing = prompt_;
    missing[1].tokens = random_tokens(rng, 2048, 200);
    const Fusion f = fuse(model_, store_, missing, how(1, BLEND_MISS_COMPUTE_STORE));
    EXPECT_EQ(info(f).n_misses_queued, 1u);
    expect_ok([&](blend_error** error) { return blend_store_flush(store_.get(), error); });
    if (n == 0) fuse(model_, store_, prompt_, how(0));  // that of one thread is all there is to see
  });
}

TEST_F(OneThread, LayerwiseFuses) {
  const ReferenceModel reference(path_);
  expect_kept("a layerwise fuse", [&](uint32_t n) {
    const TriedLayerwise tried = try_layerwise(model_, store_, other_, how(n));
    ASSERT_EQ(tried.outcome.code, BLEND_OK) << tried.outcome.message;
    EXPECT_EQ(StepHost(reference, {}).run(tried.layerwise.get()).outcome.code, BLEND_OK);
  });
}

TEST_F(OneThread, Measurements) {
  const std::vector<blend_segment> segments = segments_of(other_);
  blend_sample sample{};
  sample.struct_size = sizeof sample;
  sample.segments = segments.data();
  sample.n_segments = segments.size();
  const double ratio = 1;
  const std::string path = dir_.file("profile");
  expect_kept("calibrate", [&](uint32_t n) {
    auto options = options_with(blend_calibrate_options_init, n);
    options.ratios = &ratio;
    options.n_ratios = 1;
    options.score_tokens = 1;
    options.correction = BLEND_CORRECTION_OFF;
    expect_ok([&](blend_error** error) {
      return blend_calibrate(model_.get(), &sample, 1, &options, path.c_str(), error);
    });
  });
  blend_profile* opened = nullptr;
  ASSERT_EQ(blend_profile_open(&opened, model_.get(), path.c_str(), nullptr), BLEND_OK);
  const Profile profile(opened);
  expect_kept("verify", [&](uint32_t n) {
    auto options = options_with(blend_verify_options_init, n);
    options.ratios = &ratio;
    options.n_ratios = 1;
    options.score_tokens = 1;
    expect_ok([&](blend_error** error) {
      return blend_verify(model_.get(), profile.get(), &sample, 1, &options, nullptr, error);
    });
  });
  uint32_t timed = 0;
  const auto measure = [&](uint32_t n) {
    auto options = options_with<blend_machine_options>(n);
    options.max_tokens = 64;
    blend_machine* machine = nullptr;
    expect_ok([&](blend_error** error) {
      return blend_machine_open(&machine, model_.get(), nullptr, &options, error);
    });
    blend_machine_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(blend_machine_get_info(machine, &info, nullptr), BLEND_OK);
    timed = info.n_threads;
    blend_machine_close(machine);
  };
  expect_kept("machine", measure);
  EXPECT_EQ(timed, 3u);
  measure(2);
  EXPECT_EQ(timed, 2u);
}

// A call from a callback has its own number, not that of the call around it: opening a model, all.
TEST_F(OneThread, CallsFromCallbacks) {
  const std::vector<blend_segment> segments = segments_of(prompt_);
  expect_kept("a fuse in which a model is opened", [&](uint32_t n) {
    const FuseCase one = how(1);
    blend_fuse_options options = options_of(one);
    const std::function<void(uint64_t)> open = [&](uint64_t done) {
      if (done == 1 && n == 0) open_model(ctx_, path_);
    };
    options.progress_user = const_cast<std::function<void(uint64_t)>*>(&open);
    options.progress = [](void* user, uint64_t done, uint64_t) -> int32_t {
      (*static_cast<const std::function<void(uint64_t)>*>(user))(done);
      return 0;
    };
    blend_fusion* out = nullptr;
    expect_ok([&](blend_error** error) {
      return blend_fuse(&out, model_.get(), store_.get(), segments.data(), segments.size(),
                        &options, error);
    });
    blend_fusion_close(out);
  });
}

TEST(PinThreads, EachThreadKeepsToOneCpuWhereItIsAskedFor) {
  const auto cpus_of_new = [](uint32_t flags) {
    const std::set<std::string> before = threads_of_process();
    blend_ctx_options options{};
    options.struct_size = sizeof options;
    EXPECT_EQ(options.flags, 0u);
    options.flags = flags;
    blend_ctx* ctx = nullptr;
    const Outcome o =
        outcome_of([&](blend_error** error) { return blend_ctx_create(&ctx, &options, error); });
    EXPECT_EQ(o.code, BLEND_OK) << o.message;
    std::multiset<std::string> cpus;
    for (const std::string& thread : threads_of_process()) {
      if (!before.contains(thread)) cpus.insert(status_of(thread, "Cpus_allowed_list"));
    }
    blend_ctx_close(ctx);
    return cpus;
  };
  const std::string mine = status_of(std::to_string(gettid()), "Cpus_allowed_list");
  for (const std::string& cpus : cpus_of_new(0)) EXPECT_EQ(cpus, mine);
  const std::multiset<std::string> pinned = cpus_of_new(BLEND_CTX_PIN_THREADS);
  for (const std::string& cpus : pinned) {
    EXPECT_EQ(cpus.find_first_of("-,"), std::string::npos) << cpus;
    EXPECT_EQ(pinned.count(cpus), 1u) << "a CPU of its own";
  }
  EXPECT_EQ(status_of(std::to_string(gettid()), "Cpus_allowed_list"), mine);
}

TEST(PinThreads, WhatCannotBeIsRefused) {
  const auto said = [](uint32_t n_threads, uint32_t flags) {
    blend_ctx_options options{};
    options.struct_size = sizeof options;
    options.n_threads = n_threads;
    options.flags = flags;
    blend_ctx* ctx = nullptr;
    const Outcome o =
        outcome_of([&](blend_error** error) { return blend_ctx_create(&ctx, &options, error); });
    EXPECT_EQ(ctx, nullptr);
    return o;
  };
  const Outcome too_many = said(1024, BLEND_CTX_PIN_THREADS);
  EXPECT_EQ(too_many.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(too_many.message.find("1024"), std::string::npos) << too_many.message;
  EXPECT_EQ(said(1, 2).code, BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend::test
