// EmbeddingGemma through the C ABI: the vectors of transformers, from a directory and from a GGUF
// (embedding/make_embedding.py), and what such a model does not do.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "conformance/expect.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kData = std::string(BLEND_TEST_SOURCE_DIR) + "/conformance/";
const std::string kGguf = kData + "embedding/embeddinggemma.gguf";

class EmbeddingGemma : public testing::Test {
 protected:
  EmbeddingGemma() {
    fs::copy(kData + "embedding/embeddinggemma", folder_, fs::copy_options::recursive);
    fs::copy(kData + "tokenizers/qwen2.tokenizer.json", folder_ + "/tokenizer.json");
    std::ifstream in(kData + "embedding/golden.json");
    for (const json& one : json::parse(in)) {
      texts_.push_back(one.at("tokens").get<std::vector<int32_t>>());
      wanted_.push_back(one.at("vector").get<std::vector<float>>());
    }
  }

  // The outcome of opening the folder after a change of one of its files.
  Outcome opened_with(const std::string& name, const std::function<void(json&)>& change) const {
    const std::string path = folder_ + "/" + name;
    std::ifstream in(path);
    const json kept = json::parse(in);
    json changed = kept;
    change(changed);
    std::ofstream(path) << changed.dump();
    const Outcome opened = try_open(ctx_, folder_);
    std::ofstream(path) << kept.dump();
    return opened;
  }

  TempDir dir_;
  const std::string folder_ = dir_.file("model");
  const Ctx ctx_ = make_ctx(2);
  std::vector<std::vector<int32_t>> texts_;
  std::vector<std::vector<float>> wanted_;
};

std::vector<float> embed(const Model& model, const std::vector<std::vector<int32_t>>& texts) {
  std::vector<int32_t> tokens;
  std::vector<size_t> counts;
  for (const auto& text : texts) {
    tokens.insert(tokens.end(), text.begin(), text.end());
    counts.push_back(text.size());
  }
  blend_model_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(blend_model_get_info(model.get(), &info, nullptr), BLEND_OK);
  std::vector<float> out(texts.size() * info.d_model);
  blend_error* error = nullptr;
  const int32_t code =
      blend_model_embed_tokens(model.get(), tokens.data(), counts.data(), counts.size(), nullptr,
                               out.data(), out.size(), &error);
  const Outcome said = outcome(code, error);
  EXPECT_EQ(said.code, BLEND_OK) << said.message;
  return out;
}

// Texts of one row up to more than a pass has, shorter and longer than the window; alone and all
// together.
TEST_F(EmbeddingGemma, VectorsAreThoseOfTransformers) {
  ASSERT_GE(texts_.size(), 7u);
  for (const std::string& path : {folder_, kGguf}) {
    SCOPED_TRACE(path);
    const Model model = open_model(ctx_, path);
    ASSERT_TRUE(model);
    const std::vector<float> together = embed(model, texts_);
    const size_t width = wanted_[0].size();
    for (size_t t = 0; t < texts_.size(); ++t) {
      const std::vector<float> alone = embed(model, {texts_[t]});
      for (size_t i = 0; i < width; ++i) {
        ASSERT_NEAR(alone[i], wanted_[t][i], 2e-5) << "text " << t;
        ASSERT_NEAR(together[t * width + i], wanted_[t][i], 2e-5) << "text " << t;
      }
    }
  }
}

TEST_F(EmbeddingGemma, BothFilesAreAskedForTheSame) {
  const Model a = open_model(ctx_, folder_), b = open_model(ctx_, kGguf);
  blend_model_info of_a{}, of_b{};
  of_a.struct_size = of_b.struct_size = sizeof of_a;
  ASSERT_EQ(blend_model_get_info(a.get(), &of_a, nullptr), BLEND_OK);
  ASSERT_EQ(blend_model_get_info(b.get(), &of_b, nullptr), BLEND_OK);
  EXPECT_STREQ(of_a.architecture, "gemma3_text");
  EXPECT_STREQ(of_b.architecture, "gemma-embedding");
  EXPECT_EQ(of_a.n_layers, of_b.n_layers);
}

