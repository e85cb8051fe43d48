#include "engine/precompute.h"

#include <algorithm>
#include <cstring>

#include "capi/chunk_request.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "fusion/contexts/passages.h"

using blend::Result;

namespace blend::capi {

namespace {

Result<std::vector<std::span<const int32_t>>> read_contexts(const ModelDescription& m,
                                                            const blend_precompute_options& o) {
  std::vector<std::span<const int32_t>> out;
  if (o.n_contexts == 0) return out;
  if (o.contexts == nullptr) return null_argument("contexts");
  if (o.n_contexts > BLEND_MOST_CONTEXTS) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "n_contexts %zu is more than %u: give the passages that are most alike",
                      o.n_contexts, BLEND_MOST_CONTEXTS);
  }
  for (size_t i = 0; i < o.n_contexts; ++i) {
    const std::string name = "context passage " + std::to_string(i);
    const std::span<const int32_t> tokens(o.contexts[i].tokens, o.contexts[i].n_tokens);
    if (tokens.empty() || tokens.data() == nullptr) {
      return Status{BLEND_E_INVALID_ARGUMENT, name + " has no tokens: leave it out"};
    }
    BLEND_RETURN_IF_ERROR(m.check_length(tokens.size(), name));
    BLEND_RETURN_IF_ERROR(m.check_tokens(tokens, name));
    out.push_back(tokens);
  }
  return out;
}

}  // namespace

Result<ChunkRequest> read_chunk_request(const blend_model& model, const blend_store& store,
                                        const int32_t* tokens, size_t n_tokens,
                                        const blend_precompute_options* options) {
  blend_precompute_options o{};
  BLEND_RETURN_IF_ERROR(read_struct(options, o));
  if ((o.flags & ~(BLEND_PUT_BACKGROUND | BLEND_PUT_AFTER_BOS | BLEND_PUT_DRAFT)) != 0) {
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
  if (o.n_predecessor > 0 && o.predecessor == nullptr) return null_argument("predecessor");
  request.predecessor = {o.predecessor, o.n_predecessor};
  BLEND_RETURN_IF_ERROR(m.check_length(o.n_predecessor, "predecessor"));
  BLEND_RETURN_IF_ERROR(m.check_tokens(request.predecessor, "predecessor"));
  if (!request.predecessor.empty()) {
    BLEND_RETURN_IF_ERROR(m.check_length(o.n_chunk_prefix + o.n_predecessor + n_tokens,
                                         "chunk after its chunk prefix and predecessor"));
  }
  request.tenant = o.tenant != nullptr ? o.tenant : "";
  BLEND_ASSIGN(request.contexts, read_contexts(m, o));
  const bool draft = (o.flags & BLEND_PUT_DRAFT) != 0;
  if (draft && request.contexts.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "a draft is made after context passages: give blend_precompute some in "
                  "`contexts`, or leave the flag out"};
  }
  if (draft && !request.predecessor.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "a draft stands in no particular place: leave the predecessor or the flag out"};
  }
  request.names_contexts = !request.contexts.empty();
  if (passage_tokens(o.n_predecessor) == 0) request.contexts.clear();
  const RecordKind kind = request.contexts.empty()      ? RecordKind::plain
                          : request.predecessor.empty() ? RecordKind::contextual
                                                        : RecordKind::preceded;
  request.meta = describe_chunk(m, resolve_kv_dtype(store, m), request.whole_prefix(),
                                request.tenant, chunk, kind);
  request.meta.draft = draft;
  BLEND_ASSIGN(request.meta.name, read_chunk_name(o.label, o.tags));
  request.background = (o.flags & BLEND_PUT_BACKGROUND) != 0;
  request.after_bos = (o.flags & BLEND_PUT_AFTER_BOS) != 0;
  BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
  request.n_threads = o.n_threads;
  request.watch = make_watch(o.cancel, o.progress, o.progress_user);
  return request;
}

}  // namespace blend::capi

