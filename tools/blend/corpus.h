// Corpus: the documents of a command as chunks, and how those chunks are keyed. precompute and ask
// share it, so that what the one stores is what the other looks up.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "chunker.h"
#include "documents.h"

namespace blend_cli {

struct CorpusOptions {
  std::vector<std::string> docs;
  size_t chunk_tokens = 256;
  std::string chunk_prefix = "none";
  std::string profile;  // what blend calibrate wrote; then the chunk prefix is the profile's
  std::string system;
  std::string tenant;
};
void add_corpus_options(CLI::App& app, CorpusOptions& options, bool docs_required);

struct Corpus {
  std::vector<Document> documents;
  std::vector<Chunk> chunks;
  blendpp::Tokens prefix;        // BOS and the system text: the PREFIX segment; may be empty
  blendpp::Tokens chunk_prefix;  // what chunks are prefilled after
  std::shared_ptr<const blendpp::Profile> profile;  // null: none was given
};
// The ids that a chunk is prefilled after, from "none", "bos" or "text:...". Throws CommandError
// (usage) for the BOS of a model that has none.
blendpp::Tokens chunk_prefix_tokens(const blendpp::Model& model, const std::string& spec);
Corpus make_corpus(const blendpp::Model& model, const CorpusOptions& options);

}  // namespace blend_cli
