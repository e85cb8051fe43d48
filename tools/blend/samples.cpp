#include "samples.h"

#include <algorithm>

#include "command.h"
#include "corpus.h"
#include "dataset.h"
#include "table.h"

namespace blend_cli {
namespace {

// Tokens of the text after a sample's chunks: enough that the model goes on with it.
constexpr size_t kContinuation = 8;

void add_questions(const blendpp::Model& model, const SampleOptions& options,
                   std::vector<blendpp::Prompt>& out) {
  const size_t last = options.limit == 0 ? 0 : options.skip + options.limit;
  const std::vector<Record> records = read_dataset(options.data, last);
  for (size_t i = options.skip; i < records.size(); ++i) {
    out.push_back(make_question(model, records[i], options.form).prompt);
  }
}

// The question of such a sample: the next few tokens of the document.
blendpp::Tokens continuation(const Chunk& next) {
  const size_t n = std::min(kContinuation, next.tokens.size());
  return {next.tokens.begin(), next.tokens.begin() + static_cast<std::ptrdiff_t>(n)};
}

void add_documents(const blendpp::Model& model, const Corpus& corpus, const SampleOptions& options,
                   std::vector<blendpp::Prompt>& out) {
  const std::vector<Chunk>& chunks = corpus.chunks;
  const size_t n = options.chunks_per_sample;
  size_t found = 0;
  for (size_t i = 0; i + n < chunks.size();) {
    if (chunks[i].document != chunks[i + n].document) {
      ++i;
      continue;
    }
    if (found++ >= options.skip && (options.limit == 0 || out.size() < options.limit)) {
      const blendpp::Tokens asked = continuation(chunks[i + n]);
      if (options.form.chat.wanted) {
        std::vector<std::string> documents;
        for (size_t k = i; k < i + n; ++k) documents.emplace_back(chunks[k].text);
        out.push_back(chat_prompt(model, options.form.chat, options.form.system, documents,
                                  model.detokenize(asked)));
      } else {
        blendpp::Prompt prompt;
        if (!corpus.prefix.empty()) prompt.prefix(corpus.prefix);
        for (size_t k = i; k < i + n; ++k) prompt.chunk(chunks[k].tokens);
        prompt.question(asked);
        out.push_back(std::move(prompt));
      }
    }
    i += n;
  }
}

}  // namespace

void add_sample_options(CLI::App& app, SampleOptions& options) {
  CLI::Option* data =
      app.add_option("--data", options.data, "Sample questions, in the shapes that eval reads")
          ->type_name("FILE");
  app.add_option(
         "--docs", options.docs,
         "Or documents: their chunks are the samples, the text that follows is the question")
      ->excludes(data)
      ->type_name("PATH ...");
  app.add_option("--skip", options.skip, "Leave out the first N samples")->type_name("N");
  app.add_option("--limit", options.limit, "Take N samples at most; 0: all")->type_name("N");
  add_prompt_form(app, options.form);
  app.add_option("--chunk-tokens", options.chunk_tokens, "Maximum tokens of a chunk of --docs")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--chunks-per-sample", options.chunks_per_sample, "Of --docs")
      ->check(CLI::Range(2, 1 << 16))
      ->type_name("N")
      ->capture_default_str();
}

Samples read_samples(const blendpp::Model& model, const SampleOptions& options,
                     uint32_t score_tokens) {
  if (options.data.empty() && options.docs.empty()) {
    throw CommandError(kExitUsage, "give sample prompts: --data FILE or --docs PATH");
  }
  CorpusOptions corpus_options;
  corpus_options.docs = options.docs;
  corpus_options.chunk_tokens = options.chunk_tokens;
  corpus_options.system = options.form.system;
  const Corpus corpus = make_corpus(model, corpus_options, options.form.special);
  Samples samples;
  if (options.docs.empty()) {
    samples.source = options.data;
    add_questions(model, options, samples.prompts);
  } else {
    samples.source = options.docs.front();
    add_documents(model, corpus, options, samples.prompts);
  }
  const size_t limit = model.info().context_length;
  const auto too_long = [&](const blendpp::Prompt& prompt) {
    return prompt.n_tokens() + score_tokens > limit;
  };
  const auto end = std::remove_if(samples.prompts.begin(), samples.prompts.end(), too_long);
  samples.n_too_long = static_cast<size_t>(samples.prompts.end() - end);
  samples.prompts.erase(end, samples.prompts.end());
  if (samples.prompts.empty()) {
    throw CommandError(kExitNotFound, format("no sample prompt in '%s'%s", samples.source.c_str(),
                                             samples.n_too_long > 0
                                                 ? " that fits the model's context"
                                                 : ": give more questions or longer documents"));
  }
  return samples;
}

}  // namespace blend_cli
