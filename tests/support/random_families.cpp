#include "support/random_model.h"

namespace blend::test {

std::vector<RandomFamily> random_families() {
  std::vector<RandomFamily> all;
  const auto add = [&](const std::string& name, const std::string& architecture) -> auto& {
    RandomModelSpec spec;
    spec.architecture = architecture;
    spec.n_layers = 8;  // SmolLM3's and Gemma 3's alternation, and then some
    spec.d_model = 48;
    spec.n_heads = 4;
    spec.n_kv_heads = 2;
    spec.head_dim = 16;
    spec.d_ff = 80;
    spec.n_vocab = 300;
    spec.seed = 77 + all.size();
    all.push_back({name, spec});
    return all.back().spec;
  };
  const auto quantized = [&](const std::string& name, uint32_t width,
                             std::vector<BlockType> blocks) {
    RandomModelSpec& spec = add(name, "llama");
    spec.n_layers = 2;
    spec.d_model = spec.d_ff = width;
    spec.head_dim = width / spec.n_heads;
    spec.blocks = std::move(blocks);
  };
  add("llama2", "llama");
  add("llama31", "llama").rope_freq_factors = true;
  add("mistral", "llama").window = 21;
  add("llama_biases", "llama").biases = true;
  add("llama_linear", "llama").linear_scale = 4;
  add("llama_yarn", "llama").yarn_factor = 8;
  add("multi_query", "llama").n_kv_heads = 1;
  // llama.cpp wants the heads of a qwen2 to be as wide together as the model.
  add("qwen2", "qwen2").head_dim = 12;
  RandomModelSpec& qwen2_yarn = add("qwen2_yarn", "qwen2");
  qwen2_yarn.head_dim = 12;
  qwen2_yarn.yarn_factor = 8;
  add("qwen3", "qwen3").head_dim = 24;  // q_dim is not d_model
  add("smollm3", "smollm3").tied = true;
  add("gemma2", "gemma2").window = 17;
  RandomModelSpec& gemma3 = add("gemma3", "gemma3");
  gemma3.window = 17;
  gemma3.rope_theta = 1e6;
  gemma3.linear_scale = 8;
  RandomModelSpec& partial = add("partial_yarn", "qwen2");
  partial.head_dim = 12;
  partial.rotary_dim = 8;
  partial.yarn_factor = 8;
  quantized("blocks_of_32", 64,
            {BlockType::q4_0, BlockType::q4_1, BlockType::q5_0, BlockType::q5_1, BlockType::q8_0});
  quantized("blocks_of_256", 256, {BlockType::q4_k, BlockType::q5_k, BlockType::q6_k});
  // LongRoPE: one beyond its first context and one within it, where a part of a head rotates.
  RandomModelSpec& phi3 = add("phi3", "phi3");
  phi3.head_dim = 12;
  phi3.long_from = 32;
  phi3.rope_attention = 1.19;  // of a context 32 times its first
  RandomModelSpec& phi3_short = add("phi3_short", "phi3");
  phi3_short.head_dim = 12;
  phi3_short.rotary_dim = 8;
  phi3_short.long_from = phi3_short.context;
  phi3_short.tied = true;
  quantized("blocks_of_values", 64, {BlockType::iq4_nl, BlockType::mxfp4, BlockType::nvfp4});
  quantized("blocks_of_few_bits", 256, {BlockType::q2_k, BlockType::q3_k, BlockType::iq4_xs});
  quantized("blocks_of_books", 256, {BlockType::iq2_xs, BlockType::iq3_s, BlockType::iq1_m});
  add("granite", "granite").tied = true;
  RandomModelSpec& granite4 = add("granite4", "granite");
  granite4.tied = true;
  granite4.model_type = "granitemoehybrid";
  add("seed_oss", "seed_oss").head_dim = 24;
  add("ernie4_5", "ernie4_5").head_dim = 24;
  // llama.cpp wants the heads of an exaone4 and of an olmo2 to be as wide together as the model.
  add("exaone4", "exaone4").head_dim = 12;
  RandomModelSpec& exaone4 = add("exaone4_hybrid", "exaone4");
  exaone4.head_dim = 12;
  exaone4.window = 17;
  add("olmo2", "olmo2").head_dim = 12;
  RandomModelSpec& olmo3 = add("olmo3", "olmo2");
  olmo3.model_type = "olmo3";
  olmo3.head_dim = 12;
  olmo3.window = 17;
  olmo3.yarn_factor = 8;
  RandomModelSpec& mistral3 = add("ministral3", "mistral3");
  mistral3.head_dim = 24;
  mistral3.yarn_factor = 8;
  add("hunyuan", "hunyuan-dense").head_dim = 24;
  const auto experts = [&](const std::string& name, const std::string& architecture, uint32_t n,
                           uint32_t n_used) -> auto& {
    RandomModelSpec& spec = add(name, architecture);
    spec.n_experts = n;
    spec.n_used = n_used;
    spec.expert_d_ff = 40;
    return spec;
  };
  experts("qwen3moe", "qwen3moe", 8, 3).head_dim = 24;
  // llama.cpp wants the heads of an olmoe to be as wide together as the model, those of K too, and
  // takes the width of experts from feed_forward_length in these.
  const auto plain_experts = [&](const std::string& name, const std::string& architecture,
                                 uint32_t n, uint32_t n_used) -> auto& {
    RandomModelSpec& spec = experts(name, architecture, n, n_used);
    spec.head_dim = 12;
    spec.d_ff = spec.expert_d_ff;
    return spec;
  };
  RandomModelSpec& olmoe = plain_experts("olmoe", "olmoe", 8, 3);
  olmoe.n_kv_heads = olmoe.n_heads;
  plain_experts("mixtral", "llama", 4, 2);
  plain_experts("granitemoe", "granitemoe", 8, 3).tied = true;
  plain_experts("granitemoe_shared", "granitemoe", 6, 2).shared_d_ff = 24;
  RandomModelSpec& ernie = experts("ernie4_5_moe", "ernie4_5-moe", 8, 3);
  ernie.head_dim = 12;
  ernie.shared_d_ff = 2 * ernie.expert_d_ff;
  ernie.dense_layers = 2;
  RandomModelSpec& sinks = add("llama_sinks", "llama");
  sinks.window = 21;
  sinks.sinks = true;
  RandomModelSpec& gpt_oss = experts("gpt_oss", "gpt-oss", 8, 3);
  gpt_oss.d_ff = gpt_oss.expert_d_ff;
  gpt_oss.window = 17;
  RandomModelSpec& mxfp4 = experts("gpt_oss_mxfp4", "gpt-oss", 6, 2);
  mxfp4.d_model = mxfp4.d_ff = mxfp4.expert_d_ff = 64;
  mxfp4.window = 17;
  mxfp4.yarn_factor = 8;
  mxfp4.blocks = {BlockType::mxfp4};
  // Attention in layers 2 and 5 of eight: the last one convolves, as in LFM2. d_model is not twice
  // kv_dim. llama.cpp wants the heads to be as wide together as the model.
  RandomModelSpec& lfm2 = add("lfm2", "lfm2");
  lfm2.head_dim = 12;
  lfm2.tied = true;
  lfm2.conv_taps = 3;
  RandomModelSpec& dots = experts("dots1", "dots1", 8, 3);
  dots.head_dim = 12;
  dots.n_kv_heads = dots.n_heads;  // llama.cpp wants as many
  dots.shared_d_ff = 2 * dots.expert_d_ff;
  dots.dense_layers = 1;
  RandomModelSpec& glm = experts("glm4moe", "glm4moe", 12, 3);
  glm.rotary_dim = glm.head_dim / 2;
  glm.shared_d_ff = glm.expert_d_ff;
  glm.dense_layers = 1;
  glm.groups = 4;
  glm.used_groups = 2;
  RandomModelSpec& lfm2moe = experts("lfm2moe", "lfm2moe", 8, 3);
  lfm2moe.head_dim = 12;
  lfm2moe.tied = true;
  lfm2moe.conv_taps = 3;
  lfm2moe.dense_layers = 2;
  return all;
}

}  // namespace blend::test
