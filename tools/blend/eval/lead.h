// Lead: a prompt's greedy answer, and how another fuse of the same prompt does when it is decoded
// along that answer, token by token, so that their next-token distributions are compared in pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

using Logits = std::vector<float>;

struct AnswerLimits {
  uint32_t max_tokens = 32;
  std::string stop;  // the answer ends before it; "": at the end of a turn or max_tokens
};

// KL is measured in the first positions of an answer.
inline constexpr size_t kKlPlaces = 8;

// Full prefill's answer: the logits of each position, also of the token that ended it.
struct Reference {
  std::vector<Logits> logits;      // of the first kKlPlaces
  std::vector<int32_t> likeliest;  // of every position; at least one
  // Of every position: the second likeliest token, and how far ahead of it the likeliest is: the
  // difference of their logits, which is that of their log-probabilities, in nats.
  std::vector<int32_t> second;
  std::vector<double> lead;
  std::string answer;
};
// Generates from `fusion`, which has only been fused.
Reference reference_answer(const blendpp::Model& model, blendpp::Fusion& fusion,
                           const AnswerLimits& limits);

// Another fuse of the prompt, decoded along it.
struct Led {
  std::vector<double> kl;  // KL(reference || this) in nats, in the first kKlPlaces
  size_t n_agree = 0;      // positions whose likeliest token is the reference's
  bool first_agrees = false;
  size_t n_common = 0;       // positions before the first that does not agree; all of them if none
  bool took_second = false;  // there its likeliest token is the reference's second
  Logits first;              // of the first position
  std::string answer;        // its own, greedy
};
Led led_answer(const blendpp::Model& model, blendpp::Fusion& fusion, const Reference& reference,
               const AnswerLimits& limits);

// A generated text up to the stop string, without blanks around it.
std::string answer_of(const std::string& text, const std::string& stop);

}  // namespace blend_cli
