// Does the controller choose the soonest? The same prompt from devices of several bandwidths,
// its chunks stored by each codec: fixed choices (ratios; some of the chunks computed rather than
// loaded; all of them) in turn with what BLEND_RATIO_AUTO chooses.
//
//   bench_controller [--shape 30m] [--gb 0.01,0.05,0.2,1] [--codecs none,int4] [--policy hkvd]
//                    [--json FILE]
//
// The least ratio is that of quality: a fixed choice below it is printed and not compared. The
// ways alternate in random order, and the two runs of a round are compared, of which the median is
// taken: so other work on the machine counts for both.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/isa_option.h"
#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/shapes.h"
#include "bench/throttled_store.h"
#include "control/machine_profile.h"
#include "engine/precompute.h"
#include "fusion/run/fuse.h"
#include "store/store.h"
#include "support/temp_dir.h"

namespace {

using blend::Codec;
using blend::Policy;
using blend::RatioRequest;
using blend::Segment;
using blend::SegmentKind;
using blend::bench::median;
using blend::bench::must;
using nlohmann::json;

struct Settings {
  std::string shape = "30m";
  std::string dtype = "f16";
  std::vector<double> gb{0.01, 0.02, 0.05, 0.2, 1, 2, 5};
  std::vector<std::string> codecs{"none", "int8", "int4"};
  std::string policy = "hkvd";
  size_t chunks = 4;
  size_t chunk_tokens = 256;
  size_t question_tokens = 32;
  double ratio = 0.15;
  std::vector<double> below{0, 0.05};
  double target_s = 0;
  uint32_t threads = 0;
  int repeat = 9;
  std::string json_path;
};

// Median ratio over the rounds.
double ratio_of(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(std::move(ratios));
}

// One way to fuse the prompt.
struct Way {
  std::string name;
  blend::FuseRequest request;
  bool automatic = false;
  bool compared = true;  // as exact as the controller must be, at least
  std::vector<double> ttft;
  blend_fusion_report info{};
};

class Bench {
 public:
  explicit Bench(const Settings& s) : s_(s) {
    const blend::test::RandomModelSpec spec = blend::bench::shape_of(s.shape, s.dtype);
    const std::string path = blend::test::write_random_model(spec, dir_.file("model.gguf"));
    runtime_ = must(blend::Runtime::create(s.threads, {}));
    model_ = must(blend::Model::load(runtime_, path, {}, {}));
    for (size_t i = 0; i < s.chunks; ++i) {
      chunks_.push_back(blend::bench::random_tokens(s.chunk_tokens, spec.n_vocab, 100 + i));
      auto meta = blend::describe_chunk(*model_, blend::DType::f16, {}, "", chunks_.back());
      records_.push_back(must(blend::precompute_chunk(*model_, {}, std::move(meta), {})));
    }
    question_ = blend::bench::random_tokens(s.question_tokens, spec.n_vocab, 99);
    times_ = std::make_unique<blend::PrefillTimes>(
        must(blend::measure_prefill(model_, s.chunks * s.chunk_tokens + s.question_tokens, {})));
  }

  json run() {
    json rows = json::array();
    double worst = 0, worst_full = 0;
    for (const std::string& name : s_.codecs) {
      const auto codec = blend::codec_from_name(name);
      if (!codec) throw std::runtime_error("--codecs: there is no " + name);
      blend::StoreOptions options;
      options.codec = *codec;
      const std::shared_ptr<blend::Store> store =
          must(blend::Store::open(dir_.file(name), options, {}));
      for (const auto& record : records_) must(store->put(*record));
      for (const double gb : s_.gb) {
        json row = sweep(name, gb, store);
        worst = std::max(worst, row["auto_by_best"].get<double>());
        worst_full = std::max(worst_full, row["auto_by_full"].get<double>());
        rows.push_back(std::move(row));
      }
    }
    std::printf("\nthe controller: at most %.3f of the best fixed choice, %.3f of computing\n",
                worst, worst_full);
    return {{"bench", "controller"},
            {"machine", blend::bench::machine()},
            {"shape", s_.shape},
            {"policy", s_.policy},
            {"chunks", s_.chunks},
            {"chunk_tokens", s_.chunk_tokens},
            {"question_tokens", s_.question_tokens},
            {"ratio", s_.ratio},
            {"target_s", s_.target_s},
            {"repeat", s_.repeat},
            {"worst_by_best", worst},
            {"worst_by_full", worst_full},
            {"rows", rows}};
  }

