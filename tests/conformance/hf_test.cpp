// Hugging Face directories through the C ABI: logits and greedy tokens of transformers for every
// family, the same answers as from a GGUF of the same weights, and directories that lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "conformance/abi.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kModels = std::string(BLEND_TEST_SOURCE_DIR) + "/conformance/hf/";
const std::string kTokenizers = std::string(BLEND_TEST_SOURCE_DIR) + "/conformance/tokenizers/";

json read_json(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  return json::parse(in);
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A copy of a model with a tokenizer beside it.
class Directory {
 public:
  explicit Directory(const std::string& model) : path_(dir_.file(model)) {
    fs::copy(kModels + model, path_, fs::copy_options::recursive);
    fs::copy(kTokenizers + "qwen2.tokenizer.json", file("tokenizer.json"));
  }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Changes a JSON file by `change(json&)`.
  template <typename Change>
  void edit(const std::string& name, const Change& change) const {
    json j = read_json(file(name));
    change(j);
    write(file(name), j.dump());
  }

 private:
  TempDir dir_;
  std::string path_;
};

// Changes a safetensors file by `change(header, data)`.
template <typename Change>
void edit_tensors(const std::string& path, const Change& change) {
  const std::string bytes = read(path);
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), sizeof n);
  json header = json::parse(bytes.substr(sizeof n, n));
  std::string data = bytes.substr(sizeof n + n);
  change(header, data);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  write(path, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data);
}

// A tensor of zeros as large as another.
void add_tensor(json& header, std::string& data, const std::string& name, json like) {
  const auto bytes =
      like.at("data_offsets")[1].get<size_t>() - like.at("data_offsets")[0].get<size_t>();
  like["data_offsets"] = {data.size(), data.size() + bytes};
  data.append(bytes, '\0');
  header[name] = std::move(like);
}

Outcome try_open(const Ctx& ctx, const std::string& path, Model* out = nullptr) {
  blend_model* model = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_model_open(&model, ctx.get(), path.c_str(), nullptr, &error);
  Model owned(model);
  if (out != nullptr) *out = std::move(owned);
  return outcome(code, error);
}

std::vector<int32_t> greedy(const Fusion& fusion, uint32_t n) {
  blend_generate_options options;
  EXPECT_EQ(blend_generate_options_init(&options, sizeof options), BLEND_OK);
  options.max_tokens = n;
  options.temperature = 0;
  std::vector<int32_t> tokens;
  const blend_token_fn take = [](void* user, int32_t token, const char*, size_t) -> int32_t {
    static_cast<std::vector<int32_t>*>(user)->push_back(token);
    return 0;
  };
  blend_error* error = nullptr;
  const int32_t code =
      blend_fusion_generate(fusion.get(), &options, take, &tokens, nullptr, &error);
  EXPECT_GE(outcome(code, error).code, 0);
  return tokens;
}

Fusion full_prefill(const Model& model, const std::vector<int32_t>& prompt) {
  return fuse(model, Store(), {{BLEND_SEGMENT_TEXT, prompt, false}},
              {.policy = BLEND_POLICY_FULL, .reserve_tokens = 80});
}

class HfFamily : public testing::TestWithParam<const char*> {};

// 1e-3 of logits whose standard deviation is about 1.4, computed in F32 by both.
TEST_P(HfFamily, LogitsAndGreedyTokensAreThoseOfTransformers) {
  const Directory directory(GetParam());
  const json golden = read_json(directory.file("golden.json"));
  const Ctx ctx = make_ctx();
  const Model model = open_model(ctx, directory.path());
  ASSERT_TRUE(model);
  const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
  EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
  // Tokens one by one, past any stop token.
  for (const int32_t expected : golden.at("greedy").get<std::vector<int32_t>>()) {
    const std::vector<float> now = logits(f);
    ASSERT_EQ(std::max_element(now.begin(), now.end()) - now.begin(), expected);
    decode(f, {expected});
  }
}

