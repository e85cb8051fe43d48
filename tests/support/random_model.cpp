#include "support/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <set>
#include <stdexcept>

#include "support/random_blocks.h"

namespace blend::test {
namespace {

uint64_t tensor_seed(uint64_t seed, const std::string& name) {
  uint64_t h = 0xcbf29ce484222325u ^ seed;  // FNV-1a: weights do not depend on the tensors' order
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return h;
}

void append_value(std::string& out, float f, DType dtype) {
  if (dtype == DType::f32) {
    out += gguf_bytes(f);
    return;
  }
  const uint16_t h = dtype == DType::f16 ? f32_to_f16(f) : f32_to_bf16(f);
  out.push_back(static_cast<char>(h & 255));
  out.push_back(static_cast<char>(h >> 8));
}

uint32_t ggml_type(DType dtype) {
  return dtype == DType::f32 ? kGgmlF32 : dtype == DType::f16 ? kGgmlF16 : kGgmlBF16;
}

std::vector<std::string> characters(uint32_t n_pieces) {
  std::vector<std::string> chars = {"\xe2\x96\x81"};
  for (char c = 'a'; c <= 'z'; ++c) chars.emplace_back(1, c);
  for (const char* c : {".", ",", "\xc3\xa9"}) chars.emplace_back(c);
  if (n_pieces >= 120) {
    for (char c = 'A'; c <= 'Z'; ++c) chars.emplace_back(1, c);
    for (char c = '0'; c <= '9'; ++c) chars.emplace_back(1, c);
    for (const char* c : {"?", "!", "'", "\n"}) chars.emplace_back(c);
  }
  return chars;
}

// Best first; every one is the concatenation of two earlier pieces or characters.
std::vector<std::string> merges(uint32_t n) {
  static const char* const kCommon[] = {"\xe2\x96\x81t",
                                        "he",
                                        "\xe2\x96\x81"
                                        "a",
                                        "in",
                                        "\xe2\x96\x81the",
                                        "re",
                                        "er",
                                        "\xe2\x96\x81s",
                                        "on",
                                        "nd",
                                        "\xe2\x96\x81w",
                                        "ou",
                                        "\xe2\x96\x81"
                                        "b",
                                        "it",
                                        "at",
                                        "en",
                                        "ed",
                                        "\xe2\x96\x81m",
                                        "\xe2\x96\x81\xe2\x96\x81",
                                        "\xe2\x96\x81to",
                                        "\xe2\x96\x81"
                                        "and",
                                        "ing",
                                        "an",
                                        "es",
                                        "is",
                                        "or",
                                        "ar",
                                        "al",
                                        "ll",
                                        "st",
                                        "ay",
                                        "\xe2\x96\x81was",
                                        "\xe2\x96\x81he",
                                        "om",
                                        "le"};
  std::vector<std::string> list;
  std::set<std::string> seen;
  const auto add = [&](const std::string& s) {
    if (list.size() < n && seen.insert(s).second) list.push_back(s);
  };
  for (const char* m : kCommon) add(m);
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) add({a, b});
  }
  for (char a = 'a'; a <= 'z'; ++a) add(std::string("\xe2\x96\x81") + a);
  // Far more than any test asks for: pairs of pairs and longer.
  for (size_t i = 0; list.size() < n; ++i) add(list[i / 26] + static_cast<char>('a' + i % 26));
  return list;
}

}  // namespace

RandomVocab random_vocab(uint32_t n_vocab) {
  if (n_vocab < 300) throw std::invalid_argument("a random vocabulary has at least 300 tokens");
  RandomVocab v;
  const auto add = [&](const std::string& token, float score, int32_t type) {
    v.tokens.push_back(token);
    v.scores.push_back(score);
    v.types.push_back(type);
  };
  add("<unk>", 0, 2);
  add("<s>", 0, 3);
  add("</s>", 0, 3);
  for (unsigned b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    add(name, 0, 6);
  }
  const uint32_t n_pieces = n_vocab - 259;
  const std::vector<std::string> chars = characters(n_pieces);
  float score = 0;
  for (const std::string& m : merges(n_pieces - static_cast<uint32_t>(chars.size()))) {
    add(m, score--, 1);
  }
  for (const std::string& c : chars) add(c, score--, 1);
  return v;
}

