// Models: tokenizer, and chunks that are stored for them.
#ifndef BLEND_CPP_MODEL_HPP
#define BLEND_CPP_MODEL_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "blend/cpp/store.hpp"
#include "blend/embed.h"
#include "blend/experimental.h"
#include "blend/model.h"
#include "blend/precompute.h"
#include "blend/step.h"
#include "blend/text.h"

namespace blendpp {

using CorpusRecordFn = std::function<bool(const blend_corpus_record& record)>;

namespace detail {

inline int32_t on_corpus_record(void* user, const blend_corpus_record* record) noexcept {
  return static_cast<Guarded<CorpusRecordFn>*>(user)->call(*record);
}

}  // namespace detail

using ModelInfo = detail::Sized<blend_model_info>;
using LoraInfo = detail::Sized<blend_lora_info>;
using TemplateInfo = detail::Sized<blend_template_info>;

using ModelDescription = detail::Initialised<blend_model_description, blend_model_description_init>;
// Built from pointers of the host; what they point at must outlive it.
using KvView = detail::Sized<blend_kv_view>;

// A LoRA adapter: a GGUF file or a PEFT directory (blend_lora).
struct Lora {
  std::string path;
  double scale = 1;
};

struct ModelOptions : detail::Initialised<blend_model_options, blend_model_options_init> {
  ProgressFn on_progress;
  std::vector<Lora> loras;
};

struct EmbedOptions : detail::Initialised<blend_embed_options, blend_embed_options_init> {
  ProgressFn on_progress;
};

// Vectors of texts.
struct Embeddings {
  std::vector<float> values;       // [texts, width]
  std::vector<uint32_t> n_tokens;  // [texts]; of embed_tokens as given
  size_t width = 0;
  Span<const float> of(size_t text) const { return {values.data() + text * width, width}; }
};

using TextOptions = detail::Initialised<blend_text_options, blend_text_options_init>;

struct PrecomputeOptions
    : detail::Initialised<blend_precompute_options, blend_precompute_options_init> {
  ProgressFn on_progress;
};

struct CorpusOptions : detail::Initialised<blend_corpus_options, blend_corpus_options_init> {
  ProgressFn on_progress;
  CorpusRecordFn on_record;
};

// One text of a corpus.
struct CorpusChunk {
  Tokens tokens;
  std::optional<std::string> label, tags;
};

struct Precomputed {
  ChunkId id;
  bool existed = false;  // it was in the store already: nothing was computed
};

// Weights, tokenizer and description of one model. Immutable, thread-safe.
class Model {
 public:
  Model(const Context& ctx, const std::string& path, const ModelOptions& options = ModelOptions()) {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    ModelOptions copy = detail::with_progress(options, options.on_progress, guarded);
    std::vector<blend_lora> loras(options.loras.size());
    for (size_t i = 0; i < loras.size(); ++i) {
      const Lora& lora = options.loras[i];
      if (lora.scale == 0) {  // in C: 1
        throw Error(BLEND_E_INVALID_ARGUMENT, 0,
                    "a LoRA adapter of scale 0 has no effect: leave it out");
      }
      loras[i].struct_size = sizeof loras[i];
      loras[i].path = detail::c_string(lora.path, "the path of a LoRA adapter");
      loras[i].scale = lora.scale;
    }
    static_cast<blend_model_options&>(copy).loras = loras.data();
    copy.n_loras = loras.size();
    blend_model* raw = nullptr;
    outcome.check(blend_model_open(&raw, ctx.get(), path.c_str(), &copy, outcome.out()));
    handle_ = {raw, {ctx.log()}};
  }
  // A model that the host runs itself (blend_model_create_from_description): for
  // put_chunk, find_chunk and Layerwise.
  Model(const Context& ctx, const ModelDescription& description) {
    detail::Outcome outcome;
    blend_model* raw = nullptr;
    outcome.check(
        blend_model_create_from_description(&raw, ctx.get(), &description, outcome.out()));
    handle_ = {raw, {ctx.log()}};
  }
  // The strings in it are valid while the model is open.
  ModelInfo info() const { return detail::filled<ModelInfo>(&blend_model_get_info, get()); }
  // The LoRA adapters that it was opened with; their paths are valid while the model is open.
  std::vector<LoraInfo> loras() const {
    std::vector<LoraInfo> out(info().n_loras);
    for (size_t i = 0; i < out.size(); ++i) out[i] = lora(i);
    return out;
  }
  LoraInfo lora(size_t index) const {
    detail::Outcome outcome;
    LoraInfo info;
    outcome.check(blend_model_get_lora(get(), index, &info, outcome.out()));
    return info;
  }
  // What a chat template has a place for; "": the model's own (blend_model_get_template_info).
  TemplateInfo template_info(const std::string& template_source = {}) const {
    detail::Outcome outcome;
    TemplateInfo info;
    outcome.check(blend_model_get_template_info(
        get(), detail::c_string(template_source, "the template"), &info, outcome.out()));
    return info;
  }
  // `flags` are BLEND_TOKENIZE_*.
  Tokens tokenize(std::string_view text, uint32_t flags = 0) const {
    detail::Outcome outcome;
    // One token a byte, BOS and the leading space: enough at the first try, nearly always.
    Tokens tokens(text.size() + 2);
    size_t n = 0;
    int32_t code = blend_model_tokenize(get(), text.data(), text.size(), flags, tokens.data(),
                                        tokens.size(), &n, outcome.out());
    if (code == BLEND_E_BUFFER_TOO_SMALL) {
      detail::Outcome again;
      tokens.resize(n);
      again.check(blend_model_tokenize(get(), text.data(), text.size(), flags, tokens.data(),
                                       tokens.size(), &n, again.out()));
      code = BLEND_OK;
    }
    outcome.check(code);
    tokens.resize(n);
    return tokens;
  }
  std::string detokenize(const Tokens& tokens, uint32_t flags = 0) const {
    detail::Outcome outcome;
    std::string text(tokens.size() * 8 + 16, '\0');
    size_t n = 0;
    int32_t code = blend_model_detokenize(get(), tokens.data(), tokens.size(), flags, text.data(),
                                          text.size(), &n, outcome.out());
    if (code == BLEND_E_BUFFER_TOO_SMALL) {
      detail::Outcome again;
      text.resize(n);
      again.check(blend_model_detokenize(get(), tokens.data(), tokens.size(), flags, text.data(),
                                         text.size(), &n, again.out()));
      code = BLEND_OK;
    }
    outcome.check(code);
    text.resize(n);
    return text;
  }
  // Vectors of texts (blend_model_embed).
  Embeddings embed(const std::vector<std::string>& texts,
                   const EmbedOptions& options = EmbedOptions()) const {
    std::vector<blend_text> list;
    for (const std::string& text : texts) list.push_back({text.data(), text.size()});
    return embedded(texts.size(), options, [&](Embeddings& out, const EmbedOptions& o, auto** err) {
      return blend_model_embed(get(), list.data(), list.size(), &o, out.values.data(),
                               out.values.size(), out.n_tokens.data(), err);
    });
  }
  // The same of texts that are tokens already (blend_model_embed_tokens).
  Embeddings embed_tokens(const std::vector<Tokens>& texts,
                          const EmbedOptions& options = EmbedOptions()) const {
    Tokens all;
    std::vector<size_t> lengths;
    for (const Tokens& text : texts) {
      all.insert(all.end(), text.begin(), text.end());
      lengths.push_back(text.size());
    }
    return embedded(texts.size(), options, [&](Embeddings& out, const EmbedOptions& o, auto** err) {
      for (size_t i = 0; i < texts.size(); ++i) {
        out.n_tokens[i] = static_cast<uint32_t>(lengths[i]);
      }
      return blend_model_embed_tokens(get(), all.data(), lengths.data(), lengths.size(), &o,
                                      out.values.data(), out.values.size(), err);
    });
  }
  // Stores the chunks of a corpus so that they serve each other as context
  // (blend_precompute_corpus). False: all of it was there.
  bool precompute_corpus(const Store& store, const std::vector<CorpusChunk>& chunks,
                         const CorpusOptions& options = CorpusOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    detail::Guarded<CorpusRecordFn> records{options.on_record, outcome};
    CorpusOptions copy = detail::with_progress(options, options.on_progress, guarded);
    if (options.on_record) {
      static_cast<blend_corpus_options&>(copy).on_record = &detail::on_corpus_record;
      copy.record_user = &records;
    }
    std::vector<blend_corpus_chunk> list(chunks.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const CorpusChunk& chunk = chunks[i];
      list[i].struct_size = sizeof list[i];
      list[i].tokens = chunk.tokens.data();
      list[i].n_tokens = chunk.tokens.size();
      list[i].label = chunk.label.has_value() ? chunk.label->c_str() : nullptr;
      list[i].tags = chunk.tags.has_value() ? chunk.tags->c_str() : nullptr;
    }
    return outcome.check(blend_precompute_corpus(get(), store.get(), list.data(), list.size(),
                                                 &copy, outcome.out())) != BLEND_EXISTS;
  }
  // Stores documents for prompts that are made of them as text (blend_precompute_texts). False: all
  // of it was there.
  bool precompute_texts(const Store& store, const std::vector<std::string>& documents,
                        const TextOptions& texts = TextOptions(),
                        const CorpusOptions& options = CorpusOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    detail::Guarded<CorpusRecordFn> records{options.on_record, outcome};
    CorpusOptions copy = detail::with_progress(options, options.on_progress, guarded);
    if (options.on_record) {
      static_cast<blend_corpus_options&>(copy).on_record = &detail::on_corpus_record;
      copy.record_user = &records;
    }
    const std::vector<const char*> list = detail::c_strings(documents);
    return outcome.check(blend_precompute_texts(get(), store.get(), list.data(), list.size(),
                                                &texts, &copy, outcome.out())) != BLEND_EXISTS;
  }
  // Prefills one chunk and stores it; on disk when it returns.
  Precomputed precompute(const Store& store, const Tokens& tokens,
                         const PrecomputeOptions& options = PrecomputeOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const PrecomputeOptions copy = detail::with_progress(options, options.on_progress, guarded);
    Precomputed result;
    const int32_t code = outcome.check(blend_precompute(
        get(), store.get(), tokens.data(), tokens.size(), &copy, &result.id, outcome.out()));
    result.existed = code == BLEND_EXISTS;
    return result;
  }
  // At most n check layers whose ratios fall and have the mean `ratio`: gradual filtering.
  std::vector<blend_check_layer> default_check_layers(double ratio, uint32_t first_layer,
                                                      size_t n) const {
    detail::Outcome outcome;
    std::vector<blend_check_layer> out(n);
    outcome.check(
        blend_model_default_check_layers(get(), ratio, first_layer, out.data(), &n, outcome.out()));
    out.resize(n);
    return out;
  }
  // Stores a chunk whose K and V the host computed: layers [n_layers], each the rows of `tokens` at
  // the positions first_position, first_position + 1, ...
  ChunkId put_chunk(const Store& store, const Tokens& tokens, const std::vector<KvView>& layers,
                    uint32_t first_position,
                    const PrecomputeOptions& options = PrecomputeOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const PrecomputeOptions copy = detail::with_progress(options, options.on_progress, guarded);
    ChunkId id;
    outcome.check(blend_chunk_put(get(), store.get(), tokens.data(), tokens.size(), layers.data(),
                                  layers.size(), first_position, &copy, &id, outcome.out()));
    return id;
  }
  // Whether the store holds a chunk; its id goes to *id, if wanted, either way.
  bool find_chunk(const Store& store, const Tokens& tokens,
                  const PrecomputeOptions& options = PrecomputeOptions(),
                  ChunkId* id = nullptr) const {
    detail::Outcome outcome;
    const int32_t code = blend_chunk_find(get(), store.get(), tokens.data(), tokens.size(),
                                          &options, id, outcome.out());
    if (code == BLEND_E_NOT_FOUND) return false;
    outcome.check(code);
    return true;
  }
  const blend_model* get() const noexcept { return handle_.get(); }
  const std::shared_ptr<const LogFn>& log() const noexcept { return handle_.get_deleter().log; }

 private:
  template <typename Call>
  Embeddings embedded(size_t n, const EmbedOptions& options, const Call& call) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const EmbedOptions copy = detail::with_progress(options, options.on_progress, guarded);
    Embeddings out;
    out.width = copy.n_dimensions == 0 ? info().d_model : copy.n_dimensions;
    // More dimensions than there are: the library says so, before it writes any.
    out.values.resize(n * std::min<size_t>(out.width, info().d_model));
    out.n_tokens.resize(n);
    outcome.check(call(out, copy, outcome.out()));
    return out;
  }
  detail::Handle<blend_model, blend_model_close> handle_;
};

inline void Store::fidelity(const Model& model, const FidelityFn& fn,
                            double agreement_target) const {
  fidelity_of(model.get(), fn, agreement_target);
}

}  // namespace blendpp

#endif
