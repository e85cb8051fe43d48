// LogitRules: changes the logits of a row before a token is sampled from them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "grammar/grammar.h"

namespace blend {

struct LogitBias {
  int32_t token = 0;
  float bias = 0;  // -infinity: never this token
};

// May change them, -infinity included. logits: [n_vocab]. Non-zero stops with CALLBACK.
using LogitsFn = std::function<int32_t(std::span<float> logits)>;

// In the order in which they are applied.
struct LogitRuleOptions {
  // Divides the logits l > 0 of seen tokens, multiplies others (CTRL, Keskar et al. 2019). 1: off.
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;  // subtracted for each time that a token was seen
  float presence_penalty = 0.0f;   // subtracted once
  std::vector<LogitBias> bias;     // added; several of one token add up
  LogitsFn fn;
};

// Not thread-safe.
class LogitRules {
 public:
  // INVALID_ARGUMENT names the option that is out of its range, or the token that the model does
  // not have.
  static Result<LogitRules> create(LogitRuleOptions options, uint32_t n_vocab);

  // From here on the penalties count it once more.
  void see(int32_t token);

  // The logits to sample from: `logits` where there is no rule, else a copy, valid until the next
  // call. At least one is finite and none NaN or +infinity, if that holds for `logits`. `grammar`
  // (null: none) is applied last, so that nothing brings back what it forbids. CALLBACK; NUMERIC
  // names the token whose logit the callback spoilt; INVALID_ARGUMENT: no token is left.
  Result<std::span<const float>> apply(std::span<const float> logits, const GrammarRun* grammar);

 private:
  explicit LogitRules(LogitRuleOptions options) : options_(std::move(options)) {}
  bool penalizes() const;

  LogitRuleOptions options_;
  std::unordered_map<int32_t, uint32_t> seen_;  // how often; empty where nothing is penalized
  std::vector<float> logits_;                   // kept between calls
};

}  // namespace blend
