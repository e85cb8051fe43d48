// Files of models whose layers do not all keep K and V of one width: read in each of the ways that
// converters write them, and refused by name where they contradict themselves.
#include <gtest/gtest.h>

#include <limits>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "model/model_source.h"
#include "support/hf_writer.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

// Changed files of a family's random model.
class MixerFile : public testing::Test {
 protected:
  Outcome opened(GgufWriter writer, Model* model = nullptr) {
    return try_open(ctx_, writer.write(dir_.file("other.gguf")), model);
  }
  void expect(int32_t code, const std::string& word, GgufWriter writer) {
    const Outcome got = opened(std::move(writer));
    EXPECT_EQ(got.code, code) << got.message;
    EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
  }
  TempDir dir_;
  Ctx ctx_ = make_ctx();
};

TEST_F(MixerFile, AGemma4IsReadAsConvertersWriteItAndRefusedByName) {
  const RandomModelSpec spec = random_family("gemma4");
  const Model plain = open_model(ctx_, write_random_model(spec, dir_.file("plain.gguf")));
  SplitMix rng(5);
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, random_tokens(rng, spec.n_vocab, 83), false}};
  // Converters keep K and V of layers that do not use them.
  GgufWriter more = random_model(spec);
  for (const char* const name :
       {"blk.6.attn_k.weight", "blk.6.attn_v.weight", "blk.6.attn_k_norm.weight"}) {
    more.tensor(name, kGgmlF32, {1}, std::string(4, '\0'));
  }
  Model model;
  ASSERT_EQ(opened(std::move(more), &model).message, "");
  const FuseCase whole{.policy = BLEND_POLICY_FULL};
  EXPECT_EQ(logits(fuse(model, Store(), prompt, whole)),
            logits(fuse(plain, Store(), prompt, whole)));

  const std::string a = "gemma4.attention.";
  const auto changed = [&] { return random_model(spec); };
  expect(BLEND_E_FORMAT, "shared_kv_layers", changed().u32(a + "shared_kv_layers", 8));
  expect(BLEND_E_FORMAT, "shares the K and V", changed().u32(a + "shared_kv_layers", 6));
  expect(BLEND_E_FORMAT, "sliding_window", changed().erase_key(a + "sliding_window"));
  expect(BLEND_E_FORMAT, "sliding_window_pattern", changed().u32(a + "sliding_window_pattern", 3));
  expect(BLEND_E_FORMAT, "key_length_swa", changed().erase_key(a + "key_length_swa"));
  expect(BLEND_E_FORMAT, "entries", changed().i32s(a + "head_count_kv", {2, 2}));
  expect(BLEND_E_FORMAT, "head_count", changed().i32s(a + "head_count_kv", std::vector(8, 3)));
  expect(BLEND_E_FORMAT, "feed_forward_length",
         changed().i32s("gemma4.feed_forward_length", std::vector(8, -1)));
  expect(BLEND_E_FORMAT, "per_layer_token_embd",
         changed().u32("gemma4.embedding_length_per_layer_input", 4));
  expect(BLEND_E_FORMAT, "blk.3.proj", changed().erase_tensor("blk.3.proj.weight"));
  expect(BLEND_E_FORMAT, "expert_used_count", changed().u32("gemma4.expert_count", 8));
  expect(BLEND_E_UNSUPPORTED, "blk.1.attn_q.bias",
         changed().tensor("blk.1.attn_q.bias", kGgmlF32, {64}, std::string(256, '\0')));
  expect(BLEND_E_UNSUPPORTED, "'bloom'",
         random_model(spec).string("general.architecture", "bloom"));
}

