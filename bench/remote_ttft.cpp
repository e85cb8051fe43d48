// How soon does the first token come when the chunks are in memory, on the disk or in the remote
// tier over links of several speeds, compared with computing them; and what does the controller
// choose?
//
// Starts a redis-server on loopback and, for a link, a relay in front of it that limits the bytes
// per second. A model of random weights; every fuse from the remote tier finds nothing
// nearer.
//
//   bench_remote_ttft [--shape 1b] [--codecs f16,int8,int4] [--gbits 1,10,25] [--repeat N]
//                     [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <blend/blend.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/isa_option.h"
#include "bench/json_file.h"
#include "bench/kept_as.h"
#include "bench/measure.h"
#include "bench/shapes.h"
#include "support/cutting_proxy.h"
#include "support/redis_server.h"
#include "support/temp_dir.h"

namespace {

using blendpp::FusionReport;
using nlohmann::json;

struct Settings {
  std::string shape = "1b";
  std::string dtype = "f16";
  std::string weights = "auto";
  std::vector<std::string> codecs{"f16", "int8", "int4"};
  std::vector<double> gbits{1, 10, 25};
  size_t chunks = 6;
  size_t chunk_tokens = 512;
  size_t question_tokens = 64;
  double ratio = 0.15;
  uint32_t threads = 0;
  int repeat = 3;
  std::string machine;
  std::string json_path;
};

struct Codec {
  const char* name;
  uint32_t code;
};
constexpr Codec kCodecs[] = {
    {"f16", BLEND_CODEC_NONE}, {"int8", BLEND_CODEC_INT8}, {"int4", BLEND_CODEC_INT4}};

blendpp::Store open_store(const blendpp::Context& ctx, const std::string& path, uint32_t codec,
                          uint64_t ram_bytes, const std::string& remote) {
  blendpp::StoreOptions options;
  options.check_every = UINT32_MAX;  // nothing else computes meanwhile
  options.kv_dtype = BLEND_DTYPE_F16;
  options.codec = codec;
  options.ram_bytes = ram_bytes;
  options.remote.url = remote.empty() ? nullptr : remote.c_str();
  options.remote.timeout_ms = 60000;  // a slow link is what is asked about
  return {ctx, path, options};
}

class Bench {
 public:
  explicit Bench(const Settings& s)
      : s_(s),
        spec_(blend::bench::shape_of(s.shape, s.dtype)),
        ctx_(context_options(s)),
        model_(write_model(spec_, dir_, s, ctx_)) {
    machine_ = std::make_unique<blendpp::Machine>(model_, s.machine);
    for (size_t i = 0; i <= s.chunks; ++i) {
      chunks_.push_back(blend::bench::random_tokens(s.chunk_tokens, spec_.n_vocab, 100 + i));
    }
    for (size_t i = 0; i < s.chunks; ++i) prompt_.chunk(chunks_[i]);
    const auto question = blend::bench::random_tokens(s.question_tokens, spec_.n_vocab, 99);
    prompt_.question(question);
    first_.chunk(chunks_.back());
    first_.question(question);
  }

  void full_prefill() {
    blendpp::FuseOptions options;
    options.policy = BLEND_POLICY_FULL;
    add("", "recompute", 0, 1, options, nullptr, [](const blendpp::Store*) {});
  }

  bool measure(const Codec& codec) {
    blend::test::RedisServer server;
    if (!server.start()) return false;
    const std::string here = dir_.file(codec.name);
    std::vector<blendpp::ChunkId> ids;
    {
      const blendpp::Store store = open_store(ctx_, here, codec.code, 0, server.url());
      for (const auto& chunk : chunks_) ids.push_back(model_.precompute(store, chunk).id);
      store.flush();
    }
    ids.pop_back();  // the last chunk is only read once, for the tiers to know how fast they are
    {
      const blendpp::Store store = open_store(ctx_, here, codec.code, 1ull << 30, "");
      both(codec.name, "memory", 0, store, [](const blendpp::Store*) {});
    }
    {
      const blendpp::Store store = open_store(ctx_, here, codec.code, 0, "");
      both(codec.name, "disk", 0, store, [](const blendpp::Store*) {});
    }
    std::vector<double> links = s_.gbits;
    links.insert(links.begin(), 0);
    for (const double gbit : links) {
      blend::test::CuttingProxy relay(server.port());
      relay.set_bytes_per_s(gbit * 1e9 / 8);
      const std::string url =
          gbit == 0 ? server.url() : "redis://127.0.0.1:" + std::to_string(relay.port());
      const blend::test::TempDir away;
      const blendpp::Store store = open_store(ctx_, away.path() + "/s", codec.code, 0, url);
      blendpp::FuseOptions options;
      options.policy = BLEND_POLICY_REUSE;
      const blendpp::Fusion once(model_, &store, first_, options);
      both(codec.name, "remote", gbit, store, [&](const blendpp::Store* known) {
        known->flush();
        for (const auto& id : ids) {
          try {
            known->remove(id);
          } catch (const blendpp::Error& error) {
            if (error.code() != BLEND_E_NOT_FOUND) throw;  // it was computed, not fetched
          }
        }
      });
    }
    return true;
  }

  const json& rows() const { return rows_; }

 private:
  static blendpp::ContextOptions context_options(const Settings& s) {
    blendpp::ContextOptions options;
    options.n_threads = s.threads;
    return options;
  }

  static blendpp::Model write_model(const blend::test::RandomModelSpec& spec,
                                    const blend::test::TempDir& dir, const Settings& s,
                                    const blendpp::Context& ctx) {
    const std::string path = dir.file("model.gguf");
    blend::test::write_random_model(spec, path);
    blendpp::ModelOptions options;
    options.weights = blend::bench::weights_of(s.weights);
    return {ctx, path, options};
  }

