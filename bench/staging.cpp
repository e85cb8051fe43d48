// How fast are stored layers staged for a device? GB/s of the reader by threads, from a store's
// page cache (copied and checked), and from its memory tier (copied, or read where it lies),
// compared with memcpy on as many threads. There is no device: the staged bytes are those that its
// bus could carry away. More threads than cores show how much they wait for each other: not at all,
// where the rate stays.
//
//   bench_staging --threads 1,2,4,8,16 --tokens 4096 --json out.json
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/copy_rate.h"
#include "bench/json_file.h"
#include "bench/measure.h"
#include "fusion/load/layer_loader.h"
#include "store/store.h"
#include "support/temp_dir.h"

namespace {

using blend::bench::median;
using blend::bench::must;
using blend::bench::seconds_since;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::vector<uint32_t> threads{1, 2};
  uint32_t tokens = 4096;
  uint32_t chunk_tokens = 512;
  uint32_t layers = 16;
  uint32_t kv_dim = 1024;
  int repeat = 5;
  std::string json_path;
};

std::shared_ptr<blend::ChunkRecord> random_chunk(const blend::ChunkShape& shape, uint32_t number) {
  auto record = std::make_shared<blend::ChunkRecord>();
  record->meta.shape = shape;
  record->meta.tokens.assign(shape.n_tokens, static_cast<int32_t>(number));
  record->meta.id = blend::chunk_id({}, shape.dtype, {}, "", record->meta.tokens);
  record->data = must(blend::AlignedBuffer::allocate(shape.total_bytes()));
  uint64_t x = 0x9e3779b97f4a7c15u + number;
  for (size_t at = 0; at + 8 <= record->data.bytes(); at += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(record->data.data() + at, &x, 8);
  }
  return record;
}

class Staging {
 public:
  Staging(const Settings& s, const std::string& path, const blend::StoreOptions& options)
      : s_(s), store_(must(blend::Store::open(path, options, {}))) {}

  void put() {
    const blend::ChunkShape shape{s_.layers, s_.chunk_tokens, s_.kv_dim, blend::DType::bf16, 128};
    for (uint32_t i = 0; i < s_.tokens / s_.chunk_tokens; ++i) {
      const auto record = random_chunk(shape, i);
      ids_.push_back(record->meta.id);
      must(store_->put(*record));
    }
  }
  const std::vector<blend::Sha256>& ids() const { return ids_; }

  // Seconds of the reader in one pass over all layers, each given back as soon as it is there.
  double pass(const std::vector<blend::Sha256>& ids, blend::Backend& backend,
              blend::ThreadPool* helpers) {
    const auto snapshot = must(store_->snapshot());
    std::vector<std::unique_ptr<blend::ChunkSource>> sources;
    std::vector<blend::LayerLoader::Item> items;
    for (const blend::Sha256& id : ids) {
      sources.push_back(must(snapshot->open(id)));
      items.push_back({sources.back().get(), 0});
    }
    const blend::Stopwatch clock;
    const auto loader =
        must(blend::LayerLoader::start(backend, items, s_.layers, 3, clock, nullptr, helpers));
    uint64_t ns = 0;
    for (uint32_t layer = 0; layer < s_.layers; ++layer) {
      const blend::StagedLayer* const staged = must(loader->acquire(layer));
      ns += staged->load.end_ns - staged->load.begin_ns;
      loader->release(layer);
    }
    return static_cast<double>(ns) * 1e-9;
  }

 private:
  const Settings& s_;
  const std::shared_ptr<blend::Store> store_;
  std::vector<blend::Sha256> ids_;
};

blend::HostMemory own_memory() {
  return [](size_t bytes) -> std::shared_ptr<std::byte> {
    auto buffer = blend::AlignedBuffer::allocate(bytes);
    if (!buffer.is_ok()) return nullptr;
    const auto owner = std::make_shared<blend::AlignedBuffer>(std::move(*buffer));
    return {owner, owner->data()};
  };
}

void run(const Settings& s) {
  const blend::test::TempDir dir;
  json rows = json::array();
  std::vector<blend::Sha256> ids;
  {
    Staging first(s, dir.file("store"), {});
    first.put();
    ids = first.ids();
  }
  const uint64_t bytes = uint64_t{4} * s.tokens * s.layers * s.kv_dim;
  std::printf("%u tokens, %u layers, %.2f GB\n%-34s %8s %11s %8s %14s %10s\n", s.tokens, s.layers,
              static_cast<double>(bytes) * 1e-9, "from", "threads", "us a layer", "GB/s",
              "GB/s a thread", "of memcpy");
  std::vector<double> copied;  // bytes per second by threads; each is read and written
  for (const uint32_t threads : s.threads) {
    const auto pool = must(blend::ThreadPool::create(threads));
    copied.push_back(blend::bench::copy_rate(*pool, 2 * bytes) / 2);
    std::printf("%-34s %8u %11s %8.2f %14.2f\n", "memcpy", threads, "", copied.back() * 1e-9,
                copied.back() * 1e-9 / threads);
    rows.push_back({{"from", "memcpy"}, {"threads", threads}, {"gb_per_s", copied.back() * 1e-9}});
  }
  struct From {
    const char* name;
    bool in_memory, where_it_lies;
  };
  for (const From& from :
       {From{"page cache, copied and checked", false, false},
        From{"memory tier, copied", true, false}, From{"memory tier, where it lies", true, true}}) {
    blend::StoreOptions options;
    if (from.in_memory) options.ram_bytes = 2 * bytes;
    if (from.where_it_lies) options.host_memory = own_memory();
    Staging staging(s, dir.file("store"), options);
    for (size_t at = 0; at < s.threads.size(); ++at) {
      const uint32_t threads = s.threads[at];
      const auto pool = must(blend::ThreadPool::create(threads));
      const auto backend = must(blend::make_cpu_backend(*pool));
      std::vector<double> seconds;
      for (int i = 0; i <= s.repeat; ++i) {
        const double took = staging.pass(ids, *backend, threads > 1 ? pool.get() : nullptr);
        if (i > 0) seconds.push_back(took);  // the first fills the caches
      }
      const double us = 1e6 * median(seconds) / s.layers;
      json row = {{"from", from.name}, {"threads", threads}, {"us_a_layer", us}};
      std::printf("%-34s %8u %11.1f", from.name, threads, us);
      if (!from.where_it_lies) {  // there is nothing to be moved
        const double rate = static_cast<double>(bytes) / median(seconds);
        std::printf(" %8.2f %14.2f %8.0f %%", rate * 1e-9, rate * 1e-9 / threads,
                    100 * rate / copied[at]);
        row["gb_per_s"] = rate * 1e-9;
        row["of_memcpy"] = rate / copied[at];
      }
      std::printf("\n");
      std::fflush(stdout);
      rows.push_back(row);
    }
  }
  blend::bench::write_json(s.json_path, {{"tokens", s.tokens},
                                         {"layers", s.layers},
                                         {"kv_dim", s.kv_dim},
                                         {"bytes", bytes},
                                         {"staged", rows}});
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app("GB/s of stored layers by reader threads");
  app.add_option("--threads", s.threads, "reader threads")->delimiter(',');
  app.add_option("--tokens", s.tokens, "of the prompt");
  app.add_option("--chunk-tokens", s.chunk_tokens, "of a chunk");
  app.add_option("--layers", s.layers, "");
  app.add_option("--kv-dim", s.kv_dim, "");
  app.add_option("--repeat", s.repeat, "passes of which the median is told");
  app.add_option("--json", s.json_path, "write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    run(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_staging: %s\n", e.what());
    return 1;
  }
  return 0;
}
