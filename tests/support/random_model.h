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
  uint32_t shared_d_ff = 0;   // inner width of the shared ones together
  uint32_t dense_layers = 0;  // the first ones, which have no experts
  uint32_t groups = 0;        // of experts; 0: there are none
  uint32_t used_groups = 0;
  // LFM2: layers convolve over this many rows, but for each `attend_every`-th; 0: none does.
  uint32_t conv_taps = 0;
  uint32_t attend_every = 3;

  bool convolves(uint32_t layer) const {
    return conv_taps != 0 && layer % attend_every != attend_every - 1;
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
