// TermTable: a corpus's tokens, each with the number of chunks that have it and the list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace blend {

// A chunk that has the term: its slot, and how often it has the term (15 means 15 or more).
class Posting {
 public:
  static constexpr uint32_t kMaxCount = 15;
  static constexpr uint32_t kMaxSlots = 1U << 28;

  Posting(uint32_t slot, uint32_t count)
      : word_(slot << 4 | (count < kMaxCount ? count : kMaxCount)) {}
  uint32_t slot() const { return word_ >> 4; }
  uint32_t count() const { return word_ & 15U; }

 private:
  uint32_t word_;
};

struct Term {
  double ln_df = 0.0;   // ln of n_chunks
  double weight = 0.0;  // in the chunk that is being looked up; 0 between look-ups
  uint32_t n_chunks = 0;
  uint32_t token = 0;
};

// Not thread-safe. Token ids are any 32 bits; those below 2^20, which all vocabularies have, are
// found in an array, others in a hash table.
class TermTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The token's index, or kNone. An index holds until drop_unused().
  uint32_t find(uint32_t token) const {
    if (token < near_.size()) return near_[token];
    if (token < kNear) return kNone;
    const auto it = far_.find(token);
    return it == far_.end() ? kNone : it->second;
  }
  // The same, with a new term of no chunk where there is none. bad_alloc without memory; nothing
  // has changed then.
  uint32_t find_or_add(uint32_t token);

  Term& operator[](uint32_t index) { return terms_[index]; }
  const Term& operator[](uint32_t index) const { return terms_[index]; }
  std::vector<Posting>& postings(uint32_t index) { return postings_[index]; }
  const std::vector<Posting>& postings(uint32_t index) const { return postings_[index]; }

  // One more or one less chunk has the term. Its list is the caller's task.
  void count_up(uint32_t index);
  void count_down(uint32_t index);

  // Renumbers the slots of all lists: new_slots[slot], ascending, or kNone for those that leave.
  // Then forgets terms that no chunk has. False, with nothing changed: no memory.
  bool renumber(const std::vector<uint32_t>& new_slots);

  size_t bytes() const;  // an estimate of the heap memory

 private:
  static constexpr uint32_t kNear = 1U << 20;

  std::vector<uint32_t> near_;  // by token
  std::unordered_map<uint32_t, uint32_t> far_;
  std::vector<Term> terms_;
  std::vector<std::vector<Posting>> postings_;  // by index
  std::vector<uint32_t> free_;                  // indices of no term
};

}  // namespace blend