// Chunks fused at ratio 1 are a full prefill, whatever the family adds.
TEST_P(HfFamily, FusionAtRatioOneIsFullPrefill) {
  const Directory directory(GetParam());
  const auto prompt =
      read_json(directory.file("golden.json")).at("prompt").get<std::vector<int32_t>>();
  const Ctx ctx = make_ctx();
  const Model model = open_model(ctx, directory.path());
  ASSERT_TRUE(model);
  const TempDir dir;
  const Store store = open_store(ctx, dir.file("store"), BLEND_DTYPE_F32);
  const Prompt parts = {{BLEND_SEGMENT_CHUNK, {prompt.begin(), prompt.begin() + 9}, false},
                        {BLEND_SEGMENT_CHUNK, {prompt.begin() + 9, prompt.begin() + 21}, false},
                        {BLEND_SEGMENT_QUESTION, {prompt.begin() + 21, prompt.end()}, false}};
  precompute_all(model, store, parts, {});
  const Fusion fused = fuse(model, store, parts, {.ratio = 1.0});
  EXPECT_EQ(info(fused).n_hits, 2u);
  EXPECT_LE(max_difference(logits(fused), logits(full_prefill(model, prompt))), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Families, HfFamily,
    testing::Values("llama", "llama3-sharded", "llama-linear", "mistral", "qwen2", "qwen2-yarn",
                    "qwen3", "qwen3_5", "smollm3", "phi3", "phi3-longrope", "gemma2", "gemma3",
                    "gemma3n", "gemma4", "gemma4-31b", "granite", "granite4", "granite4-nope",
                    "granite4-h", "granite4-h-moe", "nemotron_h", "nemotron_3", "nemotron_3-latent",
                    "falcon_h1", "falcon_h1-normed", "falcon_h1-first", "seed_oss", "ernie4_5",
                    "exaone4", "exaone4-hybrid", "lfm2", "olmo2", "olmo3", "ministral3", "hunyuan",
                    "qwen3moe", "qwen3moe-fused", "olmoe", "mixtral", "granitemoe",
                    "granitemoe-shared", "ernie4_5_moe", "glm4_moe", "dots1", "lfm2_moe", "gpt_oss",
                    "qwen3-fp8", "llama-int4", "qwen3_5_moe", "qwen3_next", "qwen2_moe",
                    "qwen2_moe-unbiased", "gemma4-26b", "deepseek_v2", "deepseek_v2-lite",
                    "deepseek_v3", "glm4_moe_lite"),
    [](const testing::TestParamInfo<const char*>& family) {
      std::string name = family.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// Files from before transformers named each layer say it by a count or a period.
TEST(HfDirectory, LayersWithAWindowFollowFromOlderMembers) {
  const Ctx ctx = make_ctx();
  for (const char* family : {"qwen2", "qwen2_moe", "gemma2", "gemma3"}) {
    SCOPED_TRACE(family);
    const Directory directory(family);
    directory.edit("config.json", [](json& j) { EXPECT_EQ(j.erase("layer_types"), 1u); });
    const json golden = read_json(directory.file("golden.json"));
    const Model model = open_model(ctx, directory.path());
    ASSERT_TRUE(model);
    const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
    EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
  }
}

// An LFM2 as its first files describe it, and what is not run.
TEST(HfDirectory, AnLfm2IsReadByItsOldMembersToo) {
  const Ctx ctx = make_ctx();
  const Directory directory("lfm2");
  directory.edit("config.json", [](json& j) {
    EXPECT_EQ(j.erase("layer_types"), 1u);
    j["full_attn_idxs"] = {2, 4};
    j["block_ff_dim"] = j.at("intermediate_size");
    j.erase("intermediate_size");
    j["tie_embedding"] = j.at("tie_word_embeddings");
    j.erase("tie_word_embeddings");
    j["rope_theta"] = j.at("rope_parameters").at("rope_theta");
    j.erase("rope_parameters");
  });
  const json golden = read_json(directory.file("golden.json"));
  const Model model = open_model(ctx, directory.path());
  ASSERT_TRUE(model);
  const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
  EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
  const std::vector<std::pair<std::string, std::function<void(json&)>>> refused = {
      {"conv_bias", [](json& j) { j["conv_bias"] = true; }},
      {"no layer attends", [](json& j) { j["layer_types"] = std::vector<std::string>(6, "conv"); }},
      {"layer_types[1]", [](json& j) {
         j["layer_types"] = {"conv", "mamba", "full_attention", "conv", "conv", "conv"};
       }}};
  for (const auto& [word, change] : refused) {
    const Directory other("lfm2");
    other.edit("config.json", change);
    const Outcome got = try_open(ctx, other.path());
    EXPECT_EQ(got.code, BLEND_E_UNSUPPORTED) << word;
    EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
  }
}

// A Nemotron-H with its layers as letters, older names, and an infinity that JSON has no word for.
TEST(HfDirectory, ANemotronHIsReadInEverySpelling) {
  const Ctx ctx = make_ctx();
  const Directory directory("nemotron_h");
  const json golden = read_json(directory.file("golden.json"));
  json config = read_json(directory.file("config.json"));
  config.erase("layers_block_type");
  config.erase("layer_types");
  config["hybrid_override_pattern"] = "M-M*-";
  config["attention_head_dim"] = config.at("head_dim");
  config.erase("head_dim");
  config["rms_norm_eps"] = config.at("layer_norm_epsilon");
  config.erase("layer_norm_epsilon");
  config["time_step_limit"] = {0.0, 7.5};
  config["comment"] = "\\\" Infinity";
  std::string text = config.dump();
  text.replace(text.find("7.5"), 3, "Infinity");
  write(directory.file("config.json"), text);
  edit_tensors(directory.file("model.safetensors"), [](json& header, std::string&) {
    json renamed;
    for (const auto& [name, value] : header.items()) {
      const bool model = name.starts_with("backbone.");
      renamed[model ? "model." + name.substr(9) : name] = value;
    }
    header = renamed;
  });
  const Model model = open_model(ctx, directory.path());
  ASSERT_TRUE(model);
  const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
  EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
}

// Its layers that predict further tokens are left out, and experts may be in one tensor.
TEST(HfDirectory, ANemotron3MayPredictFurtherTokens) {
  const Ctx ctx = make_ctx();
  const Directory directory("nemotron_3");
  const json golden = read_json(directory.file("golden.json"));
  directory.edit("config.json", [](json& j) { j["num_nextn_predict_layers"] = 1; });
  edit_tensors(directory.file("model.safetensors"), [](json& header, std::string& data) {
    add_tensor(header, data, "mtp.layers.0.eh_proj.weight",
               header.at("backbone.layers.0.norm.weight"));
    const std::string experts = "backbone.layers.1.mixer.experts.";
    for (const std::string name : {"up_proj", "down_proj"}) {
      std::string all;
      json like;
      for (int e = 0; header.contains(experts + std::to_string(e) + "." + name + ".weight"); ++e) {
        const std::string one = experts + std::to_string(e) + "." + name + ".weight";
        like = header.at(one);
        const auto begin = like.at("data_offsets")[0].get<size_t>(),
                   end = like.at("data_offsets")[1].get<size_t>();
        all += data.substr(begin, end - begin);
        // A safetensors file has no gaps, so the bytes stay as another tensor's.
        json rest = like;
        header.erase(one);
        header["mtp.layers.0." + name + std::to_string(e)] = rest;
      }
      like["shape"].insert(like["shape"].begin(), 6);
      like["data_offsets"] = {data.size(), data.size() + all.size()};
      header[experts + name] = like;
      data += all;
    }
  });
  const Model model = open_model(ctx, directory.path());
  ASSERT_TRUE(model);
  const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
  EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
  directory.edit("config.json", [](json& j) { j["num_nextn_predict_layers"] = 0; });
  const Outcome kept = try_open(ctx, directory.path());
  EXPECT_EQ(kept.code, BLEND_E_UNSUPPORTED);
  EXPECT_NE(kept.message.find("mtp.layers.0."), std::string::npos) << kept.message;
}

// A Qwen3.5 as it is published, beside what sees and what predicts further tokens.
void expect_beside_vision(const Ctx& ctx, const std::string& family) {
  const Directory directory(family);
  json text;
  directory.edit("config.json", [&](json& j) {
    text = j;
    text["mtp_num_hidden_layers"] = 1;
    text["rope_parameters"]["mrope_section"] = {1, 1, 0};
    text["rope_parameters"]["mrope_interleaved"] = true;
    text.erase("tie_word_embeddings");
    text.erase("layer_types");
    j = {{"model_type", family},
         {"text_config", text},
         {"vision_config", {{"depth", 2}}},
         {"tie_word_embeddings", true}};
  });
  const std::string weights = directory.file("model.safetensors"), bytes = read(weights);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const json header = json::parse(bytes.substr(8, header_bytes));
  const auto rewrite = [&](const std::string& other) {
    json renamed;
    for (const auto& [name, value] : header.items()) {
      const bool model = name.starts_with("model.");
      renamed[model ? "model.language_model." + name.substr(6) : name] = value;
    }
    const uint64_t end = bytes.size() - 8 - header_bytes;
    renamed[other] = {{"dtype", "BF16"}, {"shape", {2}}, {"data_offsets", {end, end + 4}}};
    const std::string made = renamed.dump();
    const uint64_t n = made.size();
    write(weights, std::string(reinterpret_cast<const char*>(&n), 8) + made +
                       bytes.substr(8 + header_bytes) + std::string(4, '\0'));
  };
  const json golden = read_json(directory.file("golden.json"));
  for (const char* beside : {"model.visual.merger.norm.weight", "mtp.norm.weight"}) {
    rewrite(beside);
    Model model;
    const Outcome got = try_open(ctx, directory.path(), &model);
    ASSERT_EQ(got.message, "");
    const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
    EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
  }
  // Layers that predict further tokens are not those after the last.
  for (const int layer : {0, text.at("num_hidden_layers").get<int>()}) {
    const std::string name = "layers." + std::to_string(layer) + ".other.weight";
    rewrite(("model.language_model." + name).c_str());
    EXPECT_NE(try_open(ctx, directory.path()).message.find(name), std::string::npos) << name;
  }
}

TEST(HfDirectory, AQwen35IsReadBesideItsVision) {
  const Ctx ctx = make_ctx();
  for (const char* family : {"qwen3_5", "qwen3_5_moe"}) {
    SCOPED_TRACE(family);
    expect_beside_vision(ctx, family);
  }
  const json text = read_json(kModels + "qwen3_5/config.json");
  const std::vector<std::pair<std::string, std::function<void(json&)>>> refused = {
      {"text_config.model_type",
       [](json& j) { j["text_config"]["model_type"] = "qwen3_5_moe_text"; }},
      {"layer_types[1]",
       [](json& j) {
         j["text_config"]["layer_types"] = {"linear_attention", "conv", "linear_attention",
                                            "full_attention", "linear_attention"};
       }},
      {"no layer attends",
       [](json& j) {
         j["text_config"]["layer_types"] = std::vector<std::string>(5, "linear_attention");
       }},
      {"linear_attention",
       [](json& j) {
         j["text_config"]["layer_types"] = std::vector<std::string>(5, "full_attention");
       }},
      {"no multiple", [](json& j) { j["text_config"]["linear_num_key_heads"] = 3; }}};
  for (const auto& [word, change] : refused) {
    const Directory other("qwen3_5");
    other.edit("config.json", [&](json& j) {
      j = {{"model_type", "qwen3_5"}, {"text_config", text}};
      change(j);
    });
    const Outcome got = try_open(ctx, other.path());
    EXPECT_LT(got.code, 0) << word;
    EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
  }
}

// A directory of a Gemma 4 with towers: its language model is the same, and its K and V of layers
// that share others' may be there.
TEST(HfDirectory, OfAGemma4ItsTowersAreLeftOut) {
  const Ctx ctx = make_ctx();
  const Directory directory("gemma4");
  directory.edit("config.json", [](json& j) {
    json text = j;
    // As the published files say it, and not by layer.
    EXPECT_EQ(text.erase("per_layer_config"), 1u);
    text["global_head_dim"] = 24;
    j = {{"model_type", "gemma4"}, {"text_config", text}, {"vision_config", json::object()}};
  });
  edit_tensors(directory.file("model.safetensors"), [](json& header, std::string& data) {
    json renamed = json::object();
    for (const auto& [name, tensor] : header.items()) {
      const bool of_model = name.starts_with("model.");
      renamed[of_model ? "model.language_model." + name.substr(6) : name] = tensor;
    }
    const json some = renamed.at("model.language_model.layers.0.self_attn.k_proj.weight");
    for (const char* const name :
         {"model.language_model.layers.5.self_attn.k_proj.weight",
          "model.vision_tower.encoder.layers.0.self_attn.q_proj.linear.weight"}) {
      add_tensor(renamed, data, name, some);
    }
    header = renamed;
  });
  const json golden = read_json(directory.file("golden.json"));
  const Model model = open_model(ctx, directory.path());
  ASSERT_TRUE(model);
  const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
  EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
  // Outside of text_config it says whether the output is the embedding.
  directory.edit("config.json", [](json& j) { j["tie_word_embeddings"] = false; });
  EXPECT_NE(try_open(ctx, directory.path()).message.find("lm_head"), std::string::npos);
  directory.edit("config.json", [](json& j) { j.erase("tie_word_embeddings"); });
  // A tensor that the language model has no place for is no tower's.
  edit_tensors(directory.file("model.safetensors"), [](json& header, std::string& data) {
    add_tensor(header, data, "model.language_model.layers.0.more.weight",
               header.at("model.language_model.layers.0.self_attn.k_proj.weight"));
  });
  EXPECT_NE(try_open(ctx, directory.path()).message.find("layers.0.more"), std::string::npos);
}

// A directory of a Gemma 3n with towers, as its published files say what they say.
TEST(HfDirectory, OfAGemma3nItsTowersAreLeftOut) {
  const Ctx ctx = make_ctx();
  const Directory directory("gemma3n");
  directory.edit("config.json", [](json& j) {
    json text = j;
    text["rope_theta"] = 1000000.0;
    text["rope_local_base_freq"] = 10000.0;
    text["rope_scaling"] = nullptr;
    EXPECT_EQ(text.erase("rope_parameters"), 1u);
    j = {{"model_type", "gemma3n"},
         {"text_config", text},
         {"vision_config", json::object()},
         {"audio_config", json::object()}};
  });
  edit_tensors(directory.file("model.safetensors"), [](json& header, std::string& data) {
    json renamed = json::object();
    for (const auto& [name, tensor] : header.items()) {
      const bool of_model = name.starts_with("model.");
      renamed[of_model ? "model.language_model." + name.substr(6) : name] = tensor;
    }
    const json some = renamed.at("model.language_model.layers.0.self_attn.k_proj.weight");
    for (const char* const name :
         {"model.language_model.layers.5.self_attn.k_proj.weight",
          "model.language_model.layers.6.self_attn.k_norm.weight",
          "model.vision_tower.timm_model.conv_stem.conv.weight",
          "model.audio_tower.conformer.0.norm.weight", "model.embed_vision.embedding.weight",
          "model.embed_audio.embedding.weight"}) {
      add_tensor(renamed, data, name, some);
    }
    header = renamed;
  });
  const json golden = read_json(directory.file("golden.json"));
  const Model model = open_model(ctx, directory.path());
  ASSERT_TRUE(model);
  const Fusion f = full_prefill(model, golden.at("prompt").get<std::vector<int32_t>>());
  EXPECT_LE(max_difference(logits(f), golden.at("logits").get<std::vector<double>>()), 1e-3);
}

TEST(HfDirectory, WhatAGemma3nCannotBeIsRefusedByName) {
  const Ctx ctx = make_ctx();
  const auto refused = [&](int32_t code, const std::string& word,
                           const std::function<void(json&)>& change) {
    const Directory directory("gemma3n");
    directory.edit("config.json", change);
    const Outcome got = try_open(ctx, directory.path());
    EXPECT_EQ(got.code, code) << word;
    EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
  };
  const auto with = [&](int32_t code, const char* name, const json& value,
                        const std::string& word = "") {
    refused(code, word.empty() ? name : word, [&](json& j) { j[name] = value; });
  };
  with(BLEND_E_UNSUPPORTED, "attention_bias", true);
  with(BLEND_E_UNSUPPORTED, "num_kv_shared_layers", 7);
  with(BLEND_E_UNSUPPORTED, "altup_active_idx", 1);
  with(BLEND_E_UNSUPPORTED, "altup_num_inputs", 1);
  with(BLEND_E_UNSUPPORTED, "altup_correct_scale", false);
  with(BLEND_E_UNSUPPORTED, "hidden_size_per_layer_input", 0);
  with(BLEND_E_UNSUPPORTED, "hidden_size_per_layer_input", nullptr);
  with(BLEND_E_FORMAT, "altup_num_inputs", 17);
  with(BLEND_E_FORMAT, "altup_num_inputs", 5, "altup_projections.3");
  with(BLEND_E_FORMAT, "altup_num_inputs", 3, "altup.modality_router");
  with(BLEND_E_FORMAT, "laurel_rank", 6, "laurel.linear_left");
  with(BLEND_E_FORMAT, "vocab_size_per_layer_input", 299, "embed_tokens_per_layer");
  with(BLEND_E_FORMAT, "intermediate_size", {48, 48}, "intermediate_size has 2 entries");
  with(BLEND_E_FORMAT, "intermediate_size", json::array());
  with(BLEND_E_FORMAT, "intermediate_size", 48, "layers.2.mlp");
  with(BLEND_E_FORMAT, "activation_sparsity_pattern", {0.5});
  with(BLEND_E_FORMAT, "activation_sparsity_pattern", {0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 0.5},
       "activation_sparsity_pattern[2]");
}

TEST(HfDirectory, WhatAGemma4CannotBeIsRefusedByName) {
  const Ctx ctx = make_ctx();
  const std::vector<std::pair<std::string, std::function<void(json&)>>> refused = {
      {"use_bidirectional_attention", [](json& j) { j["use_bidirectional_attention"] = "all"; }},
      {"attention_bias", [](json& j) { j["attention_bias"] = true; }},
      {"num_kv_shared_layers", [](json& j) { j["num_kv_shared_layers"] = 7; }},
      {"vocab_size_per_layer_input", [](json& j) { j["vocab_size_per_layer_input"] = 5; }},
      {"proportional",
       [](json& j) { j["rope_parameters"]["full_attention"]["rope_type"] = "yarn"; }}};
  for (const auto& [word, change] : refused) {
    const Directory directory("gemma4");
    directory.edit("config.json", change);
    const Outcome got = try_open(ctx, directory.path());
    EXPECT_EQ(got.code, BLEND_E_UNSUPPORTED) << word;
    EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
  }
  for (const auto& [name, value] : {std::pair<const char*, json>{"num_experts", 0},
                                    {"num_experts", 1e9},
                                    {"top_k_experts", 7},
                                    {"top_k_experts", nullptr},
                                    {"moe_intermediate_size", 0}}) {
    const Directory directory("gemma4-26b");
    directory.edit("config.json", [&](json& j) { j[name] = value; });
    const Outcome got = try_open(ctx, directory.path());
    EXPECT_EQ(got.code, BLEND_E_FORMAT) << name;
    EXPECT_NE(got.message.find(name), std::string::npos) << got.message;
  }
  const Directory directory("gemma4");
  directory.edit("config.json", [](json& j) { j["num_kv_shared_layers"] = 6; });
  const Outcome none = try_open(ctx, directory.path());
  EXPECT_EQ(none.code, BLEND_E_FORMAT);
  EXPECT_NE(none.message.find("shares the K and V"), std::string::npos) << none.message;
}

// LongRoPE turns by the factors of the rows that a model is asked for. The golden model's prompts
// are beyond its short context, so the short factors are held against it by naming them the long
// ones.
TEST(HfDirectory, LongRopeGoesByTheRowsThatAreAskedFor) {
  const Directory directory("phi3-longrope");
  const json golden = read_json(directory.file("golden.json"));
  const double original = 16, context = 256;
  directory.edit("config.json", [&](json& j) {
    json& rope = j.at("rope_parameters");
    std::swap(rope.at("short_factor"), rope.at("long_factor"));
    rope["original_max_position_embeddings"] = j["original_max_position_embeddings"] = 100;
    rope["attention_factor"] = std::sqrt(1 + std::log(context / original) / std::log(original));
  });
  const Ctx ctx = make_ctx();
  std::vector<std::vector<uint8_t>> fingerprints;
  for (const uint32_t rows : {100u, 101u}) {
    SCOPED_TRACE(rows);
    blend_model_options options{};
    options.struct_size = sizeof options;
    options.max_context = rows;
    blend_model* opened = nullptr;
    blend_error* error = nullptr;
    const int32_t code =
        blend_model_open(&opened, ctx.get(), directory.path().c_str(), &options, &error);
    ASSERT_EQ(outcome(code, error).code, BLEND_OK);
    const Model model(opened);
    blend_model_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(blend_model_get_info(opened, &info, nullptr), BLEND_OK);
    fingerprints.emplace_back(info.fingerprint, info.fingerprint + sizeof info.fingerprint);
    const Fusion f =
        fuse(model, Store(),
             {{BLEND_SEGMENT_TEXT, golden.at("prompt").get<std::vector<int32_t>>(), false}},
             {.policy = BLEND_POLICY_FULL, .reserve_tokens = 0});
    const double off = max_difference(logits(f), golden.at("logits").get<std::vector<double>>());
    if (rows == 100) {
      EXPECT_LE(off, 1e-3);
    } else {
      EXPECT_GT(off, 1e-2);
    }
  }
  EXPECT_NE(fingerprints[0], fingerprints[1]) << "their chunks are not each other's";
}

// The example model, and what examples/python/to_hugging_face.py makes of it.
TEST(HfDirectory, AGgufOfTheSameWeightsGivesTheSame) {
  const Ctx ctx = make_ctx();
  const Model hf = open_model(ctx, BLEND_EXAMPLE_HF);
  const Model gguf =
      open_model(ctx, std::string(BLEND_TEST_SOURCE_DIR) + "/../examples/models/blend-qa.gguf");
  ASSERT_TRUE(hf && gguf);
  const std::string text =
      "Question: Where did Mara carry the lamp?\nAnswer: é 日本 \xf0\x9f\x98\x80  <s> 12";
  std::vector<std::vector<int32_t>> ids;
  for (const Model* model : {&hf, &gguf}) {
    std::vector<int32_t> tokens(512);
    size_t n = 0;
    blend_error* error = nullptr;
    const int32_t code =
        blend_model_tokenize(model->get(), text.data(), text.size(), BLEND_TOKENIZE_BOS,
                             tokens.data(), tokens.size(), &n, &error);
    ASSERT_EQ(outcome(code, error).code, BLEND_OK);
    tokens.resize(n);
    ids.push_back(tokens);
  }
  EXPECT_EQ(ids[0], ids[1]);
  const Fusion a = full_prefill(hf, ids[0]);
  const Fusion b = full_prefill(gguf, ids[0]);
  EXPECT_LE(max_difference(logits(a), logits(b)), 1e-4);
  EXPECT_EQ(greedy(a, 64), greedy(b, 64));
  blend_model_info info{};
  info.struct_size = sizeof info;
  blend_error* error = nullptr;
  const int32_t code = blend_model_get_info(hf.get(), &info, &error);
  ASSERT_EQ(outcome(code, error).code, BLEND_OK);
  EXPECT_EQ(info.bos_token, 1);
  EXPECT_EQ(info.eos_token, 2);
  EXPECT_EQ(info.add_bos, 1u);
  EXPECT_STREQ(info.name, "blend-qa-hf");
  EXPECT_STREQ(info.weight_dtype, "f16");
}

std::string fingerprint(const Ctx& ctx, const std::string& path) {
  const Model model = open_model(ctx, path);
  blend_model_info info{};
  info.struct_size = sizeof info;
  blend_error* error = nullptr;
  const int32_t code = blend_model_get_info(model.get(), &info, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_OK);
  return {reinterpret_cast<const char*>(info.fingerprint), sizeof info.fingerprint};
}

// Fingerprints of models differ if, and only if, something differs that answers depend on.
TEST(HfDirectory, FingerprintCoversWeightsTokenizerAndRope) {
  const Ctx ctx = make_ctx();
  const Directory first("llama");
  const Directory second("llama");
  const std::string before = fingerprint(ctx, first.path());
  EXPECT_EQ(before, fingerprint(ctx, second.path()));
  second.edit("config.json", [](json& j) { j["rope_parameters"]["rope_theta"] = 20000.0; });
  EXPECT_NE(before, fingerprint(ctx, second.path()));

  const Directory third("llama");
  std::string weights = read(third.file("model.safetensors"));
  weights[weights.size() - 2] = static_cast<char>(weights[weights.size() - 2] ^ 1);
  write(third.file("model.safetensors"), weights);
  EXPECT_NE(before, fingerprint(ctx, third.path()));

  const Directory fourth("llama");
  fourth.edit("tokenizer.json",
              [](json& j) { std::swap(j["model"]["merges"][0], j["model"]["merges"][1]); });
  EXPECT_NE(before, fingerprint(ctx, fourth.path()));
  const Directory fifth("llama");
  fifth.edit("config.json", [](json& j) { j["transformers_version"] = "9.9"; });
  EXPECT_EQ(before, fingerprint(ctx, fifth.path()));
}

TEST(HfDirectory, ChatTemplateAndStopTokens) {
  const Ctx ctx = make_ctx();
  const Directory d("llama");
  const auto opened = [&] {
    Model model;
    EXPECT_EQ(try_open(ctx, d.path(), &model).code, BLEND_OK);
    return model;
  };
  const auto info_of = [](const Model& model) {
    blend_model_info info{};
    info.struct_size = sizeof info;
    blend_error* error = nullptr;
    const int32_t code = blend_model_get_info(model.get(), &info, &error);
    EXPECT_EQ(outcome(code, error).code, BLEND_OK);
    return info;
  };
  Model model = opened();
  EXPECT_STREQ(info_of(model).chat_template, "");
  write(d.file("tokenizer_config.json"),
        R"({"chat_template": "{{ messages }}", "eos_token": {"content": "<|im_end|>"},
            "bos_token": null})");
  model = opened();
  EXPECT_STREQ(info_of(model).chat_template, "{{ messages }}");
  EXPECT_EQ(info_of(model).eos_token, 482);
  EXPECT_EQ(info_of(model).bos_token, 1) << "config.json's, where the other file has none";
  EXPECT_EQ(info_of(model).add_bos, 0u);
  write(d.file("tokenizer_config.json"),
        R"({"chat_template": [{"name": "tool_use", "template": "t"},
                              {"name": "default", "template": "d"}]})");
  model = opened();
  EXPECT_STREQ(info_of(model).chat_template, "d");
  write(d.file("chat_template.jinja"), "{% for m in messages %}");
  model = opened();
  EXPECT_STREQ(info_of(model).chat_template, "{% for m in messages %}");
}

