// What files say about embeddings: pooling, the tokens after a text, and models that were saved
// without an output.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/model_source.h"
#include "support/hf_writer.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

std::unique_ptr<ModelSource> must_open(const std::string& path) {
  auto source = open_model_source(path);
  EXPECT_TRUE(source.is_ok()) << source.status().message();
  return source.is_ok() ? std::move(*source) : nullptr;
}

Ids closing_of(const std::string& path) {
  const auto source = must_open(path);
  if (source == nullptr) return {};
  const std::span<const int32_t> closing = source->tokenizer().closing();
  return {closing.begin(), closing.end()};
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
void change(const std::string& path, const std::function<void(json&)>& fn) {
  const std::string bytes = read(path);
  json value = bytes.empty() ? json::object() : json::parse(bytes);
  fn(value);
  write(path, value.dump());
}

// Takes "model." off the names of a safetensors file, whose header stays as long as it is.
void save_headless(const std::string& path) {
  std::string bytes = read(path);
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), sizeof n);
  std::string header = bytes.substr(sizeof n, n);
  const std::string prefix = "\"model.";
  for (size_t at = 0; (at = header.find(prefix, at)) != std::string::npos; ++at) {
    header.replace(at, prefix.size(), "\"");
  }
  header.resize(n, ' ');
  write(path, bytes.replace(sizeof n, n, header));
}

test::RandomModelSpec qwen3() {
  test::RandomModelSpec spec;
  spec.architecture = "qwen3";
  spec.n_layers = 2;
  spec.tied = true;
  return spec;
}

TEST(EmbeddingModel, AGgufSaysWhetherEosEndsAText) {
  const test::TempDir dir;
  const std::string path = dir.file("m.gguf");
  EXPECT_EQ(closing_of(test::random_model({}).write(path)), Ids{});
  for (const bool add : {true, false}) {
    test::GgufWriter w = test::random_model({});
    w.boolean("tokenizer.ggml.add_eos_token", add);
    EXPECT_EQ(closing_of(w.write(path)), add ? Ids{2} : Ids{});
  }
}

TEST(EmbeddingModel, ADirectorySaysWhichTokensEndAText) {
  const test::TempDir dir;
  const std::string path = write_random_hf(qwen3(), dir.file("hf"));
  EXPECT_EQ(closing_of(path), Ids{});
  const json eos = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
  const auto template_of = [](json& tokenizer) -> json& {
    return tokenizer["post_processor"]["single"];
  };
  change(path + "/tokenizer.json", [&](json& t) { template_of(t).push_back(eos); });
  EXPECT_EQ(closing_of(path), Ids{2});
  EXPECT_TRUE(must_open(path)->tokenizer().add_bos()) << "what stands before it is another thing";
  change(path + "/tokenizer.json", [&](json& t) { template_of(t).push_back(eos); });
  EXPECT_EQ(closing_of(path), (Ids{2, 2}));
  change(path + "/tokenizer.json", [&](json& t) {
    template_of(t).erase(3);
    template_of(t).erase(2);
  });
  EXPECT_EQ(closing_of(path), Ids{});
  change(path + "/tokenizer_config.json", [](json& c) {
    c["add_eos_token"] = true;
    c["eos_token"] = "</s>";
  });
  EXPECT_EQ(closing_of(path), Ids{2});
}

TEST(EmbeddingModel, ADirectorySaysItsPooling) {
  const test::TempDir dir;
  const std::string path = write_random_hf(qwen3(), dir.file("hf"));
  EXPECT_EQ(must_open(path)->config().pooling, Pooling::unsaid);
  std::filesystem::create_directory(path + "/1_Pooling");
  const std::pair<json, Pooling> kCases[] = {
      {{{"pooling_mode_mean_tokens", true}, {"pooling_mode_lasttoken", false}}, Pooling::mean},
      {{{"pooling_mode_mean_tokens", false}, {"pooling_mode_lasttoken", true}}, Pooling::last},
      {{{"pooling_mode_cls_token", true}}, Pooling::first},
      {{{"pooling_mode_max_tokens", true}}, Pooling::other},
      {{{"pooling_mode_mean_tokens", true}, {"pooling_mode_cls_token", true}}, Pooling::other},
      {{{"word_embedding_dimension", 64}}, Pooling::unsaid}};
  for (const auto& [config, wanted] : kCases) {
    write(path + "/1_Pooling/config.json", config.dump());
    EXPECT_EQ(must_open(path)->config().pooling, wanted) << config.dump();
  }
  write(path + "/1_Pooling/config.json", "{");
  EXPECT_EQ(open_model_source(path).status().code(), BLEND_E_FORMAT);
}

TEST(EmbeddingModel, ADirectoryWithoutAnOutputOpens) {
  const test::TempDir dir;
  const std::string whole = write_random_hf(qwen3(), dir.file("whole")),
                    headless = write_random_hf(qwen3(), dir.file("headless"));
  save_headless(headless + "/model.safetensors");
  // The large ones say that they are not tied, and have no output all the same.
  change(headless + "/config.json", [](json& c) { c["tie_word_embeddings"] = false; });
  const auto a = must_open(whole), b = must_open(headless);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(*a->fingerprint({}, {}), *b->fingerprint({}, {})) << "the same weights";
  EXPECT_EQ(&b->tensor(TensorRole::output, 0), &b->tensor(TensorRole::embedding, 0));
}

}  // namespace
}  // namespace blend
