#include "detail.h"

namespace blend_shim {

ModelOptions::ModelOptions() noexcept { show(*this, blendpp::ModelOptions()); }
EmbedOptions::EmbedOptions() noexcept { show(*this, blendpp::EmbedOptions()); }
void EmbedInputs::add_text(const std::string& text) noexcept {
  keep([&] { texts_.push_back(text); });
}
void EmbedInputs::add_tokens(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { tokens_.emplace_back(tokens, tokens + n_tokens); });
}
void ModelOptions::add_lora(const std::string& path, double scale) noexcept {
  keep([&] {
    lora_paths_.push_back(path);
    lora_scales_.push_back(scale);
  });
}
ModelDescription::ModelDescription() noexcept { show(*this, blendpp::ModelDescription()); }
void ModelDescription::add_rope_freq_factor(float factor) noexcept {
  keep([&] { factors_.push_back(factor); });
}
PrecomputeOptions::PrecomputeOptions() noexcept { show(*this, blendpp::PrecomputeOptions()); }
void PrecomputeOptions::set_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { chunk_prefix_.assign(tokens, tokens + n_tokens); });
}
void PrecomputeOptions::add_context(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { contexts_.emplace_back(tokens, tokens + n_tokens); });
}
void PrecomputeOptions::set_predecessor(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { predecessor_.assign(tokens, tokens + n_tokens); });
}
CorpusOptions::CorpusOptions() noexcept { show(*this, blendpp::CorpusOptions()); }
void CorpusOptions::set_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { chunk_prefix_.assign(tokens, tokens + n_tokens); });
}
void Corpus::add(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] {
    chunks_.emplace_back();
    chunks_.back().tokens.assign(tokens, tokens + n_tokens);
  });
}
void Corpus::set_label(const std::string& label) noexcept {
  if (chunks_.empty()) return;
  chunks_.back().has_label = true;
  keep([&] { chunks_.back().label = label; });
}
void Corpus::set_tags(const std::string& tags) noexcept {
  if (chunks_.empty()) return;
  chunks_.back().has_tags = true;
  keep([&] { chunks_.back().tags = tags; });
}
std::string CorpusRecords::id(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] { return records_.at(i).id; });
}
KvView::KvView() noexcept : KvView(nullptr, 0, nullptr, 0) {}
KvView::KvView(void* k, size_t k_bytes, void* v, size_t v_bytes) noexcept
    : k_(k), v_(v), k_bytes_(k_bytes), v_bytes_(v_bytes) {
  show(*this, blendpp::KvView());
}
void KvLayers::add(const KvView& layer) noexcept {
  keep([&] { layers_.push_back(layer); });
}
void CheckLayers::add(uint32_t layer, double ratio) noexcept {
  keep([&] {
    layers_.push_back(layer);
    ratios_.push_back(ratio);
  });
}

namespace {

// How many bytes `rows` rows take from the first element on; false: more than a size_t counts.
bool extent(const blendpp::KvView& c, uint64_t rows, uint32_t n_kv_heads, uint32_t head_dim,
            size_t* bytes) {
  const size_t head = c.head_stride != 0 ? c.head_stride : head_dim;
  const size_t row = c.row_stride != 0 ? c.row_stride : size_t{n_kv_heads} * head_dim;
  const size_t element = c.dtype == BLEND_DTYPE_F32 ? 4 : 2;
  size_t last_row = 0;
  size_t last_head = 0;
  size_t elements = 0;
  return !__builtin_mul_overflow(row, rows - 1, &last_row) &&
         !__builtin_mul_overflow(head, size_t{n_kv_heads} - 1, &last_head) &&
         !__builtin_add_overflow(last_row, last_head, &elements) &&
         !__builtin_add_overflow(elements, size_t{head_dim}, &elements) &&
         !__builtin_mul_overflow(elements, element, bytes);
}

// Precompute options as a C struct, which points into them, and its array.
struct PrecomputeArguments {
  explicit PrecomputeArguments(const PrecomputeOptions& s) {
    require_complete(s);
    give(c, s);
    c.chunk_prefix = s.chunk_prefix_.data();
    c.n_chunk_prefix = s.chunk_prefix_.size();
    c.predecessor = s.predecessor_.data();
    c.n_predecessor = s.predecessor_.size();
    for (const auto& tokens : s.contexts_) contexts.push_back({tokens.data(), tokens.size()});
    if (!contexts.empty()) {
      c.contexts = contexts.data();
      c.n_contexts = contexts.size();
    }
    c.on_progress = progress_of(s);
    c.cancel = raw(s.cancel_);
  }
  blendpp::PrecomputeOptions c;
  std::vector<blend_context_passage> contexts;
};

blendpp::Chat rendered(const blendpp::Model& model, const Chat& s, const ChatOptions& o,
                       const Cancel& cancel) {
  require_complete(s);
  blendpp::ChatOptions c;
  give(c, o);
  c.cancel = raw(cancel.token());
  const std::vector<blendpp::ChatMessage> messages = given_messages(s.messages_);
  std::vector<blendpp::ChatDocument> documents;
  for (const Chat::Document& d : s.documents_) {
    if (d.id.empty()) {
      documents.emplace_back(d.text, d.title);
    } else {
      documents.emplace_back(blendpp::ChunkId::from_hex(d.id));
    }
  }
  return blendpp::render_chat(model, messages, documents, c);
}

const blendpp::Store& need(const std::shared_ptr<blendpp::Store>& store) {
  if (!store) invalid("this needs a store");
  return *store;
}

}  // namespace

