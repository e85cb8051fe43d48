// Models, their tokenizer, and precomputing chunks.
#ifndef BLEND_SHIM_MODEL_H
#define BLEND_SHIM_MODEL_H

#include "prompt.h"
#include "store.h"
#include "text.h"
#include "view.h"

namespace blendpp {
class Model;
}

namespace blend_shim {

class ModelOptions : public Call {
 public:
  ModelOptions() noexcept;
  BLEND_MODEL_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  // A LoRA adapter, after those that were added before.
  void add_lora(const std::string& path, double scale) noexcept;
#ifndef SWIG
  std::vector<std::string> lora_paths_;
  std::vector<double> lora_scales_;
#endif
};

struct LoraInfo {
  BLEND_LORA_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

struct TemplateInfo {
  BLEND_TEMPLATE_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

struct ModelInfo {
  BLEND_MODEL_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

// Describes a model that the host runs itself; see blend_model_description.
class ModelDescription : public Builder {
 public:
  ModelDescription() noexcept;
  BLEND_MODEL_DESCRIPTION_FIELDS(BLEND_SHIM_DECLARE)
  void add_rope_freq_factor(float factor) noexcept;
#ifndef SWIG
  std::vector<float> factors_;
#endif
};

// A chunk that was stored, or found.
struct Stored {
  std::string id;
  bool existed = false;  // it was in the store already: nothing was computed
};

class PrecomputeOptions : public Call {
 public:
  PrecomputeOptions() noexcept;
  BLEND_PRECOMPUTE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  void set_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept;  // copied
  // A context passage, of at most BLEND_MOST_CONTEXTS. Copied.
  void add_context(const int32_t* tokens, size_t n_tokens) noexcept;
  void set_predecessor(const int32_t* tokens, size_t n_tokens) noexcept;  // copied
#ifndef SWIG
  std::vector<int32_t> chunk_prefix_;
  std::vector<int32_t> predecessor_;
  std::vector<std::vector<int32_t>> contexts_;
#endif
};

class CorpusOptions : public Call {
 public:
  CorpusOptions() noexcept;
  BLEND_CORPUS_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  void set_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept;  // copied
#ifndef SWIG
  std::vector<int32_t> chunk_prefix_;
#endif
};

class EmbedOptions : public Call {
 public:
  EmbedOptions() noexcept;
  BLEND_EMBED_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

// What Model::embed makes vectors of: texts, or tokens, not both. Not thread-safe while it is
// built.
class EmbedInputs : public Builder {
 public:
  void add_text(const std::string& text) noexcept;
  void add_tokens(const int32_t* tokens, size_t n_tokens) noexcept;  // copied
  size_t size() const noexcept { return texts_.size() + tokens_.size(); }
#ifndef SWIG
  std::vector<std::string> texts_;
  std::vector<std::vector<int32_t>> tokens_;
#endif
};

// The texts of a corpus, for Model::precompute_corpus. Not thread-safe while it is built.
class Corpus : public Builder {
 public:
  void add(const int32_t* tokens, size_t n_tokens) noexcept;  // copied
  // Label of the text that was added last.
  void set_label(const std::string& label) noexcept;
  void set_tags(const std::string& tags) noexcept;
  size_t size() const noexcept { return chunks_.size(); }
#ifndef SWIG
  struct Chunk {
    std::vector<int32_t> tokens;
    bool has_label = false;
    bool has_tags = false;
    std::string label;
    std::string tags;
  };
  std::vector<Chunk> chunks_;
#endif
};

// Results of the texts of a corpus, in their order; i < size().
class CorpusRecords {
 public:
  size_t size() const noexcept { return records_.size(); }
  std::string id(size_t i, Outcome& out) const noexcept;
  bool existed(size_t i) const noexcept { return i < size() && records_[i].existed; }
  // Number of passages of the contextual record; 0: there is none, since no other chunk is similar.
  uint32_t n_contexts(size_t i) const noexcept { return i < size() ? records_[i].n_contexts : 0; }
#ifndef SWIG
  struct Record {
    std::string id;
    bool existed;
    uint32_t n_contexts;
  };
  std::vector<Record> records_;
#endif
};

// K and V of consecutive rows of one layer in memory that the host owns: k_bytes at k, v_bytes at
// v. A stride of 0 is the default of blend_kv_view. Every call that takes it checks that the rows
// fit.
class KvView {
 public:
  KvView() noexcept;
  KvView(void* k, size_t k_bytes, void* v, size_t v_bytes) noexcept;
  BLEND_KV_VIEW_FIELDS(BLEND_SHIM_DECLARE)
#ifndef SWIG
  void* k_ = nullptr;
  void* v_ = nullptr;
  size_t k_bytes_ = 0;
  size_t v_bytes_ = 0;
#endif
};

// The layers of one chunk, for Model::put_chunk. Views of memory that must stay during the call.
class KvLayers : public Builder {
 public:
  void add(const KvView& layer) noexcept;
  size_t size() const noexcept { return layers_.size(); }
#ifndef SWIG
  std::vector<KvView> layers_;
#endif
};

// Check layers of gradual filtering.
class CheckLayers : public Builder {
 public:
  void add(uint32_t layer, double ratio) noexcept;
  size_t size() const noexcept { return layers_.size(); }
  uint32_t layer(size_t i) const noexcept { return i < size() ? layers_[i] : 0; }
  double ratio(size_t i) const noexcept { return i < size() ? ratios_[i] : 0; }
#ifndef SWIG
  std::vector<uint32_t> layers_;
  std::vector<double> ratios_;
#endif
};

// Every function may be called on any thread at any time, close() included; see Context.
class Model {
 public:
  // Null on failure.
  static Model* open(const Context& ctx, const std::string& path, const ModelOptions& options,
                     Outcome& out) noexcept;
  static Model* create_from_description(const Context& ctx, const ModelDescription& description,
                                        Outcome& out) noexcept;
  ~Model();
  ModelInfo info(Outcome& out) const noexcept;
  // i < info().n_loras.
  LoraInfo lora(size_t i, Outcome& out) const noexcept;
  // "": of the model's own.
  TemplateInfo template_info(const std::string& source, Outcome& out) const noexcept;
  // Text is bytes of UTF-8, in and out; output may be cut inside a sequence.
  View tokenize(const std::string& text, uint32_t flags, Outcome& out) const noexcept;
  std::string detokenize(const int32_t* tokens, size_t n_tokens, uint32_t flags,
                         Outcome& out) const noexcept;
  // [inputs, dimensions] floats; see blend_model_embed.
  View embed(const EmbedInputs& inputs, const EmbedOptions& options, Outcome& out) const noexcept;
  // A conversation by the model's chat template, and its text.
  Prompt chat(const Chat& chat, const ChatOptions& options, const Cancel& cancel,
              Outcome& out) const noexcept;
  std::string chat_text(const Chat& chat, const ChatOptions& options, const Cancel& cancel,
                        Outcome& out) const noexcept;
  Stored precompute(const Store& store, const int32_t* tokens, size_t n_tokens,
                    const PrecomputeOptions& options, Outcome& out) const noexcept;
  CorpusRecords precompute_corpus(const Store& store, const Corpus& corpus,
                                  const CorpusOptions& options, Outcome& out) const noexcept;
  // Texts and how they are put; see blend_chat_render_texts and blend_precompute_texts. No chunk
  // prefix of `corpus`: the head of the prompts.
  Prompt text_prompt(const Texts& texts, const TextOptions& options, const Cancel& cancel,
                     Outcome& out) const noexcept;
  CorpusRecords precompute_texts(const Store& store, const Texts& texts, const TextOptions& options,
                                 const CorpusOptions& corpus, Outcome& out) const noexcept;
  // existed: whether the store holds it; the id is given either way.
  Stored find_chunk(const Store& store, const int32_t* tokens, size_t n_tokens,
                    const PrecomputeOptions& options, Outcome& out) const noexcept;
  std::string put_chunk(const Store& store, const int32_t* tokens, size_t n_tokens,
                        const KvLayers& layers, uint32_t first_position,
                        const PrecomputeOptions& options, Outcome& out) const noexcept;
  CheckLayers default_check_layers(double ratio, uint32_t first_layer, size_t n,
                                   Outcome& out) const noexcept;
  void close() noexcept;
#ifndef SWIG
  const Slot<blendpp::Model>& slot() const noexcept { return *slot_; }
#endif

 private:
#ifndef SWIG
  explicit Model(std::shared_ptr<Slot<blendpp::Model>> slot) noexcept;
  std::shared_ptr<Slot<blendpp::Model>> slot_;
#else
  Model();
#endif
};

}  // namespace blend_shim

#endif
