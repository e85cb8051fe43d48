#include "eval/lead.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "compare.h"
#include "interrupt.h"

namespace blend_cli {
namespace {

int32_t likeliest(blendpp::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

int32_t likeliest_but(blendpp::Span<const float> logits, int32_t token) {
  int32_t best = token == 0 ? 1 : 0;
  for (int32_t i = 0; i < static_cast<int32_t>(logits.size()); ++i) {
    if (i != token && logits[i] > logits[best]) best = i;
  }
  return best;
}

// An answer may end, or a model stray, inside a UTF-8 sequence: U+FFFD stands for that, as in what
// the library generates.
std::string text_of(const blendpp::Model& model, const blendpp::Tokens& tokens) {
  using nlohmann::json;
  const std::string text =
      json(model.detokenize(tokens)).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(text).get<std::string>();
}

// Goes on from `tokens`, which `fusion` has already; `seen` gets the logits of every position.
template <typename Seen>
std::string generate(const blendpp::Model& model, blendpp::Fusion& fusion, blendpp::Tokens tokens,
                     const AnswerLimits& limits, const Seen& seen) {
  blendpp::GenerateOptions options;
  options.max_tokens = limits.max_tokens - static_cast<uint32_t>(tokens.size());
  options.cancel = interrupt_token();
  options.on_logits = [&](blendpp::Span<float> logits) {
    seen(blendpp::Span<const float>(logits.data(), logits.size()));
    return true;
  };
  fusion.generate(options, [&](int32_t token, std::string_view) {
    if (token >= 0) tokens.push_back(token);
    return limits.stop.empty() || text_of(model, tokens).find(limits.stop) == std::string::npos;
  });
  return answer_of(text_of(model, tokens), limits.stop);
}

}  // namespace

Reference reference_answer(const blendpp::Model& model, blendpp::Fusion& fusion,
                           const AnswerLimits& limits) {
  Reference reference;
  reference.answer = generate(model, fusion, {}, limits, [&](blendpp::Span<const float> logits) {
    const int32_t first = likeliest(logits), second = likeliest_but(logits, first);
    reference.likeliest.push_back(first);
    reference.second.push_back(second);
    reference.lead.push_back(double{logits[static_cast<size_t>(first)]} - double{logits[second]});
    if (reference.logits.size() < kKlPlaces) {
      reference.logits.emplace_back(logits.begin(), logits.end());
    }
  });
  return reference;
}

Led led_answer(const blendpp::Model& model, blendpp::Fusion& fusion, const Reference& reference,
               const AnswerLimits& limits) {
  Led led;
  const size_t n = reference.likeliest.size();
  std::optional<blendpp::Fusion> own;  // from where it leaves the reference's answer
  led.n_common = n;
  for (size_t i = 0; i < n; ++i) {
    throw_if_interrupted();
    const auto logits = fusion.logits();
    if (i < reference.logits.size()) {
      Logits copy(logits.begin(), logits.end());
      led.kl.push_back(kl_divergence(reference.logits[i], copy));
      if (i == 0) led.first = std::move(copy);
    }
    const int32_t preferred = likeliest(logits);
    const bool agrees = preferred == reference.likeliest[i];
    led.n_agree += agrees ? 1 : 0;
    if (i == 0) led.first_agrees = agrees;
    if (!agrees && !own) {
      own.emplace(fusion.fork());
      led.n_common = i;
      led.took_second = preferred == reference.second[i];
    }
    if (i + 1 < n) fusion.decode({reference.likeliest[i]}, interrupt_token());
  }
  led.answer =
      own ? generate(model, *own,
                     {reference.likeliest.begin(),
                      reference.likeliest.begin() + static_cast<std::ptrdiff_t>(led.n_common)},
                     limits, [](blendpp::Span<const float>) {})
          : reference.answer;
  return led;
}

std::string answer_of(const std::string& text, const std::string& stop) {
  constexpr const char* kBlank = " \t\r\n";
  std::string answer = stop.empty() ? text : text.substr(0, text.find(stop));
  const size_t first = answer.find_first_not_of(kBlank);
  if (first == std::string::npos) return {};
  return answer.substr(first, answer.find_last_not_of(kBlank) - first + 1);
}

}  // namespace blend_cli
