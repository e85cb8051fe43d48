#include "engine/model.h"

#include <algorithm>
#include <cmath>

#include "backend/weight_error.h"
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
  using Kind = RowMixer::Kind;
  const RowMixer& mixer = model->config().mixer;
  const bool runs =
      mixer.scans() ? model->backend().scan() != nullptr : model->backend().conv() != nullptr;
  if (mixer.any() && !runs) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the %s backend runs no layers that %s, as %u of the %u layers of this %s "
                      "do; run it on the CPU",
                      model->backend().name(),
                      mixer.kind == Kind::delta ? "are Gated DeltaNets"
                      : mixer.kind == Kind::ssm ? "are Mamba-2s"
                                                : "convolve",
                      model->config().n_layers - model->config().n_attending(),
                      model->config().n_layers, model->config().architecture.c_str());
  }
  if (model->config().latent.any() && model->backend().latent() == nullptr) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "the %s backend runs no attention over latent rows (MLA), as this %s has; run "
        "it on the CPU",
        model->backend().name(), model->config().architecture.c_str());
  }
  if (const ModelConfig& c = model->config();
      c.n_streams > 1 && model->backend().streams() == nullptr) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "the %s backend runs no rows of several streams, and a row of this %s has %u; "
        "run it on the CPU",
        model->backend().name(), c.architecture.c_str(), c.n_streams);
  }
  if (const ModelConfig& c = model->config();
      (c.attends_unlike() || c.v_norm || c.input_dim != 0 || !c.gate_cuts.empty()) &&
      model->backend().family() == nullptr) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the %s backend runs no layers that share K and V, have heads of their own "
                      "or embeddings of their own, as those of this %s; run it on the CPU",
                      model->backend().name(), c.architecture.c_str());
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
  return pack_parts(out, parts, form);
}

Status Model::pack_parts(std::unique_ptr<Weight>& out, std::span<const TensorView* const> parts,
                         WeightForm form) {
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
  BLEND_ASSIGN(std::unique_ptr<LoraWeights> embedding_lora,
               loras.load_embedding(backend(), config()));
  if (embedding_lora != nullptr) {
    weight_bytes_ += embedding_lora->bytes();
    lora_weights_.emplace(embedding_.get(), std::move(embedding_lora));
  }
  BLEND_RETURN_IF_ERROR(
      pack_vector(output_norm_, 0, {TensorRole::output_norm}, config().norm_offset));
  BLEND_RETURN_IF_ERROR(pack_dense());
  if (config().input_dim != 0) {
    const TensorView& table = source_->tensor(TensorRole::input_embedding, 0);
    BLEND_ASSIGN(input_embedding_, b.load_table(table, false));
    weight_bytes_ += input_embedding_->bytes();
    BLEND_RETURN_IF_ERROR(
        pack_vector(input_norm_, 0, {TensorRole::input_norm}, config().norm_offset));
  }
  BLEND_RETURN_IF_ERROR(pack_streams());
  layers_.resize(config().n_layers);
  for (uint32_t i = 0; i < config().n_layers; ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_RETURN_IF_ERROR(pack_layer(i, loras));
    BLEND_RETURN_IF_ERROR(pack_loras(i, loras));
  }
  return Status::ok();
}

Status Model::pack_dense() {
  for (const TensorView& view : source_->dense()) {
    Dense dense{static_cast<size_t>(view.cols()), static_cast<size_t>(view.rows()), {}};
    dense.rows.resize(dense.in * dense.out);
    decode_weights(view.dtype, view.blocks, view.data, dense.rows.size(), dense.rows.data());
    for (size_t i = 0; i < dense.rows.size(); ++i) {
      if (!std::isfinite(dense.rows[i])) return not_finite(view, i, dense.rows[i]);
    }
    weight_bytes_ += dense.rows.size() * sizeof(float);
    dense_.push_back(std::move(dense));
  }
  return Status::ok();
}

