#include "corpus.h"

#include "chat_prompt.h"
#include "command.h"

namespace blend_cli {
namespace {

constexpr std::string_view kTextPrefix = "text:";

// Length of the item that `list` begins with when that is one of the fixed words.
size_t word_at(std::string_view list) {
  for (const std::string_view word : {std::string_view("none"), std::string_view("bos")}) {
    const bool ends =
        list.size() == word.size() || (list.size() > word.size() && list[word.size()] == ',');
    if (list.substr(0, word.size()) == word && ends) return word.size();
  }
  return 0;
}

bool begins_item(std::string_view list) {
  return word_at(list) != 0 || list.substr(0, kTextPrefix.size()) == kTextPrefix;
}

}  // namespace

blendpp::Tokens chunk_prefix_tokens(const blendpp::Model& model, const std::string& spec) {
  if (spec.empty() || spec == "none") return {};
  if (spec == "bos") {
    const int32_t bos = model.info().bos_token;
    if (bos < 0) {
      throw CommandError(kExitUsage, "--chunk-prefix bos: this model has no BOS token; use none");
    }
    return {bos};
  }
  return model.tokenize(spec.substr(kTextPrefix.size()));
}

std::vector<std::string> split_chunk_prefixes(std::string_view list) {
  std::vector<std::string> items;
  while (true) {
    size_t end = word_at(list);
    if (end == 0) {
      if (list.substr(0, kTextPrefix.size()) != kTextPrefix) {
        throw CommandError(kExitUsage, "--chunk-prefixes: '" + std::string(list) +
                                           "' must begin with none, bos or text:...");
      }
      end = kTextPrefix.size();
      while (end < list.size() && !(list[end] == ',' && begins_item(list.substr(end + 1)))) ++end;
    }
    items.emplace_back(list.substr(0, end));
    if (end == list.size()) return items;
    list.remove_prefix(end + 1);
  }
}

void add_fusing_options(CLI::App& app, CorpusOptions& options) {
  CLI::Option* prefix =
      app.add_option(
             "--chunk-prefix", options.chunk_prefix,
             "The text before each chunk while it is prefilled: head (all that a prompt has "
             "before its first chunk), none, bos or text:... Part of a chunk's id. Default: "
             "the profile's, without a profile head")
          ->check([](const std::string& spec) -> std::string {
            if (spec == "head" || spec == "none" || spec == "bos" ||
                spec.rfind(kTextPrefix, 0) == 0)
              return {};
            return "must be head, none, bos or text:...";
          })
          ->type_name("PREFIX");
  options.profile.clear();
  app.add_option("--profile", options.profile,
                 "Profile of this model, written by blend calibrate. It sets the chunk prefix, "
                 "and for ask also metric, check layer, ratio and drift correction. Default: "
                 "the one beside the model; none: do without")
      ->excludes(prefix)
      ->type_name("FILE");
  app.add_option("--tenant", options.tenant, "Salt of the ids: tenants never share chunks")
      ->type_name("NAME");
}

void add_corpus_options(CLI::App& app, CorpusOptions& options, bool docs_required) {
  app.add_option("--docs", options.docs,
                 "Documents: files, or directories whose .txt and .md files are read in the order "
                 "of their paths")
      ->required(docs_required)
      ->type_name("PATH ...");
  app.add_option("--chunk-tokens", options.chunk_tokens,
                 "Maximum tokens of a chunk; documents are cut at blank lines, and paragraphs "
                 "are packed up to it")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--system", options.system, "System text: stands first and is reused exactly")
      ->type_name("TEXT");
  add_fusing_options(app, options);
}

namespace {

std::shared_ptr<const blendpp::Profile> find_profile(const blendpp::Model& model,
                                                     const std::string& named) {
  if (named == "none") return nullptr;
  try {
    return std::make_shared<const blendpp::Profile>(model, named);
  } catch (const blendpp::Error& error) {
    if (!named.empty() || error.code() != BLEND_E_NOT_FOUND) throw;
    return nullptr;
  }
}

}  // namespace

Corpus make_corpus(const blendpp::Model& model, const CorpusOptions& options, bool special) {
  Corpus corpus;
  if (!options.docs.empty()) {
    corpus.documents = read_documents(options.docs);
    corpus.chunks = split_documents(corpus.documents, options.chunk_tokens,
                                    [&](std::string_view text) { return model.tokenize(text); });
  }
  corpus.prefix = plain_head(model, options.system, special);
  if (options.chunk_prefix.empty()) corpus.profile = find_profile(model, options.profile);
  if (corpus.profile != nullptr) {
    corpus.chunk_prefix = corpus.profile->chunk_prefix();
  } else {
    corpus.after_head = options.chunk_prefix.empty() || options.chunk_prefix == "head";
    if (!corpus.after_head) corpus.chunk_prefix = chunk_prefix_tokens(model, options.chunk_prefix);
  }
  return corpus;
}

void set_chunk_prefix(blendpp::FuseOptions& options, const Corpus& corpus) {
  static constexpr int32_t kNothing = 0;  // NULL is the prompt head
  if (corpus.after_head) return;
  options.chunk_prefix = corpus.chunk_prefix.empty() ? &kNothing : corpus.chunk_prefix.data();
  options.n_chunk_prefix = corpus.chunk_prefix.size();
}

}  // namespace blend_cli
