// A corpus whose chunks serve each other as context.
#include <cstring>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "fusion/contexts/corpus_precompute.h"

using blend::Result;
using blend::Status;

static_assert(BLEND_CONTEXT_TOKENS == blend::kContextTokens);
static_assert(BLEND_PRECEDED_TOKENS == blend::kPrecededTokens);
static_assert(BLEND_MOST_CONTEXTS == blend::kMostContexts);

namespace {

constexpr uint32_t kUsualContexts = 4;
constexpr double kMostSimilarity = 0.9;  // from which on chunks say the same

struct CorpusRequest {
  blend::CorpusKey key;
  blend::CorpusOptions options;
  std::vector<blend::CorpusText> texts;
};

Status read_options(const blend_corpus_options& o, const blend::ModelDescription& m,
                    CorpusRequest& out) {
  constexpr uint32_t kKnown =
      BLEND_CORPUS_REFRESH | BLEND_CORPUS_HEAD_ONLY | BLEND_CORPUS_NO_CLUSTERS;
  if ((o.flags & ~kKnown) != 0) {
    return blend::make_error(BLEND_E_INVALID_STRUCT, "flags 0x%x: unknown BLEND_CORPUS_ bits",
                             o.flags);
  }
  if (o.n_chunk_prefix > 0 && o.chunk_prefix == nullptr) {
    return blend::capi::null_argument("chunk_prefix");
  }
  if (o.n_contexts > BLEND_MOST_CONTEXTS) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "n_contexts %u is more than %u",
                             o.n_contexts, BLEND_MOST_CONTEXTS);
  }
  if (!(o.min_similarity >= 0 && o.min_similarity <= kMostSimilarity)) {  // NaN fails too
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "min_similarity %g must lie in [0, %g]",
                             o.min_similarity, kMostSimilarity);
  }
  const std::span<const int32_t> head(o.chunk_prefix, o.n_chunk_prefix);
  BLEND_RETURN_IF_ERROR(m.check_length(head.size(), "chunk_prefix"));
  BLEND_RETURN_IF_ERROR(m.check_tokens(head, "chunk_prefix"));
  out.key.head.assign(head.begin(), head.end());
  out.key.tenant = o.tenant != nullptr ? o.tenant : "";
  BLEND_ASSIGN(out.options.codec, blend::capi::read_codec(o.codec));
  const bool head_only = (o.flags & BLEND_CORPUS_HEAD_ONLY) != 0;
  out.options.n_contexts = o.n_contexts != 0 ? o.n_contexts : kUsualContexts;
  if (head_only) out.options.n_contexts = 0;
  out.options.min_similarity = o.min_similarity;
  out.options.clusters = (o.flags & BLEND_CORPUS_NO_CLUSTERS) == 0;
  out.options.refresh = (o.flags & BLEND_CORPUS_REFRESH) != 0;
  return Status::ok();
}

Result<blend::CorpusText> read_text(const blend_corpus_chunk& in,
                                    const blend::ModelDescription& m) {
  if (in.n_tokens == 0 || in.tokens == nullptr) {
    return Status{BLEND_E_INVALID_ARGUMENT, "the chunk has no tokens"};
  }
  blend::CorpusText text;
  text.tokens = {in.tokens, in.n_tokens};
  BLEND_RETURN_IF_ERROR(m.check_length(in.n_tokens, "chunk"));
  BLEND_RETURN_IF_ERROR(m.check_tokens(text.tokens, "chunk"));
  BLEND_ASSIGN(text.name, blend::read_chunk_name(in.label, in.tags));
  return text;
}

