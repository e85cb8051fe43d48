// ReferenceModel: the Transformer of the paper in float64 and plain loops: slow, obvious, and the
// judge of everything fast. It shares nothing with the library but the reader of weight files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_source.h"

namespace blend::test {

// K (before RoPE) and V of consecutive rows, every layer; where a layer does not attend, the
// halves of what it keeps of the rows (RowMixer in model/config.h).
struct ReferenceKv {
  size_t n_rows = 0;
  std::vector<std::vector<double>> k;  // [n_kept()][n_rows * plane_dim()]
  std::vector<std::vector<double>> v;  // [n_kept()][n_rows * plane_dim()]
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
    const Heads heads = config_.heads(layer);
    return config_.mixer.has(layer) ? config_.row_dim(layer) / 2 : heads.n_kv * heads.dim;
  }
  // The layers that have K and V of their own, and the one over whose K and V a layer attends.
  uint32_t n_kept() const { return config_.own_kv == 0 ? config_.n_layers : config_.own_kv; }
  uint32_t kv_layer(uint32_t layer) const;
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
    std::vector<double> outside;  // attention it puts outside the chunk at layer 1, after the first
                                  // token of the prefix, or BOS, and the chunk's own first 64 rows
    std::vector<double> inside;  // attention that the rows of the chunk which can see it put on it,
                                 // mean over them and the layers of its own prefill
  };
  Impact context_impact(const std::vector<int32_t>& tokens,
                        const std::vector<int32_t>& prefix) const;

  // ---- The pieces of a layer, for reference_fusion.cpp.
  // Of a row: [d_model], or all its streams, one after another, where it has several. Those are as
  // the layer before left them: what a layer predicts is made where it is read.
  std::vector<double> embed(int32_t token) const;
  // K and V of one row from its residual stream x: appended to k and v, [plane_dim()] each.
  void project_kv(uint32_t layer, const std::vector<double>& x, std::vector<double>& k,
                  std::vector<double>& v) const;
  // Attention over the rows of k and v that a row at `pos` sees (row j is at position j), then the
  // feed-forward layer and what follows it; row is updated. k, v: [rows * plane_dim()] of
  // kv_layer(); token: the row's.
  void attend_and_feed(uint32_t layer, size_t pos, int32_t token,
                       const std::vector<double>& rotated_k, const std::vector<double>& v,
                       std::vector<double>& row, const ReferenceTempering& tempering = {}) const;
  // attend_and_feed() of the layers that share K and V, for a row that has been through the others;
  // tempering: [n_kept()], or empty.
  void finish(size_t pos, int32_t token, const ReferenceKv& kv, std::vector<double>& x,
              const std::vector<ReferenceTempering>& tempering = {}) const;
  // The probability that a row at `pos` puts on each of the first pos + 1 rows, mean over heads;
  // zeros where the layer does not attend.
  // v: as above; where the model keeps latent rows it is the rest of the keys, and else not used.
  std::vector<double> attention(uint32_t layer, size_t pos, const std::vector<double>& rotated_k,
                                const std::vector<double>& v, const std::vector<double>& x) const;
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
    // gate, up and down are what every row goes through: shared experts where there are experts,
    // or the feed-forward beside those.
    Matrix router, router_choice, router_bias;
    std::vector<Matrix> expert_gate_bias, expert_up_bias, expert_down_bias;
    std::vector<Matrix> expert_gate, expert_up, expert_down;
    // Of a layer that convolves, which has none of q, k, v and out.
    Matrix conv_b, conv_c, conv_x, conv_taps, conv_out;
    Matrix q_gate;  // beside q
    // Of a Gated DeltaNet. scan_decay: the positive factor of the softplus.
    Matrix delta_qkv, delta_z, delta_b, delta_a, scan_taps, scan_decay, scan_bias, scan_norm,
        scan_out;
    // Of a Mamba-2, which has the last five of those too.
    Matrix ssm_z, ssm_xbc, ssm_dt, ssm_taps_bias, ssm_skip;
    // Of what a layer says of tokens, and the number that scales it all.
    Matrix input_gate, input_out, input_post_norm, scale;
    Matrix laurel_in, laurel_out, laurel_norm;
    Matrix stream_router, stream_norm, stream_predict, stream_correct, stream_scale;
    Matrix shared_weight;
    // Of experts beside a dense feed-forward.
    Matrix router_norm, expert_scale, expert_norm, expert_post_norm, dense_post_norm;
    Matrix latent_in, latent_out;  // of rows that experts read and write
    // Of latent rows: one for all heads, then of each head, then of Q.
    Matrix latent_kv, latent_kv_norm, latent_k, latent_v, latent_q, latent_q_norm;
  };
  // c of a latent row, whose halves are in k and v.
  std::vector<double> latent_of(size_t row, const std::vector<double>& k,
                                const std::vector<double>& v) const;
  // A head's key of a latent row, rotated as k is: A c, then k.
  std::vector<double> latent_key(uint32_t layer, size_t head, size_t row,
                                 const std::vector<double>& rotated_k,
                                 const std::vector<double>& v) const;
  // The output of a layer's Gated DeltaNet for the row at `pos`; k, v: the halves of the rows.
  std::vector<double> delta(uint32_t layer, size_t pos, const std::vector<double>& k,
                            const std::vector<double>& v, const std::vector<double>& x) const;
  // The same of a Mamba-2.
  std::vector<double> mamba(uint32_t layer, size_t pos, const std::vector<double>& k,
                            const std::vector<double>& v, const std::vector<double>& x) const;
  // The output of a layer's convolution for the row at `pos`; k, v: the halves of u of all rows.
  std::vector<double> convolve(uint32_t layer, size_t pos, const std::vector<double>& k,
                               const std::vector<double>& v, const std::vector<double>& x) const;

  // x itself where there is no such norm.
  std::vector<double> norm(const std::vector<double>& x, const Matrix& weight) const {
    return norm(x, weight, static_cast<double>(config_.rms_eps));
  }
  static std::vector<double> norm(const std::vector<double>& x, const Matrix& weight, double eps);
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
                                    const std::vector<double>& v,
                                    const ReferenceTempering& tempering) const;
  // down (activation(gate x) * up x); the gate is cut at `cut` standard deviations.
  std::vector<double> feed(const Matrix& gate, const Matrix& gate_bias, const Matrix& up,
                           const Matrix& up_bias, const Matrix& down, const Matrix& down_bias,
                           const std::vector<double>& x, double cut) const;
  // What the layer itself says of the row's token, after it has read x.
  std::vector<double> input(uint32_t layer, int32_t token, std::vector<double> x) const;
  std::vector<double> embed_row(int32_t token) const;  // [d_model]
  // What the router makes of one stream.
  std::vector<double> route(uint32_t layer, const std::vector<double>& stream) const;
  // All streams of x as the layer predicts them.
  std::vector<double> predict(uint32_t layer, const std::vector<double>& x) const;
  // The first of those, or of_pair() where a row has one stream.
  std::vector<double> read(uint32_t layer, const std::vector<double>& x) const;
  // x: all streams as predicted, then as they are after the layer, which made `after` of the first.
  void correct(uint32_t layer, const std::vector<double>& after, std::vector<double>& x) const;
  // What all streams make together after the last layer; [d_model].
  std::vector<double> joined(const std::vector<double>& x) const;
  // Stream i of x.
  std::vector<double> stream(const std::vector<double>& x, size_t i) const;

  double activate(double gate) const;
  // What a layer's experts make of x, by the router's logits.
  std::vector<double> feed_experts(const Layer& w, std::vector<double> score,
                                   const std::vector<double>& x) const;
  // The feed-forward of a layer, with its experts.
  std::vector<double> feed_layer(uint32_t layer, const std::vector<double>& x) const;
  // x += y, normed by `post` where that is not empty.
  void add(std::vector<double>& x, std::vector<double> y, const Matrix& post, float scale) const;
  // What a layer reads of a row: of the second layer of a pair, what the first read.
  std::vector<double> of_pair(uint32_t layer, const std::vector<double>& x) const;
  // Turns the heads of one row by the angle of `pos`.
  void rotate(uint32_t layer, double* row, uint32_t n_heads, size_t pos) const;

  ModelConfig config_;
  int32_t bos_ = -1;
  size_t context_ = 0;
  Matrix embedding_, output_norm_, output_;
  Matrix input_embedding_, input_context_, input_norm_;
  std::vector<Matrix> stream_in_, stream_out_;
  std::vector<Layer> layers_;
};

// `x` as it would come back from a store of `dtype`.
double round_to(double x, DType dtype);

// Log-softmax.
std::vector<double> log_probabilities(const std::vector<double>& logits);

}  // namespace blend::test
