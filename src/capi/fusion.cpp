// What a fusion answers: its account, its logits, and the text that follows.
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "engine/generate.h"
#include "fusion/edit.h"

using blend::Result;
using blend::Status;

namespace {

blend_generate_options default_generate_options() {
  const blend::GenerateOptions defaults;
  blend_generate_options o{};
  o.struct_size = sizeof o;
  o.max_tokens = defaults.max_tokens;
  o.temperature = defaults.sampler.temperature;
  o.top_p = defaults.sampler.top_p;
  o.top_k = defaults.sampler.top_k;
  o.min_p = defaults.sampler.min_p;
  o.repetition_penalty = defaults.rules.repetition_penalty;
  return o;
}

Result<blend::GenerateOptions> read_generate_options(const blend_generate_options& o) {
  if (o.n_stop_tokens > 0) BLEND_REQUIRE(o.stop_tokens);
  if (o.n_logit_bias > 0) BLEND_REQUIRE(o.logit_bias);
  if (o.n_stop_texts > 0) BLEND_REQUIRE(o.stop_texts);
  BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
  BLEND_RETURN_IF_ERROR(blend::capi::check_count("max_tokens", o.max_tokens));
  if (o.top_logprobs > 0 && o.logprobs == nullptr) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "top_logprobs %u: give a `logprobs` callback to tell them to",
                             o.top_logprobs);
  }
  blend::GenerateOptions g;
  g.max_tokens = o.max_tokens;
  g.ignore_eos = o.ignore_eos != 0;
  if (o.n_stop_tokens > 0) g.stop_tokens.assign(o.stop_tokens, o.stop_tokens + o.n_stop_tokens);
  for (size_t i = 0; i < o.n_stop_texts; ++i) {
    const blend_text& text = o.stop_texts[i];
    if (text.n_bytes > 0 && text.bytes == nullptr) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "stop text %zu: bytes is NULL", i);
    }
    g.stop_texts.emplace_back(text.bytes == nullptr ? "" : text.bytes, text.n_bytes);
  }
  g.sampler = {o.temperature, o.top_p, o.top_k, o.seed, o.min_p};
  g.rules.repetition_penalty = o.repetition_penalty;
  g.rules.frequency_penalty = o.frequency_penalty;
  g.rules.presence_penalty = o.presence_penalty;
  for (size_t i = 0; i < o.n_logit_bias; ++i) {
    g.rules.bias.push_back({o.logit_bias[i].token, o.logit_bias[i].bias});
  }
  if (o.logits != nullptr) {
    g.rules.fn = [fn = o.logits, user = o.logits_user](std::span<float> logits) {
      return fn(user, logits.data(), logits.size());
    };
  }
  g.penalty_context = o.penalty_context;
  g.top_logprobs = o.top_logprobs;
  return g;
}

blend::GenerateCalls calls_of(const blend_generate_options& o, blend_token_fn fn, void* user) {
  blend::GenerateCalls calls;
  if (fn != nullptr) {
    calls.token = [fn, user](int32_t token, const std::string& text) {
      return fn(user, token, text.c_str(), text.size());
    };
  }
  if (o.logprobs != nullptr) {
    calls.logprobs = [fn = o.logprobs,
                      user = o.logprobs_user](std::span<const blend::Logprob> found) {
      std::vector<blend_logprob> told;
      for (const blend::Logprob& p : found) told.push_back({p.token, p.logprob});
      return fn(user, told.data(), told.size());
    };
  }
  return calls;
}

}  // namespace

extern "C" {

int32_t blend_fusion_get_info(const blend_fusion* fusion, blend_fusion_info* info,
                              blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    return blend::capi::write_struct(info, fusion->fused.info);
  });
}

int32_t blend_fusion_get_layer(const blend_fusion* fusion, uint32_t layer, blend_layer_info* info,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (layer >= fusion->fused.layers.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "layer %u: the model has %zu", layer,
                               fusion->fused.layers.size());
    }
    return blend::capi::write_struct(info, fusion->fused.layers[layer]);
  });
}

int32_t blend_fusion_get_segment(const blend_fusion* fusion, size_t segment,
                                 blend_segment_info* info, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (segment >= fusion->fused.segments.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "segment %zu: the prompt has %zu", segment,
                               fusion->fused.segments.size());
    }
    return blend::capi::write_struct(info, fusion->fused.segments[segment]);
  });
}

int32_t blend_fusion_get_selected(const blend_fusion* fusion, const uint32_t** rows, size_t* n,
                                  blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(rows);
    BLEND_REQUIRE(n);
    *rows = fusion->fused.selected.data();
    *n = fusion->fused.selected.size();
    return Status::ok();
  });
}

