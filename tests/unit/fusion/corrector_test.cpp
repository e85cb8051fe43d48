#include "fusion/correct/corrector.h"

#include "fusion/load/stored_rows.h"
#include "support/hand_prompt.h"

namespace blend {
namespace {

// Maps that multiply the deviation at the check layer by 0.5 in the next layer, by 0.25 in the
// one after it, and so on; full matrices, or the same as a product of rank 3.
DriftMaps halving_maps(uint32_t check_layer, uint32_t n_layers, uint32_t kv_dim, uint32_t rank) {
  DriftMaps maps;
  maps.kv_dim = kv_dim;
  maps.first_layer = check_layer + 1;
  maps.n_maps = n_layers - maps.first_layer;
  maps.rank = rank;
  maps.dtype = DType::f32;
  std::vector<float> data;
  float factor = 1;
  for (uint32_t i = 0; i < maps.n_maps; ++i) {
    factor *= 0.5f;
    const size_t n = maps.n_out();
    if (rank == 0) {
      for (size_t at = 0; at < n * n; ++at) data.push_back(at % (n + 1) == 0 ? factor : 0.0f);
      continue;
    }
    // Only the first `rank` elements of a row go on.
    for (size_t out = 0; out < n; ++out) {
      for (size_t r = 0; r < rank; ++r) data.push_back(out == r ? factor : 0.0f);
    }
    for (size_t r = 0; r < rank; ++r) {
      for (size_t in = 0; in < n; ++in) data.push_back(in == r ? 1.0f : 0.0f);
    }
  }
  maps.data.resize(data.size() * sizeof(float));
  std::memcpy(maps.data.data(), data.data(), maps.data.size());
  maps.explained_k.assign(maps.n_maps, 0);
  maps.explained_v.assign(maps.n_maps, 0);
  return maps;
}

// Text 0..1, a chunk 2..5, a question 6. Fresh rows lie 8 + 4 * row above the stored ones.
class CorrectorTest : public test::HandPrompt {
 protected:
  static constexpr uint32_t kCheck = 1;
  static constexpr uint32_t kSlots = 16;

