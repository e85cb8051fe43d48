// Fusions: one prompt's fused cache, its report, and the text that follows.
#ifndef BLEND_CPP_FUSION_HPP
#define BLEND_CPP_FUSION_HPP

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "blend/batch.h"
#include "blend/cpp/chat.hpp"
#include "blend/cpp/fuse.hpp"
#include "blend/cpp/generate.hpp"
#include "blend/cpp/prompt.hpp"
#include "blend/generate.h"
#include "blend/report.h"
#include "blend/session.h"

namespace blendpp {

using FusionInfo = detail::Sized<blend_fusion_info>;
using FusionReport = detail::Sized<blend_fusion_report>;
using LayerInfo = detail::Sized<blend_layer_info>;
using SegmentInfo = detail::Sized<blend_segment_info>;

// One prompt's fused KV cache and the logits of its last row. Exclusive use for decode, generate,
// make_exact, replace, erase, extend and destruction; the const functions may run concurrently with
// each other.
class Fusion {
 public:
  // `store` may be null with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE.
  Fusion(const Model& model, const Store* store, const Prompt& prompt,
         const FuseOptions& options = FuseOptions()) {
    blend_fusion* raw = nullptr;
    with_arguments(prompt, options, [&](const auto& segments, const auto& o, auto& outcome) {
      outcome.check(blend_fuse(&raw, model.get(), store == nullptr ? nullptr : store->get(),
                               segments.data(), segments.size(), &o, outcome.out()));
    });
    handle_ = {raw, {model.log()}};
  }
  // Fuses documents and a question as text; see blend_fuse_texts. `store` may be null: all is
  // computed. `options` in the place of the member `fuse` of `texts`.
  Fusion(const Model& model, const Store* store, const std::vector<std::string>& documents,
         const std::string& question, const TextOptions& texts = TextOptions(),
         const FuseOptions& options = FuseOptions()) {
    const std::vector<const char*> list = detail::c_strings(documents);
    const char* const asked = detail::c_string(question, "the question");
    blend_fusion* raw = nullptr;
    with_options(options, [&](const auto& o, auto& outcome) {
      TextOptions copy = texts;
      copy.fuse = &o;
      outcome.check(blend_fuse_texts(&raw, model.get(), store == nullptr ? nullptr : store->get(),
                                     list.data(), list.size(), asked, &copy, outcome.out()));
    });
    handle_ = {raw, {model.log()}};
  }
  // The same of a conversation; see blend_fuse_messages.
  Fusion(const Model& model, const Store* store, const std::vector<ChatMessage>& messages,
         const std::vector<std::string>& documents, const TextOptions& texts = TextOptions(),
         const FuseOptions& options = FuseOptions()) {
    const std::vector<const char*> list = detail::c_strings(documents);
    const std::vector<blend_chat_message> turns = detail::c_messages(messages);
    blend_fusion* raw = nullptr;
    with_options(options, [&](const auto& o, auto& outcome) {
      TextOptions copy = texts;
      copy.fuse = &o;
      outcome.check(blend_fuse_messages(
          &raw, model.get(), store == nullptr ? nullptr : store->get(), turns.data(), turns.size(),
          list.data(), list.size(), &copy, outcome.out()));
    });
    handle_ = {raw, {model.log()}};
  }
  // Brings back what save() kept. See blend_fusion_restore. `cancel` may be null.
  static Fusion restore(const Model& model, const Store& store, const ChunkId& id,
                        const std::string& tenant = {}, uint32_t reserve_tokens = 256,
                        const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    blend_fusion* raw = nullptr;
    outcome.check(blend_fusion_restore(&raw, model.get(), store.get(), &id, tenant.c_str(),
                                       reserve_tokens, cancel, outcome.out()));
    Fusion fusion;
    fusion.handle_ = {raw, {model.log()}};
    return fusion;
  }
  // A second fusion with what this one has now, for several answers to one prompt. See
  // blend_fusion_fork.
  Fusion fork() {
    detail::Outcome outcome;
    blend_fusion* raw = nullptr;
    outcome.check(blend_fusion_fork(&raw, handle_.get(), outcome.out()));
    Fusion fusion;
    fusion.handle_ = {raw, handle_.get_deleter()};
    return fusion;
  }
  // Fuses a further turn after the rows there are. See blend_fusion_extend.
  void extend(const Store* store, const Prompt& prompt,
              const FuseOptions& options = FuseOptions()) {
    with_arguments(prompt, options, [&](const auto& segments, const auto& o, auto& outcome) {
      outcome.check(blend_fusion_extend(handle_.get(), store == nullptr ? nullptr : store->get(),
                                        segments.data(), segments.size(), &o, outcome.out()));
    });
  }
  // Keeps K and V in the store, written in the background. See blend_fusion_save.
  ChunkId save(const Store& store, const std::string& tenant = {},
               const blend_cancel* cancel = nullptr) const {
    detail::Outcome outcome;
    ChunkId id;
    outcome.check(
        blend_fusion_save(get(), store.get(), tenant.c_str(), cancel, &id, outcome.out()));
    return id;
  }
  FusionInfo info() const { return detail::filled<FusionInfo>(&blend_fusion_get_info, get()); }
  FusionReport report() const {
    return detail::filled<FusionReport>(&blend_fusion_get_report, get());
  }
  LayerInfo layer(uint32_t layer) const {
    return detail::filled<LayerInfo>(&blend_fusion_get_layer, get(), layer);
  }
  SegmentInfo segment(size_t segment) const {
    return detail::filled<SegmentInfo>(&blend_fusion_get_segment, get(), segment);
  }
  // Valid while the fusion is open.
  Span<const uint32_t> selected() const {
    return detail::span_of(&blend_fusion_get_selected, get());
  }
  // Valid while the fusion is open.
  Span<const float> deviation() const {
    return detail::span_of(&blend_fusion_get_deviation, get());
  }
  // Tokens of all rows there are now; valid until the next decode, generate, replace, erase or
  // destruction.
  Span<const int32_t> tokens() const { return detail::span_of(&blend_fusion_get_tokens, get()); }
  // The last row's; valid as long as tokens() is.
  Span<const float> logits() const { return detail::span_of(&blend_fusion_get_logits, get()); }
  // Replaces K and V by full prefill's and appends those of `tokens` that greedy decoding gives;
  // returns how many. See blend_fusion_make_exact. `cancel` may be null.
  size_t make_exact(const Tokens& tokens = {}, const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    size_t n_kept = 0;
    outcome.check(blend_fusion_make_exact(handle_.get(), tokens.data(), tokens.size(), &n_kept,
                                          cancel, outcome.out()));
    return n_kept;
  }
  // `cancel` may be null.
  void decode(const Tokens& tokens, const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    outcome.check(
        blend_fusion_decode(handle_.get(), tokens.data(), tokens.size(), cancel, outcome.out()));
  }
  // Replaces n_rows rows by tokens; the rows after them are rotated to their new positions, not
  // computed again. See blend_fusion_replace. `cancel` may be null.
  void replace(uint64_t first_row, uint64_t n_rows, const Tokens& tokens,
               const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    outcome.check(blend_fusion_replace(handle_.get(), first_row, n_rows, tokens.data(),
                                       tokens.size(), cancel, outcome.out()));
  }
  void erase(uint64_t first_row, uint64_t n_rows, const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    outcome.check(blend_fusion_erase(handle_.get(), first_row, n_rows, cancel, outcome.out()));
  }
  // One generation of generate_batch(). `fusion` is not null.
  struct Request;
  struct Outcome;
  // Generates for several fusions on this thread; see blend_generate_batch. Throws what fails the
  // whole call, and, when all have ended, what a callback threw.
  static std::vector<Outcome> generate_batch(const std::vector<Request>& requests);

