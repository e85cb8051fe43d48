// The most similar chunks of a corpus: against a float64 computation over all chunks.
#include "corpus/similar_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace blend {
namespace {

using Tokens = std::vector<int32_t>;

Sha256 id_of(size_t number) {
  Sha256 id{};
  for (size_t i = 0; i < 8; ++i) id[i] = static_cast<uint8_t>(number >> (8 * i));
  return id;
}
size_t number_of(const Sha256& id) {
  size_t number = 0;
  for (size_t i = 0; i < 8; ++i) number |= static_cast<size_t>(id[i]) << (8 * i);
  return number;
}

// Chunks by number, in the order of adding.
using Corpus = std::map<size_t, Tokens>;
using Found = std::vector<std::pair<size_t, float>>;

// All similarities, by counting.
class Reference {
 public:
  explicit Reference(const Corpus& corpus) : corpus_(corpus) {
    std::map<int32_t, double> df;
    for (const auto& [number, chunk] : corpus) {
      Tokens distinct = chunk;
      std::sort(distinct.begin(), distinct.end());
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
      for (const int32_t t : distinct) df[t] += 1.0;
    }
    df_ = std::move(df);
    for (const auto& [number, chunk] : corpus) {
      const auto w = weights(chunk);
      weights_[number] = {w, norm(w)};
    }
  }
  Found similar(const Tokens& chunk, const SimilarQuery& query) const {
    const Weights mine = weights(chunk);
    const double my_norm = norm(mine);
    Found found;
    for (const auto& [number, other] : corpus_) {
      const bool excepted = std::any_of(query.except.begin(), query.except.end(),
                                        [n = number](const Sha256& id) { return id == id_of(n); });
      if (other == chunk || other.size() <= 10 || excepted) continue;
      const auto& [theirs, their_norm] = weights_.at(number);
      double product = 0.0;
      bool shared = false;
      for (const auto& [token, w] : mine) {
        const auto it = theirs.find(token);
        if (it == theirs.end()) continue;
        shared = true;
        product += w * it->second;
      }
      const double norms = my_norm * their_norm;
      const auto s = static_cast<float>(norms > 0.0 ? product / norms : 0.0);
      if (shared && s >= query.min_similarity && s < query.max_similarity)
        found.emplace_back(number, s);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (found.size() > query.n) found.resize(query.n);
    return found;
  }

 private:
  using Weights = std::map<int32_t, double>;
  Weights weights(const Tokens& tokens) const {
    Weights w;
    for (const int32_t t : tokens) w[t] += 1.0;
    for (auto& [token, weight] : w) {
      const auto it = df_.find(token);
      const double df = it == df_.end() ? 1.0 : it->second;
      weight = (1.0 + std::log(weight)) * std::log(static_cast<double>(corpus_.size()) / df);
    }
    return w;
  }
  static double norm(const Weights& weights) {
    double squares = 0.0;
    for (const auto& [token, w] : weights) squares += w * w;
    return std::sqrt(squares);
  }

  const Corpus& corpus_;
  Weights df_;
  std::map<size_t, std::pair<Weights, double>> weights_;  // and the norm
};

Found numbers(const Result<std::vector<SimilarChunk>>& result) {
  EXPECT_TRUE(result.is_ok()) << result.status().message();
  Found found;
  if (result.is_ok()) {
    for (const SimilarChunk& c : result.value()) found.emplace_back(number_of(c.id), c.similarity);
  }
  return found;
}

// Draws chunks as texts have them: frequent tokens are far more frequent than rare ones, and a
// topic makes some tokens frequent. Some chunks are short, some almost copies of an earlier one.
class TextDraw {
 public:
  explicit TextDraw(uint64_t seed) : rng_(seed) {}

  Tokens draw() {
    if (!drawn_.empty() && rng_() % 10 == 0) {
      Tokens copy = drawn_[rng_() % drawn_.size()];
      if (!copy.empty()) copy[rng_() % copy.size()] = token(0);
      return keep(copy);
    }
    Tokens t(rng_() % 12 == 0 ? rng_() % 14 : 20 + rng_() % 100);
    const size_t topic = 1 + rng_() % 20;
    for (int32_t& token_id : t) token_id = token(rng_() % 3 == 0 ? topic : 0);
    return keep(t);
  }
  uint64_t number() { return rng_(); }

