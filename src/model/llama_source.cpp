#include "model/llama_source.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "model/dense.h"
#include "model/fingerprint.h"
#include "model/fused_tensors.h"
#include "model/gguf_tensors.h"
#include "model/gguf_tokenizer.h"
#include "model/key_head_rows.h"
#include "model/latent_rows.h"
#include "model/lora/lora_adapter.h"
#include "model/tensor_table.h"

namespace blend {
namespace {

// What makes heads' keys and values of latent rows, as one.
constexpr const char* kLatentBoth = "attn_kv_b.weight";

// Refuses files that hold a part of a model.
Status refuse_parts(const GgufReader& gguf) {
  BLEND_ASSIGN(const std::optional<uint32_t> parts, gguf.get_u32("split.count"));
  BLEND_ASSIGN(const std::optional<uint32_t> part, gguf.get_u32("split.no"));
  if (parts.value_or(1) > 1) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "it is part %u of a model in %u files ('split.count'), which libblend reads "
                      "only as one: llama.cpp's 'llama-gguf-split --merge' makes it",
                      part.value_or(0) + 1, *parts);
  }
  if (gguf.tensors().empty()) {
    return make_error(BLEND_E_FORMAT,
                      "the file has no tensors: it is a vocabulary or a description, no model");
  }
  return Status::ok();
}

// Immutable after open; safe for concurrent use.
class LlamaSource final : public ModelSource {
 public:
  static Result<std::unique_ptr<ModelSource>> open(std::span<const std::byte> file,
                                                   std::shared_ptr<const void> owner);

