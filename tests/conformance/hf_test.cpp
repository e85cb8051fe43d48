// Hugging Face directories through the C ABI: logits and greedy tokens of transformers for every
// family, and the same answers as from a GGUF of the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "conformance/hf_directory.h"

namespace blend::test {
namespace {

using nlohmann::json;

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

}  // namespace
}  // namespace blend::test