void expect_refused(const Ctx& ctx, const Directory& d, int32_t code,
                    const std::vector<std::string>& parts) {
  const Outcome o = try_open(ctx, d.path());
  EXPECT_EQ(o.code, code) << o.message;
  for (const std::string& part : parts) {
    EXPECT_NE(o.message.find(part), std::string::npos) << "'" << part << "' in: " << o.message;
  }
  const size_t named = o.message.find("model '" + d.path() + "'");
  EXPECT_EQ(named, 0u) << o.message;
  EXPECT_EQ(o.message.find("model '", named + 1), std::string::npos) << o.message;
}

TEST(HfDirectory, MissingFilesAreNamed) {
  const Ctx ctx = make_ctx();
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    const Directory d("llama");
    fs::remove(d.file(name));
    expect_refused(ctx, d, BLEND_E_NOT_FOUND, {name, "llama"});
  }
  const Directory d("llama3-sharded");
  fs::remove(d.file("model-00002-of-00004.safetensors"));
  expect_refused(ctx, d, BLEND_E_NOT_FOUND, {"model-00002-of-00004.safetensors"});
}

TEST(HfDirectory, WhatTheConfigAsksForIsNamed) {
  const Ctx ctx = make_ctx();
  const auto refused = [&](const char* model, const char* pointer, const json& value, int32_t code,
                           const std::string& part) {
    const Directory d(model);
    d.edit("config.json", [&](json& j) { j[json::json_pointer(pointer)] = value; });
    expect_refused(ctx, d, code, {"config.json", part});
  };
  refused("llama", "/model_type", "mamba", BLEND_E_UNSUPPORTED, "'mamba'");
  refused("llama", "/model_type", nullptr, BLEND_E_FORMAT, "'model_type' is missing");
  refused("llama", "/hidden_act", "relu", BLEND_E_UNSUPPORTED, "'relu'");
  refused("llama", "/quantization_config", json::object({{"bits", 4}}), BLEND_E_UNSUPPORTED,
          "quantization_config");
  refused("llama", "/quantization_config", json::object({{"quant_method", "mxfp4"}}),
          BLEND_E_UNSUPPORTED, "mxfp4 in a gpt_oss alone");
  refused("gpt_oss", "/swiglu_limit", 5.0, BLEND_E_UNSUPPORTED, "swiglu_limit");
  refused("llama", "/rope_parameters/rope_type", "dynamic", BLEND_E_UNSUPPORTED, "'dynamic'");
  refused("llama", "/rope_parameters/rope_theta", -1, BLEND_E_FORMAT, "rope_theta");
  refused("llama", "/num_hidden_layers", 0, BLEND_E_FORMAT, "num_hidden_layers is 0");
  refused("llama", "/num_hidden_layers", 1e9, BLEND_E_FORMAT, "num_hidden_layers");
  refused("llama", "/num_key_value_heads", 3, BLEND_E_FORMAT, "num_key_value_heads");
  refused("llama", "/head_dim", "8", BLEND_E_FORMAT, "head_dim is a string");
  refused("llama", "/rms_norm_eps", 0, BLEND_E_FORMAT, "rms_norm_eps");
  refused("llama", "/intermediate_size", nullptr, BLEND_E_FORMAT, "'intermediate_size'");
  refused("qwen2", "/layer_types/1", "chunked_attention", BLEND_E_UNSUPPORTED, "layer_types[1]");
  refused("qwen2", "/layer_types", json::array({"full_attention"}), BLEND_E_FORMAT,
          "1 entries for 3 layers");
  refused("smollm3", "/no_rope_layers", json::array({1}), BLEND_E_FORMAT, "no_rope_layers");
  refused("qwen3", "/use_bidirectional_attention", true, BLEND_E_UNSUPPORTED, "bidirectional");
  refused("granite", "/residual_multiplier", 0, BLEND_E_FORMAT, "residual_multiplier");
  refused("granite4", "/layer_types/1", "rwkv", BLEND_E_UNSUPPORTED, "layer_types[1]: 'rwkv'");
  refused("granite4-h", "/layer_types/1", "mamba", BLEND_E_UNSUPPORTED, "no layer attends");
  refused("granite4-h", "/layer_types/1", "sliding_attention", BLEND_E_UNSUPPORTED,
          "layer_types[1]");
  refused("granite4-h", "/layer_types", json::array({"mamba"}), BLEND_E_FORMAT, "1 entries");
  refused("granite4-h", "/layer_types", nullptr, BLEND_E_UNSUPPORTED, "layer_types");
  refused("nemotron_h", "/layers_block_type/1", "rwkv", BLEND_E_UNSUPPORTED, "'rwkv'");
  refused("nemotron_h", "/layers_block_type/0", "mlp", BLEND_E_UNSUPPORTED, "layer 0 is a feed");
  refused("nemotron_h", "/layers_block_type/3", "mamba", BLEND_E_UNSUPPORTED, "no layer attends");
  refused("nemotron_h", "/layers_block_type", nullptr, BLEND_E_FORMAT, "hybrid_override_pattern");
  refused("nemotron_h", "/mlp_hidden_act", "silu", BLEND_E_UNSUPPORTED, "mlp_hidden_act");
  refused("nemotron_h", "/mlp_bias", true, BLEND_E_UNSUPPORTED, "mlp_bias");
  refused("nemotron_h", "/sliding_window", 9, BLEND_E_UNSUPPORTED, "sliding_window");
  refused("nemotron_h", "/n_groups", 3, BLEND_E_FORMAT, "no multiple of n_groups");
  refused("nemotron_h", "/layer_norm_epsilon", 0, BLEND_E_FORMAT, "layer_norm_epsilon");
  refused("nemotron_h", "/time_step_limit/0", 0.1, BLEND_E_UNSUPPORTED, "time_step_limit");
  refused("nemotron_3", "/layers_block_type/2", "moe", BLEND_E_UNSUPPORTED, "layer 2 is a feed");
  refused("nemotron_3", "/n_routed_experts", 0, BLEND_E_FORMAT, "n_routed_experts is 0");
  refused("nemotron_3", "/num_experts_per_tok", 7, BLEND_E_FORMAT, "is 7 of 6");
  refused("nemotron_3", "/n_group", 4, BLEND_E_FORMAT, "n_group and topk_group are 4 and 2");
  refused("nemotron_3", "/routed_scaling_factor", 0, BLEND_E_FORMAT, "routed_scaling_factor");
  refused("nemotron_3-latent", "/moe_latent_size", 0, BLEND_E_FORMAT, "moe_latent_size");
  for (const char* name : {"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"}) {
    refused("falcon_h1", (std::string("/") + name).c_str(), true, BLEND_E_UNSUPPORTED, name);
  }
  refused("falcon_h1", "/sliding_window", 9, BLEND_E_UNSUPPORTED, "sliding_window");
  refused("falcon_h1", "/hidden_act", "gelu", BLEND_E_UNSUPPORTED, "hidden_act");
  refused("falcon_h1", "/num_hidden_layers", 40000, BLEND_E_FORMAT, "num_hidden_layers is 40000");
  refused("falcon_h1", "/mamba_d_ssm", 44, BLEND_E_FORMAT, "the 44 of mamba_d_ssm");
  refused("falcon_h1", "/mamba_d_ssm", nullptr, BLEND_E_FORMAT, "the 64 of mamba_expand");
  refused("falcon_h1", "/mamba_n_groups", 3, BLEND_E_FORMAT, "no multiple of mamba_n_groups");
  refused("falcon_h1", "/time_step_limit/0", 0.1, BLEND_E_UNSUPPORTED, "time_step_limit");
  refused("falcon_h1", "/ssm_multipliers", json::array({1.0}), BLEND_E_FORMAT, "has 1 entries");
  refused("falcon_h1", "/ssm_multipliers/3", 0, BLEND_E_FORMAT, "ssm_multipliers[3]");
  refused("falcon_h1", "/mlp_multipliers/1", -1, BLEND_E_FORMAT, "mlp_multipliers[1]");
  refused("falcon_h1", "/key_multiplier", 0, BLEND_E_FORMAT, "key_multiplier");
  refused("falcon_h1", "/attention_in_multiplier", 1e-30, BLEND_E_FORMAT, "a product of 0");
  refused("granite4-h", "/mamba_proj_bias", true, BLEND_E_UNSUPPORTED, "mamba_proj_bias");
  refused("granite4-h", "/mamba_n_groups", 3, BLEND_E_FORMAT, "no multiple of mamba_n_groups");
  refused("granite4-h", "/mamba_n_heads", 5, BLEND_E_FORMAT, "mamba_n_heads");
  refused("granite4-h", "/mamba_d_head", 15, BLEND_E_FORMAT, "mamba_n_heads: 4 heads of 15");
  refused("granite4-h", "/mamba_d_state", 1e9, BLEND_E_FORMAT, "mamba_d_state");
  refused("granite4-h", "/mamba_expand", 3, BLEND_E_FORMAT, "mamba_expand");
  refused("granite4-h", "/time_step_limit/0", 0.1, BLEND_E_UNSUPPORTED, "time_step_limit");
  refused("granite4-h", "/time_step_limit/1", 3.0, BLEND_E_UNSUPPORTED, "time_step_limit");
  // The weights are of another shape.
  const auto contradicts = [&](const char* model, const char* pointer, const json& value,
                               int32_t code, const std::string& tensor) {
    const Directory d(model);
    d.edit("config.json", [&](json& j) { j[json::json_pointer(pointer)] = value; });
    expect_refused(ctx, d, code, {tensor});
  };
  contradicts("deepseek_v2", "/v_head_dim", 19, BLEND_E_FORMAT, "self_attn.o_proj");
  contradicts("deepseek_v2", "/q_lora_rank", nullptr, BLEND_E_FORMAT, "self_attn.q_proj");
  contradicts("deepseek_v2", "/kv_lora_rank", 26, BLEND_E_FORMAT, "kv_a_proj_with_mqa");
  contradicts("granite4", "/num_local_experts", 4, BLEND_E_FORMAT, "'model.layers.0.mlp.gate");
  contradicts("nemotron_h", "/mamba_head_dim", 11, BLEND_E_FORMAT, "layers.0.mixer.conv1d.weight");
  contradicts("nemotron_3-latent", "/moe_latent_size", 19, BLEND_E_FORMAT, "fc1_latent_proj");
  contradicts("nemotron_3-latent", "/moe_latent_size", nullptr, BLEND_E_FORMAT, "mixer.experts.0");
  contradicts("nemotron_3", "/moe_shared_expert_intermediate_size", 39, BLEND_E_FORMAT,
              "shared_experts.up_proj");
  contradicts("falcon_h1", "/mamba_rms_norm", true, BLEND_E_FORMAT, "mamba.norm.weight");
  contradicts("falcon_h1-first", "/mamba_rms_norm", false, BLEND_E_UNSUPPORTED,
              "mamba.norm.weight");
  contradicts("falcon_h1", "/mamba_d_state", 11, BLEND_E_FORMAT, "layers.0.mamba.");
  contradicts("falcon_h1", "/num_hidden_layers", 2, BLEND_E_UNSUPPORTED, "layers.2.");
  contradicts("granite4-h", "/mamba_conv_bias", false, BLEND_E_UNSUPPORTED, "mamba.conv1d.bias");
  contradicts("granite4-h", "/mamba_d_state", 11, BLEND_E_FORMAT, "mamba.conv1d.weight");
  contradicts("granite4-h", "/mamba_d_conv", 3, BLEND_E_FORMAT, "mamba.conv1d.weight");
  refused("ministral3", "/rope_parameters", nullptr, BLEND_E_FORMAT, "rope_parameters");
  refused("ministral3", "/rope_parameters/llama_4_scaling_beta", -1, BLEND_E_FORMAT, "beta");
  refused("ministral3", "/rope_parameters/partial_rotary_factor", 0.5, BLEND_E_UNSUPPORTED, "beta");
  refused("hunyuan", "/rope_parameters/alpha", 0, BLEND_E_FORMAT, "alpha");
  refused("hunyuan", "/rope_parameters/alpha", nullptr, BLEND_E_UNSUPPORTED, "'dynamic'");
  refused("qwen3moe", "/num_local_experts", 0, BLEND_E_FORMAT, "num_local_experts is 0");
  refused("qwen3moe", "/num_local_experts", 1e9, BLEND_E_FORMAT, "num_local_experts");
  refused("qwen3moe", "/num_experts_per_tok", 5, BLEND_E_FORMAT, "num_experts_per_tok is 5 of 4");
  refused("qwen3moe", "/moe_intermediate_size", 0, BLEND_E_FORMAT, "moe_intermediate_size");
  refused("qwen3moe", "/mlp_only_layers", json::array({3}), BLEND_E_FORMAT, "mlp_only_layers");
  refused("qwen3moe", "/mlp_only_layers", json::array({0, 1, 2}), BLEND_E_FORMAT, "no layer");
  refused("olmoe", "/clip_qkv", 5, BLEND_E_UNSUPPORTED, "clip_qkv");
  refused("qwen3_5_moe", "/num_experts", 0, BLEND_E_FORMAT, "num_experts is 0");
  refused("qwen3_5_moe", "/num_experts", 1e9, BLEND_E_FORMAT, "num_experts");
  refused("qwen3_5_moe", "/num_experts_per_tok", 7, BLEND_E_FORMAT, "is 7 of 6");
  refused("qwen3_5_moe", "/shared_expert_intermediate_size", 0, BLEND_E_FORMAT, "shared_expert");
  refused("qwen3_next", "/intermediate_size", nullptr, BLEND_E_FORMAT, "'intermediate_size'");
  refused("qwen3_next", "/mlp_only_layers", json::array({4}), BLEND_E_FORMAT, "mlp_only_layers");
  refused("qwen2_moe", "/decoder_sparse_step", 5, BLEND_E_FORMAT, "no layer");
  refused("deepseek_v2", "/topk_method", "noaux_tc", BLEND_E_UNSUPPORTED, "topk_method");
  refused("deepseek_v2", "/scoring_func", "sigmoid", BLEND_E_UNSUPPORTED, "scoring_func");
  refused("deepseek_v2", "/norm_topk_prob", true, BLEND_E_UNSUPPORTED, "norm_topk_prob");
  refused("deepseek_v2", "/moe_layer_freq", 2, BLEND_E_UNSUPPORTED, "moe_layer_freq");
  refused("deepseek_v2", "/attention_bias", true, BLEND_E_UNSUPPORTED, "attention_bias");
  refused("deepseek_v2", "/kv_lora_rank", 23, BLEND_E_UNSUPPORTED, "kv_lora_rank");
  refused("deepseek_v2", "/qk_rope_head_dim", 26, BLEND_E_UNSUPPORTED, "no more to rotate");
  refused("deepseek_v2", "/qk_nope_head_dim", 0, BLEND_E_FORMAT, "qk_nope_head_dim");
  refused("deepseek_v2", "/rope_parameters/mscale_all_dim", -1, BLEND_E_FORMAT, "mscale_all_dim");
  refused("deepseek_v2", "/rope_parameters/partial_rotary_factor", 0.5, BLEND_E_UNSUPPORTED,
          "4 of the 8");
  refused("deepseek_v2", "/rope_parameters",
          {{"rope_type", "longrope"},
           {"rope_theta", 10000.0},
           {"original_max_position_embeddings", 64},
           {"factor", 2.0},
           {"short_factor", {1, 1, 1, 1}},
           {"long_factor", {1, 1, 1, 1}}},
          BLEND_E_UNSUPPORTED, "LongRoPE");
  refused("deepseek_v3", "/rope_parameters/llama_4_scaling_beta", 0.1, BLEND_E_UNSUPPORTED,
          "ministral3");
  refused("deepseek_v3", "/n_group", nullptr, BLEND_E_FORMAT, "n_group");
  refused("deepseek_v3", "/norm_topk_prob", nullptr, BLEND_E_FORMAT, "norm_topk_prob");
  refused("deepseek_v3", "/routed_scaling_factor", nullptr, BLEND_E_FORMAT, "routed_scaling");
  refused("deepseek_v3", "/first_k_dense_replace", 3, BLEND_E_FORMAT, "no layer");
  refused("glm4_moe_lite", "/mlp_layer_types/0", "wide", BLEND_E_UNSUPPORTED, "mlp_layer_types[0]");
  refused("glm4_moe_lite", "/mlp_layer_types", json::array({"dense"}), BLEND_E_FORMAT, "1 entries");
  refused("glm4_moe", "/n_group", 4, BLEND_E_FORMAT, "n_group and topk_group are 4 and 2");
  refused("glm4_moe", "/topk_group", 4, BLEND_E_FORMAT, "n_group and topk_group are 3 and 4");
  refused("glm4_moe", "/n_routed_experts", nullptr, BLEND_E_FORMAT, "n_routed_experts");
  refused("glm4_moe", "/routed_scaling_factor", -1, BLEND_E_FORMAT, "routed_scaling_factor");
  refused("ernie4_5_moe", "/moe_k", 5, BLEND_E_FORMAT, "moe_k is 5 of 4");
  refused("ernie4_5_moe", "/use_bias", true, BLEND_E_UNSUPPORTED, "biases");
  const Directory d("gemma3");
  d.edit("config.json", [](json& j) { j = {{"model_type", "gemma3"}, {"text_config", j}}; });
  expect_refused(ctx, d, BLEND_E_UNSUPPORTED, {"'gemma3'", "'text_config'", "GGUF"});
}