  const ModelConfig& config() const override { return config_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const std::string& chat_template() const override { return chat_template_; }
  const TensorView& tensor(TensorRole role, uint32_t layer) const override {
    return tensors_.at(role, layer);
  }
  const TensorView& expert_tensor(TensorRole role, uint32_t layer, uint32_t expert) const override {
    return tensors_.at(role, layer, expert);
  }
  std::span<const TensorView> dense() const override { return dense_; }
  uint64_t n_parameters() const override { return tensors_.n_elements(); }
  Result<Sha256> fingerprint(const ParallelRun& parallel, const Watch& watch) const override {
    Sha256Hasher hasher;
    hash_config(config_, hasher);
    tokenizer_->hash(hasher);
    BLEND_RETURN_IF_ERROR(hash_tensors(tensors_.all(), parallel, watch, hasher));
    BLEND_RETURN_IF_ERROR(hash_tensors(dense_, parallel, watch, hasher));
    return hasher.finish();
  }
  Result<LoraAdapter> open_lora(const std::string& path) const override {
    return open_lora_adapter(path, config_, HeadRows::gguf);
  }

 private:
  Result<TensorView> find(const GgufReader& gguf, TensorRole role, uint32_t layer);
  Result<TensorView> find_block(const GgufReader& gguf, TensorRole role, uint32_t layer) const;
  Result<TensorView> find_of_heads(const GgufReader& gguf, TensorRole role, uint32_t layer);
  TensorView flat(TensorRole role, TensorView own) const;
  Result<TensorView> find_expert(const GgufReader& gguf, TensorRole role, uint32_t layer,
                                 uint32_t expert) const;
  Result<TensorView> find_of_stream(const GgufReader& gguf, TensorRole role, uint32_t stream) const;
  Result<TensorView> view(const GgufReader& gguf, const std::string& name) const;
  Status read_dense(const GgufReader& gguf);
  Status refuse_others(const GgufReader& gguf) const;

  std::shared_ptr<const void> owner_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string chat_template_;
  KeyHeadRows key_head_rows_;
  LatentRows latent_rows_;
  TensorTable tensors_;
  std::vector<TensorView> dense_;
};

Result<std::unique_ptr<ModelSource>> LlamaSource::open(std::span<const std::byte> file,
                                                       std::shared_ptr<const void> owner) {
  BLEND_ASSIGN(const GgufReader gguf, GgufReader::parse(file));
  BLEND_RETURN_IF_ERROR(refuse_parts(gguf));
  auto source = std::make_unique<LlamaSource>();
  source->owner_ = std::move(owner);
  BLEND_ASSIGN(source->config_, read_gguf_config(gguf));
  BLEND_ASSIGN(source->tokenizer_, read_gguf_tokenizer(gguf));
  source->config_.n_vocab = source->tokenizer_->n_vocab();
  BLEND_ASSIGN(const std::optional<std::string> chat, gguf.get_string("tokenizer.chat_template"));
  source->chat_template_ = chat.value_or("");
  // It is passed on as a C string.
  source->chat_template_.resize(
      std::min(source->chat_template_.size(), source->chat_template_.find('\0')));
  BLEND_ASSIGN(source->tensors_,
               TensorTable::fill(source->config_, gguf.tensor("output.weight") == nullptr,
                                 [&](TensorRole role, uint32_t layer, uint32_t expert) {
                                   if (is_of_streams(role)) {
                                     return source->find_of_stream(gguf, role, expert);
                                   }
                                   return is_of_experts(role)
                                              ? source->find_expert(gguf, role, layer, expert)
                                              : source->find(gguf, role, layer);
                                 }));
  BLEND_RETURN_IF_ERROR(source->read_dense(gguf));
  BLEND_RETURN_IF_ERROR(source->refuse_others(gguf));
  const TensorView& usual = source->tensors_.usual_matrix(source->config_);
  source->config_.weight_blocks = usual.blocks;
  source->config_.weight_dtype = usual.blocks == BlockType::none ? usual.dtype : DType::f16;
  return std::unique_ptr<ModelSource>(std::move(source));
}

// Q, K and V are fused where the file has such a tensor; gate and up where the file has no gate and
// `ffn_up` is larger than one of them.
Result<TensorView> LlamaSource::find(const GgufReader& gguf, TensorRole role, uint32_t layer) {
  if (!config_.blocks.empty()) return find_block(gguf, role, layer);
  if (role == TensorRole::latent_k || role == TensorRole::latent_v) {
    return find_of_heads(gguf, role, layer);
  }
  if (role == TensorRole::attn_q && config_.latent.q_rank != 0) {
    return view(gguf, gguf_tensor_name(role, layer, "attn_q_b.weight"));
  }
  const uint32_t own_layer = layer;
  layer = file_layer(role, config_, layer);
  std::string whole;
  const FusedTensor which = fused_tensor_of(role);
  switch (which) {
    case FusedTensor::qkv:
      whole = gguf_tensor_name(role, layer, "attn_qkv.weight");
      break;
    case FusedTensor::qkv_bias:
      whole = gguf_tensor_name(role, layer, "attn_qkv.bias");
      break;
    case FusedTensor::gate_up: {
      const GgufTensor* const up = gguf.tensor(gguf_tensor_name(TensorRole::ffn_up, layer));
      const bool has_gate = gguf.tensor(gguf_tensor_name(TensorRole::ffn_gate, layer)) != nullptr;
      if (!has_gate && up != nullptr && up->dims.back() != config_.common_d_ff(own_layer))
        whole = up->name;
      break;
    }
    case FusedTensor::conv_in:
      whole = gguf_tensor_name(role, layer, "shortconv.in_proj.weight");
      break;
    case FusedTensor::delta_qkvz:  // as the first files of a Qwen3-Next have it
      if (!config_.mixer.tiled) whole = gguf_tensor_name(role, layer, "ssm_in.weight");
      break;
    case FusedTensor::delta_ba:
      if (!config_.mixer.tiled) whole = gguf_tensor_name(role, layer, "ssm_ba.weight");
      break;
    case FusedTensor::ssm_in:
      whole = gguf_tensor_name(role, layer, "ssm_in.weight");
      break;
    default:
      break;
  }
  if (role == TensorRole::output_norm && config_.architecture.starts_with("lfm2")) {
    return view(gguf, "token_embd_norm.weight");  // as LFM2's converter calls it
  }
  const bool always = which == FusedTensor::conv_in || which == FusedTensor::delta_ba ||
                      which == FusedTensor::ssm_in;
  if (always && !whole.empty() && gguf.tensor(whole) == nullptr) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is missing", whole.c_str());
  }
  if (whole.empty() || gguf.tensor(whole) == nullptr) {
    std::string name = gguf_tensor_name(role, layer);
    if (role == TensorRole::ffn_norm && !config_.post_norms && gguf.tensor(name) == nullptr) {
      // Seed-OSS calls the feed-forward's norm by what it follows, Falcon-H1 without an end.
      for (const std::string& other : {gguf_tensor_name(TensorRole::attn_post_norm, layer),
                                       gguf_tensor_name(role, layer, "ffn_norm")}) {
        if (gguf.tensor(other) != nullptr) name = other;
      }
    }
    BLEND_ASSIGN(TensorView own, view(gguf, name));
    return flat(role, std::move(own));
  }
  BLEND_ASSIGN(TensorView fused, view(gguf, whole));
  if (which == FusedTensor::delta_qkvz || which == FusedTensor::delta_ba) {
    BLEND_ASSIGN(fused, key_head_rows_.by_role(fused, which, config_.mixer));
  }
  return part_of_fused(std::move(fused), role, own_layer, config_);
}

