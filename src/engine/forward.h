// Forward: one Transformer layer in the two halves that fusion needs, and the logits.
//
//   compute_kv    x -> K | V of the rows, before RoPE (K normed, where the model does that); or, in
//                 a layer that does not attend, what it keeps of them (RowMixer in model/config.h)
//   ...the caller puts K, V into the cache: fresh, stored, or some of each...
//   finish_layer  x -> Q, attention over the cache, output projection, feed-forward; x in place
//
// Where a row is several streams (ModelConfig::n_streams), x is the first of them, and the others
// go with it: their place is that of x. A layer predicts the streams of the next one, as the first
// layer's are by embed(), so that x is always what a layer reads.
//
// Full prefill, decode, precompute and fusion are all loops over these two; which rows take part in
// which half is the only difference between them. Features of a model family are fields of
// ModelConfig, looked at here, once: there is no other forward pass.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/model.h"
#include "engine/tempered_rows.h"

namespace blend {

// A row of a step in which every row belongs to a sequence of its own.
struct StepRow {
  KvCache* cache = nullptr;  // null: its caller has left
  const Ropes* ropes = nullptr;
  uint32_t pos = 0;
  TemperedRows* tempered = nullptr;
  Status failure = Status::ok();  // of this row alone
};

// Owns the scratch of one call; not thread-safe. The model must outlive it.
class Forward {
 public:
  // max_logits: rows whose logits are computed at once.
  static Result<std::unique_ptr<Forward>> create(const Model& model, uint32_t max_rows,
                                                 uint32_t max_logits = 1);
  // For steps, of one sequence or many: as many logits as rows. Where the backend pads steps, a
  // row's bits are those of any other step (BackendTraits::pads_steps), and the scratch is that of
  // step_rows rows.
  static Result<std::unique_ptr<Forward>> create_for_steps(const Model& model, uint32_t max_rows);

  // From here on rows attend to the rows in `rows` at their temperature; null: to none. It
  // must outlive the use.
  void temper(TemperedRows* rows) { tempered_ = rows; }

  // x: [rows, d_model] for up to max_rows rows. Other tensors of rows below are slices of it.
  Tensor x(uint32_t rows) const { return view(*x_, rows, model_.config().d_model); }
  // kv: [rows, 2 * kv_dim] for up to max_rows rows; in a layer that does not attend, [rows,
  // mixer_row_dim].
  Tensor kv(uint32_t layer, uint32_t rows) const {
    return view(*kv_, rows, model_.config().row_dim(layer));
  }

