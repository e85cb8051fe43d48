#include "corpus/term_table.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace blend {

uint32_t TermTable::find_or_add(uint32_t token) {
  if (const uint32_t found = find(token); found != kNone) return found;
  if (token < kNear && token >= near_.size()) {
    near_.resize(std::min<size_t>(kNear, token + token / 2 + 256), kNone);
  }
  if (free_.empty()) {
    free_.reserve(terms_.size() + 1);  // so that nothing fails after a term was made
    if (postings_.size() == terms_.size()) postings_.emplace_back();
    terms_.emplace_back();
    free_.push_back(static_cast<uint32_t>(terms_.size() - 1));
  }
  const uint32_t index = free_.back();
  if (token < kNear) {
    near_[token] = index;
  } else {
    far_.emplace(token, index);
  }
  free_.pop_back();
  terms_[index] = Term{.token = token};
  return index;
}

void TermTable::count_up(uint32_t index) {
  Term& t = terms_[index];
  t.ln_df = std::log(static_cast<double>(++t.n_chunks));
}

void TermTable::count_down(uint32_t index) {
  Term& t = terms_[index];
  t.ln_df = --t.n_chunks == 0 ? 0.0 : std::log(static_cast<double>(t.n_chunks));
}

bool TermTable::renumber(const std::vector<uint32_t>& new_slots) {
  std::vector<bool> free;
  try {
    free.assign(terms_.size(), false);
    free_.reserve(terms_.size());
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (const uint32_t index : free_) free[index] = true;
  for (uint32_t index = 0; index < terms_.size(); ++index) {
    std::vector<Posting>& list = postings_[index];
    size_t kept = 0;
    for (const Posting p : list) {
      const uint32_t slot = new_slots[p.slot()];
      if (slot != kNone) list[kept++] = Posting(slot, p.count());
    }
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept), list.end());
    Term& t = terms_[index];
    if (t.n_chunks > 0 || free[index]) continue;
    std::vector<Posting>().swap(list);
    if (t.token < kNear) {
      near_[t.token] = kNone;
    } else {
      far_.erase(t.token);
    }
    free_.push_back(index);
  }
  return true;
}

size_t TermTable::bytes() const {
  size_t sum = (near_.capacity() + free_.capacity()) * sizeof(uint32_t) +
               far_.size() * 4 * sizeof(void*) + terms_.capacity() * sizeof(Term) +
               postings_.capacity() * sizeof(decltype(postings_)::value_type);
  for (const std::vector<Posting>& list : postings_) sum += list.capacity() * sizeof(Posting);
  return sum;
}

}  // namespace blend
