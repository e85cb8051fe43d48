// Runs the C functions of fixture.h, each as one test in a directory of its own, and the tests of
// hostile model files, which need the writer of GGUF files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>

#include "capi/fixture.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

extern "C" void capi_fail(const char* file, int line, const char* format, ...) {
  char message[2048];
  va_list args;
  va_start(args, format);
  std::vsnprintf(message, sizeof message, format, args);
  va_end(args);
  ADD_FAILURE_AT(file, line) << message;
}

namespace blend::test {
namespace {

// One-hot embeddings through layers that add nothing: the output matrix alone says what follows.
GgufWriter chain_model() {
  RandomModelSpec spec;
  spec.n_layers = 1;
  spec.n_vocab = CHAIN_N_VOCAB;
  spec.d_model = CHAIN_N_VOCAB;
  spec.context = 64;
  GgufWriter w = random_model(spec);
  const uint64_t n = CHAIN_N_VOCAB;
  const auto square = [&](auto&& column_of) {  // [n, n] with a one in column_of(row)
    std::string data(n * n * sizeof(float), '\0');
    for (uint64_t row = 0; row < n; ++row) {
      const float one = 1;
      const auto column = static_cast<uint64_t>(column_of(static_cast<int32_t>(row)));
      std::memcpy(&data[(row * n + column) * sizeof one], &one, sizeof one);
    }
    return data;
  };
  std::string forward(n * n * sizeof(float), '\0');  // row chain_next(t) has its one at t
  for (uint64_t t = 0; t < n; ++t) {
    const float one = 1;
    const auto row = static_cast<uint64_t>(chain_next(static_cast<int32_t>(t)));
    std::memcpy(&forward[(row * n + t) * sizeof one], &one, sizeof one);
  }
  w.tensor("token_embd.weight", kGgmlF32, {n, n}, square([](int32_t t) { return t; }));
  w.tensor("output.weight", kGgmlF32, {n, n}, forward);
  const uint64_t q_dim = uint64_t{spec.n_heads} * spec.head_dim;
  w.tensor("blk.0.attn_output.weight", kGgmlF32, {q_dim, n},
           std::string(q_dim * n * sizeof(float), '\0'));
  w.tensor("blk.0.ffn_down.weight", kGgmlF32, {spec.d_ff, n},
           std::string(spec.d_ff * n * sizeof(float), '\0'));
  return w;
}

class CApi : public testing::Test {
 protected:
  CApi() {
    RandomModelSpec spec;
    model_ = write_random_model(spec, dir_.file("model.gguf"));
    spec.seed = 2;
    other_ = write_random_model(spec, dir_.file("other.gguf"));
    chain_ = chain_model().write(dir_.file("chain.gguf"));
    fixture_ = {dir_.path().c_str(), model_.c_str(), other_.c_str(), chain_.c_str(), "", ""};
  }

  // The code of opening `path`; the handle is closed again.
  static int32_t open_code(const blend_ctx* ctx, const std::string& path, std::string* message,
                           uint32_t weights = BLEND_WEIGHTS_AUTO) {
    blend_model* model = nullptr;
    blend_error* error = nullptr;
    blend_model_options options{};
    options.struct_size = sizeof options;
    options.weights = weights;
    const int32_t code = blend_model_open(&model, ctx, path.c_str(), &options, &error);
    EXPECT_EQ(code >= 0, error == nullptr);
    EXPECT_EQ(code >= 0, model != nullptr);
    *message = blend_error_message(error);
    blend_error_free(error);
    blend_model_close(model);
    return code;
  }

