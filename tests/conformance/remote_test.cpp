// Two hosts, each a process with a store of its own, and one cluster: what one prefilled the other
// fuses, with the same logits to the bit.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/redis_server.h"
#include "support/slow_redis.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

Store open_shared(const Ctx& ctx, const std::string& path, const std::string& url, uint32_t codec) {
  blend_store_options options;
  blend_store_options_init(&options, sizeof options);
  options.kv_dtype = BLEND_DTYPE_F16;
  options.codec = codec;
  blend_remote_options remote;
  blend_remote_options_init(&remote, sizeof remote);
  options.remote = &remote;
  remote.url = url.c_str();
  remote.timeout_ms = 10000;  // nothing fails here
  remote.segment_bytes = 65536;
  blend_store* store = nullptr;
  blend_error* error = nullptr;
  const Outcome opened =
      outcome(blend_store_open(&store, ctx.get(), path.c_str(), &options, &error), error);
  EXPECT_EQ(BLEND_OK, opened.code) << opened.message;
  return Store(store);
}

Prompt some_prompt() {
  SplitMix rng(17);
  Prompt prompt;
  for (const size_t n : {60u, 45u, 52u}) {
    prompt.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, 320, n), false});
  }
  prompt.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, 320, 6), false});
  return prompt;
}

// What the first host answers from its own disk; what it stored is in the cluster then.
std::vector<float> first_host(const std::string& model_path, const std::string& store_path,
                              const std::string& url, uint32_t codec, const FuseCase& how) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, model_path);
  const Store store = open_shared(ctx, store_path, url, codec);
  const Prompt prompt = some_prompt();
  for (size_t i = 0; i < 3; ++i) precompute(model, store, prompt[i].tokens);
  blend_store_flush(store.get(), nullptr);
  return logits(fuse(model, store, prompt, how));
}

