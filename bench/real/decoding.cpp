#include "bench/real/decoding.h"

#include <chrono>

#include "bench/measure.h"
#include "bench/real/llama_bench.h"

namespace blend::bench {

nlohmann::json measure_decoding(const RealBed& bed, size_t context, uint32_t n_tokens,
                                const std::string& llama_bench, const std::string& model) {
  blendpp::Prompt prompt;
  prompt.question(bed.text.chunk(0, context));
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_FULL;
  options.reserve_tokens = n_tokens + 8;
  blendpp::GenerateOptions generate;
  generate.max_tokens = n_tokens + 1;
  generate.ignore_eos = 1;
  std::vector<double> times;
  for (int i = 0; i < bed.repeat; ++i) {
    blendpp::Fusion fusion(bed.model, nullptr, prompt, options);
    auto last = std::chrono::steady_clock::now();
    bool first = true;
    fusion.generate(generate, [&](int32_t, std::string_view) {
      if (!std::exchange(first, false)) times.push_back(seconds_since(last));
      last = std::chrono::steady_clock::now();
      return true;
    });
  }
  nlohmann::json out = {{"context", context}, {"tokens_per_s", 1 / median(std::move(times))}};
  const double peer = llama_decode_rate(llama_bench, model, context, n_tokens, bed.n_threads);
  if (peer > 0) out["llama_cpp_tokens_per_s"] = peer;
  return out;
}

}  // namespace blend::bench
