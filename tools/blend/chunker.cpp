#include "chunker.h"

#include <algorithm>
#include <cstdint>

namespace blend_cli {

std::string_view trimmed(std::string_view text, std::string_view blank) {
  const size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

namespace {

// The paragraphs of a text, each followed by one newline.
std::vector<std::string> paragraphs_of(std::string_view text) {
  std::vector<std::string> paragraphs;
  std::string current;
  const auto close = [&] {
    if (const std::string_view body = trimmed(current); !body.empty()) {
      paragraphs.push_back(std::string(body) + '\n');
    }
    current.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end + 1);
    if (trimmed(line).empty()) close();
    current += line;
    text.remove_prefix(end + 1);
  }
  close();
  return paragraphs;
}

enum class Level : uint8_t { sentence, word, character };

// Whether the text may be cut before byte `i`.
bool may_cut(std::string_view text, size_t i, Level level) {
  const char before = text[i - 1];
  const char here = text[i];
  switch (level) {
    case Level::sentence:
      return before == '\n' ||
             (here == ' ' && (before == '.' || before == '!' || before == '?' || before == '"'));
    case Level::word:
      return here == ' ' && before != ' ';
    case Level::character:
      return (static_cast<unsigned char>(here) & 0xC0u) != 0x80u;  // not inside a UTF-8 sequence
  }
  return true;
}

std::vector<std::string> units_of(std::string_view text, Level level) {
  std::vector<std::string> units;
  size_t begin = 0;
  for (size_t i = 1; i <= text.size(); ++i) {
    if (i == text.size() || may_cut(text, i, level)) {
      units.emplace_back(text.substr(begin, i - begin));
      begin = i;
    }
  }
  return units;
}

// Packs the units of one document, in order, into chunks.
class Packer {
 public:
  Packer(size_t document, size_t max_tokens, const TokenizeFn& tokenize, std::vector<Chunk>& out)
      : document_(document), max_tokens_(max_tokens), tokenize_(tokenize), out_(out) {}

  // As many units as fit, then the next chunk. A unit too long for any chunk is cut at `finer`.
  void pack(const std::vector<std::string>& units, Level finer) {
    for (size_t begin = 0; begin < units.size();) {
      const size_t end = furthest(units, begin);
      if (end > begin) {
        emit(joined(units, begin, end));
        begin = end;
      } else if (units_of(units[begin], Level::character).size() == 1) {
        emit(units[begin]);  // one character of several byte tokens: it cannot be cut
        ++begin;
      } else {
        pack(units_of(units[begin], finer),
             finer == Level::sentence ? Level::word : Level::character);
        ++begin;
      }
    }
  }

 private:
  static std::string joined(const std::vector<std::string>& units, size_t begin, size_t end) {
    std::string text;
    for (size_t i = begin; i < end; ++i) text += units[i];
    return text;
  }
  // A chunk that begins inside a paragraph would begin with the space between two words, to which
  // the tokenizer adds its own.
  static std::string_view without_leading_spaces(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(' '), text.size()));
  }
  bool fits(const std::vector<std::string>& units, size_t begin, size_t end) const {
    const std::string text = joined(units, begin, end);
    return tokenize_(without_leading_spaces(text)).size() <= max_tokens_;
  }
  // The largest `end` for which [begin, end) fits, by doubling and halving: few tokenizations, and
  // none of a text much longer than a chunk.
  size_t furthest(const std::vector<std::string>& units, size_t begin) const {
    size_t good = begin;
    size_t step = 1;
    while (good < units.size()) {
      const size_t next = std::min(good + step, units.size());
      if (!fits(units, begin, next)) break;
      good = next;
      step *= 2;
    }
    if (good == units.size()) return good;
    size_t bad = std::min(good + step, units.size());
    while (bad - good > 1) {
      const size_t middle = good + (bad - good) / 2;
      (fits(units, begin, middle) ? good : bad) = middle;
    }
    return good;
  }
  void emit(const std::string& text) {
    Chunk chunk;
    chunk.document = document_;
    chunk.text = without_leading_spaces(text);
    if (trimmed(text).empty()) return;  // the line end that a cut paragraph left over
    chunk.tokens = tokenize_(chunk.text);
    if (!chunk.tokens.empty()) out_.push_back(std::move(chunk));
  }

  size_t document_;
  size_t max_tokens_;
  const TokenizeFn& tokenize_;
  std::vector<Chunk>& out_;
};

}  // namespace

std::vector<Chunk> split_documents(const std::vector<Document>& documents, size_t max_tokens,
                                   const TokenizeFn& tokenize) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < documents.size(); ++i) {
    Packer packer(i, max_tokens, tokenize, chunks);
    packer.pack(paragraphs_of(documents[i].text), Level::sentence);
  }
  return chunks;
}

}  // namespace blend_cli
