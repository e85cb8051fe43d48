// Does a put that must evict stay as fast as the store ages and grows?
//
// Fills a store with chunks of mixed sizes up to its quota, then puts thousands more, each of which
// evicts, and prints the latency of windows of them. LMDB's search for contiguous free pages
// might grow: with one value a layer it took 60 times as long after 5,500 chunks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/json_file.h"
#include "bench/measure.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/store.h"
#include "support/temp_dir.h"

namespace {

using blend::AlignedBuffer;
using blend::ChunkRecord;
using blend::ChunkShape;
using blend::DType;
using blend::bench::must;
using Clock = std::chrono::steady_clock;

// Tokens, log-uniform, as documents have.
uint32_t draw_tokens(std::mt19937_64& rng, uint32_t least, uint32_t most) {
  std::uniform_real_distribution<double> u(std::log(least), std::log(most + 1.0));
  return static_cast<uint32_t>(std::exp(u(rng)));
}

// Records are made once and put again and again under new ids.
std::vector<ChunkRecord> make_pool(uint32_t least, uint32_t most) {
  std::mt19937_64 rng(1);
  std::vector<ChunkRecord> pool(64);
  for (ChunkRecord& r : pool) {
    r.meta.shape = ChunkShape{4, draw_tokens(rng, least, most), 128, DType::f16};
    r.meta.tokens.assign(r.meta.shape.n_tokens, 7);
    r.data = std::move(AlignedBuffer::allocate(r.meta.shape.total_bytes()).value());
    for (size_t at = 0; at < r.data.bytes(); at += 8) {
      const uint64_t word = rng();
      std::memcpy(r.data.data() + at, &word, 8);
    }
  }
  return pool;
}

struct Window {
  uint64_t puts = 0;  // done before its end
  double median_ms = 0, p95_ms = 0;
  uint64_t file_bytes = 0, n_chunks = 0;
};

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

int run(int argc, char** argv) {
  uint64_t live = 1000;
  uint64_t puts = 50'000;
  uint64_t window = 5'000;
  uint64_t fill = 0;
  uint32_t least = 16;
  uint32_t most = 512;
  std::string dir;
  std::string json;
  CLI::App app{"Latency of eviction + put as a store ages and grows"};
  app.add_option("--live", live, "Chunks that the quota has room for")->capture_default_str();
  app.add_option("--puts", puts, "Puts, the filling ones included")->capture_default_str();
  app.add_option("--fill", fill, "Of them, put in the background first")->capture_default_str();
  app.add_option("--window", window, "Puts whose median is one line")->capture_default_str();
  app.add_option("--least-tokens", least, "A token takes 2 KiB")->capture_default_str();
  app.add_option("--most-tokens", most)->capture_default_str();
  app.add_option("--dir", dir, "Where the store is made; default: a temporary directory");
  app.add_option("--json", json, "File for the figures");
  CLI11_PARSE(app, argc, argv);

  const std::vector<ChunkRecord> base = make_pool(least, most);
  uint64_t footprint = 0;
  uint64_t bytes = 0;
  for (const ChunkRecord& r : base) {
    footprint += blend::encode_chunk(r, blend::Codec::none)->manifest.footprint();
    bytes += r.data.bytes();
  }
  blend::test::TempDir temp;
  blend::StoreOptions options;
  options.quota_bytes = footprint / base.size() * live;
  const auto opened = must(blend::Store::open(dir.empty() ? temp.path() : dir, options, {}));
  blend::Store& store = *opened;

  std::mt19937_64 rng(2);
  std::vector<ChunkRecord> pool = make_pool(least, most);
  std::vector<Window> windows;
  std::vector<double> times;
  std::printf("quota %.1f MiB, chunks of %u to %u tokens, mean %.0f KiB\n",
              static_cast<double>(options.quota_bytes) / (1 << 20), least, most,
              static_cast<double>(bytes) / static_cast<double>(base.size()) / 1024);
  std::printf("%10s %10s %12s %12s %12s\n", "puts", "chunks", "median ms", "p95 ms", "file MiB");
  const auto draw_id = [&](ChunkRecord& r) {
    for (size_t at = 0; at < r.meta.id.size(); at += 8) {
      const uint64_t word = rng();
      std::memcpy(r.meta.id.data() + at, &word, 8);
    }
    r.meta.tokens[0] = static_cast<int32_t>(rng() >> 33);  // of another text
    r.meta.tokens[1] = static_cast<int32_t>(rng() >> 33);
  };
  const auto begun = Clock::now();
  for (uint64_t i = 0; i < fill; ++i) {
    const ChunkRecord& from = base[rng() % base.size()];
    auto r = std::make_shared<ChunkRecord>();
    r->meta = from.meta;
    r->data = must(AlignedBuffer::allocate(from.data.bytes()));
    std::memcpy(r->data.data(), from.data.data(), from.data.bytes());
    draw_id(*r);
    must(store.put_async(std::move(r)));
  }
  must(store.flush());
  const double fill_s = std::chrono::duration<double>(Clock::now() - begun).count();
  if (fill > 0) {
    std::printf("%llu in the background: %.3f ms each\n", static_cast<unsigned long long>(fill),
                1e3 * fill_s / static_cast<double>(fill));
  }
  for (uint64_t i = fill; i < puts; ++i) {
    ChunkRecord& r = pool[rng() % pool.size()];
    draw_id(r);
    const auto begin = Clock::now();
    const blend::Status put = store.put(r);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    must(put);
    if ((i + 1) % window != 0) continue;
    const blend::StoreStat stat = store.stat().value();
    const Window w{i + 1, quantile(times, 0.5), quantile(times, 0.95), stat.file_bytes,
                   stat.n_chunks};
    windows.push_back(w);
    times.clear();
    std::printf("%10llu %10llu %12.3f %12.3f %12.1f\n", static_cast<unsigned long long>(w.puts),
                static_cast<unsigned long long>(w.n_chunks), w.median_ms, w.p95_ms,
                static_cast<double>(w.file_bytes) / (1 << 20));
    std::fflush(stdout);
  }
  nlohmann::json out = {
      {"quota_bytes", options.quota_bytes},
      {"mean_chunk_bytes", bytes / base.size()},
      {"least_tokens", least},
      {"most_tokens", most},
      {"background_ms_each", fill == 0 ? 0 : 1e3 * fill_s / static_cast<double>(fill)},
      {"windows", nlohmann::json::array()}};
  for (const Window& w : windows) {
    out["windows"].push_back({{"puts", w.puts},
                              {"n_chunks", w.n_chunks},
                              {"median_ms", w.median_ms},
                              {"p95_ms", w.p95_ms},
                              {"file_bytes", w.file_bytes}});
  }
  blend::bench::write_json(json, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_store_evict: %s\n", e.what());
    return 1;
  }
}
