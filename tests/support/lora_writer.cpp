#include "support/lora_writer.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "model/tensor_table.h"
#include "support/temp_dir.h"
#include "support/tensor_values.h"

namespace blend::test {
namespace {

using nlohmann::json;
using R = TensorRole;

std::unique_ptr<ModelSource> source_of(const std::string& path) {
  auto opened = open_model_source(path);
  if (!opened.is_ok()) throw std::runtime_error(opened.status().message());
  return std::move(*opened);
}

ModelConfig config_of(const RandomModelSpec& spec) {
  const TempDir dir;
  return source_of(write_random_model(spec, dir.file("model.gguf")))->config();
}

std::string gguf_stem(const std::vector<R>& roles, uint32_t layer) {
  static const std::map<R, std::string> kNames = {
      {R::attn_q, "attn_q"},        {R::attn_k, "attn_k"},     {R::attn_v, "attn_v"},
      {R::attn_out, "attn_output"}, {R::ffn_gate, "ffn_gate"}, {R::ffn_up, "ffn_up"},
      {R::ffn_down, "ffn_down"},    {R::conv_b, ""},           {R::conv_out, "shortconv.out_proj"},
      {R::input_gate, "inp_gate"},  {R::input_out, "proj"}};
  if (roles[0] == R::output) return "output.weight";
  if (roles[0] == R::embedding) return "token_embd.weight";
  std::string name = kNames.at(roles[0]);
  if (roles[0] == R::conv_b) return "blk." + std::to_string(layer) + ".shortconv.in_proj.weight";
  if (roles.size() == 3) name = "attn_qkv";
  if (roles.size() == 2) name = "ffn_up";  // phi3's gate and up
  return "blk." + std::to_string(layer) + "." + name + ".weight";
}

std::string peft_module(const RandomModelSpec& spec, const std::vector<R>& roles, uint32_t layer) {
  static const std::map<R, std::string> kNames = {
      {R::attn_q, "self_attn.q_proj"},       {R::attn_k, "self_attn.k_proj"},
      {R::attn_v, "self_attn.v_proj"},       {R::attn_out, "self_attn.o_proj"},
      {R::ffn_gate, "mlp.gate_proj"},        {R::ffn_up, "mlp.up_proj"},
      {R::ffn_down, "mlp.down_proj"},        {R::input_gate, "per_layer_input_gate"},
      {R::input_out, "per_layer_projection"}};
  static const std::map<R, std::string> kLfm2Names = {
      {R::attn_out, "self_attn.out_proj"}, {R::ffn_gate, "feed_forward.w1"},
      {R::ffn_up, "feed_forward.w3"},      {R::ffn_down, "feed_forward.w2"},
      {R::conv_b, "conv.in_proj"},         {R::conv_out, "conv.out_proj"}};
  if (roles[0] == R::output) return "lm_head";
  if (roles[0] == R::embedding) return "model.embed_tokens";
  if (const auto own = kLfm2Names.find(roles[0]);
      spec.architecture.starts_with("lfm2") && own != kLfm2Names.end()) {
    return "model.layers." + std::to_string(layer) + "." + own->second;
  }
  const bool granite4 = spec.model_type == "granitemoehybrid";
  std::string name = kNames.at(roles[0]);
  if (roles.size() == 3) name = "self_attn.qkv_proj";
  if (roles.size() == 2) name = granite4 ? "shared_mlp.input_linear" : "mlp.gate_up_proj";
  if (granite4 && roles[0] == R::ffn_down) name = "shared_mlp.output_linear";
  return "model.layers." + std::to_string(layer) + "." + name;
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

int64_t rows_of(R role, const ModelConfig& c, uint32_t layer) {
  return tensor_shape(role, c, layer)[0];
}

// `up` with the rows of Q and K as Hugging Face has them, where llama.cpp's converter moves them.
std::vector<float> as_peft(const RandomModelSpec& spec, const ModelConfig& c, const LoraPair& p) {
  std::vector<float> out = p.up;
  if (c.rope.layout != RopeLayout::interleaved || spec.architecture.starts_with("ernie")) {
    return out;
  }
  size_t first = 0;
  for (const R role : p.roles) {
    const auto rows = static_cast<size_t>(rows_of(role, c, p.layer));
    if (role == R::attn_q || role == R::attn_k) {
      // numpy: w.reshape(heads, half, 2).swapaxes(1, 2), of the rows that rotate.
      const size_t head = c.head_dim, half = c.rope.rotary_dim / 2;
      for (size_t h = 0; h < rows / head; ++h) {
        for (size_t i = 0; i < half; ++i) {
          for (size_t part = 0; part < 2; ++part) {
            const size_t from = first + h * head + 2 * i + part;
            const size_t to = first + h * head + part * half + i;
            std::copy_n(p.up.begin() + static_cast<int64_t>(from * p.rank), p.rank,
                        out.begin() + static_cast<int64_t>(to * p.rank));
          }
        }
      }
    }
    first += rows;
  }
  return out;
}

void append_weights(const TensorView& t, std::vector<double>& out) {
  const std::vector<float> values = values_of(t);
  out.insert(out.end(), values.begin(), values.end());
}

// w: [n_vocab, d_model], of the model where it is empty.
void add_to_embedding(const LoraPair& p, double factor, const ModelSource& source,
                      std::vector<double>& w) {
  if (w.empty()) append_weights(source.tensor(R::embedding, 0), w);
  const size_t n_vocab = p.down.size() / p.rank, width = p.up.size() / p.rank;
  for (size_t token = 0; token < n_vocab; ++token) {
    for (size_t i = 0; i < width; ++i) {
      for (size_t r = 0; r < p.rank; ++r) {
        w[token * width + i] += factor * static_cast<double>(p.up[i * p.rank + r]) *
                                static_cast<double>(p.down[r * n_vocab + token]);
      }
    }
  }
}

}  // namespace

RandomLora random_lora(const RandomModelSpec& spec, uint64_t seed, double alpha) {
  const ModelConfig c = config_of(spec);
  SplitMix rng(seed);
  RandomLora lora{spec.architecture, alpha, {}};
  const bool fused = spec.architecture == "phi3";
  const bool fused_ffn = fused || spec.model_type == "granitemoehybrid";
  const auto values = [&](size_t n, double deviation) {
    std::vector<float> out(n);
    for (float& v : out) v = static_cast<float>(deviation * rng.normal());
    return out;
  };
  const auto add = [&](std::vector<R> roles, uint32_t layer) {
    if (!has_tensor(roles[0], c, layer)) return;
    const size_t rank = 1 + rng.below(11);
    size_t out = 0;
    for (const R role : roles) out += static_cast<size_t>(rows_of(role, c, layer));
    auto in = static_cast<size_t>(tensor_shape(roles[0], c, layer)[1]);
    if (roles[0] == R::embedding) std::swap(in, out);
    // alpha / rank * up down has elements of about 0.5 / sqrt(in).
    const double r = static_cast<double>(rank);
    LoraPair pair{std::move(roles), layer, rank, {}, {}};
    pair.down = values(rank * in, 1 / std::sqrt(static_cast<double>(in)));
    pair.up = values(out * rank, 0.5 * std::sqrt(r) / 12);
    lora.pairs.push_back(std::move(pair));
  };
  for (uint32_t l = 0; l < c.n_layers; ++l) {
    if (fused) {
      add({R::attn_q, R::attn_k, R::attn_v}, l);
    } else {
      for (const R role : {R::attn_q, R::attn_k, R::attn_v}) add({role}, l);
    }
    add({R::attn_out}, l);
    add({R::conv_b, R::conv_c, R::conv_x}, l);
    add({R::conv_out}, l);
    if (fused_ffn) {
      add({R::ffn_gate, R::ffn_up}, l);
    } else {
      for (const R role : {R::ffn_gate, R::ffn_up}) add({role}, l);
    }
    add({R::ffn_down}, l);
    for (const R role : {R::input_gate, R::input_out}) add({role}, l);
  }
  add({R::output}, 0);
  add({R::embedding}, 0);
  return lora;
}

GgufWriter gguf_lora(const RandomLora& lora) {
  GgufWriter w;
  w.string("general.type", "adapter").string("general.architecture", lora.architecture);
  w.string("adapter.type", "lora").f32("adapter.lora.alpha", static_cast<float>(lora.alpha));
  const auto add = [&](const std::string& stem, const LoraPair& p, const float* up, size_t out) {
    w.tensor(stem + ".lora_a", kGgmlF32, {p.down.size() / p.rank, p.rank}, bytes_of(p.down));
    w.tensor(stem + ".lora_b", kGgmlF32, {p.rank, out},
             std::string(reinterpret_cast<const char*>(up), out * p.rank * sizeof(float)));
  };
  for (const LoraPair& p : lora.pairs) {
    if (p.of_embedding()) {  // llama.cpp's converter turns the first one
      const size_t n = p.down.size() / p.rank;
      std::vector<float> turned(p.down.size());
      for (size_t i = 0; i < turned.size(); ++i) turned[i % n * p.rank + i / n] = p.down[i];
      w.tensor("token_embd.weight.lora_a", kGgmlF32, {p.rank, n}, bytes_of(turned));
      w.tensor("token_embd.weight.lora_b", kGgmlF32, {p.rank, p.up.size() / p.rank},
               bytes_of(p.up));
      continue;
    }
    // Only a phi3 has fused tensors there, and convolutions do.
    if (p.roles.size() == 1 || lora.architecture == "phi3" || p.roles[0] == R::conv_b) {
      add(gguf_stem(p.roles, p.layer), p, p.up.data(), p.up.size() / p.rank);
      continue;
    }
    const size_t out = p.up.size() / p.rank / p.roles.size();
    for (size_t i = 0; i < p.roles.size(); ++i) {
      add(gguf_stem({p.roles[i]}, p.layer), p, p.up.data() + i * out * p.rank, out);
    }
  }
  return w;
}

std::string safetensors_bytes(const std::vector<PeftTensor>& tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const PeftTensor& t : tensors) {
    const size_t begin = data.size();
    data += bytes_of(t.values);
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  return gguf_bytes(static_cast<uint64_t>(text.size())) + text + data;
}

std::string write_peft_lora(const RandomModelSpec& spec, const RandomLora& lora,
                            const std::string& path, bool rslora) {
  const ModelConfig c = config_of(spec);
  std::filesystem::create_directories(path);
  std::vector<PeftTensor> tensors;
  json ranks = json::object(), alphas = json::object();
  for (const LoraPair& p : lora.pairs) {
    const std::string module = peft_module(spec, p.roles, p.layer);
    const auto rank = static_cast<int64_t>(p.rank);
    const auto in = static_cast<int64_t>(p.down.size()) / rank;
    const auto out = static_cast<int64_t>(p.up.size()) / rank;
    const std::string name = "base_model.model." + module;
    const bool of_embedding = p.of_embedding();
    tensors.push_back(
        {name + (of_embedding ? ".lora_embedding_A" : ".lora_A.weight"), {rank, in}, p.down});
    tensors.push_back({name + (of_embedding ? ".lora_embedding_B" : ".lora_B.weight"),
                       {out, rank},
                       as_peft(spec, c, p)});
    // Some by the whole name, some by its end.
    ranks[p.layer % 2 == 0 ? module : module.substr(6)] = rank;
    if (rslora) alphas[module] = lora.alpha / std::sqrt(static_cast<double>(rank));
  }
  const json config = {{"peft_type", "LORA"},
                       {"base_model_name_or_path", "somewhere/random"},
                       {"r", 3},
                       {"lora_alpha", rslora ? 1.0 : lora.alpha},
                       {"use_rslora", rslora},
                       {"use_dora", false},
                       {"bias", "none"},
                       {"modules_to_save", nullptr},
                       {"fan_in_fan_out", false},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas},
                       {"target_modules", {"q_proj", "k_proj", "v_proj"}}};
  write_file(path + "/adapter_config.json", config.dump());
  write_file(path + "/adapter_model.safetensors", safetensors_bytes(tensors));
  return path;
}

std::string write_merged_model(const RandomModelSpec& spec,
                               const std::vector<std::pair<const RandomLora*, double>>& loras,
                               const std::string& path) {
  GgufWriter writer = random_model(spec);
  writer.write(path);
  {
    const auto source = source_of(path);
    const ModelConfig& c = source->config();
    using Place = std::pair<std::vector<R>, uint32_t>;
    std::map<Place, std::vector<double>> merged;
    for (const auto& [lora, scale] : loras) {
      for (const LoraPair& p : lora->pairs) {
        if (p.of_embedding()) {
          add_to_embedding(p, scale * lora->alpha / static_cast<double>(p.rank), *source,
                           merged[{p.roles, 0}]);
          continue;
        }
        std::vector<std::vector<R>> tensors;  // of the GGUF
        if (spec.architecture == "phi3" || p.roles[0] == R::conv_b) {
          tensors.push_back(p.roles);
        } else {
          for (const R role : p.roles) tensors.push_back({role});
        }
        size_t row = 0;
        for (const std::vector<R>& roles : tensors) {
          std::vector<double>& w = merged[{roles, p.layer}];
          if (w.empty()) {
            for (const R role : roles) append_weights(source->tensor(role, p.layer), w);
          }
          const size_t in = p.down.size() / p.rank;
          const double factor = scale * lora->alpha / static_cast<double>(p.rank);
          for (size_t i = 0; i < w.size() / in; ++i, ++row) {
            for (size_t r = 0; r < p.rank; ++r) {
              const double b = factor * static_cast<double>(p.up[row * p.rank + r]);
              for (size_t j = 0; j < in; ++j) {
                w[i * in + j] += b * static_cast<double>(p.down[r * in + j]);
              }
            }
          }
        }
      }
    }
    for (const auto& [place, w] : merged) {
      const uint64_t in = static_cast<uint64_t>(tensor_shape(place.first[0], c, place.second)[1]);
      writer.tensor(gguf_stem(place.first, place.second), kGgmlF32, {in, w.size() / in},
                    bytes_of({w.begin(), w.end()}));
    }
  }
  return writer.write(path);
}

}  // namespace blend::test