TEST(Remote, TwoProcessesAnswerTheSameToTheBit) {
  SKIP_WITHOUT_REDIS();
  RedisCluster cluster;
  ASSERT_TRUE(cluster.start());
  TempDir dir;
  const std::string path = write_random_model({}, dir.file("model.gguf"));
  for (const uint32_t codec :
       {BLEND_CODEC_NONE, BLEND_CODEC_ZSTD, BLEND_CODEC_INT8, BLEND_CODEC_INT4, BLEND_CODEC_RANS}) {
    SCOPED_TRACE(codec);
    for (const auto& node : cluster.nodes) (void)node->command({"FLUSHALL"});
    FuseCase how{.policy = BLEND_POLICY_HKVD, .ratio = 0.2, .on_miss = BLEND_MISS_FAIL};
    int pipe_ends[2];
    ASSERT_EQ(0, pipe(pipe_ends));
    const std::string a = dir.file("a" + std::to_string(codec));
    const pid_t child = fork();
    if (child == 0) {
      const std::vector<float> out = first_host(path, a, cluster.url(), codec, how);
      const size_t bytes = out.size() * sizeof(float);
      _exit(!out.empty() && write(pipe_ends[1], out.data(), bytes) == static_cast<ssize_t>(bytes)
                ? 0
                : 1);
    }
    close(pipe_ends[1]);
    std::vector<float> want(100'000);
    size_t n = 0;
    for (ssize_t got = 1; got > 0; n += static_cast<size_t>(std::max<ssize_t>(got, 0))) {
      got = read(pipe_ends[0], reinterpret_cast<char*>(want.data()) + n,
                 want.size() * sizeof(float) - n);
    }
    close(pipe_ends[0]);
    int status = 1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    ASSERT_EQ(0, status);
    want.resize(n / sizeof(float));

    // In a child too: this process must have no threads when it forks again.
    const pid_t second = fork();
    if (second == 0) {
      const Ctx ctx = make_ctx(2);
      const Model model = open_model(ctx, path);
      const Store store =
          open_shared(ctx, dir.file("b" + std::to_string(codec)), cluster.url(), BLEND_CODEC_NONE);
      bool same = true;
      for (int time = 0; time < 2; ++time) {  // from the cluster, then from its own disk
        const Fusion fusion = fuse(model, store, some_prompt(), how);
        same = same && logits(fusion) == want;
        const uint64_t far = info(fusion).bytes_from_remote;
        same = same && far == (time == 0 ? info(fusion).bytes_loaded : 0);
        blend_store_flush(store.get(), nullptr);
      }
      blend_store_stat stat{};
      stat.struct_size = sizeof stat;
      blend_store_get_stat(store.get(), &stat, nullptr);
      blend_remote_stat remote{};
      remote.struct_size = sizeof remote;
      blend_store_get_remote_stat(store.get(), &remote, nullptr);
      _exit(same && remote.hits == 3 && stat.n_chunks == 3 && remote.errors == 0 ? 0 : 1);
    }
    ASSERT_EQ(second, waitpid(second, &status, 0));
    EXPECT_EQ(0, status);
  }
}

// As an operator of a server with a password: what the callback says is used.
TEST(Remote, EveryCallOfAnOperator) {
  SKIP_WITHOUT_REDIS();
  RedisServer server({"--requirepass", "sesame"});
  // It answers us with NOAUTH, which is an answer.
  ASSERT_TRUE(server.start()) << server.log();
  TempDir dir;
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, write_random_model({}, dir.file("model.gguf")));
  const auto open = [&](const char* name, const char* password, int32_t* code) {
    blend_store_options options;
    blend_store_options_init(&options, sizeof options);
    const std::string url = server.url();
    blend_remote_options remote;
    blend_remote_options_init(&remote, sizeof remote);
    options.remote = password == nullptr ? nullptr : &remote;
    remote.url = url.c_str();
    remote.timeout_ms = 10000;
    remote.segment_bytes = 65536;
    remote.secret_user = const_cast<char*>(password);
    remote.secret = [](void* user, uint32_t secret, char* out, size_t capacity,
                       size_t* n_bytes) -> int32_t {
      const std::string_view said(static_cast<const char*>(user));
      if (said == "stop") return 7;
      *n_bytes = secret == BLEND_SECRET_PASSWORD ? said.size() : 0;
      if (*n_bytes > capacity) return 1;
      std::memcpy(out, said.data(), *n_bytes);
      return 0;
    };
    blend_store* store = nullptr;
    *code = blend_store_open(&store, ctx.get(), dir.file(name).c_str(), &options, nullptr);
    return Store(store);
  };
  int32_t code = 0;
  (void)open("stopped", "stop", &code);
  EXPECT_EQ(BLEND_E_CALLBACK, code);
  const Store stranger = open("stranger", "guessed", &code);
  ASSERT_EQ(BLEND_OK, code);
  EXPECT_EQ(BLEND_E_IO, blend_store_remote_check(stranger.get(), nullptr));

  blend_chunk_id ids[3];
  {
    const Store alone = open("a", nullptr, &code);
    ASSERT_EQ(BLEND_OK, code);
    const Prompt prompt = some_prompt();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GE(blend_precompute(model.get(), alone.get(), prompt[i].tokens.data(),
                                 prompt[i].tokens.size(), nullptr, &ids[i], nullptr),
                0);
    }
    uint64_t n = 9;
    blend_storage speed{};
    speed.struct_size = sizeof speed;
    const int32_t no = BLEND_E_INVALID_ARGUMENT;
    EXPECT_EQ(no, blend_store_remote_check(alone.get(), nullptr));
    EXPECT_EQ(no, blend_store_remote_push(alone.get(), nullptr, &n, nullptr));
    EXPECT_EQ(0u, n);
    EXPECT_EQ(no, blend_store_remote_pull(alone.get(), nullptr, &n, nullptr));
    EXPECT_EQ(no, blend_store_remote_verify(alone.get(), nullptr, nullptr, nullptr, nullptr));
    EXPECT_EQ(no, blend_store_remote_remove(alone.get(), &ids[0], nullptr));
    EXPECT_EQ(no, blend_store_remote_measure(alone.get(), &speed, nullptr));
  }
  const Store a = open("a", "sesame", &code);
  ASSERT_EQ(BLEND_OK, code);
  EXPECT_EQ(BLEND_OK, blend_store_remote_check(a.get(), nullptr));
  blend_storage speed{};
  speed.struct_size = sizeof speed;
  speed.cost_per_gb_hour = 3;
  EXPECT_EQ(BLEND_E_NOT_FOUND, blend_store_remote_measure(a.get(), &speed, nullptr));
  EXPECT_EQ(BLEND_E_INVALID_ARGUMENT, blend_store_remote_measure(a.get(), nullptr, nullptr));
  EXPECT_EQ(BLEND_E_INVALID_ARGUMENT, blend_store_remote_remove(a.get(), nullptr, nullptr));
  blend_transfer_options some{};
  some.struct_size = sizeof some;
  some.ids = ids;
  EXPECT_EQ(BLEND_E_INVALID_ARGUMENT, blend_store_remote_push(a.get(), &some, nullptr, nullptr));
  some.n_ids = 1;
  uint64_t n = 0;
  EXPECT_EQ(BLEND_OK, blend_store_remote_push(a.get(), &some, &n, nullptr));
  EXPECT_EQ(1u, n);
  EXPECT_EQ(BLEND_OK, blend_store_remote_push(a.get(), nullptr, &n, nullptr));
  EXPECT_EQ(2u, n);
  EXPECT_EQ(BLEND_OK, blend_store_remote_measure(a.get(), &speed, nullptr));
  EXPECT_GT(speed.bytes_per_s, 0);
  EXPECT_GT(speed.latency_s, 0);
  EXPECT_EQ(3, speed.cost_per_gb_hour);

  const Store b = open("b", "sesame", &code);
  ASSERT_EQ(BLEND_OK, code);
  some.n_ids = 2;
  EXPECT_EQ(BLEND_OK, blend_store_remote_pull(b.get(), &some, &n, nullptr));
  EXPECT_EQ(2u, n);
  EXPECT_EQ(BLEND_OK, blend_store_remote_pull(b.get(), nullptr, &n, nullptr));
  EXPECT_EQ(1u, n);
  size_t told = 0;
  const auto count = [](void* user, const blend_chunk_id* id, const char* problem) -> int32_t {
    *static_cast<size_t*>(user) += id != nullptr && problem == nullptr ? 1 : 100;
    return 0;
  };
  EXPECT_EQ(BLEND_OK, blend_store_remote_verify(b.get(), nullptr, count, &told, nullptr));
  EXPECT_EQ(3u, told);
  const auto stop = [](void*, const blend_chunk_id*, const char*) -> int32_t { return 5; };
  EXPECT_EQ(BLEND_E_CALLBACK, blend_store_remote_verify(b.get(), nullptr, stop, nullptr, nullptr));
  EXPECT_EQ(BLEND_OK, blend_store_remote_remove(b.get(), &ids[0], nullptr));
  EXPECT_EQ(BLEND_E_NOT_FOUND, blend_store_remote_remove(b.get(), &ids[0], nullptr));
  EXPECT_EQ(BLEND_E_NOT_FOUND,
            blend_store_remote_verify(b.get(), &some, nullptr, nullptr, nullptr));
  server.kill9();
  EXPECT_EQ(BLEND_E_IO, blend_store_remote_check(b.get(), nullptr));
  EXPECT_EQ(BLEND_E_IO, blend_store_remote_pull(b.get(), nullptr, &n, nullptr));
}