  Status embed(const int32_t* tokens, Tensor x);
  // dst[i] = src[places[i]]: rows of x() of `from`, which may be this, become rows of this one's;
  // places: ascending. What a layer adds to a row depends on the row's token, so rows move with it.
  Status take(const Forward& from, Tensor src, const uint32_t* places, Tensor dst);
  Status compute_kv(uint32_t layer, Tensor x, Tensor kv, const Watch& watch);
  // compute_kv() for rows that go to slots pos[i] of the cache, all of which finish_layer()
  // takes next: where the backend has one product for Q, K and V, it computes and keeps their Q.
  Status compute_qkv(uint32_t layer, KvCache& cache, const Ropes& ropes, Tensor x,
                     const uint32_t* pos, Tensor kv, const Watch& watch);
  // Receives attention_mass() of the rows from `first` on from finish_layer(), which has their Q
  // anyway. A layer that does not attend has none: zeros.
  struct MassOut {
    uint32_t first = 0;
    float* mass = nullptr;  // host [pos[x.rows - 1] + 1]
  };
  // pos: host [x.rows], ascending. Row i sees the slots 0 .. pos[i], or the layer's window of them.
  Status finish_layer(uint32_t layer, const KvCache& cache, const Ropes& ropes, Tensor x,
                      const uint32_t* pos, const Watch& watch) {
    return finish_layer(layer, cache, layer, ropes, x, pos, watch, {});
  }
  // The layers after the last that keeps K and V, which attend over those of earlier ones: of a
  // cache of all layers, or of one of each kind (ModelConfig::one_of_each()).
  enum class Holds : uint8_t { all_layers, one_of_each };
  Status finish_sharing(const KvCache& cache, Holds holds, const Ropes& ropes, Tensor x,
                        const uint32_t* pos, const Watch& watch);
  // The same where the layer's K, V are in another layer of `cache`, or the mass is wanted.
  Status finish_layer(uint32_t layer, const KvCache& cache, uint32_t cache_layer,
                      const Ropes& ropes, Tensor x, const uint32_t* pos, const Watch& watch,
                      MassOut out);
  // Rows of x that share slots of the cache with the other parts' rows.
  struct Part {
    uint32_t first = 0, n_rows = 0;
    MassOut out;  // `first` counts from the part's first row
  };
  // finish_layer() where parts use the same slots one after the other: `place` puts K and V of part
  // i into the cache, right before the part's rows attend. All other products are of all rows.
  // x.rows: at most the backend's block_rows() where there are several parts; pos: ascending in
  // each part; the parts are all rows, in order. cache_layer: where the layer's K, V are in
  // `cache`.
  using Place = std::function<Status(size_t part)>;
  Status finish_parts(uint32_t layer, const KvCache& cache, uint32_t cache_layer,
                      const Ropes& ropes, Tensor x, const uint32_t* pos,
                      std::span<const Part> parts, const Place& place, const Watch& watch);
  // The attention probability that the rows of x put on every slot at this layer, mean over rows
  // and heads; x is only read, before finish_layer(). mass: host [pos[x.rows - 1] + 1].
  Status attention_mass(uint32_t layer, const KvCache& cache, const Ropes& ropes, Tensor x,
                        const uint32_t* pos, float* mass, const Watch& watch);
  // The attention probability that each row of x puts on the slots below n_outside, mean over
  // heads; x is only read. mass: host [x.rows].
  Status outside_mass(uint32_t layer, const KvCache& cache, const Ropes& ropes, Tensor x,
                      const uint32_t* pos, uint32_t n_outside, float* mass, const Watch& watch);
  // A whole layer for rows that each see their own cache, rows.size() <= max_rows and the backend's
  // block_rows(). x: [rows, d_model], in place; kv: kv() of the layer, scratch. An error of one
  // row is recorded in that row and leaves the others alone.
  Status step_layer(uint32_t layer, std::span<StepRow> rows, Tensor x, Tensor kv);
  // The final norm of rows after the last layer, in place; out: host [x.rows, d_model]. At most a
  // block of rows.
  Status hidden_states(Tensor x, float* out);
  // x: [1, d_model] after the last layer; logits: host [n_vocab]. NUMERIC if one is not finite.
  Status logits(Tensor x, float* logits) {
    BLEND_RETURN_IF_ERROR(project_logits(x));
    return read_logits(logits);
  }
  // The same in two calls: on the device, for up to max_logits rows, and from there, one of them.
  Status project_logits(Tensor x);
  Status read_logits(float* logits, uint32_t row = 0);
  // Reads rows 0 .. out.size()-1 with one copy, where the device has memory of its own; an error
  // of one is left in failures[i]. out[i]: host [n_vocab], or null: its caller has left.
  Status read_logits(std::span<float* const> out, std::span<Status> failures);