// The list of KV heads says which layers convolve.
TEST_F(MixerFile, AnLfm2ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("lfm2");
  const std::string kv = "lfm2.attention.head_count_kv", taps = "lfm2.shortconv.l_cache";
  const std::vector<int32_t> good = {0, 0, 2, 0, 0, 2, 0, 0};
  EXPECT_EQ(opened(random_model(spec).i32s(kv, good)).message, "");
  expect(BLEND_E_FORMAT, "entries", random_model(spec).i32s(kv, {0, 2}));
  expect(BLEND_E_UNSUPPORTED, "alike", random_model(spec).i32s(kv, {0, 0, 2, 0, 0, 1, 0, 0}));
  expect(BLEND_E_UNSUPPORTED, "attends", random_model(spec).i32s(kv, std::vector<int32_t>(8, 0)));
  // Layer 1 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.1.attn_q", random_model(spec).i32s(kv, {0, 2, 2, 0, 0, 2, 0, 0}));
  expect(BLEND_E_FORMAT, taps, random_model(spec).erase_key(taps));
  expect(BLEND_E_FORMAT, "shortconv.conv", random_model(spec).u32(taps, 4));
  expect(BLEND_E_FORMAT, "shortconv.in_proj",
         random_model(spec).erase_tensor("blk.0.shortconv.in_proj.weight"));
}

TEST_F(MixerFile, AQwen35ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("qwen35");
  const std::string layers = "qwen35.attention.recurrent_layers";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(std::string("qwen35.") + key, value);
  };
  const std::vector<int32_t> good = {1, 1, 1, 0, 1, 1, 1, 0};
  EXPECT_EQ(opened(random_model(spec).i32s(layers, good)).message, "");
  EXPECT_EQ(opened(random_model(spec).erase_key("qwen35.full_attention_interval")).message, "");
  expect(BLEND_E_FORMAT, "entries", random_model(spec).i32s(layers, {1, 0}));
  expect(BLEND_E_UNSUPPORTED, "attends",
         random_model(spec).i32s(layers, std::vector<int32_t>(8, 1)));
  expect(BLEND_E_UNSUPPORTED, "attend",
         random_model(spec).i32s(layers, std::vector<int32_t>(8, 0)));
  // Layer 1 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.1.attn_q", random_model(spec).i32s(layers, {1, 0, 1, 0, 1, 1, 1, 0}));
  expect(BLEND_E_FORMAT, "ssm_conv1d", file("ssm.conv_kernel", 3));
  expect(BLEND_E_FORMAT, "ssm.inner_size", file("ssm.inner_size", 95));
  expect(BLEND_E_FORMAT, "no multiple", file("ssm.group_count", 3));
  expect(BLEND_E_FORMAT, "attn_qkv", file("ssm.state_size", 12));
  expect(BLEND_E_FORMAT, "ssm.conv_kernel", random_model(spec).erase_key("qwen35.ssm.conv_kernel"));
  for (const char* name : {"ssm_a", "ssm_dt.bias", "ssm_norm.weight", "attn_gate.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(std::string("blk.0.") + name));
  }
}

TEST_F(MixerFile, AQwen3NextThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("qwen3next");
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(std::string("qwen3next.") + key, value);
  };
  const auto without = [&](const char* name) {
    return random_model(spec).erase_tensor(std::string("blk.1.") + name);
  };
  EXPECT_EQ(opened(random_model(spec)).message, "");
  for (const char* name : {"ssm_ba.weight", "attn_gate.weight", "ffn_gate_inp_shexp.weight",
                           "ffn_up_shexp.weight", "ffn_gate_inp.weight"}) {
    expect(BLEND_E_FORMAT, name, without(name));
  }
  // Four value heads give b and a eight rows.
  const std::string bytes(size_t{6} * 48 * 4, '\0');
  expect(BLEND_E_FORMAT, "'blk.1.ssm_ba.weight' has the shape [6, 48]",
         random_model(spec).tensor("blk.1.ssm_ba.weight", kGgmlF32, {48, 6}, bytes));
  expect(BLEND_E_FORMAT, "'blk.1.ssm_ba.weight' has the shape [384]",
         random_model(spec).tensor("blk.1.ssm_ba.weight", kGgmlF32, {384},
                                   std::string(size_t{384} * 4, '\0')));
  expect(BLEND_E_FORMAT, "no multiple", file("ssm.group_count", 3));
  expect(BLEND_E_FORMAT, "expert_count' is 0", file("expert_count", 0));
  expect(BLEND_E_FORMAT, "1 to the 8", file("expert_used_count", 9));
  expect(BLEND_E_FORMAT, "ffn_gate_shexp", file("expert_shared_feed_forward_length", 25));
  expect(BLEND_E_UNSUPPORTED, "shexp", file("expert_shared_feed_forward_length", 0));
  // A Qwen3.5 has no place for what stands by key head.
  RandomModelSpec tiled = spec;
  tiled.architecture = "qwen35moe";
  const std::string eight(size_t{8} * 48 * 4, '\0');
  expect(BLEND_E_FORMAT, "blk.1.ssm_beta",
         random_model(tiled)
             .erase_tensor("blk.1.ssm_beta.weight")
             .tensor("blk.1.ssm_ba.weight", kGgmlF32, {48, 8}, eight));
}