// A server that is far away has none of a prompt's chunks: that costs one way there and back, or
// the time that the host allows, and the answer is what it is without a server.
TEST(Remote, AFuseAsksForAllItsChunksAtOnceAndSaysWhatCameTooLate) {
  SlowRedis server;
  TempDir dir;
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, write_random_model({}, dir.file("model.gguf")));
  SplitMix rng(5);
  Prompt prompt = {{BLEND_SEGMENT_PREFIX, random_tokens(rng, 320, 7), false}};
  for (int i = 0; i < 12; ++i) {
    prompt.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, 320, 9), false});
  }
  prompt.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, 320, 6), false});
  const std::string url = server.url();
  const auto open = [&](const char* name, const char* where, uint32_t fuse_ms) {
    blend_store_options options;
    blend_store_options_init(&options, sizeof options);
    blend_remote_options remote;
    blend_remote_options_init(&remote, sizeof remote);
    options.remote = &remote;
    remote.url = where;
    remote.timeout_ms = 60000;
    remote.fuse_ms = fuse_ms;
    blend_store* store = nullptr;
    EXPECT_EQ(BLEND_OK,
              blend_store_open(&store, ctx.get(), dir.file(name).c_str(), &options, nullptr));
    return Store(store);
  };
  const auto late = [](const Store& store) {
    blend_remote_stat stat{};
    stat.struct_size = sizeof stat;
    EXPECT_EQ(BLEND_OK, blend_store_get_remote_stat(store.get(), &stat, nullptr));
    return stat.late;
  };
  const FuseCase how{.ratio = 0.2, .on_miss = BLEND_MISS_COMPUTE};
  const std::vector<float> want = logits(fuse(model, open("alone", nullptr, 0), prompt, how));
  server.set_latency(std::chrono::milliseconds(200));
  {
    const Store store = open("patient", url.c_str(), 60000);
    const Fusion fusion = fuse(model, store, prompt, how);
    EXPECT_EQ(want, logits(fusion));
    EXPECT_EQ(13u, info(fusion).n_misses);
    EXPECT_EQ(0u, info(fusion).n_misses_late);
    EXPECT_LE(server.n_round_trips(), 4u);
    EXPECT_EQ(0u, late(store));
  }
  const Store store = open("hurried", url.c_str(), 1);
  const Fusion fusion = fuse(model, store, prompt, how);
  EXPECT_EQ(want, logits(fusion));
  EXPECT_EQ(13u, info(fusion).n_misses);
  EXPECT_GE(info(fusion).n_misses_late, 1u);
  EXPECT_EQ(late(store), info(fusion).n_misses_late);
}

}  // namespace
}  // namespace blend::test
