// What a model answers by schemas, for schemas_test.py to judge.
//
//   schema_answers MODEL ANSWERS MOST_TOKENS DRAFTS QUESTION FIRST < SCHEMAS
//
// A schema a line in; a line of JSON out for each: {"error": CODE, "message": ...}, or {"answers":
// [[text, whether it is complete], ...]}. Half of the answers are generated together. Temperature
// 1; with one answer greedy. FIRST is the number of the first schema: seeds are by number.
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "blend/blend.hpp"

namespace {

struct Asked {
  size_t n_answers = 1;
  uint32_t most_tokens = 100;
  uint32_t drafts = 0;
};

nlohmann::json answers_of(blendpp::Fusion& question, const blendpp::Grammar& grammar,
                          const Asked& asked, uint64_t seed) {
  blendpp::GenerateOptions options;
  options.max_tokens = asked.most_tokens;
  options.temperature = asked.n_answers > 1 ? 1.0f : 0.0f;
  options.grammar = grammar.get();
  options.draft_tokens = asked.drafts;
  std::vector<std::string> texts(asked.n_answers);
  std::vector<bool> complete(asked.n_answers);
  const auto into = [&](size_t i) {
    return [&texts, i](int32_t, std::string_view text) {
      texts[i] += text;
      return true;
    };
  };
  std::vector<blendpp::Fusion> forks;
  for (size_t i = 0; i < asked.n_answers; ++i) forks.push_back(question.fork());
  std::vector<blendpp::Fusion::Request> together;
  const size_t alone = asked.n_answers / 2;
  for (size_t i = 0; i < asked.n_answers; ++i) {
    options.seed = seed + i;
    if (i < alone) {
      complete[i] = forks[i].generate(options, into(i)).by_stop_token;
    } else {
      together.push_back({&forks[i], options, into(i)});
    }
  }
  const auto outcomes = blendpp::Fusion::generate_batch(together);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].error) throw blendpp::Error(*outcomes[i].error);
    complete[alone + i] = outcomes[i].generated.by_stop_token;
  }
  nlohmann::json out = nlohmann::json::array();
  for (size_t i = 0; i < asked.n_answers; ++i) out.push_back({texts[i], complete[i]});
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  Asked asked;
  asked.n_answers = std::strtoul(argv[2], nullptr, 10);
  asked.most_tokens = static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10));
  asked.drafts = static_cast<uint32_t>(std::strtoul(argv[4], nullptr, 10));
  try {
    const blendpp::Context ctx;
    const blendpp::Model model(ctx, argv[1]);
    blendpp::Prompt prompt;
    prompt.question(model.tokenize(argv[5], BLEND_TOKENIZE_BOS | BLEND_TOKENIZE_SPECIAL));
    blendpp::FuseOptions fuse;
    fuse.policy = BLEND_POLICY_FULL;
    fuse.reserve_tokens = asked.most_tokens;
    blendpp::Fusion question(model, nullptr, prompt, fuse);
    std::string schema;
    for (uint64_t line = std::strtoull(argv[6], nullptr, 10); std::getline(std::cin, schema);
         ++line) {
      nlohmann::json out;
      try {
        const blendpp::Grammar grammar(model, BLEND_GRAMMAR_JSON_SCHEMA, schema);
        out["answers"] = answers_of(question, grammar, asked, line * 1000);
      } catch (const blendpp::Error& error) {
        out = {{"error", error.code()}, {"message", error.what()}};
      }
      std::cout << out.dump() << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