  // `fn` may be empty. A callback that returns false ends the generation without an error.
  Generated generate(const GenerateOptions& options, const TokenFn& fn) {
    detail::Outcome outcome;
    Stream stream(options, fn, outcome);
    Generated result;
    const int32_t code =
        blend_fusion_generate(handle_.get(), &stream.options, fn ? &on_token : nullptr, &stream,
                              &result.n_tokens, outcome.out());
    result.by_callback = code == BLEND_E_CALLBACK && !outcome.thrown;
    result.by_stop_token = code == BLEND_STOPPED;
    if (!result.by_callback) outcome.check(code);
    return result;
  }
  const blend_fusion* get() const noexcept { return handle_.get(); }

 private:
  // The callbacks of one generation, guarded, and options that have them.
  struct Stream {
    Stream(const GenerateOptions& of, const TokenFn& token_fn, detail::Outcome& its)
        : fn(token_fn),
          outcome(its),
          logits{of.on_logits, its},
          logprobs{of.on_logprobs, its},
          options(of) {
      if (of.on_logits) {
        options.logits = &detail::on_logits;
        options.logits_user = &logits;
      }
      if (of.on_logprobs) {
        options.logprobs = &detail::on_logprobs;
        options.logprobs_user = &logprobs;
      }
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    const TokenFn& fn;
    detail::Outcome& outcome;
    detail::Guarded<LogitsFn> logits;
    detail::Guarded<LogprobsFn> logprobs;
    blend_generate_options options;
  };
  static int32_t on_token(void* user, int32_t token, const char* text, size_t bytes) noexcept {
    auto* stream = static_cast<Stream*>(user);
    detail::Guarded<TokenFn> guarded{stream->fn, stream->outcome};
    return guarded.call(token, std::string_view(text, bytes));
  }
  friend class Batch;
  Fusion() = default;
  // Calls `call(segments, options, outcome)` with the callbacks of `options` guarded.
  template <typename Call>
  static void with_arguments(const Prompt& prompt, const FuseOptions& options, Call call) {
    with_options(options,
                 [&](const auto& copy, auto& outcome) { call(prompt.segments(), copy, outcome); });
  }
  // The same without segments.
  template <typename Call>
  static void with_options(const FuseOptions& options, Call call) {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    FuseOptions copy = detail::with_progress(options, options.on_progress, guarded);
    detail::Guarded<ScoreFn> guarded_score{options.on_score, outcome};
    if (options.on_score) {
      copy.selection.score = &detail::on_score;
      copy.selection.score_user = &guarded_score;
    }
    detail::point_to_selection(copy);
    call(copy, outcome);
  }

