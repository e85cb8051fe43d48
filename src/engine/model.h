// Model: a model source whose weights a backend has packed.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/rate_meter.h"
#include "base/threads/cancel.h"
#include "engine/lora_weights.h"
#include "engine/model_description.h"
#include "grammar/vocabulary.h"
#include "model/model_source.h"

namespace blend {

class SharedSteps;

struct LayerWeights {
  std::unique_ptr<Weight> attn_norm;  // [d_model]; like ffn_norm, null where the layer has none
  std::unique_ptr<Weight> q;          // [n_heads * head_dim, d_model]
  // [2 * kv_dim, d_model]: K over V, one GEMM; null where the layer shares another's K and V.
  std::unique_ptr<Weight> kv;
  // q over kv, which are views of it, where the backend stacks them; else null.
  std::unique_ptr<Weight> qkv;
  std::unique_ptr<Weight> attn_out;  // [d_model, n_heads * head_dim]
  // Where the model attends over latent rows; else null. q is [n_heads * (nope + rope), q_rank or
  // d_model] then, and kv [rope + rank, d_model].
  std::unique_ptr<Weight> latent_norm;    // [rank]
  std::unique_ptr<Weight> latent_k;       // LatentOps::load(): of each head [rank, nope]
  std::unique_ptr<Weight> latent_v;       // LatentOps::load(): of each head [value, rank]
  std::unique_ptr<Weight> latent_q;       // [q_rank, d_model]; like the next null without q_rank
  std::unique_ptr<Weight> latent_q_norm;  // [q_rank]
  std::unique_ptr<Weight> ffn_norm;       // [d_model]
  std::unique_ptr<Weight> q_gate;         // [n_heads * head_dim, d_model]; null without attn_gate
  // Of a layer that does not attend (RowMixer), which has none of those of attention; else null.
  std::unique_ptr<Weight> mixer_gate;       // [mixed_dim, d_model]: C, or z
  std::unique_ptr<Weight> mixer_taps;       // [d_model or qkv_dim, mixer.taps]
  std::unique_ptr<Weight> mixer_taps_bias;  // [qkv_dim], or null
  std::unique_ptr<Weight> mixer_out;        // [d_model, mixed_dim]
  std::unique_ptr<Weight> conv_bx;          // [2 * d_model, d_model]: B over X, one GEMM
  // [mixer_row_dim, d_model]: q, k, v, b and a, or x, B, C and dt, one GEMM
  std::unique_ptr<Weight> scan_in;
  std::unique_ptr<Weight> scan_decay;  // [v_heads], like the next
  std::unique_ptr<Weight> scan_bias;
  std::unique_ptr<Weight> scan_norm;  // [v_dim]; of a Mamba-2 [value_dim], or null
  std::unique_ptr<Weight> ssm_skip;   // [v_heads]
  // What every row goes through: the feed-forward, or in a layer with experts the shared ones or
  // the feed-forward beside them; null: there is nothing of that kind.
  std::unique_ptr<Weight> gate_up;   // [2 * common_d_ff, d_model]: gate over up, one GEMM
  std::unique_ptr<Weight> ffn_up;    // [common_d_ff, d_model] where there is no gate; else null
  std::unique_ptr<Weight> ffn_down;  // [d_model, common_d_ff]
  // Null where the config has none.
  std::unique_ptr<Weight> router;               // [experts.count, d_model]
  std::unique_ptr<Weight> router_choice;        // [experts.count]
  std::unique_ptr<Weight> router_bias;          // [experts.count]
  std::unique_ptr<Weight> expert_gate_up;       // ExpertOps::load()
  std::unique_ptr<Weight> expert_down;          // ExpertOps::load()
  std::unique_ptr<Weight> expert_gate_up_bias;  // ExpertLayer
  std::unique_ptr<Weight> expert_down_bias;     // ExpertLayer
  std::unique_ptr<Weight> q_bias;               // [n_heads * head_dim]
  std::unique_ptr<Weight> kv_bias;              // [2 * kv_dim]
  std::unique_ptr<Weight> qkv_bias;             // both, where qkv is
  std::unique_ptr<Weight> q_norm;               // before RoPE: [head_dim], or of all heads
  std::unique_ptr<Weight> k_norm;               // [head_dim], or of all heads
  std::unique_ptr<Weight> late_q_norm;          // after RoPE, with K's weights in it: [head_dim]
  std::unique_ptr<Weight> attn_sinks;           // [n_heads]
  std::unique_ptr<Weight> attn_out_bias;        // [d_model]
  std::unique_ptr<Weight> attn_post_norm;       // [d_model]
  std::unique_ptr<Weight> gate_up_bias;         // [2 * d_ff]
  std::unique_ptr<Weight> ffn_down_bias;        // [d_model]
  std::unique_ptr<Weight> ffn_post_norm;        // [d_model]
  std::unique_ptr<Weight> input_context;        // [input_dim, d_model]: this layer's rows
  std::unique_ptr<Weight> input_gate;           // [input_dim, d_model]
  std::unique_ptr<Weight> input_out;            // [d_model, input_dim]
  std::unique_ptr<Weight> input_post_norm;      // [d_model]
  float scale = 1;                              // of the layer's result
  // Null where the config has none. The roles have their shapes.
  std::unique_ptr<Weight> laurel_in, laurel_out, laurel_norm;
  std::unique_ptr<Weight> stream_router, stream_norm, stream_predict, stream_correct, stream_scale;
  // Of layers with experts; null where the config has none. The roles have their shapes.
  std::unique_ptr<Weight> expert_scale, shared_weight, router_norm, expert_norm, expert_post_norm,
      dense_post_norm, latent_in, latent_out;
};

// A described model with its weights and tokenizer. Safe for concurrent use.
class Model final : public ModelDescription {
 public:
  struct Options {
    uint32_t max_context = 0;  // 0: the training length; more than that is refused
    // automatic: mapped where they are quantized and the backend can, else packed.
    WeightForm weights = WeightForm::automatic;
    std::vector<LoraOptions> loras = {};
  };
  static Result<std::shared_ptr<const Model>> load(std::shared_ptr<Runtime> runtime,
                                                   const std::string& path, const Options& options,
                                                   const Watch& watch);

