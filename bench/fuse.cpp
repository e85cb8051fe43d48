// How a fuse spends its time, layer by layer, and whether loading hides behind computing: TTFT
// compared with the times of loading alone and of computing alone, from devices of several
// bandwidths around the one at which the two are equal. Then several prompts over the same chunks,
// one by one and in a batch; and a prompt whose chunks are all missing, by what is done about it.
//
// Chunks are in memory, read through a reader that takes as long as a device of the stated
// bandwidth would, without using the CPU. All times of a line are medians of runs that alternate,
// so that a machine whose speed changes does not favour one of them.
//
//   bench_fuse --shape 135m --chunks 4 --chunk-tokens 256 --json out.json
//   bench/fuse_picture.py out.json > docs/fuse-ttft.svg
#include "fusion/run/fuse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/shapes.h"
#include "bench/throttled_store.h"
#include "calibrate/memory_store.h"
#include "engine/precompute.h"
#include "fusion/idle/deferred_prefill.h"
#include "fusion/load/layer_feed.h"
#include "support/temp_dir.h"

namespace {

using blend::Result;
using blend::Segment;
using blend::SegmentKind;
using blend::bench::median;
using blend::bench::must;
using nlohmann::json;

struct Settings {
  std::string shape = "135m";
  std::string dtype = "f16";
  size_t chunks = 4;
  size_t chunk_tokens = 256;
  size_t question_tokens = 32;
  double ratio = 0.15;
  std::vector<double> factors{0.25, 0.5, 0.7, 1, 1.4, 2, 4};
  size_t prompts = 4;
  uint32_t threads = 0;
  int repeat = 5;
  std::string json_path;
};

double ms(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

class Bench {
 public:
  explicit Bench(const Settings& s) : s_(s) {
    const blend::test::RandomModelSpec spec = blend::bench::shape_of(s.shape, s.dtype);
    const std::string path = blend::test::write_random_model(spec, dir_.file("model.gguf"));
    runtime_ = must(blend::Runtime::create(s.threads, {}));
    model_ = must(blend::Model::load(runtime_, path, {}, {}));
    access_ = {&store_, false, blend::DType::f16, nullptr};
    options_.ratio = blend::RatioRequest::fixed(s.ratio);
    for (size_t i = 0; i < s.chunks; ++i) {
      chunks_.push_back(blend::bench::random_tokens(s.chunk_tokens, spec.n_vocab, 100 + i));
      auto meta = blend::describe_chunk(*model_, blend::DType::f16, {}, "", chunks_.back());
      must(store_.put_async(must(blend::precompute_chunk(*model_, {}, std::move(meta), {}))));
    }
    for (size_t i = 0; i < std::max<size_t>(1, s.prompts); ++i) {
      const auto question = blend::bench::random_tokens(s.question_tokens, spec.n_vocab, 900 + i);
      prompts_.push_back(prompt_of(question, i));
    }
  }

  json run() {
    std::printf(
        "shape %s (%s weights), %zu chunks x %zu tokens + %zu question tokens, ratio %g, "
        "median of %d\n",
        s_.shape.c_str(), s_.dtype.c_str(), s_.chunks, s_.chunk_tokens, s_.question_tokens,
        s_.ratio, s_.repeat);
    json out = {{"bench", "fuse"},
                {"shape", s_.shape},
                {"dtype", s_.dtype},
                {"chunks", s_.chunks},
                {"chunk_tokens", s_.chunk_tokens},
                {"question_tokens", s_.question_tokens},
                {"ratio", s_.ratio},
                {"repeat", s_.repeat}};
    // Where loading takes as long as computing.
    set_bandwidth(kUnlimited);
    for (int i = 0; i < 3; ++i) fuse_once();
    std::vector<double> compute;
    uint64_t bytes = 0;
    for (int i = 0; i < s_.repeat; ++i) {
      const blend::Fused f = fuse_once();
      compute.push_back(ms(f.info.ttft_ns - f.info.wait_ns));
      bytes = f.info.bytes_loaded;
    }
    const double crossing = static_cast<double>(bytes) / (median(compute) * 1e-3);
    out["bytes"] = bytes;
    out["crossing_bytes_per_s"] = crossing;
    out["sweep"] = sweep(crossing);
    out["layers"] = layers(crossing);
    out["batch"] = batch(crossing);
    out["misses"] = misses();
    return out;
  }

 private:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  // Chunks turned by `turn` places, so that each stands first in some prompt.
  std::vector<Segment> prompt_of(const std::vector<int32_t>& question, size_t turn) const {
    std::vector<Segment> p;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      p.push_back({SegmentKind::chunk, chunks_[(i + turn) % chunks_.size()], {}});
    }
    p.push_back({SegmentKind::question, question, {}});
    return p;
  }
  void set_bandwidth(double bytes_per_s) {
    store_.device().set_bytes_per_s(bytes_per_s);
    // A new device: reads of the last one are not counted.
    access_.reads = &reads_.emplace();
  }
  blend::Fused fuse_once(bool known_device = true) {
    blend::StoreAccess access = access_;
    if (!known_device) access.reads = nullptr;
    return must(blend::fuse(model_, access, blend::FuseRequest{prompts_.front(), options_, {}}));
  }
  // The same chunks and layers by the same reader, with nothing to compute.
  double load_alone_ms() {
    const blend::Stopwatch clock;
    const auto job = must(blend::make_job(*model_, access_, {prompts_.front(), options_, {}}));
    blend::PromptBuilder builder(*model_, &store_, false, blend::DType::f16, options_, job.fuse);
    const blend::Prompt prompt = must(builder.build(prompts_.front(), {}, {}));
    const uint32_t n_layers = model_->config().n_layers;
    blend::LayerFeed feed(model_->backend(), n_layers, clock);
    const auto view = feed.subscribe(prompt, options_.check_layer);
    must(feed.start(3));
    for (uint32_t layer = 0; layer < n_layers; ++layer) {
      if (!view->has(layer)) continue;
      must(view->acquire(layer));
      view->release(layer);
    }
    return ms(clock.now_ns());
  }

  json sweep(double crossing) {
    std::printf("\n%10s %9s %9s %9s %9s %10s %10s %8s %6s %14s\n", "MB/s", "load ms", "compute",
                "sum", "TTFT", "TTFT/max", "TTFT/sum", "wait", "ring", "TTFT, ring of 3");
    json rows = json::array();
    for (const double factor : s_.factors) {
      set_bandwidth(crossing * factor);
      for (int i = 0; i < 2; ++i) fuse_once();  // the meters learn
      std::vector<double> load, compute, ttft, shallow, wait, stall, to_max, to_sum;
      uint32_t depth = 0;
      for (int i = 0; i < s_.repeat; ++i) {
        load.push_back(load_alone_ms());
        store_.device().set_bytes_per_s(kUnlimited);
        const blend::Fused alone = fuse_once(false);
        compute.push_back(ms(alone.info.ttft_ns - alone.info.wait_ns));
        store_.device().set_bytes_per_s(crossing * factor);
        const blend::Fused fused = fuse_once();
        ttft.push_back(ms(fused.info.ttft_ns));
        wait.push_back(ms(fused.info.wait_ns));
        stall.push_back(ms(fused.info.stall_ns));
        depth = fused.info.ring_depth;
        shallow.push_back(ms(fuse_once(false).info.ttft_ns));
        to_max.push_back(ttft.back() / std::max(load.back(), compute.back()));
        to_sum.push_back(ttft.back() / (load.back() + compute.back()));
      }
      const double l = median(load), c = median(compute), t = median(ttft);
      std::printf("%10.1f %9.1f %9.1f %9.1f %9.1f %10.2f %10.2f %8.1f %6u %14.1f\n",
                  crossing * factor * 1e-6, l, c, l + c, t, median(to_max), median(to_sum),
                  median(wait), depth, median(shallow));
      rows.push_back({{"factor", factor},
                      {"bytes_per_s", crossing * factor},
                      {"load_ms", l},
                      {"compute_ms", c},
                      {"ttft_ms", t},
                      {"ttft_by_max", median(to_max)},
                      {"ttft_by_sum", median(to_sum)},
                      {"wait_ms", median(wait)},
                      {"stall_ms", median(stall)},
                      {"ring_depth", depth},
                      {"ttft_ring_of_3_ms", median(shallow)}});
    }
    return rows;
  }

  // One fuse at the crossing, layer by layer.
  json layers(double crossing) {
    set_bandwidth(crossing);
    for (int i = 0; i < 2; ++i) fuse_once();
    const blend::Fused f = fuse_once();
    std::printf(
        "\nAt the crossing, layer by layer, ms (plan %.1f, prepare %.1f before; TTFT %.1f):\n"
        "%5s %8s %8s %9s %9s %8s %8s %8s %8s %9s\n",
        ms(f.info.plan_ns), ms(f.info.prepare_ns), ms(f.info.ttft_ns), "layer", "rows kv", "rows",
        "load at", "load", "stall", "wait", "place", "select", "compute");
    json rows = json::array();
    for (const blend_layer_info& l : f.layers) {
      const uint64_t compute =
          l.compute_end_ns - l.compute_begin_ns - l.wait_ns - l.place_ns - l.select_ns;
      std::printf("%5u %8llu %8llu %9.2f %9.2f %8.2f %8.2f %8.2f %8.2f %9.2f\n", l.layer,
                  static_cast<unsigned long long>(l.rows_kv),
                  static_cast<unsigned long long>(l.rows_full), ms(l.load_begin_ns),
                  ms(l.load_end_ns - l.load_begin_ns), ms(l.stall_ns), ms(l.wait_ns),
                  ms(l.place_ns), ms(l.select_ns), ms(compute));
      rows.push_back({{"layer", l.layer},
                      {"rows_kv", l.rows_kv},
                      {"rows_full", l.rows_full},
                      {"bytes_loaded", l.bytes_loaded},
                      {"load_begin_ms", ms(l.load_begin_ns)},
                      {"load_end_ms", ms(l.load_end_ns)},
                      {"compute_begin_ms", ms(l.compute_begin_ns)},
                      {"compute_end_ms", ms(l.compute_end_ns)},
                      {"stall_ms", ms(l.stall_ns)},
                      {"wait_ms", ms(l.wait_ns)},
                      {"place_ms", ms(l.place_ns)},
                      {"select_ms", ms(l.select_ns)},
                      {"compute_ms", ms(compute)}});
    }
    return rows;
  }

  json batch(double crossing) {
    if (s_.prompts < 2) return json::array();
    std::printf("\n%zu prompts over the same chunks:\n%14s %14s %12s %14s %12s %9s\n", s_.prompts,
                "MB/s", "one by one ms", "MB", "batch ms", "MB", "speed-up");
    std::vector<blend::FuseJob> jobs;
    for (const auto& prompt : prompts_) {
      jobs.push_back(must(blend::make_job(*model_, access_, {prompt, options_, {}})));
    }
    json rows = json::array();
    for (const double bandwidth : {crossing * 0.25, crossing, kUnlimited}) {
      set_bandwidth(bandwidth);
      for (int i = 0; i < 2; ++i) fuse_once();
      std::vector<double> single, together, ratio;
      uint64_t single_bytes = 0, together_bytes = 0;
      for (int i = 0; i < s_.repeat; ++i) {
        single_bytes = together_bytes = 0;
        const blend::Stopwatch one_by_one;
        for (const blend::FuseJob& job : jobs) {
          single_bytes += must(blend::fuse(model_, access_, job)).info.bytes_loaded;
        }
        single.push_back(ms(one_by_one.now_ns()));
        const blend::Stopwatch in_batch;
        for (auto& result : blend::fuse_batch(model_, access_, jobs)) {
          together_bytes += must(std::move(result)).info.bytes_loaded;
        }
        together.push_back(ms(in_batch.now_ns()));
        ratio.push_back(single.back() / together.back());
      }
      std::printf("%14.1f %14.1f %12.2f %14.1f %12.2f %8.2fx\n", bandwidth * 1e-6, median(single),
                  static_cast<double>(single_bytes) * 1e-6, median(together),
                  static_cast<double>(together_bytes) * 1e-6, median(ratio));
      rows.push_back({{"bytes_per_s", bandwidth == kUnlimited ? json(nullptr) : json(bandwidth)},
                      {"prompts", s_.prompts},
                      {"one_by_one_ms", median(single)},
                      {"one_by_one_bytes", single_bytes},
                      {"batch_ms", median(together)},
                      {"batch_bytes", together_bytes},
                      {"speed_up", median(ratio)}});
    }
    return rows;
  }

  // Nothing is stored: the first token, the tokens after it, background work, and the same prompt
  // again.
  json misses() {
    struct Way {
      const char* name;
      blend::OnMiss on_miss;
      std::vector<double> first, token, behind, next;
    };
    Way ways[] = {{"precompute", blend::OnMiss::precompute, {}, {}, {}, {}},
                  {"compute", blend::OnMiss::compute, {}, {}, {}, {}},
                  {"compute_store", blend::OnMiss::compute_store, {}, {}, {}, {}}};
    constexpr int kTokens = 16;
    for (int i = 0; i <= s_.repeat; ++i) {
      for (Way& way : ways) {
        const auto store = std::make_shared<blend::MemoryStore>();
        blend::DeferredPrefill later(std::make_shared<blend::IdleWorker>(runtime_), store);
        const blend::StoreAccess access{store.get(), false, blend::DType::f16, &later, nullptr};
        blend::FuseOptions options = options_;
        options.on_miss = way.on_miss;
        blend::Fused fused =
            must(blend::fuse(model_, access, blend::FuseRequest{prompts_.front(), options, {}}));
        const blend::Stopwatch decoding;
        for (int32_t t = 0; t < kTokens; ++t) must(fused.sequence->append({&t, 1}, {}));
        const double token_ms = ms(decoding.now_ns()) / kTokens;
        const blend::Stopwatch behind;
        must(later.flush());
        const double behind_ms = ms(behind.now_ns());
        options.on_miss = blend::OnMiss::compute;
        const blend::Fused again =
            must(blend::fuse(model_, access, blend::FuseRequest{prompts_.front(), options, {}}));
        if (i == 0) continue;  // the first runs pay for what later ones find ready
        way.first.push_back(ms(fused.info.ttft_ns));
        way.token.push_back(token_ms);
        way.behind.push_back(behind_ms);
        way.next.push_back(ms(again.info.ttft_ns));
      }
    }
    std::printf("\nall chunks missing:\n%16s %15s %15s %15s %15s\n", "on miss", "first token ms",
                "a token ms", "after it ms", "next prompt ms");
    json rows = json::array();
    for (const Way& way : ways) {
      std::printf("%16s %15.1f %15.2f %15.1f %15.1f\n", way.name, median(way.first),
                  median(way.token), median(way.behind), median(way.next));
      rows.push_back({{"on_miss", way.name},
                      {"first_token_ms", median(way.first)},
                      {"token_ms", median(way.token)},
                      {"behind_ms", median(way.behind)},
                      {"next_prompt_ms", median(way.next)}});
    }
    return rows;
  }

  const Settings& s_;
  const blend::test::TempDir dir_;
  std::shared_ptr<blend::Runtime> runtime_;
  std::shared_ptr<const blend::Model> model_;
  blend::bench::ThrottledStore store_;
  std::optional<blend::ReadRates> reads_;
  blend::StoreAccess access_;
  blend::FuseOptions options_;
  std::vector<std::vector<int32_t>> chunks_;
  std::vector<std::vector<Segment>> prompts_;
};

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Phases of a fuse, loading beside computing, and batches."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--dtype", s.dtype, "of the weights: f16, bf16 or f32")->capture_default_str();
  app.add_option("--chunks", s.chunks)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--chunk-tokens", s.chunk_tokens)->capture_default_str();
  app.add_option("--question-tokens", s.question_tokens)->capture_default_str();
  app.add_option("--ratio", s.ratio)->capture_default_str();
  app.add_option("--factors", s.factors,
                 "bandwidths, of the one where loading takes as long as "
                 "computing; comma-separated")
      ->delimiter(',');
  app.add_option("--prompts", s.prompts, "of the batch")->capture_default_str();
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", s.json_path, "also write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    const json out = Bench(s).run();
    blend::bench::write_json(s.json_path, out);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_fuse: %s\n", e.what());
    return 1;
  }
}