 private:
  // Elements of Q | K | V of a row.
  static uint32_t qkv_dim(const ModelConfig& c) { return c.q_dim() + 2 * c.kv_dim(); }
  // Q of the rows of xb, rotated and, where the model does so then, normed; q: as many rows.
  Status project_q(uint32_t layer, const Ropes& ropes, Tensor xb, const uint32_t* pos, Tensor q);
  // The same, not rotated.
  Status project_q(uint32_t layer, Tensor xb, Tensor q);
  Status rope_q(uint32_t layer, const Ropes& ropes, const uint32_t* pos, Tensor q);
  // Q of rows that attend over latent rows, of the normed ones; q: asked_dim() a row.
  Status project_latent_q(uint32_t layer, Tensor normed, Tensor q);
  // norm_heads() of as many parts of a row as the model norms by themselves.
  Status norm_parts(const Weight& weight, uint32_t n_heads, Tensor x);
  // The attention's norm of the rows of xb, in normed_: computed once for K | V and Q of the same.
  // xb itself where the model has none. It is in read_ where the next layer reads it too, because
  // xb has changed by then.
  Result<Tensor> norm(uint32_t layer, Tensor xb);
  // compute_qkv() by one product.
  Status project_qkv(uint32_t layer, KvCache& cache, const Ropes& ropes, Tensor x,
                     const uint32_t* pos, Tensor kv);
  // Q of the rows of a step, rotated; writes their K and V into the cache of each. rows[i].failure.
  Status project_each(uint32_t layer, std::span<StepRow> rows, Tensor x, Tensor kv, Tensor q);
  // Where a layer does not attend: what the result of each row of xb is multiplied by, C or z, in
  // q_; the result, in its place; and the result's projection, added to the rows of xb.
  Result<Tensor> project_gate(uint32_t layer, Tensor xb);
  Status mix(uint32_t layer, const KvCache& cache, uint32_t cache_layer, Tensor gate,
             const uint32_t* pos, const Watch& watch);
  Status add_mixed(uint32_t layer, Tensor mixed, Tensor xb);
  // step_layer() up to the feed-forward there.
  Status mix_each(uint32_t layer, std::span<StepRow> rows, Tensor x, Tensor kv);
  ScanLayer scan(uint32_t layer) const;
  // Adds attention's output, q, and the feed-forward to the rows of xb.
  Status add_attention(uint32_t layer, Tensor q, Tensor xb);
  Status add_feed_forward(uint32_t layer, Tensor xb);
  Status add_fed(uint32_t layer, Tensor xb);
  // The streams of rows, the others than x at its place; what they begin as, before a layer and
  // after it; and what they make together in the end, in added_, or x itself where there is one.
  StreamRows streams(Tensor xb);
  Tensor other_stream(size_t i, Tensor x) const {
    return view(*others_[i], 0, model_.config().d_model).slice(place_of(x), x.rows);
  }
  Status split(Tensor x);
  Result<Tensor> score_streams(uint32_t layer, Tensor xb);
  Status predict(uint32_t layer, Tensor xb);
  Status correct(uint32_t layer, Tensor xb);
  Result<Tensor> joined(Tensor x);
  // Adds what attention read, and the Laurel block's product of it.
  Status add_laurel(uint32_t layer, Tensor normed, Tensor xb);
  Status copy(Tensor from, Tensor to);
  // Rows of the embedding with what adapters add, not yet scaled.
  Status embed_rows(const int32_t* tokens, Tensor x);
  // Adds what the layer's own embedding says of the rows of xb, and scales them.
  Status add_inputs(uint32_t layer, Tensor xb);
  // The inner rows of what every row of a layer goes through, in act_.
  Result<Tensor> inner_rows(uint32_t layer, Tensor normed);
  Status add_experts(uint32_t layer, Tensor normed, Tensor xb);
  // The dense feed-forward and the experts beside it.
  Status add_both(uint32_t layer, Tensor xb);
  // The router's logits of rows, in scores_; and what the experts make of rows by those.
  Status route(uint32_t layer, Tensor x);
  Status run_experts(uint32_t layer, Tensor x, Tensor y);
  // What a Mamba-2's projections are multiplied by, x, B, C and dt in rows that are kept.
  Status scale_projected(Tensor kept);

  // Attention of the rows of q, in place. last: the last slot of their sequence, which rows see
  // where the model's rows see ahead.
  Status attend(uint32_t layer, const KvCache& cache, uint32_t cache_layer, TemperedRows* tempered,
                Tensor q, const uint32_t* pos, uint32_t last);
  Status attend_both_ways(uint32_t layer, const KvCache& cache, uint32_t cache_layer, Tensor q,
                          const uint32_t* pos, uint32_t last);

  // Backend::matmul(), plus what the model's adapters add. In a padded step it takes the padding
  // rows too: they come after the step's in every scratch, hold old data, and are never read.
  Status matmul(const Weight& w, Tensor x, Tensor y, bool accumulate);
  Tensor padded(Tensor t) const {
    t.rows = std::max(t.rows, product_rows_);
    return of_steps(t);
  }
  Tensor of_steps(Tensor t) const {
    t.steps = for_steps_;
    return t;
  }
  // Final logits of a row, in place; returns the first that is not finite, or n_vocab.
  uint32_t finish_logits(float* logits) const;
  Status check_finite(uint32_t first_bad) const;

  // x += y, normed by `post` where the model has such a norm, times `scale`.
  // y = operand W^T + bias.
  Status add_projected(const Weight& w, const Weight* bias, const Weight* post, float scale,
                       Tensor in, Tensor xb);
  // The same of a result that is at hand, in added_.
  Status add_result(const Weight* post, float scale, Tensor added, Tensor xb);
  AttentionRule rule(uint32_t layer) const;
  // Sums over n_rows rows and all heads -> their mean; mass: [n_slots].
  void average(float* mass, size_t n_slots, int64_t n_rows) const;

