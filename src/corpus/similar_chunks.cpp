#include "corpus/similar_chunks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <utility>

namespace blend {
namespace {

double term_frequency_weight(uint32_t count) {
  static const auto table = [] {
    std::array<double, 64> t{};
    for (size_t i = 1; i < t.size(); ++i) t[i] = 1.0 + std::log(static_cast<double>(i));
    return t;
  }();
  return count < table.size() ? table[count] : 1.0 + std::log(static_cast<double>(count));
}

uint64_t text_of(std::span<const int32_t> tokens) {
  return checksum64(tokens.data(), tokens.size_bytes());
}

// Doubling would leave a third of the memory of a million growing lists unused.
template <typename T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(list.size() + list.size() / 8 + 2);
}

Status check_length(std::span<const int32_t> tokens) {
  if (tokens.size() <= TermList::kMaxTokens) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "a chunk of %zu tokens; at most %zu can be compared",
                    tokens.size(), TermList::kMaxTokens);
}

}  // namespace

Status SimilarChunks::add(const Sha256& id, std::span<const int32_t> tokens) try {
  BLEND_RETURN_IF_ERROR(check_length(tokens));
  Chunk chunk{.terms = TermList(tokens), .text = text_of(tokens)};
  const MutexLock lock(mutex_);
  if (const auto it = slots_.find(id); it != slots_.end()) {
    if (chunks_[it->second].text == chunk.text) return Status::ok();
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "chunk %s is in the corpus with other tokens; remove it first",
                      to_hex(id).c_str());
  }
  if (chunks_.size() == Posting::kMaxSlots) sweep();
  if (chunks_.size() == Posting::kMaxSlots) {
    return make_error(BLEND_E_FULL, "a corpus has at most %u chunks; remove some",
                      Posting::kMaxSlots);
  }
  // All that may fail comes first. On failure only terms of no chunk and unused capacity are left.
  const bool may_be_result = tokens.size() >= options_.min_tokens;
  added_.clear();
  added_.reserve(chunk.terms.size());
  chunk.terms.for_each([&](uint32_t token, uint32_t) BLEND_REQUIRES(mutex_) {
    added_.push_back(terms_.find_or_add(token));
    if (may_be_result) make_room(terms_.postings(added_.back()));
  });
  make_room(chunks_);
  make_room(scales_);
  make_room(sums_);
  const auto slot = static_cast<uint32_t>(chunks_.size());
  chunk.entry = &*slots_.emplace(id, slot).first;

  auto index = added_.begin();
  chunk.terms.for_each([&](uint32_t, uint32_t count) BLEND_REQUIRES(mutex_) {
    terms_.count_up(*index);
    if (may_be_result) terms_.postings(*index).emplace_back(slot, count);
    ++index;
  });
  list_bytes_ += chunk.terms.bytes();
  chunks_.push_back(std::move(chunk));
  sums_.push_back(0.0f);
  scales_.push_back(may_be_result ? 1.0f : 0.0f);
  ln_n_ = std::log(static_cast<double>(slots_.size()));
  refresh_scale(slot);
  refresh_some_scales();
  return Status::ok();
} catch (const std::bad_alloc&) {
  return Status::out_of_memory();
}

bool SimilarChunks::remove(const Sha256& id) {
  const MutexLock lock(mutex_);
  const auto it = slots_.find(id);
  if (it == slots_.end()) return false;
  const uint32_t slot = it->second;
  Chunk& chunk = chunks_[slot];
  chunk.terms.for_each([&](uint32_t token, uint32_t)
                           BLEND_REQUIRES(mutex_) { terms_.count_down(terms_.find(token)); });
  list_bytes_ -= chunk.terms.bytes();
  chunk = Chunk{};
  scales_[slot] = 0.0f;
  slots_.erase(it);
  ln_n_ = slots_.empty() ? 0.0 : std::log(static_cast<double>(slots_.size()));
  if (chunks_.size() - slots_.size() > slots_.size() / 4 + 64) sweep();
  refresh_some_scales();
  return true;
}

double SimilarChunks::norm_of(const TermList& terms) const {
  double squares = 0.0;
  terms.for_each([&](uint32_t token, uint32_t count) BLEND_REQUIRES(mutex_) {
    const double w = term_frequency_weight(count) * (ln_n_ - terms_[terms_.find(token)].ln_df);
    squares += w * w;
  });
  return std::sqrt(squares);
}

void SimilarChunks::refresh_scale(uint32_t slot) {
  if (scales_[slot] == 0.0f) return;
  // A norm of 0 belongs to a chunk whose tokens are in every chunk: it may still share one.
  scales_[slot] = static_cast<float>(1.0 / std::max(norm_of(chunks_[slot].terms), 1e-9));
}

