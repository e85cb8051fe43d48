#include <algorithm>
#include <cstring>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/kv_view.h"
#include "capi/structs.h"

using blend::Status;

namespace {

// Far above any head; asked before the array is read.
constexpr size_t kMaxFreqFactors = size_t{1} << 16;

blend_model_description default_description() {
  blend_model_description d{};
  d.struct_size = sizeof d;
  d.weight_dtype = BLEND_DTYPE_F32;
  d.rope_layout = BLEND_ROPE_HALF_SPLIT;
  d.rope_theta = 10000.0;
  d.rope_linear_scale = 1.0;
  return d;
}

Status read_rope(const blend_model_description& d, blend::RopeParams& rope) {
  if (d.rope_layout != BLEND_ROPE_INTERLEAVED && d.rope_layout != BLEND_ROPE_HALF_SPLIT) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "rope_layout %u is not a BLEND_ROPE_ value",
                             d.rope_layout);
  }
  if (d.n_rope_freq_factors > 0) BLEND_REQUIRE(d.rope_freq_factors);
  if (d.n_rope_freq_factors > kMaxFreqFactors) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "n_rope_freq_factors is %zu; it must be rotary_dim / 2 or 0",
                             d.n_rope_freq_factors);
  }
  rope.layout = d.rope_layout == BLEND_ROPE_INTERLEAVED ? blend::RopeLayout::interleaved
                                                        : blend::RopeLayout::half_split;
  rope.rotary_dim = d.rotary_dim == 0 ? d.head_dim : d.rotary_dim;
  rope.theta = d.rope_theta;
  rope.linear_scale = d.rope_linear_scale;
  if (d.n_rope_freq_factors > 0) {
    rope.freq_factors.assign(d.rope_freq_factors, d.rope_freq_factors + d.n_rope_freq_factors);
  }
  return Status::ok();
}

}  // namespace

extern "C" {

int32_t blend_model_description_init(blend_model_description* description, size_t struct_size) {
  return blend::capi::init_struct(description, struct_size, default_description());
}

int32_t blend_model_create_from_description(blend_model** out, const blend_ctx* ctx,
                                            const blend_model_description* description,
                                            blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(ctx);
    BLEND_REQUIRE(description);
    blend_model_description d = default_description();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(description, d));
    blend::ModelConfig config;
    config.name = d.name != nullptr ? d.name : "";
    config.n_layers = d.n_layers;
    config.n_heads = d.n_heads;
    config.n_kv_heads = d.n_kv_heads;
    config.head_dim = d.head_dim;
    config.n_vocab = d.n_vocab;
    config.context_length = d.context_length;
    BLEND_ASSIGN(config.weight_dtype, blend::capi::read_dtype("weight_dtype", d.weight_dtype));
    BLEND_RETURN_IF_ERROR(read_rope(d, config.rope));

    blend::Sha256 fingerprint;
    std::memcpy(fingerprint.data(), d.fingerprint, fingerprint.size());
    const bool given = fingerprint != blend::Sha256{};
    if (!given && config.name.empty()) {
      return {BLEND_E_INVALID_ARGUMENT,
              "give a name or a fingerprint: chunks of different weights must not be mixed up"};
    }
    auto handle = std::make_unique<blend_model>();
    BLEND_ASSIGN(handle->description,
                 blend::ModelDescription::create(ctx->runtime, std::move(config),
                                                 given ? &fingerprint : nullptr));
    *out = handle.release();
    return Status::ok();
  });
}

}  // extern "C"
