// The row trace against the library's own account.
#include "eval/rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend_cli {
namespace {

class EvalRowsTrace : public ::testing::Test {
 protected:
  EvalRowsTrace() : model_(ctx_, write()), store_(ctx_, temp_.path() + "/store") {
    prompt_.prefix({1});
    prompt_.chunk(model_.tokenize("the cat sat on the mat"));
    prompt_.chunk(model_.tokenize("the dog ran to the park and the bird sang"));
    prompt_.text(model_.tokenize("so"));
    prompt_.chunk(model_.tokenize("a bird sang in the old tree"));
    prompt_.question(model_.tokenize("who sat"));
  }
  std::string write() {
    blend::test::RandomModelSpec spec;
    spec.n_layers = 5;
    return blend::test::write_random_model(spec, temp_.path() + "/model.gguf");
  }
  blendpp::Fusion fuse(uint32_t policy, double ratio, uint32_t check_layer,
                       const blendpp::Tokens& prefix, uint32_t on_miss) {
    blendpp::FuseOptions options;
    options.policy = policy;
    options.ratio = ratio;
    options.selection.check_layer = check_layer;
    static constexpr int32_t kNothing = 0;  // NULL is the prompt head
    options.chunk_prefix = prefix.empty() ? &kNothing : prefix.data();
    options.n_chunk_prefix = prefix.size();
    options.on_miss = on_miss;
    return blendpp::Fusion(model_, &store_, prompt_, options);
  }

  blend::test::TempDir temp_;
  blendpp::Context ctx_;
  blendpp::Model model_;
  blendpp::Store store_;
  blendpp::Prompt prompt_;
};

TEST_F(EvalRowsTrace, AgreesWithTheLibrarysAccount) {
  // After BOS, the first chunk is exact: BOS is what precedes it in the prompt.
  for (const blendpp::Tokens& prefix : {blendpp::Tokens{}, blendpp::Tokens{1}}) {
    for (const uint32_t policy : {BLEND_POLICY_FULL, BLEND_POLICY_REUSE, BLEND_POLICY_HKVD}) {
      for (const uint32_t check_layer : {1u, 3u, 4u}) {
        for (const double ratio : {0.0, 0.2, 1.0}) {
          for (const uint32_t on_miss : {BLEND_MISS_COMPUTE, BLEND_MISS_PRECOMPUTE}) {
            const blendpp::Fusion fusion = fuse(policy, ratio, check_layer, prefix, on_miss);
            const RowTrace trace = trace_of(fusion);
            ASSERT_EQ(trace.layers.size(), 5u);
            for (uint32_t layer = 0; layer < 5; ++layer) {
              const blendpp::LayerInfo info = fusion.layer(layer);
              EXPECT_EQ(trace.layers[layer].kv.size(), info.rows_kv)
                  << "policy " << policy << " check " << check_layer << " ratio " << ratio
                  << " layer " << layer;
              EXPECT_EQ(trace.layers[layer].full.size(), info.rows_full)
                  << "policy " << policy << " check " << check_layer << " ratio " << ratio
                  << " layer " << layer;
            }
          }
        }
      }
    }
  }
}

TEST_F(EvalRowsTrace, TheLastRowIsComputedWhateverItBelongsTo) {
  prompt_ = blendpp::Prompt();
  prompt_.chunk(model_.tokenize("the cat sat")).chunk(model_.tokenize("the dog ran"));
  for (const uint32_t policy : {BLEND_POLICY_REUSE, BLEND_POLICY_HKVD}) {
    const blendpp::Fusion fusion = fuse(policy, 0.2, 1, {}, BLEND_MISS_PRECOMPUTE);
    const RowTrace trace = trace_of(fusion);
    for (uint32_t layer = 0; layer < 5; ++layer) {
      EXPECT_EQ(trace.layers[layer].kv.size(), fusion.layer(layer).rows_kv);
      EXPECT_EQ(trace.layers[layer].full.size(), fusion.layer(layer).rows_full);
      ASSERT_FALSE(trace.layers[layer].full.empty());
      EXPECT_EQ(trace.layers[layer].full.back() + 1, trace.n_rows);
    }
  }
}

TEST_F(EvalRowsTrace, TheRowsAreThoseOfTheSegments) {
  const blendpp::Fusion fusion = fuse(BLEND_POLICY_HKVD, 0.2, 1, {}, BLEND_MISS_PRECOMPUTE);
  const RowTrace trace = trace_of(fusion);
  ASSERT_EQ(trace.segments.size(), 6u);
  EXPECT_TRUE(trace.segments[0].exact);
  const RowTrace::Segment& text = trace.segments[3];
  const std::vector<uint32_t>& late = trace.layers[2].kv;
  const auto has = [&](uint32_t row) {
    return std::find(late.begin(), late.end(), row) != late.end();
  };
  for (uint32_t row = text.first_row; row < text.first_row + text.n_rows; ++row) {
    EXPECT_TRUE(has(row));
  }
  for (const uint32_t row : trace.selected) EXPECT_TRUE(has(row));
  EXPECT_FALSE(has(0));  // BOS is exact
  EXPECT_TRUE(has(trace.n_rows - 1));
  EXPECT_EQ(late.size(), trace.selected.size() + fusion.report().n_rows_always);
}

}  // namespace
}  // namespace blend_cli
