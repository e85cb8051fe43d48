#include "corpus.h"

#include "command.h"

namespace blend_cli {
namespace {

constexpr std::string_view kTextPrefix = "text:";

}  // namespace

blendpp::Tokens chunk_prefix_tokens(const blendpp::Model& model, const std::string& spec) {
  if (spec == "none") return {};
  if (spec == "bos") {
    const int32_t bos = model.info().bos_token;
    if (bos < 0) {
      throw CommandError(kExitUsage, "--chunk-prefix bos: this model has no BOS token; use none");
    }
    return {bos};
  }
  return model.tokenize(spec.substr(kTextPrefix.size()));
}

void add_corpus_options(CLI::App& app, CorpusOptions& options, bool docs_required) {
  app.add_option("--docs", options.docs,
                 "Documents: files, or directories whose .txt and .md files are read in the order "
                 "of their paths")
      ->required(docs_required)
      ->type_name("PATH ...");
  app.add_option("--chunk-tokens", options.chunk_tokens,
                 "Most tokens of a chunk; documents are cut at blank lines and packed up to it")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* prefix =
      app.add_option(
             "--chunk-prefix", options.chunk_prefix,
             "What chunks are prefilled after: none, bos or text:... Part of a chunk's id; the "
             "best choice depends on the model")
          ->check([](const std::string& spec) -> std::string {
            if (spec == "none" || spec == "bos" || spec.rfind(kTextPrefix, 0) == 0) return {};
            return "must be none, bos or text:...";
          })
          ->type_name("PREFIX")
          ->capture_default_str();
  app.add_option(
         "--profile", options.profile,
         "What blend calibrate wrote of this model: chunk prefix, and for ask metric, check "
         "layer, ratio and drift correction come from it")
      ->excludes(prefix)
      ->type_name("FILE");
  app.add_option("--system", options.system, "System text: stands first and is reused exactly")
      ->type_name("TEXT");
  app.add_option("--tenant", options.tenant, "Salt of the ids: tenants never share chunks")
      ->type_name("NAME");
}

Corpus make_corpus(const blendpp::Model& model, const CorpusOptions& options) {
  Corpus corpus;
  if (!options.docs.empty()) {
    corpus.documents = read_documents(options.docs);
    corpus.chunks = split_documents(corpus.documents, options.chunk_tokens,
                                    [&](std::string_view text) { return model.tokenize(text); });
  }
  const bool add_bos = model.info().add_bos != 0;
  if (!options.system.empty()) {
    const bool ends_line = options.system.back() == '\n';
    corpus.prefix =
        model.tokenize(options.system + (ends_line ? "" : "\n"), add_bos ? BLEND_TOKENIZE_BOS : 0u);
  } else if (add_bos) {
    corpus.prefix = {model.info().bos_token};
  }
  if (options.profile.empty()) {
    corpus.chunk_prefix = chunk_prefix_tokens(model, options.chunk_prefix);
  } else {
    corpus.profile = std::make_shared<const blendpp::Profile>(model, options.profile);
    corpus.chunk_prefix = corpus.profile->chunk_prefix();
  }
  return corpus;
}

}  // namespace blend_cli
