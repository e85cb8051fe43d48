#include "engine/model.h"

#include <algorithm>

#include "engine/shared_steps.h"
#include "model/tensor_table.h"

namespace blend {
namespace {

Result<WeightForm> choose_form(WeightForm asked, const ModelConfig& config,
                               const Backend& backend) {
  if (asked == WeightForm::automatic) {
    const bool quantized = config.weight_blocks != BlockType::none;
    return quantized && backend.traits().mapped_weights ? WeightForm::mapped : WeightForm::packed;
  }
  if (backend.traits().takes(asked)) return asked;
  return make_error(BLEND_E_UNSUPPORTED,
                    "the %s backend does not keep weights %s; take them packed", backend.name(),
                    asked == WeightForm::mapped ? "in the mapped file" : "as 8-bit integers");
}

}  // namespace

Model::Model(std::shared_ptr<Runtime> runtime) : ModelDescription(std::move(runtime)) {}
Model::~Model() = default;

Result<std::shared_ptr<const GrammarVocabulary>> Model::grammar_vocabulary() const {
  const MutexLock lock(grammar_mutex_);
  if (grammar_vocabulary_ == nullptr) {
    BLEND_ASSIGN(grammar_vocabulary_, GrammarVocabulary::create(tokenizer()));
  }
  return grammar_vocabulary_;
}

Result<std::shared_ptr<const Model>> Model::load(std::shared_ptr<Runtime> runtime,
                                                 const std::string& path, const Options& options,
                                                 const Watch& watch) {
  std::shared_ptr<Model> model(new Model(std::move(runtime)));
  BLEND_ASSIGN(model->source_, open_model_source(path));
  model->config_ = model->source_->config();
  const uint32_t trained = model->config().context_length;
  if (options.max_context > trained) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "max_context %u is more than the %u rows this model was trained for",
                      options.max_context, trained);
  }
  model->context_length_ = options.max_context == 0 ? trained : options.max_context;
  BLEND_ASSIGN(model->form_, choose_form(options.weights, model->config(), model->backend()));
  if (model->config().experts.count != 0 && model->backend().experts() == nullptr) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the %s backend runs no mixtures of experts, and each layer of this %s has "
                      "%u; run it on the CPU",
                      model->backend().name(), model->config().architecture.c_str(),
                      model->config().experts.count);
  }
  if (model->config().conv.taps != 0 && model->backend().conv() == nullptr) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the %s backend runs no layers that convolve, as %u of the %u layers of this "
                      "%s do; run it on the CPU",
                      model->backend().name(),
                      model->config().n_layers - model->config().n_attending(),
                      model->config().n_layers, model->config().architecture.c_str());
  }

  BLEND_ASSIGN(const LoraSet loras, LoraSet::open(*model->source_, options.loras));
  model->loras_ = loras.infos();
  // Hashing first also brings the file into the page cache at the disk's sequential speed.
  ThreadPool& pool = model->runtime_->pool();
  const auto parallel = [&pool](size_t n, const std::function<void(size_t)>& task) {
    pool.parallel_for(n, 1, [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) task(i);
    });
  };
  BLEND_ASSIGN(model->fingerprint_, model->source_->fingerprint(parallel, watch));
  ModelConfig& config = model->config_;
  if (config.short_context != 0 && model->context_length_ > config.short_context) {
    // Chunks prefilled with other frequencies belong to another model.
    config.rope = config.long_rope;
    model->fingerprint_ = Sha256Hasher().field(to_hex(model->fingerprint_)).field("long").finish();
  }
  model->fingerprint_ = loras.fingerprint(model->fingerprint_);
  BLEND_RETURN_IF_ERROR(model->pack(loras, watch));
  if (const uint32_t rows = model->backend().traits().step_rows; rows > 1) {
    model->steps_ = std::make_unique<SharedSteps>(*model, rows);
  }
  return std::shared_ptr<const Model>(std::move(model));
}

