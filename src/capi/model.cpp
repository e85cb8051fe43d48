#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/log.h"
#include "capi/structs.h"

using blend::Status;

namespace {

constexpr uint32_t kTokenizeFlags =
    BLEND_TOKENIZE_BOS | BLEND_TOKENIZE_SPECIAL | BLEND_TOKENIZE_RAW;

Status check_flags(uint32_t flags) {
  if ((flags & ~kTokenizeFlags) == 0) return Status::ok();
  return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_TOKENIZE_ bits",
                           flags);
}

// A larger count is taken for garbage before the array is read.
constexpr size_t kMostLoras = 1024;

// The protocol of every output buffer: the full count always, the content only if it all fits.
template <typename T>
Status copy_out(const T* data, size_t n, T* out, size_t capacity, size_t* n_out, const char* unit) {
  *n_out = n;
  if (n > capacity) {
    return blend::make_error(BLEND_E_BUFFER_TOO_SMALL, "the buffer holds %zu %s, %zu are needed",
                             capacity, unit, n);
  }
  if (n > 0) std::memcpy(out, data, n * sizeof(T));
  return Status::ok();
}

blend::Result<std::vector<blend::LoraOptions>> read_loras(const blend_model_options& o) {
  std::vector<blend::LoraOptions> loras;
  if (o.n_loras == 0) return loras;
  BLEND_REQUIRE(o.loras);
  if (o.n_loras > kMostLoras) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "n_loras is %zu; at most %zu make sense",
                             o.n_loras, kMostLoras);
  }
  BLEND_RETURN_IF_ERROR(blend::capi::check_elements(o.loras, o.n_loras, "LoRA adapter"));
  for (size_t i = 0; i < o.n_loras; ++i) {
    blend_lora lora{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(blend::capi::element(o.loras, i), lora));
    if (lora.path == nullptr || lora.reserved != 0) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "LoRA adapter %zu: %s", i,
                               lora.path == nullptr ? "path is NULL" : "reserved is not 0");
    }
    loras.push_back({lora.path, lora.scale == 0 ? 1.0 : lora.scale});
  }
  return loras;
}

}  // namespace

blend::Result<std::shared_ptr<const blend::Model>> blend_model::loaded() const {
  const blend::Model* const model = description->loaded();
  if (model == nullptr) {
    return Status{
        BLEND_E_INVALID_ARGUMENT,
        "this model is only described: it has no weights and no tokenizer here; open its "
        "file with blend_model_open, or run it in the host and use blend_layerwise_create"};
  }
  BLEND_RETURN_IF_ERROR(model->runtime().check_fork());
  return std::shared_ptr<const blend::Model>(description, model);
}

blend::Status blend::capi::check_fusible(const ModelDescription& model) {
  if (!model.config().sees_ahead) return Status::ok();
  return make_error(BLEND_E_UNSUPPORTED,
                    "this %s only embeds (blend_model_embed): its rows see the whole text, so none "
                    "can be reused, and none is generated",
                    model.config().architecture.c_str());
}

blend::Result<std::shared_ptr<const blend::Model>> blend_model::fusible() const {
  BLEND_RETURN_IF_ERROR(blend::capi::check_fusible(*description));
  return loaded();
}

std::string blend_model::profile_path(const char* named) const {
  if (named != nullptr) return named;
  std::error_code none;
  const std::string stem = std::filesystem::is_directory(path, none) ? path + "/blend" : path;
  // With adapters the model is another, and so is what was measured of it.
  const blend::Model* const model = description->loaded();
  if (model == nullptr || model->loras().empty()) return stem + ".profile";
  const std::span<const uint8_t> first(model->fingerprint().data(), 6);
  return stem + ".lora-" + blend::to_hex(first) + ".profile";
}

extern "C" {

int32_t blend_model_options_init(blend_model_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_model_open(blend_model** out, const blend_ctx* ctx, const char* path,
                         const blend_model_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(ctx);
    BLEND_REQUIRE(path);
    BLEND_RETURN_IF_ERROR(ctx->runtime->check_fork());
    blend_model_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    if (o.weights > BLEND_WEIGHTS_INT8) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "weights %u: no BLEND_WEIGHTS_ value of this version", o.weights);
    }
    BLEND_ASSIGN(std::vector<blend::LoraOptions> loras, read_loras(o));
    auto handle = std::make_unique<blend_model>();
    const auto begin = std::chrono::steady_clock::now();
    auto loaded =
        blend::Model::load(ctx->runtime, path,
                           {.max_context = o.max_context,
                            .weights = static_cast<blend::WeightForm>(o.weights),
                            .loras = std::move(loras)},
                           blend::capi::make_watch(o.cancel, o.progress, o.progress_user));
    if (!loaded.is_ok()) return loaded.status().with_context("model '" + std::string(path) + "'");
    blend::capi::tell_opened(ctx->runtime->log(), **loaded, path, begin);
    handle->description = std::move(*loaded);
    handle->path = path;
    *out = handle.release();
    return Status::ok();
  });
}

