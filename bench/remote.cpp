// How fast is the remote tier: whole chunks put and got, beside redis-benchmark on the same server
// with values as large as a segment? Starts redis-servers on loopback.
//
//   bench_remote [--segment MIB ...] [--chunk MIB] [--chunks N] [--rounds N] [--seal] [--tls]
//   [--json FILE]
//
// Both put new keys into a server that has just begun: a key whose memory the server still has
// from the one before costs something else. redis-benchmark gets one key again and again.

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
#include "support/certificates.h"
#include "support/redis_server.h"

namespace {

using Clock = std::chrono::steady_clock;
using blend::bench::cpu_seconds;
using blend::bench::median;
using blend::bench::must;
using blend::bench::seconds_since;
using nlohmann::json;

// A chunk in memory, instead of one on disk.
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
    const uint64_t layer = layout_.meta.shape.layer_bytes(0);
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

// GB/s of the server's own client with as many connections. `more`: the rest of its command line.
double redis_benchmark(const std::string& test, uint16_t port, uint32_t connections, uint64_t value,
                       uint64_t n, const std::string& more) {
  const std::string command = "redis-benchmark -p " + std::to_string(port) + " -t " + test +
                              " -c " + std::to_string(connections) + " -n " + std::to_string(n) +
                              " -d " + std::to_string(value) + more + " --csv 2>/dev/null";
  std::FILE* const pipe = popen(command.c_str(), "r");
  double rate = 0;
  char line[512];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    double per_s = 0;
    if (std::sscanf(line, "\"%*[A-Z]\",\"%lf\"", &per_s) == 1) rate = per_s;
  }
  if (pipe != nullptr) pclose(pipe);
  return rate * static_cast<double>(value) * 1e-9;
}

void measure(const blend::RemoteOptions& options, std::vector<HeldChunk>& chunks, Rates& rates) {
  auto tier = must(blend::RemoteTier::create(options, blend::Log(),
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
  bool tls = false;
  std::string json_path;
  CLI::App app("The remote tier beside redis-benchmark");
  app.add_option("--segment", segments, "MiB of a segment");
  app.add_option("--chunk", chunk_mib, "MiB of a chunk");
  app.add_option("--chunks", n_chunks, "How many of them");
  app.add_option("--rounds", n_rounds, "The median of so many");
  app.add_flag("--seal", seal, "Seal the values");
  app.add_flag("--tls", tls, "Through TLS, with certificates on both sides");
  app.add_option("--json", json_path, "Figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (blend::test::redis_server_path().empty()) {
    std::fprintf(stderr, "redis-server is not installed\n");
    return 1;
  }
  const blend::test::Certificates certificates;
  if (tls && !certificates.make()) {
    std::fprintf(stderr, "openssl(1) cannot make certificates\n");
    return 1;
  }
#ifdef BLEND_TLS_FILE
  setenv("BLEND_TLS_MODULE", BLEND_TLS_FILE, 0);
#endif
  const std::string tls_options = " --tls --cacert " + certificates.file("ca.pem") + " --cert " +
                                  certificates.file("client.pem") + " --key " +
                                  certificates.file("client.key");
  std::vector<HeldChunk> chunks;
  for (uint32_t i = 0; i < n_chunks; ++i) chunks.emplace_back(i, chunk_mib << 20);
  json out = json::array();
  std::printf("segment  put GB/s  SET GB/s  share  get GB/s  GET GB/s  share  CPU s/GB put, get\n");
  for (const uint32_t mib : segments) {
    Rates rates;
    std::vector<double> set;
    std::vector<double> get;
    for (int round = 0; round < n_rounds; ++round) {
      const std::vector<std::string> arguments =
          tls ? certificates.of_server() : std::vector<std::string>();
      blend::test::RedisServer server(arguments);
      blend::test::RedisServer other(arguments);
      for (auto* one : {&server, &other}) one->set_tls(tls);
      if (!server.start()) return 1;
      blend::RemoteOptions options;
      options.url = must(blend::parse_remote_url((tls ? "rediss" : "redis") +
                                                 server.url().substr(sizeof "redis" - 1)));
      options.segment_bytes = mib << 20;
      options.timeout_ms = 30000;
      options.most_bytes = uint64_t{16} << 30;
      if (seal) options.seal_key = std::string(32, 's');
      if (tls) {
        options.ca_file = certificates.file("ca.pem");
        options.certificate_file = certificates.file("client.pem");
        options.key_file = certificates.file("client.key");
      }
      measure(options, chunks, rates);
      server.kill9();
      if (!other.start()) return 1;
      const uint64_t n = std::max<uint64_t>(1, chunk_mib / mib) * n_chunks;
      const std::string more = tls ? tls_options : "";
      const auto run = [&](const char* test, const std::string& keys) {
        return redis_benchmark(test, other.port(), options.n_connections, mib << 20, n,
                               keys + more);
      };
      set.push_back(run("set", " -r 1000000000"));
      run("set", "");  // the key that is got
      get.push_back(run("get", ""));
    }
    std::printf("%4u MiB  %8.2f  %8.2f  %4.0f%%  %8.2f  %8.2f  %4.0f%%  %.2f, %.2f\n", mib,
                median(rates.put), median(set), 100 * median(rates.put) / median(set),
                median(rates.get), median(get), 100 * median(rates.get) / median(get),
                median(rates.put_cpu), median(rates.get_cpu));
    std::fflush(stdout);
    out.push_back({{"segment_mib", mib},
                   {"sealed", seal},
                   {"tls", tls},
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