// The heads' matrices of latent rows: each kind by itself, or both as one.
Result<TensorView> LlamaSource::find_of_heads(const GgufReader& gguf, TensorRole role,
                                              uint32_t layer) {
  const auto has = [&](TensorRole part) {
    return gguf.tensor(gguf_tensor_name(part, layer)) != nullptr;
  };
  if (!has(TensorRole::latent_k) && !has(TensorRole::latent_v)) {
    BLEND_ASSIGN(const TensorView both, view(gguf, gguf_tensor_name(role, layer, kLatentBoth)));
    return latent_rows_.by_role(both, role, config_);
  }
  BLEND_ASSIGN(TensorView own, view(gguf, gguf_tensor_name(role, layer)));
  if (own.shape.size() == 3 && own.shape[0] == config_.n_heads) {
    own.shape = {own.shape[0] * own.shape[1], own.shape[2]};
  }
  return own;
}

// A layer that counts as two in the file, whose norms then have one name.
Result<TensorView> LlamaSource::find_block(const GgufReader& gguf, TensorRole role,
                                           uint32_t layer) const {
  const uint32_t block = file_layer(role, config_, layer);
  if (role == TensorRole::ffn_norm) {
    return view(gguf, gguf_tensor_name(TensorRole::attn_norm, block));
  }
  if (fused_tensor_of(role) == FusedTensor::ssm_in) {
    BLEND_ASSIGN(TensorView fused, view(gguf, gguf_tensor_name(role, block, "ssm_in.weight")));
    return part_of_fused(std::move(fused), role, layer, config_);
  }
  BLEND_ASSIGN(TensorView own, view(gguf, gguf_tensor_name(role, block)));
  return flat(role, std::move(own));
}

// A Mamba-2's vectors are columns in the file, and its norm is cut by key heads. A shared expert's
// weight may be a matrix of one row.
TensorView LlamaSource::flat(TensorRole role, TensorView own) const {
  const bool one_row = own.shape.size() == 2 && own.shape[0] == 1;
  if (role == TensorRole::shared_weight && one_row) own.shape.erase(own.shape.begin());
  const bool cut = role == TensorRole::scan_decay || role == TensorRole::ssm_skip ||
                   role == TensorRole::scan_norm;
  if (cut && config_.mixer.kind == RowMixer::Kind::ssm && own.blocks == BlockType::none) {
    own.shape = {own.elements()};
  }
  return own;
}

