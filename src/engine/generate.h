// Generate: sample, report, append, until a stop token, a stop text or the budget's end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/utf8_stream.h"
#include "engine/logit_rules.h"
#include "engine/logprobs.h"
#include "engine/prompt_lookup.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "engine/stop_texts.h"
#include "grammar/grammar.h"

namespace blend {

struct GenerateOptions {
  uint32_t max_tokens = 128;
  bool ignore_eos = false;
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_texts;  // bytes
  SamplerOptions sampler;
  LogitRuleOptions rules;
  uint32_t penalty_context = 0;  // earlier rows whose tokens the penalties count too
  uint32_t top_logprobs = 0;     // 0: `logprobs` is not called
  LookupOptions lookup;
  std::shared_ptr<const Grammar> grammar;  // of all text from here on; null: none
};

// `text`: the whole UTF-8 sequences that the token completed and in which no stop text can begin;
// bytes that cannot become one are U+FFFD. token -1: only text held back until the end. Non-zero
// stops with CALLBACK.
using TokenFn = std::function<int32_t(int32_t token, const std::string& text)>;
// The result of logprobs(), ahead of the TokenFn of the same token.
using LogprobsFn = std::function<int32_t(std::span<const Logprob> logprobs)>;

struct GenerateCalls {
  TokenFn token;
  LogprobsFn logprobs;
  // Called before each token: the sequence's logits are those that it is sampled from.
  std::function<void()> before = {};
};

struct Generated {
  size_t n_tokens = 0;   // reported
  bool stopped = false;  // by a stop token or text, or the grammar's end
};

// One generation, step by step: next(), append() its token to the sequence, next() again. Not
// thread-safe; its arguments must outlive it.
class Generation {
 public:
  // `text` holds a UTF-8 sequence that the last token left open, for the call that continues.
  static Result<std::unique_ptr<Generation>> create(Sequence& sequence, GenerateOptions options,
                                                    GenerateCalls calls, Utf8Stream& text);

  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation() { sequence_.forget_ahead(); }

  // Samples from the sequence's logits and reports the token, which the caller appends; none: the
  // end. CANCELLED, CALLBACK, and the errors of LogitRules::apply().
  Result<std::optional<int32_t>> next(const Watch& watch);

  // Draft tokens after the one that next() gave, to be computed with it (Sequence::Append).
  // Valid until the next call.
  std::span<const int32_t> draft(int32_t token);

  // Correct on failure too: the last of the tokens is then not in the sequence yet.
  const Generated& so_far() const { return generated_; }

  Sequence& sequence() const { return sequence_; }
  // Shared steps need not wait for it: it has no more tokens.
  void leave() { member_.reset(); }
  SharedSteps::Member* member() { return member_ ? &*member_ : nullptr; }

 private:
  Generation(Sequence& sequence, GenerateOptions options, GenerateCalls calls, Utf8Stream& text,
             Sampler sampler, LogitRules rules, StopTexts stops,
             std::unique_ptr<GrammarRun> grammar)
      : sequence_(sequence),
        options_(std::move(options)),
        calls_(std::move(calls)),
        text_(text),
        sampler_(std::move(sampler)),
        rules_(std::move(rules)),
        stops_(std::move(stops)),
        grammar_(std::move(grammar)),
        lookup_(options_.lookup) {
    if (SharedSteps* const steps = sequence.model().steps()) member_.emplace(*steps);
  }
  bool room() const {
    return generated_.n_tokens < options_.max_tokens && sequence_.n_rows() < sequence_.capacity();
  }
  bool ends(int32_t token) const;
  Status stop();
  Status tell(int32_t token, const std::string& text);
  Status report(int32_t token);
  Status count_and_tell(int32_t token);

  Sequence& sequence_;
  const GenerateOptions options_;
  const GenerateCalls calls_;
  Utf8Stream& text_;
  Sampler sampler_;
  LogitRules rules_;
  StopTexts stops_;
  std::unique_ptr<GrammarRun> grammar_;  // null: none
  PromptLookup lookup_;
  std::optional<SharedSteps::Member> member_;  // none: the backend decodes sequences one by one
  Generated generated_;
};

// One of several generations that a thread drives.
struct GenerationRun {
  std::unique_ptr<Generation> generation;
  Watch watch;
  Status status = Status::ok();  // of generate_each()
};
// Runs all to their ends, a token of each at a time. One that fails leaves the others alone.
void generate_each(std::span<GenerationRun> runs);

}  // namespace blend