  void SetUp() override {
    add_computed(SegmentKind::text, 2);
    add_stored(4);
    add_computed(SegmentKind::question, 1);
  }
  Corrector make(uint32_t rank = 0, bool guarded = false) {
    auto drift = Drift::load(*backend_, halving_maps(kCheck, kLayers, kKvDim, rank));
    EXPECT_TRUE(drift.is_ok()) << drift.status().message();
    return Corrector(*backend_, {*drift, nullptr}, kKvDim, kSlots, guarded);
  }
  static float deviation(uint32_t row) { return 8.0f + 4.0f * static_cast<float>(row); }
  Status measure(Corrector& corrector, const std::vector<uint32_t>& active) {
    std::vector<float> values;
    for (const uint32_t row : active) values.push_back(stored_value(kCheck, row) + deviation(row));
    const std::vector<size_t> segments = {1};
    const StagedLayer staged = stage(segments, kCheck);
    const auto runs = stored_runs_among(prompt_, segments, staged, active);
    return corrector.measure({fresh(values), runs, active});
  }
  static std::vector<uint8_t> mask(const std::vector<uint32_t>& rows) {
    std::vector<uint8_t> computed(kSlots, 0);
    for (const uint32_t row : rows) computed[row] = 1;
    return computed;
  }
  // The first element that is added to the slot's stored K; NaN: it is not corrected.
  static float added(const Correction& correction, uint32_t slot, size_t element = 0) {
    if (correction.row[slot] == Correction::kNone) return std::nanf("");
    const auto* const rows = static_cast<const float*>(correction.kv.data);
    return rows[correction.row[slot] * correction.kv.cols + static_cast<int64_t>(element)];
  }
};

TEST_F(CorrectorTest, RowsThatAreNotComputedTakeWhatEachLayersMapMakesOfTheirDeviation) {
  Corrector corrector = make();
  ASSERT_TRUE(corrector.measures_at(kCheck));
  ASSERT_TRUE(measure(corrector, {0, 1, 2, 3, 4, 5, 6}).is_ok());
  ASSERT_TRUE(corrector.keep(mask({0, 1, 3, 6})).is_ok());
  EXPECT_EQ(corrector.n_rows(), 3u);
  float factor = 1;
  for (uint32_t layer = kCheck + 1; layer < kLayers; ++layer) {
    factor *= 0.5f;
    auto correction = corrector.at(layer, {});
    ASSERT_TRUE(correction.is_ok());
    ASSERT_NE(*correction, nullptr);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const bool corrected = slot == 2 || slot == 4 || slot == 5;
      ASSERT_EQ((*correction)->row[slot] != Correction::kNone, corrected) << slot;
      if (!corrected) continue;
      for (size_t e = 0; e < 2 * kKvDim; ++e) {
        EXPECT_FLOAT_EQ(added(**correction, slot, e), factor * deviation(slot)) << slot;
      }
    }
  }
}

TEST_F(CorrectorTest, AMapOfLowRankIsTheProductOfItsTwo) {
  Corrector corrector = make(3);
  ASSERT_TRUE(measure(corrector, {0, 1, 2, 3, 4, 5, 6}).is_ok());
  ASSERT_TRUE(corrector.keep(mask({0, 1, 6})).is_ok());
  auto correction = corrector.at(kCheck + 1, {});
  ASSERT_TRUE(correction.is_ok());
  EXPECT_FLOAT_EQ(added(**correction, 4, 2), 0.5f * deviation(4));
  EXPECT_EQ(added(**correction, 4, 3), 0.0f);
}

// Rows that were left out before were not measured here: nothing is known of them.
TEST_F(CorrectorTest, OnlyMeasuredRowsAreCorrected) {
  Corrector corrector = make();
  ASSERT_TRUE(measure(corrector, {0, 1, 3, 5, 6}).is_ok());
  ASSERT_TRUE(corrector.keep(mask({0, 1, 6})).is_ok());
  auto correction = corrector.at(kCheck + 1, {});
  ASSERT_TRUE(correction.is_ok());
  EXPECT_FLOAT_EQ(added(**correction, 3), 0.5f * deviation(3));
  EXPECT_FLOAT_EQ(added(**correction, 5), 0.5f * deviation(5));
  EXPECT_TRUE(std::isnan(added(**correction, 2)));
  EXPECT_TRUE(std::isnan(added(**correction, 4)));
}

TEST_F(CorrectorTest, NothingIsAddedWhereAllRowsAreComputedOrNoneWasMeasured) {
  Corrector corrector = make();
  ASSERT_TRUE(measure(corrector, {0, 1, 2, 3, 4, 5, 6}).is_ok());
  ASSERT_TRUE(corrector.keep(mask({0, 1, 2, 3, 4, 5, 6})).is_ok());
  EXPECT_EQ(corrector.n_rows(), 0u);
  EXPECT_EQ(*corrector.at(kCheck + 1, {}), nullptr);
  ASSERT_TRUE(measure(corrector, {0, 1, 6}).is_ok());
  ASSERT_TRUE(corrector.keep(mask({0, 1, 6})).is_ok());
  EXPECT_EQ(*corrector.at(kCheck + 1, {}), nullptr);
}

// A later choice leaves out more rows: they are corrected from there on, by what was measured.
TEST_F(CorrectorTest, ALaterChoiceCorrectsMoreRows) {
  Corrector corrector = make();
  ASSERT_TRUE(measure(corrector, {0, 1, 2, 3, 4, 5, 6}).is_ok());
  ASSERT_TRUE(corrector.keep(mask({0, 1, 2, 3, 6})).is_ok());
  EXPECT_EQ(corrector.n_rows(), 2u);
  ASSERT_TRUE(corrector.keep(mask({0, 1, 2, 6})).is_ok());
  EXPECT_EQ(corrector.n_rows(), 3u);
  auto correction = corrector.at(kCheck + 2, {});
  ASSERT_TRUE(correction.is_ok());
  EXPECT_FLOAT_EQ(added(**correction, 3), 0.25f * deviation(3));
}

// The maps predict half of a row's deviation for the layer after the check layer. `drift`: how
// far the judges, rows 3 and 5, really lie above their stored rows there, as a share of that.
class DriftGuard : public CorrectorTest {
 protected:
  Result<const Correction*> judged(Corrector& corrector, float drift) {
    const std::vector<uint32_t> active = {0, 1, 3, 5, 6};
    EXPECT_TRUE(measure(corrector, {0, 1, 2, 3, 4, 5, 6}).is_ok());
    EXPECT_TRUE(corrector.keep(mask(active)).is_ok());
    EXPECT_EQ(corrector.judges(), (std::vector<uint32_t>{3, 5}));
    std::vector<float> values;
    for (const uint32_t row : active) {
      values.push_back(stored_value(kCheck + 1, row) + drift * 0.5f * deviation(row));
    }
    const std::vector<size_t> segments = {1};
    const StagedLayer staged = stage(segments, kCheck + 1);
    const auto runs = stored_runs_among(prompt_, segments, staged, active);
    return corrector.at(kCheck + 1, {fresh(values), runs, active});
  }
};

TEST_F(DriftGuard, TakesTheShareOfWhatWasForetoldThatIsThere) {
  for (const auto& [drift, share] : {std::pair{0.25f, 0.25f}, {1.0f, 1.0f}, {3.0f, 1.0f}}) {
    Corrector corrector = make(0, true);
    auto correction = judged(corrector, drift);
    ASSERT_TRUE(correction.is_ok()) << correction.status().message();
    EXPECT_NEAR(corrector.share().k, share, 1e-3f);
    EXPECT_NEAR(corrector.share().v, share, 1e-3f);
    EXPECT_NEAR(corrector.mean_share(), static_cast<double>(share), 1e-3);
    for (const uint32_t slot : {2u, 4u}) {
      EXPECT_NEAR(added(**correction, slot), share * 0.5f * deviation(slot), 0.05f) << slot;
    }
    EXPECT_TRUE(std::isnan(added(**correction, 3)));
  }
}

TEST_F(DriftGuard, AddsNothingWhereTheDriftGoesTheOtherWay) {
  Corrector corrector = make(0, true);
  auto correction = judged(corrector, -0.5f);
  ASSERT_TRUE(correction.is_ok());
  EXPECT_EQ(*correction, nullptr);
  EXPECT_EQ(corrector.share().k, 0.0f);
  EXPECT_EQ(corrector.mean_share(), 0.0);
}

// If no row is computed the guard cannot judge the maps, and the whole correction is applied.
TEST_F(DriftGuard, WithoutAJudgeAllIsTaken) {
  Corrector corrector = make(0, true);
  ASSERT_TRUE(measure(corrector, {0, 1, 2, 3, 4, 5, 6}).is_ok());
  ASSERT_TRUE(corrector.keep(mask({0, 1, 6})).is_ok());
  EXPECT_TRUE(corrector.judges().empty());
  auto correction = corrector.at(kCheck + 1, {});
  ASSERT_TRUE(correction.is_ok());
  EXPECT_EQ(corrector.share().k, 1.0f);
  EXPECT_FLOAT_EQ(added(**correction, 4), 0.5f * deviation(4));
}

// Rows 2 and 4 were left out before layer 0, rows 3 and 5 are computed and judge. The maps predict
// `outside` times the stored row.
class RowsLeftOut : public CorrectorTest {
 protected:
  static constexpr float kOutside = 0.5f;

