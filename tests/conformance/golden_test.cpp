// Golden fusion cases: the reference against the file (which makes the reference trustworthy), then
// the library against the file, through the C ABI with an f32 store.
#include <gtest/gtest.h>

#include "conformance/golden_file.h"
#include "conformance/own_golden.h"
#include "support/outside_data.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr double kReferenceTolerance = 1e-6;  // the files keep eight decimals
constexpr double kLibraryTolerance = 1e-4;    // the project's promise for f32

struct Source {
  const char* name;
  bool own;  // in the repository, its model made by make_own_golden_model
  std::string golden;
  std::string model;
};

void PrintTo(const Source& source, std::ostream* out) { *out << source.name; }

class Golden : public testing::TestWithParam<Source> {
 protected:
  void SetUp() override {
    const Source& source = GetParam();
    if (!source.own && (source.golden.empty() || source.model.empty())) {
      GTEST_SKIP() << kNoOutsideData;
    }
    model_path_ = source.own ? make_own_golden_model(dir_.file("model.gguf")) : source.model;
    golden_ = read_golden(source.golden);
    ASSERT_FALSE(golden_.cases.empty());
  }

  static std::vector<double> probabilities(const Fusion& fusion) {
    return log_probabilities(widen(logits(fusion)));
  }
  static void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                          double tolerance, const char* what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance) << what << "[" << i << "]";
    }
  }

  TempDir dir_;
  std::string model_path_;
  GoldenFile golden_;
};

TEST_P(Golden, ReferenceAgreesWithTheFile) {
  const ReferenceModel reference(model_path_);
  for (const GoldenCase& c : golden_.cases) {
    const auto run = [&](uint32_t policy, uint32_t metric) {
      ReferenceFuseOptions options;
      options.policy = policy;
      options.metric = metric;
      return reference_fuse(reference, c.prompt(), options);
    };
    const ReferenceFusion full = run(BLEND_POLICY_FULL, BLEND_METRIC_V);
    const ReferenceFusion reuse = run(BLEND_POLICY_REUSE, BLEND_METRIC_V);
    const ReferenceFusion blend = run(BLEND_POLICY_HKVD, BLEND_METRIC_V);
    expect_near(log_probabilities(full.logits), c.full_logprobs, kReferenceTolerance, "full");
    expect_near(log_probabilities(reuse.logits), c.reuse_logprobs, kReferenceTolerance, "reuse");
    expect_near(log_probabilities(blend.logits), c.blend15_logprobs, kReferenceTolerance, "15 %");
    EXPECT_EQ(blend.selected, c.blend15_selected);

    std::vector<double> v = blend.deviation;
    v.resize(c.v_deviation_layer1.size());  // the file holds the rows of the chunks
    expect_near(v, c.v_deviation_layer1, kReferenceTolerance, "V deviation");
    std::vector<double> k = run(BLEND_POLICY_HKVD, BLEND_METRIC_K).deviation;
    k.resize(c.k_deviation_layer1.size());
    expect_near(k, c.k_deviation_layer1, kReferenceTolerance, "K deviation");
    expect_near(log_probabilities(reference.prefill(flatten(c.prompt())).logits.back()),
                c.full_logprobs, kReferenceTolerance, "prefill");
  }
}

TEST_P(Golden, LibraryAgreesWithTheFile) {
  const Ctx ctx = make_ctx();
  const Model model = open_model(ctx, model_path_);
  const Store store = open_store(ctx, dir_.file("store"));
  for (const GoldenCase& c : golden_.cases) {
    const Prompt prompt = c.prompt();
    precompute_all(model, store, prompt, {});
    const auto run = [&](FuseCase how) {
      how.on_miss = BLEND_MISS_FAIL;  // every chunk must come from the store
      return fuse(model, store, prompt, how);
    };
    const Fusion full = run({.policy = BLEND_POLICY_FULL});
    const Fusion reuse = run({.policy = BLEND_POLICY_REUSE});
    const Fusion blend = run({.policy = BLEND_POLICY_HKVD, .ratio = 0.15});
    const Fusion blend_k = run({.policy = BLEND_POLICY_HKVD, .metric = BLEND_METRIC_K});
    const Fusion everything = run({.policy = BLEND_POLICY_HKVD, .ratio = 1.0});
    ASSERT_TRUE(full && reuse && blend && blend_k && everything);

    expect_near(probabilities(full), c.full_logprobs, kLibraryTolerance, "full");
    expect_near(probabilities(reuse), c.reuse_logprobs, kLibraryTolerance, "reuse");
    expect_near(probabilities(blend), c.blend15_logprobs, kLibraryTolerance, "15 %");
    EXPECT_EQ(selected(blend), c.blend15_selected);
    EXPECT_EQ(info(blend).n_rows_selected, c.blend15_selected.size());
    EXPECT_LE(max_difference(logits(everything), logits(full)), 1e-4) << "ratio 1";

    const auto expect_deviation = [&](const Fusion& f, const std::vector<double>& want) {
      std::vector<float> got = deviation(f);
      ASSERT_EQ(got.size(), flatten(prompt).size());
      for (size_t i = 0; i < got.size(); ++i) {
        const double expected = i < want.size() ? want[i] : 0.0;
        EXPECT_NEAR(static_cast<double>(got[i]), expected, 1e-5 + 1e-4 * expected) << "row " << i;
      }
    };
    expect_deviation(blend, c.v_deviation_layer1);
    expect_deviation(blend_k, c.k_deviation_layer1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, Golden,
    testing::Values(Source{"Own", true,
                           BLEND_TEST_SOURCE_DIR "/conformance/golden/fusion-random.json", ""},
                    Source{"Stories260K", false, outside_data("golden/fusion-stories260K.json"),
                           outside_data("models/stories260K.gguf")}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace blend::test