 private:
  Tokens keep(Tokens t) {
    drawn_.push_back(t);
    return t;
  }
  int32_t token(size_t topic) {
    const double u = std::uniform_real_distribution<double>(0.0, 1.0)(rng_);
    const auto rank = static_cast<int32_t>(std::exp(u * std::log(topic == 0 ? 5'000.0 : 60.0)));
    return topic == 0 ? rank : static_cast<int32_t>(5'000 + 60 * topic) + rank;
  }

  std::mt19937_64 rng_;
  std::vector<Tokens> drawn_;
};

void must_add(SimilarChunks& index, size_t number, const Tokens& tokens) {
  const Status status = index.add(id_of(number), tokens);
  ASSERT_TRUE(status.is_ok()) << status.message();
}

void expect_same(const Found& got, const Found& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].first) << what << ", result " << i;
    EXPECT_FLOAT_EQ(got[i].second, want[i].second) << what << ", result " << i;
  }
}

TEST(SimilarChunks, AreThoseOfAComputationOverAllChunks) {
  TextDraw text(1);
  Corpus corpus;
  SimilarChunks index;
  for (size_t i = 0; i < 400; ++i) {
    corpus[i] = text.draw();
    must_add(index, i, corpus[i]);
  }
  const Reference reference(corpus);
  const std::vector<Sha256> except = {id_of(3), id_of(77), id_of(1'000)};
  for (const SimilarQuery& query :
       {SimilarQuery{.n = 4}, SimilarQuery{.n = 1'000},
        SimilarQuery{.n = 50, .min_similarity = 0.1f, .max_similarity = 0.5f},
        SimilarQuery{.n = 30, .except = except}}) {
    for (size_t i = 0; i < corpus.size(); i += 7) {
      const Found want = reference.similar(corpus[i], query);
      expect_same(numbers(index.similar_to(corpus[i], query)), want, "chunk " + std::to_string(i));
      expect_same(numbers(index.similar_to_stored(id_of(i), query)), want,
                  "stored chunk " + std::to_string(i));
    }
    const Tokens stranger = text.draw();
    expect_same(numbers(index.similar_to(stranger, query)), reference.similar(stranger, query),
                "a chunk of no corpus");
  }
}

TEST(SimilarChunks, AreThoseOfAComputationOverRandomTokens) {
  std::mt19937_64 rng(2);
  Corpus corpus;
  SimilarChunks index;
  for (size_t i = 0; i < 300; ++i) {
    corpus[i].resize(5 + rng() % 60);
    for (int32_t& t : corpus[i]) t = static_cast<int32_t>(rng() % 200) * 21'474'836 - INT_MAX / 2;
    must_add(index, i, corpus[i]);
  }
  const Reference reference(corpus);
  for (const auto& [number, chunk] : corpus) {
    const SimilarQuery query{.n = 10};
    expect_same(numbers(index.similar_to(chunk, query)), reference.similar(chunk, query),
                "chunk " + std::to_string(number));
  }
}

// Chunks come and go; after that, all answers are those of an index of what is left.
TEST(SimilarChunks, AreTheSameAfterChangesAsInAnIndexMadeAtOnce) {
  TextDraw text(3);
  Corpus corpus;
  SimilarChunks index;
  size_t next = 0;
  const auto add_some = [&](size_t n) {
    for (size_t i = 0; i < n; ++i, ++next) must_add(index, next, corpus[next] = text.draw());
  };
  const auto remove_some = [&](size_t n) {
    for (size_t i = 0; i < n; ++i) {
      auto victim = corpus.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(text.number() % corpus.size()));
      EXPECT_TRUE(index.remove(id_of(victim->first)));
      corpus.erase(victim);
    }
  };
  const auto check = [&](const std::string& when) {
    SimilarChunks made_at_once;
    for (const auto& [number, chunk] : corpus) must_add(made_at_once, number, chunk);
    EXPECT_EQ(index.n_chunks(), corpus.size());
    const Reference reference(corpus);
    const SimilarQuery query{.n = 20};
    for (size_t number = 0; number < next; number += 5) {
      EXPECT_EQ(index.contains(id_of(number)), corpus.contains(number));
      if (!corpus.contains(number)) continue;
      const Found found = numbers(index.similar_to_stored(id_of(number), query));
      EXPECT_EQ(found, numbers(made_at_once.similar_to_stored(id_of(number), query))) << when;
      expect_same(found, reference.similar(corpus[number], query), when);
    }
  };
  add_some(150);
  check("after adding");
  remove_some(30);  // too few to be swept out
  check("after a few were removed");
  add_some(100);
  remove_some(170);
  check("after a sweep");
  add_some(200);
  check("after slots were used again");
  remove_some(corpus.size());
  EXPECT_EQ(index.n_chunks(), 0U);
  EXPECT_TRUE(numbers(index.similar_to(text.draw(), {})).empty());
  add_some(50);
  check("after all were removed");
}

TEST(SimilarChunks, RemovedChunksGiveTheirMemoryBack) {
  TextDraw text(4);
  SimilarChunks index;
  std::vector<size_t> bytes;
  for (size_t round = 0; round < 4; ++round) {
    for (size_t i = 0; i < 500; ++i) {
      Tokens tokens = text.draw();
      for (int32_t& t : tokens) t += static_cast<int32_t>(round << 24);  // that no other round has
      must_add(index, 1'000 * round + i, tokens);
    }
    bytes.push_back(index.bytes());
    for (size_t i = 0; i < 500; ++i) EXPECT_TRUE(index.remove(id_of(1'000 * round + i)));
  }
  EXPECT_LT(static_cast<double>(bytes[3]), 1.3 * static_cast<double>(bytes[1]));
}

// Twelve tokens, so that it may be a result: these, and others of no other chunk.
Tokens with_unique(Tokens tokens, int32_t first) {
  while (tokens.size() < 12) tokens.push_back(1'000 + first++);
  return tokens;
}

TEST(SimilarChunks, EqualOnesComeInTheOrderOfAdding) {
  SimilarChunks index;
  // Numbers descend, so that their order is not that of adding.
  const std::vector<size_t> added = {90, 70, 50, 30, 10};
  int32_t unique = 0;
  for (const size_t number : added) {
    must_add(index, number, with_unique({1, 2, 3}, unique));
    unique += 100;
  }
  must_add(index, 5, with_unique({}, 900));
  const Found found = numbers(index.similar_to(with_unique({1, 2, 3}, 800), {.n = 3}));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].second, found[2].second);
  EXPECT_EQ(found[0].first, 90U);
  EXPECT_EQ(found[1].first, 70U);
  EXPECT_EQ(found[2].first, 50U);
  EXPECT_TRUE(index.remove(id_of(70)));
  must_add(index, 70, with_unique({1, 2, 3}, 100));  // it is the last one now
  const Found later = numbers(index.similar_to(with_unique({1, 2, 3}, 800), {.n = 5}));
  ASSERT_EQ(later.size(), 5U);
  EXPECT_EQ(later[1].first, 50U);
  EXPECT_EQ(later[4].first, 70U);
}

TEST(SimilarChunks, AsSimilarAsTheBoundIsLeftOut) {
  SimilarChunks index;
  must_add(index, 1, with_unique({1, 2, 3, 4, 5, 6}, 0));
  must_add(index, 2, with_unique({1, 2}, 100));
  must_add(index, 3, with_unique({}, 200));
  const Tokens chunk = with_unique({1, 2, 3, 4, 5, 6}, 300);
  const Found all = numbers(index.similar_to(chunk, {}));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].first, 1U);
  const float top = all[0].second;
  EXPECT_EQ(numbers(index.similar_to(chunk, {.max_similarity = top})), Found({all[1]}));
  EXPECT_EQ(numbers(index.similar_to(chunk, {.max_similarity = std::nextafter(top, 1.0f)})), all);
  EXPECT_EQ(numbers(index.similar_to(chunk, {.min_similarity = top})), Found({all[0]}));
  EXPECT_EQ(numbers(index.similar_to(chunk, {.min_similarity = std::nextafter(top, 1.0f)})),
            Found());
  // By default a chunk with nine tenths in common is not a context.
  must_add(index, 4, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21});
  const Tokens near = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22};
  for (const auto& [number, similarity] : numbers(index.similar_to(near, {})))
    EXPECT_NE(number, 4U);
  EXPECT_EQ(numbers(index.similar_to(near, {.n = 1, .max_similarity = 1.0f})).at(0).first, 4U);
}

TEST(SimilarChunks, ShortOnesAreNeverResultsButCount) {
  const Tokens chunk = with_unique({1, 2, 3}, 0);
  const Tokens like = with_unique({1, 2, 4}, 100);
  SimilarChunks without;
  SimilarChunks with;
  for (SimilarChunks* index : {&without, &with}) {
    must_add(*index, 1, like);
    must_add(*index, 2, with_unique({7}, 200));
    must_add(*index, 3, with_unique({8}, 300));
  }
  must_add(with, 4, {1, 2, 3, 9, 10, 11, 12, 13, 14, 15});  // ten tokens
  const Found found = numbers(with.similar_to(chunk, {}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, 1U);
  EXPECT_NE(found[0].second, numbers(without.similar_to(chunk, {})).at(0).second);
  must_add(with, 5, {1, 2, 3, 9, 10, 11, 12, 13, 14, 15, 16});  // eleven
  EXPECT_EQ(numbers(with.similar_to(chunk, {})).at(0).first, 5U);
}

TEST(SimilarChunks, TheChunkItselfIsLeftOutUnderAnyId) {
  SimilarChunks index;
  const Tokens chunk = with_unique({1, 2}, 0);
  const Tokens other = with_unique({1, 2}, 100);
  must_add(index, 1, chunk);
  must_add(index, 2, chunk);
  must_add(index, 3, other);
  must_add(index, 4, other);
  must_add(index, 5, with_unique({1}, 200));
  must_add(index, 6, with_unique({}, 300));
  const SimilarQuery all{.max_similarity = 2.0f};
  const Found found = numbers(index.similar_to_stored(id_of(2), all));
  ASSERT_EQ(found.size(), 2U);  // and another text once, as which it was added first
  EXPECT_EQ(found[0].first, 3U);
  EXPECT_EQ(found[1].first, 5U);
  const std::vector<Sha256> except = {id_of(4)};
  EXPECT_EQ(numbers(index.similar_to(chunk, {.max_similarity = 2.0f, .except = except})),
            Found({found[1]}));
  // The same tokens in another order are another chunk.
  Tokens turned = chunk;
  std::reverse(turned.begin(), turned.end());
  EXPECT_EQ(numbers(index.similar_to(turned, all)).at(0).first, 1U);
}

// Only tokens of all chunks are shared: similarity 0, but shared.
TEST(SimilarChunks, SharingATokenIsEnough) {
  SimilarChunks index;
  must_add(index, 1, with_unique({1}, 0));
  must_add(index, 2, with_unique({1}, 100));
  EXPECT_EQ(numbers(index.similar_to_stored(id_of(1), {})), Found({{2, 0.0f}}));
  EXPECT_TRUE(numbers(index.similar_to_stored(id_of(1), {.min_similarity = 1e-6f})).empty());
  must_add(index, 3, with_unique({}, 200));
  EXPECT_TRUE(numbers(index.similar_to_stored(id_of(3), {})).empty());
}

TEST(SimilarChunks, AnIdStandsForOneText) {
  SimilarChunks index;
  must_add(index, 1, with_unique({1}, 0));
  must_add(index, 1, with_unique({1}, 0));
  EXPECT_EQ(index.n_chunks(), 1U);
  const Status other = index.add(id_of(1), with_unique({2}, 0));
  EXPECT_EQ(other.code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(other.message().find("0100"), std::string::npos) << other.message();
  EXPECT_EQ(index.similar_to_stored(id_of(2), {}).status().code(), BLEND_E_NOT_FOUND);
  EXPECT_FALSE(index.remove(id_of(2)));
  EXPECT_TRUE(index.remove(id_of(1)));
  EXPECT_FALSE(index.remove(id_of(1)));
  must_add(index, 1, with_unique({2}, 0));
}

TEST(SimilarChunks, OddChunksDoNoHarm) {
  SimilarChunks index;
  const std::vector<Tokens> odd = {
      {},
      {7},
      Tokens(100'000, 7),
      Tokens(20, -1),
      {INT_MIN, INT_MAX, -1, 0, 1, 1 << 20, (1 << 20) - 1, 2, 3, 4, 5, 6}};
  Tokens huge(100'000);
  for (size_t i = 0; i < huge.size(); ++i) huge[i] = static_cast<int32_t>(i * 42'017);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < odd.size(); ++i) must_add(index, i, odd[i]);
    must_add(index, odd.size(), huge);
    for (const Tokens& chunk : odd) {
      for (const auto& [number, similarity] : numbers(index.similar_to(chunk, {.n = SIZE_MAX}))) {
        EXPECT_GE(number, 2U);
        EXPECT_TRUE(similarity >= 0.0f && similarity < 0.9f) << similarity;
      }
    }
    EXPECT_FALSE(numbers(index.similar_to(huge, {})).empty());
    EXPECT_TRUE(numbers(index.similar_to(odd[0], {})).empty());
    EXPECT_TRUE(numbers(index.similar_to(huge, {.n = 0})).empty());
    for (size_t i = 0; i <= odd.size(); ++i) EXPECT_TRUE(index.remove(id_of(i)));
  }
  const std::span<const int32_t> endless(huge.data(), TermList::kMaxTokens + 1);  // never read
  EXPECT_EQ(index.add(id_of(1), endless).code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(index.similar_to(endless, {}).status().code(), BLEND_E_INVALID_ARGUMENT);
}

// Past the limits: some chunks are missed, but what is found has its true similarity, and the most
// similar chunk, which shares rare tokens, is among it.
TEST(SimilarChunks, LimitsKeepWhatSharesRareTokens) {
  TextDraw text(5);
  Corpus corpus;
  SimilarChunks index({.max_postings = 4'000, .max_candidates = 50});
  for (size_t i = 0; i < 1'500; ++i) must_add(index, i, corpus[i] = text.draw());
  const Reference reference(corpus);
  size_t n = 0;
  size_t n_same = 0;
  for (size_t i = 0; i < corpus.size(); i += 23) {
    const Found every = reference.similar(corpus[i], {.n = corpus.size()});
    const Found found = numbers(index.similar_to(corpus[i], {}));
    for (const auto& [number, similarity] : found) {
      const auto it = std::find_if(every.begin(), every.end(),
                                   [n = number](const auto& e) { return e.first == n; });
      ASSERT_NE(it, every.end());
      EXPECT_FLOAT_EQ(similarity, it->second);
    }
    if (every.empty() || corpus[i].size() < 20) continue;
    ++n;
    n_same += !found.empty() && found[0].first == every[0].first ? 1 : 0;
  }
  EXPECT_GE(n_same, n * 19 / 20) << "of " << n;
}

// Rough similarities take 15 occurrences for the most. Four chunks per candidate are all compared.
TEST(SimilarChunks, FewCandidatesAreAllCompared) {
  SimilarChunks index({.max_candidates = 1});
  const auto repeated = [](size_t times, int32_t first) {
    Tokens tokens = with_unique({}, first);
    tokens.insert(tokens.end(), times, 1);
    return tokens;
  };
  must_add(index, 1, repeated(15, 0));
  must_add(index, 2, repeated(1'000, 100));
  for (size_t i = 3; i < 10; ++i)
    must_add(index, i, with_unique({}, static_cast<int32_t>(100 * i)));
  const SimilarQuery query{.n = 1, .max_similarity = 2.0f};
  EXPECT_EQ(numbers(index.similar_to(Tokens{1, 1}, query)).at(0).first, 2U);
  for (size_t i = 11; i < 14; ++i) must_add(index, i, repeated(1, static_cast<int32_t>(100 * i)));
  EXPECT_EQ(numbers(index.similar_to(Tokens{1, 1}, query)).at(0).first, 1U);  // five: no longer
}

// Norms of an earlier corpus only order the candidates: they are refreshed as the corpus changes.
TEST(SimilarChunks, RoughSimilaritiesFollowTheCorpus) {
  SimilarChunks index({.max_candidates = 1});
  // Added to an empty corpus, where all its tokens have weight 0, and so its norm.
  must_add(index, 1, with_unique({5}, 0));
  must_add(index, 2, with_unique({1, 5}, 100));
  for (size_t i = 3; i < 200; ++i)
    must_add(index, i, with_unique({1}, static_cast<int32_t>(200 * i)));
  const Found found = numbers(index.similar_to(with_unique({5}, 50'000), {.n = 1}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, 2U);  // a token of hardly any weight in place of a rare one
}

}  // namespace
}  // namespace blend
