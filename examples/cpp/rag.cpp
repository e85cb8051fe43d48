// rag.cpp - retrieval-augmented generation: documents in, an answer out, and what fusing saved.
//
//   rag [--docs FOLDER] [--question TEXT] [--model MODEL.gguf] [--store DIR] ...
//
// The table compares three ways to the first token of the same prompt: full prefill, the stored
// caches as they are, and those with the rows of highest KV deviation recomputed. Agreement is the
// share of full prefill's answer tokens that are also the likeliest there; KL is of the
// distributions at those tokens, in nats.
#include <cstdio>

#include "retrieval.h"

#ifndef EXAMPLES
#define EXAMPLES "examples"
#endif

namespace {

using example::Chunk;

using Distribution = std::vector<double>;  // log probabilities, [n_vocab]

Distribution log_softmax(blendpp::Span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  Distribution logs;
  for (const float logit : logits) logs.push_back(logit - top - std::log(sum));
  return logs;
}

size_t likeliest(const Distribution& logs) {
  return static_cast<size_t>(std::max_element(logs.begin(), logs.end()) - logs.begin());
}

// The distribution before each of the tokens, which are decoded.
std::vector<Distribution> follow(blendpp::Fusion& fusion, const blendpp::Tokens& tokens) {
  std::vector<Distribution> rows;
  for (const int32_t token : tokens) {
    rows.push_back(log_softmax(fusion.logits()));
    fusion.decode({token});
  }
  return rows;
}

blendpp::Tokens generate(blendpp::Fusion& fusion, uint32_t max_tokens, bool print) {
  blendpp::Tokens tokens;
  blendpp::GenerateOptions options;
  options.max_tokens = max_tokens;
  fusion.generate(options, [&](int32_t token, std::string_view text) {
    tokens.push_back(token);
    if (print) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    }
    return true;
  });
  return tokens;
}

void compare(const blendpp::Model& model, const blendpp::Store& store,
             const blendpp::Prompt& prompt, double ratio, uint32_t max_tokens) {
  blendpp::Tokens answer;  // of full prefill
  std::vector<Distribution> reference;
  std::printf("%-8s %8s %11s %10s %8s  answer\n", "policy", "TTFT ms", "recomputed", "agreement",
              "KL");
  const std::vector<std::pair<const char*, uint32_t>> policies = {
      {"full", BLEND_POLICY_FULL}, {"reuse", BLEND_POLICY_REUSE}, {"hkvd", BLEND_POLICY_HKVD}};
  for (const auto& [name, policy] : policies) {
    blendpp::FuseOptions options;
    options.policy = policy;
    options.ratio = ratio;
    options.reserve_tokens = max_tokens;
    std::vector<uint64_t> times;
    for (int i = 0; i < 3; ++i) {
      times.push_back(blendpp::Fusion(model, &store, prompt, options).info().ttft_ns);
    }
    std::sort(times.begin(), times.end());
    blendpp::Fusion fusion(model, &store, prompt, options);
    const uint64_t selected = fusion.info().n_rows_selected;
    const blendpp::Tokens tokens = generate(fusion, max_tokens, false);
    if (answer.empty()) answer = tokens.empty() ? blendpp::Tokens{model.info().eos_token} : tokens;
    blendpp::Fusion again(model, &store, prompt, options);
    const std::vector<Distribution> rows = follow(again, answer);
    if (reference.empty()) reference = rows;
    double agreement = 0;
    double kl = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      agreement += likeliest(rows[i]) == likeliest(reference[i]);
      for (size_t j = 0; j < rows[i].size(); ++j) {
        kl += std::exp(reference[i][j]) * (reference[i][j] - rows[i][j]);
      }
    }
    const auto n = static_cast<double>(rows.size());
    std::printf("%-8s %8.2f %11llu %9.0f%% %8.4f  %s\n", name, static_cast<double>(times[1]) / 1e6,
                static_cast<unsigned long long>(selected), 100 * agreement / n, kl / n,
                example::stripped(model.detokenize(tokens)).c_str());
  }
}

void run(std::map<std::string, std::string>& options) {
  const example::TemporaryFolder folder;
  const blendpp::Context ctx;
  const blendpp::Model model(ctx, options["--model"]);
  const std::string& kept = options["--store"];
  const blendpp::Store store(ctx, kept.empty() ? folder.path() : kept);
  const auto max_tokens = static_cast<uint32_t>(std::stoul(options["--max-tokens"]));
  const double ratio = std::stod(options["--ratio"]);
  std::string question = options["--question"];
  if (question.empty())
    question = example::stripped(example::read_file(EXAMPLES "/data/question.txt"));

  const auto documents = example::read_documents(options["--docs"]);
  if (documents.empty()) throw std::runtime_error("no .txt or .md files in " + options["--docs"]);
  std::vector<Chunk> chunks;
  for (const auto& document : documents) {
    for (Chunk& chunk :
         example::chunks_of(model, document, std::stoul(options["--chunk-tokens"]))) {
      chunks.push_back(std::move(chunk));
    }
  }
  const size_t stored = example::store_chunks(model, store, chunks);
  example::Bm25 index;
  for (Chunk& chunk : chunks) index.add(std::move(chunk));
  std::printf("%zu documents, %zu chunks, %zu stored now\n", documents.size(), index.size(),
              stored);

  const auto found = index.best(question, std::stoul(options["--top"]));
  std::printf("found in");
  for (const Chunk& chunk : found) std::printf(" %s", chunk.document.c_str());
  std::printf("\n\n%s\n", question.c_str());

  const blendpp::Prompt prompt = example::prompt_of(model, found, question);
  blendpp::FuseOptions fuse;
  fuse.ratio = ratio;
  fuse.reserve_tokens = max_tokens;
  blendpp::Fusion fusion(model, &store, prompt, fuse);
  generate(fusion, max_tokens, true);
  const blendpp::FusionInfo info = fusion.info();
  std::printf("\n\n%llu rows, %llu of them from the store\n\n",
              static_cast<unsigned long long>(info.n_rows),
              static_cast<unsigned long long>(info.n_rows_reused));
  compare(model, store, prompt, ratio, max_tokens);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--model", EXAMPLES "/models/blend-qa.gguf"},
      {"--docs", EXAMPLES "/data/documents"},
      {"--question", ""},
      {"--store", ""},  // kept between runs; a temporary folder without it
      {"--chunk-tokens", "96"},
      {"--top", "6"},
      {"--ratio", "0.15"},
      {"--max-tokens", "32"},
  };
  try {
    example::parse_options(argc, argv, options);
    run(options);
    return 0;
  } catch (const blendpp::Error& error) {
    std::fprintf(stderr, "%s (%s)\n", error.what(), error.name());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
