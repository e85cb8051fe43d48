#include "engine/precompute.h"

#include <cstring>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Result;

namespace {

blend_precompute_options defaults() {
  blend_precompute_options o{};
  o.struct_size = sizeof o;
  return o;
}

}  // namespace

extern "C" {

int32_t blend_precompute_options_init(blend_precompute_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, defaults());
}

int32_t blend_precompute(const blend_model* model, const blend_store* store, const int32_t* tokens,
                         size_t n_tokens, const blend_precompute_options* options,
                         blend_chunk_id* id, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(tokens);
    blend_precompute_options o = defaults();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    BLEND_RETURN_IF_ERROR(blend::capi::check_reserved("reserved0", o.reserved0));
    if (o.n_prefix > 0) BLEND_REQUIRE(o.prefix);
    if (n_tokens == 0) {
      return blend::Status{BLEND_E_INVALID_ARGUMENT, "the chunk has no tokens"};
    }
    const blend::Model& m = *model->model;
    const std::span<const int32_t> chunk(tokens, n_tokens);
    const std::span<const int32_t> prefix(o.prefix, o.n_prefix);
    BLEND_RETURN_IF_ERROR(m.check_length(n_tokens, "chunk"));
    BLEND_RETURN_IF_ERROR(m.check_length(o.n_prefix, "prefix"));
    BLEND_RETURN_IF_ERROR(m.check_tokens(chunk, "chunk"));
    BLEND_RETURN_IF_ERROR(m.check_tokens(prefix, "prefix"));

    const blend::DType dtype = blend::capi::resolve_kv_dtype(*store, m);
    blend::ChunkMeta meta =
        blend::describe_chunk(m, dtype, prefix, o.tenant != nullptr ? o.tenant : "", chunk);
    if (id != nullptr) std::memcpy(id->bytes, meta.id.data(), meta.id.size());
    BLEND_ASSIGN(const bool stored, store->store->contains(meta.id));
    if (stored) return int32_t{BLEND_EXISTS};
    if (store->read_only) {
      return blend::Status{BLEND_E_READ_ONLY, "the store was opened read-only"};
    }
    const blend::Watch watch = blend::capi::make_watch(o.cancel, o.progress, o.progress_user);
    BLEND_ASSIGN(const auto record, blend::precompute_chunk(m, prefix, std::move(meta), watch));
    BLEND_RETURN_IF_ERROR(store->store->put(*record));
    return int32_t{BLEND_OK};
  });
}

}  // extern "C"
