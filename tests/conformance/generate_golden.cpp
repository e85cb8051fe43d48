// Writes tests/conformance/golden/fusion-random.json from the float64 reference. Run it again only
// when the reference or the random model changes, and say in the commit why the numbers moved.
//
//   generate_golden tests/conformance/golden/fusion-random.json
#include <cstdio>
#include <exception>

#include "conformance/golden_file.h"
#include "conformance/own_golden.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

GoldenFile generate() {
  const TempDir dir;
  const ReferenceModel model(make_own_golden_model(dir.file("model.gguf")));
  GoldenFile file;
  file.model = "make_own_golden_model() of own_golden.cpp";
  file.note =
      "float64; each chunk prefilled alone; the chunk at position 0 is exact but counts in the "
      "budget; layer 0 computed for all rows; selection once at layer 1 by sum of squared V "
      "deviation, ceil(0.15*context) rows; query rows always computed; fresh layer-1 K,V kept for "
      "all rows; later layers: stored rows except selected and query; logprobs of the last query "
      "row";
  SplitMix rng(7);
  const std::vector<std::vector<size_t>> lengths = {{20, 13, 27}, {1, 40, 9, 16}, {33, 33}};
  for (const auto& chunk_lengths : lengths) {
    GoldenCase c;
    const auto draw = [&](size_t n) {
      std::vector<int32_t> tokens(n);
      for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(model.config().n_vocab));
      return tokens;
    };
    for (const size_t n : chunk_lengths) c.chunks.push_back(draw(n));
    c.query = draw(6);
    size_t n_context = 0;
    for (const size_t n : chunk_lengths) n_context += n;

    ReferenceFuseOptions options;
    const auto run = [&](uint32_t policy, uint32_t metric) {
      options.policy = policy;
      options.metric = metric;
      return reference_fuse(model, c.prompt(), options);
    };
    c.full_logprobs = log_probabilities(run(BLEND_POLICY_FULL, BLEND_METRIC_V).logits);
    c.reuse_logprobs = log_probabilities(run(BLEND_POLICY_REUSE, BLEND_METRIC_V).logits);
    const ReferenceFusion blend = run(BLEND_POLICY_HKVD, BLEND_METRIC_V);
    c.blend15_logprobs = log_probabilities(blend.logits);
    c.blend15_selected = blend.selected;
    c.v_deviation_layer1 = blend.deviation;
    c.k_deviation_layer1 = run(BLEND_POLICY_HKVD, BLEND_METRIC_K).deviation;
    c.v_deviation_layer1.resize(n_context);
    c.k_deviation_layer1.resize(n_context);
    file.cases.push_back(std::move(c));
  }
  return file;
}

}  // namespace
}  // namespace blend::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: generate_golden OUT.json\n");
    return 2;
  }
  try {
    blend::test::write_golden(blend::test::generate(), argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "generate_golden: %s\n", e.what());
    return 1;
  }
  return 0;
}
