// blend precompute: documents -> chunks -> the store.
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "chunk_choice.h"
#include "command.h"
#include "corpus.h"
#include "interrupt.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

struct PrecomputeOptions {
  CommonOptions common;
  ModelChoice model;
  StoreOptions store;
  CorpusOptions corpus;
  std::vector<std::string> tags;
  bool after_bos = false;
  bool behind_neighbors = false;
};

// One record of the store.
struct Item {
  blendpp::Tokens tokens;
  std::string document;
  std::string label;
  bool is_prefix = false;
  const blendpp::Tokens* behind = nullptr;  // null: the chunk prefix
  const char* form = "";                    // what the line says of it; of a variant only
};

// A file may have any bytes for a name; a label is a line of UTF-8.
std::string line_of(const std::string& bytes) {
  using nlohmann::json;
  const std::string text = json(bytes).dump(-1, ' ', false, json::error_handler_t::replace);
  std::string line = json::parse(text).get<std::string>();
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

// "handbook/notes.md#3". What is too long loses its beginning, at the start of a directory if it
// can.
std::string label_of(const std::string& document, size_t part) {
  const std::string ending = "#" + std::to_string(part);
  std::string name = line_of(std::filesystem::path(document).lexically_normal().string());
  if (name.size() + ending.size() > BLEND_LABEL_BYTES) {
    size_t begin = name.size() + ending.size() - BLEND_LABEL_BYTES;
    while (begin < name.size() && (static_cast<unsigned char>(name[begin]) & 0xc0) == 0x80) ++begin;
    const size_t slash = name.find('/', begin);
    name.erase(0, slash == std::string::npos ? begin : slash + 1);
  }
  return name + ending;
}

// How each chunk is stored beside its plain record.
struct Forms {
  blendpp::Tokens bos;     // behind it; empty: not so
  bool neighbors = false;  // behind the one before it in its document
  size_t most_tokens = 0;  // the model's context: what does not fit is in no prompt either
};

// The prefix first, as it stands in a prompt. Points into both.
std::vector<Item> items_of(const Corpus& corpus, const Forms& forms) {
  std::vector<Item> items;
  if (!corpus.prefix.empty()) items.push_back({corpus.prefix, "(prefix)", "(prefix)", true});
  size_t part = 0;
  for (size_t i = 0; i < corpus.chunks.size(); ++i) {
    const Chunk& chunk = corpus.chunks[i];
    const bool follows = i > 0 && corpus.chunks[i - 1].document == chunk.document;
    part = follows ? part + 1 : 1;
    const std::string& path = corpus.documents[chunk.document].path;
    const Item plain{chunk.tokens, path, label_of(path, part)};
    items.push_back(plain);
    const auto add = [&](const blendpp::Tokens& behind, const char* form) {
      if (behind.size() + plain.tokens.size() > forms.most_tokens) return;
      items.push_back(plain);
      items.back().behind = &behind;
      items.back().form = form;
    };
    if (!forms.bos.empty() && forms.bos != corpus.chunk_prefix) add(forms.bos, "behind BOS");
    if (forms.neighbors && follows) add(corpus.chunks[i - 1].tokens, "behind its neighbor");
  }
  return items;
}

Forms forms_of(const blendpp::Model& model, const PrecomputeOptions& options) {
  Forms forms;
  const auto info = model.info();
  if (options.after_bos && info.bos_token >= 0) forms.bos = {info.bos_token};
  forms.neighbors = options.behind_neighbors;
  forms.most_tokens = info.context_length;
  return forms;
}

void run(const PrecomputeOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  const Corpus corpus = make_corpus(model, options.corpus);
  const blendpp::Store store = open_store(ctx, options.store);
  if (corpus.profile != nullptr) corpus.profile->apply(store);
  const Forms forms = forms_of(model, options);
  const std::vector<Item> items = items_of(corpus, forms);
  const std::string tags = joined_tags(options.tags);

  ProgressBar bar("Precomputing");
  nlohmann::json chunks = nlohmann::json::array();
  size_t n_tokens = 0;
  size_t n_new = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    throw_if_interrupted();
    const Item& item = items[i];
    blendpp::PrecomputeOptions precompute;
    // A prefix has nothing before it; that is why it is reused exactly.
    if (!item.is_prefix) {
      const blendpp::Tokens& prefix = item.behind != nullptr ? *item.behind : corpus.chunk_prefix;
      precompute.chunk_prefix = prefix.data();
      precompute.n_chunk_prefix = prefix.size();
    }
    precompute.tenant = options.corpus.tenant.c_str();
    precompute.label = item.label.c_str();
    if (!item.is_prefix && !tags.empty()) precompute.tags = tags.c_str();
    precompute.cancel = interrupt_token();
    precompute.on_progress = [&](uint64_t done, uint64_t total) {
      bar.update(i * total + done, items.size() * total);
      return true;
    };
    const blendpp::Precomputed result = model.precompute(store, item.tokens, precompute);
    n_tokens += item.tokens.size();
    n_new += result.existed ? 0 : 1;
    if (options.common.json) {
      chunks.push_back({{"id", result.id.hex()},
                        {"existed", result.existed},
                        {"n_tokens", item.tokens.size()},
                        {"document", item.document},
                        {"label", item.label},
                        {"prefix", item.is_prefix},
                        {"behind_bos", item.behind == &forms.bos},
                        {"behind_neighbor", item.behind != nullptr && item.behind != &forms.bos}});
    } else {
      bar.erase();  // a terminal shows both, and a line must not be written behind a bar
      std::cout << format("%s  %-7s  %5zu tokens  %s%s%s", result.id.hex().c_str(),
                          result.existed ? "existed" : "stored", item.tokens.size(),
                          item.label.c_str(), *item.form == '\0' ? "" : ", ", item.form)
                << std::endl;
    }
  }
  bar.erase();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (options.common.json) {
    const nlohmann::json out = {{"chunks", std::move(chunks)},
                                {"n_stored", n_new},
                                {"n_existed", items.size() - n_new},
                                {"n_tokens", n_tokens},
                                {"seconds", seconds.count()}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << format("%zu stored, %zu existed; %zu tokens in %.2f s\n", n_new,
                        items.size() - n_new, n_tokens, seconds.count());
  }
}

}  // namespace

void register_precompute(CLI::App& app) {
  auto options = std::make_shared<PrecomputeOptions>();
  CLI::App* command =
      app.add_subcommand("precompute", "Prefill the chunks of documents and store their KV caches");
  add_model(*command, options->model);
  add_store_options(*command, options->store);
  add_corpus_options(*command, options->corpus, true);
  add_tags(*command, options->tags, "A tag for every document's chunks, e.g. lang=en");
  command->add_flag("--after-bos", options->after_bos,
                    "Store every chunk a second time, behind BOS alone: it is exact where it "
                    "stands first in a prompt");
  command->add_flag("--behind-neighbors", options->behind_neighbors,
                    "Store every chunk a second time, behind the chunk before it in its document: "
                    "nearer to full prefill where it follows that one in a prompt");
  add_common_options(*command, options->common);
  command->footer(
      "Prints each chunk's id, and whether the store had it. What `blend ask` puts before the\n"
      "chunks (BOS and the system text) is stored too. A chunk is labelled by its document and "
      "the\n"
      "number of its part, notes.md#3; `blend store ls` and `rm` find it by that.\n\n"
      "Example:\n"
      "  blend precompute --model model.gguf --store ./store --docs ./handbook notes.md");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
