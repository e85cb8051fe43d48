// What the parts of bench_real share: the model and its text, prompts, medians.
#pragma once

#include <blend/blend.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace blend::bench {

// Chunks of one length and a question.
struct PromptShape {
  size_t n_chunks = 0;
  size_t chunk_tokens = 0;

  size_t n_rows() const { return n_chunks * chunk_tokens; }
  std::string name() const {
    return std::to_string(n_chunks) + " x " + std::to_string(chunk_tokens);
  }
};

// Ordinary text of the model's vocabulary, as long as is asked for.
class Text {
 public:
  // files: questions as `blend eval` reads them; their passages are the text.
  Text(const blendpp::Model& model, const std::vector<std::string>& files);

  // Chunk `i` of a prompt; chunks of other numbers or lengths are other text.
  blendpp::Tokens chunk(size_t i, size_t n_tokens) const;
  const blendpp::Tokens& question() const { return question_; }

 private:
  std::vector<blendpp::Tokens> passages_;
  blendpp::Tokens question_;
};

struct RealBed {
  blendpp::Context ctx;
  blendpp::Model model;
  Text text;
  uint32_t n_threads = 0;  // 0: all CPUs of the process
  int repeat = 0;
  double min_seconds = 0;  // what is short is repeated until it has taken this

  blendpp::Tokens head() const;  // what stands before the chunks
  blendpp::Prompt prompt(const PromptShape& shape) const;
  // Chunks as `blend precompute` stores them. n_contexts, flags: as in blend_corpus_options.
  void precompute(const blendpp::Store& store, const PromptShape& shape, uint32_t n_contexts = 0,
                  uint32_t flags = 0) const;
};

// Medians of the reports of fuses, in milliseconds.
struct FuseTimes {
  std::vector<blendpp::FusionReport> reports;

  double ms(uint64_t blend_fusion_report::*field) const;
  double ttft_ms() const { return ms(&blend_fusion_report::ttft_ns); }
  const blendpp::FusionReport& last() const { return reports.back(); }
};

}  // namespace blend::bench
