// Fusions: one prompt's fused cache, its report, and the text that follows.
#ifndef BLEND_SHIM_FUSION_H
#define BLEND_SHIM_FUSION_H

#include "grammar.h"
#include "profile.h"

namespace blend_shim {

class FuseOptions : public Call {
 public:
  FuseOptions() noexcept;
  BLEND_FUSE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  // Copied. No tokens: chunks that were prefilled after nothing. Not set: the prompt's head.
  void set_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept;
  void clear_chunk_prefix() noexcept { has_chunk_prefix_ = false; }
  void set_check_layers(const CheckLayers& layers) noexcept;
  void add_term(uint32_t kind,
                double share) noexcept;  // of BLEND_POLICY_UNION; kind: BLEND_POLICY_*
  // Kept open by the options.
  void set_machine(const Machine& machine, Outcome& out) noexcept;
  // blend_profile_apply: also sets policy, metric, check layer, ratio, chunk prefix and correction
  // to the profile's; members that are set afterwards override it.
  void set_profile(const Profile& profile, Outcome& out) noexcept;
#ifndef SWIG
  bool has_chunk_prefix_ = false;
  std::vector<int32_t> chunk_prefix_;
  CheckLayers check_layers_;
  std::vector<uint32_t> term_policies_;
  std::vector<double> term_shares_;
  std::shared_ptr<blendpp::Machine> machine_;
  std::shared_ptr<blendpp::Profile> profile_;
#endif
};

struct FusionInfo {
  BLEND_FUSION_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

struct LayerInfo {
  BLEND_LAYER_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

struct SegmentInfo {
  BLEND_SEGMENT_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

class GenerateOptions : public Call {
 public:
  GenerateOptions() noexcept;
  BLEND_GENERATE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  void add_stop_token(int32_t token) noexcept;
  void add_stop_text(const std::string& stop) noexcept;
  void add_logit_bias(int32_t token, float bias) noexcept;
  // Kept open by the options.
  void set_grammar(const Grammar& grammar, Outcome& out) noexcept;
  // next() gives 3 ahead of every token.
  void set_shows_logits(bool shows) noexcept { shows_logits_ = shows; }
#ifndef SWIG
  std::vector<int32_t> stop_tokens_;
  std::vector<std::string> stop_texts_;
  std::vector<int32_t> bias_tokens_;
  std::vector<float> biases_;
  std::shared_ptr<blendpp::Grammar> grammar_;
  bool shows_logits_ = false;
#endif
};

#ifndef SWIG
struct FusionState;
struct StreamState;
#endif

// The tokens of one generation, one for each next(). The library computes on the stream's own
// thread, which sleeps from the moment that a token was pulled until next() is called again:
// nothing is generated that was not asked for. While a stream is open its fusion refuses other
// calls (BLEND_SHIM_E_IN_USE). next() belongs to one thread at a time; close() may come from any.
class TokenStream {
 public:
  ~TokenStream();
  // 1: token() and text() are the next one's. 0: the end. 2: nothing within timeout_ms, ask again
  // (negative: waits as long as it takes). 3: logits() are those that the next token is sampled
  // from, to be changed before next() is called again. -1: failed, see `out`.
  int32_t next(int64_t timeout_ms, Outcome& out) noexcept;
  int32_t token() const noexcept;
  std::string text() const noexcept;  // whole UTF-8 sequences that the token completes, or ""
  size_t n_tokens() const noexcept;   // pulled so far
  // Of the last token, if the options have top_logprobs: its own, then the likeliest, falling.
  size_t n_logprobs() const noexcept;
  int32_t logprob_token(size_t i) const noexcept;  // -1: there are fewer
  float logprob(size_t i) const noexcept;
  // float [n_logits], which live as long as the stream; null before the first 3 of next().
  void* logits() noexcept;
  size_t n_logits() const noexcept;
  bool by_stop_token() const noexcept;  // at the end: whether EOS, a stop token or text ended it
  // Ends the generation, waits for about a layer's time, and frees the fusion for other calls.
  void close() noexcept;