  TempDir dir_;
  std::string model_, other_, chain_;
  fixture fixture_{};
};

// Needs chat templates or grammars, and this build has none (BLEND_CHAT, BLEND_GRAMMAR).
bool is_left_out(std::string_view name) {
  if (name.starts_with("grammar_")) return !BLEND_TEST_GRAMMAR;
  if (BLEND_TEST_CHAT || name == "texts_without_a_template") return false;
  return name.starts_with("chat_") || name.starts_with("texts_");
}

#define RUN_C_TEST(name)                                                   \
  TEST_F(CApi, name) {                                                     \
    if (is_left_out(#name)) GTEST_SKIP() << "this build has no such part"; \
    ::name(&fixture_);                                                     \
  }
CAPI_TESTS(RUN_C_TEST)

class CApiSignals : public CApi {
 protected:
  CApiSignals() {
    RandomModelSpec spec;
    spec.n_layers = 3;
    spec.d_model = 256;
    spec.head_dim = 32;
    spec.d_ff = 768;
    wide_ = write_random_model(spec, dir_.file("wide.gguf"));
    spec.blocks = {BlockType::q4_k, BlockType::q8_0, BlockType::q6_k};
    quantized_ = write_random_model(spec, dir_.file("quantized.gguf"));
    fixture_.wide_model = wide_.c_str();
    fixture_.quantized_model = quantized_.c_str();
  }

  std::string wide_, quantized_;
};

#define RUN_C_SIGNAL_TEST(name) \
  TEST_F(CApiSignals, name) { ::name(&fixture_); }
CAPI_SIGNAL_TESTS(RUN_C_SIGNAL_TEST)

TEST_F(CApi, model_cut_anywhere) {
  blend_ctx* ctx = open_ctx();
  RandomModelSpec spec;
  spec.n_layers = 2;
  const std::string bytes = random_model(spec).bytes();
  std::string message;
  for (int i = 0; i < 120; ++i) {
    // Densely through the header's start, then over the whole file, its last bytes included.
    const size_t n = i < 40 ? static_cast<size_t>(i) * 3
                            : bytes.size() - 1 - static_cast<size_t>(i - 40) * (bytes.size() / 81);
    const std::string path = dir_.file("cut.gguf");
    write_file(path, bytes.substr(0, n));
    EXPECT_EQ(open_code(ctx, path, &message), BLEND_E_FORMAT) << n << " bytes: " << message;
    EXPECT_GT(message.size(), 10u);
  }
  blend_ctx_close(ctx);
}

TEST_F(CApi, model_with_flipped_header_bytes) {
  blend_ctx* ctx = open_ctx();
  RandomModelSpec spec;
  spec.n_layers = 1;
  const GgufWriter writer = random_model(spec);
  const std::string bytes = writer.bytes();
  const size_t header = writer.header().size();
  SplitMix rng(5);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string broken = bytes;
    // The first kilobyte holds the counts and sizes: half of the flips go there.
    const size_t at = rng.below(i % 2 == 0 ? std::min<size_t>(header, 1024) : header);
    broken[at] = static_cast<char>(rng.below(4) == 0 ? 0xff : rng.next());
    const std::string path = dir_.file("flipped.gguf");
    write_file(path, broken);
    std::string message;
    const int32_t code = open_code(ctx, path, &message);
    refused += code < 0 ? 1 : 0;
    EXPECT_NE(code, BLEND_E_INTERNAL) << "byte " << at << ": " << message;
  }
  EXPECT_GT(refused, 50);
  blend_ctx_close(ctx);
}

TEST_F(CApi, model_that_is_something_else) {
  blend_ctx* ctx = open_ctx();
  std::string message;
  write_file(dir_.file("empty"), "");
  EXPECT_EQ(open_code(ctx, dir_.file("empty"), &message), BLEND_E_FORMAT);
  write_file(dir_.file("text"), std::string(5000, 'x'));
  EXPECT_EQ(open_code(ctx, dir_.file("text"), &message), BLEND_E_FORMAT);
  EXPECT_LT(open_code(ctx, dir_.path(), &message), 0);
  write_file(dir_.file("arch"), random_model({}).string("general.architecture", "gptj").bytes());
  EXPECT_EQ(open_code(ctx, dir_.file("arch"), &message), BLEND_E_UNSUPPORTED);
  EXPECT_NE(message.find("gptj"), std::string::npos) << message;
  blend_ctx_close(ctx);
}

TEST_F(CApi, model_with_nan_or_infinity_in_its_weights) {
  blend_ctx* ctx = open_ctx();
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    // Where there is no output.weight, the embedding is two of the model's weights.
    const std::pair<const char*, bool> places[] = {
        {"token_embd.weight", false},    {"token_embd.weight", true},
        {"blk.2.attn_k.weight", false},  {"blk.3.ffn_norm.weight", false},
        {"blk.0.ffn_down.weight", true}, {"output.weight", false}};
    for (const auto& [name, tied] : places) {
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        RandomModelSpec spec;
        spec.dtype = dtype;
        spec.tied = tied;
        const bool norm = std::string(name).find("norm") != std::string::npos;
        const uint64_t rows = std::string(name) == "blk.2.attn_k.weight"     ? 32
                              : std::string(name) == "blk.0.ffn_down.weight" ? 64
                                                                             : 320;
        const uint64_t cols = std::string(name) == "blk.0.ffn_down.weight" ? 160 : 64;
        const uint64_t n = norm ? 64 : rows * cols;
        const DType stored = norm ? DType::f32 : dtype;
        std::string data(n * static_cast<uint64_t>(dtype_size(stored)), '\0');
        const uint16_t half = stored == DType::f16 ? f32_to_f16(bad) : f32_to_bf16(bad);
        if (stored == DType::f32) {
          std::memcpy(&data[data.size() - 4], &bad, 4);  // the last element
        } else {
          std::memcpy(&data[data.size() - 2], &half, 2);
        }
        const uint32_t type = stored == DType::f32   ? kGgmlF32
                              : stored == DType::f16 ? kGgmlF16
                                                     : kGgmlBF16;
        GgufWriter w = random_model(spec);
        w.tensor(name, type, norm ? std::vector<uint64_t>{64} : std::vector<uint64_t>{cols, rows},
                 data);
        const std::string path = w.write(dir_.file("nan.gguf"));
        for (const uint32_t weights :
             {BLEND_WEIGHTS_PACKED, BLEND_WEIGHTS_MAPPED, BLEND_WEIGHTS_INT8}) {
          std::string message;
          EXPECT_EQ(open_code(ctx, path, &message, weights), BLEND_E_NUMERIC)
              << name << (tied ? ", tied: " : ": ") << message;
          EXPECT_NE(message.find(name), std::string::npos) << message;
        }
      }
    }
  }
  blend_ctx_close(ctx);
}

// V past the largest f16: a store of that type must refuse it rather than keep an infinity.
TEST_F(CApi, values_past_the_stores_type) {
  RandomModelSpec spec;
  GgufWriter w = random_model(spec);
  std::string data(32 * 64 * sizeof(float), '\0');
  SplitMix rng(3);
  for (size_t i = 0; i < 32 * 64; ++i) {
    const auto huge = static_cast<float>(1e6 * rng.normal());
    std::memcpy(&data[i * 4], &huge, 4);
  }
  w.tensor("blk.1.attn_v.weight", kGgmlF32, {64, 32}, data);
  blend_ctx* ctx = open_ctx();
  blend_model* model = open_model(ctx, w.write(dir_.file("huge.gguf")).c_str());
  ASSERT_NE(model, nullptr);
  const int32_t tokens[] = {5, 6, 7, 8};
  for (const uint32_t kv : {BLEND_DTYPE_F16, BLEND_DTYPE_F32}) {
    blend_store_options options;
    ASSERT_EQ(blend_store_options_init(&options, sizeof options), BLEND_OK);
    options.kv_dtype = kv;
    options.quota_bytes = 16u << 20;
    blend_store* store = nullptr;
    const std::string path = dir_.file("store" + std::to_string(kv));
    ASSERT_EQ(blend_store_open(&store, ctx, path.c_str(), &options, nullptr), BLEND_OK);
    blend_error* error = nullptr;
    const int32_t code = blend_precompute(model, store, tokens, 4, nullptr, nullptr, &error);
    EXPECT_EQ(code, kv == BLEND_DTYPE_F16 ? BLEND_E_NUMERIC : BLEND_OK)
        << blend_error_message(error);
    blend_error_free(error);
    blend_store_close(store);
  }
  blend_model_close(model);
  blend_ctx_close(ctx);
}

// Finite weights whose products are not: an error, never NaN logits.
TEST_F(CApi, activations_that_overflow) {
  RandomModelSpec spec;
  GgufWriter w = random_model(spec);
  std::string data(64 * 160 * sizeof(float), '\0');
  for (size_t i = 0; i < 64 * 160; ++i) {
    const float huge = i % 2 == 0 ? 3e38f : -3e38f;
    std::memcpy(&data[i * 4], &huge, 4);
  }
  w.tensor("blk.1.ffn_down.weight", kGgmlF32, {160, 64}, data);
  blend_ctx* ctx = open_ctx();
  blend_model* model = open_model(ctx, w.write(dir_.file("overflow.gguf")).c_str());
  ASSERT_NE(model, nullptr);
  const int32_t tokens[] = {5, 6, 7, 8};
  const blend_segment s = segment(BLEND_SEGMENT_QUESTION, tokens, 4);
  blend_fuse_options o = fuse_options();
  o.policy = BLEND_POLICY_FULL;
  blend_fusion* fusion = nullptr;
  blend_error* error = nullptr;
  EXPECT_EQ(blend_fuse(&fusion, model, nullptr, &s, 1, &o, &error), BLEND_E_NUMERIC)
      << blend_error_message(error);
  EXPECT_EQ(fusion, nullptr);
  blend_error_free(error);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

}  // namespace
}  // namespace blend::test
