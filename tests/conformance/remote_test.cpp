// Two hosts, each a process with a store of its own, and one cluster: what one prefilled the other
// fuses, with the same logits to the bit.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/redis_server.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

Store open_shared(const Ctx& ctx, const std::string& path, const std::string& url, uint32_t codec) {
  blend_store_options options;
  blend_store_options_init(&options, sizeof options);
  options.kv_dtype = BLEND_DTYPE_F16;
  options.codec = codec;
  options.remote = url.c_str();
  options.remote_timeout_ms = 10000;  // nothing fails here
  options.remote_segment_bytes = 65536;
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
       {BLEND_CODEC_NONE, BLEND_CODEC_ZSTD, BLEND_CODEC_INT8, BLEND_CODEC_INT4}) {
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
        same = same && logits(fuse(model, store, some_prompt(), how)) == want;
        blend_store_flush(store.get(), nullptr);
      }
      blend_store_stat stat{};
      stat.struct_size = sizeof stat;
      blend_store_get_stat(store.get(), &stat, nullptr);
      _exit(same && stat.remote_hits == 3 && stat.n_chunks == 3 && stat.remote_errors == 0 ? 0 : 1);
    }
    ASSERT_EQ(second, waitpid(second, &status, 0));
    EXPECT_EQ(0, status);
  }
}

}  // namespace
}  // namespace blend::test
