#include "engine/logit_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace blend {
namespace {

Status check_penalty(const char* name, float value) {
  if (std::isfinite(value)) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s %g must be a number; 0 turns it off", name,
                    static_cast<double>(value));
}

}  // namespace

Result<LogitRules> LogitRules::create(LogitRuleOptions options, uint32_t n_vocab) {
  if (!(options.repetition_penalty > 0.0f) || std::isinf(options.repetition_penalty)) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "repetition_penalty %g must be positive; 1 turns it off",
                      static_cast<double>(options.repetition_penalty));
  }
  BLEND_RETURN_IF_ERROR(check_penalty("frequency_penalty", options.frequency_penalty));
  BLEND_RETURN_IF_ERROR(check_penalty("presence_penalty", options.presence_penalty));
  for (const LogitBias& b : options.bias) {
    if (b.token < 0 || static_cast<uint32_t>(b.token) >= n_vocab) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "logit_bias: token %d is outside the vocabulary of %u", b.token, n_vocab);
    }
    if (std::isnan(b.bias) || b.bias == std::numeric_limits<float>::infinity()) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "logit_bias: %g for token %d must be a number, or -infinity to forbid it",
                        static_cast<double>(b.bias), b.token);
    }
  }
  return LogitRules(std::move(options));
}

bool LogitRules::penalizes() const {
  return options_.repetition_penalty != 1.0f || options_.frequency_penalty != 0.0f ||
         options_.presence_penalty != 0.0f;
}

void LogitRules::see(int32_t token) {
  if (penalizes()) ++seen_[token];
}

Result<std::span<const float>> LogitRules::apply(std::span<const float> logits,
                                                 const GrammarRun* grammar) {
  if (seen_.empty() && options_.bias.empty() && !options_.fn && grammar == nullptr) return logits;
  logits_.assign(logits.begin(), logits.end());
  for (const auto& [token, times] : seen_) {
    float& l = logits_[static_cast<size_t>(token)];
    l = l > 0.0f ? l / options_.repetition_penalty : l * options_.repetition_penalty;
    l -= options_.frequency_penalty * static_cast<float>(times) + options_.presence_penalty;
  }
  for (const LogitBias& b : options_.bias) logits_[static_cast<size_t>(b.token)] += b.bias;
  if (options_.fn) {
    if (const int32_t rc = options_.fn(logits_); rc != 0) {
      return Status{BLEND_E_CALLBACK, "the logits callback asked to stop", rc};
    }
  }
  if (grammar != nullptr) grammar->apply(logits_);
  bool any = false;
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (std::isfinite(logits_[i])) {
      any = true;
    } else if (!(logits_[i] < 0.0f)) {
      return make_error(BLEND_E_NUMERIC,
                        "the logit of token %zu is %g after penalties, bias and callback: it must "
                        "be a number, or -infinity to forbid the token",
                        i, static_cast<double>(logits_[i]));
    }
  }
  if (any) return std::span<const float>(logits_);
  return make_error(
      BLEND_E_INVALID_ARGUMENT,
      grammar == nullptr
          ? "logit_bias or the logits callback forbids every token: leave at least one"
          : "logit_bias or the logits callback forbids every token that the grammar "
            "allows: leave at least one");
}

}  // namespace blend