 private:
  // The last `n_inline` chunks as new text: the first is a prefix hit wherever it is loaded.
  std::vector<Segment> prompt(size_t n_inline) const {
    std::vector<Segment> p;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      p.push_back({i + n_inline >= chunks_.size() ? SegmentKind::text : SegmentKind::chunk,
                   chunks_[i],
                   {}});
    }
    p.push_back({SegmentKind::question, question_, {}});
    return p;
  }

  Way way(const std::string& name, Policy policy, const RatioRequest& ratio,
          size_t n_inline) const {
    Way w;
    w.name = name;
    w.request.segments = prompt(n_inline);
    w.request.options.policy = policy;
    w.request.options.on_miss = blend::OnMiss::fail;
    w.request.options.ratio = ratio;
    return w;
  }

  std::vector<Way> ways() const {
    const Policy policy = s_.policy == "cascade" ? Policy::cascade : Policy::hkvd;
    std::vector<Way> out;
    char name[64];
    for (const double ratio : s_.below) {
      std::snprintf(name, sizeof name, "%g %%", ratio * 100);
      out.push_back(way(name, policy, RatioRequest::fixed(ratio), 0));
      out.back().compared = false;
    }
    for (size_t n = 0; n < s_.chunks; ++n) {
      std::snprintf(name, sizeof name, "%g %%, %zu computed", s_.ratio * 100, n);
      out.push_back(way(name, policy, RatioRequest::fixed(s_.ratio), n));
    }
    out.push_back(way("full", Policy::full, RatioRequest::fixed(1), s_.chunks));
    RatioRequest automatic = RatioRequest::automatic(s_.target_s);
    automatic.begin = s_.ratio;
    out.push_back(way("controller", policy, automatic, 0));
    out.back().automatic = true;
    return out;
  }

