#include "model/llama_source.h"

#include <array>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "model/fingerprint.h"
#include "model/gguf_tokenizer.h"

namespace blend {
namespace {

// Roles of one layer, in TensorRole's order from attn_norm on.
constexpr std::array<const char*, 9> kLayerTensors = {
    "attn_norm", "attn_q",   "attn_k", "attn_v",   "attn_output",
    "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down",
};
constexpr size_t kFirstLayerRole = static_cast<size_t>(TensorRole::attn_norm);
static_assert(static_cast<size_t>(TensorRole::ffn_down) - kFirstLayerRole + 1 ==
              kLayerTensors.size());

std::vector<int64_t> layer_shape(TensorRole role, const ModelConfig& c) {
  const int64_t d = c.d_model;
  const int64_t q = c.q_dim();
  const int64_t kv = c.kv_dim();
  const int64_t ff = c.d_ff;
  switch (role) {
    case TensorRole::attn_q:
      return {q, d};
    case TensorRole::attn_k:
    case TensorRole::attn_v:
      return {kv, d};
    case TensorRole::attn_out:
      return {d, q};
    case TensorRole::ffn_gate:
    case TensorRole::ffn_up:
      return {ff, d};
    case TensorRole::ffn_down:
      return {d, ff};
    case TensorRole::embedding:
    case TensorRole::output:
    case TensorRole::output_norm:
    case TensorRole::attn_norm:
    case TensorRole::ffn_norm:
      break;
  }
  return {d};
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t s : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(s);
  return text + "]";
}

// Immutable after open; safe for concurrent use.
class LlamaSource final : public ModelSource {
 public:
  static Result<std::unique_ptr<ModelSource>> open(std::span<const std::byte> file,
                                                   std::shared_ptr<const void> owner);