GgufWriter random_model(const RandomModelSpec& spec) {
  GgufWriter w;
  const std::string arch = spec.architecture + ".";
  const bool gemma = spec.architecture.starts_with("gemma");
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), spec.architecture) != names.end();
  };
  const bool whole_norm = is({"olmo2", "olmoe"});
  const bool qk_norm = whole_norm || is({"qwen3", "gemma3", "exaone4", "hunyuan-dense", "qwen3moe",
                                         "glm4moe", "dots1", "lfm2", "lfm2moe", "qwen35",
                                         "qwen35moe", "qwen3next", "gemma4", "gemma3n"});
  const bool latent = spec.latent_rank != 0;
  const bool deepseek = latent || is({"glm4moe", "dots1", "lfm2moe"});  // in how it routes
  const bool lfm2 = is({"lfm2", "lfm2moe"});
  const bool qwen3next = is({"qwen3next"}), qwen35 = qwen3next || is({"qwen35", "qwen35moe"});
  const bool weighed = is({"qwen35moe", "qwen3next", "qwen2moe"});  // shared experts are
  const bool mamba = spec.ssm_state != 0;
  const bool post_only = is({"exaone4", "olmo2"});
  const bool fused = spec.architecture == "phi3";
  const bool tied = spec.tied || gemma;
  w.string("general.architecture", spec.architecture).string("general.name", "random");
  const bool nemotron = !spec.pattern.empty();
  w.u32(arch + "block_count", nemotron ? static_cast<uint32_t>(spec.pattern.size())
                                       : spec.n_layers / (spec.paired ? 2 : 1));
  w.u32(arch + "embedding_length", spec.d_model);
  const bool gemma4 = spec.gemma4(), gemma3n = is({"gemma3n"});
  const auto d_ff_of = [&](uint32_t layer) {
    return uint64_t{spec.d_ff} * (spec.wide_sharing && layer >= spec.n_kept() ? 2 : 1);
  };
  if (gemma4) {
    std::vector<int32_t> widths;
    for (uint32_t i = 0; i < spec.n_layers; ++i) {
      widths.push_back(static_cast<int32_t>(d_ff_of(i)));
    }
    w.i32s(arch + "feed_forward_length", widths);
  } else if (nemotron) {
    std::vector<int32_t> widths, heads;
    for (const char block : spec.pattern) {
      const uint32_t width = block == '-' ? spec.d_ff : block == 'E' ? spec.expert_d_ff : 0;
      widths.push_back(static_cast<int32_t>(width));
      heads.push_back(block == '*' ? static_cast<int32_t>(spec.n_kv_heads) : 0);
    }
    w.i32s(arch + "feed_forward_length", widths);
    w.i32s(arch + "attention.head_count_kv", heads);
  } else if (!is({"qwen35moe"})) {  // which has experts alone
    w.u32(arch + "feed_forward_length", spec.d_ff);
  }
  w.u32(arch + "context_length", spec.context);
  w.u32(arch + "attention.head_count", spec.n_heads);
  if (nemotron) {
    // Above.
  } else if (lfm2 || (mamba && !spec.paired)) {
    std::vector<int32_t> heads;
    for (uint32_t i = 0; i < spec.n_layers; ++i) {
      heads.push_back(spec.attends(i) ? static_cast<int32_t>(spec.n_kv_heads) : 0);
    }
    w.i32s(arch + "attention.head_count_kv", heads);
    if (lfm2) w.u32(arch + "shortconv.l_cache", spec.conv_taps);
  } else if (gemma4) {
    std::vector<int32_t> heads;
    for (uint32_t i = 0; i < spec.n_layers; ++i) {
      heads.push_back(static_cast<int32_t>(spec.kv_heads_of(i)));
    }
    w.i32s(arch + "attention.head_count_kv", heads);
  } else {
    w.u32(arch + "attention.head_count_kv", spec.old_latent ? spec.n_heads : spec.n_kv_heads);
  }
  if (qwen35) {
    w.u32(arch + "full_attention_interval", spec.attend_every);
    w.u32(arch + "ssm.conv_kernel", spec.conv_taps).u32(arch + "ssm.state_size", spec.delta_dim);
    w.u32(arch + "ssm.group_count", spec.delta_k_heads);
    w.u32(arch + "ssm.time_step_rank", spec.delta_v_heads);
    w.u32(arch + "ssm.inner_size", spec.delta_v_heads * spec.delta_dim);
  }
  if (mamba) {
    w.u32(arch + "ssm.conv_kernel", spec.conv_taps).u32(arch + "ssm.state_size", spec.ssm_state);
    w.u32(arch + "ssm.group_count", spec.ssm_groups);
    w.u32(arch + "ssm.time_step_rank", spec.ssm_heads);
    w.u32(arch + "ssm.inner_size", spec.ssm_heads * spec.ssm_head_dim);
    if (!spec.paired) w.boolean(arch + "rope.scaling.finetuned", false);
  }
  const uint32_t main_dim = gemma4 ? spec.global_head_dim : spec.head_dim;
  const uint32_t latent_row = spec.latent_rank + spec.rotary_dim,
                 latent_head = spec.latent_nope + spec.rotary_dim;
  if (latent) {
    w.u32(arch + "attention.kv_lora_rank", spec.latent_rank);
    w.u32(arch + "attention.q_lora_rank", spec.latent_q_rank);  // 0 where llama.cpp wants a number
    w.u32(arch + "attention.key_length", spec.old_latent ? latent_head : latent_row);
    w.u32(arch + "attention.value_length", spec.old_latent ? spec.latent_value : spec.latent_rank);
    if (!spec.old_latent) {
      w.u32(arch + "attention.key_length_mla", latent_head);
      w.u32(arch + "attention.value_length_mla", spec.latent_value);
    }
  } else {
    w.u32(arch + "attention.key_length", main_dim);
    w.u32(arch + "attention.value_length", main_dim);
  }
  // Norms of latents have 1e-6 in transformers, whatever the others have.
  w.f32(arch + "attention.layer_norm_rms_epsilon", latent ? 1e-6f : 1e-5f);
  if (nemotron) w.f32(arch + "attention.layer_norm_epsilon", 1e-5f);  // which llama.cpp wants too
  const uint32_t rotary_dim = spec.rotary_dim == 0 ? main_dim : spec.rotary_dim;
  w.u32(arch + "rope.dimension_count", rotary_dim);
  w.f32(arch + "rope.freq_base", static_cast<float>(spec.rope_theta));
  if (qwen35 && !qwen3next) {  // of the angles of pictures; those of text are equal
    const auto part = static_cast<int32_t>(rotary_dim / 2 / 3);
    w.i32s(arch + "rope.dimension_sections",
           {static_cast<int32_t>(rotary_dim / 2) - 2 * part, part, part, 0});
  }
  if (spec.linear_scale != 1) {
    w.string(arch + "rope.scaling.type", "linear");
    w.f32(arch + "rope.scaling.factor", static_cast<float>(spec.linear_scale));
  } else if (spec.yarn_factor != 1) {
    w.string(arch + "rope.scaling.type", "yarn");
    w.f32(arch + "rope.scaling.factor", static_cast<float>(spec.yarn_factor));
    w.u32(arch + "rope.scaling.original_context_length", spec.context / 8);
    if (spec.yarn_mscale != 0) {
      w.f32(arch + "rope.scaling.yarn_log_multiplier", static_cast<float>(0.1 * spec.yarn_mscale));
    }
  }
  if (spec.long_from != 0) w.u32(arch + "rope.scaling.original_context_length", spec.long_from);
  if (spec.rope_attention != 1) {
    w.f32(arch + "rope.scaling.attn_factor", static_cast<float>(spec.rope_attention));
  }
  if (spec.window != 0) w.u32(arch + "attention.sliding_window", spec.window);
  if (spec.architecture == "gemma2") {
    // Far below what Gemma has, so that they bend something.
    w.f32(arch + "attn_logit_softcapping", 5).f32(arch + "final_logit_softcapping", 6);
  }

  if (gemma4) {
    std::vector<bool> local;
    for (uint32_t i = 0; i < spec.n_layers; ++i) local.push_back(spec.local(i));
    w.booleans(arch + "attention.sliding_window_pattern", local);
    w.u32(arch + "attention.key_length_swa", spec.head_dim);
    w.u32(arch + "attention.value_length_swa", spec.head_dim);
    w.u32(arch + "rope.dimension_count_swa", spec.head_dim);
    w.f32(arch + "rope.freq_base_swa", 10000);
    w.u32(arch + "attention.shared_kv_layers", spec.shared_layers);
    w.u32(arch + "embedding_length_per_layer_input", spec.input_dim);
    w.f32(arch + "final_logit_softcapping", 6);
  }
  if (gemma3n) {
    std::vector<bool> local;
    std::vector<float> cuts;
    for (uint32_t i = 0; i < spec.n_layers; ++i) {
      local.push_back(spec.local(i));
      // Of which a twentieth of a normal distribution is above.
      cuts.push_back(i < spec.cut_layers ? 1.6448536f : -std::numeric_limits<float>::infinity());
    }
    w.booleans(arch + "attention.sliding_window_pattern", local);
    w.f32(arch + "rope.freq_base_swa", 10000);
    w.u32(arch + "attention.shared_kv_layers", spec.shared_layers);
    w.u32(arch + "embedding_length_per_layer_input", spec.input_dim);
    w.u32(arch + "altup.num_inputs", spec.n_streams).u32(arch + "altup.active_idx", 0);
    w.f32s(arch + "activation_sparsity_scale", cuts);
    w.f32(arch + "final_logit_softcapping", spec.logit_cap);
  }
  if (is({"granite", "granitemoe", "granitehybrid"})) {
    w.f32(arch + "embedding_scale", 4).f32(arch + "residual_scale", 0.7f);
    w.f32(arch + "attention.scale", 0.35f).f32(arch + "logit_scale", 1.6f);
  }
  if (is({"mistral3"})) {
    w.f32(arch + "rope.scaling.yarn_log_multiplier", 0.5f);
    w.f32(arch + "attention.temperature_scale", 0.4f);
  }

  if (spec.n_experts != 0) {
    w.u32(arch + "expert_count", spec.n_experts).u32(arch + "expert_used_count", spec.n_used);
    if (spec.expert_d_ff != spec.d_ff || is({"gpt-oss", "qwen35moe"})) {
      w.u32(arch + "expert_feed_forward_length", spec.expert_d_ff);
    }
    if (spec.shared_d_ff != 0 && !deepseek) {
      w.u32(arch + "expert_shared_feed_forward_length", spec.shared_d_ff);
    }
    if (nemotron) {
      w.u32(arch + "expert_shared_count", 1).u32(arch + "expert_group_count", 1);
      w.boolean(arch + "expert_weights_norm", true).f32(arch + "expert_weights_scale", 1.7f);
    }
    if (spec.latent != 0) w.u32(arch + "moe_latent_size", spec.latent);
  }
  if (deepseek) {
    w.u32(arch + "expert_gating_func", spec.softmax ? 1 : 2)
        .u32(arch + "leading_dense_block_count", spec.dense_layers);
    // An LFM2 is normalised and has no scale, which its converter does not say.
    if (!lfm2)
      w.boolean(arch + "expert_weights_norm", !spec.softmax)
          .f32(arch + "expert_weights_scale", 1.7f);
    if (spec.shared_d_ff != 0) {
      w.u32(arch + "expert_shared_count", spec.shared_d_ff / spec.expert_d_ff);
    }
    if (spec.groups != 0) {
      w.u32(arch + "expert_group_count", spec.groups);
      w.u32(arch + "expert_group_used_count", spec.used_groups);
    }
  }
  if (is({"ernie4_5-moe"})) {
    w.u32(arch + "leading_dense_block_count", spec.dense_layers);
    w.u32(arch + "interleave_moe_layer_step", 1);
  }

  const RandomVocab vocab = random_vocab(spec.n_vocab);
  w.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", vocab.tokens);
  w.f32s("tokenizer.ggml.scores", vocab.scores).i32s("tokenizer.ggml.token_type", vocab.types);
  w.u32("tokenizer.ggml.unknown_token_id", 0).u32("tokenizer.ggml.bos_token_id", 1);
  w.u32("tokenizer.ggml.eos_token_id", 2);

  const auto add = [&](const std::string& name, DType dtype, std::vector<uint64_t> dims,
                       double mean, double deviation) {
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    const uint64_t seed = tensor_seed(spec.seed, name);
    w.tensor(name, ggml_type(dtype), dims, n * static_cast<uint64_t>(dtype_size(dtype)), [=]() {
      SplitMix rng(seed);
      std::string data;
      data.reserve(n * static_cast<uint64_t>(dtype_size(dtype)));
      for (uint64_t i = 0; i < n; ++i) {
        // In two statements, so that no compiler contracts them to an FMA.
        const double z = deviation * rng.normal();
        append_value(data, static_cast<float>(mean + z), dtype);
      }
      return data;
    });
  };
  // x: [d_model] of unit size, W: [out, in]: each output has the standard deviation `gain`.
  size_t n_matrices = 0;
  const auto matrices = [&](const std::string& name, std::vector<uint64_t> dims, double gain) {
    const double deviation = gain / std::sqrt(static_cast<double>(dims[0]));
    if (spec.blocks.empty()) return add(name, spec.dtype, dims, 0, deviation);
    const BlockType type = spec.blocks[n_matrices++ % spec.blocks.size()];
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    const uint64_t seed = tensor_seed(spec.seed, name);
    w.tensor(name, ggml_type_of(type), dims, n / block_elements(type) * block_bytes(type), [=] {
      SplitMix rng(seed);
      return random_blocks(type, n, deviation, rng);
    });
  };
  const auto matrix = [&](const std::string& name, uint64_t in, uint64_t out, double gain) {
    matrices(name, {in, out}, gain);
  };
  const uint64_t d = spec.d_model;

  // Tied, the embedding must also make logits: smaller, and the layers speak louder.
  matrix("token_embd.weight", d, spec.n_vocab, tied ? 2.5 : std::sqrt(static_cast<double>(d)));
  // As Llama 3.1: high frequencies stay, low ones are slowed, up to 1 + most times.
  const auto factors = [&](const std::string& name, float most) {
    const uint32_t half = rotary_dim / 2;
    std::string data;
    for (uint32_t i = 0; i < half; ++i) {
      const float share = static_cast<float>(i + 1) / static_cast<float>(half);
      data += gguf_bytes(i * 2 < half ? 1.0f : 1.0f + most * share);
    }
    w.tensor(name, kGgmlF32, {half}, data);
  };
  if (spec.rope_freq_factors) factors("rope_freqs.weight", 7);
  if (gemma4) {
    // A quarter of a global head rotates, with the frequencies of the whole.
    const uint32_t half = spec.global_head_dim / 2;
    std::string data;
    for (uint32_t i = 0; i < half; ++i) data += gguf_bytes(i < half / 4 ? 1.0f : 1e30f);
    w.tensor("rope_freqs.weight", kGgmlF32, {half}, data);
  }
  if (spec.input_dim != 0) {
    const uint64_t inputs = uint64_t{spec.n_layers} * spec.input_dim;
    const double unit = std::sqrt(static_cast<double>(spec.input_dim));
    matrix("per_layer_token_embd.weight", inputs, spec.n_vocab,
           std::sqrt(static_cast<double>(inputs)) / unit);
    matrix("per_layer_model_proj.weight", d, inputs, 1);
    add("per_layer_proj_norm.weight", DType::f32, {spec.input_dim}, 1, 0.1);
  }
  if (gemma3n) {
    for (const char* const name : {"altup_proj.weight", "altup_unembd_proj.weight"}) {
      matrices(name, {d, d, spec.n_streams - 1}, 1);
    }
  }
  if (spec.long_from != 0) {
    factors("rope_factors_long.weight", 7);
    factors("rope_factors_short.weight", 2);
  }
  for (uint32_t l = 0; l < spec.n_layers; ++l) {
    const size_t block = spec.block_of(l);
    const std::string blk = "blk." + std::to_string(block) + ".";
    const uint64_t q_dim = uint64_t{spec.n_heads} * spec.head_dim_of(l);
    const uint64_t kv_dim = uint64_t{spec.kv_heads_of(l)} * spec.head_dim_of(l);
    // A Gemma 3n's converter writes K and V of the others too, and llama.cpp wants them.
    const bool keeps = l < spec.n_kept() || gemma3n, k_is_v = spec.k_is_v && !spec.local(l);
    const uint64_t d_ff = d_ff_of(l);
    const bool attends = spec.attends(l);
    if (!post_only && (attends || !spec.paired)) {
      add(blk + "attn_norm.weight", DType::f32, {d}, 1, 0.1);
    }
    if (!attends && qwen35) {
      const uint64_t heads = spec.delta_v_heads, inner = heads * spec.delta_dim;
      matrix(blk + "attn_qkv.weight", d, spec.delta_qkv_dim(), 1.4);
      matrix(blk + "attn_gate.weight", d, inner, 1.5);
      if (qwen3next) {
        matrix(blk + "ssm_ba.weight", d, 2 * heads, 1.5);
      } else {
        matrix(blk + "ssm_beta.weight", d, heads, 1.5);
        matrix(blk + "ssm_alpha.weight", d, heads, 1.5);
      }
      add(blk + "ssm_conv1d.weight", DType::f32, {spec.conv_taps, spec.delta_qkv_dim()}, 0, 0.6);
      // States that last for some ten to a hundred rows.
      add(blk + "ssm_a", DType::f32, {heads}, -0.1, 0.025);
      add(blk + "ssm_dt.bias", DType::f32, {heads}, -0.5, 0.5);
      add(blk + "ssm_norm.weight", DType::f32, {spec.delta_dim}, 1, 0.1);
      matrix(blk + "ssm_out.weight", inner, d, 1);
    } else if (!attends && mamba) {
      const uint64_t heads = spec.ssm_heads, inner = heads * spec.ssm_head_dim;
      matrix(blk + "ssm_in.weight", d, inner + spec.ssm_xbc_dim() + heads, 1.5);
      add(blk + "ssm_conv1d.weight", DType::f32, {spec.conv_taps, spec.ssm_xbc_dim()}, 0, 0.6);
      add(blk + "ssm_conv1d.bias", DType::f32, {spec.ssm_xbc_dim()}, 0, 0.2);
      // States that last for some ten to a hundred rows.
      add(blk + "ssm_a", DType::f32, {1, heads}, -0.1, 0.025);
      add(blk + "ssm_d", DType::f32, {1, heads}, 1, 0.3);
      add(blk + "ssm_dt.bias", DType::f32, {heads}, -0.5, 0.5);
      if (spec.ssm_norm) {
        add(blk + "ssm_norm.weight", DType::f32, {inner / spec.ssm_groups, spec.ssm_groups}, 1,
            0.1);
      }
      matrix(blk + "ssm_out.weight", inner, d, 1);
    } else if (!attends) {
      matrix(blk + "shortconv.in_proj.weight", d, 3 * d, 1.2);
      add(blk + "shortconv.conv.weight", DType::f32, {spec.conv_taps, d}, 0, 0.6);
      matrix(blk + "shortconv.out_proj.weight", d, d, 0.8);
    } else if (latent) {
      const uint64_t heads = spec.n_heads, rank = spec.latent_rank, nope = spec.latent_nope;
      if (spec.latent_q_rank != 0) {
        matrix(blk + "attn_q_a.weight", d, spec.latent_q_rank, 1);
        add(blk + "attn_q_a_norm.weight", DType::f32, {spec.latent_q_rank}, 1, 0.1);
      }
      matrix(blk + (spec.latent_q_rank != 0 ? "attn_q_b.weight" : "attn_q.weight"),
             spec.latent_q_rank != 0 ? spec.latent_q_rank : d, heads * latent_head, 1.4);
      matrix(blk + "attn_kv_a_mqa.weight", d, latent_row, 1.4);
      add(blk + "attn_kv_a_norm.weight", DType::f32, {rank}, 1, 0.1);
      if (spec.old_latent) {
        matrix(blk + "attn_kv_b.weight", rank, heads * (nope + spec.latent_value), 1.4);
      } else {
        // So large that a head's key is of about the size of its other part.
        const double gain = 1.4 * std::sqrt(static_cast<double>(nope) / static_cast<double>(rank));
        matrices(blk + "attn_k_b.weight", {nope, rank, heads}, gain);
        matrices(blk + "attn_v_b.weight", {rank, spec.latent_value, heads}, 1.5);
      }
    } else if (fused) {
      matrix(blk + "attn_qkv.weight", d, q_dim + 2 * kv_dim, 1.4);
    } else {
      matrix(blk + "attn_q.weight", d, qwen35 ? 2 * q_dim : q_dim, 1.4);
      if (keeps) matrix(blk + "attn_k.weight", d, kv_dim, 1.4);
      if (keeps && !k_is_v) matrix(blk + "attn_v.weight", d, kv_dim, 1.5);
    }
    const uint64_t result = latent ? uint64_t{spec.n_heads} * spec.latent_value : q_dim;
    if (attends) matrix(blk + "attn_output.weight", result, d, 1);
    const bool gpt_oss = is({"gpt-oss"});
    if (spec.biases || gpt_oss || is({"qwen2", "qwen2moe", "seed_oss", "glm4moe"})) {
      add(blk + "attn_q.bias", DType::f32, {q_dim}, 0, 0.5);
      add(blk + "attn_k.bias", DType::f32, {kv_dim}, 0, 0.5);
      add(blk + "attn_v.bias", DType::f32, {kv_dim}, 0, 0.5);
    }
    if (spec.biases || gpt_oss) add(blk + "attn_output.bias", DType::f32, {d}, 0, 0.2);
    if (spec.biases) {
      add(blk + "ffn_gate.bias", DType::f32, {spec.d_ff}, 0, 0.3);
      add(blk + "ffn_up.bias", DType::f32, {spec.d_ff}, 0, 0.3);
      add(blk + "ffn_down.bias", DType::f32, {d}, 0, 0.2);
    }
    if (qk_norm && attends) {
      const uint64_t head = spec.head_dim_of(l);
      // Scores are not scaled down by the size of a head.
      const double size = gemma4 || gemma3n ? 1.4 / std::pow(static_cast<double>(head), 0.25) : 1.4;
      add(blk + "attn_q_norm.weight", DType::f32, {whole_norm ? q_dim : head}, size, 0.2);
      if (keeps) {
        add(blk + "attn_k_norm.weight", DType::f32, {whole_norm ? kv_dim : head}, size, 0.2);
      }
    }
    if (spec.sinks || gpt_oss) add(blk + "attn_sinks.weight", DType::f32, {spec.n_heads}, 1, 1.5);
    if (gemma || post_only) {
      // Where a gate is cut, a small difference becomes a larger one. In many layers it would be
      // noise at last if a layer's results were as large as the row.
      const double size = !gemma3n ? 1 : spec.cut_layers > 4 ? 0.15 : 0.6;
      add(blk + "post_attention_norm.weight", DType::f32, {d}, size, 0.1);
      add(blk + "post_ffw_norm.weight", DType::f32, {d}, size, 0.1);
    }
    if (spec.fed(l) == 0) continue;
    if (nemotron) {
      const std::string next = "blk." + std::to_string(block + 1) + ".";
      add(next + "attn_norm.weight", DType::f32, {d}, 1, 0.1);
      if (spec.fed(l) == '-') {
        matrix(next + "ffn_up.weight", d, d_ff, 1);
        matrix(next + "ffn_down.weight", d_ff, d, 1);
        continue;
      }
      const uint64_t n = spec.n_experts, inner = spec.expert_d_ff,
                     read = spec.latent != 0 ? spec.latent : d;
      add(next + "ffn_gate_inp.weight", DType::f32, {d, n}, 0,
          2.5 / std::sqrt(static_cast<double>(d)));
      add(next + "exp_probs_b.bias", DType::f32, {n}, 0, 0.3);
      matrices(next + "ffn_up_exps.weight", {read, inner, n}, 1);
      matrices(next + "ffn_down_exps.weight", {inner, read, n}, 1);
      if (spec.latent != 0) {
        matrix(next + "ffn_latent_down.weight", d, read, 1);
        matrix(next + "ffn_latent_up.weight", read, d, 1);
      }
      matrix(next + "ffn_up_shexp.weight", d, spec.shared_d_ff, 1);
      matrix(next + "ffn_down_shexp.weight", spec.shared_d_ff, d, 1);
      continue;
    }
    const char* const ffn_norm = gpt_oss || qwen35 || is({"seed_oss", "glm4moe"})
                                     ? "post_attention_norm.weight"
                                 : spec.paired ? "ffn_norm"  // as the converter calls it
                                               : "ffn_norm.weight";
    if (!post_only) add(blk + ffn_norm, DType::f32, {d}, 1, 0.1);
    if (spec.n_experts != 0 && l >= spec.dense_layers) {
      const uint64_t n = spec.n_experts, inner = spec.expert_d_ff, shared = spec.shared_d_ff;
      // Spread so far that few choices are a matter of rounding.
      const double unit = std::sqrt(static_cast<double>(d));
      add(blk + "ffn_gate_inp.weight", DType::f32, {d, n}, 0, gemma4 ? 2.5 : 2.5 / unit);
      if ((deepseek && !spec.softmax) || is({"ernie4_5-moe"})) {
        add(blk + "exp_probs_b.bias", DType::f32, {n}, 0, 0.3);
      }
      // So large that gpt-oss's bound on them is met.
      const double gain = gpt_oss ? 4 : 1;
      if (gemma4) {
        matrices(blk + "ffn_gate_up_exps.weight", {d, 2 * inner, n}, gain);
      } else {
        matrices(blk + "ffn_gate_exps.weight", {d, inner, n}, gain);
        matrices(blk + "ffn_up_exps.weight", {d, inner, n}, gain);
      }
      matrices(blk + "ffn_down_exps.weight", {inner, d, n}, gpt_oss ? 0.15 : 1.5);
      if (gpt_oss) {
        add(blk + "ffn_gate_inp.bias", DType::f32, {n}, 0, 0.5);
        add(blk + "ffn_gate_exps.bias", DType::f32, {inner, n}, 0, 1);
        add(blk + "ffn_up_exps.bias", DType::f32, {inner, n}, 0, 1);
        add(blk + "ffn_down_exps.bias", DType::f32, {d, n}, 0, 0.3);
      }
      if (gemma4) {
        add(blk + "ffn_gate_inp.scale", DType::f32, {d}, 1, 0.1);
        add(blk + "ffn_down_exps.scale", DType::f32, {n}, 1, 0.3);
        for (const char* const norm : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"}) {
          add(blk + norm + ".weight", DType::f32, {d}, 1, 0.1);
        }
      }
      if (shared != 0) {
        if (weighed) add(blk + "ffn_gate_inp_shexp.weight", DType::f32, {d}, 0, 1.5 / unit);
        matrix(blk + "ffn_gate_shexp.weight", d, shared, 1);
        matrix(blk + "ffn_up_shexp.weight", d, shared, 1);
        matrix(blk + "ffn_down_shexp.weight", shared, d, 1);
      }
      if (!gemma4) continue;
    }
    if (!fused) matrix(blk + "ffn_gate.weight", d, d_ff, 1);
    matrix(blk + "ffn_up.weight", d, fused ? 2 * d_ff : d_ff, 1);
    matrix(blk + "ffn_down.weight", d_ff, d, 1);
    if (spec.input_dim != 0) {
      matrix(blk + "inp_gate.weight", d, spec.input_dim, 1);
      matrix(blk + "proj.weight", spec.input_dim, d, 1);
      add(blk + "post_norm.weight", DType::f32, {d}, 1, 0.1);
    }
    if (gemma3n) {
      const uint64_t n = spec.n_streams;
      matrix(blk + "laurel_l.weight", d, spec.laurel_rank, 1);
      matrix(blk + "laurel_r.weight", spec.laurel_rank, d, 1);
      add(blk + "laurel_post_norm.weight", DType::f32, {d}, 0.5, 0.1);
      // What the router reads is d_model times smaller than a normed row. Its scores are large
      // enough to matter, and what follows from them small enough for the streams to keep their
      // size.
      add(blk + "altup_router.weight", DType::f32, {d, n}, 0, std::sqrt(static_cast<double>(d)));
      add(blk + "altup_router_norm.weight", DType::f32, {d}, 1, 0.1);
      add(blk + "altup_predict_coef.weight", DType::f32, {n, n * n}, 0, 0.15);
      add(blk + "altup_correct_coef.weight", DType::f32, {n, n}, 0, 0.3);
      add(blk + "altup_correct_scale.weight", DType::f32, {d}, 1, 0.3);
    }
    if (gemma4) add(blk + "layer_output_scale.weight", DType::f32, {1}, 0.8, 0.1);
  }
  add(lfm2 ? "token_embd_norm.weight" : "output_norm.weight", DType::f32, {d}, 1, 0.1);
  if (!tied) matrix("output.weight", d, spec.n_vocab, 2.5);
  return w;
}

std::string write_random_model(const RandomModelSpec& spec, const std::string& path) {
  return random_model(spec).write(path);
}

}  // namespace blend::test
