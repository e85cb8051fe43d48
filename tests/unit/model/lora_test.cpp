// Adapters that are damaged, contradict themselves, belong to another model or ask for more than
// LoRA: each is refused by the name of what is wrong. What sound ones compute:
// tests/conformance/lora_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/lora/lora_adapter.h"
#include "support/lora_writer.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

using nlohmann::json;

ModelConfig config_of_spec(const RandomModelSpec& spec) {
  const TempDir dir;
  const auto source = open_model_source(write_random_model(spec, dir.file("model.gguf")));
  return source.value()->config();
}

class LoraFile : public testing::Test {
 protected:
  void SetUp() override { spec_.n_layers = 2; }

  const ModelConfig& config() {
    if (config_.n_layers == 0) config_ = config_of_spec(spec_);
    return config_;
  }
  Status read(const GgufWriter& writer) {
    const std::string bytes = writer.bytes();
    return read_gguf_lora({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                          config(), HeadRows::gguf)
        .status();
  }
  GgufWriter sound() { return gguf_lora(random_lora(spec_, 3)); }

  RandomModelSpec spec_;
  ModelConfig config_;
};

#define EXPECT_REFUSED(code_, words, status)                                      \
  do {                                                                            \
    const Status said_ = (status);                                                \
    EXPECT_EQ(said_.code(), code_) << said_.message();                            \
    EXPECT_NE(said_.message().find(words), std::string::npos) << said_.message(); \
  } while (false)

std::string floats(size_t n, float value = 0.5f) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += gguf_bytes(value);
  return out;
}

TEST_F(LoraFile, KeysSayWhatItIs) {
  EXPECT_TRUE(read(sound()).is_ok());
  EXPECT_REFUSED(BLEND_E_FORMAT, "general.type", read(sound().erase_key("general.type")));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "'model'", read(sound().string("general.type", "model")));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "control_vector",
                 read(sound().string("adapter.type", "control_vector")));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "adapter.alora.invocation_tokens",
                 read(sound().i32s("adapter.alora.invocation_tokens", {1})));
  EXPECT_REFUSED(BLEND_E_MISMATCH, "'qwen2'",
                 read(sound().string("general.architecture", "qwen2")));
  EXPECT_REFUSED(BLEND_E_MISMATCH, "missing", read(sound().erase_key("general.architecture")));
  EXPECT_REFUSED(BLEND_E_FORMAT, "not finite", read(sound().f32("adapter.lora.alpha", INFINITY)));
}

TEST_F(LoraFile, HalvesRanksAndShapesAgree) {
  const std::string q = "blk.1.attn_q.weight";
  const uint64_t d = spec_.d_model, out = spec_.n_heads * spec_.head_dim;
  const auto with = [&](std::vector<uint64_t> a, std::vector<uint64_t> b) {
    GgufWriter w = sound();
    w.tensor(q + ".lora_a", kGgmlF32, a, floats(a[0] * (a.size() > 1 ? a[1] : 1)));
    w.tensor(q + ".lora_b", kGgmlF32, b, floats(b[0] * (b.size() > 1 ? b[1] : 1)));
    return read(w);
  };
  EXPECT_TRUE(with({d, 3}, {3, out}).is_ok());
  EXPECT_REFUSED(BLEND_E_FORMAT, q + ".lora_b", with({d, 3}, {4, out}));
  EXPECT_REFUSED(BLEND_E_MISMATCH, q + ".lora_a", with({d + 1, 3}, {3, out}));
  EXPECT_REFUSED(BLEND_E_MISMATCH, q + ".lora_b", with({d, 3}, {3, out - 1}));
  EXPECT_REFUSED(BLEND_E_MISMATCH, q + ".lora_a", with({d}, {1, out}));
  EXPECT_REFUSED(BLEND_E_MISMATCH, q + ".lora_b", with({d, 1}, {out}));
  EXPECT_REFUSED(BLEND_E_FORMAT, q, read(sound().erase_tensor(q + ".lora_a")));
  EXPECT_REFUSED(BLEND_E_FORMAT, q, read(sound().erase_tensor(q + ".lora_b")));
  GgufWriter empty;
  empty.string("general.type", "adapter").string("general.architecture", "llama");
  empty.string("adapter.type", "lora");
  EXPECT_REFUSED(BLEND_E_FORMAT, "no matrices", read(empty));
}