  const ModelConfig& config() const override { return config_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const TensorView& tensor(TensorRole role, uint32_t layer) const override {
    if (role == TensorRole::embedding) return tensors_[0];
    if (role == TensorRole::output_norm) return tensors_[1];
    if (role == TensorRole::output) return tensors_[output_];
    return tensors_[2 + layer * kLayerTensors.size() + static_cast<size_t>(role) - kFirstLayerRole];
  }
  uint64_t n_parameters() const override {
    uint64_t n = 0;
    for (const TensorView& t : tensors_) n += static_cast<uint64_t>(t.elements());
    return n;
  }
  Result<Sha256> fingerprint(const ParallelRun& parallel, const Watch& watch) const override {
    Sha256Hasher hasher;
    hash_config(config_, hasher);
    tokenizer_->hash(hasher);
    BLEND_RETURN_IF_ERROR(hash_tensors(tensors_, parallel, watch, hasher));
    return hasher.finish();
  }

 private:
  Status take_tensors(const GgufReader& gguf);
  Status take(const GgufReader& gguf, const std::string& name, const std::vector<int64_t>& shape);
  Status take_freq_factors(const GgufReader& gguf);
  Status refuse_others(const GgufReader& gguf) const;

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> file_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  // Embedding, output norm, nine a layer, and the output matrix unless it is the embedding.
  std::vector<TensorView> tensors_;
  size_t output_ = 0;
};

Result<std::unique_ptr<ModelSource>> LlamaSource::open(std::span<const std::byte> file,
                                                       std::shared_ptr<const void> owner) {
  BLEND_ASSIGN(const GgufReader gguf, GgufReader::parse(file));
  auto source = std::make_unique<LlamaSource>();
  source->owner_ = std::move(owner);
  source->file_ = file;
  BLEND_ASSIGN(source->config_, read_llama_config(gguf));
  BLEND_ASSIGN(source->tokenizer_, read_gguf_tokenizer(gguf));
  source->config_.n_vocab = source->tokenizer_->n_vocab();
  BLEND_RETURN_IF_ERROR(source->take_freq_factors(gguf));
  BLEND_RETURN_IF_ERROR(source->take_tensors(gguf));
  BLEND_RETURN_IF_ERROR(source->refuse_others(gguf));
  // The one the most work is done in; files that mix types keep the norms in f32.
  source->config_.weight_dtype = source->tensor(TensorRole::attn_q, 0).dtype;
  return std::unique_ptr<ModelSource>(std::move(source));
}

Status LlamaSource::take_tensors(const GgufReader& gguf) {
  const ModelConfig& c = config_;
  BLEND_RETURN_IF_ERROR(take(gguf, "token_embd.weight", {c.n_vocab, c.d_model}));
  BLEND_RETURN_IF_ERROR(take(gguf, "output_norm.weight", {c.d_model}));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    for (size_t i = 0; i < kLayerTensors.size(); ++i) {
      const auto role = static_cast<TensorRole>(kFirstLayerRole + i);
      BLEND_RETURN_IF_ERROR(
          take(gguf, "blk." + std::to_string(layer) + "." + kLayerTensors[i] + ".weight",
               layer_shape(role, c)));
    }
  }
  if (gguf.tensor("output.weight") != nullptr) {
    output_ = tensors_.size();
    BLEND_RETURN_IF_ERROR(take(gguf, "output.weight", {c.n_vocab, c.d_model}));
  }
  return Status::ok();
}

Status LlamaSource::take(const GgufReader& gguf, const std::string& name,
                         const std::vector<int64_t>& shape) {
  const GgufTensor* t = gguf.tensor(name);
  if (t == nullptr) return make_error(BLEND_E_FORMAT, "tensor '%s' is missing", name.c_str());
  TensorView view;
  view.name = name;
  switch (t->type) {
    case kGgmlF32:
      view.dtype = DType::f32;
      break;
    case kGgmlF16:
      view.dtype = DType::f16;
      break;
    case kGgmlBF16:
      view.dtype = DType::bf16;
      break;
    default:
      return make_error(BLEND_E_UNSUPPORTED,
                        "tensor '%s' is %s; libblend reads F32, F16 and BF16, so convert the model "
                        "to one of them",
                        name.c_str(), ggml_type_name(t->type).c_str());
  }
  // ggml counts dimensions from the fastest one.
  view.shape.assign(t->dims.rbegin(), t->dims.rend());
  if (view.shape != shape) {
    return make_error(BLEND_E_FORMAT,
                      "tensor '%s' has the shape %s; the hyperparameters ask for %s", name.c_str(),
                      shape_text(view.shape).c_str(), shape_text(shape).c_str());
  }
  view.data = file_.data() + t->offset;
  tensors_.push_back(std::move(view));
  return Status::ok();
}

// Llama 3.1: frequencies divided by these.
Status LlamaSource::take_freq_factors(const GgufReader& gguf) {
  const GgufTensor* t = gguf.tensor("rope_freqs.weight");
  if (t == nullptr) return Status::ok();
  if (t->type != kGgmlF32) {
    return make_error(BLEND_E_UNSUPPORTED, "tensor 'rope_freqs.weight' is %s; libblend reads F32",
                      ggml_type_name(t->type).c_str());
  }
  const uint64_t n = config_.rope.rotary_dim / 2;
  if (t->dims.size() != 1 || t->dims[0] != n) {
    return make_error(BLEND_E_FORMAT,
                      "tensor 'rope_freqs.weight' has the shape %s; [%llu] belongs "
                      "to 'llama.rope.dimension_count'",
                      shape_text({t->dims.rbegin(), t->dims.rend()}).c_str(),
                      static_cast<unsigned long long>(n));
  }
  std::vector<float>& factors = config_.rope.freq_factors;
  factors.resize(static_cast<size_t>(n));
  std::memcpy(factors.data(), file_.data() + t->offset, factors.size() * sizeof(float));
  for (const float f : factors) {
    if (!std::isfinite(f) || f < kMinRopeFactor) {
      return make_error(BLEND_E_FORMAT,
                        "tensor 'rope_freqs.weight' holds %g; factors are finite and above 0",
                        static_cast<double>(f));
    }
  }
  return Status::ok();
}

// A tensor that nothing here uses would change the result where it belongs (biases, experts, norms
// of Q and K): better no model than a wrong one.
Status LlamaSource::refuse_others(const GgufReader& gguf) const {
  std::unordered_set<std::string_view> known = {"rope_freqs.weight"};
  for (const TensorView& t : tensors_) known.insert(t.name);
  for (const GgufTensor& t : gguf.tensors()) {
    // Old converters wrote the rotation's frequencies, which follow from theta.
    if (known.contains(t.name) || t.name.ends_with(".attn_rot_embd.weight")) continue;
    std::string name = t.name.substr(0, 80);
    for (char& ch : name) ch = ch >= ' ' && ch < 127 ? ch : '?';
    return make_error(
        BLEND_E_UNSUPPORTED,
        "tensor '%s' has no place in a plain llama of %u layers; a model that needs it "
        "is not supported",
        name.c_str(), config_.n_layers);
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<ModelSource>> open_llama_gguf(std::span<const std::byte> file,
                                                     std::shared_ptr<const void> owner) {
  return LlamaSource::open(file, std::move(owner));
}

}  // namespace blend