void blend_model_close(blend_model* model) { delete model; }

int32_t blend_model_get_info(const blend_model* model, blend_model_info* info, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    const blend::ModelDescription& m = *model->description;
    const blend::ModelConfig& c = m.config();
    blend_model_info i{};
    i.bos_token = i.eos_token = -1;
    i.chat_template = "";
    if (const blend::Model* const loaded = m.loaded()) {
      i.bos_token = loaded->tokenizer().bos();
      i.eos_token = loaded->tokenizer().eos();
      i.add_bos = loaded->tokenizer().add_bos() ? 1 : 0;
      i.chat_template = loaded->chat_template().c_str();
      i.n_parameters = loaded->n_parameters();
      i.weight_bytes = loaded->weight_bytes();
      i.weights = static_cast<uint32_t>(loaded->weight_form());
      i.n_loras = loaded->loras().size();
    }
    i.n_layers = c.n_layers;
    i.d_model = c.d_model;
    i.n_heads = c.n_heads;
    i.n_kv_heads = c.n_kv_heads;
    i.head_dim = c.head_dim;
    i.d_ff = static_cast<uint32_t>(std::lround(c.row_d_ff(c.n_layers)));
    i.n_vocab = c.n_vocab;
    i.context_length = m.context_length();
    i.rope_theta = c.rope.theta;
    i.kv_bytes_per_token =
        c.all_row_dims() * static_cast<uint64_t>(m.backend().traits().cache_bytes);
    i.architecture = c.architecture.c_str();
    i.name = c.name.c_str();
    i.weight_dtype = c.weight_blocks == blend::BlockType::none
                         ? blend::dtype_name(c.weight_dtype)
                         : blend::block_type_name(c.weight_blocks);
    std::memcpy(i.fingerprint, m.fingerprint().data(), m.fingerprint().size());
    return blend::capi::write_struct(info, i);
  });
}

int32_t blend_model_get_lora(const blend_model* model, size_t index, blend_lora_info* info,
                             blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    const blend::Model* const loaded = model->description->loaded();
    const size_t n = loaded == nullptr ? 0 : loaded->loras().size();
    if (index >= n) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "there is no LoRA adapter %zu: the model was opened with %zu", index,
                               n);
    }
    const blend::LoraInfo& lora = loaded->loras()[index];
    blend_lora_info i{};
    i.rank = lora.rank;
    i.n_matrices = lora.n_matrices;
    i.scale = lora.options.scale;
    i.path = lora.options.path.c_str();
    std::memcpy(i.digest, lora.digest.data(), lora.digest.size());
    return blend::capi::write_struct(info, i);
  });
}

int32_t blend_model_tokenize(const blend_model* model, const char* text, size_t text_bytes,
                             uint32_t flags, int32_t* tokens, size_t capacity, size_t* n_tokens,
                             blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(n_tokens);
    *n_tokens = 0;
    BLEND_REQUIRE(model);
    if (text_bytes > 0) BLEND_REQUIRE(text);
    if (capacity > 0) BLEND_REQUIRE(tokens);
    BLEND_RETURN_IF_ERROR(check_flags(flags));
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(const std::vector<int32_t> ids,
                 loaded->tokenizer().encode({text, text_bytes}, flags));
    return copy_out(ids.data(), ids.size(), tokens, capacity, n_tokens, "tokens");
  });
}

int32_t blend_model_detokenize(const blend_model* model, const int32_t* tokens, size_t n_tokens,
                               uint32_t flags, char* text, size_t capacity, size_t* n_bytes,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(n_bytes);
    *n_bytes = 0;
    BLEND_REQUIRE(model);
    if (n_tokens > 0) BLEND_REQUIRE(tokens);
    if (capacity > 0) BLEND_REQUIRE(text);
    BLEND_RETURN_IF_ERROR(check_flags(flags));
    const std::span<const int32_t> ids(tokens, n_tokens);
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_RETURN_IF_ERROR(loaded->check_tokens(ids, "blend_model_detokenize"));
    BLEND_ASSIGN(const std::string decoded, loaded->tokenizer().decode(ids, flags));
    return copy_out(decoded.data(), decoded.size(), text, capacity, n_bytes, "bytes");
  });
}

}  // extern "C"