TEST_F(LoraFile, OtherTensorsAreRefusedByName) {
  const auto with = [&](const std::string& name) {
    GgufWriter w = sound();
    for (const char* half : {".lora_a", ".lora_b"})
      w.tensor(name + half, kGgmlF32, {1, 1}, floats(1));
    return read(w);
  };
  for (const char* name :
       {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_down_exps.bias", "blk.0.ffn_gate_inp.weight",
        "blk.0.ffn_up_shexp.weight", "blk.0.attn_q.bias", "blk.0.attn_norm.weight",
        "blk.attn_q.weight", "blk.0attn_q.weight", "nonsense", "blk.0.laurel_l.weight",
        "blk.0.laurel_r.weight", "blk.0.altup_router.weight", "blk.0.altup_predict_coef.weight",
        "blk.0.altup_correct_coef.weight", "altup_proj.weight", "altup_unembd_proj.weight"}) {
    EXPECT_REFUSED(BLEND_E_UNSUPPORTED, name, with(name));
  }
  EXPECT_REFUSED(BLEND_E_MISMATCH, "layer 2", with("blk.2.attn_q.weight"));
  // The first one of an embedding is turned: a row for each token.
  EXPECT_REFUSED(BLEND_E_MISMATCH, "[320, 1]", with("token_embd.weight"));
  const auto embedding = [&](uint64_t rank, uint64_t rank_of_up) {
    GgufWriter w = sound();
    const uint64_t n_vocab = 320, width = spec_.d_model;
    w.tensor("token_embd.weight.lora_a", kGgmlF32, {rank, n_vocab}, floats(rank * n_vocab));
    w.tensor("token_embd.weight.lora_b", kGgmlF32, {rank_of_up, width}, floats(rank_of_up * width));
    return read(w);
  };
  EXPECT_TRUE(embedding(2, 2).is_ok());
  EXPECT_REFUSED(BLEND_E_FORMAT, "has the rank 2", embedding(2, 3));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "blk.0.attn_norm.weight",
                 read(sound().tensor("blk.0.attn_norm.weight", kGgmlF32, {1}, floats(1))));
  EXPECT_REFUSED(
      BLEND_E_UNSUPPORTED, "Q8_K",
      read(sound().tensor("blk.0.attn_q.weight.lora_a", 15, {256, 1}, std::string(292, '\0'))));
}

TEST_F(LoraFile, DenseMatricesOfALayerWithExpertsAreNone) {
  for (const RandomFamily& family : random_families()) {
    if (family.name == "mixtral") spec_ = family.spec;
  }
  GgufWriter w = sound();
  const std::string name = "blk.0.ffn_down.weight";
  w.tensor(name + ".lora_a", kGgmlF32, {spec_.d_ff, 1}, floats(spec_.d_ff));
  w.tensor(name + ".lora_b", kGgmlF32, {1, spec_.d_model}, floats(spec_.d_model));
  EXPECT_REFUSED(BLEND_E_MISMATCH, name, read(w));
}

TEST_F(LoraFile, ValuesAreFinite) {
  const std::string name = "blk.1.attn_output.weight.lora_b";
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), INFINITY}) {
    RandomLora lora = random_lora(spec_, 3);
    for (LoraPair& p : lora.pairs) {
      if (p.layer == 1 && p.roles[0] == TensorRole::attn_out) p.up[p.rank + 0] = bad;
    }
    EXPECT_REFUSED(BLEND_E_NUMERIC, name, read(gguf_lora(lora)));
    EXPECT_REFUSED(BLEND_E_NUMERIC, "[1, 0]", read(gguf_lora(lora)));
  }
}