// Whatever would reuse or generate rows says why it does not.
TEST_F(EmbeddingGemma, ItOnlyEmbeds) {
  const Model model = open_model(ctx_, kGguf);
  const Store store = open_store(ctx_, dir_.file("store"));
  const std::vector<int32_t>& tokens = texts_[4];
  const auto refused = [](const std::function<int32_t(blend_error**)>& call) {
    blend_error* error = nullptr;
    const int32_t code = call(&error);
    const Outcome said = outcome(code, error);
    EXPECT_EQ(said.code, BLEND_E_UNSUPPORTED);
    EXPECT_NE(said.message.find("only embeds"), std::string::npos) << said.message;
  };
  blend_segment segment{};
  segment.struct_size = sizeof segment;
  segment.kind = BLEND_SEGMENT_TEXT;
  segment.tokens = tokens.data();
  segment.n_tokens = tokens.size();
  blend_fusion* fusion = nullptr;
  refused([&](blend_error** e) {
    return blend_fuse(&fusion, model.get(), store.get(), &segment, 1, nullptr, e);
  });
  const char* const document = "a b";
  refused([&](blend_error** e) {
    return blend_fuse_texts(&fusion, model.get(), store.get(), &document, 1, "c", nullptr, e);
  });
  refused([&](blend_error** e) {
    return blend_precompute(model.get(), store.get(), tokens.data(), tokens.size(), nullptr,
                            nullptr, e);
  });
  blend_corpus_chunk chunk{};
  chunk.struct_size = sizeof chunk;
  chunk.tokens = tokens.data();
  chunk.n_tokens = tokens.size();
  refused([&](blend_error** e) {
    return blend_precompute_corpus(model.get(), store.get(), &chunk, 1, nullptr, e);
  });
  blend_layerwise* layerwise = nullptr;
  refused([&](blend_error** e) {
    return blend_layerwise_create(&layerwise, model.get(), store.get(), &segment, 1, nullptr, e);
  });
  blend_machine* machine = nullptr;
  refused([&](blend_error** e) {
    return blend_machine_open(&machine, model.get(), dir_.file("machine").c_str(), nullptr, e);
  });
  EXPECT_EQ(fusion, nullptr);
  EXPECT_EQ(layerwise, nullptr);
}

TEST_F(EmbeddingGemma, WhatFollowsPoolingIsKnownOrRefused) {
  const auto says = [&](int32_t code, const char* text, const std::string& name,
                        const std::function<void(json&)>& change) {
    const Outcome said = opened_with(name, change);
    EXPECT_EQ(said.code, code) << said.message;
    EXPECT_NE(said.message.find(text), std::string::npos) << said.message;
  };
  EXPECT_EQ(opened_with("modules.json", [](json&) {}).code, BLEND_OK);
  says(BLEND_E_UNSUPPORTED, "LayerNorm", "modules.json",
       [](json& m) { m[2]["type"] = "sentence_transformers.models.LayerNorm"; });
  says(BLEND_E_UNSUPPORTED, "../2_Dense", "modules.json",
       [](json& m) { m[2]["path"] = "../2_Dense"; });
  says(BLEND_E_UNSUPPORTED, "'..'", "modules.json", [](json& m) { m[2]["path"] = ".."; });
  says(BLEND_E_NOT_FOUND, "9_Dense", "modules.json", [](json& m) { m[2]["path"] = "9_Dense"; });
  says(BLEND_E_FORMAT, "takes 48 elements", "modules.json", [](json& m) { m.erase(2); });
  says(BLEND_E_UNSUPPORTED, "vectors of 48", "modules.json", [](json& m) { m.erase(3); });
  says(BLEND_E_FORMAT, "modules.json", "modules.json", [](json& m) { m = json::object(); });
  says(BLEND_E_UNSUPPORTED, "Tanh", "2_Dense/config.json",
       [](json& c) { c["activation_function"] = "torch.nn.modules.activation.Tanh"; });
  says(BLEND_E_UNSUPPORTED, "a bias", "2_Dense/config.json", [](json& c) { c["bias"] = true; });
  says(BLEND_E_UNSUPPORTED, "use_bidirectional_attention", "config.json",
       [](json& c) { c["model_type"] = "gemma2"; });
}

}  // namespace
}  // namespace blend::test
