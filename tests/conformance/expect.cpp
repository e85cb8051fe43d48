#include "conformance/expect.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace blend::test {
namespace {

// Stored rows that were rounded to 16 bits may round the other way in f32 than in f64; what that
// moves a deviation by is far above f32's own error.
double deviation_tolerance(double deviation, DType kv_dtype, const FuseCase& how) {
  if (kv_dtype != DType::f32) return 1e-3 + 1e-2 * deviation;
  // Squares hide the rounding of small differences; magnitudes add it up.
  return (how.norm == BLEND_NORM_L1 ? 2e-5 : 1e-6) + 1e-4 * deviation;
}

void expect_selection(const Fusion& fusion, ReferenceFusion& want, const ReferenceModel& reference,
                      const Prompt& prompt, const FuseCase& how, DType kv_dtype) {
  const std::vector<uint32_t> got = selected(fusion);
  ASSERT_TRUE(std::is_sorted(got.begin(), got.end()));
  ASSERT_EQ(got.size(), want.selected.size()) << "budget " << want.budget;
  if (got == want.selected) return;
  ASSERT_NE(how.policy, BLEND_POLICY_UNION) << "a union's terms have a list each";
  double threshold = 1e300;  // the least score that the reference selected
  for (const uint32_t row : want.selected) threshold = std::min(threshold, want.score[row]);
  std::vector<uint32_t> different;
  std::set_symmetric_difference(got.begin(), got.end(), want.selected.begin(), want.selected.end(),
                                std::back_inserter(different));
  for (const uint32_t row : different) {
    ASSERT_LT(row, want.n_rows);
    ASSERT_NE(want.score[row], 0.0) << "row " << row << " may not be selected";
    ASSERT_NEAR(want.score[row], threshold, 2 * deviation_tolerance(threshold, kv_dtype, how))
        << "row " << row << " is not a near tie";
  }
  ReferenceFuseOptions options = reference_options(how, kv_dtype);
  options.forced_selection = got;
  want = reference_fuse(reference, prompt, options);
}

void expect_counts(const Fusion& fusion, const ReferenceFusion& want, const Prompt& prompt,
                   const FuseCase& how, uint32_t n_layers) {
  const blend_fusion_report i = info(fusion);
  EXPECT_EQ(i.policy, how.policy);
  EXPECT_EQ(i.n_layers, n_layers);
  EXPECT_EQ(i.n_rows, want.n_rows);
  EXPECT_EQ(i.n_segments, prompt.size());
  EXPECT_EQ(i.n_rows_exact, want.n_exact);
  EXPECT_EQ(i.n_rows_reused, want.n_reused);
  EXPECT_EQ(i.n_rows_selected, want.selected.size());
  EXPECT_EQ(i.n_rows_corrected, want.n_corrected);
  EXPECT_EQ(i.n_rows_shifted, want.n_shifted);
  EXPECT_EQ(i.n_rows_tempered, want.n_tempered);
  EXPECT_EQ((i.flags & BLEND_FUSION_CORRECTED) != 0, want.n_corrected > 0);
  if (how.policy != BLEND_POLICY_FULL) {
    EXPECT_EQ(i.n_rows_always, want.n_always);
  }
  EXPECT_EQ(i.n_check_layers, want.checks.size());
  if (!want.checks.empty()) {
    EXPECT_EQ(i.metric, how.metric);
    EXPECT_EQ(i.norm, how.norm);
    EXPECT_EQ(i.relative, how.relative);
    EXPECT_EQ(i.check_layer, want.checks.front().layer);
    if (how.check_layers.empty()) {
      EXPECT_EQ(i.ratio, how.ratio);
    }
    // A budget is met to the row, whatever the policy.
    if (n_layers > 1 || !reference_measures(reference_options(how, DType::f32))) {
      EXPECT_EQ(i.n_rows_selected, std::min(want.budget, want.n_candidates));
    }
  }

  const std::vector<uint32_t> rows = selected(fusion);
  uint64_t first = 0, n_stored = 0;
  for (size_t s = 0; s < prompt.size(); ++s) {
    const blend_segment_info seg = segment_info(fusion, s);
    const bool stored_kind =
        prompt[s].kind == BLEND_SEGMENT_CHUNK || prompt[s].kind == BLEND_SEGMENT_PREFIX;
    const uint64_t end = first + prompt[s].tokens.size();
    EXPECT_EQ(seg.kind, prompt[s].kind);
    EXPECT_EQ(seg.first_row, first) << "segment " << s;
    EXPECT_EQ(seg.n_rows, prompt[s].tokens.size()) << "segment " << s;
    EXPECT_EQ(seg.exact, want.exact[s]) << "segment " << s;
    EXPECT_EQ(seg.n_rows_selected,
              static_cast<uint64_t>(std::count_if(
                  rows.begin(), rows.end(), [&](uint32_t r) { return r >= first && r < end; })));
    if (!stored_kind) {
      EXPECT_EQ(seg.source, BLEND_SOURCE_NONE) << "segment " << s;
    } else if (how.policy == BLEND_POLICY_FULL || prompt[s].computed) {
      EXPECT_EQ(seg.source, BLEND_SOURCE_COMPUTED) << "segment " << s;
    } else {
      EXPECT_TRUE(seg.source == BLEND_SOURCE_STORE || seg.source == BLEND_SOURCE_PRECOMPUTED);
    }
    n_stored += stored_kind ? 1 : 0;
    first = end;
  }
  if (how.policy != BLEND_POLICY_FULL) {
    EXPECT_EQ(i.n_hits + i.n_misses, n_stored);
  }

  for (uint32_t l = 0; l < n_layers; ++l) {
    const blend_layer_info layer = layer_info(fusion, l);
    EXPECT_EQ(layer.layer, l);
    uint64_t computed = want.n_always + (want.checks.empty() ? 0 : want.n_candidates);
    for (size_t c = 0; c < want.n_after.size(); ++c) {
      // A check at layer 0 is before it; at any other, K and V are there already.
      const uint32_t layer_of = want.checks[c].layer;
      if (l > layer_of || layer_of == 0) computed = want.n_always + want.n_after[c];
    }
    EXPECT_EQ(layer.rows_kv, computed) << "layer " << l;
    EXPECT_EQ(layer.rows_kv + layer.rows_placed, want.n_rows) << "layer " << l;
    EXPECT_LE(layer.rows_full, layer.rows_kv) << "layer " << l;
  }
}

}  // namespace