Status Model::pack_mixer(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  if (config().mixer.scans()) {
    if (config().mixer.kind == RowMixer::Kind::delta) {
      BLEND_RETURN_IF_ERROR(pack_matrix(l.scan_in, layer, {R::delta_qkv, R::delta_b, R::delta_a}));
      BLEND_RETURN_IF_ERROR(pack_matrix(l.mixer_gate, layer, {R::delta_z}));
    } else {
      BLEND_RETURN_IF_ERROR(pack_matrix(l.scan_in, layer, {R::ssm_xbc, R::ssm_dt}));
      BLEND_RETURN_IF_ERROR(pack_matrix(l.mixer_gate, layer, {R::ssm_z}));
      BLEND_RETURN_IF_ERROR(pack_vector(l.mixer_taps_bias, layer, {R::ssm_taps_bias}, 0));
      BLEND_RETURN_IF_ERROR(pack_vector(l.ssm_skip, layer, {R::ssm_skip}, 0));
    }
    BLEND_RETURN_IF_ERROR(pack_matrix(l.mixer_out, layer, {R::scan_out}));
    BLEND_RETURN_IF_ERROR(pack_vector(l.scan_decay, layer, {R::scan_decay}, 0));
    BLEND_RETURN_IF_ERROR(pack_vector(l.scan_bias, layer, {R::scan_bias}, 0));
    BLEND_RETURN_IF_ERROR(pack_vector(l.scan_norm, layer, {R::scan_norm}, 0));
    return pack_vector(l.mixer_taps, layer, {R::scan_taps}, 0);
  }
  BLEND_RETURN_IF_ERROR(pack_matrix(l.conv_bx, layer, {R::conv_b, R::conv_x}));
  BLEND_RETURN_IF_ERROR(pack_matrix(l.mixer_gate, layer, {R::conv_c}));
  BLEND_RETURN_IF_ERROR(pack_matrix(l.mixer_out, layer, {R::conv_out}));
  return pack_vector(l.mixer_taps, layer, {R::conv_taps}, 0);
}

Status Model::pack_gated_query(uint32_t layer) {
  LayerWeights& l = layers_[layer];
  const TensorView& both = source_->tensor(TensorRole::attn_q, layer);
  const int64_t dim = config().head_dim;
  for (const bool gate : {false, true}) {
    std::vector<TensorView> heads(config().n_heads, both);
    std::vector<const TensorView*> parts;
    for (size_t h = 0; h < heads.size(); ++h) {
      heads[h].data = both.row((2 * static_cast<int64_t>(h) + (gate ? 1 : 0)) * dim);
      heads[h].shape = {dim, both.cols()};
      parts.push_back(&heads[h]);
    }
    BLEND_RETURN_IF_ERROR(pack_parts(gate ? l.q_gate : l.q, parts, form_));
  }
  return Status::ok();
}

// What a layer makes of its own embedding of a token, and of the token's usual one.
Status Model::pack_inputs(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  if (config().layer_scales) {
    const TensorView& scale = source_->tensor(R::layer_scale, layer);
    decode_weights(scale.dtype, scale.blocks, scale.data, 1, &l.scale);
    if (!std::isfinite(l.scale)) return not_finite(scale, 0, l.scale);
  }
  if (config().input_dim == 0) return Status::ok();
  TensorView context = source_->tensor(R::input_context, 0);
  context.data = context.row(int64_t{layer} * config().input_dim);
  context.shape[0] = config().input_dim;
  const TensorView* const parts[] = {&context};
  BLEND_RETURN_IF_ERROR(pack_parts(l.input_context, parts, form_));
  BLEND_RETURN_IF_ERROR(pack_matrix(l.input_gate, layer, {R::input_gate}));
  BLEND_RETURN_IF_ERROR(pack_matrix(l.input_out, layer, {R::input_out}));
  return pack_vector(l.input_post_norm, layer, {R::input_post_norm}, config().norm_offset);
}

Status Model::pack_streams() {
  for (uint32_t i = 0; i + 1 < config().n_streams; ++i) {
    for (const TensorRole role : {TensorRole::stream_in, TensorRole::stream_out}) {
      const TensorView* const parts[] = {&source_->expert_tensor(role, 0, i)};
      auto& to = role == TensorRole::stream_in ? stream_in_ : stream_out_;
      BLEND_RETURN_IF_ERROR(pack_parts(to.emplace_back(), parts, form_));
    }
  }
  return Status::ok();
}

// What joins the streams of a row in a layer, and its Laurel block.
Status Model::pack_streams(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  const float offset = config().norm_offset;
  if (config().laurel_rank != 0) {
    BLEND_RETURN_IF_ERROR(pack_matrix(l.laurel_in, layer, {R::laurel_in}));
    BLEND_RETURN_IF_ERROR(pack_matrix(l.laurel_out, layer, {R::laurel_out}));
    BLEND_RETURN_IF_ERROR(pack_vector(l.laurel_norm, layer, {R::laurel_norm}, offset));
  }
  if (config().n_streams == 1) return Status::ok();
  // A few weights that all else is multiplied by are not rounded to bytes.
  const WeightForm form = form_ == WeightForm::int8 ? WeightForm::packed : form_;
  BLEND_RETURN_IF_ERROR(pack_matrix(l.stream_router, layer, {R::stream_router}, form));
  BLEND_RETURN_IF_ERROR(pack_vector(l.stream_norm, layer, {R::stream_norm}, offset));
  BLEND_RETURN_IF_ERROR(pack_vector(l.stream_predict, layer, {R::stream_predict}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.stream_correct, layer, {R::stream_correct}, 0));
  return pack_vector(l.stream_scale, layer, {R::stream_scale}, 0);
}