blendpp::CorpusOptions corpus_arguments(const CorpusOptions& options, CorpusRecords& made) {
  require_complete(options);
  blendpp::CorpusOptions c;
  give(c, options);
  c.chunk_prefix = options.chunk_prefix_.data();
  c.n_chunk_prefix = options.chunk_prefix_.size();
  c.on_progress = progress_of(options);
  c.cancel = raw(options.cancel_);
  c.on_record = [&made](const blend_corpus_record& r) {
    made.records_.push_back({blendpp::ChunkId(r.id).hex(), r.existed != 0, r.n_contexts});
    return true;
  };
  return c;
}

blendpp::KvView kv_view(const KvView& view, uint64_t rows, uint32_t n_kv_heads, uint32_t head_dim,
                        const char* what) {
  const KvView& s = view;
  blendpp::KvView c;
  give(c, s);
  c.k = s.k_;
  c.v = s.v_;
  size_t bytes = 0;
  if (rows == 0 || n_kv_heads == 0) return c;
  if (!extent(c, rows, n_kv_heads, head_dim, &bytes) || bytes > s.k_bytes_ || bytes > s.v_bytes_) {
    invalid(std::string(what) + ": " + std::to_string(rows) + " rows need " +
            std::to_string(bytes) + " bytes of K and of V, and there are " +
            std::to_string(s.k_bytes_) + " and " + std::to_string(s.v_bytes_));
  }
  return c;
}

Model::Model(std::shared_ptr<Slot<blendpp::Model>> slot) noexcept : slot_(std::move(slot)) {}
Model::~Model() = default;

Model* Model::open(const Context& ctx, const std::string& path, const ModelOptions& options,
                   Outcome& out) noexcept {
  return guarded(out, [&] {
    const ModelOptions& s = options;
    require_complete(s);
    blendpp::ModelOptions c;
    give(c, s);
    c.on_progress = progress_of(s);
    c.cancel = raw(s.cancel_);
    for (size_t i = 0; i < s.lora_scales_.size(); ++i) {
      c.loras.push_back({s.lora_paths_[i], s.lora_scales_[i]});
    }
    const auto context = ctx.slot().get();
    return new Model(make_slot("model", std::make_shared<blendpp::Model>(*context, path, c)));
  });
}

Model* Model::create_from_description(const Context& ctx, const ModelDescription& description,
                                      Outcome& out) noexcept {
  return guarded(out, [&] {
    const ModelDescription& s = description;
    require_complete(s);
    blendpp::ModelDescription c;
    give(c, s);
    if (!s.factors_.empty()) {
      c.rope_freq_factors = s.factors_.data();
      c.n_rope_freq_factors = s.factors_.size();
    }
    const auto context = ctx.slot().get();
    return new Model(make_slot("model", std::make_shared<blendpp::Model>(*context, c)));
  });
}

LoraInfo Model::lora(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto model = slot_->get();  // its path is valid while it is open
    return shown<LoraInfo>(model->lora(i));
  });
}

TemplateInfo Model::template_info(const std::string& source, Outcome& out) const noexcept {
  return guarded(out, [&] { return shown<TemplateInfo>(slot_->get()->template_info(source)); });
}

ModelInfo Model::info(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto model = slot_->get();  // its texts are valid while it is open
    return shown<ModelInfo>(model->info());
  });
}

View Model::tokenize(const std::string& text, uint32_t flags, Outcome& out) const noexcept {
  return guarded(out, [&] { return owned(slot_->get()->tokenize(text, flags)); });
}

