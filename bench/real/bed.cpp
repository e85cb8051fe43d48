#include "bench/real/bed.h"

#include <stdexcept>

#include "bench/measure.h"
#include "bench/questions.h"
#include "support/random_model.h"

namespace blend::bench {

Text::Text(const blendpp::Model& model, const std::vector<std::string>& files) {
  std::set<std::string> seen;
  for (const Question& question : read_questions(files)) {
    if (question_.empty()) {
      question_ = model.tokenize("\nQuestion: " + question.text + "\nAnswer:");
    }
    for (const std::string& passage : question.chunks) {
      if (seen.insert(passage).second) passages_.push_back(model.tokenize(passage));
    }
  }
  if (passages_.empty()) throw std::runtime_error("--text: there is no passage in these files");
}

blendpp::Tokens Text::chunk(size_t i, size_t n_tokens) const {
  test::SplitMix random(1 + i * 1000003 + n_tokens);
  blendpp::Tokens out;
  while (out.size() < n_tokens) {
    const blendpp::Tokens& passage = passages_[random.below(passages_.size())];
    out.insert(out.end(), passage.begin(), passage.end());
  }
  out.resize(n_tokens);
  return out;
}

blendpp::Tokens RealBed::head() const {
  return model.tokenize("Answer the question from the passages.\n", BLEND_TOKENIZE_BOS);
}

blendpp::Prompt RealBed::prompt(const PromptShape& shape) const {
  blendpp::Prompt out;
  out.prefix(head());
  for (size_t i = 0; i < shape.n_chunks; ++i) out.chunk(text.chunk(i, shape.chunk_tokens));
  out.question(text.question());
  return out;
}

void RealBed::precompute(const blendpp::Store& store, const PromptShape& shape, uint32_t n_contexts,
                         uint32_t flags) const {
  std::vector<blendpp::CorpusChunk> chunks(shape.n_chunks);
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i].tokens = text.chunk(i, shape.chunk_tokens);
  const blendpp::Tokens first = head();
  blendpp::CorpusOptions options;
  options.chunk_prefix = first.data();
  options.n_chunk_prefix = first.size();
  options.n_contexts = n_contexts;
  options.flags = flags;
  model.precompute_corpus(store, chunks, options);
  store.flush();
}

double FuseTimes::ms(uint64_t blend_fusion_report::*field) const {
  std::vector<double> v;
  for (const blendpp::FusionReport& report : reports) {
    v.push_back(static_cast<double>(report.*field) * 1e-6);
  }
  return median(std::move(v));
}

}  // namespace blend::bench