Status Model::pack_layer(uint32_t layer, const LoraSet& loras) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  if (config().mixer.has(layer)) {
    BLEND_RETURN_IF_ERROR(pack_mixer(layer));
  } else {
    BLEND_RETURN_IF_ERROR(pack_attention(layer, loras));
  }
  BLEND_RETURN_IF_ERROR(pack_feed_forward(layer));
  BLEND_RETURN_IF_ERROR(pack_inputs(layer));
  BLEND_RETURN_IF_ERROR(pack_streams(layer));
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
  if (config().latent.any()) return pack_latent(layer);
  PackedQkv* const packed = backend().packed_qkv();
  // One product with what follows it knows only norms of heads before RoPE, and no adapters.
  if (packed != nullptr && config().qk_norm <= QkNorm::heads && !config().attn_gate &&
      !loras.adds_to(config(), layer, {R::attn_q, R::attn_k, R::attn_v})) {
    BLEND_RETURN_IF_ERROR(pack_matrix(l.qkv, layer, {R::attn_q, R::attn_k, R::attn_v}));
    const int64_t q_dim = config().q_dim(), kv_dim = config().kv_dim();
    BLEND_ASSIGN(l.q, packed->part_of(*l.qkv, 0, q_dim));
    BLEND_ASSIGN(l.kv, packed->part_of(*l.qkv, q_dim, 2 * kv_dim));
    BLEND_RETURN_IF_ERROR(
        pack_vector(l.qkv_bias, layer, {R::attn_q_bias, R::attn_k_bias, R::attn_v_bias}, 0));
  } else {
    BLEND_RETURN_IF_ERROR(config().attn_gate ? pack_gated_query(layer)
                                             : pack_matrix(l.q, layer, {R::attn_q}));
    if (has_tensor(R::attn_k, config(), layer)) {
      BLEND_RETURN_IF_ERROR(pack_matrix(l.kv, layer, {R::attn_k, value_role(layer)}));
    }
  }
  BLEND_RETURN_IF_ERROR(pack_matrix(l.attn_out, layer, {R::attn_out}));
  BLEND_RETURN_IF_ERROR(pack_vector(l.q_bias, layer, {R::attn_q_bias}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.kv_bias, layer, {R::attn_k_bias, R::attn_v_bias}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.attn_sinks, layer, {R::attn_sinks}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.attn_out_bias, layer, {R::attn_out_bias}, 0));
  return pack_qk_norms(layer);
}