  explicit Forward(const Model& model) : model_(model) {}
  Tensor view(const DeviceBuffer& buffer, uint32_t rows, uint32_t cols) const {
    return {buffer.data(), rows, cols, model_.backend().traits().activation_bytes};
  }
  // The same for operands of a GEMM or attention.
  Tensor operand(const DeviceBuffer& buffer, uint32_t rows, uint32_t cols) const {
    return {buffer.data(), rows, cols, model_.backend().traits().operand_bytes};
  }

  // Where the first of these rows is in x(), as what is kept of each row is in tokens_ and read_.
  int64_t place_of(Tensor x) const {
    const auto at = static_cast<const std::byte*>(x.data) - static_cast<std::byte*>(x_->data());
    return at / (x.cols * model_.backend().traits().activation_bytes);
  }

  const Model& model_;
  TemperedRows* tempered_ = nullptr;
  uint32_t block_ = 0;                    // rows that pass through the wide scratch at once
  std::unique_ptr<DeviceBuffer> x_;       // [max_rows, d_model]
  std::vector<int32_t> tokens_;           // [max_rows] where layers embed tokens; else empty
  std::unique_ptr<DeviceBuffer> kv_;      // [max_rows, widest_row]
  std::unique_ptr<DeviceBuffer> normed_;  // [block, d_model]
  // [max_rows, d_model]: the row that the first layer of a pair read for each row of x(); null
  // where no layers are in pairs.
  std::unique_ptr<DeviceBuffer> read_;
  // The rows of x for which a result of a layer is at hand.
  struct Known {
    const void* x = nullptr;  // null: none
    int64_t rows = 0;
    uint32_t layer = 0;
    bool operator==(const Known&) const = default;
  };
  Known normed_of_;                  // what normed_ holds the norm of
  Known q_of_;                       // what q_ holds the rotated Q of
  std::unique_ptr<DeviceBuffer> q_;  // [block, asked_dim], or C, or z
  // [block, 2 * common_d_ff], or Q | K | V of one product, or B | X, or the gate beside Q, or of
  // latent rows Q of heads, or their values
  std::unique_ptr<DeviceBuffer> wide_;
  std::unique_ptr<DeviceBuffer> act_;  // [block, common_d_ff], or Q's latent
  // [block, d_model] where a result is not added at once: normed, scaled, of experts, of layers'
  // own embeddings, of streams or of a Laurel block; else null.
  std::unique_ptr<DeviceBuffer> added_;
  std::unique_ptr<DeviceBuffer>
      experts_;  // [block, d_model] beside a dense feed-forward; else null
  // [block, input_dim] of one layer: of its own embedding, of the usual one, the gate. Null
  // without.
  std::unique_ptr<DeviceBuffer> own_, context_, gated_;
  std::vector<int32_t> input_rows_;    // [block]: of the table of layers' own embeddings
  std::unique_ptr<DeviceBuffer> low_;  // [block, the largest rank of an adapter]; null without
  // The streams of rows but the first, [max_rows, d_model] each, and views of some of their rows;
  // empty where a row is one.
  std::vector<std::unique_ptr<DeviceBuffer>> others_;
  std::vector<Tensor> other_rows_;
  std::unique_ptr<DeviceBuffer> before_;         // [block, d_model]: the first, before a layer
  std::unique_ptr<DeviceBuffer> stream_scores_;  // [block, n_streams]
  std::unique_ptr<DeviceBuffer> laurel_;         // [block, laurel_rank]; null without
  std::vector<uint32_t> in_order_;               // 0, 1, ... of a block
  // [block, experts.latent]: of what experts read, and of what they write; null without.
  std::unique_ptr<DeviceBuffer> latent_in_, latent_out_;
  std::unique_ptr<DeviceBuffer> scores_;  // [block, experts.count]; like the next null without them
  std::unique_ptr<DeviceBuffer> expert_scratch_;  // ExpertOps::scratch_bytes()
  std::unique_ptr<DeviceBuffer> logits_;          // [max_logits, n_vocab]
  std::vector<RowOver> over_;                     // of the last step_layer()
  std::vector<RowInto> into_;
  int64_t product_rows_ = 0;  // least rows of a product
  bool for_steps_ = false;
  std::unique_ptr<DeviceBuffer> host_logits_;  // [max_logits, n_vocab] of the host, once asked for
};

}  // namespace blend
