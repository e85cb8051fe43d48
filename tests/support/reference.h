// ReferenceModel: the Transformer of the paper in float64 and plain loops: slow, obvious, and the
// judge of everything fast. It shares nothing with the library but the reader of weight files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_source.h"

namespace blend::test {

// K (before RoPE) and V of consecutive rows, every layer; where a layer convolves, the halves of
// the rows' u (ShortConv in model/config.h).
struct ReferenceKv {
  size_t n_rows = 0;
  std::vector<std::vector<double>> k;  // [n_layers][n_rows * plane_dim()]
  std::vector<std::vector<double>> v;  // [n_layers][n_rows * plane_dim()]
};

struct ReferencePrefill {
  std::vector<std::vector<double>> logits;  // [n_rows][n_vocab]
  std::vector<std::vector<double>> hidden;  // [n_rows][d_model], after the final norm
  ReferenceKv kv;
};

// APE (Yang et al. 2025): which rows are attended to at temperature T, and their sum raised to S.
struct ReferenceTempering {
  double temperature = 1, scale = 1;
  std::vector<uint8_t> rows;  // of the prompt; up to the last one
  bool of(size_t row) const { return row < rows.size() && rows[row] != 0; }
};

// Immutable; safe for concurrent use.
class ReferenceModel {
 public:
  // Throws std::runtime_error: a test without its model has nothing to say.
  explicit ReferenceModel(const std::string& path);

  const ModelConfig& config() const { return config_; }
  size_t kv_dim() const { return config_.kv_dim(); }
  // Elements of k, and of v, of a row.
  size_t plane_dim(uint32_t layer) const {
    return config_.conv.has(layer) ? config_.d_model / 2 : config_.kv_dim();
  }
  // The first layer whose K and V depend on rows far away.
  uint32_t dependent_layer() const;

  // Full prefill: row i at position i attends to rows 0..i.
  ReferencePrefill prefill(const std::vector<int32_t>& tokens) const;

  // What the store should hold for a chunk that was prefilled after `prefix`: the chunk's rows,
  // rounded to `dtype`.
  ReferenceKv chunk(const std::vector<int32_t>& tokens, const std::vector<int32_t>& prefix,
                    DType dtype) const;

  // How much each row of a chunk depends on the text before it (Cache-Craft).
  struct Impact {
    std::vector<double> outside;  // attention it puts outside the chunk at layer 1, after BOS and
                                  // the chunk's own first 64 tokens
    std::vector<double> inside;  // attention that the rows of the chunk which can see it put on it,
                                 // mean over them and the layers of its own prefill
  };
  Impact context_impact(const std::vector<int32_t>& tokens,
                        const std::vector<int32_t>& prefix) const;

  // ---- The pieces of a layer, for reference_fusion.cpp.
  std::vector<double> embed(int32_t token) const;  // [d_model]
  // K and V of one row from its residual stream x: appended to k and v, [plane_dim()] each.
  void project_kv(uint32_t layer, const std::vector<double>& x, std::vector<double>& k,
                  std::vector<double>& v) const;
  // Attention over the rows of k and v that a row at `pos` sees (row j is at position j), then the
  // feed-forward layer; x is updated. k, v: [rows * kv_dim].
  void attend_and_feed(uint32_t layer, size_t pos, const std::vector<double>& rotated_k,
                       const std::vector<double>& v, std::vector<double>& x,
                       const ReferenceTempering& tempering = {}) const;
  // The probability that a row at `pos` puts on each of the first pos + 1 rows, mean over heads;
  // zeros where the layer convolves.
  std::vector<double> attention(uint32_t layer, size_t pos, const std::vector<double>& rotated_k,
                                const std::vector<double>& x) const;
  // Every row of k turned to its position, as the layer does it; [rows * kv_dim].
  std::vector<double> rotate_rows(uint32_t layer, const std::vector<double>& k) const;
  std::vector<double> logits(const std::vector<double>& x) const;  // [n_vocab]

 private:
  using Matrix = std::vector<double>;
  struct Layer {
    Matrix attn_norm, q, k, v, out, ffn_norm, gate, up, down;
    // Empty where the model has none.
    Matrix q_bias, k_bias, v_bias, out_bias, gate_bias, up_bias, down_bias;
    Matrix q_norm, k_norm, sinks, attn_post_norm, ffn_post_norm;
    // gate, up and down are what every row goes through: shared experts where there are experts.
    Matrix router, router_choice, router_bias;
    std::vector<Matrix> expert_gate_bias, expert_up_bias, expert_down_bias;
    std::vector<Matrix> expert_gate, expert_up, expert_down;
    // Of a layer that convolves, which has none of q, k, v and out.
    Matrix conv_b, conv_c, conv_x, conv_taps, conv_out;
  };
  // The output of a layer's convolution for the row at `pos`; k, v: the halves of u of all rows.
  std::vector<double> convolve(uint32_t layer, size_t pos, const std::vector<double>& k,
                               const std::vector<double>& v, const std::vector<double>& x) const;

  // x itself where there is no such norm.
  std::vector<double> norm(const std::vector<double>& x, const Matrix& weight) const;
  // Each part of y that is as long as the weight.
  void norm_heads(std::vector<double>& y, const Matrix& weight) const;
  // What Q of a position is multiplied by besides (RopeParams::q_growth).
  double growth(uint32_t layer, size_t pos) const;
  // W x + bias, each head normed where `norm` is not empty.
  std::vector<double> project(const Matrix& w, const Matrix& bias, const Matrix& norm,
                              const std::vector<double>& x) const;
  // Q of a row, rotated.
  std::vector<double> query(uint32_t layer, size_t pos, const std::vector<double>& x) const;
  // The probabilities of one head of Q over the rows it sees, by row; 0 for those before its
  // window.
  std::vector<double> probabilities(uint32_t layer, size_t pos, size_t head,
                                    const std::vector<double>& q,
                                    const std::vector<double>& rotated_k,
                                    const ReferenceTempering& tempering) const;
  // down (activation(gate x) * up x).
  std::vector<double> feed(const Matrix& gate, const Matrix& gate_bias, const Matrix& up,
                           const Matrix& up_bias, const Matrix& down, const Matrix& down_bias,
                           const std::vector<double>& x) const;
  // What a layer's experts make of x.
  std::vector<double> feed_experts(const Layer& w, const std::vector<double>& x) const;
  // x += y, normed by `post` where that is not empty.
  void add(std::vector<double>& x, std::vector<double> y, const Matrix& post) const;
  // Turns the heads of one row by the angle of `pos`.
  void rotate(uint32_t layer, double* row, uint32_t n_heads, size_t pos) const;

  ModelConfig config_;
  int32_t bos_ = -1;
  size_t context_ = 0;
  Matrix embedding_, output_norm_, output_;
  std::vector<Layer> layers_;
};

// `x` as it would come back from a store of `dtype`.
double round_to(double x, DType dtype);

// Log-softmax.
std::vector<double> log_probabilities(const std::vector<double>& logits);

}  // namespace blend::test