// Layers after the last, which predict further tokens, are in the files and are not run.
TEST(HfDirectory, LayersAheadAreLeftOut) {
  const Ctx ctx = make_ctx();
  const Directory d("glm4_moe");
  d.edit("config.json", [](json& j) { j["num_hidden_layers"] = 2; });
  const Model model = open_model(ctx, d.path());
  EXPECT_NE(model, nullptr);
  d.edit("config.json", [](json& j) { j.erase("num_nextn_predict_layers"); });
  expect_refused(ctx, d, BLEND_E_UNSUPPORTED, {"model.layers.2."});
}

TEST(HfDirectory, TensorsThatDoNotFitAreNamed) {
  const Ctx ctx = make_ctx();
  {
    const Directory d("llama");
    d.edit("config.json", [](json& j) { j["intermediate_size"] = 64; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"mlp.gate_proj.weight", "[48, 32]", "[64, 32]"});
  }
  {
    const Directory d("llama");
    d.edit("config.json", [](json& j) { j["num_hidden_layers"] = 4; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"'model.layers.3.", "missing"});
  }
  {
    const Directory d("llama");
    d.edit("config.json", [](json& j) { j["num_hidden_layers"] = 2; });
    expect_refused(ctx, d, BLEND_E_UNSUPPORTED, {"'model.layers.2.", "no place"});
  }
  {
    const Directory d("qwen3moe");
    d.edit("config.json", [](json& j) { j["num_local_experts"] = 3; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"'model.layers.0.mlp.gate.weight'", "[4, 32]"});
  }
  {
    const Directory d("granitemoe");
    d.edit("config.json", [](json& j) { j["intermediate_size"] = 20; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"input_linear.weight", "[4, 48, 32]", "[4, 40, 32]"});
  }
  {
    const Directory d("qwen3_5_moe");
    d.edit("config.json", [](json& j) { j["shared_expert_intermediate_size"] = 17; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"mlp.shared_expert.gate_proj.weight", "[17, 32]"});
  }
  {
    const Directory d("qwen3_next");
    d.edit("config.json", [](json& j) { j["linear_num_key_heads"] = 3; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"linear_attn.in_proj_qkvz.weight", "3 key heads"});
  }
  {
    const Directory d("qwen2_moe");
    d.edit("config.json", [](json& j) { j["decoder_sparse_step"] = 1; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"'model.layers.0.mlp.gate.weight'", "missing"});
  }
  {
    const Directory d("phi3");
    d.edit("config.json", [](json& j) { j["num_key_value_heads"] = 4; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"self_attn.qkv_proj.weight"});
  }
  {
    const Directory d("llama3-sharded");
    d.edit("model.safetensors.index.json",
           [](json& j) { j["weight_map"]["model.norm.weight"] = "../llama/model.safetensors"; });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"model.norm.weight", "of this directory"});
  }
  {
    const Directory d("llama3-sharded");
    d.edit("model.safetensors.index.json", [](json& j) {
      json& map = j["weight_map"];
      map["model.norm.weight"] = map["model.norm.weight"] == "model-00001-of-00004.safetensors"
                                     ? "model-00002-of-00004.safetensors"
                                     : "model-00001-of-00004.safetensors";
    });
    expect_refused(ctx, d, BLEND_E_FORMAT, {"model.norm.weight", "where the index puts it"});
  }
  {
    const Directory d("llama");
    const std::string weights = read(d.file("model.safetensors"));
    write(d.file("model.safetensors"), weights.substr(0, weights.size() - 100));
    expect_refused(ctx, d, BLEND_E_FORMAT, {"model.safetensors", "truncated"});
  }
  {
    const Directory d("llama");
    write(d.file("tokenizer.json"), "{\"model\": {\"type\": \"Unigram\"}}");
    expect_refused(ctx, d, BLEND_E_UNSUPPORTED, {"tokenizer.json"});
  }
}