Status Model::pack_matrix(std::unique_ptr<Weight>& out, uint32_t layer,
                          std::initializer_list<TensorRole> roles, WeightForm form) {
  std::vector<const TensorView*> parts;
  for (const TensorRole role : roles) parts.push_back(&source_->tensor(role, layer));
  BLEND_ASSIGN(out, backend().load_matrix(parts, form));
  weight_bytes_ += out->bytes();
  return Status::ok();
}

Status Model::pack_vector(std::unique_ptr<Weight>& out, uint32_t layer,
                          std::initializer_list<TensorRole> roles, float offset) {
  std::vector<const TensorView*> parts;
  for (const TensorRole role : roles) {
    if (!has_tensor(role, config(), layer)) return Status::ok();
    parts.push_back(&source_->tensor(role, layer));
  }
  BLEND_ASSIGN(out, backend().load_vector(parts, offset));
  weight_bytes_ += out->bytes();
  return Status::ok();
}

Status Model::pack(const LoraSet& loras, const Watch& watch) {
  Backend& b = backend();
  if (DeviceMemory* const memory = b.device_memory();
      memory != nullptr && form_ == WeightForm::packed) {
    BLEND_RETURN_IF_ERROR(memory->check_capacity(source_->n_parameters()));
  }
  BLEND_RETURN_IF_ERROR(pack_matrix(output_, 0, {TensorRole::output}));
  BLEND_RETURN_IF_ERROR(pack_lora(*output_, 0, {TensorRole::output}, loras));
  const TensorView& embedding = source_->tensor(TensorRole::embedding, 0);
  const bool tied = &source_->tensor(TensorRole::output, 0) == &embedding;
  BLEND_ASSIGN(embedding_, b.load_table(embedding, tied));
  weight_bytes_ += embedding_->bytes();
  BLEND_RETURN_IF_ERROR(
      pack_vector(output_norm_, 0, {TensorRole::output_norm}, config().norm_offset));
  layers_.resize(config().n_layers);
  for (uint32_t i = 0; i < config().n_layers; ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_RETURN_IF_ERROR(pack_layer(i, loras));
    BLEND_RETURN_IF_ERROR(pack_loras(i, loras));
  }
  return Status::ok();
}

Status Model::pack_conv(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  BLEND_RETURN_IF_ERROR(pack_matrix(l.conv_bx, layer, {R::conv_b, R::conv_x}));
  BLEND_RETURN_IF_ERROR(pack_matrix(l.conv_c, layer, {R::conv_c}));
  BLEND_RETURN_IF_ERROR(pack_matrix(l.conv_out, layer, {R::conv_out}));
  return pack_vector(l.conv_taps, layer, {R::conv_taps}, 0);
}

Status Model::pack_layer(uint32_t layer, const LoraSet& loras) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  if (config().conv.has(layer)) {
    BLEND_RETURN_IF_ERROR(pack_conv(layer));
  } else {
    BLEND_RETURN_IF_ERROR(pack_attention(layer, loras));
  }
  BLEND_RETURN_IF_ERROR(pack_feed_forward(layer));
  BLEND_RETURN_IF_ERROR(pack_vector(l.gate_up_bias, layer, {R::ffn_gate_bias, R::ffn_up_bias}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.ffn_down_bias, layer, {R::ffn_down_bias}, 0));
  const float offset = config().norm_offset;
  BLEND_RETURN_IF_ERROR(pack_vector(l.attn_norm, layer, {R::attn_norm}, offset));
  BLEND_RETURN_IF_ERROR(pack_vector(l.ffn_norm, layer, {R::ffn_norm}, offset));
  BLEND_RETURN_IF_ERROR(pack_vector(l.attn_post_norm, layer, {R::attn_post_norm}, offset));
  return pack_vector(l.ffn_post_norm, layer, {R::ffn_post_norm}, offset);
}