  const Model* loaded() const override { return this; }
  const Tokenizer& tokenizer() const { return source_->tokenizer(); }
  const std::string& chat_template() const { return source_->chat_template(); }
  uint64_t n_parameters() const { return source_->n_parameters(); }
  uint64_t weight_bytes() const { return weight_bytes_; }
  WeightForm weight_form() const { return form_; }

  const Weight& embedding() const { return *embedding_; }      // table [n_vocab, d_model]
  const Weight& output_norm() const { return *output_norm_; }  // [d_model]
  const Weight& output() const { return *output_; }            // [n_vocab, d_model]
  const LayerWeights& layer(uint32_t i) const { return layers_[i]; }
  // Of layers' own embeddings of tokens; null where the model has none.
  const Weight* input_embedding() const { return input_embedding_.get(); }
  const Weight* input_norm() const { return input_norm_.get(); }  // [input_dim]
  // Stream i + 1 is made of the embedding by the first, and after the last layer goes through the
  // second; [d_model, d_model].
  const Weight& stream_in(size_t i) const { return *stream_in_[i]; }
  const Weight& stream_out(size_t i) const { return *stream_out_[i]; }

  // A matrix that a pooled vector goes through, on the host: few products, of one row each.
  struct Dense {
    size_t in = 0, out = 0;
    std::vector<float> rows;  // [out, in]
  };
  const std::vector<Dense>& dense() const { return dense_; }  // in their order