// k stands before c in a row, and after it in the file.
Status Model::pack_latent(uint32_t layer) {
  using R = TensorRole;
  LayerWeights& l = layers_[layer];
  const Latent& latent = config().latent;
  const TensorView& file = source_->tensor(R::latent_kv, layer);
  TensorView k = file, c = file;
  k.data = file.row(latent.rank);
  k.shape[0] = latent.rope;
  c.shape[0] = latent.rank;
  const TensorView* const parts[] = {&k, &c};
  BLEND_RETURN_IF_ERROR(pack_parts(l.kv, parts, form_));
  // Small, and each makes a whole head: not rounded to bytes.
  const WeightForm form = form_ == WeightForm::int8 ? WeightForm::packed : form_;
  const auto pack_heads = [&](R role, int64_t rows, std::unique_ptr<Weight>& to) -> Status {
    const TensorView& all = source_->tensor(role, layer);
    std::vector<TensorView> heads(config().n_heads, all);
    for (size_t h = 0; h < heads.size(); ++h) {
      heads[h].data = all.row(static_cast<int64_t>(h) * rows);
      heads[h].shape[0] = rows;
    }
    BLEND_ASSIGN(to, backend().latent()->load(heads, form));
    weight_bytes_ += to->bytes();
    return Status::ok();
  };
  BLEND_RETURN_IF_ERROR(pack_heads(R::latent_k, latent.rank, l.latent_k));
  BLEND_RETURN_IF_ERROR(pack_heads(R::latent_v, latent.value, l.latent_v));
  const float offset = config().norm_offset;
  BLEND_RETURN_IF_ERROR(pack_vector(l.latent_norm, layer, {R::latent_kv_norm}, offset));
  if (latent.q_rank != 0) BLEND_RETURN_IF_ERROR(pack_matrix(l.latent_q, layer, {R::latent_q}));
  BLEND_RETURN_IF_ERROR(pack_vector(l.latent_q_norm, layer, {R::latent_q_norm}, offset));
  BLEND_RETURN_IF_ERROR(pack_matrix(l.q, layer, {R::attn_q}));
  return pack_matrix(l.attn_out, layer, {R::attn_out});
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
  if (!config().mixer.has(layer)) {
    BLEND_RETURN_IF_ERROR(pack_lora(*l.q, layer, {R::attn_q}, loras));
    if (l.kv != nullptr) {
      BLEND_RETURN_IF_ERROR(pack_lora(*l.kv, layer, {R::attn_k, value_role(layer)}, loras));
    }
    BLEND_RETURN_IF_ERROR(pack_lora(*l.attn_out, layer, {R::attn_out}, loras));
  } else if (config().mixer.kind == RowMixer::Kind::conv) {
    BLEND_RETURN_IF_ERROR(pack_lora(*l.conv_bx, layer, {R::conv_b, R::conv_x}, loras));
    BLEND_RETURN_IF_ERROR(pack_lora(*l.mixer_gate, layer, {R::conv_c}, loras));
    BLEND_RETURN_IF_ERROR(pack_lora(*l.mixer_out, layer, {R::conv_out}, loras));
  }
  if (l.input_gate != nullptr) {
    BLEND_RETURN_IF_ERROR(pack_lora(*l.input_gate, layer, {R::input_gate}, loras));
    BLEND_RETURN_IF_ERROR(pack_lora(*l.input_out, layer, {R::input_out}, loras));
  }
  if (!config().has_dense(layer) || l.gate_up == nullptr) return Status::ok();
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
  if (!config().feeds(layer)) return Status::ok();
  const bool gated = config().ffn_matrices() == 3;
  const auto pack_common = [&](R gate, R up, R down) -> Status {
    BLEND_RETURN_IF_ERROR(gated ? pack_matrix(l.gate_up, layer, {gate, up})
                                : pack_matrix(l.ffn_up, layer, {up}));
    return pack_matrix(l.ffn_down, layer, {down});
  };
  if (config().has_dense(layer)) {
    BLEND_RETURN_IF_ERROR(pack_common(R::ffn_gate, R::ffn_up, R::ffn_down));
  }
  if (!config().has_experts(layer)) return Status::ok();
  // Rounding the router's few weights to bytes would send rows to other experts.
  const WeightForm form = form_ == WeightForm::int8 ? WeightForm::packed : form_;
  BLEND_RETURN_IF_ERROR(pack_matrix(l.router, layer, {R::router}, form));
  BLEND_RETURN_IF_ERROR(pack_vector(l.router_choice, layer, {R::router_choice}, 0));
  BLEND_RETURN_IF_ERROR(pack_vector(l.router_bias, layer, {R::router_bias}, 0));
  if (config().experts.biases) BLEND_RETURN_IF_ERROR(pack_expert_biases(layer));
  BLEND_RETURN_IF_ERROR(gated
                            ? pack_experts(l.expert_gate_up, layer, {R::expert_gate, R::expert_up})
                            : pack_experts(l.expert_gate_up, layer, {R::expert_up}));
  BLEND_RETURN_IF_ERROR(pack_experts(l.expert_down, layer, {R::expert_down}));
  BLEND_RETURN_IF_ERROR(pack_vector(l.expert_scale, layer, {R::expert_scale}, 0));
  const float offset = config().norm_offset;
  BLEND_RETURN_IF_ERROR(pack_vector(l.router_norm, layer, {R::router_norm}, offset));
  BLEND_RETURN_IF_ERROR(pack_vector(l.expert_norm, layer, {R::expert_norm}, offset));
  BLEND_RETURN_IF_ERROR(pack_vector(l.expert_post_norm, layer, {R::expert_post_norm}, offset));
  BLEND_RETURN_IF_ERROR(pack_vector(l.dense_post_norm, layer, {R::dense_post_norm}, offset));
  if (config().experts.latent != 0) {
    BLEND_RETURN_IF_ERROR(pack_matrix(l.latent_in, layer, {R::latent_in}));
    BLEND_RETURN_IF_ERROR(pack_matrix(l.latent_out, layer, {R::latent_out}));
  }
  if (config().experts.shared_d_ff == 0) return Status::ok();
  BLEND_RETURN_IF_ERROR(pack_vector(l.shared_weight, layer, {R::shared_weight}, 0));
  return pack_common(R::shared_gate, R::shared_up, R::shared_down);
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
