// How fast is the remote tier: whole chunks put and got, beside redis-benchmark on the same server
// with values as large as a segment? Starts a redis-server on loopback.
//
//   bench_remote [--segment MIB ...] [--chunk MIB] [--chunks N] [--rounds N] [--seal] [--json FILE]

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "store/remote/remote_tier.h"
#include "support/redis_server.h"

namespace {

using Clock = std::chrono::steady_clock;
using blend::bench::cpu_seconds;
using blend::bench::median;
using blend::bench::must;
using blend::bench::seconds_since;
using nlohmann::json;

// A chunk in memory, in place of one on disk.
class HeldChunk final : public blend::StoredChunk {
 public:
  HeldChunk(uint32_t seed, uint64_t bytes) {
    constexpr uint32_t kLayers = 16;
    layout_.meta.shape = {kLayers, static_cast<uint32_t>(bytes / kLayers / 2048), 512,
                          blend::DType::f16, 64};
    std::mt19937_64 random(seed);
    for (uint32_t i = 0; i < layout_.meta.shape.n_tokens; ++i) {
      layout_.meta.tokens.push_back(static_cast<int32_t>(random() % 32000));
    }
    layout_.meta.id = blend::chunk_id({}, blend::DType::f16, {}, "", layout_.meta.tokens);
    stream_ = must(blend::AlignedBuffer::allocate(layout_.meta.shape.total_bytes()));
    for (size_t i = 0; i < stream_.bytes() / 8; ++i) stream_.as<uint64_t>()[i] = random();
    const uint64_t layer = layout_.meta.shape.layer_bytes();
    for (uint32_t i = 0; i < kLayers; ++i) {
      layout_.layers.push_back(
          {i * layer, layer, blend::checksum64(stream_.data() + i * layer, layer)});
    }
    layout_.meta.stored_bytes = stream_.bytes();
  }
  const blend::StoredLayout& layout() const override { return layout_; }
  blend::Status find(uint64_t offset, uint64_t bytes, blend::ByteSpans& out) override {
    out.emplace_back(stream_.data() + offset, bytes);
    return blend::Status::ok();
  }

 private:
  blend::StoredLayout layout_;
  blend::AlignedBuffer stream_;
};

struct Rates {
  std::vector<double> put, get, put_cpu, get_cpu;
};

// GB/s of the server's own client with as many connections, for SET and GET.
std::pair<double, double> redis_benchmark(uint16_t port, uint32_t connections, uint64_t value,
                                          uint64_t n) {
  const std::string command = "redis-benchmark -p " + std::to_string(port) + " -t set,get -c " +
                              std::to_string(connections) + " -n " + std::to_string(n) + " -d " +
                              std::to_string(value) + " --csv 2>/dev/null";
  std::FILE* const pipe = popen(command.c_str(), "r");
  double set = 0;
  double get = 0;
  char line[512];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    double per_s = 0;
    if (std::sscanf(line, "\"SET\",\"%lf\"", &per_s) == 1) set = per_s;
    if (std::sscanf(line, "\"GET\",\"%lf\"", &per_s) == 1) get = per_s;
  }
  if (pipe != nullptr) pclose(pipe);
  return {set * static_cast<double>(value) * 1e-9, get * static_cast<double>(value) * 1e-9};
}

void measure(const blend::RemoteOptions& options, std::vector<HeldChunk>& chunks, Rates& rates) {
  auto tier = must(blend::RemoteTier::create(options, blend::EventSink(),
                                             [](const std::shared_ptr<blend::Arrival>&) {}));
  double bytes = 0;
  for (const HeldChunk& chunk : chunks) bytes += static_cast<double>(chunk.layout().stream_bytes());
  double cpu = cpu_seconds();
  auto begin = Clock::now();
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < options.n_connections; ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < chunks.size(); i = next++) {
        bool existed = false;
        must(tier->put(chunks[i], &existed));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  rates.put.push_back(bytes / seconds_since(begin) * 1e-9);
  rates.put_cpu.push_back((cpu_seconds() - cpu) / (bytes * 1e-9));

  cpu = cpu_seconds();
  begin = Clock::now();
  std::vector<std::shared_ptr<blend::Arrival>> arrivals;
  for (const HeldChunk& chunk : chunks) {
    arrivals.push_back(must(tier->find(chunk.layout().meta.id, nullptr)));
    tier->begin(arrivals.back());
  }
  for (const auto& arrival : arrivals) {
    must(tier->wait(*arrival, 0, arrival->layout().stream_bytes()));
  }
  rates.get.push_back(bytes / seconds_since(begin) * 1e-9);
  rates.get_cpu.push_back((cpu_seconds() - cpu) / (bytes * 1e-9));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<uint32_t> segments = {1, 4, 8};
  uint64_t chunk_mib = 16;
  size_t n_chunks = 24;
  int n_rounds = 5;
  bool seal = false;
  std::string json_path;
  CLI::App app("The remote tier beside redis-benchmark");
  app.add_option("--segment", segments, "MiB of a segment");
  app.add_option("--chunk", chunk_mib, "MiB of a chunk");
  app.add_option("--chunks", n_chunks, "How many of them");
  app.add_option("--rounds", n_rounds, "The median of so many");
  app.add_flag("--seal", seal, "Seal the values");
  app.add_option("--json", json_path, "Figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (blend::test::redis_server_path().empty()) {
    std::fprintf(stderr, "redis-server is not installed\n");
    return 1;
  }
  std::vector<HeldChunk> chunks;
  for (uint32_t i = 0; i < n_chunks; ++i) chunks.emplace_back(i, chunk_mib << 20);
  json out = json::array();
  std::printf("segment  put GB/s  SET GB/s  share  get GB/s  GET GB/s  share  CPU s/GB put, get\n");
  for (const uint32_t mib : segments) {
    Rates rates;
    std::vector<double> set;
    std::vector<double> get;
    for (int round = 0; round < n_rounds; ++round) {
      blend::test::RedisServer server;
      if (!server.start()) return 1;
      blend::RemoteOptions options;
      options.url = must(blend::parse_remote_url(server.url()));
      options.segment_bytes = mib << 20;
      options.timeout_ms = 30000;
      options.most_bytes = uint64_t{16} << 30;
      if (seal) options.seal_key = std::string(32, 's');
      measure(options, chunks, rates);
      const auto [s, g] = redis_benchmark(server.port(), options.n_connections, mib << 20,
                                          std::max<uint64_t>(1, chunk_mib / mib) * n_chunks);
      set.push_back(s);
      get.push_back(g);
    }
    std::printf("%4u MiB  %8.2f  %8.2f  %4.0f%%  %8.2f  %8.2f  %4.0f%%  %.2f, %.2f\n", mib,
                median(rates.put), median(set), 100 * median(rates.put) / median(set),
                median(rates.get), median(get), 100 * median(rates.get) / median(get),
                median(rates.put_cpu), median(rates.get_cpu));
    std::fflush(stdout);
    out.push_back({{"segment_mib", mib},
                   {"sealed", seal},
                   {"put_gb_per_s", rates.put},
                   {"get_gb_per_s", rates.get},
                   {"set_gb_per_s", set},
                   {"server_get_gb_per_s", get},
                   {"put_cpu_s_per_gb", rates.put_cpu},
                   {"get_cpu_s_per_gb", rates.get_cpu}});
  }
  blend::bench::write_json(json_path, out);
  return 0;
}
