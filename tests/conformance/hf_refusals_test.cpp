// Hugging Face directories that lie, or ask for what is not run: each is refused by name.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "conformance/hf_directory.h"

namespace blend::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

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
