#include "corpus/clusters.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace blend {
namespace {

// Neighbors that are looked for: most of them may be in other clusters.
constexpr size_t kLookedFor = 64;

// The same numbers everywhere (splitmix64).
uint64_t next(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

class Builder {
 public:
  Builder(std::span<const ClusterText> texts, const SimilarChunks& index,
          const ClusterLimits& limits, bool long_ones)
      : texts_(texts),
        index_(index),
        limits_(limits),
        long_ones_(long_ones),
        most_(std::min(limits.most_tokens, long_ones ? kMostClusterTokens : kShortClusterTokens)),
        taken_(texts.size(), false) {
    for (size_t i = 0; i < texts.size(); ++i) places_.emplace(texts[i].id, i);
    query_.n = kLookedFor;
    query_.min_similarity = limits.min_similarity;
  }

  Status run(const Watch& watch) {
    for (size_t i = 0; i < texts_.size(); ++i) {
      BLEND_RETURN_IF_ERROR(watch.check());
      if (!taken_[i] && takes(i)) BLEND_RETURN_IF_ERROR(gather(i));
    }
    return finish();
  }
  std::vector<Cluster> clusters() && { return std::move(clusters_); }

 private:
  struct Some {
    std::vector<size_t> chunks;
    size_t n_tokens = 0;
    std::unordered_set<size_t> barred;  // themselves, and what says the same
  };

  size_t length(size_t i) const { return texts_[i].tokens.size(); }
  bool takes(size_t i) const {
    return (length(i) >= kLongChunk) == long_ones_ && length(i) * kLeastClusterChunks <= most_;
  }
  static bool enough(const Some& some) { return some.chunks.size() >= kLeastClusterChunks; }

  Result<std::vector<size_t>> similar_to(size_t i, const SimilarQuery& query) const {
    BLEND_ASSIGN(const std::vector<SimilarChunk> similar,
                 index_.similar_to(texts_[i].tokens, query));
    std::vector<size_t> out;
    for (const SimilarChunk& other : similar) {
      const auto place = places_.find(other.id);
      if (place == places_.end() || place->second == i || !takes(place->second)) continue;
      out.push_back(place->second);
    }
    return out;
  }
  Status bar(Some& some, size_t i) const {
    SimilarQuery copies;
    copies.n = kLookedFor;
    copies.min_similarity = query_.max_similarity;
    copies.max_similarity = 2.0f;
    BLEND_ASSIGN(const std::vector<size_t> same, similar_to(i, copies));
    some.barred.insert(i);
    some.barred.insert(same.begin(), same.end());
    return Status::ok();
  }
  Status add(Some& some, size_t i) const {
    some.chunks.push_back(i);
    some.n_tokens += length(i);
    return bar(some, i);
  }
  bool fits(const Some& some, size_t i) const {
    return some.n_tokens + length(i) <= most_ && !some.barred.contains(i);
  }

  // Text i and those like it: a cluster, or some of the rest.
  Status gather(size_t i) {
    BLEND_ASSIGN(const std::vector<size_t> similar, similar_to(i, query_));
    Some some;
    BLEND_RETURN_IF_ERROR(add(some, i));
    for (const size_t j : similar) {
      if (!taken_[j] && fits(some, j)) BLEND_RETURN_IF_ERROR(add(some, j));
    }
    for (const size_t j : some.chunks) taken_[j] = true;
    if (enough(some) && some.n_tokens >= most_ / 2) {
      clusters_.push_back({std::move(some.chunks), {}});
      return Status::ok();
    }
    const bool with_rest = mixed() && rest_.n_tokens + some.n_tokens <= most_ &&
                           std::none_of(some.chunks.begin(), some.chunks.end(),
                                        [this](size_t j) { return rest_.barred.contains(j); });
    if (!with_rest) {
      if (enough(rest_)) clusters_.push_back({std::move(rest_.chunks), {}});
      rest_ = std::move(some);
      return Status::ok();
    }
    rest_.chunks.insert(rest_.chunks.end(), some.chunks.begin(), some.chunks.end());
    rest_.n_tokens += some.n_tokens;
    rest_.barred.merge(some.barred);
    return Status::ok();
  }
  bool mixed() const { return limits_.min_similarity <= 0; }

  Status finish() {
    if (rest_.chunks.empty()) return Status::ok();
    if (!mixed()) {
      if (enough(rest_)) clusters_.push_back({std::move(rest_.chunks), {}});
      return Status::ok();
    }
    // With companions it costs a cluster, which a run that has others can bear.
    if (!enough(rest_) && clusters_.empty()) return Status::ok();
    Cluster last{rest_.chunks, {}};
    BLEND_RETURN_IF_ERROR(add_companions(last));
    if (enough(rest_)) clusters_.push_back(std::move(last));
    return Status::ok();
  }
  // Chunks most like those of the rest in turn.
  Status add_companions(Cluster& cluster) {
    std::vector<std::vector<size_t>> similar;
    for (const size_t i : cluster.chunks) {
      BLEND_ASSIGN(auto of_chunk, similar_to(i, query_));
      similar.push_back(std::move(of_chunk));
    }
    for (size_t rank = 0; rank < kLookedFor; ++rank) {
      for (const std::vector<size_t>& list : similar) {
        if (rank >= list.size() || !fits(rest_, list[rank])) continue;
        cluster.companions.push_back(list[rank]);
        BLEND_RETURN_IF_ERROR(add(rest_, list[rank]));
      }
    }
    return Status::ok();
  }

  const std::span<const ClusterText> texts_;
  const SimilarChunks& index_;
  const ClusterLimits limits_;
  const bool long_ones_;
  const size_t most_;  // tokens of a cluster
  SimilarQuery query_;
  std::unordered_map<Sha256, size_t, Sha256Hash> places_;
  std::vector<bool> taken_;
  std::vector<Cluster> clusters_;
  Some rest_;  // left over so far
};

}  // namespace

Result<std::vector<Cluster>> clusters_of(std::span<const ClusterText> texts,
                                         const SimilarChunks& index, const ClusterLimits& limits,
                                         const Watch& watch) {
  std::vector<Cluster> clusters;
  for (const bool long_ones : {false, true}) {
    Builder builder(texts, index, limits, long_ones);
    BLEND_RETURN_IF_ERROR(builder.run(watch));
    std::vector<Cluster> more = std::move(builder).clusters();
    clusters.insert(clusters.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  }
  return clusters;
}

Result<std::vector<size_t>> nearest_in(const Cluster& cluster, size_t text,
                                       std::span<const ClusterText> texts,
                                       const SimilarChunks& index, size_t most) {
  std::vector<size_t> others;
  for (const auto* part : {&cluster.chunks, &cluster.companions}) {
    std::copy_if(part->begin(), part->end(), std::back_inserter(others),
                 [text](size_t i) { return i != text; });
  }
  SimilarQuery query;
  query.n = kLookedFor;
  BLEND_ASSIGN(const std::vector<SimilarChunk> similar,
               index.similar_to(texts[text].tokens, query));
  std::vector<size_t> out;
  for (const SimilarChunk& other : similar) {
    const auto found = std::find_if(others.begin(), others.end(),
                                    [&](size_t i) { return texts[i].id == other.id; });
    if (found == others.end()) continue;
    out.push_back(*found);
    others.erase(found);
  }
  out.insert(out.end(), others.begin(), others.end());
  if (out.size() > most) out.resize(most);
  return out;
}

std::vector<std::vector<size_t>> orders_of(size_t n, size_t passes) {
  std::vector<std::vector<size_t>> orders;
  uint64_t state = 0;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t pass = 0; pass < passes; ++pass) {
    for (size_t i = n; i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(next(state) % i)]);
    }
    orders.push_back(order);
  }
  return orders;
}

}  // namespace blend