// Gate and up are one tensor where the file has no gate.
Result<TensorView> LlamaSource::find_expert(const GgufReader& gguf, TensorRole role, uint32_t layer,
                                            uint32_t expert) const {
  const uint32_t at = file_layer(role, config_, layer);
  const std::string name = gguf_tensor_name(role, at),
                    both = gguf_tensor_name(role, at, "ffn_gate_up_exps.weight");
  const bool fused = fused_tensor_of(role) == FusedTensor::expert_gate_up &&
                     gguf.tensor(name) == nullptr && gguf.tensor(both) != nullptr &&
                     config_.ffn_matrices() == 3;
  BLEND_ASSIGN(TensorView whole, view(gguf, fused ? both : name));
  return part_of_expert(std::move(whole), role, layer, expert, fused, config_);
}

// Those of all streams but the first are one tensor.
Result<TensorView> LlamaSource::find_of_stream(const GgufReader& gguf, TensorRole role,
                                               uint32_t stream) const {
  BLEND_ASSIGN(TensorView whole, view(gguf, gguf_tensor_name(role, 0)));
  return part_of_stream(std::move(whole), role, stream, config_);
}

Result<TensorView> LlamaSource::view(const GgufReader& gguf, const std::string& name) const {
  const GgufTensor* t = gguf.tensor(name);
  if (t == nullptr) return make_error(BLEND_E_FORMAT, "tensor '%s' is missing", name.c_str());
  return gguf_tensor_view(gguf, *t);
}

// An EmbeddingGemma's, where its converter was asked for them.
Status LlamaSource::read_dense(const GgufReader& gguf) {
  if (!config_.sees_ahead) return Status::ok();
  for (const char* const name : {"dense_2.weight", "dense_3.weight"}) {
    if (gguf.tensor(name) == nullptr) continue;
    BLEND_ASSIGN(TensorView matrix, view(gguf, name));
    dense_.push_back(std::move(matrix));
  }
  return check_dense(dense_, config_);
}

// A tensor that is not used here would change the result where it belongs (biases, norms
// of Q and K): better no model than a wrong one.
Status LlamaSource::refuse_others(const GgufReader& gguf) const {
  std::unordered_set<std::string_view> known = {kRopeFreqs, kRopeShort, kRopeLong};
  BLEND_ASSIGN(const uint32_t ahead, gguf_layers_ahead(gguf, config_.architecture));
  for (const TensorView& t : tensors_.all()) known.insert(t.name);
  for (const TensorView& t : dense_) known.insert(t.name);
  for (const GgufTensor& t : gguf.tensors()) {
    // Old converters wrote the rotation's frequencies, which follow from theta.
    if (known.contains(t.name) || t.name.ends_with(".attn_rot_embd.weight")) continue;
    const uint32_t layer = layer_of(t.name, "blk.");
    if (layer >= config_.n_layers && layer - config_.n_layers < ahead) continue;
    // Beside the two that it was cut into.
    if (config_.latent.any() && t.name.ends_with(kLatentBoth)) continue;
    // Converters keep them, though the layer attends over another's.
    if (layer >= config_.n_kept() && layer < config_.n_layers &&
        (t.name.ends_with(".attn_k.weight") || t.name.ends_with(".attn_v.weight") ||
         t.name.ends_with(".attn_k_norm.weight"))) {
      continue;
    }
    std::string name = t.name.substr(0, 80);
    for (char& ch : name) ch = ch >= ' ' && ch < 127 ? ch : '?';
    return make_error(
        BLEND_E_UNSUPPORTED,
        "tensor '%s' has no place in a %s of %u layers; a model that needs it is not supported",
        name.c_str(), config_.architecture.c_str(), config_.n_layers);
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<ModelSource>> open_llama_gguf(std::span<const std::byte> file,
                                                     std::shared_ptr<const void> owner) {
  return LlamaSource::open(file, std::move(owner));
}

}  // namespace blend