// The first files of a Qwen3-Next have q, k, v and z of each key head in one tensor.
TEST_F(MixerFile, AQwen3NextMayHaveOneProjection) {
  const RandomModelSpec spec = random_family("qwen3next");
  GgufWriter old = random_model(spec);
  auto source = open_model_source(random_model(spec).write(dir_.file("new.gguf")));
  ASSERT_TRUE(source.is_ok());
  const RowMixer& m = (*source)->config().mixer;
  const int64_t k = m.k_dim, v = int64_t{m.v_heads} / m.k_heads * m.v_dim;
  for (uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    if (!m.has(layer)) continue;
    const TensorView& qkv = (*source)->tensor(TensorRole::delta_qkv, layer);
    const TensorView& z = (*source)->tensor(TensorRole::delta_z, layer);
    std::string rows;
    const auto append = [&](const TensorView& from, int64_t first, int64_t n) {
      rows.append(reinterpret_cast<const char*>(from.row(first)),
                  static_cast<size_t>(n) * from.row_bytes());
    };
    for (int64_t head = 0; head < m.k_heads; ++head) {
      append(qkv, head * k, k);
      append(qkv, (m.k_heads + head) * k, k);
      append(qkv, 2 * m.k_heads * k + head * v, v);
      append(z, head * v, v);
    }
    const std::string blk = "blk." + std::to_string(layer) + ".";
    old.erase_tensor(blk + "attn_qkv.weight").erase_tensor(blk + "attn_gate.weight");
    old.tensor(blk + "ssm_in.weight", kGgmlF32, {48, rows.size() / (48 * 4)}, rows);
  }
  const Model one = open_model(ctx_, dir_.file("new.gguf")),
              other = open_model(ctx_, old.write(dir_.file("old.gguf")));
  ASSERT_TRUE(one && other);
  SplitMix rng(3);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(3 + rng.below(297)));
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, tokens, false}};
  const FuseCase full{.policy = BLEND_POLICY_FULL};
  EXPECT_EQ(logits(fuse(one, Store(), prompt, full)), logits(fuse(other, Store(), prompt, full)));
}

// Rows of blocks are put in order as those of elements are.
TEST_F(MixerFile, AQwen3NextMayBeQuantized) {
  RandomModelSpec spec = random_family("qwen3next");
  spec.n_layers = 4;
  spec.blocks = {BlockType::q4_0, BlockType::q8_0};
  spec.d_model = spec.d_ff = spec.expert_d_ff = spec.shared_d_ff = 64;
  spec.head_dim = spec.delta_dim = 32;
  const Model file = open_model(ctx_, write_random_model(spec, dir_.file("blocks.gguf"))),
              directory = open_model(ctx_, write_random_hf(spec, dir_.file("hf")));
  ASSERT_TRUE(file && directory);
  SplitMix rng(3);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(3 + rng.below(297)));
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, tokens, false}};
  const FuseCase full{.policy = BLEND_POLICY_FULL};
  EXPECT_LE(max_difference(logits(fuse(file, Store(), prompt, full)),
                           logits(fuse(directory, Store(), prompt, full))),
            kLogitTolerance);
}