  detail::Handle<blend_fusion, blend_fusion_close> handle_;
};

struct Fusion::Request {
  Fusion* fusion = nullptr;
  GenerateOptions options;
  TokenFn fn;  // may be empty
};

// What became of one of them: `error` is set where it failed.
struct Fusion::Outcome {
  Generated generated;
  std::unique_ptr<Error> error;
};

inline std::vector<Fusion::Outcome> Fusion::generate_batch(const std::vector<Request>& requests) {
  const size_t n = requests.size();
  if (n == 0) return {};
  std::vector<detail::Outcome> own(n);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<blend_generate_request> list(n);
  for (size_t i = 0; i < n; ++i) {
    const Request& request = requests[i];
    streams.push_back(std::make_unique<Stream>(request.options, request.fn, own[i]));
    list[i].struct_size = sizeof list[i];
    list[i].fusion = request.fusion->handle_.get();
    list[i].options = &streams[i]->options;
    list[i].fn = request.fn ? &on_token : nullptr;
    list[i].user = streams[i].get();
  }
  std::vector<int32_t> codes(n);
  std::vector<size_t> n_tokens(n);
  std::vector<blend_error*> errors(n, nullptr);
  std::vector<Outcome> results(n);
  detail::Outcome outcome;
  const int32_t code = blend_generate_batch(codes.data(), n_tokens.data(), errors.data(),
                                            list.data(), n, outcome.out());
  for (size_t i = 0; i < n; ++i) {
    Generated& generated = results[i].generated;
    generated.n_tokens = n_tokens[i];
    generated.by_stop_token = codes[i] == BLEND_STOPPED;
    generated.by_callback = codes[i] == BLEND_E_CALLBACK && !own[i].thrown;
    if (errors[i] != nullptr && !generated.by_callback) {
      results[i].error =
          std::make_unique<Error>(blend_error_code(errors[i]), blend_error_detail(errors[i]),
                                  blend_error_message(errors[i]));
    }
    blend_error_free(errors[i]);
  }
  for (const detail::Outcome& one : own) {
    if (one.thrown) std::rethrow_exception(one.thrown);
  }
  outcome.check(code);
  return results;
}

}  // namespace blendpp

#endif
