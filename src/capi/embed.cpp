#include "engine/embed.h"

#include <algorithm>

#include "blend/embed.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Result;
using blend::Status;

namespace {

constexpr blend::Pooling kPoolings[] = {blend::Pooling::unsaid, blend::Pooling::mean,
                                        blend::Pooling::last, blend::Pooling::first};

// What both calls are asked for, checked.
struct EmbedCall {
  std::shared_ptr<const blend::Model> model;
  blend_embed_options asked{};
  blend::EmbedOptions options;
};

Result<EmbedCall> read_embed_call(const blend_model* model, size_t n_texts,
                                  const blend_embed_options* options, const float* vectors,
                                  size_t capacity) {
  EmbedCall call;
  BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, call.asked));
  const blend_embed_options& o = call.asked;
  if (o.pooling >= std::size(kPoolings)) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "pooling %u: no BLEND_POOLING_ value of this version", o.pooling);
  }
  BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
  BLEND_ASSIGN(call.model, model->loaded());
  call.options = {kPoolings[o.pooling], o.n_dimensions, o.unnormalized == 0};
  BLEND_ASSIGN(const uint32_t width, blend::embedding_width(*call.model, call.options));
  if (n_texts > capacity / width) {
    return blend::make_error(BLEND_E_BUFFER_TOO_SMALL,
                             "the buffer holds %zu floats; %zu vectors of %u are needed", capacity,
                             n_texts, width);
  }
  if (n_texts > 0 && vectors == nullptr) return blend::capi::null_argument("vectors");
  return call;
}

std::string name_of_text(size_t i) { return "text " + std::to_string(i); }

// Makes `tokens` as long as the model's context; n_closing of them stay at the end.
void cut_to_context(const blend::Model& model, size_t n_closing, std::vector<int32_t>& tokens) {
  const size_t most = model.context_length();
  if (tokens.size() <= most) return;
  const size_t n_kept = most - std::min(most, n_closing);
  tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(n_kept),
               tokens.end() - static_cast<std::ptrdiff_t>(most - n_kept));
}

Status check_length(const EmbedCall& call, size_t n, size_t text) {
  if (n == 0) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "text %zu has no tokens: leave it out",
                             text);
  }
  if (call.asked.truncate != 0) return Status::ok();
  return call.model->check_length(n, name_of_text(text));
}

Result<std::vector<int32_t>> tokens_of(const EmbedCall& call, const blend_text& text, size_t i) {
  if (text.bytes == nullptr && text.n_bytes > 0) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "text %zu is NULL", i);
  }
  const blend::Tokenizer& tokenizer = call.model->tokenizer();
  auto tokens = tokenizer.encode({text.bytes, text.n_bytes}, BLEND_TOKENIZE_BOS);
  if (!tokens.is_ok()) return tokens.status().with_context(name_of_text(i));
  const std::span<const int32_t> closing = tokenizer.closing();
  tokens->insert(tokens->end(), closing.begin(), closing.end());
  BLEND_RETURN_IF_ERROR(check_length(call, tokens->size(), i));
  cut_to_context(*call.model, closing.size(), *tokens);
  return tokens;
}

Status embed(const EmbedCall& call, size_t n_texts, const blend::NextTokens& next, float* vectors) {
  const blend::ThreadCap cap(call.asked.n_threads);
  return blend::embed_texts(
      *call.model, n_texts, next, call.options, vectors,
      blend::capi::make_watch(call.asked.cancel, call.asked.progress, call.asked.progress_user));
}

}  // namespace

extern "C" {

int32_t blend_embed_options_init(blend_embed_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_model_embed(const blend_model* model, const blend_text* texts, size_t n_texts,
                          const blend_embed_options* options, float* vectors, size_t capacity,
                          uint32_t* n_tokens, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    if (n_texts > 0) BLEND_REQUIRE(texts);
    BLEND_ASSIGN(const EmbedCall call, read_embed_call(model, n_texts, options, vectors, capacity));
    const auto next = [&](size_t i) -> Result<std::vector<int32_t>> {
      BLEND_ASSIGN(std::vector<int32_t> tokens, tokens_of(call, texts[i], i));
      if (n_tokens != nullptr) n_tokens[i] = static_cast<uint32_t>(tokens.size());
      return tokens;
    };
    return embed(call, n_texts, next, vectors);
  });
}

int32_t blend_model_embed_tokens(const blend_model* model, const int32_t* tokens,
                                 const size_t* n_tokens, size_t n_texts,
                                 const blend_embed_options* options, float* vectors,
                                 size_t capacity, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    if (n_texts > 0) {
      BLEND_REQUIRE(tokens);
      BLEND_REQUIRE(n_tokens);
    }
    BLEND_ASSIGN(const EmbedCall call, read_embed_call(model, n_texts, options, vectors, capacity));
    // Lengths first: none that makes no sense is followed.
    for (size_t i = 0; i < n_texts; ++i) {
      BLEND_RETURN_IF_ERROR(check_length(call, n_tokens[i], i));
    }
    const int32_t* at = tokens;
    const auto next = [&](size_t i) -> Result<std::vector<int32_t>> {
      const std::span<const int32_t> whole(at, n_tokens[i]);
      at += whole.size();
      BLEND_RETURN_IF_ERROR(call.model->check_tokens(whole, name_of_text(i)));
      const size_t n = std::min<size_t>(whole.size(), call.model->context_length());
      return std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    };
    return embed(call, n_texts, next, vectors);
  });
}

}  // extern "C"
