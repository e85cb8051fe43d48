// Compare: the same prompt by full prefill, by full reuse and by the asked policy.
//
// Full prefill is the reference. Each policy answers greedily, and also decodes along the
// reference's answer, token by token, so that the two next-token distributions are compared at the
// same position: KL(full || policy) in nats, and whether both would take the same token.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

struct Comparison {
  struct Row {
    std::string policy;
    uint64_t ttft_ns = 0;
    double speedup = 0;   // full prefill's TTFT / this one's
    double kl_first = 0;  // at the first answer token
    double kl_mean = 0;   // over the reference's answer
    size_t n_agree = 0;   // positions where the same token is the likeliest
    size_t n_places = 0;
    std::string answer;
    bool same_answer = false;
  };
  std::vector<Row> rows;  // full, reuse, the asked policy
};

// `options` as they were for the asked policy; the chunks must be in the store already.
Comparison compare(const blendpp::Model& model, const blendpp::Store& store,
                   const blendpp::Prompt& prompt, const blendpp::FuseOptions& options,
                   size_t max_tokens);

// KL(p || q) in nats of the distributions that two rows of logits stand for.
double kl_divergence(const std::vector<float>& p_logits, const std::vector<float>& q_logits);

std::string comparison_text(const Comparison& comparison);
nlohmann::json comparison_json(const Comparison& comparison);

}  // namespace blend_cli