Status Model::pack_attention(uint32_t layer, const LoraSet& loras) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  PackedQkv* const packed = backend().packed_qkv();
  // One product with what follows it knows only norms of heads before RoPE, and no adapters.
  if (packed != nullptr && config().qk_norm <= QkNorm::heads &&
      !loras.adds_to(config(), layer, {R::attn_q, R::attn_k, R::attn_v})) {
    BLEND_RETURN_IF_ERROR(pack_matrix(l.qkv, layer, {R::attn_q, R::attn_k, R::attn_v}));
    const int64_t q_dim = config().q_dim(), kv_dim = config().kv_dim();
    BLEND_ASSIGN(l.q, packed->part_of(*l.qkv, 0, q_dim));
    BLEND_ASSIGN(l.kv, packed->part_of(*l.qkv, q_dim, 2 * kv_dim));
    BLEND_RETURN_IF_ERROR(
        pack_vector(l.qkv_bias, layer, {R::attn_q_bias, R::attn_k_bias, R::attn_v_bias}, 0));
  } else {
    BLEND_RETURN_IF_ERROR(pack_matrix(l.q, layer, {R::attn_q}));
    BLEND_RETURN_IF_ERROR(pack_matrix(l.kv, layer, {R::attn_k, R::attn_v}));
  }
  BLEND_RETURN_IF_ERROR(pack_matrix(l.attn_out, layer, {R::attn_out}));
  BLEND_RETURN_IF_ERROR(pack_vector(l.q_bias, layer, {R::attn_q_bias}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.kv_bias, layer, {R::attn_k_bias, R::attn_v_bias}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.attn_sinks, layer, {R::attn_sinks}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.attn_out_bias, layer, {R::attn_out_bias}, 0));
  return pack_qk_norms(layer);
}

Status Model::pack_lora(const Weight& matrix, uint32_t layer,
                        std::initializer_list<TensorRole> roles, const LoraSet& loras) {
  BLEND_ASSIGN(std::unique_ptr<LoraWeights> added, loras.load(backend(), config(), layer, roles));
  if (added == nullptr) return Status::ok();
  weight_bytes_ += added->bytes();
  lora_weights_.emplace(&matrix, std::move(added));
  return Status::ok();
}

Status Model::pack_loras(uint32_t layer, const LoraSet& loras) {
  using R = TensorRole;
  const LayerWeights& l = layers_[layer];
  if (!config().conv.has(layer)) {
    BLEND_RETURN_IF_ERROR(pack_lora(*l.q, layer, {R::attn_q}, loras));
    BLEND_RETURN_IF_ERROR(pack_lora(*l.kv, layer, {R::attn_k, R::attn_v}, loras));
    BLEND_RETURN_IF_ERROR(pack_lora(*l.attn_out, layer, {R::attn_out}, loras));
  } else {
    BLEND_RETURN_IF_ERROR(pack_lora(*l.conv_bx, layer, {R::conv_b, R::conv_x}, loras));
    BLEND_RETURN_IF_ERROR(pack_lora(*l.conv_c, layer, {R::conv_c}, loras));
    BLEND_RETURN_IF_ERROR(pack_lora(*l.conv_out, layer, {R::conv_out}, loras));
  }
  if (config().has_experts(layer)) return Status::ok();
  BLEND_RETURN_IF_ERROR(pack_lora(*l.gate_up, layer, {R::ffn_gate, R::ffn_up}, loras));
  return pack_lora(*l.ffn_down, layer, {R::ffn_down}, loras);
}

uint32_t Model::largest_lora_rank() const {
  uint32_t most = 0;
  for (const auto& [matrix, added] : lora_weights_) most = std::max(most, added->rank);
  return most;
}

Status Model::pack_experts(std::unique_ptr<Weight>& out, uint32_t layer,
                           std::initializer_list<TensorRole> roles) {
  std::vector<std::vector<const TensorView*>> parts(config().experts.count);
  for (uint32_t e = 0; e < parts.size(); ++e) {
    for (const TensorRole role : roles) {
      parts[e].push_back(&source_->expert_tensor(role, layer, e));
    }
  }
  BLEND_ASSIGN(out, backend().experts()->load(parts, form_));
  weight_bytes_ += out->bytes();
  return Status::ok();
}