// Halves and blocks say the same as F32 where they hold the numbers.
TEST_F(LoraFile, OtherTypesOfElements) {
  GgufWriter w = sound();
  std::string halves;
  for (size_t i = 0; i < spec_.d_model; ++i) {
    const uint16_t h = f32_to_f16(0.5f);
    halves += {static_cast<char>(h & 255), static_cast<char>(h >> 8)};
  }
  const std::string q = "blk.0.attn_q.weight";
  w.tensor(q + ".lora_a", kGgmlF16, {spec_.d_model, 1}, halves);
  w.tensor(q + ".lora_b", kGgmlF32, {1, 64}, floats(64));
  const std::string bytes = w.bytes();
  const auto read_back = read_gguf_lora(
      {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, config(), HeadRows::gguf);
  ASSERT_TRUE(read_back.is_ok()) << read_back.status().message();
  for (const LoraMatrix& m : read_back.value().matrices) {
    if (m.layer != 0 || m.role != TensorRole::attn_q) continue;
    EXPECT_EQ(m.down, std::vector<float>(spec_.d_model, 0.5f));
    EXPECT_EQ(m.factor, 12);
  }
}

class PeftDirectory : public testing::Test {
 protected:
  PeftDirectory() { write_peft_lora(spec_, random_lora(spec_, 3), dir_.path()); }

  Status open() {
    return open_lora_adapter(dir_.path(), config_of_spec(spec_), HeadRows::gguf).status();
  }
  // With one member changed.
  Status with(const std::string& member, const json& value) {
    const std::string path = dir_.file("adapter_config.json");
    const std::string before = slurp(path);
    json config = json::parse(before);
    config[member] = value;
    write_file(path, config.dump());
    Status said = open();
    write_file(path, before);
    return said;
  }
  // With one tensor more.
  Status with_tensor(const std::string& name) {
    const std::string path = dir_.file("adapter_model.safetensors");
    const std::string before = slurp(path);
    write_file(path, safetensors_bytes({{name, {1, 1}, {0.5f}}}));
    Status said = open();
    write_file(path, before);
    return said;
  }
  static std::string slurp(const std::string& path) {
    std::string out(std::filesystem::file_size(path), '\0');
    FILE* const file = std::fopen(path.c_str(), "rb");
    EXPECT_EQ(std::fread(out.data(), 1, out.size(), file), out.size());
    std::fclose(file);
    return out;
  }

  TempDir dir_;
  RandomModelSpec spec_ = {.n_layers = 2};
};

TEST_F(PeftDirectory, OtherMethodsAreRefusedByName) {
  EXPECT_TRUE(open().is_ok()) << open().message();
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "use_dora", with("use_dora", true));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "modules_to_save", with("modules_to_save", {"lm_head"}));
  EXPECT_TRUE(with("modules_to_save", json::array()).is_ok());
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "'lora_only'", with("bias", "lora_only"));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "'IA3'", with("peft_type", "IA3"));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "fan_in_fan_out", with("fan_in_fan_out", true));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "layer_replication", with("layer_replication", {{0, 1}}));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "alora_invocation_tokens",
                 with("alora_invocation_tokens", {1, 2}));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "regular expression", with("rank_pattern", {{"q.*", 2}}));
  for (const char* const way : {"pissa_niter_16", "olora", "corda", "loftq", "lora_ga"}) {
    EXPECT_REFUSED(BLEND_E_UNSUPPORTED, way, with("init_lora_weights", way));
  }
  EXPECT_TRUE(with("init_lora_weights", "gaussian").is_ok());
  EXPECT_TRUE(with("init_lora_weights", true).is_ok());
}

TEST_F(PeftDirectory, TheConfigIsRead) {
  EXPECT_REFUSED(BLEND_E_FORMAT, "lora_alpha", with("lora_alpha", "much"));
  EXPECT_REFUSED(BLEND_E_FORMAT, "adapter_config.json", with("r", 0));
  EXPECT_REFUSED(BLEND_E_FORMAT, "the rank", with("rank_pattern", json::object()));
  EXPECT_REFUSED(BLEND_E_FORMAT, "alpha_pattern", with("alpha_pattern", {{"q_proj", nullptr}}));
  write_file(dir_.file("adapter_config.json"), "{");
  EXPECT_REFUSED(BLEND_E_FORMAT, "adapter_config.json", open());
  std::filesystem::remove(dir_.file("adapter_config.json"));
  EXPECT_REFUSED(BLEND_E_NOT_FOUND, "adapter_config.json", open());
}

TEST_F(PeftDirectory, TensorsAreThoseOfLora) {
  const std::string layer = "base_model.model.model.layers.0.";
  for (const char* name : {"mlp.gate_proj.lora_magnitude_vector",
                           "self_attn.q_proj.base_layer.weight", "self_attn.q_proj.lora_B.bias"}) {
    EXPECT_REFUSED(BLEND_E_UNSUPPORTED, name, with_tensor(layer + name));
  }
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "another embedding",
                 with_tensor("base_model.model.model.embed_positions.lora_embedding_A"));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "as if it were a matrix",
                 with_tensor("base_model.model.model.embed_tokens.lora_A.weight"));
  EXPECT_REFUSED(BLEND_E_FORMAT, "only one", with_tensor(layer + "self_attn.q_proj.lora_A.weight"));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "model.layers.0.self_attn.q_proj",
                 with_tensor("model.layers.0.self_attn.q_proj.lora_A.weight"));
}

TEST_F(PeftDirectory, APickleIsRefused) {
  std::filesystem::rename(dir_.file("adapter_model.safetensors"), dir_.file("adapter_model.bin"));
  EXPECT_REFUSED(BLEND_E_UNSUPPORTED, "adapter_model.bin", open());
  std::filesystem::remove(dir_.file("adapter_model.bin"));
  EXPECT_REFUSED(BLEND_E_NOT_FOUND, "adapter_model.safetensors", open());
  write_file(dir_.file("text"), "hello");
  EXPECT_REFUSED(
      BLEND_E_FORMAT, "adapter_model.safetensors",
      open_lora_adapter(dir_.file("text"), config_of_spec(spec_), HeadRows::gguf).status());
}

}  // namespace
}  // namespace blend::test