namespace {

// Whether the record that is stored under the request's id is a draft, and no draft is wanted.
Result<bool> must_be_made_again(const blend_store& store,
                                const blend::capi::ChunkRequest& request) {
  if (request.contexts.empty() || request.meta.draft || store.read_only) return false;
  BLEND_ASSIGN(const auto snapshot, store.store->snapshot());
  auto source = snapshot->open(request.meta.id, request.meta.tenant);
  return source.is_ok() && (*source)->meta().draft;
}

// Stores what the request says unless it is there: BLEND_OK or BLEND_EXISTS.
Result<int32_t> store_chunk(const std::shared_ptr<const blend::Model>& model,
                            const blend_store& store, blend::capi::ChunkRequest request) {
  const blend::Sha256 chunk_id = request.meta.id;
  BLEND_ASSIGN(const bool stored, store.store->contains(chunk_id));
  BLEND_ASSIGN(const bool again,
               stored ? must_be_made_again(store, request) : blend::Result<bool>(false));
  if (stored && !again) {
    bool renamed = false;
    const blend::ChunkName& name = request.meta.name;
    blend::Status named =
        name.is_given() ? store.store->rename(chunk_id, name, &renamed) : blend::Status::ok();
    // Gone since then, as it may be any time later.
    if (named.code() != BLEND_E_NOT_FOUND) BLEND_RETURN_IF_ERROR(named);
    return int32_t{BLEND_EXISTS};
  }
  if (store.read_only) {
    return blend::Status{BLEND_E_READ_ONLY, "the store was opened read-only"};
  }
  const blend::ThreadCap cap(request.n_threads);
  blend::PassageKey key{request.meta.shape.dtype, request.prefix, request.tenant,
                        request.meta.tokens.size(), request.meta.draft};
  key.predecessor = request.predecessor;
  std::shared_ptr<blend::ChunkRecord> record;
  {
    // Their snapshot ends before the record is put: a put may wait for room, and that for
    // snapshots.
    BLEND_ASSIGN(const auto passages,
                 blend::StoredPassages::open(*model, store.store.get(), key, request.contexts));
    request.meta.contexts = passages.ids();
    request.meta.draft = request.meta.draft && !request.meta.contexts.empty();
    BLEND_ASSIGN(record, blend::precompute_chunk(*model, request.prefix, std::move(request.meta),
                                                 request.watch, passages.passages()));
  }
  record->codec = request.codec;
  BLEND_RETURN_IF_ERROR(request.background ? store.store->put_async(record)
                                           : store.store->put(*record));
  return int32_t{BLEND_OK};
}

// The same chunk after BOS alone, where there is one and the request is not that already.
std::optional<blend::capi::ChunkRequest> after_bos_alone(const blend::Model& model,
                                                         const blend::capi::ChunkRequest& request,
                                                         std::string_view tenant,
                                                         const int32_t& bos) {
  // A chunk that fills the model's context has no row left for BOS, in a prompt neither.
  const bool fits = request.meta.tokens.size() < model.context_length();
  if (!request.after_bos || bos < 0 || !fits) return std::nullopt;
  blend::capi::ChunkRequest other = request;
  other.contexts.clear();
  other.predecessor = {};
  other.prefix = {&bos, 1};
  const blend::ChunkName name = request.meta.name;
  other.meta = blend::describe_chunk(model, request.meta.shape.dtype, other.prefix, tenant,
                                     request.meta.tokens);
  other.meta.name = name;
  if (other.meta.id == request.meta.id) return std::nullopt;
  return other;
}

}  // namespace

extern "C" {

int32_t blend_precompute_options_init(blend_precompute_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_precompute(const blend_model* model, const blend_store* store, const int32_t* tokens,
                         size_t n_tokens, const blend_precompute_options* options,
                         blend_chunk_id* id, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(tokens);
    BLEND_ASSIGN(const auto loaded, model->fusible());
    BLEND_ASSIGN(blend::capi::ChunkRequest request,
                 blend::capi::read_chunk_request(*model, *store, tokens, n_tokens, options));
    if (id != nullptr) std::memcpy(id->bytes, request.meta.id.data(), request.meta.id.size());
    const int32_t bos = loaded->tokenizer().bos();
    auto other = after_bos_alone(*loaded, request, request.tenant, bos);
    BLEND_ASSIGN(const int32_t done, store_chunk(loaded, *store, std::move(request)));
    if (!other.has_value()) return done;
    BLEND_ASSIGN(const int32_t done_behind, store_chunk(loaded, *store, std::move(*other)));
    return std::min(done, done_behind);  // BLEND_EXISTS: both were there
  });
}

}  // extern "C"
