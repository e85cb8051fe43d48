#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <limits>

#include "model/utf8.h"

namespace blend {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Order of the heap: in front the merge of the lowest rank, the leftmost of equals.
bool worse(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

void push_symbol(int32_t id, std::vector<Bpe::Symbol>& symbols) {
  const auto n = static_cast<uint32_t>(symbols.size());
  symbols.push_back({id, false, n - 1, n + 1});  // prev of the first is kNone
}

}  // namespace

Bpe::Bpe(BpeSpec spec) : spec_(std::move(spec)) {
  ids_.reserve(spec_.pieces.size());
  for (size_t i = 0; i < spec_.pieces.size(); ++i) {
    const std::string& piece = spec_.pieces[i];
    if (piece.empty()) continue;
    ids_.try_emplace(piece, static_cast<int32_t>(i));
    longest_piece_ = std::max(longest_piece_, piece.size());
  }
  targets_.reserve(spec_.merges.size());
  uint32_t rank = 0;
  for (const BpeMerge& m : spec_.merges) {
    targets_[pair_key(m.left, m.right)] = {rank++, m.result};
  }
}

int32_t Bpe::find(std::string_view piece) const {
  if (piece.size() > longest_piece_) return -1;
  const auto it = ids_.find(piece);
  return it == ids_.end() ? -1 : it->second;
}

const Bpe::Target* Bpe::target(int32_t left, int32_t right) const {
  const auto it = targets_.find(pair_key(left, right));
  return it == targets_.end() ? nullptr : &it->second;
}

void Bpe::begin_bytes(std::string_view word, Scratch& scratch) const {
  for (const char c : word) {
    int32_t id = spec_.byte_ids[static_cast<uint8_t>(c)];
    if (id < 0) id = spec_.unknown;
    if (id >= 0) push_symbol(id, scratch.symbols);
  }
}

// Unknown characters are held back until a known one follows, so that a run of them can be one.
void Bpe::begin_characters(std::string_view word, Scratch& scratch) const {
  bool unknown = false;
  for (size_t at = 0; at < word.size();) {
    const std::string_view c = word.substr(at, utf8_length(word.substr(at)));
    at += c.size();
    if (const int32_t id = find(c); id >= 0) {
      if (unknown) push_symbol(spec_.unknown, scratch.symbols);
      unknown = false;
      push_symbol(id, scratch.symbols);
      continue;
    }
    const bool have_bytes = spec_.byte_fallback && std::all_of(c.begin(), c.end(), [&](char b) {
                              return spec_.byte_ids[static_cast<uint8_t>(b)] >= 0;
                            });
    if (have_bytes) {
      for (const char b : c) {
        push_symbol(spec_.byte_ids[static_cast<uint8_t>(b)], scratch.symbols);
      }
    } else if (spec_.unknown >= 0) {
      if (unknown && !spec_.fuse_unknown) push_symbol(spec_.unknown, scratch.symbols);
      unknown = true;
    }
  }
  if (unknown) push_symbol(spec_.unknown, scratch.symbols);
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  if (spec_.ignore_merges) {
    if (const int32_t id = find(word); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  if (spec_.bytes) {
    begin_bytes(word, scratch);
  } else {
    begin_characters(word, scratch);
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;

  const auto consider = [&](uint32_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    const Target* const t = target(symbols[left].id, symbols[symbols[left].next].id);
    if (t == nullptr) return;
    heap.push_back({t->rank, left, t->result});
    std::push_heap(heap.begin(), heap.end(), worse);
  };
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) consider(i);
  while (!heap.empty()) {
    const Candidate c = heap.front();
    std::pop_heap(heap.begin(), heap.end(), worse);
    heap.pop_back();
    Symbol& left = symbols[c.at];
    if (left.merged || left.next == kNone) continue;
    Symbol& right = symbols[left.next];
    // Entries whose pair has changed since are dropped here.
    const Target* const t = target(left.id, right.id);
    if (t == nullptr || t->result != c.result) continue;
    left.id = c.result;
    right.merged = true;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].prev = c.at;
    consider(left.prev);
    consider(c.at);
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].id);
}

void Bpe::hash(Sha256Hasher& hasher) const {
  hasher.field(static_cast<uint64_t>(spec_.pieces.size()));
  for (const std::string& piece : spec_.pieces) hasher.field(piece);
  hasher.field(static_cast<uint64_t>(spec_.merges.size()));
  for (const BpeMerge& m : spec_.merges) {
    hasher.field(pair_key(m.left, m.right)).field(static_cast<uint64_t>(m.result));
  }
  for (const int32_t id : spec_.byte_ids) hasher.field(static_cast<uint64_t>(id));
  hasher.field(uint64_t{spec_.bytes} | uint64_t{spec_.ignore_merges} << 1 |
               uint64_t{spec_.byte_fallback} << 2 | uint64_t{spec_.fuse_unknown} << 3);
  hasher.field(static_cast<uint64_t>(spec_.unknown));
}

}  // namespace blend