std::string Model::detokenize(const int32_t* tokens, size_t n_tokens, uint32_t flags,
                              Outcome& out) const noexcept {
  return guarded(out, [&] {
    return slot_->get()->detokenize(blendpp::Tokens(tokens, tokens + n_tokens), flags);
  });
}

View Model::embed(const EmbedInputs& inputs, const EmbedOptions& options,
                  Outcome& out) const noexcept {
  return guarded(out, [&] {
    require_complete(inputs);
    require_complete(options);
    if (!inputs.texts_.empty() && !inputs.tokens_.empty()) {
      invalid("texts and tokens cannot be embedded by one call: make two");
    }
    blendpp::EmbedOptions c;
    give(c, options);
    c.on_progress = progress_of(options);
    c.cancel = raw(options.cancel_);
    const auto model = slot_->get();
    return owned(inputs.tokens_.empty() ? model->embed(inputs.texts_, c).values
                                        : model->embed_tokens(inputs.tokens_, c).values);
  });
}

Prompt Model::chat(const Chat& chat, const ChatOptions& options, const Cancel& cancel,
                   Outcome& out) const noexcept {
  return guarded(out, [&] {
    Prompt prompt;
    prompt.prompt_ =
        std::make_shared<blendpp::Prompt>(rendered(*slot_->get(), chat, options, cancel).prompt);
    return prompt;
  });
}

std::string Model::chat_text(const Chat& chat, const ChatOptions& options, const Cancel& cancel,
                             Outcome& out) const noexcept {
  return guarded(out, [&] { return rendered(*slot_->get(), chat, options, cancel).text; });
}

Stored Model::precompute(const Store& store, const int32_t* tokens, size_t n_tokens,
                         const PrecomputeOptions& options, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto opened = store.get();
    const PrecomputeArguments arguments(options);
    const blendpp::Precomputed done = slot_->get()->precompute(
        need(opened), blendpp::Tokens(tokens, tokens + n_tokens), arguments.c);
    return Stored{done.id.hex(), done.existed};
  });
}

CorpusRecords Model::precompute_corpus(const Store& store, const Corpus& corpus,
                                       const CorpusOptions& options, Outcome& out) const noexcept {
  return guarded(out, [&] {
    require_complete(corpus);
    const auto opened = store.get();
    std::vector<blendpp::CorpusChunk> chunks(corpus.size());
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Corpus::Chunk& s = corpus.chunks_[i];
      chunks[i].tokens = s.tokens;
      if (s.has_label) chunks[i].label = s.label;
      if (s.has_tags) chunks[i].tags = s.tags;
    }
    CorpusRecords made;
    const blendpp::CorpusOptions c = corpus_arguments(options, made);
    slot_->get()->precompute_corpus(need(opened), chunks, c);
    return made;
  });
}

Stored Model::find_chunk(const Store& store, const int32_t* tokens, size_t n_tokens,
                         const PrecomputeOptions& options, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto opened = store.get();
    const PrecomputeArguments arguments(options);
    blendpp::ChunkId id;
    const bool found = slot_->get()->find_chunk(
        need(opened), blendpp::Tokens(tokens, tokens + n_tokens), arguments.c, &id);
    return Stored{id.hex(), found};
  });
}

std::string Model::put_chunk(const Store& store, const int32_t* tokens, size_t n_tokens,
                             const KvLayers& layers, uint32_t first_position,
                             const PrecomputeOptions& options, Outcome& out) const noexcept {
  return guarded(out, [&] {
    require_complete(layers);
    const auto model = slot_->get();
    const auto opened = store.get();
    const PrecomputeArguments arguments(options);
    const blendpp::ModelInfo info = model->info();
    std::vector<blendpp::KvView> views;
    for (const KvView& layer : layers.layers_) {
      views.push_back(
          kv_view(layer, n_tokens, info.n_kv_heads, info.head_dim, "a layer of the chunk"));
    }
    return model
        ->put_chunk(need(opened), blendpp::Tokens(tokens, tokens + n_tokens), views, first_position,
                    arguments.c)
        .hex();
  });
}

CheckLayers Model::default_check_layers(double ratio, uint32_t first_layer, size_t n,
                                        Outcome& out) const noexcept {
  return guarded(out, [&] {
    CheckLayers layers;
    for (const blend_check_layer& c : slot_->get()->default_check_layers(ratio, first_layer, n)) {
      layers.add(c.layer, c.ratio);
    }
    require_complete(layers);
    return layers;
  });
}

void Model::close() noexcept { slot_->take(); }

}  // namespace blend_shim