  json sweep(const std::string& codec, double gb, const std::shared_ptr<blend::Store>& below) {
    blend::bench::ThrottledStore store(below);
    store.device().set_bytes_per_s(gb * 1e9);
    blend::ReadRates reads;  // a new device: nothing of the last one's reads is known
    blend::StoreAccess access;
    access.store = &store;
    access.read_only = true;
    access.reads = &reads;
    std::vector<Way> all = ways();
    double first = 0;
    // Each round in an order of its own: after a full prefill the next run finds the machine as
    // that left it, and so do others that waited meanwhile.
    std::mt19937 rng(1);
    std::vector<size_t> order(all.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int i = 0; i <= s_.repeat; ++i) {
      std::shuffle(order.begin(), order.end(), rng);
      for (const size_t at : order) {
        Way& w = all[at];
        const blend::MachineRates machine{times_.get(), &pace_};
        const blend::FuseJob job = must(blend::make_job(
            *model_, access, w.request, w.automatic ? machine : blend::MachineRates{}));
        const blend::Fused fused = must(blend::fuse(model_, access, job));
        const double ms = static_cast<double>(fused.info.ttft_ns) * 1e-6;
        w.info = fused.info;
        if (i > 0) w.ttft.push_back(ms);  // the first warms caches
        if (i == 0 && w.automatic) first = ms;
      }
    }
    const Way& chosen = all.back();
    const Way& full = all[all.size() - 2];
    const Way* best = &full;
    for (const Way& w : all) {
      if (w.automatic || !w.compared || median(w.ttft) >= median(best->ttft)) continue;
      best = &w;
    }
    const double by_best = ratio_of(chosen.ttft, best->ttft);
    const double by_full = ratio_of(chosen.ttft, full.ttft);
    const double ms = median(chosen.ttft);
    std::printf("\n%s, %g GB/s\n", codec.c_str(), gb);
    json fixed = json::array();
    for (const Way& w : all) {
      std::printf("  %-20s %9.1f ms  wait %9.1f%s\n", w.name.c_str(), median(w.ttft),
                  static_cast<double>(w.info.wait_ns) * 1e-6, w.compared ? "" : "  (below)");
      fixed.push_back({{"name", w.name},
                       {"compared", w.compared},
                       {"ttft_ms", median(w.ttft)},
                       {"all_ttft_ms", w.ttft},
                       {"wait_ms", static_cast<double>(w.info.wait_ns) * 1e-6}});
    }
    const blend_fusion_report& info = chosen.info;
    std::printf(
        "  chose %.1f %% and %llu rows computed; expected %.1f ms (load %.1f, compute %.1f, "
        "all computed %.1f); %.3f of the best (%s), %.3f of full\n",
        info.ratio * 100, static_cast<unsigned long long>(info.n_rows_sooner_computed),
        static_cast<double>(info.ttft_expected_ns) * 1e-6,
        static_cast<double>(info.load_expected_ns) * 1e-6,
        static_cast<double>(info.compute_expected_ns) * 1e-6,
        static_cast<double>(info.computing_expected_ns) * 1e-6, by_best, best->name.c_str(),
        by_full);
    std::fflush(stdout);
    return {{"codec", codec},
            {"gb_per_s", gb},
            {"ways", fixed},
            {"first_auto_ms", first},
            {"best", best->name},
            {"auto_ms", ms},
            {"auto_by_best", by_best},
            {"auto_by_full", by_full},
            {"ratio", info.ratio},
            {"rows_sooner_computed", info.n_rows_sooner_computed},
            {"expected_ms", static_cast<double>(info.ttft_expected_ns) * 1e-6},
            {"load_expected_ms", static_cast<double>(info.load_expected_ns) * 1e-6},
            {"compute_expected_ms", static_cast<double>(info.compute_expected_ns) * 1e-6},
            {"computing_expected_ms", static_cast<double>(info.computing_expected_ns) * 1e-6}};
  }

  const Settings& s_;
  const blend::test::TempDir dir_;
  std::shared_ptr<blend::Runtime> runtime_;
  std::shared_ptr<const blend::Model> model_;
  std::vector<std::vector<int32_t>> chunks_;
  std::vector<std::shared_ptr<const blend::ChunkRecord>> records_;
  std::vector<int32_t> question_;
  std::unique_ptr<blend::PrefillTimes> times_;
  blend::Pace pace_;
};

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{
      "What the controller chooses, beside fixed choices, from devices of several speeds."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--dtype", s.dtype, "of the weights: f16, bf16 or f32")->capture_default_str();
  app.add_option("--gb", s.gb, "GB/s of the devices")->delimiter(',');
  app.add_option("--codecs", s.codecs, "that the chunks are stored with")->delimiter(',');
  app.add_option("--policy", s.policy, "hkvd or cascade")
      ->check(CLI::IsMember({"hkvd", "cascade"}))
      ->capture_default_str();
  app.add_option("--chunks", s.chunks)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--chunk-tokens", s.chunk_tokens)->capture_default_str();
  app.add_option("--question-tokens", s.question_tokens)->capture_default_str();
  app.add_option("--ratio", s.ratio, "the least that quality allows")->capture_default_str();
  app.add_option("--below", s.below, "ratios below it, to be seen beside it")->delimiter(',');
  app.add_option("--target", s.target_s, "seconds that the controller is given; 0: the soonest")
      ->capture_default_str();
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", s.json_path, "also write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    std::printf("%s\nshape %s, %s, %zu chunks x %zu tokens + %zu, median of %d\n",
                blend::bench::machine_line().c_str(), s.shape.c_str(), s.policy.c_str(), s.chunks,
                s.chunk_tokens, s.question_tokens, s.repeat);
    blend::bench::write_json(s.json_path, Bench(s).run());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_controller: %s\n", e.what());
    return 1;
  }
}
