// blend precompute: documents -> chunks -> the store.
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "chat_prompt.h"
#include "choices.h"
#include "chunk_choice.h"
#include "command.h"
#include "corpus.h"
#include "function_calls.h"
#include "interrupt.h"
#include "printable.h"
#include "profile_report.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

struct PrecomputeOptions {
  CommonOptions common;
  ModelChoice model;
  StoreOptions store;
  CorpusOptions corpus;
  ChatChoice chat;
  FunctionChoice functions;
  bool special = false;
  std::vector<std::string> tags;
  uint32_t contexts = 4;
  double min_similarity = 0;
  bool refresh = false;
  bool no_clusters = false;
  bool predecessors = false;
};

// A file's name may have any bytes; a label is a line of UTF-8.
std::string line_of(const std::string& bytes) {
  using nlohmann::json;
  const std::string text = json(bytes).dump(-1, ' ', false, json::error_handler_t::replace);
  std::string line = json::parse(text).get<std::string>();
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

// "handbook/notes.md#3". A long label loses its beginning, at the start of a directory if possible.
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

// Data printed for one record.
struct Line {
  blendpp::ChunkId id;
  bool existed = false;
  size_t n_tokens = 0;
  std::string document, label;
  std::string kind;  // prefix, head, contextual or predecessor
  uint32_t n_contexts = 0;
};

// The prompt's first segments, as `ask` puts them.
blendpp::Prompt opening_of(const blendpp::Model& model, const PrecomputeOptions& options,
                           const Corpus& corpus) {
  if (options.chat.wanted) {
    // Any document and question will do: only the part before the first document is used.
    return chat_prompt(model, options.chat, options.corpus.system, {"x"}, "x");
  }
  blendpp::Prompt prompt;
  if (!corpus.prefix.empty()) prompt.prefix(corpus.prefix);
  return prompt.chunk(blendpp::Tokens{0});
}

// Stores the records of a corpus, one kind after the other.
class Precompute {
 public:
  Precompute(const blendpp::Model& model, const blendpp::Store& store,
             const PrecomputeOptions& options, const Corpus& corpus)
      : model_(model),
        store_(store),
        options_(options),
        corpus_(corpus),
        tags_(joined_tags(options.tags)),
        opening_(opening_of(model, options, corpus)),
        head_(corpus.after_head ? opening_.head() : corpus.chunk_prefix) {
    size_t part = 0;
    for (size_t i = 0; i < corpus.chunks.size(); ++i) {
      const Chunk& chunk = corpus.chunks[i];
      follows_.push_back(i > 0 && corpus.chunks[i - 1].document == chunk.document);
      part = follows_.back() ? part + 1 : 1;
      labels_.push_back(label_of(corpus.documents[chunk.document].path, part));
    }
  }

  void run() {
    prefixes();
    chunks();
    if (options_.predecessors) predecessors();
    bar_.erase();
  }

  const std::vector<Line>& lines() const { return lines_; }

 private:
  // Each of the prompt's first segments, stored after just those before it.
  void prefixes() {
    blendpp::Tokens before;
    for (const blend_segment& segment : opening_.segments()) {
      if (segment.kind != BLEND_SEGMENT_PREFIX) return;
      const blendpp::Tokens tokens(segment.tokens, segment.tokens + segment.n_tokens);
      put(tokens, before, {{}, false, tokens.size(), "(prefix)", "(prefix)", "prefix"});
      before.insert(before.end(), tokens.begin(), tokens.end());
    }
  }

  void chunks() {
    blendpp::CorpusOptions corpus;
    corpus.flags = (options_.refresh ? BLEND_CORPUS_REFRESH : 0u) |
                   (options_.contexts == 0 ? BLEND_CORPUS_HEAD_ONLY : 0u) |
                   (options_.no_clusters ? BLEND_CORPUS_NO_CLUSTERS : 0u);
    corpus.chunk_prefix = head_.data();
    corpus.n_chunk_prefix = head_.size();
    corpus.tenant = options_.corpus.tenant.c_str();
    corpus.n_contexts = options_.contexts;
    corpus.min_similarity = options_.min_similarity;
    corpus.cancel = interrupt_token();
    corpus.on_progress = [&](uint64_t done, uint64_t total) {
      bar_.update(done, total);
      return true;
    };
    corpus.on_record = [&](const blend_corpus_record& record) {
      const auto i = static_cast<size_t>(record.index);
      tell({blendpp::ChunkId(record.id), record.existed != 0, corpus_.chunks[i].tokens.size(),
            document(i), labels_[i], record.n_contexts > 0 ? "contextual" : "head",
            record.n_contexts});
      return true;
    };
    std::vector<blendpp::CorpusChunk> list;
    for (size_t i = 0; i < corpus_.chunks.size(); ++i) {
      list.push_back({corpus_.chunks[i].tokens, labels_[i], {}});
      if (!tags_.empty()) list.back().tags = tags_;
    }
    model_.precompute_corpus(store_, list, corpus);
  }

  // After the chunk before it in its document. Where that is short, chunks before it in the
  // document stand before it in the prefills.
  void predecessors() {
    const size_t most = model_.info().context_length;
    for (size_t i = 0; i < corpus_.chunks.size(); ++i) {
      if (!follows_[i]) continue;
      const blendpp::Tokens& before = corpus_.chunks[i - 1].tokens;
      const blendpp::Tokens& tokens = corpus_.chunks[i].tokens;
      // No prompt has room for both.
      if (head_.size() + before.size() + tokens.size() > most) continue;
      std::vector<blend_context_passage> passages;
      for (size_t j = i - 1; follows_[j] && passages.size() < BLEND_MOST_CONTEXTS; --j) {
        const blendpp::Tokens& passage = corpus_.chunks[j - 1].tokens;
        passages.push_back({passage.data(), passage.size()});
      }
      blendpp::PrecomputeOptions options;
      options.predecessor = before.data();
      options.n_predecessor = before.size();
      options.contexts = passages.data();
      options.n_contexts = passages.size();
      put(tokens, head_, {{}, false, tokens.size(), document(i), labels_[i], "predecessor"},
          options);
    }
  }

  void put(const blendpp::Tokens& tokens, const blendpp::Tokens& prefix, Line line,
           blendpp::PrecomputeOptions precompute = {}) {
    throw_if_interrupted();
    precompute.chunk_prefix = prefix.data();
    precompute.n_chunk_prefix = prefix.size();
    precompute.tenant = options_.corpus.tenant.c_str();
    precompute.label = line.label.c_str();
    if (line.kind != "prefix" && !tags_.empty()) precompute.tags = tags_.c_str();
    precompute.cancel = interrupt_token();
    precompute.on_progress = [&](uint64_t done, uint64_t total) {
      bar_.update(done, total);
      return true;
    };
    const blendpp::Precomputed result = model_.precompute(store_, tokens, precompute);
    line.id = result.id;
    line.existed = result.existed;
    tell(std::move(line));
  }

  void tell(Line line) {
    if (!options_.common.json) {
      bar_.erase();  // a terminal shows both, and a line must not be written over a bar
      const std::string kind = line.kind == "predecessor" ? ", after its predecessor"
                               : line.n_contexts > 0
                                   ? format(", in the context of %u", line.n_contexts)
                                   : "";
      std::cout << format("%s  %-7s  %5zu tokens  %s%s", line.id.hex().c_str(),
                          line.existed ? "existed" : "stored", line.n_tokens,
                          printable(line.label).c_str(), kind.c_str())
                << std::endl;
    }
    lines_.push_back(std::move(line));
  }

  const std::string& document(size_t chunk) const {
    return corpus_.documents[corpus_.chunks[chunk].document].path;
  }

  const blendpp::Model& model_;
  const blendpp::Store& store_;
  const PrecomputeOptions& options_;
  const Corpus& corpus_;
  const std::string tags_;
  const blendpp::Prompt opening_;
  const blendpp::Tokens head_;
  std::vector<bool> follows_;  // the chunk before it is of the same document
  std::vector<std::string> labels_;
  ProgressBar bar_{"Precomputing", ProgressBar::Elsewhere::lines};
  std::vector<Line> lines_;
};

void report(const PrecomputeOptions& options, const std::vector<Line>& lines, double seconds) {
  size_t n_tokens = 0, n_new = 0;
  nlohmann::json chunks = nlohmann::json::array();
  for (const Line& line : lines) {
    n_tokens += line.n_tokens;
    n_new += line.existed ? 0 : 1;
    if (!options.common.json) continue;
    chunks.push_back({{"id", line.id.hex()},
                      {"existed", line.existed},
                      {"n_tokens", line.n_tokens},
                      {"document", line.document},
                      {"label", line.label},
                      {"prefix", line.kind == "prefix"},
                      {"kind", line.kind},
                      {"n_contexts", line.n_contexts}});
  }
  if (!options.common.json) {
    std::cout << format("%zu stored, %zu existed; %zu tokens in %.2f s\n", n_new,
                        lines.size() - n_new, n_tokens, seconds);
    return;
  }
  const nlohmann::json out = {{"chunks", std::move(chunks)},
                              {"n_stored", n_new},
                              {"n_existed", lines.size() - n_new},
                              {"n_tokens", n_tokens},
                              {"seconds", seconds}};
  std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void run(const PrecomputeOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  const Corpus corpus = make_corpus(model, options.corpus, options.special);
  const blendpp::Store store = open_store(ctx, options.store);
  if (corpus.profile != nullptr) {
    store.set_codec_profile(*corpus.profile);
    const uint32_t codec = value_of(codec_choices(), options.store.codec);
    if (const auto said = costly_codec(*corpus.profile, codec)) print_note(*said);
  }
  Precompute precompute(model, store, options, corpus);
  precompute.run();
  wait_for_uploads(store);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  report(options, precompute.lines(), seconds.count());
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
  command->add_flag("--special", options->special,
                    "Control tokens such as <|im_end|> in --system are recognized");
  add_chat_options(*command, options->chat);
  add_tools(*command, options->functions);
  command
      ->add_option(
          "--contexts", options->contexts,
          "Number of prefills: each chunk is stored as the mean over so many, each after one "
          "of the chunks most similar to it, or after several short ones; 0: after the head "
          "only")
      ->check(CLI::Range(0u, BLEND_MOST_CONTEXTS))
      ->capture_default_str();
  command
      ->add_option(
          "--min-similarity", options->min_similarity,
          "Chunks that are less similar are not used as context (cosine of TF-IDF weights)")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str();
  command->add_flag("--no-clusters", options->no_clusters,
                    "Without the record that each chunk has for places after much text: less time "
                    "and fewer bytes, worse answers from prompts with many chunks");
  command->add_flag("--refresh", options->refresh,
                    "Store those chunks again whose most similar chunks have changed");
  command->add_flag("--predecessors", options->predecessors,
                    "Also store each chunk after the chunk before it in its document, or after "
                    "several if they are short: nearer to full prefill in prompts where it follows "
                    "that chunk");
  add_common_options(*command, options->common);
  command->footer(
      "Each chunk is stored after the prompt head (what `blend ask` puts before the first chunk: "
      "BOS\n"
      "and the system text, or with --chat what the template opens with) and in the context of "
      "the\n"
      "chunks that are most similar to it. Give the --system and --chat that prompts will have. "
      "Prints\n"
      "each record's id, and whether the store had it. A chunk is labelled by its document and "
      "the\n"
      "number of its part, notes.md#3; `blend store ls` and `rm` find it by that.\n\n"
      "Example:\n"
      "  blend precompute --model model.gguf --store ./store --chat --docs ./handbook notes.md");
  command->callback([options] {
    options->chat.tools = read_functions(options->functions);
    run(*options);
  });
}

}  // namespace blend_cli
