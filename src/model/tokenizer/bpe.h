// Bpe: byte-pair encoding by ranked merges (Sennrich et al. 2016), over bytes (GPT-2) or over
// characters with byte fallback (SentencePiece models as `tokenizers` writes them).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace blend {

struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

struct BpeSpec {
  std::vector<std::string> pieces;         // by id: its bytes; "": never produced
  std::vector<BpeMerge> merges;            // the best first; of equal pairs the last counts
  std::array<int32_t, 256> byte_ids = {};  // [256] a byte's token, -1: none
  bool bytes = true;                       // a word begins as its bytes; else as its characters
  bool ignore_merges = false;  // a word that is a piece is that piece, whatever the merges say
  bool byte_fallback = false;  // a character that is not a piece becomes the tokens of its bytes
  bool fuse_unknown = false;   // unknown characters in a row are one unknown token
  int32_t unknown = -1;        // -1: unknown characters are dropped
};

// Immutable; safe for concurrent use, each thread with its own Scratch.
class Bpe {
 public:
  explicit Bpe(BpeSpec spec);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  struct Symbol {
    int32_t id;
    bool merged;  // into its left neighbour
    uint32_t prev;
    uint32_t next;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    int32_t result;
  };
  // Memory that is kept from word to word.
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // The longest word that encode takes.
  static constexpr size_t kMaxWord = size_t{1} << 30;

  // Appends the tokens of a word. O(n log n) in its length.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;

  int32_t find(std::string_view piece) const;
  // [256] the token of a byte, -1: none; empty where characters never become bytes.
  std::span<const int32_t> byte_tokens() const {
    return spec_.bytes || spec_.byte_fallback ? std::span<const int32_t>(spec_.byte_ids)
                                              : std::span<const int32_t>();
  }
  const std::string& piece(int32_t id) const { return spec_.pieces[static_cast<size_t>(id)]; }
  size_t size() const { return spec_.pieces.size(); }

  void hash(Sha256Hasher& hasher) const;

 private:
  struct Target {
    uint32_t rank;
    int32_t result;
  };
  const Target* target(int32_t left, int32_t right) const;
  void begin_bytes(std::string_view word, Scratch& scratch) const;
  void begin_characters(std::string_view word, Scratch& scratch) const;

  BpeSpec spec_;
  std::unordered_map<std::string_view, int32_t> ids_;  // into spec_.pieces
  size_t longest_piece_ = 0;
  std::unordered_map<uint64_t, Target> targets_;  // by left << 32 | right
};

}  // namespace blend
