// Documents to chunks, and BM25 over them: what stands in for a retriever of your own.
#pragma once

#include <algorithm>
#include <blend/blend.hpp>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace example {

struct Document {
  std::string name;
  std::string text;
};

// A piece of a document, small enough to be stored by itself.
struct Chunk {
  std::string document;
  std::string text;
  blendpp::Tokens tokens;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

// The .txt and .md files of a folder, by name.
inline std::vector<Document> read_documents(const std::filesystem::path& folder) {
  std::vector<Document> documents;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto kind = entry.path().extension();
    if (kind == ".txt" || kind == ".md") {
      documents.push_back({entry.path().filename().string(), read_file(entry.path())});
    }
  }
  std::sort(documents.begin(), documents.end(),
            [](const Document& a, const Document& b) { return a.name < b.name; });
  return documents;
}

inline bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

inline std::string stripped(const std::string& text) {
  const char* blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Paragraphs, which are cut at blank lines; runs of blanks become one.
inline std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> paragraphs(1);
  for (size_t i = 0; i < text.size();) {
    if (!is_space(text[i])) {
      paragraphs.back() += text[i++];
      continue;
    }
    int lines = 0;
    for (; i < text.size() && is_space(text[i]); ++i) lines += text[i] == '\n';
    if (lines > 1) {
      paragraphs.emplace_back();
    } else if (!paragraphs.back().empty()) {
      paragraphs.back() += ' ';
    }
  }
  std::vector<std::string> out;
  for (const std::string& paragraph : paragraphs) {
    if (!stripped(paragraph).empty()) out.push_back(stripped(paragraph));
  }
  return out;
}

inline std::vector<std::string> sentences_of(const std::string& paragraph) {
  std::vector<std::string> sentences(1);
  for (size_t i = 0; i < paragraph.size(); ++i) {
    const bool ends = i > 0 && paragraph[i] == ' ' &&
                      std::string(".!?").find(paragraph[i - 1]) != std::string::npos;
    if (ends) {
      sentences.emplace_back();
    } else {
      sentences.back() += paragraph[i];
    }
  }
  return sentences;
}

// Packs paragraphs, in order, into chunks of at most max_tokens; a paragraph that is longer goes by
// sentences, and a sentence that is longer is cut between tokens.
inline std::vector<Chunk> chunks_of(const blendpp::Model& model, const Document& document,
                                    size_t max_tokens) {
  std::vector<std::string> pieces;
  for (const std::string& paragraph : paragraphs_of(document.text)) {
    if (model.tokenize(paragraph + "\n").size() <= max_tokens) {
      pieces.push_back(paragraph + "\n");
    } else {
      for (const std::string& sentence : sentences_of(paragraph)) pieces.push_back(sentence + "\n");
    }
  }
  std::vector<std::string> packed;
  for (const std::string& piece : pieces) {
    if (packed.empty() || model.tokenize(packed.back() + piece).size() > max_tokens) {
      packed.emplace_back();
    }
    packed.back() += piece;
  }
  std::vector<Chunk> chunks;
  for (const std::string& text : packed) {
    const blendpp::Tokens tokens = model.tokenize(text);
    for (size_t begin = 0; begin < tokens.size(); begin += max_tokens) {
      const size_t end = std::min(tokens.size(), begin + max_tokens);
      blendpp::Tokens part(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                           tokens.begin() + static_cast<std::ptrdiff_t>(end));
      std::string part_text = part.size() == tokens.size() ? text : model.detokenize(part);
      chunks.push_back({document.name, std::move(part_text), std::move(part)});
    }
  }
  return chunks;
}