// Those of gate and up are stacked like the matrices.
Status Model::pack_expert_biases(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  std::vector<TensorView> rows;
  for (int64_t e = 0; e < config().experts.count; ++e) {
    for (const R role : {R::expert_gate_bias, R::expert_up_bias}) {
      TensorView row = source_->tensor(role, layer);
      row.data = row.row(e);
      row.shape = {row.cols()};
      rows.push_back(std::move(row));
    }
  }
  std::vector<const TensorView*> parts;
  parts.reserve(rows.size());
  for (const TensorView& row : rows) parts.push_back(&row);
  BLEND_ASSIGN(l.expert_gate_up_bias, backend().load_vector(parts, 0));
  weight_bytes_ += l.expert_gate_up_bias->bytes();
  return pack_vector(l.expert_down_bias, layer, {R::expert_down_bias}, 0);
}

Status Model::pack_feed_forward(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  if (!config().has_experts(layer)) {
    BLEND_RETURN_IF_ERROR(pack_matrix(l.gate_up, layer, {R::ffn_gate, R::ffn_up}));
    return pack_matrix(l.ffn_down, layer, {R::ffn_down});
  }
  // Rounding the router's few weights to bytes would send rows to other experts.
  const WeightForm form = form_ == WeightForm::int8 ? WeightForm::packed : form_;
  BLEND_RETURN_IF_ERROR(pack_matrix(l.router, layer, {R::router}, form));
  BLEND_RETURN_IF_ERROR(pack_vector(l.router_choice, layer, {R::router_choice}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.router_bias, layer, {R::router_bias}, 0));
  if (config().experts.biases) BLEND_RETURN_IF_ERROR(pack_expert_biases(layer));
  BLEND_RETURN_IF_ERROR(pack_experts(l.expert_gate_up, layer, {R::expert_gate, R::expert_up}));
  BLEND_RETURN_IF_ERROR(pack_experts(l.expert_down, layer, {R::expert_down}));
  if (config().experts.shared_d_ff == 0) return Status::ok();
  BLEND_RETURN_IF_ERROR(pack_matrix(l.gate_up, layer, {R::shared_gate, R::shared_up}));
  return pack_matrix(l.ffn_down, layer, {R::shared_down});
}

// A norm after RoPE multiplies by weights that stand where they are, so that K with them could not
// be turned any more. K is kept without them, and Q, which meets it after RoPE, has both: the same
// products. What K is divided by does not depend on the rotation.
Status Model::pack_qk_norms(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  if (config().qk_norm != QkNorm::after_rope) {
    const float offset = config().norm_offset;
    BLEND_RETURN_IF_ERROR(pack_vector(l.q_norm, layer, {R::attn_q_norm}, offset));
    return pack_vector(l.k_norm, layer, {R::attn_k_norm}, offset);
  }
  const TensorView &q = source_->tensor(R::attn_q_norm, layer),
                   &k = source_->tensor(R::attn_k_norm, layer);
  const size_t n = config().head_dim;
  std::vector<float> both(n), of_k(n);
  decode_weights(q.dtype, q.blocks, q.data, n, both.data());
  decode_weights(k.dtype, k.blocks, k.data, n, of_k.data());
  for (size_t i = 0; i < n; ++i) both[i] *= of_k[i];
  const auto load = [&](const std::vector<float>& values, std::unique_ptr<Weight>& to) -> Status {
    TensorView view;
    view.name = q.name + " and " + k.name;
    view.shape = {static_cast<int64_t>(n)};
    view.data = reinterpret_cast<const std::byte*>(values.data());
    const TensorView* const parts[] = {&view};
    BLEND_ASSIGN(to, backend().load_vector(parts, 0));
    weight_bytes_ += to->bytes();
    return Status::ok();
  };
  BLEND_RETURN_IF_ERROR(load(both, l.late_q_norm));
  return load(std::vector<float>(n, 1.0f), l.k_norm);
}

}  // namespace blend
