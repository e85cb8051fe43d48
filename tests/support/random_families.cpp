#include <stdexcept>

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
  // Attention in layers 3 and 7 of eight. A state is no whole number of tiles, a value head has no
  // key head of its own, and a fourth of an attending head rotates.
  const auto deltas = [](RandomModelSpec& spec) {
    spec.head_dim = 24;
    spec.rotary_dim = 12;
    spec.conv_taps = 4;
    spec.attend_every = 4;
    spec.delta_k_heads = 2;
    spec.delta_v_heads = 4;
    spec.delta_dim = 24;
  };
  deltas(add("qwen35", "qwen35"));
  // As E2B and E4B: of eight layers the last two share K and V. llama.cpp takes them from the last
  // two before them, of which the second has no window.
  RandomModelSpec& gemma4 = add("gemma4", "gemma4");
  --gemma4.seed;  // of its golden
  gemma4.window = 17;
  gemma4.rope_theta = 1e6;
  gemma4.global_head_dim = 32;
  gemma4.shared_layers = 2;
  gemma4.input_dim = 8;
  gemma4.wide_sharing = true;
  // As 31B: no layer shares, and K's matrix makes V where there is no window.
  const auto k_is_v = [](RandomModelSpec& spec) {
    spec.window = 17;
    spec.rope_theta = 1e6;
    spec.global_head_dim = 32;
    spec.global_kv_heads = 1;
    spec.k_is_v = true;
  };
  RandomModelSpec& gemma4_31b = add("gemma4_31b", "gemma4");
  --gemma4_31b.seed;  // of its golden
  k_is_v(gemma4_31b);
  // Qwen3.5 with experts in every layer, and a shared one that is weighed.
  const auto hybrid = [&](const std::string& name) -> auto& {
    RandomModelSpec& spec = experts(name, name, 8, 3);
    deltas(spec);
    spec.shared_d_ff = 24;
    return spec;
  };
  hybrid("qwen35moe").seed = 3501;
  hybrid("qwen3next").seed = 3502;
  RandomModelSpec& qwen2moe = experts("qwen2moe", "qwen2moe", 8, 3);
  qwen2moe.seed = 3503;
  qwen2moe.head_dim = 12;  // llama.cpp wants the heads to be as wide together as the model
  qwen2moe.shared_d_ff = 56;
  // As 26B-A4B: experts beside a dense feed-forward.
  RandomModelSpec& gemma4_moe = experts("gemma4_26b", "gemma4", 8, 3);
  gemma4_moe.seed = 3504;
  k_is_v(gemma4_moe);
  // A state is no whole number of tiles. llama.cpp wants a Mamba-2 to be twice as wide as the
  // model.
  const auto mamba = [](RandomModelSpec& spec) {
    spec.conv_taps = 4;
    spec.ssm_groups = 2;
    spec.ssm_heads = 4;
    spec.ssm_head_dim = 24;
    spec.ssm_state = 20;
  };
  // Attention in layers 3 and 7 of eight, where nothing rotates.
  const auto granite_h = [&](const std::string& name) -> auto& {
    RandomModelSpec& spec = add(name, "granitehybrid");
    spec.head_dim = 12;
    spec.attend_every = 4;
    mamba(spec);
    return spec;
  };
  granite_h("granite4_h").seed = 4101;
  RandomModelSpec& granite_h_moe = granite_h("granite4_h_moe");
  granite_h_moe.seed = 4102;
  granite_h_moe.n_experts = 6;
  granite_h_moe.n_used = 2;
  granite_h_moe.d_ff = granite_h_moe.expert_d_ff = 40;
  granite_h_moe.shared_d_ff = 24;
  // Two layers without a feed-forward, and attention in layers 2 and 5 of seven.
  RandomModelSpec& nemotron = add("nemotron_h", "nemotron_h");
  nemotron.seed = 4103;
  nemotron.pattern = "M-M*-MM-*-M-";
  nemotron.n_layers = 7;
  mamba(nemotron);
  // As E2B: of eight layers the last two share K and V, those of the last two before them.
  RandomModelSpec& gemma3n = add("gemma3n", "gemma3n");
  gemma3n.seed = 5105;
  gemma3n.window = 17;
  gemma3n.rope_theta = 1e6;
  gemma3n.global_every = 2;
  gemma3n.shared_layers = 2;
  gemma3n.input_dim = 8;
  gemma3n.n_streams = 4;
  gemma3n.laurel_rank = 6;
  gemma3n.cut_layers = 3;
  // llama.cpp takes from no key that 20 layers keep K and V, that one of five has no window, that
  // ten have their gate cut, how large inputs and Laurel blocks are, and that 30 bounds the logits.
  // It divides by one less than the gate's width, which counts the less the wider it is.
  const RandomModelSpec small = gemma3n;
  RandomModelSpec& e2b = add("gemma3n_e2b", "gemma3n");
  e2b = small;
  e2b.seed = 5102;
  e2b.n_layers = 25;
  e2b.global_every = 5;
  e2b.shared_layers = 5;
  e2b.input_dim = 256;
  e2b.laurel_rank = 64;
  e2b.cut_layers = 10;
  e2b.d_ff = 256;
  e2b.logit_cap = 30;
  // Nemotron 3: experts after most layers, attention in layers 2 and 5 of seven; and one whose
  // experts read narrower rows, with a feed-forward of every kind.
  const auto nemotron_3 = [&](const std::string& name, const std::string& pattern) -> auto& {
    RandomModelSpec& spec = experts(name, "nemotron_h_moe", 8, 3);
    spec.pattern = pattern;
    spec.n_layers = 7;
    spec.shared_d_ff = 56;
    mamba(spec);
    return spec;
  };
  nemotron_3("nemotron_3", "MEM*EMEME*EM").seed = 4104;
  RandomModelSpec& super = nemotron_3("nemotron_3_latent", "MEMEM*EMME*E");
  super.seed = 4105;
  super.latent = 24;
  // Falcon-H1: four layers that attend and are Mamba-2s at once, which here are eight.
  RandomModelSpec& falcon = add("falcon_h1", "falcon-h1");
  falcon.seed = 4106;
  falcon.paired = true;
  falcon.rope_theta = 1e11;
  mamba(falcon);
  falcon.ssm_head_dim = 20;
  falcon.ssm_norm = false;
  // The first layers are dense. A head's value is wider than its key, and eight elements rotate.
  const auto latent = [&](const std::string& name, uint64_t seed) -> auto& {
    RandomModelSpec& spec = experts(name, "deepseek2", 8, 3);
    spec.seed = seed;
    spec.n_kv_heads = 1;
    spec.rotary_dim = 8;
    spec.latent_rank = 32;
    spec.head_dim = (spec.latent_rank + spec.rotary_dim) / 2;
    spec.latent_nope = 12;
    spec.latent_value = 16;
    spec.shared_d_ff = spec.expert_d_ff;
    spec.dense_layers = 1;
    return spec;
  };
  // As V2 Lite: Q of the row itself, softmax, scores that grow under YaRN.
  RandomModelSpec& lite = latent("deepseek2_lite", 4201);
  lite.softmax = true;
  lite.shared_d_ff = 2 * lite.expert_d_ff;
  lite.yarn_factor = 8;
  lite.yarn_mscale = 0.707;
  // As V3: Q of a latent, groups of experts.
  RandomModelSpec& v3 = latent("deepseek3", 4272);
  v3.latent_q_rank = 24;
  v3.n_experts = 12;
  v3.groups = 4;
  v3.used_groups = 2;
  v3.dense_layers = 2;
  v3.yarn_factor = 8;
  v3.yarn_mscale = 1;
  // As GLM-4.7-Flash, in a file like those from before heads' matrices were cut.
  RandomModelSpec& glm_flash = latent("glm4_7_flash", 4223);
  glm_flash.model_type = "glm4_moe_lite";
  glm_flash.latent_q_rank = 24;
  glm_flash.latent_nope = 16;
  glm_flash.latent_value = 12;
  glm_flash.old_latent = true;
  return all;
}

RandomModelSpec random_family(const std::string& name) {
  for (const RandomFamily& family : random_families()) {
    if (family.name == name) return family.spec;
  }
  throw std::runtime_error("no random family has the name '" + name + "'");
}

}  // namespace blend::test
