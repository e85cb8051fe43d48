#include "engine/model.h"

namespace blend {

Result<std::shared_ptr<const Model>> Model::load(std::shared_ptr<Runtime> runtime,
                                                 const std::string& path, uint32_t max_context,
                                                 const Watch& watch) {
  std::shared_ptr<Model> model(new Model(std::move(runtime)));
  BLEND_ASSIGN(model->source_, open_model_source(path));
  model->config_ = model->source_->config();
  const uint32_t trained = model->config().context_length;
  if (max_context > trained) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "max_context %u is more than the %u rows this model was trained for",
                      max_context, trained);
  }
  model->context_length_ = max_context == 0 ? trained : max_context;

  // Hashing first also brings the file into the page cache at the disk's sequential speed.
  ThreadPool& pool = model->runtime_->pool();
  const auto parallel = [&pool](size_t n, const std::function<void(size_t)>& task) {
    pool.parallel_for(n, 1, [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) task(i);
    });
  };
  BLEND_ASSIGN(model->fingerprint_, model->source_->fingerprint(parallel, watch));
  BLEND_RETURN_IF_ERROR(model->pack(watch));
  return std::shared_ptr<const Model>(std::move(model));
}

Status Model::pack(const Watch& watch) {
  Backend& b = backend();
  const auto matrix = [&](std::unique_ptr<Weight>& out, uint32_t layer,
                          std::initializer_list<TensorRole> roles) -> Status {
    std::vector<const TensorView*> parts;
    for (const TensorRole role : roles) parts.push_back(&source_->tensor(role, layer));
    BLEND_ASSIGN(out, b.load_matrix(parts));
    weight_bytes_ += out->bytes();
    return Status::ok();
  };
  const auto vector = [&](std::unique_ptr<Weight>& out, uint32_t layer, TensorRole role) -> Status {
    BLEND_ASSIGN(out, b.load_vector(source_->tensor(role, layer)));
    weight_bytes_ += out->bytes();
    return Status::ok();
  };

  BLEND_RETURN_IF_ERROR(b.check_room(source_->n_parameters()));
  BLEND_ASSIGN(embedding_, b.load_table(source_->tensor(TensorRole::embedding, 0)));
  weight_bytes_ += embedding_->bytes();
  BLEND_RETURN_IF_ERROR(vector(output_norm_, 0, TensorRole::output_norm));
  BLEND_RETURN_IF_ERROR(matrix(output_, 0, {TensorRole::output}));
  layers_.resize(config().n_layers);
  for (uint32_t i = 0; i < config().n_layers; ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    LayerWeights& l = layers_[i];
    BLEND_RETURN_IF_ERROR(vector(l.attn_norm, i, TensorRole::attn_norm));
    BLEND_RETURN_IF_ERROR(matrix(l.q, i, {TensorRole::attn_q}));
    BLEND_RETURN_IF_ERROR(matrix(l.kv, i, {TensorRole::attn_k, TensorRole::attn_v}));
    BLEND_RETURN_IF_ERROR(matrix(l.attn_out, i, {TensorRole::attn_out}));
    BLEND_RETURN_IF_ERROR(vector(l.ffn_norm, i, TensorRole::ffn_norm));
    BLEND_RETURN_IF_ERROR(matrix(l.gate_up, i, {TensorRole::ffn_gate, TensorRole::ffn_up}));
    BLEND_RETURN_IF_ERROR(matrix(l.ffn_down, i, {TensorRole::ffn_down}));
  }
  return Status::ok();
}

}  // namespace blend
