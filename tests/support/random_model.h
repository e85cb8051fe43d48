// Small models of every family with random weights, so that tests need no files from elsewhere.
//
// The same spec gives the same bytes on every platform: an own generator and
// only correctly rounded arithmetic. Weights are
// scaled so that the residual stream keeps its size, attention scores have a standard deviation of
// about 2 (some keys clearly win, none takes all) and logits one of about 2.5.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/half.h"
#include "formats/weight_blocks.h"
#include "support/gguf_writer.h"

namespace blend::test {

struct RandomModelSpec {
  // A family's `general.architecture`: names and tensors of such a GGUF.
  std::string architecture = "llama";
  // Where a directory of the same model has more than one: its `model_type`; "": the usual one.
  std::string model_type = {};
  uint32_t n_layers = 4;
  uint32_t d_model = 64;
  uint32_t n_heads = 8;
  uint32_t n_kv_heads = 4;
  uint32_t head_dim = 8;
  uint32_t rotary_dim = 0;  // 0 = head_dim
  uint32_t d_ff = 160;
  uint32_t n_vocab = 320;  // at least 300
  uint32_t context = 512;
  DType dtype = DType::f32;            // of the matrices; norms are f32
  std::vector<BlockType> blocks = {};  // not empty: the matrices are quantized, these types in turn
  bool tied = false;                   // no output.weight
  bool rope_freq_factors = false;      // Llama 3.1's rope_freqs.weight
  double rope_theta = 10000;
  double linear_scale = 1;    // of positions
  double yarn_factor = 1;     // of a context of an eighth of `context`
  uint32_t long_from = 0;     // LongRoPE with other factors from more than this many rows; 0: none
  double rope_attention = 1;  // factor on rotated Q and K
  uint32_t window = 0;        // rows that a row sees, where its layer has a window
  bool biases = false;  // of every projection, as a llama may have them; a qwen2 has those of QKV
  bool sinks = false;   // attention sinks
  uint64_t seed = 1;
  uint32_t n_experts = 0;     // of a layer; 0: the model is dense
  uint32_t n_used = 0;        // experts that a row goes through
  uint32_t expert_d_ff = 0;   // inner width of one
  uint32_t shared_d_ff = 0;   // inner width of the shared ones together; of a Qwen weighed
  uint32_t dense_layers = 0;  // the first ones, which have no experts
  uint32_t groups = 0;        // of experts; 0: there are none
  uint32_t used_groups = 0;
  // LFM2, Qwen3.5, Qwen3-Next, Granite 4 H and Nemotron-H: layers convolve over this many rows, but
  // for each `attend_every`-th, which attends; 0: none does.
  uint32_t conv_taps = 0;
  uint32_t attend_every = 3;
  // Qwen3.5, Qwen3-Next: of a Gated DeltaNet's states.
  uint32_t delta_k_heads = 0;
  uint32_t delta_v_heads = 0;
  uint32_t delta_dim = 0;
  // Granite 4 H, Nemotron-H, Falcon-H1: of a Mamba-2's states.
  uint32_t ssm_groups = 0;
  uint32_t ssm_heads = 0;
  uint32_t ssm_head_dim = 0;
  uint32_t ssm_state = 0;
  bool ssm_norm = true;

  // Nemotron-H: M for a Mamba-2, * for attention, - for a feed-forward after one of these, E for
  // one of experts. Of the first two there are n_layers.
  std::string pattern = {};
  uint32_t latent = 0;  // width of the rows that experts read and write; 0: d_model
  // Falcon-H1: the file has a layer for each two of n_layers, the first of which attends and the
  // second is a Mamba-2 beside it.
  bool paired = false;

  // Where a layer's letter is.
  size_t block_of(uint32_t layer) const {
    if (paired) return layer / 2;
    if (pattern.empty()) return layer;
    size_t at = 0;
    for (uint32_t n = 0; at < pattern.size(); ++at) {
      if (!is_fed(pattern[at]) && n++ == layer) break;
    }
    return at;
  }
  static bool is_fed(char block) { return block == '-' || block == 'E'; }
  // What the layer's feed-forward is, as in the pattern; 0: it has none.
  char fed(uint32_t layer) const {
    if (paired && layer % 2 == 0) return 0;
    const size_t next = block_of(layer) + 1;
    if (pattern.empty()) return '-';
    return next < pattern.size() && is_fed(pattern[next]) ? pattern[next] : '\0';
  }
  bool attends(uint32_t layer) const {
    if (paired) return layer % 2 == 0;
    if (!pattern.empty()) return pattern[block_of(layer)] == '*';
    return conv_taps == 0 || layer % attend_every == attend_every - 1;
  }
  uint32_t delta_qkv_dim() const { return (2 * delta_k_heads + delta_v_heads) * delta_dim; }
  uint32_t ssm_xbc_dim() const { return ssm_heads * ssm_head_dim + 2 * ssm_groups * ssm_state; }
  // Whether the others have states.
  bool scans() const { return delta_dim != 0 || ssm_state != 0; }