  // With the given ratio, and with the controller's.
  template <typename Forget>
  void both(const char* codec, const char* tier, double gbit, const blendpp::Store& store,
            const Forget& forget) {
    blendpp::FuseOptions options;
    options.policy = BLEND_POLICY_HKVD;
    options.on_miss = BLEND_MISS_COMPUTE;
    options.ratio = s_.ratio;
    add(codec, tier, gbit, s_.repeat, options, &store, forget);
    options.ratio = BLEND_RATIO_AUTO;
    options.machine = machine_->get();
    add(codec, tier, gbit, s_.repeat, options, &store, forget);
  }

  template <typename Forget>
  void add(const char* codec, const char* tier, double gbit, int repeat,
           const blendpp::FuseOptions& options, const blendpp::Store* store, const Forget& forget) {
    std::vector<double> ttft;
    std::vector<double> wait;
    json row;
    for (int i = 0; i < repeat + 1; ++i) {
      const bool warm = gbit == 0 && std::string(tier) != "remote";
      if (i == 0 && (!warm || repeat == 1)) continue;
      forget(store);
      const blendpp::Fusion fusion(model_, store, prompt_, options);
      const FusionReport info = fusion.report();
      if (i == 0) continue;
      ttft.push_back(static_cast<double>(info.ttft_ns) * 1e-6);
      wait.push_back(static_cast<double>(info.wait_ns) * 1e-6);
      uint32_t n_loaded = 0;
      for (size_t k = 0; k < s_.chunks; ++k) {
        n_loaded += fusion.segment(k).source == BLEND_SOURCE_STORE ? 1u : 0u;
      }
      row["chunks_loaded"] = n_loaded;
      row["ratio"] = info.ratio;
      row["rows_selected"] = info.n_rows_selected;
      row["bytes_loaded"] = info.bytes_loaded;
    }
    forget(store);
    const bool chosen = options.machine != nullptr;
    row.update({{"codec", codec},
                {"tier", tier},
                {"gbit_per_s", gbit},
                {"controller", chosen},
                {"ttft_ms", blend::bench::median(ttft)},
                {"wait_ms", blend::bench::median(wait)},
                {"all_ttft_ms", ttft}});
    if (store != nullptr && std::string(tier) == "remote") {
      row["measured_bytes_per_s"] = store->remote_stat().read_bytes_per_s;
    }
    std::printf("%-5s %-10s %6.3g  %-10s %9.0f %8.0f  %5u %7.1f%%  %6.2f\n", codec, tier, gbit,
                chosen ? "auto" : "fixed", row["ttft_ms"].get<double>(),
                row["wait_ms"].get<double>(), row["chunks_loaded"].get<uint32_t>(),
                100 * row["ratio"].get<double>(), row.value("measured_bytes_per_s", 0.0) * 8e-9);
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }

  const Settings& s_;
  const blend::test::RandomModelSpec spec_;
  const blend::test::TempDir dir_;
  const blendpp::Context ctx_;
  const blendpp::Model model_;
  std::unique_ptr<blendpp::Machine> machine_;
  std::vector<blendpp::Tokens> chunks_;
  blendpp::Prompt prompt_, first_;
  json rows_ = json::array();
};

int run(const Settings& s) {
  if (blend::test::redis_server_path().empty()) {
    throw std::runtime_error("redis-server is not installed");
  }
  std::printf("%s\nshape %s, %zu chunks x %zu tokens + %zu, median of %d\n",
              blend::bench::machine_line().c_str(), s.shape.c_str(), s.chunks, s.chunk_tokens,
              s.question_tokens, s.repeat);
  Bench bench(s);
  std::printf("codec tier       Gbit/s ratio        TTFT ms  wait ms  loaded   ratio  measured\n");
  bench.full_prefill();
  for (const Codec& codec : kCodecs) {
    if (std::find(s.codecs.begin(), s.codecs.end(), codec.name) == s.codecs.end()) continue;
    if (!bench.measure(codec)) throw std::runtime_error("redis-server does not start");
  }
  blend::bench::write_json(s.json_path, {{"bench", "remote_ttft"},
                                         {"machine", blend::bench::machine()},
                                         {"shape", s.shape},
                                         {"dtype", s.dtype},
                                         {"weights", s.weights},
                                         {"chunks", s.chunks},
                                         {"chunk_tokens", s.chunk_tokens},
                                         {"question_tokens", s.question_tokens},
                                         {"repeat", s.repeat},
                                         {"rows", bench.rows()}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Time to first token from memory, disk, the remote tier and by computing."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--dtype", s.dtype, "of the file's weights")->capture_default_str();
  app.add_option("--weights", s.weights, "how they are kept")->capture_default_str();
  app.add_option("--codecs", s.codecs, "of f16, int8, int4")->delimiter(',');
  app.add_option("--gbits", s.gbits, "links, in Gbit/s; one without a bound besides")
      ->delimiter(',');
  app.add_option("--chunks", s.chunks)->capture_default_str();
  app.add_option("--chunk-tokens", s.chunk_tokens)->capture_default_str();
  app.add_option("--question-tokens", s.question_tokens)->capture_default_str();
  app.add_option("--ratio", s.ratio, "where the controller does not choose")->capture_default_str();
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--machine", s.machine, "file that keeps how fast this machine prefills");
  app.add_option("--json", s.json_path, "also write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_remote_ttft: %s\n", e.what());
    return 1;
  }
}
