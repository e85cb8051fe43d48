// How fast are the most similar chunks of a corpus found, in what memory, and which are missed?
//
// The chunks are made up: tokens by Zipf's law, and a part of each from the tokens of a topic. With
// --exact the answers are compared with those of an index without limits.
#include "corpus/similar_chunks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/memory.h"

namespace {

using blend::Sha256;
using blend::SimilarChunk;
using blend::SimilarChunks;
using blend::bench::must;

// CPU time of this thread: nothing here waits, and other programs on the machine do not count.
double cpu_now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Spec {
  uint32_t n_tokens = 256;
  uint32_t n_vocab = 50'000;
  uint32_t n_topics = 2'000;
  uint32_t topic_tokens = 200;
  double topic_share = 0.2;
};

// Chunk number `i` is the same for every corpus size.
class ChunkDraw {
 public:
  explicit ChunkDraw(const Spec& spec) : spec_(spec) {
    double sum = 0.0;
    for (uint32_t rank = 1; rank <= spec.n_vocab; ++rank) cumulated_.push_back(sum += 1.0 / rank);
  }
  void draw(uint64_t i, std::vector<int32_t>& tokens) const {
    std::mt19937_64 rng(i * 0x9E3779B97F4A7C15ULL + 1);
    std::uniform_real_distribution<double> unit(0.0, 1.0);
    const uint64_t topic = rng() % spec_.n_topics;
    tokens.resize(spec_.n_tokens);
    for (int32_t& t : tokens) {
      if (unit(rng) < spec_.topic_share) {
        const double u = unit(rng);  // a topic's tokens are also not alike
        const auto k = static_cast<uint64_t>(u * u * spec_.topic_tokens);
        t = static_cast<int32_t>((topic * 7'919 + k * 104'729) % spec_.n_vocab);
      } else {
        const auto at =
            std::lower_bound(cumulated_.begin(), cumulated_.end(), unit(rng) * cumulated_.back());
        t = static_cast<int32_t>(at - cumulated_.begin());
      }
    }
  }

