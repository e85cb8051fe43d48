#include "engine/generate.h"

#include <algorithm>

namespace blend {
namespace {

Status asked_to_stop(const char* callback, int32_t rc) noexcept {
  try {
    return {BLEND_E_CALLBACK, std::string("the ") + callback + " callback asked to stop", rc};
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

}  // namespace

Result<std::unique_ptr<Generation>> Generation::create(Sequence& sequence, GenerateOptions options,
                                                       GenerateCalls calls, Utf8Stream& text) {
  if (sequence.logits().empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT, "there are no logits to generate from"};
  }
  const uint32_t n_vocab = sequence.model().config().n_vocab;
  BLEND_ASSIGN(Sampler sampler, Sampler::create(options.sampler));
  BLEND_ASSIGN(LogitRules rules, LogitRules::create(std::move(options.rules), n_vocab));
  BLEND_ASSIGN(StopTexts stops, StopTexts::create(options.stop_texts));
  std::unique_ptr<GrammarRun> grammar;
  if (options.grammar != nullptr) {
    if (options.ignore_eos) {
      return Status{BLEND_E_INVALID_ARGUMENT,
                    "ignore_eos with a grammar: the grammar says where the text ends"};
    }
    BLEND_ASSIGN(const auto vocabulary, sequence.model().grammar_vocabulary());
    if (vocabulary->fingerprint() != options.grammar->vocabulary().fingerprint()) {
      return Status{BLEND_E_INVALID_ARGUMENT,
                    "the grammar is of a model with another tokenizer: open it for this one"};
    }
    BLEND_ASSIGN(grammar, Grammar::start(options.grammar));
  }
  const std::vector<int32_t>& before = sequence.tokens();
  const size_t n = std::min<size_t>(before.size(), options.penalty_context);
  for (size_t i = before.size() - n; i < before.size(); ++i) rules.see(before[i]);
  return std::unique_ptr<Generation>(new Generation(sequence, std::move(options), std::move(calls),
                                                    text, std::move(sampler), std::move(rules),
                                                    std::move(stops), std::move(grammar)));
}

bool Generation::ends(int32_t token) const {
  const std::vector<int32_t>& stops = options_.stop_tokens;
  return (!options_.ignore_eos && sequence_.model().tokenizer().is_stop(token)) ||
         std::find(stops.begin(), stops.end(), token) != stops.end();
}

// The text that was held back is told.
Status Generation::stop() {
  generated_.stopped = true;
  const std::string held = text_.push(stops_.finish());
  return held.empty() ? Status::ok() : tell(-1, held);
}

Status Generation::tell(int32_t token, const std::string& text) {
  if (!calls_.token) return Status::ok();
  const int32_t rc = calls_.token(token, text);
  return rc == 0 ? Status::ok() : asked_to_stop("token", rc);
}

// Without memory nothing has been reported, unless the token callback has been called.
Status Generation::report(int32_t token) {
  const Utf8Stream text = text_;
  const size_t n_tokens = generated_.n_tokens;
  try {
    return count_and_tell(token);
  } catch (const std::bad_alloc&) {
    text_ = text;
    generated_ = {n_tokens, false};
    return Status::out_of_memory();
  }
}

Status Generation::count_and_tell(int32_t token) {
  ++generated_.n_tokens;
  if (options_.top_logprobs > 0 && calls_.logprobs) {
    const std::vector<Logprob> found = logprobs(sequence_.logits(), token, options_.top_logprobs);
    if (const int32_t rc = calls_.logprobs(found); rc != 0) return asked_to_stop("logprobs", rc);
  }
  const std::string piece = sequence_.model().tokenizer().piece(token, 0);
  if (stops_.empty()) return calls_.token ? tell(token, text_.push(piece)) : Status::ok();
  std::string decided = stops_.push(piece);
  if (stops_.matched()) {
    generated_.stopped = true;
    decided = text_.push(decided);
    text_ = {};  // the text does not go on with what follows
    return tell(token, decided);
  }
  // No token follows the last one.
  const bool last =
      generated_.n_tokens == options_.max_tokens || sequence_.n_rows() + 1 >= sequence_.capacity();
  if (last) decided += stops_.finish();
  return tell(token, text_.push(decided));
}

// Reported before it is appended: the host shows a token while the next one is computed.
Result<std::optional<int32_t>> Generation::next(const Watch& watch) {
  const std::optional<int32_t> end;
  if (generated_.stopped) return end;
  if (grammar_) {
    BLEND_RETURN_IF_ERROR(watch.check());
    // Also after the last token there is room for: the text may be complete with it.
    BLEND_ASSIGN(const bool complete, grammar_->prepare(watch.cancel));
    if (complete) {
      BLEND_RETURN_IF_ERROR(stop());
      return end;
    }
  }
  if (!room()) return end;
  BLEND_RETURN_IF_ERROR(watch.check());
  if (calls_.before) calls_.before();
  BLEND_ASSIGN(const std::span<const float> logits,
               rules_.apply(sequence_.logits(), grammar_.get()));
  const int32_t token = sampler_.sample(logits);
  if (ends(token)) {
    BLEND_RETURN_IF_ERROR(stop());
    return end;
  }
  if (grammar_) BLEND_RETURN_IF_ERROR(grammar_->accept(token, watch.cancel));
  rules_.see(token);
  BLEND_RETURN_IF_ERROR(report(token));
  return generated_.stopped ? end : std::optional<int32_t>(token);
}

std::span<const int32_t> Generation::draft(int32_t token) {
  if (options_.lookup.n_tokens == 0 || !member_ || sequence_.has_ahead(token)) return {};
  // Tokens left to sample, the first of them from the token's own logits.
  const size_t left = options_.max_tokens - generated_.n_tokens;
  return left < 2 ? std::span<const int32_t>() : lookup_.draft(sequence_.tokens(), token, left - 1);
}

void generate_each(std::span<GenerationRun> runs) {
  std::vector<bool> ended(runs.size(), false);
  std::vector<Sequence::Append> appends;
  std::vector<size_t> owner;  // of each append
  appends.reserve(runs.size());
  owner.reserve(runs.size());
  const auto end = [&](size_t i, Status status) {
    runs[i].status = std::move(status);
    ended[i] = true;
    runs[i].generation->leave();  // no step need wait for it any more
  };
  // Those of one model go together.
  const auto append_all = [&] {
    while (!appends.empty()) {
      const Model* const model = &appends.back().sequence->model();
      const auto others = std::stable_partition(owner.begin(), owner.end(), [&](size_t i) {
        return &runs[i].generation->sequence().model() != model;
      });
      const auto first = others - owner.begin();
      std::stable_partition(appends.begin(), appends.end(), [&](const Sequence::Append& append) {
        return &append.sequence->model() != model;
      });
      const auto mine = std::span(appends).subspan(static_cast<size_t>(first));
      Sequence::append_each(mine);
      for (size_t k = 0; k < mine.size(); ++k) {
        const size_t i = owner[static_cast<size_t>(first) + k];
        if (!mine[k].status.is_ok()) end(i, std::move(mine[k].status));
      }
      appends.erase(appends.begin() + first, appends.end());
      owner.resize(static_cast<size_t>(first));
    }
  };
  const auto go_on = [&](size_t i) {
    Generation& generation = *runs[i].generation;
    auto next = generation.next(runs[i].watch);
    if (!next.is_ok()) return end(i, next.status());
    if (!next->has_value()) return end(i, Status::ok());
    appends.push_back({&generation.sequence(), **next, runs[i].watch, generation.member(),
                       Status::ok(), generation.draft(**next)});
    owner.push_back(i);
  };
  for (;;) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (ended[i]) continue;
      try {
        go_on(i);
      } catch (const std::bad_alloc&) {
        end(i, Status::out_of_memory());
      }
    }
    if (appends.empty()) return;
    append_all();
  }
}

}  // namespace blend
