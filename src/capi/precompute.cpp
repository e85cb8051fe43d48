#include "engine/precompute.h"

#include <cstring>

#include "capi/chunk_request.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Result;

namespace blend::capi {

Result<ChunkRequest> read_chunk_request(const blend_model& model, const blend_store& store,
                                        const int32_t* tokens, size_t n_tokens,
                                        const blend_precompute_options* options) {
  blend_precompute_options o{};
  BLEND_RETURN_IF_ERROR(read_struct(options, o));
  if ((o.flags & ~BLEND_PUT_BACKGROUND) != 0) {
    return make_error(BLEND_E_INVALID_STRUCT, "flags 0x%x: unknown BLEND_PUT_ bits", o.flags);
  }
  if (o.n_chunk_prefix > 0 && o.chunk_prefix == nullptr) return null_argument("chunk_prefix");
  if (n_tokens == 0) return Status{BLEND_E_INVALID_ARGUMENT, "the chunk has no tokens"};
  const ModelDescription& m = *model.description;
  ChunkRequest request;
  BLEND_ASSIGN(request.codec, read_codec(o.codec));
  const std::span<const int32_t> chunk(tokens, n_tokens);
  request.prefix = {o.chunk_prefix, o.n_chunk_prefix};
  BLEND_RETURN_IF_ERROR(m.check_length(n_tokens, "chunk"));
  BLEND_RETURN_IF_ERROR(m.check_length(o.n_chunk_prefix, "chunk prefix"));
  BLEND_RETURN_IF_ERROR(m.check_tokens(chunk, "chunk"));
  BLEND_RETURN_IF_ERROR(m.check_tokens(request.prefix, "chunk prefix"));
  request.meta = describe_chunk(m, resolve_kv_dtype(store, m), request.prefix,
                                o.tenant != nullptr ? o.tenant : "", chunk);
  BLEND_ASSIGN(request.meta.name, read_chunk_name(o.label, o.tags));
  request.background = (o.flags & BLEND_PUT_BACKGROUND) != 0;
  BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
  request.n_threads = o.n_threads;
  request.watch = make_watch(o.cancel, o.progress, o.progress_user);
  return request;
}

}  // namespace blend::capi

extern "C" {

int32_t blend_precompute(const blend_model* model, const blend_store* store, const int32_t* tokens,
                         size_t n_tokens, const blend_precompute_options* options,
                         blend_chunk_id* id, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(tokens);
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(blend::capi::ChunkRequest request,
                 blend::capi::read_chunk_request(*model, *store, tokens, n_tokens, options));
    const blend::Sha256 chunk_id = request.meta.id;
    if (id != nullptr) std::memcpy(id->bytes, chunk_id.data(), chunk_id.size());
    BLEND_ASSIGN(const bool stored, store->store->contains(chunk_id));
    if (stored) {
      bool renamed = false;
      const blend::ChunkName& name = request.meta.name;
      blend::Status named =
          name.is_given() ? store->store->rename(chunk_id, name, &renamed) : blend::Status::ok();
      // Gone since then, as it may be any time later.
      if (named.code() != BLEND_E_NOT_FOUND) BLEND_RETURN_IF_ERROR(named);
      return int32_t{BLEND_EXISTS};
    }
    if (store->read_only) {
      return blend::Status{BLEND_E_READ_ONLY, "the store was opened read-only"};
    }
    const blend::ThreadCap cap(request.n_threads);
    BLEND_ASSIGN(
        const auto record,
        blend::precompute_chunk(*loaded, request.prefix, std::move(request.meta), request.watch));
    record->codec = request.codec;
    BLEND_RETURN_IF_ERROR(request.background ? store->store->put_async(record)
                                             : store->store->put(*record));
    return int32_t{BLEND_OK};
  });
}

}  // extern "C"
