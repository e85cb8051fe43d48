// What it is worth that K is stored without position: a text longer than the window is read to its
// end, the oldest half dropped whenever the window is full, in three ways:
//
//   recomputed      what is left is prefilled
//   turned          what is left keeps its V, and K rotated to its new position (AttentionStore
//                   3.4)
//   as it was       what is left keeps K with the positions baked in, as a cache that was stored
//                   after RoPE would have it, while new rows follow it
//
// Perplexity over every token after a document's first truncation. `blend perplexity` measures the
// first two on any model; the third is nothing a library should offer.
//
//   bench_truncation --model stories260K.gguf --window 256 stories.txt
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "engine/sequence.h"

namespace {

using blend::Sequence;
using blend::bench::must;
using nlohmann::json;
using Tokens = std::vector<int32_t>;

struct Settings {
  std::string model;
  std::vector<std::string> docs;
  uint32_t window = 256;
  double drop = 0.5;
  uint32_t threads = 0;
  std::string json_path;
};

enum class Way { anew, turned, as_it_was };
constexpr const char* kNames[] = {"recomputed", "turned", "as it was"};

struct Cut {
  uint32_t keep = 0, drop = 0;
};

// The rows that are left, in a sequence of its own; the last of them is computed again.
std::unique_ptr<Sequence> moved(const Sequence& from, Cut cut, Way way) {
  auto to = must(Sequence::create(from.shared_model(), from.capacity()));
  blend::Backend& b = from.model().backend();
  const uint32_t tail = from.n_rows() - cut.keep - cut.drop - 1;
  const int32_t turn = way == Way::turned ? -static_cast<int32_t>(cut.drop) : 0;
  for (uint32_t layer = 0; layer < from.model().config().n_layers; ++layer) {
    auto& cache = const_cast<Sequence&>(from).cache();
    must(b.move_rows(cache, to->cache(), to->ropes().keys(layer),
                     {layer, 0, layer, 0, cut.keep, 0}));
    must(b.move_rows(cache, to->cache(), to->ropes().keys(layer),
                     {layer, cut.keep + cut.drop, layer, cut.keep, tail, turn}));
  }
  Tokens left(from.tokens().begin(), from.tokens().begin() + cut.keep);
  left.insert(left.end(), from.tokens().begin() + cut.keep + cut.drop, from.tokens().end());
  const int32_t last = left.back();
  left.pop_back();
  to->set_filled(left, {});
  must(to->append(std::span(&last, 1), {}));
  return to;
}

std::unique_ptr<Sequence> computed(const Sequence& from, Cut cut) {
  auto to = must(Sequence::create(from.shared_model(), from.capacity()));
  Tokens left(from.tokens().begin(), from.tokens().begin() + cut.keep);
  left.insert(left.end(), from.tokens().begin() + cut.keep + cut.drop, from.tokens().end());
  must(to->append(left, {}));
  return to;
}

double negative_log_likelihood(const std::vector<float>& logits, int32_t token) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l - top));
  return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)] - top);
}

// Sum over the tokens after the first truncation, and how many these are.
std::pair<double, size_t> read(const std::shared_ptr<const blend::Model>& model,
                               const Tokens& tokens, uint32_t window, Cut cut, Way way) {
  double sum = 0;
  size_t n = 0;
  if (tokens.size() <= window) return {sum, n};
  auto sequence = must(Sequence::create(model, window));
  must(sequence->append(std::span(tokens).first(window), {}));
  for (size_t next = window; next < tokens.size(); ++next) {
    if (sequence->n_rows() == window) {
      sequence = way == Way::anew ? computed(*sequence, cut) : moved(*sequence, cut, way);
    }
    sum += negative_log_likelihood(sequence->logits(), tokens[next]);
    ++n;
    must(sequence->append(std::span(tokens).subspan(next, 1), {}));
  }
  return {sum, n};
}

std::vector<std::string> read_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files, texts;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) files.push_back(path);
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        files.push_back(entry.path().string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + file);
    texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return texts;
}

int run(const Settings& s) {
  auto runtime = must(blend::Runtime::create(s.threads, {}));
  const auto model = must(blend::Model::load(std::move(runtime), s.model, {}, {}));
  const int32_t bos = model->tokenizer().bos();
  std::vector<Tokens> documents;
  for (const std::string& text : read_files(s.docs)) {
    Tokens tokens = must(model->tokenizer().encode(text, 0));
    if (bos >= 0) tokens.insert(tokens.begin(), bos);
    documents.push_back(std::move(tokens));
  }
  const Cut cut{bos >= 0 ? 1u : 0u, static_cast<uint32_t>(std::lround(s.drop * s.window))};
  if (s.window > model->context_length() || cut.drop == 0 || cut.keep + cut.drop >= s.window) {
    throw std::runtime_error("the window must fit the model's context, and some of it must go");
  }
  std::printf("window %u, %u rows dropped behind the first %u\n%-14s %12s %12s %12s\n", s.window,
              cut.drop, cut.keep, "rows left", "perplexity", "difference", "tokens");
  json rows = json::array();
  double reference = 0;
  for (const Way way : {Way::anew, Way::turned, Way::as_it_was}) {
    double sum = 0;
    size_t n = 0;
    for (const Tokens& tokens : documents) {
      const auto [more, count] = read(model, tokens, s.window, cut, way);
      sum += more;
      n += count;
    }
    if (n == 0) throw std::runtime_error("no document is longer than the window");
    const double perplexity = std::exp(sum / static_cast<double>(n));
    if (way == Way::anew) reference = perplexity;
    const char* const name = kNames[static_cast<size_t>(way)];
    std::printf("%-14s %12.4f %+12.4f %12zu\n", name, perplexity, perplexity - reference, n);
    rows.push_back({{"way", name}, {"perplexity", perplexity}, {"tokens", n}});
  }
  blend::bench::write_json(s.json_path, {{"bench", "truncation"},
                                         {"window", s.window},
                                         {"drop", cut.drop},
                                         {"keep", cut.keep},
                                         {"documents", documents.size()},
                                         {"rows", rows}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Perplexity after truncations: recomputed, turned, and with positions baked in."};
  app.add_option("--model", s.model)->required();
  app.add_option("--window", s.window)->capture_default_str();
  app.add_option("--drop", s.drop, "share of the window")->capture_default_str();
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--json", s.json_path, "also write the figures there");
  app.add_option("docs", s.docs, "texts: files or directories")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_truncation: %s\n", e.what());
    return 1;
  }
}
