// Embeddings against a float64 prefill and loops, alone and with others.
#include "engine/embed.h"

#include <cmath>

#include "support/engine_fixture.h"
#include "support/reference.h"

namespace blend {
namespace {

using Texts = std::vector<std::vector<int32_t>>;

// [d_model], by the definition.
std::vector<double> pooled(const std::vector<std::vector<double>>& hidden, Pooling pooling,
                           size_t width, bool normalize) {
  std::vector<double> out(width, 0.0);
  const double n = static_cast<double>(hidden.size());
  for (size_t i = 0; i < width; ++i) {
    if (pooling == Pooling::first) out[i] = hidden.front()[i];
    if (pooling == Pooling::last) out[i] = hidden.back()[i];
    if (pooling == Pooling::mean) {
      for (const auto& row : hidden) out[i] += row[i] / n;
    }
  }
  double length = 0;
  for (const double v : out) length += v * v;
  for (double& v : out) v /= normalize ? std::sqrt(length) : 1.0;
  return out;
}

class EmbedTest : public test::EngineTest {
 protected:
  static NextTokens of(const Texts& texts) {
    return [&texts](size_t i) -> Result<std::vector<int32_t>> { return texts[i]; };
  }
  static std::vector<float> embed(const Model& model, const Texts& texts,
                                  const EmbedOptions& options = {}) {
    auto width = embedding_width(model, options);
    EXPECT_TRUE(width.is_ok()) << width.status().message();
    std::vector<float> out(texts.size() * *width);
    const Status status = embed_texts(model, texts.size(), of(texts), options, out.data(), {});
    EXPECT_TRUE(status.is_ok()) << status.message();
    return out;
  }
  // Texts that fill several passes, among them one of more rows than a pass has.
  Texts many() const {
    Texts texts;
    for (size_t i = 0; i < 70; ++i) texts.push_back(tokens(1 + i * 7 % 30, i));
    texts.insert(texts.begin() + 40, tokens(513, 99));
    return texts;
  }
};

TEST_F(EmbedTest, ArePooledHiddenStatesOfAFullPrefill) {
  for (const test::RandomFamily& family : test::random_families()) {
    const auto model = load(family.spec);
    ASSERT_NE(model, nullptr) << family.name;
    model_ = model;
    const test::ReferenceModel reference(dir_.file("model.gguf"));
    const Texts texts = {tokens(23, 1), tokens(1, 2), tokens(40, 3)};
    const uint32_t d = model->config().d_model;
    for (const EmbedOptions& options :
         {EmbedOptions{Pooling::mean}, EmbedOptions{Pooling::last, 0, false},
          EmbedOptions{Pooling::first, d / 3}}) {
      const std::vector<float> got = embed(*model, texts, options);
      const size_t width = got.size() / texts.size();
      for (size_t t = 0; t < texts.size(); ++t) {
        const std::vector<double> want =
            pooled(reference.prefill(texts[t]).hidden, options.pooling, width, options.normalize);
        for (size_t i = 0; i < width; ++i) {
          // Rounding sends a row of a mixture to another expert, once in a while.
          const double most = family.spec.n_experts == 0 ? 2e-3 : 2e-2;
          ASSERT_NEAR(got[t * width + i], want[i], most) << family.name << ", text " << t;
        }
      }
    }
  }
}

// Packed weights promise the bits; others are multiplied in another order where a pass has few
// rows.
TEST_F(EmbedTest, AreTheSameWhateverTheyAreComputedWith) {
  test::RandomModelSpec spec;
  spec.context = 600;
  spec.d_model = 64;
  for (const WeightForm form : {WeightForm::packed, WeightForm::mapped, WeightForm::int8}) {
    for (const bool quantized : {false, true}) {
      spec.blocks =
          quantized ? std::vector{BlockType::q4_0, BlockType::q8_0} : std::vector<BlockType>{};
      model_ = load(spec, 2, {.weights = form});
      ASSERT_NE(model_, nullptr);
      const Texts texts = many();
      const std::vector<float> together = embed(*model_, texts, {Pooling::mean});
      const size_t width = together.size() / texts.size();
      for (size_t t = 0; t < texts.size(); ++t) {
        const std::vector<float> alone = embed(*model_, {texts[t]}, {Pooling::mean});
        for (size_t i = 0; i < width; ++i) {
          ASSERT_NEAR(alone[i], together[t * width + i], form == WeightForm::packed ? 0 : 1e-5)
              << "text " << t << " of " << texts[t].size() << " rows, form "
              << static_cast<int>(form);
        }
      }
    }
  }
}

TEST_F(EmbedTest, TakeThePoolingOfTheFile) {
  const auto with = [&](const char* architecture, int type) {
    test::RandomModelSpec spec;
    spec.architecture = architecture;
    test::GgufWriter w = random_model(spec);
    if (type >= 0) w.u32(std::string(architecture) + ".pooling_type", static_cast<uint32_t>(type));
    auto runtime = Runtime::create(1, {}, BackendSpec{});
    return *Model::load(*runtime, w.write(dir_.file("pooled.gguf")), {}, {});
  };
  const Texts texts = {tokens(9, 1)};
  for (const auto& [type, way] :
       {std::pair(-1, Pooling::mean), std::pair(0, Pooling::mean), std::pair(1, Pooling::mean),
        std::pair(2, Pooling::first), std::pair(3, Pooling::last)}) {
    const auto model = with("qwen3", type);
    EXPECT_EQ(embed(*model, texts), embed(*model, texts, {way})) << type;
  }
  const auto ranks = with("llama", 4);
  EXPECT_EQ(embedding_width(*ranks, {}).status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_EQ(*embedding_width(*ranks, {Pooling::last}), ranks->config().d_model);
}

TEST_F(EmbedTest, EndWhenTheyAreAskedTo) {
  const Texts texts = many();
  std::vector<float> out(texts.size() * model_->config().d_model);
  const auto run = [&](const Watch& watch) {
    return embed_texts(*model_, texts.size(), of(texts), {}, out.data(), watch).code();
  };
  EXPECT_EQ(run({nullptr, [](uint64_t, uint64_t) { return 7; }}), BLEND_E_CALLBACK);
  uint64_t last = 0;
  const Watch counting{nullptr, [&](uint64_t done, uint64_t total) {
                         EXPECT_LE(last, done);
                         EXPECT_EQ(total, texts.size());
                         last = done;
                         return 0;
                       }};
  EXPECT_EQ(run(counting), BLEND_OK);
  EXPECT_EQ(last, texts.size());
  CancelToken token;
  token.request();
  EXPECT_EQ(run({&token, {}}), BLEND_E_CANCELLED);
  EXPECT_TRUE(embed_texts(*model_, 0, of(texts), {}, nullptr, {}).is_ok()) << "no text";
}

TEST_F(EmbedTest, SayWhatIsWrong) {
  const uint32_t d = model_->config().d_model;
  EXPECT_EQ(embedding_width(*model_, {Pooling::unsaid, d + 1}).status().code(),
            BLEND_E_INVALID_ARGUMENT);
  const Texts texts = {tokens(3, 1), tokens(3, 2)};
  std::vector<float> out(2 * size_t{d});
  const NextTokens fails = [&](size_t i) -> Result<std::vector<int32_t>> {
    if (i == 1) return make_error(BLEND_E_CONTEXT_LENGTH, "text 1");
    return texts[i];
  };
  EXPECT_EQ(embed_texts(*model_, 2, fails, {}, out.data(), {}).code(), BLEND_E_CONTEXT_LENGTH);
}

}  // namespace
}  // namespace blend
