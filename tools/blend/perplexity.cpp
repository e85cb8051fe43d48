// blend perplexity: what truncation costs. A text longer than the window is read to its end, the
// oldest rows dropped whenever the window is full; the remaining rows are moved to their new
// positions (blend_fusion_erase), or recomputed, and the two are compared token by token.
#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "documents.h"
#include "interrupt.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

struct PerplexityOptions {
  CommonOptions common;
  ModelChoice model;
  std::vector<std::string> docs;
  uint32_t window = 0;  // 0: the model's context
  double drop = 0.5;
  int64_t keep = -1;  // -1: BOS, where the model wants one
};

struct Window {
  size_t rows = 0, drop = 0, keep = 0;
};

// What one way of truncating made of all documents.
struct Score {
  std::vector<double> nll;  // of every token after a document's first truncation, in nats
  uint64_t n_truncations = 0;
  uint64_t truncate_ns = 0;

  double mean() const {
    double sum = 0;
    for (const double x : nll) sum += x;
    return sum / static_cast<double>(nll.size());
  }
  double perplexity() const { return std::exp(mean()); }
};

double negative_log_likelihood(blendpp::Span<const float> logits, int32_t token) {
  double top = static_cast<double>(logits[0]);
  for (const float l : logits) top = std::max(top, static_cast<double>(l));
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - top);
  return top + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

blendpp::Fusion prefill(const blendpp::Model& model, blendpp::Tokens tokens, size_t window) {
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_FULL;
  options.reserve_tokens = static_cast<uint32_t>(window - tokens.size());
  options.cancel = interrupt_token();
  return blendpp::Fusion(model, nullptr, blendpp::Prompt().text(std::move(tokens)), options);
}

void read_document(const blendpp::Model& model, const blendpp::Tokens& tokens, const Window& window,
                   bool turn, Score& score) {
  const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(window.rows);
  blendpp::Fusion fusion = prefill(model, blendpp::Tokens(tokens.begin(), at), window.rows);
  for (auto next = at; next != tokens.end(); ++next) {
    if (fusion.tokens().size() == window.rows) {
      const auto begin = std::chrono::steady_clock::now();
      if (turn) {
        fusion.erase(window.keep, window.drop, interrupt_token());
      } else {
        blendpp::Tokens left(fusion.tokens().begin(), fusion.tokens().end());
        const auto first = left.begin() + static_cast<std::ptrdiff_t>(window.keep);
        left.erase(first, first + static_cast<std::ptrdiff_t>(window.drop));
        fusion = prefill(model, std::move(left), window.rows);
      }
      const auto took = std::chrono::steady_clock::now() - begin;
      score.truncate_ns +=
          static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
      ++score.n_truncations;
    }
    score.nll.push_back(negative_log_likelihood(fusion.logits(), *next));
    fusion.decode({*next}, interrupt_token());
  }
}

Window window_of(const PerplexityOptions& options, const blendpp::ModelInfo& info) {
  Window w;
  w.rows = options.window == 0 ? info.context_length : options.window;
  if (w.rows > info.context_length) {
    throw CommandError(kExitUsage, format("--window %zu is more than the model's context of %u",
                                          w.rows, info.context_length));
  }
  w.keep = options.keep >= 0 ? static_cast<size_t>(options.keep) : info.add_bos != 0 ? 1 : 0;
  w.drop = static_cast<size_t>(std::lround(options.drop * static_cast<double>(w.rows)));
  if (w.drop == 0 || w.keep + w.drop >= w.rows) {
    throw CommandError(
        kExitUsage, format("of a window of %zu rows, %zu kept in front and %zu dropped, at least "
                           "one must go and one be left",
                           w.rows, w.keep, w.drop));
  }
  return w;
}

void print_table(const Window& window, size_t n_documents, size_t n_short, const Score& recomputed,
                 const Score& rotated) {
  std::cout << format(
      "%zu documents, %zu too short for a window of %zu rows; %zu rows dropped "
      "after the first %zu\n%zu tokens after a truncation, %llu truncations\n\n",
      n_documents, n_short, window.rows, window.drop, window.keep, recomputed.nll.size(),
      static_cast<unsigned long long>(recomputed.n_truncations));
  Table table({"rows that are left", "perplexity", "difference", "nats/token", "ms/truncation"});
  for (const auto& [name, score] : {std::pair{"recomputed", &recomputed}, {"rotated", &rotated}}) {
    const double ms = static_cast<double>(score->truncate_ns) / 1e6;
    table.add({name, format("%.4f", score->perplexity()),
               format("%+.4f", score->perplexity() - recomputed.perplexity()),
               format("%.5f", score->mean()),
               format("%.2f", ms / static_cast<double>(score->n_truncations))});
  }
  std::cout << table.str();
}

nlohmann::json score_json(const Score& score) {
  return {{"perplexity", score.perplexity()},
          {"nll", score.mean()},
          {"truncate_ns", score.truncate_ns},
          {"n_truncations", score.n_truncations}};
}

void run(const PerplexityOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const std::vector<Document> documents = read_documents(options.docs);
  const blendpp::Model model = open_model(ctx, options.model);
  const Window window = window_of(options, model.info());
  Score recomputed, rotated;
  size_t n_short = 0;
  ProgressBar bar("Reading", ProgressBar::Elsewhere::lines);
  for (size_t i = 0; i < documents.size(); ++i) {
    bar.update(i, documents.size());
    const blendpp::Tokens tokens = model.tokenize(documents[i].text, BLEND_TOKENIZE_BOS);
    if (tokens.size() <= window.rows) {
      ++n_short;
      continue;
    }
    read_document(model, tokens, window, false, recomputed);
    read_document(model, tokens, window, true, rotated);
  }
  if (recomputed.nll.empty()) {
    throw CommandError(
        kExitNotFound,
        format("no document has more tokens than the window of %zu rows: give longer "
               "ones or a smaller --window",
               window.rows));
  }
  if (options.common.json) {
    const nlohmann::json out = {{"window", window.rows},
                                {"drop", window.drop},
                                {"keep", window.keep},
                                {"n_documents", documents.size() - n_short},
                                {"n_short", n_short},
                                {"n_tokens", recomputed.nll.size()},
                                {"recomputed", score_json(recomputed)},
                                {"rotated", score_json(rotated)},
                                {"difference", rotated.perplexity() - recomputed.perplexity()}};
    std::cout << out.dump(2) << '\n';
    return;
  }
  print_table(window, documents.size() - n_short, n_short, recomputed, rotated);
}

}  // namespace

void register_perplexity(CLI::App& app) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* command = app.add_subcommand(
      "perplexity", "Perplexity after truncation: dropping the oldest rows, against recomputing");
  add_model(*command, options->model);
  command->add_option("--docs", options->docs, "Texts: files, or directories of .txt and .md")
      ->required()
      ->type_name("PATH");
  command->add_option("--window", options->window,
                      "Rows at which the oldest are dropped; 0 = the model's context");
  command->add_option("--drop", options->drop, "Share of the window that is dropped at once")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--keep", options->keep,
                   "First rows that are never dropped; -1 = BOS, if the model wants one")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 31))
      ->capture_default_str();
  add_common_options(*command, options->common);
  command->footer("Example:\n  blend perplexity --model model.gguf --docs ./texts --window 256");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