int32_t blend_fusion_get_deviation(const blend_fusion* fusion, const float** deviation,
                                   size_t* n_rows, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(deviation);
    BLEND_REQUIRE(n_rows);
    *deviation = fusion->fused.deviation.data();
    *n_rows = fusion->fused.deviation.size();
    return Status::ok();
  });
}

int32_t blend_fusion_get_logits(const blend_fusion* fusion, const float** logits, size_t* n_vocab,
                                blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(logits);
    BLEND_REQUIRE(n_vocab);
    *logits = fusion->fused.sequence->logits().data();
    *n_vocab = fusion->fused.sequence->logits().size();
    return Status::ok();
  });
}

int32_t blend_fusion_get_tokens(const blend_fusion* fusion, const int32_t** tokens, size_t* n_rows,
                                blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(tokens);
    BLEND_REQUIRE(n_rows);
    *tokens = fusion->fused.sequence->tokens().data();
    *n_rows = fusion->fused.sequence->tokens().size();
    return Status::ok();
  });
}

int32_t blend_fusion_decode(blend_fusion* fusion, const int32_t* tokens, size_t n_tokens,
                            const blend_cancel* cancel, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (n_tokens > 0) BLEND_REQUIRE(tokens);
    blend::Sequence& sequence = *fusion->fused.sequence;
    const std::span<const int32_t> ids(tokens, n_tokens);
    BLEND_RETURN_IF_ERROR(sequence.model().check_length(n_tokens, "blend_fusion_decode"));
    BLEND_RETURN_IF_ERROR(sequence.model().check_tokens(ids, "blend_fusion_decode"));
    const blend::ThreadCap cap(fusion->n_threads);
    BLEND_RETURN_IF_ERROR(sequence.append(ids, blend::capi::make_watch(cancel, nullptr, nullptr)));
    // The host's tokens come between: what was left open is not continued by what follows.
    if (!ids.empty()) fusion->text = {};
    return Status::ok();
  });
}

int32_t blend_generate_options_init(blend_generate_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_generate_options());
}

int32_t blend_fusion_generate(blend_fusion* fusion, const blend_generate_options* options,
                              blend_token_fn fn, void* user, size_t* n_generated,
                              blend_error** err) {
  if (n_generated != nullptr) *n_generated = 0;
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(fusion);
    blend_generate_options o = default_generate_options();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    BLEND_ASSIGN(blend::GenerateOptions g, read_generate_options(o));
    BLEND_RETURN_IF_ERROR(fusion->fused.sequence->model().runtime().check_fork());
    const blend::ThreadCap cap(o.n_threads != 0 ? o.n_threads : fusion->n_threads);
    blend::Generated generated;
    const Status status = blend::generate(
        *fusion->fused.sequence, std::move(g), calls_of(o, fn, user),
        blend::capi::make_watch(o.cancel, nullptr, nullptr), fusion->text, generated);
    if (n_generated != nullptr) *n_generated = generated.n_tokens;
    BLEND_RETURN_IF_ERROR(status);
    return int32_t{generated.stopped ? BLEND_STOPPED : BLEND_OK};
  });
}

int32_t blend_fusion_replace(blend_fusion* fusion, uint64_t first_row, uint64_t n_rows,
                             const int32_t* tokens, size_t n_tokens, const blend_cancel* cancel,
                             blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (n_tokens > 0) BLEND_REQUIRE(tokens);
    const blend::Model& model = fusion->fused.sequence->model();
    const std::span<const int32_t> ids(tokens, n_tokens);
    BLEND_RETURN_IF_ERROR(model.check_length(n_tokens, "blend_fusion_replace"));
    BLEND_RETURN_IF_ERROR(model.check_tokens(ids, "blend_fusion_replace"));
    const blend::ThreadCap cap(fusion->n_threads);
    BLEND_RETURN_IF_ERROR(blend::edit(fusion->fused, first_row, n_rows, ids,
                                      blend::capi::make_watch(cancel, nullptr, nullptr)));
    if (n_rows > 0 || n_tokens > 0) fusion->text = {};  // as in blend_fusion_decode
    return Status::ok();
  });
}

int32_t blend_fusion_erase(blend_fusion* fusion, uint64_t first_row, uint64_t n_rows,
                           const blend_cancel* cancel, blend_error** err) {
  return blend_fusion_replace(fusion, first_row, n_rows, nullptr, 0, cancel, err);
}

}  // extern "C"
