// Corpus: the documents of a command as chunks, and how those chunks are keyed. precompute and ask
// share it, so that ask looks up what precompute stored.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "blend/blend.hpp"
#include "chunker.h"
#include "documents.h"

namespace blend_cli {

struct CorpusOptions {
  std::vector<std::string> docs;
  size_t chunk_tokens = 256;
  std::string chunk_prefix;  // empty: the profile's, or the prompt head
  // Profile of blend calibrate, or "none". Commands with --profile default to empty: the profile
  // beside the model, unless a chunk prefix is given.
  std::string profile = "none";
  std::string system;
  std::string tenant;
};
void add_corpus_options(CLI::App& app, CorpusOptions& options, bool docs_required);
// Only --chunk-prefix, --profile and --tenant: for commands whose documents come from
// elsewhere.
void add_fusing_options(CLI::App& app, CorpusOptions& options);

struct Corpus {
  std::vector<Document> documents;
  std::vector<Chunk> chunks;
  blendpp::Tokens prefix;        // BOS and the system text: the PREFIX segment; may be empty
  blendpp::Tokens chunk_prefix;  // what chunks are prefilled after, unless that is the prompt head
  bool after_head = false;
  std::shared_ptr<const blendpp::Profile> profile;  // null: none
};
// Has a fuse look for the corpus's chunks. `corpus` must outlive the options.
void set_chunk_prefix(blendpp::FuseOptions& options, const Corpus& corpus);
// The ids that a chunk is prefilled after, from "none", "bos" or "text:...". Throws CommandError
// (usage) for the BOS of a model that has none.
blendpp::Tokens chunk_prefix_tokens(const blendpp::Model& model, const std::string& spec);
// Items of a comma-separated list of chunk prefixes. A comma in "text:..." belongs to the text
// unless "none", "bos" or "text:" follows it. Throws CommandError (usage) for anything else.
std::vector<std::string> split_chunk_prefixes(std::string_view list);
// `special`: control tokens in the system text are recognized.
Corpus make_corpus(const blendpp::Model& model, const CorpusOptions& options, bool special = false);

}  // namespace blend_cli
