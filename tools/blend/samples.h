// Samples: the prompts that `blend calibrate` and `blend verify` measure with, from a set of
// questions or from plain documents.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "question.h"

namespace blend_cli {

struct SampleOptions {
  std::string data;               // questions, as `blend eval` reads them
  std::vector<std::string> docs;  // or documents
  size_t skip = 0;
  size_t limit = 0;
  PromptForm form;
  size_t chunk_tokens = 128;
  size_t chunks_per_sample = 4;
};
void add_sample_options(CLI::App& app, SampleOptions& options);

struct Samples {
  std::vector<blendpp::Prompt> prompts;
  size_t n_too_long = 0;  // left out: they outgrow the model's context
  std::string source;     // the path, for titles
};
// Cuts documents into chunks; every `chunks_per_sample` of a document become a sample, and the
// eight tokens that follow them are the question. Throws CommandError when nothing is left.
Samples read_samples(const blendpp::Model& model, const SampleOptions& options,
                     uint32_t score_tokens);

}  // namespace blend_cli
