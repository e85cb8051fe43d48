#include "model/fingerprint.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "model/llama_source.h"
#include "support/random_model.h"

namespace blend {
namespace {

using test::GgufWriter;
using test::random_model;
using test::RandomModelSpec;

RandomModelSpec small() {
  RandomModelSpec s;
  s.n_layers = 1;
  s.d_model = 16;
  s.n_heads = 2;
  s.n_kv_heads = 1;
  s.d_ff = 24;
  s.n_vocab = 300;
  s.rope_freq_factors = true;
  return s;
}

std::unique_ptr<ModelSource> open_bytes(const std::string& bytes) {
  auto copy = std::make_shared<const std::string>(bytes);
  auto source = open_llama_gguf(std::as_bytes(std::span(*copy)), copy);
  EXPECT_TRUE(source.is_ok()) << source.status().message();
  return source.is_ok() ? std::move(source.value()) : nullptr;
}

std::string fingerprint(const GgufWriter& w) {
  const auto source = open_bytes(w.bytes());
  if (source == nullptr) return "";
  auto digest = source->fingerprint({}, {});
  EXPECT_TRUE(digest.is_ok());
  return to_hex(*digest);
}

// Runs the tasks on threads of its own, last first.
void backwards_on_threads(size_t n, const std::function<void(size_t)>& task) {
  std::vector<std::thread> threads;
  for (size_t i = n; i-- > 0;) threads.emplace_back([&task, i] { task(i); });
  for (std::thread& t : threads) t.join();
}

// No tensor has another shape by them.
TEST(Fingerprint, ThatOfAGemma3nHasItsGateCuts) {
  const RandomModelSpec s = test::random_family("gemma3n");
  const std::string key = "gemma3n.activation_sparsity_scale";
  std::set<std::string> digests = {fingerprint(random_model(s))};
  for (const float cut : {-1.0f, 0.5f}) {
    digests.insert(fingerprint(random_model(s).f32s(key, std::vector(s.n_layers, cut))));
  }
  EXPECT_EQ(digests.size(), 3u);
}

TEST(Fingerprint, SameFileSameDigest) {
  const std::string one = fingerprint(random_model(small()));
  EXPECT_EQ(one.size(), 64u);
  EXPECT_EQ(one, fingerprint(random_model(small())));
  // Offsets in the file, the model's name and its context are not part of the fingerprint.
  GgufWriter moved = random_model(small());
  moved.string("general.name", "another").u32("llama.context_length", 100).alignment(64);
  EXPECT_EQ(one, fingerprint(moved));
}

TEST(Fingerprint, EveryPartCounts) {
  const GgufWriter base = random_model(small());
  std::set<std::string> seen = {fingerprint(base)};
  const auto expect_new = [&](const GgufWriter& w, const std::string& what) {
    EXPECT_TRUE(seen.insert(fingerprint(w)).second) << what;
  };
  expect_new(GgufWriter(base).f32("llama.rope.freq_base", 20000), "theta");
  expect_new(GgufWriter(base).f32("llama.attention.layer_norm_rms_epsilon", 1e-6f), "epsilon");
  expect_new(GgufWriter(base).f32("llama.rope.scaling.factor", 2), "linear scale");
  expect_new(GgufWriter(base).erase_tensor("rope_freqs.weight"), "frequency factors");
  expect_new(
      GgufWriter(base).u32("llama.rope.dimension_count", 4).erase_tensor("rope_freqs.weight"),
      "rotary dim");
  expect_new(GgufWriter(base).erase_tensor("output.weight"), "tied");
  expect_new(GgufWriter(base).u32("tokenizer.ggml.bos_token_id", 5), "BOS");
  expect_new(GgufWriter(base).u32("tokenizer.ggml.eos_token_id", 5), "EOS");
  expect_new(GgufWriter(base).u32("tokenizer.ggml.unknown_token_id", 5), "unknown");
  expect_new(GgufWriter(base).u32("tokenizer.ggml.eot_token_id", 5), "end of turn");
  expect_new(GgufWriter(base).boolean("tokenizer.ggml.add_bos_token", false), "add BOS");
  expect_new(GgufWriter(base).boolean("tokenizer.ggml.add_space_prefix", false), "space prefix");
  test::RandomVocab v = test::random_vocab(300);
  v.tokens[280] += "x";
  expect_new(GgufWriter(base).strings("tokenizer.ggml.tokens", v.tokens), "a token");
  v.scores[280] += 0.5f;
  expect_new(GgufWriter(base).f32s("tokenizer.ggml.scores", v.scores), "a score");
  v.types[280] = 4;
  expect_new(GgufWriter(base).i32s("tokenizer.ggml.token_type", v.types), "a token's type");
  RandomModelSpec other = small();
  other.dtype = DType::bf16;
  expect_new(random_model(other), "dtype");
}

TEST(Fingerprint, EveryTensorByteCounts) {
  const GgufWriter base = random_model(small());
  const std::string bytes = base.bytes();
  const std::string digest = fingerprint(base);
  const auto source = open_bytes(bytes);
  const size_t data = base.header().size();
  test::SplitMix rng(3);
  int changed = 0;
  for (int i = 0; i < 200; ++i) {
    std::string other = bytes;
    const size_t at = data + rng.below(bytes.size() - data);
    other[at] = static_cast<char>(other[at] ^ 1);
    const auto flipped = open_bytes(other);
    ASSERT_NE(flipped, nullptr);
    changed += to_hex(*flipped->fingerprint({}, {})) != digest;
  }
  EXPECT_GT(changed, 190) << "all but padding";
}

// Several blocks a tensor, of different sizes, on threads in any order.
TEST(Fingerprint, DoesNotDependOnThreads) {
  std::vector<std::byte> data(3 * kFingerprintBlock + 12);
  test::SplitMix rng(1);
  for (size_t i = 0; i < data.size(); i += 8) {
    data[i] = static_cast<std::byte>(rng.next());
  }
  std::vector<TensorView> tensors(2);
  tensors[0] = {"a", DType::f32, {static_cast<int64_t>(data.size() / 4)}, data.data()};
  tensors[1] = {"b", DType::f16, {3, 5}, data.data() + 1};
  std::vector<uint64_t> reports;
  Watch watch;
  watch.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, data.size() + 30);
    reports.push_back(done);
    return 0;
  };
  const auto digest = [&](const ModelSource::ParallelRun& parallel, const Watch& w) {
    Sha256Hasher hasher;
    EXPECT_TRUE(hash_tensors(tensors, parallel, w, hasher).is_ok());
    return to_hex(hasher.finish());
  };
  const std::string serial = digest({}, watch);
  EXPECT_EQ(reports.front(), 0u);
  EXPECT_EQ(reports.back(), data.size() + 30);
  EXPECT_EQ(digest(backwards_on_threads, {}), serial);
  // Any block counts, the last one's last byte too.
  for (const size_t at : {size_t{0}, kFingerprintBlock - 1, kFingerprintBlock, data.size() - 1}) {
    data[at] ^= std::byte{1};
    EXPECT_NE(digest({}, {}), serial) << at;
    data[at] ^= std::byte{1};
  }
  tensors[1].shape = {5, 3};
  EXPECT_NE(digest({}, {}), serial);
}

TEST(Fingerprint, StopsWhenAsked) {
  const auto source = open_bytes(random_model(small()).bytes());
  ASSERT_NE(source, nullptr);
  CancelToken cancel;
  cancel.request();
  Watch watch;
  watch.cancel = &cancel;
  EXPECT_EQ(source->fingerprint({}, watch).status().code(), BLEND_E_CANCELLED);
  Watch callback;
  callback.progress = [](uint64_t, uint64_t) { return 42; };
  const auto stopped = source->fingerprint({}, callback);
  EXPECT_EQ(stopped.status().code(), BLEND_E_CALLBACK);
  EXPECT_EQ(stopped.status().detail(), 42);
}

}  // namespace
}  // namespace blend