void SimilarChunks::refresh_some_scales() {
  for (size_t i = 0; i < std::min<size_t>(2, scales_.size()); ++i) {
    if (next_scale_ >= scales_.size()) next_scale_ = 0;
    refresh_scale(next_scale_++);
  }
}

// Best effort: without memory the removed chunks' entries stay until the next attempt.
void SimilarChunks::sweep() {
  std::vector<uint32_t> new_slots;
  try {
    new_slots.assign(chunks_.size(), TermTable::kNone);
  } catch (const std::bad_alloc&) {
    return;
  }
  uint32_t n = 0;
  for (uint32_t slot = 0; slot < chunks_.size(); ++slot) {
    if (chunks_[slot].entry != nullptr) new_slots[slot] = n++;
  }
  if (!terms_.renumber(new_slots)) return;
  for (uint32_t slot = 0; slot < chunks_.size(); ++slot) {
    const uint32_t to = new_slots[slot];
    if (to == TermTable::kNone || to == slot) continue;
    chunks_[to] = std::move(chunks_[slot]);
    chunks_[to].entry->second = to;
    scales_[to] = scales_[slot];
  }
  chunks_.erase(chunks_.begin() + n, chunks_.end());
  scales_.erase(scales_.begin() + n, scales_.end());
  sums_.erase(sums_.begin() + n, sums_.end());
}

Result<std::vector<SimilarChunk>> SimilarChunks::similar_to(std::span<const int32_t> tokens,
                                                            const SimilarQuery& query) const try {
  BLEND_RETURN_IF_ERROR(check_length(tokens));
  const TermList terms(tokens);
  const MutexLock lock(mutex_);
  return look_up(terms, text_of(tokens), query);
} catch (const std::bad_alloc&) {
  return Status::out_of_memory();
}

Result<std::vector<SimilarChunk>> SimilarChunks::similar_to_stored(const Sha256& id,
                                                                   const SimilarQuery& query) const
    try {
  const MutexLock lock(mutex_);
  const auto it = slots_.find(id);
  if (it == slots_.end()) {
    return make_error(BLEND_E_NOT_FOUND, "chunk %s is not in the corpus; add it first",
                      to_hex(id).c_str());
  }
  const Chunk& chunk = chunks_[it->second];
  return look_up(chunk.terms, chunk.text, query);
} catch (const std::bad_alloc&) {
  return Status::out_of_memory();
}

// Fills wanted_, the rarest term first. Returns the number of entries that step 1 walks.
size_t SimilarChunks::want(const TermList& terms) const {
  wanted_.clear();
  wanted_.reserve(terms.size());
  terms.for_each([&](uint32_t token, uint32_t count) BLEND_REQUIRES(mutex_) {
    const uint32_t index = terms_.find(token);
    if (index == TermTable::kNone) return;
    const double weight = term_frequency_weight(count) * (ln_n_ - terms_[index].ln_df);
    wanted_.push_back({index, static_cast<uint32_t>(terms_.postings(index).size()), weight});
  });
  std::sort(wanted_.begin(), wanted_.end(),
            [this](const Wanted& a, const Wanted& b) BLEND_REQUIRES(mutex_) {
              return std::pair(a.n_postings, terms_[a.index].token) <
                     std::pair(b.n_postings, terms_[b.index].token);
            });
  size_t n_postings = 0;
  for (const Wanted& w : wanted_) n_postings += w.n_postings;
  return std::min<size_t>(n_postings, options_.max_postings);
}

// Step 1: walks n_postings entries. Leaves rough similarities in candidates_, which has room.
void SimilarChunks::sum_up(size_t n_postings) const {
  std::array<float, Posting::kMaxCount + 1> of_count{};
  for (const Wanted& w : wanted_) {
    const double idf = ln_n_ - terms_[w.index].ln_df;
    for (uint32_t c = 1; c < of_count.size(); ++c) {
      // Never 0, which marks chunks that were not touched yet.
      of_count[c] = std::max(static_cast<float>(w.weight * idf * term_frequency_weight(c)), 1e-20f);
    }
    const std::vector<Posting>& list = terms_.postings(w.index);
    const size_t n = std::min<size_t>(n_postings, list.size());
    for (size_t i = 0; i < n; ++i) {
      const uint32_t slot = list[i].slot();
      if (sums_[slot] == 0.0f) touched_.push_back(slot);
      sums_[slot] += of_count[list[i].count()];
    }
    n_postings -= n;
    if (n_postings == 0) break;
  }
  for (const uint32_t slot : touched_) {
    if (scales_[slot] != 0.0f) candidates_.push_back({sums_[slot] * scales_[slot], slot});
    sums_[slot] = 0.0f;
  }
}