  Corrector make_left(bool guarded) {
    DriftMaps maps;
    maps.inputs = DriftInputs::of_stored();
    maps.kv_dim = kKvDim;
    maps.first_layer = 1;
    maps.n_maps = kLayers - 1;
    maps.dtype = DType::f32;
    const size_t n_in = maps.n_in(), n_out = maps.n_out();
    std::vector<float> data(maps.n_maps * n_out * n_in, 0.0f);
    for (size_t i = 0; i < maps.n_maps * n_out; ++i) data[i * n_in + n_out + i % n_out] = 1;
    maps.data.resize(data.size() * sizeof(float));
    std::memcpy(maps.data.data(), data.data(), maps.data.size());
    maps.explained_k.assign(maps.n_maps, 0);
    maps.explained_v.assign(maps.n_maps, 0);
    Corrector corrector(*backend_, {nullptr, *Drift::load(*backend_, maps)}, kKvDim, kSlots,
                        guarded);
    corrector.leave_out({2, 4}, std::vector<StoredFeatures>(7, StoredFeatures::of(1, kOutside, 0)));
    return corrector;
  }
  // drift: of the judges, as a share of their prediction.
  Result<const Correction*> at(Corrector& corrector, uint32_t layer, float drift) {
    const std::vector<uint32_t> active = {0, 1, 3, 5, 6};
    std::vector<float> values;
    for (const uint32_t row : active) {
      values.push_back(stored_value(layer, row) * (1 + drift * kOutside));
    }
    const StagedLayer staged = stage(segments_, layer);
    const auto stored_of = [&](std::span<const uint32_t> rows) {
      return stored_runs_among(prompt_, segments_, staged, rows);
    };
    const std::vector<StoredRun> known = stored_of(active);
    return corrector.at(layer, {fresh(values), known, active}, stored_of);
  }
  const std::vector<size_t> segments_ = {1};
};

TEST_F(RowsLeftOut, TakeWhatTheirMapsMakeOfTheirStoredRowsFromLayer1On) {
  Corrector corrector = make_left(false);
  EXPECT_FALSE(corrector.is_due(0));
  EXPECT_EQ(corrector.n_rows(), 2u);
  for (uint32_t layer = 1; layer < kLayers; ++layer) {
    ASSERT_TRUE(corrector.is_due(layer));
    auto correction = at(corrector, layer, 0);
    ASSERT_TRUE(correction.is_ok()) << correction.status().message();
    for (const uint32_t slot : {2u, 4u}) {
      EXPECT_FLOAT_EQ(added(**correction, slot), kOutside * stored_value(layer, slot));
    }
    EXPECT_TRUE(std::isnan(added(**correction, 3)));
  }
}

TEST_F(RowsLeftOut, TheComputedRowsJudge) {
  Corrector corrector = make_left(true);
  for (const auto& [drift, share] : {std::pair{0.25f, 0.25f}, {3.0f, 1.0f}}) {
    auto correction = at(corrector, 2, drift);
    ASSERT_TRUE(correction.is_ok()) << correction.status().message();
    EXPECT_NEAR(corrector.share().v, share, 1e-4f);
    EXPECT_NEAR(added(**correction, 4), share * kOutside * stored_value(2, 4), 0.05f);
  }
  auto against = at(corrector, 2, -1);
  ASSERT_TRUE(against.is_ok());
  EXPECT_EQ(*against, nullptr);
}

}  // namespace
}  // namespace blend