  // The adapters that it was opened with.
  const std::vector<LoraInfo>& loras() const { return loras_; }
  // What they add to the product with one of the matrices above; null: nothing.
  const LoraWeights* lora(const Weight& matrix) const {
    const auto added = lora_weights_.find(&matrix);
    return added == lora_weights_.end() ? nullptr : added->second.get();
  }
  uint32_t largest_lora_rank() const;
  // Its tokens for grammars, made for the first one and kept.
  Result<std::shared_ptr<const GrammarVocabulary>> grammar_vocabulary() const;

  // Lets sequences decode together; null: the backend cannot.
  SharedSteps* steps() const { return steps_.get(); }

  // Measures rows a second through a layer in fuses, for the next ones.
  RateMeter& compute_meter() const { return compute_meter_; }

  ~Model() override;

 private:
  explicit Model(std::shared_ptr<Runtime> runtime);
  Status pack(const LoraSet& loras, const Watch& watch);
  Status pack_layer(uint32_t layer, const LoraSet& loras);
  Status pack_attention(uint32_t layer, const LoraSet& loras);
  Status pack_latent(uint32_t layer);
  Status pack_mixer(uint32_t layer);
  // Q, and its gate beside it, whose rows alternate by head.
  Status pack_gated_query(uint32_t layer);
  Status pack_inputs(uint32_t layer);
  Status pack_streams();
  Status pack_streams(uint32_t layer);
  // What the adapters add to the products of a layer.
  Status pack_loras(uint32_t layer, const LoraSet& loras);
  Status pack_lora(const Weight& matrix, uint32_t layer, std::initializer_list<TensorRole> roles,
                   const LoraSet& loras);
  // The role whose matrix makes V.
  TensorRole value_role(uint32_t layer) const {
    return config().attention(layer).k_is_v ? TensorRole::attn_k : TensorRole::attn_v;
  }
  Status pack_qk_norms(uint32_t layer);
  Status pack_dense();
  Status pack_feed_forward(uint32_t layer);
  Status pack_expert_biases(uint32_t layer);
  // A matrix of each expert.
  Status pack_experts(std::unique_ptr<Weight>& out, uint32_t layer,
                      std::initializer_list<TensorRole> roles);
  // Stacks the roles' tensors; for vectors, `offset` is added to each element.
  Status pack_matrix(std::unique_ptr<Weight>& out, uint32_t layer,
                     std::initializer_list<TensorRole> roles) {
    return pack_matrix(out, layer, roles, form_);
  }
  Status pack_matrix(std::unique_ptr<Weight>& out, uint32_t layer,
                     std::initializer_list<TensorRole> roles, WeightForm form);
  Status pack_parts(std::unique_ptr<Weight>& out, std::span<const TensorView* const> parts,
                    WeightForm form);
  Status pack_vector(std::unique_ptr<Weight>& out, uint32_t layer,
                     std::initializer_list<TensorRole> roles, float offset);

  std::unique_ptr<ModelSource> source_;
  WeightForm form_ = WeightForm::packed;
  uint64_t weight_bytes_ = 0;
  std::unique_ptr<Weight> embedding_;
  std::unique_ptr<Weight> output_norm_;
  std::unique_ptr<Weight> output_;
  std::unique_ptr<Weight> input_embedding_;
  std::unique_ptr<Weight> input_norm_;
  std::vector<std::unique_ptr<Weight>> stream_in_, stream_out_;
  std::vector<LayerWeights> layers_;
  std::vector<Dense> dense_;
  std::vector<LoraInfo> loras_;
  std::unordered_map<const Weight*, std::unique_ptr<LoraWeights>> lora_weights_;
  mutable RateMeter compute_meter_;
  std::unique_ptr<SharedSteps> steps_;
  mutable Mutex grammar_mutex_;
  mutable std::shared_ptr<const GrammarVocabulary> grammar_vocabulary_
      BLEND_GUARDED_BY(grammar_mutex_);
};

}  // namespace blend