TEST_F(MixerFile, AGemma4WithExpertsThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("gemma4_26b");
  EXPECT_EQ(opened(random_model(spec)).message, "");
  for (const char* name :
       {"ffn_gate_inp.scale", "ffn_down_exps.scale", "pre_ffw_norm_2.weight",
        "post_ffw_norm_1.weight", "post_ffw_norm_2.weight", "ffn_gate_inp.weight",
        "ffn_gate.weight", "ffn_down.weight", "ffn_down_exps.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(std::string("blk.1.") + name));
  }
  expect(BLEND_E_FORMAT, "1 to the 8", random_model(spec).u32("gemma4.expert_used_count", 9));
  // Without experts their tensors have no place.
  expect(BLEND_E_UNSUPPORTED, "blk.0.", random_model(spec).erase_key("gemma4.expert_count"));
}

TEST_F(MixerFile, AGemma3nThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("gemma3n");
  const std::string a = "gemma3n.attention.", cuts = "gemma3n.activation_sparsity_scale";
  const auto changed = [&] { return random_model(spec); };
  EXPECT_EQ(opened(changed()).message, "");
  // Converters keep K and V of layers that do not use them.
  EXPECT_EQ(
      opened(changed().tensor("blk.7.attn_k.weight", kGgmlF32, {1}, std::string(4, '\0'))).message,
      "");
  EXPECT_EQ(opened(changed().i32s("gemma3n.feed_forward_length", std::vector(8, 80))).message, "");
  expect(BLEND_E_FORMAT, "shared_kv_layers", changed().u32(a + "shared_kv_layers", 8));
  expect(BLEND_E_FORMAT, "shares the K and V", changed().u32(a + "shared_kv_layers", 7));
  expect(BLEND_E_FORMAT, "sliding_window", changed().erase_key(a + "sliding_window"));
  expect(BLEND_E_FORMAT, "sliding_window_pattern", changed().u32(a + "sliding_window_pattern", 2));
  expect(BLEND_E_FORMAT, "embedding_length_per_layer_input",
         changed().erase_key("gemma3n.embedding_length_per_layer_input"));
  expect(BLEND_E_FORMAT, "per_layer_token_embd",
         changed().u32("gemma3n.embedding_length_per_layer_input", 4));
  expect(BLEND_E_FORMAT, "altup.num_inputs", changed().erase_key("gemma3n.altup.num_inputs"));
  expect(BLEND_E_FORMAT, "altup.num_inputs", changed().u32("gemma3n.altup.num_inputs", 17));
  expect(BLEND_E_UNSUPPORTED, "altup.num_inputs", changed().u32("gemma3n.altup.num_inputs", 1));
  expect(BLEND_E_UNSUPPORTED, "altup.active_idx", changed().u32("gemma3n.altup.active_idx", 1));
  expect(BLEND_E_FORMAT, "altup_proj", changed().u32("gemma3n.altup.num_inputs", 3));
  expect(BLEND_E_FORMAT, cuts, changed().erase_key(cuts));
  expect(BLEND_E_FORMAT, cuts, changed().f32s(cuts, {1, 2}));
  expect(BLEND_E_FORMAT, cuts,
         changed().f32s(cuts, std::vector(8, std::numeric_limits<float>::infinity())));
  expect(BLEND_E_FORMAT, cuts,
         changed().f32s(cuts, std::vector(8, std::numeric_limits<float>::quiet_NaN())));
  // A mean and some deviations below it cut too, and nothing is another model.
  const float none = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(opened(changed().f32s(cuts, std::vector(8, none))).message, "");
  EXPECT_EQ(opened(changed().f32s(cuts, std::vector(8, -0.5f))).message, "");
  for (const char* name :
       {"blk.0.laurel_l.weight", "blk.3.laurel_r.weight", "blk.3.laurel_post_norm.weight",
        "blk.3.altup_router.weight", "blk.3.altup_router_norm.weight",
        "blk.3.altup_predict_coef.weight", "blk.3.altup_correct_coef.weight",
        "blk.3.altup_correct_scale.weight", "blk.3.inp_gate.weight", "altup_proj.weight",
        "altup_unembd_proj.weight"}) {
    expect(BLEND_E_FORMAT, name, changed().erase_tensor(name));
  }
  expect(BLEND_E_FORMAT, "blk.0.laurel_l.weight",
         changed().tensor("blk.0.laurel_l.weight", kGgmlF32, {48}, std::string(192, '\0')));
  expect(BLEND_E_UNSUPPORTED, "layer_output_scale",
         changed().tensor("blk.0.layer_output_scale.weight", kGgmlF32, {1}, std::string(4, '\0')));
}

TEST_F(MixerFile, ANemotronHThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("nemotron_h");  // M-M*-MM-*-M-
  const std::string kv = "nemotron_h.attention.head_count_kv",
                    ff = "nemotron_h.feed_forward_length";
  const auto heads = [&](std::vector<int32_t> list) { return random_model(spec).i32s(kv, list); };
  const auto widths = [&](std::vector<int32_t> list) { return random_model(spec).i32s(ff, list); };
  const std::vector<int32_t> good = {0, 80, 0, 0, 80, 0, 0, 80, 0, 80, 0, 80};
  EXPECT_EQ(opened(widths(good)).message, "");
  expect(BLEND_E_FORMAT, "entries", widths({0, 80}));
  expect(BLEND_E_UNSUPPORTED, "nextn_predict_layers",
         random_model(spec).u32("nemotron_h.nextn_predict_layers", 1));
  expect(BLEND_E_FORMAT, "feed_forward_length", random_model(spec).erase_key(ff).u32(ff, 80));
  expect(BLEND_E_FORMAT, "entries", random_model(spec).erase_key(kv));
  expect(BLEND_E_FORMAT, "entries", heads({0, 2}));
  expect(BLEND_E_FORMAT, "feed_forward_length", widths(std::vector<int32_t>(12, 0)));
  expect(BLEND_E_UNSUPPORTED, "alike", widths({0, 80, 0, 0, 80, 0, 0, 80, 0, 80, 0, 40}));
  expect(BLEND_E_UNSUPPORTED, "alike", widths({0, 80, 0, 0, -1, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_UNSUPPORTED, "has both", widths({0, 80, 0, 80, 80, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_UNSUPPORTED, "layer 0 is a feed-forward",
         widths({80, 0, 0, 0, 80, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_UNSUPPORTED, "layer 2 is a feed-forward",
         widths({0, 80, 80, 0, 80, 0, 0, 80, 0, 80, 0, 80}));
  expect(BLEND_E_FORMAT, "head_count_kv", heads(std::vector<int32_t>(12, 0)));
  // Layer 10 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.10.attn_q", heads({0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 2, 0}));
  for (const char* name :
       {"blk.11.attn_norm.weight", "blk.11.ffn_up.weight", "blk.4.ffn_down.weight",
        "blk.5.attn_norm.weight", "blk.5.ssm_in.weight", "blk.3.attn_v.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(name));
  }
  expect(BLEND_E_UNSUPPORTED, "blk.1.ffn_gate",
         random_model(spec).tensor("blk.1.ffn_gate.weight", kGgmlF32, {1}, std::string(4, '\0')));
}

TEST_F(MixerFile, ANemotron3ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("nemotron_3_latent");  // MEMEM*EMME*E
  const std::string at = "nemotron_h_moe.";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(at + key, value);
  };
  EXPECT_EQ(opened(random_model(spec)).message, "");
  // Each of these is a file's own number of a layer.
  for (const char* name :
       {"blk.1.attn_norm.weight", "blk.1.ffn_gate_inp.weight", "blk.3.ffn_up_exps.weight",
        "blk.6.ffn_down_exps.weight", "blk.9.ffn_up_shexp.weight", "blk.11.ffn_down_shexp.weight",
        "blk.11.ffn_latent_down.weight", "blk.3.ffn_latent_up.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(name));
  }
  // The first layer with experts speaks for all.
  expect(BLEND_E_UNSUPPORTED, "blk.3.exp_probs_b.bias",
         random_model(spec).erase_tensor("blk.1.exp_probs_b.bias"));
  expect(BLEND_E_FORMAT, "blk.3.exp_probs_b.bias",
         random_model(spec).erase_tensor("blk.3.exp_probs_b.bias"));
  expect(
      BLEND_E_UNSUPPORTED, "blk.1.ffn_gate_exps",
      random_model(spec).tensor("blk.1.ffn_gate_exps.weight", kGgmlF32, {1}, std::string(4, '\0')));
  // Experts without gates have no biases; two of them were read as three.
  expect(
      BLEND_E_UNSUPPORTED, "blk.1.ffn_gate_exps.bias",
      random_model(spec).tensor("blk.1.ffn_gate_exps.bias", kGgmlF32, {1}, std::string(4, '\0')));
  expect(BLEND_E_FORMAT, "'blk.1.ffn_latent_down.weight' has the shape [24, 48]",
         file("moe_latent_size", 23));
  expect(BLEND_E_FORMAT, "'blk.1.ffn_up_exps.weight' has the shape [8, 40, 24]",
         random_model(spec).erase_key(at + "moe_latent_size"));
  expect(BLEND_E_FORMAT, "expert_count' is 0", file("expert_count", 0));
  expect(BLEND_E_FORMAT, "1 to the 8", file("expert_used_count", 9));
  expect(BLEND_E_FORMAT, "ffn_up_shexp", file("expert_shared_feed_forward_length", 55));
  expect(BLEND_E_UNSUPPORTED, "alike",
         random_model(spec).i32s(at + "feed_forward_length",
                                 {0, 40, 0, 40, 0, 0, 39, 0, 0, 40, 0, 40}));
  expect(BLEND_E_UNSUPPORTED, "nextn_predict_layers", file("nextn_predict_layers", 1));
}

TEST_F(MixerFile, AFalconH1ThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("falcon_h1");
  const std::string at = "falcon-h1.";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(at + key, value);
  };
  EXPECT_EQ(opened(random_model(spec)).message, "");
  for (const char* name :
       {"attn_norm.weight", "attn_q.weight", "attn_v.weight", "attn_output.weight", "ssm_in.weight",
        "ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_dt.bias", "ssm_out.weight", "ffn_norm",
        "ffn_gate.weight", "ffn_down.weight"}) {
    const std::string of_last = std::string("blk.3.") + name;
    expect(BLEND_E_FORMAT, of_last, random_model(spec).erase_tensor(of_last));
  }
  for (const char* key : {"conv_kernel", "state_size", "group_count", "time_step_rank"}) {
    expect(BLEND_E_FORMAT, key, random_model(spec).erase_key(at + "ssm." + key));
  }
  expect(BLEND_E_FORMAT, "does not divide it", file("ssm.inner_size", 81));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("ssm.inner_size", 160));
  expect(BLEND_E_UNSUPPORTED, "without a window", file("attention.sliding_window", 9));
  expect(BLEND_E_FORMAT, "blk.4.attn_norm", file("block_count", 5));
  expect(BLEND_E_UNSUPPORTED, "blk.3.", file("block_count", 3));
  expect(BLEND_E_FORMAT, "block_count", file("block_count", 40000));
  // Where the first layer has a norm of y, all have.
  expect(BLEND_E_FORMAT, "blk.1.ssm_norm.weight",
         random_model(spec).tensor("blk.0.ssm_norm.weight", kGgmlF32, {40, 2},
                                   std::string(size_t{80} * 4, '\0')));
  expect(BLEND_E_UNSUPPORTED, "blk.1.ssm_norm.weight",
         random_model(spec).tensor("blk.1.ssm_norm.weight", kGgmlF32, {40, 2},
                                   std::string(size_t{80} * 4, '\0')));
  // A file whose Mamba-2s have one.
  RandomModelSpec normed = spec;
  normed.ssm_norm = true;
  EXPECT_EQ(opened(random_model(normed)).message, "");
}

TEST_F(MixerFile, AGranite4HThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("granite4_h");
  const std::string kv = "granitehybrid.attention.head_count_kv";
  const auto file = [&](const char* key, uint32_t value) {
    return random_model(spec).u32(std::string("granitehybrid.ssm.") + key, value);
  };
  EXPECT_EQ(opened(random_model(spec).i32s(kv, {0, 0, 0, 2, 0, 0, 0, 2})).message, "");
  expect(BLEND_E_FORMAT, "entries", random_model(spec).i32s(kv, {0, 2}));
  expect(BLEND_E_UNSUPPORTED, "alike", random_model(spec).i32s(kv, {0, 0, 0, 2, 0, 0, 0, 1}));
  expect(BLEND_E_UNSUPPORTED, "attends", random_model(spec).i32s(kv, std::vector<int32_t>(8, 0)));
  // Layer 1 is said to attend, and has no Q.
  expect(BLEND_E_FORMAT, "blk.1.attn_q", random_model(spec).i32s(kv, {0, 2, 0, 2, 0, 0, 0, 2}));
  expect(BLEND_E_FORMAT, "ssm_conv1d", file("conv_kernel", 3));
  expect(BLEND_E_FORMAT, "ssm.conv_kernel", file("conv_kernel", 65));
  expect(BLEND_E_FORMAT, "does not divide it", file("inner_size", 95));
  expect(BLEND_E_FORMAT, "ssm.inner_size", file("inner_size", 0));
  expect(BLEND_E_FORMAT, "no multiple", file("group_count", 3));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("group_count", 1));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("state_size", 16384));
  expect(BLEND_E_FORMAT, "states of",
         file("state_size", 16384).u32("granitehybrid.ssm.inner_size", 4 * 16384));
  // Columns of states are kept by tiles of 16, however few a head has.
  expect(BLEND_E_FORMAT, "states of 65536 times 512",
         file("state_size", 512)
             .u32("granitehybrid.ssm.inner_size", 4096)
             .u32("granitehybrid.ssm.time_step_rank", 4096));
  expect(BLEND_E_FORMAT, "ssm_conv1d.weight", file("inner_size", 192));
  expect(BLEND_E_UNSUPPORTED, "odd number",
         file("time_step_rank", 1).u32("granitehybrid.ssm.group_count", 1));
  for (const char* key : {"conv_kernel", "state_size", "group_count", "time_step_rank"}) {
    expect(BLEND_E_FORMAT, key,
           random_model(spec).erase_key(std::string("granitehybrid.ssm.") + key));
  }
  for (const char* name : {"ssm_in.weight", "ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_dt.bias",
                           "ssm_norm.weight", "ssm_out.weight"}) {
    expect(BLEND_E_FORMAT, name, random_model(spec).erase_tensor(std::string("blk.0.") + name));
  }
  // Where the first layer's convolution has a bias, all have.
  expect(BLEND_E_FORMAT, "blk.1.ssm_conv1d.bias",
         random_model(spec).erase_tensor("blk.1.ssm_conv1d.bias"));
  expect(BLEND_E_UNSUPPORTED, "blk.1.ssm_conv1d.bias",
         random_model(spec).erase_tensor("blk.0.ssm_conv1d.bias"));
  expect(BLEND_E_UNSUPPORTED, "ssm_in.bias",
         random_model(spec).tensor("blk.0.ssm_in.bias", kGgmlF32, {1}, std::string(4, '\0')));
}

TEST_F(MixerFile, ADeepSeekThatContradictsItselfIsRefused) {
  const RandomModelSpec spec = random_family("deepseek3");
  const std::string a = "deepseek2.attention.", rotates = "deepseek2.rope.dimension_count";
  const auto file = [&] { return random_model(spec); };
  EXPECT_EQ(opened(file().u32(a + "head_count_kv", spec.n_heads)).message, "");
  expect(BLEND_E_UNSUPPORTED, "head_count_kv", file().u32(a + "head_count_kv", 2));
  for (const char* const key : {"kv_lora_rank", "value_length_mla"}) {
    expect(BLEND_E_FORMAT, key, file().erase_key(a + key));
  }
  expect(BLEND_E_FORMAT, "dimension_count", file().erase_key(rotates));
  expect(BLEND_E_FORMAT, "a part of it", file().u32(a + "key_length_mla", 8));
  expect(BLEND_E_FORMAT, "attn_kv_a_mqa", file().u32(a + "kv_lora_rank", 30));
  expect(BLEND_E_UNSUPPORTED, "even numbers", file().u32(a + "kv_lora_rank", 31));
  expect(BLEND_E_UNSUPPORTED, "even numbers", file().u32(rotates, 7));
  // No more elements may rotate than not.
  expect(BLEND_E_UNSUPPORTED, "even numbers", file().u32(a + "kv_lora_rank", 6));
  expect(BLEND_E_FORMAT, "attn_q.weight", file().u32(a + "q_lora_rank", 0));
  expect(BLEND_E_FORMAT, "attn_output", file().u32(a + "value_length_mla", 15));
  expect(BLEND_E_UNSUPPORTED, "temperature_scale", file().f32(a + "temperature_scale", 0.1f));
  for (const char* name :
       {"attn_q_a.weight", "attn_q_a_norm.weight", "attn_q_b.weight", "attn_kv_a_mqa.weight",
        "attn_kv_a_norm.weight", "attn_v_b.weight", "attn_output.weight"}) {
    expect(BLEND_E_FORMAT, name, file().erase_tensor(std::string("blk.3.") + name));
  }
  expect(BLEND_E_FORMAT, "attn_k_b.weight", file().erase_tensor("blk.3.attn_k_b.weight"));
  expect(BLEND_E_FORMAT, "attn_kv_b.weight",
         file().erase_tensor("blk.3.attn_k_b.weight").erase_tensor("blk.3.attn_v_b.weight"));
  const RandomModelSpec old = random_family("glm4_7_flash");
  EXPECT_EQ(opened(random_model(old)).message, "");
  expect(BLEND_E_FORMAT, "attn_q_b.weight", random_model(old).u32(a + "key_length", 23));
  GgufWriter other = random_model(old);
  other.erase_tensor("blk.3.attn_kv_b.weight")
      .tensor("blk.3.attn_kv_b.weight", kGgmlF32, {32, 4}, std::string(512, '\0'));
  expect(BLEND_E_FORMAT, "attn_kv_b.weight", std::move(other));
}

// In an older file the matrix of all heads is cut, and what is turned over becomes f16.
TEST_F(MixerFile, ADeepSeekMayBeQuantized) {
  for (const char* const name : {"deepseek3", "glm4_7_flash"}) {
    RandomModelSpec spec = random_family(name);
    spec.n_layers = 4;
    spec.blocks = {BlockType::q4_0, BlockType::q8_0};
    spec.d_model = spec.d_ff = spec.expert_d_ff = spec.shared_d_ff = 64;
    spec.latent_q_rank = spec.latent_nope = spec.latent_value = 32;
    const Model file = open_model(ctx_, write_random_model(spec, dir_.file("blocks.gguf"))),
                directory = open_model(ctx_, write_random_hf(spec, dir_.file(name)));
    ASSERT_TRUE(file && directory) << name;
    SplitMix rng(3);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(3 + rng.below(297)));
    const Prompt prompt = {{BLEND_SEGMENT_QUESTION, tokens, false}};
    const FuseCase full{.policy = BLEND_POLICY_FULL};
    EXPECT_LE(max_difference(logits(fuse(file, Store(), prompt, full)),
                             logits(fuse(directory, Store(), prompt, full))),
              spec.old_latent ? 0.02 : kLogitTolerance)
        << name;
  }
}

// What such a file leaves to its reader.
TEST_F(MixerFile, ADeepSeekSaysSomeThingsByItsTensors) {
  const RandomModelSpec spec = random_family("deepseek3");
  const auto answer = [&](GgufWriter writer) {
    const Model model = open_model(ctx_, writer.write(dir_.file("other.gguf")));
    const Prompt prompt = {{BLEND_SEGMENT_QUESTION, {5, 9, 11, 8, 70, 33, 21, 105}, false}};
    return logits(fuse(model, Store(), prompt, {.policy = BLEND_POLICY_FULL}));
  };
  const std::vector<float> usual = answer(random_model(spec));
  // Experts with a bias are chosen by sigmoid.
  EXPECT_EQ(answer(random_model(spec).erase_key("deepseek2.expert_gating_func")), usual);
  EXPECT_NE(answer(random_model(spec).u32("deepseek2.expert_gating_func", 1)), usual);
  // Some converters kept what they cut.
  GgufWriter more = random_model(spec);
  more.tensor("blk.0.attn_kv_b.weight", kGgmlF32, {1}, std::string(4, '\0'));
  EXPECT_EQ(answer(std::move(more)), usual);
  // YaRN's factor on scores, and which elements rotate.
  EXPECT_NE(answer(random_model(spec).erase_key("deepseek2.rope.scaling.yarn_log_multiplier")),
            usual);
}

}  // namespace
}  // namespace blend::test