float SimilarChunks::similarity(const TermList& terms, double query_norm) const {
  double squares = 0.0;
  double product = 0.0;
  terms.for_each([&](uint32_t token, uint32_t count) BLEND_REQUIRES(mutex_) {
    const Term& term = terms_[terms_.find(token)];
    const double w = term_frequency_weight(count) * (ln_n_ - term.ln_df);
    squares += w * w;
    product += w * term.weight;
  });
  const double norms = std::sqrt(squares) * query_norm;
  return norms > 0.0 ? static_cast<float>(product / norms) : 0.0f;
}

Result<std::vector<SimilarChunk>> SimilarChunks::look_up(const TermList& terms, uint64_t text,
                                                         const SimilarQuery& query) const {
  std::vector<SimilarChunk> results;
  if (query.n == 0) return results;
  std::vector<uint64_t> left_out = {text};
  for (const Sha256& id : query.except) {
    if (const auto it = slots_.find(id); it != slots_.end()) {
      left_out.push_back(chunks_[it->second].text);
    }
  }
  std::sort(left_out.begin(), left_out.end());

  const size_t n_postings = want(terms);
  touched_.clear();
  touched_.reserve(std::min(n_postings, chunks_.size()));
  candidates_.clear();
  candidates_.reserve(touched_.capacity());
  passed_.clear();
  const size_t most = 4 * size_t{options_.max_candidates};
  passed_.reserve(std::min(most, candidates_.capacity()));
  results.reserve(std::min(query.n, passed_.capacity()));
  // From here on nothing allocates: Term::weight and sums_ are sure to be cleared.
  sum_up(n_postings);
  double squares = 0.0;
  terms.for_each([&](uint32_t token, uint32_t count) BLEND_REQUIRES(mutex_) {
    const uint32_t index = terms_.find(token);
    const double idf = ln_n_ - (index == TermTable::kNone ? 0.0 : terms_[index].ln_df);
    const double w = term_frequency_weight(count) * idf;
    squares += w * w;
    if (index != TermTable::kNone) terms_[index].weight = w;
  });

  const auto before = [](const Scored& a, const Scored& b) {
    return a.similarity != b.similarity ? a.similarity > b.similarity : a.slot < b.slot;
  };
  const size_t batch = candidates_.size() <= most ? most : options_.max_candidates;
  for (size_t done = 0; done < std::min(most, candidates_.size()) && results.size() < query.n;) {
    const size_t end = std::min(done + batch, candidates_.size());
    const auto at = [this](size_t i) BLEND_REQUIRES(mutex_) {
      return candidates_.begin() + static_cast<std::ptrdiff_t>(i);
    };
    if (end < candidates_.size()) std::nth_element(at(done), at(end), candidates_.end(), before);
    for (; done < end; ++done) {
      const uint32_t slot = candidates_[done].slot;
      const Chunk& chunk = chunks_[slot];
      if (std::binary_search(left_out.begin(), left_out.end(), chunk.text)) continue;
      const float s = similarity(chunk.terms, std::sqrt(squares));
      if (s >= query.min_similarity && s < query.max_similarity) passed_.push_back({s, slot});
    }
    std::sort(passed_.begin(), passed_.end(), before);
    // Chunks with equal tokens are equally similar, but others may come between them.
    results.clear();
    for (size_t i = 0; i < passed_.size() && results.size() < query.n; ++i) {
      const Chunk& chunk = chunks_[passed_[i].slot];
      bool again = false;
      for (size_t j = i; !again && j-- > 0 && passed_[j].similarity == passed_[i].similarity;) {
        again = chunks_[passed_[j].slot].text == chunk.text;
      }
      if (!again) results.push_back({chunk.entry->first, passed_[i].similarity});
    }
  }
  for (const Wanted& w : wanted_) terms_[w.index].weight = 0.0;
  return results;
}

bool SimilarChunks::contains(const Sha256& id) const {
  const MutexLock lock(mutex_);
  return slots_.contains(id);
}

size_t SimilarChunks::n_chunks() const {
  const MutexLock lock(mutex_);
  return slots_.size();
}

size_t SimilarChunks::bytes() const {
  const MutexLock lock(mutex_);
  // A node of slots_: its link and the hash; malloc adds 8 bytes to each block.
  const size_t node = sizeof(Slots::value_type) + 2 * sizeof(void*) + 8;
  return terms_.bytes() + list_bytes_ + slots_.size() * (node + 16) +
         slots_.bucket_count() * sizeof(void*) + chunks_.capacity() * sizeof(Chunk) +
         (scales_.capacity() + sums_.capacity()) * sizeof(float) +
         touched_.capacity() * sizeof(uint32_t) +
         (candidates_.capacity() + passed_.capacity()) * sizeof(Scored);
}

}  // namespace blend