// Writes a copy of the embedding into the weights as the output matrix, changed by
// `change(bytes&)`.
template <typename Change>
void add_output(const Directory& d, const Change& change) {
  const std::string file = read(d.file("model.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  json tensors = json::parse(file.substr(8, header));
  std::string data = file.substr(8 + header);
  json output = tensors.at("model.embed_tokens.weight");
  std::string bytes = data.substr(
      output["data_offsets"][0].get<size_t>(),
      output["data_offsets"][1].get<size_t>() - output["data_offsets"][0].get<size_t>());
  change(bytes);
  output["data_offsets"] = {data.size(), data.size() + bytes.size()};
  tensors["lm_head.weight"] = output;
  const std::string text = tensors.dump();
  const uint64_t size = text.size();
  write(d.file("model.safetensors"),
        std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data + bytes);
}

// Old versions of transformers take the embedding, new ones the output matrix: either would be
// wrong for somebody.
TEST(HfDirectory, AnOutputThatIsTiedAndDiffersIsRefused) {
  const Ctx ctx = make_ctx();
  for (const char* model : {"qwen2", "smollm3", "gemma2"}) {
    const std::vector<std::string> parts = {"'lm_head.weight'", "'model.embed_tokens.weight'",
                                            "tie_word_embeddings", "false"};
    const Directory plain(model);
    const std::string before = fingerprint(ctx, plain.path());
    const auto changed = [&](const std::function<void(std::string&)>& change) {
      auto d = std::make_unique<Directory>(model);
      add_output(*d, change);
      return d;
    };
    const auto equal = changed([](std::string&) {});
    EXPECT_EQ(before, fingerprint(ctx, equal->path())) << "equal bytes are one matrix";
    const auto last = changed([](std::string& bytes) { bytes.back() ^= 1; });
    expect_refused(ctx, *last, BLEND_E_FORMAT, parts);
    const auto zero = changed([](std::string& bytes) { bytes.assign(bytes.size(), '\0'); });
    expect_refused(ctx, *zero, BLEND_E_FORMAT, parts);
    // The way out that the message names.
    zero->edit("config.json", [](json& j) { j["tie_word_embeddings"] = false; });
    EXPECT_EQ(try_open(ctx, zero->path()).code, BLEND_OK);
  }
}

// transformers loads all that is in the files, whatever the index says.
TEST(HfDirectory, TensorsThatTheIndexLeavesOutAreRefused) {
  const Ctx ctx = make_ctx();
  const Directory d("llama3-sharded");
  d.edit("model.safetensors.index.json", [](json& j) {
    json& map = j["weight_map"];
    map.erase("model.layers.0.mlp.up_proj.weight");
  });
  EXPECT_EQ(try_open(ctx, d.path()).code, BLEND_OK) << "it is there";
  d.edit("config.json", [](json& j) { j["num_hidden_layers"] = 1; });
  d.edit("model.safetensors.index.json", [](json& j) {
    json kept;
    for (const auto& [name, file] : j["weight_map"].items()) {
      if (!name.starts_with("model.layers.1.") && !name.starts_with("model.layers.2.")) {
        kept[name] = file;
      }
    }
    j["weight_map"] = kept;
  });
  expect_refused(ctx, d, BLEND_E_UNSUPPORTED, {"'model.layers.", "no place"});
}

}  // namespace
}  // namespace blend::test
