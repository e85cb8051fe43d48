#include "bench/real/prompts.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <random>

#include "bench/copy_rate.h"
#include "bench/measure.h"
#include "bench/real/llama_bench.h"
#include "support/temp_dir.h"

namespace blend::bench {
namespace {

using nlohmann::json;

// Calls all of `ways` in every round, so that a machine that slows down slows all of them. Each
// round draws its order: a machine that others take for a moment every few seconds would otherwise
// slow the same way again and again. The first round fills caches and is not counted.
std::vector<FuseTimes> in_turn(const RealBed& bed,
                               const std::vector<std::function<blendpp::FusionReport()>>& ways) {
  std::vector<FuseTimes> out(ways.size());
  std::vector<size_t> order(ways.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(1);  // the same orders in every run
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i <= bed.repeat || seconds_since(begin) < bed.min_seconds; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t w : order) {
      const blendpp::FusionReport report = ways[w]();
      if (i > 0) out[w].reports.push_back(report);
    }
  }
  return out;
}

// What reuse cannot take less than: the bytes that it must move, at the rate of memcpy, and the
// rows that it must compute, at the rate of decoding one row after another or of full prefill,
// whichever is sooner.
double reuse_bound_ms(const RealBed& bed, const FuseTimes& reuse, const FuseTimes& full,
                      double row_ms) {
  const auto pool = must(ThreadPool::create(bed.n_threads));
  const auto rows = static_cast<double>(reuse.last().n_rows_always);
  const double bytes = static_cast<double>(reuse.last().bytes_loaded);
  // Read as they are stored, in 16 bits, and written in 32.
  const double moved_ms = 3 * bytes / copy_rate(*pool, 64u << 20) * 1e3;
  const double flops_ms = full.ttft_ms() * reuse.last().flops / full.last().flops;
  return moved_ms + std::max(std::min(row_ms * rows, flops_ms), row_ms);
}

double one_row_ms(const RealBed& bed, blendpp::Fusion& fusion) {
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    fusion.decode({bed.text.question()[0]});
    if (i > 0) times.push_back(seconds_since(begin) * 1e3);
  }
  return median(std::move(times));
}

}  // namespace

json measure_prompt(const RealBed& bed, const PromptShape& shape, const std::string& llama_bench,
                    const std::string& model) {
  const test::TempDir dir;
  const blendpp::Store store(bed.ctx, dir.path());
  const blendpp::Prompt prompt = bed.prompt(shape);
  const auto fused = [&](const blendpp::Store& from, uint32_t policy) {
    blendpp::FuseOptions options;
    options.policy = policy;
    return blendpp::Fusion(bed.model, &from, prompt, options);
  };
  const std::vector<FuseTimes> computed = in_turn(
      bed, {[&] { return fused(store, BLEND_POLICY_FULL).report(); },
            [&] {  // every time with a store in which nothing is
              const test::TempDir empty;
              return fused(blendpp::Store(bed.ctx, empty.path()), BLEND_POLICY_AUTO).report();
            }});
  bed.precompute(store, shape);
  const std::vector<FuseTimes> stored =
      in_turn(bed, {[&] { return fused(store, BLEND_POLICY_AUTO).report(); },
                    [&] { return fused(store, BLEND_POLICY_REUSE).report(); }});
  const FuseTimes &full = computed[0], &cold = computed[1], &usual = stored[0], &reuse = stored[1];
  blendpp::Fusion fusion = fused(store, BLEND_POLICY_REUSE);
  const double row_ms = one_row_ms(bed, fusion);

  json out = {{"prompt", shape.name()},
              {"rows", full.last().n_rows},
              {"full_ms", full.ttft_ms()},
              {"cold_ms", cold.ttft_ms()},
              {"default_ms", usual.ttft_ms()},
              {"default_ratio", usual.last().ratio},
              {"reuse_ms", reuse.ttft_ms()},
              {"reuse_bound_ms", reuse_bound_ms(bed, reuse, full, row_ms)},
              {"reuse_place_ms", reuse.ms(&blend_fusion_report::place_ns)},
              {"reuse_wait_ms", reuse.ms(&blend_fusion_report::wait_ns)},
              {"reuse_compute_ms", reuse.ms(&blend_fusion_report::compute_ns)},
              {"reuse_bytes", reuse.last().bytes_loaded}};
  const double rate = llama_prefill_rate(llama_bench, model, full.last().n_rows, bed.n_threads);
  if (rate > 0) out["llama_cpp_ms"] = static_cast<double>(full.last().n_rows) / rate * 1e3;
  return out;
}

json measure_precompute(const RealBed& bed, const PromptShape& shape) {
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_FULL;
  std::vector<double> rates, chunk_rates;
  for (int i = 0; i < bed.repeat; ++i) {
    const blendpp::Fusion fusion(bed.model, nullptr, bed.prompt(shape), options);
    const blendpp::FusionReport report = fusion.report();
    rates.push_back(static_cast<double>(report.n_rows) /
                    (static_cast<double>(report.ttft_ns) * 1e-9));
    const test::TempDir dir;
    const blendpp::Store store(bed.ctx, dir.path());
    const auto begin = std::chrono::steady_clock::now();
    // Two prefills of each chunk: after the head, and in context.
    bed.precompute(store, shape, 1, BLEND_CORPUS_NO_CLUSTERS);
    chunk_rates.push_back(2 * static_cast<double>(shape.n_rows()) / seconds_since(begin));
  }
  return {{"prompt", shape.name()},
          {"full_tokens_per_s", median(std::move(rates))},
          {"chunk_tokens_per_s", median(std::move(chunk_rates))}};
}

json measure_many(const RealBed& bed, const PromptShape& shape) {
  const test::TempDir dir;
  const blendpp::Store store(bed.ctx, dir.path());
  const blendpp::Tokens head = bed.head();
  blendpp::PrecomputeOptions each;
  each.chunk_prefix = head.data();
  each.n_chunk_prefix = head.size();
  for (size_t i = 0; i < shape.n_chunks; ++i) {
    bed.model.precompute(store, bed.text.chunk(i, shape.chunk_tokens), each);
  }
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_REUSE;
  const blendpp::Prompt prompt = bed.prompt(shape);
  const FuseTimes times = in_turn(
      bed, {[&] { return blendpp::Fusion(bed.model, &store, prompt, options).report(); }})[0];
  const auto chunks = static_cast<double>(shape.n_chunks);
  return {{"prompt", shape.name()},
          {"ttft_ms", times.ttft_ms()},
          {"plan_us_per_chunk", times.ms(&blend_fusion_report::plan_ns) * 1e3 / chunks},
          {"load_us_per_chunk", times.ms(&blend_fusion_report::load_ns) * 1e3 / chunks},
          {"place_us_per_chunk", times.ms(&blend_fusion_report::place_ns) * 1e3 / chunks}};
}

}  // namespace blend::bench