 private:
  friend class Fusion;
#ifndef SWIG
  explicit TokenStream(std::shared_ptr<StreamState> state) noexcept;
  std::shared_ptr<StreamState> state_;
#else
  TokenStream();
#endif
};

// Every function may be called on any thread at any time. Those that read may run together; one
// that changes the fusion while another call runs gives BLEND_SHIM_E_IN_USE, and while a view of it
// is out BLEND_SHIM_E_VIEW_HELD. Nothing waits for another call.
class Fusion {
 public:
  // Null on failure.
  static Fusion* fuse(const Model& model, const Store& store, const Prompt& prompt,
                      const FuseOptions& options, Outcome& out) noexcept;
  // Of the question, or of the messages, of `texts`.
  static Fusion* fuse_texts(const Model& model, const Store& store, const Texts& texts,
                            const TextOptions& how, const FuseOptions& options,
                            Outcome& out) noexcept;
  static Fusion* fuse_messages(const Model& model, const Store& store, const Texts& texts,
                               const TextOptions& how, const FuseOptions& options,
                               Outcome& out) noexcept;
  static Fusion* restore(const Model& model, const Store& store, const std::string& id,
                         const std::string& tenant, uint32_t reserve_tokens, const Cancel& cancel,
                         Outcome& out) noexcept;
  ~Fusion();
  void extend(const Store& store, const Prompt& prompt, const FuseOptions& options,
              Outcome& out) noexcept;
  std::string save(const Store& store, const std::string& tenant, const Cancel& cancel,
                   Outcome& out) const noexcept;
  FusionInfo info(Outcome& out) const noexcept;
  LayerInfo layer(uint32_t layer, Outcome& out) const noexcept;
  SegmentInfo segment(size_t segment, Outcome& out) const noexcept;
  View selected(Outcome& out) const noexcept;   // u32, ascending rows
  View deviation(Outcome& out) const noexcept;  // f32, one a prompt row
  View tokens(Outcome& out) const noexcept;     // i32, of all rows there are
  View logits(Outcome& out) const noexcept;     // f32, [n_vocab], of the last row
  void decode(const int32_t* tokens, size_t n_tokens, const Cancel& cancel, Outcome& out) noexcept;
  // How many of the tokens were kept. 0 on failure, whatever was kept: tokens() says.
  size_t make_exact(const int32_t* tokens, size_t n_tokens, const Cancel& cancel,
                    Outcome& out) noexcept;
  void replace(uint64_t first_row, uint64_t n_rows, const int32_t* tokens, size_t n_tokens,
               const Cancel& cancel, Outcome& out) noexcept;
  void erase(uint64_t first_row, uint64_t n_rows, const Cancel& cancel, Outcome& out) noexcept;
  // Null on failure. Views of the fusion may be out.
  Fusion* fork(Outcome& out) noexcept;
  // Null on failure. Nothing is computed before the first next().
  TokenStream* generate(const GenerateOptions& options, Outcome& out) noexcept;
  void close() noexcept;
#ifndef SWIG
  explicit Fusion(std::shared_ptr<Slot<FusionState>> slot) noexcept;
#endif

 private:
#ifndef SWIG
  std::shared_ptr<Slot<FusionState>> slot_;
#else
  Fusion();
#endif
};

// Prompts that are fused together; see blend_fuse_batch. Not thread-safe.
class Batch : public Builder {
 public:
  // Copies the prompt and the options.
  void add(const Prompt& prompt, const FuseOptions& options) noexcept;
  size_t size() const noexcept { return prompts_.size(); }
  // Fails only if the whole batch fails. take() then gives the result of each prompt.
  void fuse(const Model& model, const Store& store, Outcome& out) noexcept;
  // The fusion of prompt i, which the caller owns; null, and the error in `out`, if this prompt
  // failed.
  Fusion* take(size_t i, Outcome& out) noexcept;
#ifndef SWIG
  struct Done {
    std::shared_ptr<Slot<FusionState>> fusion;
    Outcome error;
  };
  std::vector<Prompt> prompts_;
  std::vector<FuseOptions> options_;
  std::vector<Done> done_;
#endif
};

}  // namespace blend_shim

#endif