// Letters and digits in lower case; bytes of other scripts stay together as they are.
inline std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 || std::isalnum(byte) != 0 || c == '_') {
      words.back() += static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Okapi BM25. Not thread-safe while chunks are added.
class Bm25 {
 public:
  void add(Chunk chunk) {
    std::map<std::string, int> counts;
    for (const std::string& word : words_of(chunk.text)) ++counts[word];
    int length = 0;
    for (const auto& [word, n] : counts) {
      ++with_word_[word];
      length += n;
    }
    chunks_.push_back(std::move(chunk));
    counts_.push_back(std::move(counts));
    lengths_.push_back(length);
  }
  size_t size() const { return chunks_.size(); }

  // The `top` chunks of the highest score, in the order they were added.
  std::vector<Chunk> best(const std::string& query, size_t top) const {
    const std::vector<std::string> words = words_of(query);
    std::vector<double> scores(size());
    for (size_t i = 0; i < size(); ++i) scores[i] = score(i, words);
    std::vector<size_t> ranked(size());
    std::iota(ranked.begin(), ranked.end(), size_t{0});
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    ranked.resize(std::min(top, ranked.size()));
    std::sort(ranked.begin(), ranked.end());
    std::vector<Chunk> found;
    for (const size_t i : ranked) found.push_back(chunks_[i]);
    return found;
  }

 private:
  double score(size_t i, const std::vector<std::string>& query) const {
    constexpr double kK1 = 1.2;
    constexpr double kB = 0.75;
    const auto n = static_cast<double>(size());
    const double mean = std::max(1.0, std::accumulate(lengths_.begin(), lengths_.end(), 0.0)) / n;
    double total = 0;
    for (const std::string& word : query) {
      const auto count = counts_[i].find(word);
      if (count == counts_[i].end()) continue;
      const double f = count->second;
      const double df = with_word_.at(word);
      const double idf = std::log(1 + (n - df + 0.5) / (df + 0.5));
      total += idf * f * (kK1 + 1) / (f + kK1 * (1 - kB + kB * lengths_[i] / mean));
    }
    return total;
  }

  std::vector<Chunk> chunks_;
  std::vector<std::map<std::string, int>> counts_;
  std::vector<int> lengths_;
  std::map<std::string, int> with_word_;
};

// Precomputes chunks after what prompts begin with, in the context of similar ones. How many were
// new to the store.
inline size_t store_chunks(const blendpp::Model& model, const blendpp::Store& store,
                           const std::vector<Chunk>& chunks) {
  std::vector<blendpp::CorpusChunk> corpus;
  for (const Chunk& chunk : chunks) corpus.push_back({chunk.tokens, {}, {}});
  const blendpp::Tokens head = model.tokenize("", BLEND_TOKENIZE_BOS);
  size_t stored = 0;
  blendpp::CorpusOptions options;
  options.chunk_prefix = head.data();
  options.n_chunk_prefix = head.size();
  options.on_record = [&stored](const blend_corpus_record& record) {
    stored += record.existed == 0;
    return true;
  };
  model.precompute_corpus(store, corpus, options);
  return stored;
}

// BOS where the model wants one, the chunks, the question.
inline blendpp::Prompt prompt_of(const blendpp::Model& model, const std::vector<Chunk>& chunks,
                                 const std::string& question) {
  blendpp::Prompt prompt;
  if (blendpp::Tokens bos = model.tokenize("", BLEND_TOKENIZE_BOS); !bos.empty()) {
    prompt.prefix(std::move(bos));
  }
  for (const Chunk& chunk : chunks) prompt.chunk(chunk.tokens);
  prompt.question(model.tokenize("Question: " + question + "\nAnswer:"));
  return prompt;
}

// "--name value" pairs. Throws for a name that is not in `options`, whose values are the defaults.
inline void parse_options(int argc, char** argv, std::map<std::string, std::string>& options) {
  for (int i = 1; i < argc; i += 2) {
    const auto option = options.find(argv[i]);
    if (option == options.end() || i + 1 == argc) {
      std::string known;
      for (const auto& [name, value] : options) known += " [" + name + " VALUE]";
      throw std::runtime_error(std::string(argv[i]) + ": usage:" + known);
    }
    option->second = argv[i + 1];
  }
}

// A folder for a store that is not kept.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "blend-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace example