  // Gemma 4.
  uint32_t shared_layers = 0;    // the last ones, which share K and V
  uint32_t global_head_dim = 0;  // where a layer has no window
  uint32_t global_kv_heads = 0;  // there too; 0: n_kv_heads
  bool k_is_v = false;           // there K's matrix makes V
  uint32_t input_dim = 0;        // of each layer's own embedding of a token; 0: none
  bool wide_sharing = false;     // layers that share have feed-forwards twice as wide

  // Gemma 3n has the first and the last but one of these, and: streams of a row; the rank of Laurel
  // blocks; the first layers, in which a part of the gate alone goes on; the bound of logits.
  uint32_t n_streams = 1;
  uint32_t laurel_rank = 0;
  uint32_t cut_layers = 0;
  float logit_cap = 6;
  uint32_t global_every = 3;  // layers global_every - 1, ... have no window, and a Gemma 4's last

  // DeepSeek: of latent rows, of which rotary_dim elements rotate besides. Each has one KV head of
  // half a row.
  uint32_t latent_rank = 0;
  uint32_t latent_nope = 0;
  uint32_t latent_value = 0;
  uint32_t latent_q_rank = 0;
  bool old_latent = false;  // as files from before llama.cpp cut the heads' matrix
  bool softmax = false;     // experts are chosen so, without a bias
  double yarn_mscale = 0;   // by which scores grow under YaRN

  bool gemma4() const { return architecture == "gemma4"; }
  bool local(uint32_t layer) const {
    return (layer + 1) % global_every != 0 && (!gemma4() || layer + 1 != n_layers);
  }
  uint32_t n_kept() const { return n_layers - shared_layers; }
  // Heads of a layer.
  uint32_t head_dim_of(uint32_t layer) const {
    return gemma4() && !local(layer) ? global_head_dim : head_dim;
  }
  uint32_t kv_heads_of(uint32_t layer) const {
    return gemma4() && !local(layer) && global_kv_heads != 0 ? global_kv_heads : n_kv_heads;
  }
  // Elements that a cache keeps of a row in a layer.
  uint32_t kept_of(uint32_t layer) const {
    if (layer >= n_kept()) return 0;
    if (latent_rank != 0) return latent_rank + rotary_dim;
    if (attends(layer)) return 2 * kv_heads_of(layer) * head_dim_of(layer);
    if (ssm_state != 0) return ssm_xbc_dim() + ssm_heads;
    return delta_dim != 0 ? delta_qkv_dim() + 2 * delta_v_heads : d_model;
  }
};

// The whole file, ready to be changed by a test before it is written.
GgufWriter random_model(const RandomModelSpec& spec);

// Writes it; streams, so that a benchmark may ask for a large one. Returns `path`.
std::string write_random_model(const RandomModelSpec& spec, const std::string& path);

// A small model of every family that libblend runs, and of every kind of tensor, by name. What a
// family adds is large in them: small windows, hard soft-caps, strong scaling.
struct RandomFamily {
  std::string name;
  RandomModelSpec spec;
};
std::vector<RandomFamily> random_families();
// One of them. Throws std::runtime_error where none has that name.
RandomModelSpec random_family(const std::string& name);

// Its vocabulary: <unk>, <s>, </s>, 256 byte tokens, merges (best first), then single characters.
// n_vocab >= 300; 320 pieces hold all lower-case letters, longer ones capitals and digits too.
struct RandomVocab {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;  // 1 normal, 2 unknown, 3 control, 6 byte
};
RandomVocab random_vocab(uint32_t n_vocab);

// splitmix64 (Steele, Lea & Flood 2014). Not thread-safe.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return next() % n; }  // the bias does not matter to tests
  // Mean 0, standard deviation 1, bell-shaped, |x| < 3.5: four 16-bit uniforms of one draw, summed.
  double normal() {
    const uint64_t u = next();
    const uint64_t sum = (u & 0xffff) + (u >> 16 & 0xffff) + (u >> 32 & 0xffff) + (u >> 48);
    return (static_cast<double>(sum) - 131070.0) * (1.7320508075688772 / 65536.0);
  }

 private:
  uint64_t state_;
};

}  // namespace blend::test
