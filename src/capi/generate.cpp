// The text that follows a prompt, and that of several at once.
#include "engine/generate.h"

#include <algorithm>

#include "blend/batch.h"
#include "capi/answer.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

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
  o.draft_match = defaults.lookup.match;
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
  if (o.draft_tokens > blend::LookupOptions::kMost) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "draft_tokens %u is more than %u",
                             o.draft_tokens, blend::LookupOptions::kMost);
  }
  if (o.draft_tokens > 0 && o.draft_match == 0) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "draft_match 0: at least 1 token must match; set draft_tokens to 0 to look "
                  "nothing up"};
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
  g.lookup = {o.draft_tokens, o.draft_match};
  if (o.grammar != nullptr) g.grammar = o.grammar->grammar;
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

// A generation of `request`, and the threads that it may have.
Result<blend::GenerationRun> make_run(const blend_generate_request& request, uint32_t& n_threads) {
  BLEND_REQUIRE(request.fusion);
  blend_generate_options o = default_generate_options();
  BLEND_RETURN_IF_ERROR(blend::capi::read_struct(request.options, o));
  BLEND_ASSIGN(blend::GenerateOptions options, read_generate_options(o));
  blend_fusion& fusion = *request.fusion;
  BLEND_RETURN_IF_ERROR(fusion.fused.sequence->model().runtime().check_fork());
  n_threads = o.n_threads != 0 ? o.n_threads : fusion.n_threads;
  blend::GenerationRun run;
  run.watch = blend::capi::make_watch(o.cancel, nullptr, nullptr);
  blend::GenerateCalls calls = calls_of(o, request.fn, request.user);
  if (fusion.answer.has_value()) calls.before = [&fusion] { blend::capi::note_answer(fusion); };
  BLEND_ASSIGN(run.generation, blend::Generation::create(*fusion.fused.sequence, std::move(options),
                                                         std::move(calls), fusion.text));
  return run;
}

int32_t code_of(const blend::GenerationRun& run) {
  if (!run.status.is_ok()) return run.status.code();
  return run.generation->so_far().stopped ? BLEND_STOPPED : BLEND_OK;
}

Status check_apart(std::span<const blend_generate_request> requests) {
  std::vector<std::pair<const blend_fusion*, size_t>> fusions;
  for (size_t i = 0; i < requests.size(); ++i) fusions.emplace_back(requests[i].fusion, i);
  std::sort(fusions.begin(), fusions.end());
  for (size_t i = 1; i < fusions.size(); ++i) {
    if (fusions[i].first == nullptr || fusions[i].first != fusions[i - 1].first) continue;
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "requests %zu and %zu are of the same fusion: give each its own",
                             fusions[i - 1].second, fusions[i].second);
  }
  return Status::ok();
}

}  // namespace

extern "C" {

int32_t blend_generate_options_init(blend_generate_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_generate_options());
}

int32_t blend_fusion_generate(blend_fusion* fusion, const blend_generate_options* options,
                              blend_token_fn fn, void* user, size_t* n_generated,
                              blend_error** err) {
  if (n_generated != nullptr) *n_generated = 0;
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(fusion);
    uint32_t n_threads = 0;
    BLEND_ASSIGN(blend::GenerationRun run,
                 make_run({sizeof(blend_generate_request), fusion, options, fn, user}, n_threads));
    const blend::ThreadCap cap(n_threads);
    blend::generate_each({&run, 1});
    blend::capi::end_whole_answer(*fusion, run.generation->so_far().stopped);
    if (n_generated != nullptr) *n_generated = run.generation->so_far().n_tokens;
    BLEND_RETURN_IF_ERROR(run.status);
    return code_of(run);
  });
}

int32_t blend_generate_batch(int32_t* codes, size_t* n_generated, blend_error** errors,
                             const blend_generate_request* requests, size_t n, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    if (codes != nullptr) std::fill_n(codes, n, 0);
    if (n_generated != nullptr) std::fill_n(n_generated, n, size_t{0});
    if (errors != nullptr) std::fill_n(errors, n, nullptr);
    if (n > 0) BLEND_REQUIRE(requests);
    BLEND_RETURN_IF_ERROR(blend::capi::check_elements(requests, n, "request"));
    std::vector<blend_generate_request> read(n);
    for (size_t i = 0; i < n; ++i) {
      BLEND_RETURN_IF_ERROR(blend::capi::read_struct(blend::capi::element(requests, i), read[i]));
    }
    BLEND_RETURN_IF_ERROR(check_apart(read));
    std::vector<blend::GenerationRun> runs;
    std::vector<size_t> places;  // of the runs among the requests
    std::vector<Status> failed(n);
    runs.reserve(n);
    uint32_t most = 0;  // threads
    bool all = false;
    for (size_t i = 0; i < n; ++i) {
      uint32_t n_threads = 0;
      auto run = make_run(read[i], n_threads);
      failed[i] = run.status();
      if (!failed[i].is_ok()) continue;
      all |= n_threads == 0;
      most = std::max(most, n_threads);
      places.push_back(i);
      runs.push_back(std::move(*run));
    }
    const blend::ThreadCap cap(all ? 0 : most);
    blend::generate_each(runs);
    // Nothing fails from here on.
    for (size_t k = 0; k < runs.size(); ++k) {
      const size_t i = places[k];
      if (codes != nullptr) codes[i] = code_of(runs[k]);
      if (n_generated != nullptr) n_generated[i] = runs[k].generation->so_far().n_tokens;
      failed[i] = std::move(runs[k].status);
      blend::capi::end_whole_answer(*read[i].fusion, runs[k].generation->so_far().stopped);
    }
    int32_t result = BLEND_OK;
    for (size_t i = 0; i < n; ++i) {
      if (failed[i].is_ok()) continue;
      result = BLEND_PARTIAL;
      if (codes != nullptr) codes[i] = failed[i].code();
      if (errors != nullptr) errors[i] = blend::capi::make_blend_error(failed[i]);
    }
    return result;
  });
}

}  // extern "C"