ReferenceFuseOptions reference_options(const FuseCase& how, DType kv_dtype) {
  ReferenceFuseOptions options;
  options.policy = how.policy;
  options.metric = how.metric;
  options.norm = how.norm;
  options.relative = how.relative != 0;
  options.seed = how.seed;
  options.check_layers = how.check_layers;
  options.terms = how.terms;
  options.score = how.score;
  options.check_layer = how.check_layer;
  options.ratio = how.ratio;
  options.kv_dtype = kv_dtype;
  options.chunk_prefix = how.chunk_prefix;
  options.drift = how.drift;
  options.ape_temperature = how.ape_temperature;
  options.ape_scale = how.ape_scale;
  options.shift =
      how.correction == BLEND_CORRECTION_AUTO || how.correction == BLEND_CORRECTION_SHIFT;
  return options;
}

ReferenceFusion expect_like_reference(const ReferenceModel& reference, const Fusion& fusion,
                                      const Prompt& prompt, const FuseCase& how, DType kv_dtype,
                                      double tolerance) {
  ReferenceFusion want = reference_fuse(reference, prompt, reference_options(how, kv_dtype));
  if (!fusion) {
    ADD_FAILURE() << "no fusion to compare";
    return want;
  }
  const std::vector<float> got = deviation(fusion);
  EXPECT_EQ(got.size(), want.n_rows);
  for (size_t i = 0; i < std::min(got.size(), want.n_rows); ++i) {
    EXPECT_NEAR(static_cast<double>(got[i]), want.deviation[i],
                deviation_tolerance(want.deviation[i], kv_dtype, how))
        << "deviation of row " << i;
  }
  expect_selection(fusion, want, reference, prompt, how, kv_dtype);
  expect_counts(fusion, want, prompt, how, reference.n_kept());
  EXPECT_LE(max_difference(logits(fusion), want.logits), tolerance);
  return want;
}

}  // namespace blend::test