 private:
  const Spec spec_;
  std::vector<double> cumulated_;
};

Sha256 id_of(uint64_t number) {
  number *= 0x9E3779B97F4A7C15ULL;
  Sha256 id{};
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v.empty()
             ? 0
             : v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

// The share of the results of `exact` that `found` has.
double recall(const std::vector<SimilarChunk>& found, const std::vector<SimilarChunk>& exact) {
  size_t n = 0;
  for (const SimilarChunk& e : exact) {
    n += std::any_of(found.begin(), found.end(), [&](const auto& f) { return f.id == e.id; }) ? 1
                                                                                              : 0;
  }
  return exact.empty() ? 1.0 : static_cast<double>(n) / static_cast<double>(exact.size());
}

int run(int argc, char** argv) {
  std::vector<uint64_t> sizes = {10'000, 100'000, 1'000'000};
  uint64_t n_queries = 200;
  uint64_t n_removed = 0;
  bool compare = false;
  Spec spec;
  blend::SimilarChunksOptions options;
  std::string json;
  CLI::App app{"The most similar chunks of a corpus: time, memory, what is missed"};
  app.add_option("--chunks", sizes, "Sizes of the corpus, ascending")->capture_default_str();
  app.add_option("--queries", n_queries, "Look-ups for each size")->capture_default_str();
  app.add_option("--remove", n_removed, "Chunks removed at the end")->capture_default_str();
  app.add_option("--tokens", spec.n_tokens, "Of a chunk")->capture_default_str();
  app.add_option("--vocabulary", spec.n_vocab)->capture_default_str();
  app.add_option("--topics", spec.n_topics)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--topic-share", spec.topic_share,
                 "Tokens from the topic; 0: no two chunks are related")
      ->capture_default_str();
  app.add_option("--postings", options.max_postings, "Limit of a look-up")->capture_default_str();
  app.add_option("--candidates", options.max_candidates, "Limit of a look-up")
      ->capture_default_str();
  app.add_flag("--exact", compare, "Also compare with the same corpus without limits");
  app.add_option("--json", json, "File for the figures");
  CLI11_PARSE(app, argc, argv);

  const ChunkDraw chunks(spec);
  SimilarChunks index(options);
  SimilarChunks exact({.max_postings = UINT32_MAX, .max_candidates = UINT32_MAX / 4});
  std::vector<int32_t> tokens;
  nlohmann::json out = nlohmann::json::array();
  std::printf("%10s %12s %12s %12s %10s %10s %10s %10s %8s\n", "chunks", "add us", "bytes",
              "resident", "p50 ms", "p95 ms", "max ms", "same top", "recall");
  uint64_t n = 0;
  double add_s = 0.0;
  const uint64_t resident = blend::bench::own_bytes();
  for (const uint64_t size : sizes) {
    double added_s = 0.0;
    const uint64_t first = n;
    for (; n < size; ++n) {
      chunks.draw(n, tokens);
      const double begin = cpu_now();
      must(index.add(id_of(n), tokens));
      added_s += (cpu_now() - begin);
    }
    const uint64_t own = blend::bench::own_bytes() - resident;
    if (compare) {
      for (uint64_t i = first; i < size; ++i) {
        chunks.draw(i, tokens);
        must(exact.add(id_of(i), tokens));
      }
    }
    add_s += added_s;
    std::vector<double> ms;
    double same_top = 0.0, recalled = 0.0;
    for (uint64_t q = 0; q < n_queries; ++q) {
      const Sha256 id = id_of(q * 7'919 % n);
      const double begin = cpu_now();
      const auto found = must(index.similar_to_stored(id, {}));
      ms.push_back(1e3 * (cpu_now() - begin));
      if (!compare) continue;
      const auto want = must(exact.similar_to_stored(id, {}));
      recalled += recall(found, want);
      same_top += !want.empty() && !found.empty() && found[0].id == want[0].id ? 1 : 0;
    }
    const auto of_chunks = static_cast<double>(n);
    const auto of_queries = static_cast<double>(n_queries);
    const double add_us = 1e6 * added_s / static_cast<double>(std::max<uint64_t>(n - first, 1));
    std::printf("%10llu %12.2f %12.0f %12.0f %10.3f %10.3f %10.3f",
                static_cast<unsigned long long>(n), add_us,
                static_cast<double>(index.bytes()) / of_chunks,
                static_cast<double>(own) / of_chunks, quantile(ms, 0.5), quantile(ms, 0.95),
                quantile(ms, 1.0));
    if (compare) std::printf(" %10.3f %8.3f", same_top / of_queries, recalled / of_queries);
    std::printf("\n");
    std::fflush(stdout);
    out.push_back({{"chunks", n},
                   {"add_us", add_us},
                   {"add_s", add_s},
                   {"bytes", index.bytes()},
                   {"resident_bytes", own},
                   {"p50_ms", quantile(ms, 0.5)},
                   {"p95_ms", quantile(ms, 0.95)},
                   {"max_ms", quantile(ms, 1.0)}});
    if (compare) {
      out.back()["same_top"] = same_top / of_queries;
      out.back()["recall"] = recalled / of_queries;
    }
  }
  if (n_removed > 0) {
    std::vector<double> us;
    for (uint64_t i = 0; i < std::min(n_removed, n); ++i) {
      const double begin = cpu_now();
      index.remove(id_of(i));
      us.push_back(1e6 * (cpu_now() - begin));
    }
    double sum = 0.0;
    for (const double t : us) sum += t;
    std::printf("%zu removed: %.2f us each, median %.2f, longest %.0f\n", us.size(),
                sum / static_cast<double>(us.size()), quantile(us, 0.5), quantile(us, 1.0));
  }
  blend::bench::write_json(json, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_similar_chunks: %s\n", e.what());
    return 1;
  }
}
