// Damaged model files: every truncation and thousands of random changes must end in an error or in
// a source that is safe to read from end to end. Meant to run under the address sanitizer.
#include <gtest/gtest.h>

#include <cstring>

#include "model/llama_source.h"
#include "support/random_model.h"

namespace blend {
namespace {

using test::SplitMix;

test::GgufWriter sample() {
  test::RandomModelSpec s;
  s.n_layers = 1;
  s.d_model = 8;
  s.n_heads = 2;
  s.n_kv_heads = 1;
  s.head_dim = 4;
  s.d_ff = 8;
  s.n_vocab = 300;
  s.rope_freq_factors = true;
  s.dtype = DType::f16;
  test::GgufWriter w = test::random_model(s);
  // Value types that a plain file does not have.
  const std::string inner = test::gguf_bytes(0u) + test::gguf_bytes(uint64_t{2}) + "ab";
  w.value("x.nested", 9, test::gguf_bytes(9u) + test::gguf_bytes(uint64_t{2}) + inner + inner);
  w.boolean("tokenizer.ggml.add_space_prefix", true).u64("x.u64", 1);
  return w;
}

struct Tally {
  int opened = 0;
  int refused = 0;
};

// The bytes in a heap block of exactly their size.
void try_open(const std::string& bytes, Tally& tally) {
  auto copy = std::make_shared<const std::vector<char>>(bytes.begin(), bytes.end());
  const auto opened = open_llama_gguf(std::as_bytes(std::span(*copy)), copy);
  if (!opened.is_ok()) {
    ++tally.refused;
    const int32_t code = opened.status().code();
    EXPECT_TRUE(code == BLEND_E_FORMAT || code == BLEND_E_UNSUPPORTED) << opened.status().message();
    EXPECT_FALSE(opened.status().message().empty());
    return;
  }
  ++tally.opened;
  const ModelSource& source = *opened.value();
  const ModelConfig& c = source.config();
  ASSERT_GT(c.n_layers, 0u);
  ASSERT_EQ(c.n_heads % c.n_kv_heads, 0u);
  ASSERT_LE(c.rope.rotary_dim, c.head_dim);
  unsigned sum = 0;
  const auto read = [&](TensorRole role, uint32_t layer) {
    const TensorView& t = source.tensor(role, layer);
    for (size_t i = 0; i < t.bytes(); ++i) sum += static_cast<unsigned>(t.data[i]);
  };
  read(TensorRole::embedding, 0);
  read(TensorRole::output_norm, 0);
  read(TensorRole::output, 0);
  for (uint32_t l = 0; l < c.n_layers; ++l) {
    for (auto r = static_cast<int>(TensorRole::attn_norm);
         r <= static_cast<int>(TensorRole::ffn_down); ++r) {
      read(static_cast<TensorRole>(r), l);
    }
  }
  EXPECT_TRUE(source.fingerprint({}, {}).is_ok());
  const Tokenizer& t = source.tokenizer();
  ASSERT_EQ(t.n_vocab(), c.n_vocab);
  const auto ids = t.encode("the <s>story\xff  \xe2\x82\xac", 7u);
  ASSERT_TRUE(ids.is_ok());
  EXPECT_TRUE(t.decode(ids.value(), 0).is_ok());
  for (uint32_t i = 0; i < t.n_vocab(); ++i)
    sum += static_cast<unsigned>(t.piece(static_cast<int32_t>(i), 2).size());
  volatile unsigned keep = sum;
  (void)keep;
}

TEST(ModelMutation, EveryTruncation) {
  const test::GgufWriter w = sample();
  const std::string bytes = w.bytes();
  Tally tally;
  for (size_t n = 0; n <= w.header().size() + 64; ++n) try_open(bytes.substr(0, n), tally);
  EXPECT_EQ(tally.opened, 0);
  for (size_t n = w.header().size(); n < bytes.size(); n += 37) try_open(bytes.substr(0, n), tally);
  EXPECT_EQ(tally.opened, 0);
  try_open(bytes, tally);
  EXPECT_EQ(tally.opened, 1) << "the undamaged file opens";
}

TEST(ModelMutation, RandomChanges) {
  const test::GgufWriter w = sample();
  const std::string bytes = w.bytes();
  const size_t header = w.header().size();
  // Where the keys and the tensor table are, rather than the vocabulary in between.
  const size_t tokens = bytes.find("tokenizer.ggml.tokens");
  const size_t table = bytes.find("token_embd.weight");
  SplitMix rng(21);
  Tally tally;
  for (int i = 0; i < 8000; ++i) {
    std::string changed = bytes;
    for (uint64_t n = 1 + rng.below(3); n > 0; --n) {
      const uint64_t region = rng.below(4);
      const size_t at = region == 0   ? rng.below(tokens)
                        : region == 1 ? table + rng.below(header - table)
                        : region == 2 ? rng.below(header)
                                      : rng.below(changed.size());
      switch (rng.below(4)) {
        case 0:
          changed[at] = static_cast<char>(changed[at] ^ 1 << rng.below(8));
          break;
        case 1:
          changed[at] = static_cast<char>(rng.next());
          break;
        case 2: {  // a number at an edge, over 4 or 8 bytes
          static const uint64_t kEdges[] = {0,          1,           2,           ~uint64_t{0},
                                            1ull << 31, 1ull << 32,  1ull << 61,  1ull << 63,
                                            0x7fffffff, 0xffffffffu, 0x100000001, 255};
          const std::string edge = test::gguf_bytes(kEdges[rng.below(std::size(kEdges))]);
          const size_t width = rng.below(2) == 0 ? 4 : 8;
          if (at + width <= changed.size()) changed.replace(at, width, edge.substr(0, width));
          break;
        }
        default:  // a stretch from elsewhere
          const size_t size = std::min<size_t>(1 + rng.below(16), changed.size() - at);
          changed.replace(at, size, bytes.substr(rng.below(header - 16), size));
          break;
      }
    }
    try_open(changed, tally);
    if (HasFailure()) return;
  }
  // Both happen, so neither branch of the test sleeps.
  EXPECT_GT(tally.opened, 500);
  EXPECT_GT(tally.refused, 500);
}

}  // namespace
}  // namespace blend