Status read_texts(const blend_corpus_chunk* chunks, size_t n, const blend::ModelDescription& m,
                  CorpusRequest& out) {
  BLEND_RETURN_IF_ERROR(blend::capi::check_elements(chunks, n, "chunk"));
  out.texts.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const std::string name = "chunk " + std::to_string(i);
    blend_corpus_chunk copy{};
    BLEND_RETURN_IF_ERROR(
        blend::capi::read_struct(blend::capi::element(chunks, i), copy).with_context(name));
    auto text = read_text(copy, m);
    if (!text.is_ok()) return text.status().with_context(name);
    if (text->tokens.size() > m.context_length() - out.key.head.size()) {
      return blend::make_error(BLEND_E_CONTEXT_LENGTH,
                               "%s: it has %zu tokens after a chunk prefix of %zu; the model's "
                               "context is %u",
                               name.c_str(), text->tokens.size(), out.key.head.size(),
                               m.context_length());
    }
    out.texts.push_back(std::move(*text));
  }
  return Status::ok();
}

// Gives records that were there the name that their text has now.
Status rename(blend::Store& store, const blend::ChunkName& name,
              const blend::CorpusRecord& record) {
  if (!name.is_given()) return Status::ok();
  for (const auto& [id, existed] :
       {std::pair(record.head_id, record.head_existed), std::pair(record.id, record.own_existed),
        std::pair(record.cluster_id, record.cluster_existed)}) {
    bool changed = false;
    if (!existed) continue;
    Status named = store.rename(id, name, &changed);
    // Gone since then, as it may be any time later, or in no cluster.
    if (named.code() != BLEND_E_NOT_FOUND) BLEND_RETURN_IF_ERROR(named);
  }
  return Status::ok();
}

blend::CorpusPrecompute::Done done_fn(const blend_corpus_options& o, const CorpusRequest& request,
                                      blend::Store& store, bool& all_existed, Status& failed) {
  return [&](size_t index, const blend::CorpusRecord& record) {
    all_existed = all_existed && record.existed;
    failed = rename(store, request.texts[index].name, record);
    if (!failed.is_ok()) return int32_t{1};
    if (o.on_record == nullptr) return int32_t{0};
    blend_corpus_record out{};
    out.struct_size = sizeof out;
    out.n_contexts = record.n_contexts;
    out.index = index;
    out.existed = record.existed ? 1 : 0;
    std::memcpy(out.id.bytes, record.id.data(), record.id.size());
    return o.on_record(o.record_user, &out);
  };
}

}  // namespace

extern "C" {

int32_t blend_corpus_options_init(blend_corpus_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_precompute_corpus(const blend_model* model, const blend_store* store,
                                const blend_corpus_chunk* chunks, size_t n,
                                const blend_corpus_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(store);
    if (n > 0) BLEND_REQUIRE(chunks);
    BLEND_ASSIGN(const auto loaded, model->fusible());
    BLEND_RETURN_IF_ERROR(loaded->runtime().check_fork());
    blend_corpus_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    CorpusRequest request;
    request.key.dtype = blend::capi::resolve_kv_dtype(*store, *loaded);
    BLEND_RETURN_IF_ERROR(read_options(o, *loaded, request));
    BLEND_RETURN_IF_ERROR(read_texts(chunks, n, *loaded, request));
    BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
    if (store->read_only) {
      return Status{BLEND_E_READ_ONLY, "the store was opened read-only"};
    }
    const blend::ThreadCap cap(o.n_threads);
    const auto for_each = [&](const std::function<void(const blend::ChunkMeta&)>& visit) {
      return store->store->for_each(false, [&](const blend::ChunkMeta& meta, const std::string&) {
        visit(meta);
        return int32_t{0};
      });
    };
    BLEND_ASSIGN(const auto index, store->corpora->index_of(*loaded, request.key, for_each));
    bool all_existed = true;
    blend::CorpusPrecompute precompute(*loaded, *store->store, *index, request.key,
                                       request.options);
    Status failed;
    const Status status =
        precompute.run(request.texts, done_fn(o, request, *store->store, all_existed, failed),
                       blend::capi::make_watch(o.cancel, o.progress, o.progress_user));
    const Status flushed = store->store->flush();
    BLEND_RETURN_IF_ERROR(failed);
    BLEND_RETURN_IF_ERROR(status);
    BLEND_RETURN_IF_ERROR(flushed);
    return int32_t{all_existed ? BLEND_EXISTS : BLEND_OK};
  });
}

}  // extern "C"
