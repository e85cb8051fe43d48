// Operations that few families of models need, and caches whose layers differ, against plain loops.
#include <algorithm>
#include <cmath>

#include "cpu/block_decode.h"
#include "support/random_blocks.h"
#include "unit/backend/ops_test.h"

namespace blend::test {

TEST_P(BackendOps, NormsValuesAndLeavesKeys) {
  Backend& b = *backend_;
  if (b.family() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  for (int round = 0; round < rounds(20); ++round) {
    const size_t rows = number(1, 40), heads = number(1, 5), dim = number(1, 130);
    const size_t before = number(0, 90), cols = before + heads * dim;  // none of V: `before`
    const std::vector<float> kv = normal(rows * cols);
    std::vector<double> want(kv.begin(), kv.end());
    for (size_t i = 0; i < rows; ++i) {
      for (size_t h = 0; h < heads; ++h) {
        double* const head = &want[i * cols + before + h * dim];
        double squares = 0;
        for (size_t e = 0; e < dim; ++e) squares += head[e] * head[e];
        const double size = std::sqrt(squares / static_cast<double>(dim) + 1e-5);
        for (size_t e = 0; e < dim; ++e) head[e] /= size;
      }
    }
    const Owned t = make_tensor(kv, static_cast<int64_t>(rows), static_cast<int64_t>(cols));
    ASSERT_TRUE(
        b.family()
            ->norm_values(t.tensor, static_cast<uint32_t>(heads), static_cast<uint32_t>(dim), 1e-5f)
            .is_ok());
    expect_near(host(t.tensor), want);
  }
  const Owned t = make_tensor(normal(6), 1, 6);
  EXPECT_EQ(b.family()->norm_values(t.tensor, 2, 4, 1e-5f).code(), BLEND_E_INTERNAL);
}

// Parts of a row that begin and end anywhere, of a table of numbers and of one of blocks.
TEST_P(BackendOps, EmbedsAPartOfATablesRows) {
  Backend& b = *backend_;
  if (b.family() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  constexpr size_t kRows = 7, kCols = 192;
  const auto plain = make_stored("table", normal(kRows * kCols), {kRows, kCols}, DType::f16);
  SplitMix rng(3);
  const std::string blocks = random_blocks(BlockType::q8_0, kRows * kCols, 0.5, rng);
  TensorView quantized;
  quantized.name = "blocks";
  quantized.blocks = BlockType::q8_0;
  quantized.shape = {kRows, kCols};
  quantized.data = reinterpret_cast<const std::byte*>(blocks.data());
  std::vector<float> decoded(kRows * kCols);
  decode_blocks(BlockType::q8_0, quantized.data, decoded.size(), decoded.data());
  const TensorView* const tables[] = {&plain->view, &quantized};
  for (const TensorView* const view : tables) {
    const std::vector<float>& values = view == &quantized ? decoded : plain->values;
    auto table = b.load_table(*view, false);
    ASSERT_TRUE(table.is_ok());
    for (const auto& [first, n] :
         {std::pair<uint32_t, uint32_t>{0, 32}, {64, 96}, {5, 8}, {30, 40}}) {
      const std::vector<int32_t> tokens = {6, 0, 3, 3};
      std::vector<double> want;
      for (const int32_t token : tokens) {
        const auto at = values.begin() + token * static_cast<int64_t>(kCols) + first;
        want.insert(want.end(), at, at + n);
      }
      const Owned out = make_empty(4, n);
      ASSERT_TRUE(b.family()->embed_part(**table, tokens.data(), first, out.tensor).is_ok());
      expect_near(host(out.tensor), want);
    }
    const int32_t token = 0;
    const Owned out = make_empty(1, 10);
    EXPECT_EQ(b.family()->embed_part(**table, &token, 185, out.tensor).code(), BLEND_E_INTERNAL);
  }
}

TEST_P(BackendOps, GatesRowsByOthers) {
  Backend& b = *backend_;
  if (b.family() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  const std::vector<float> x = normal(60), by = normal(60);
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto g = static_cast<double>(x[i]);
    want.push_back(0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) *
                   static_cast<double>(by[i]));
  }
  const Owned gate = make_tensor(x, 4, 15), other = make_tensor(by, 4, 15);
  ASSERT_TRUE(b.family()->gate(Activation::gelu_tanh, gate.tensor, other.tensor).is_ok());
  expect_near(host(gate.tensor), want);
}

// In a part of each row; what follows it stays.
TEST_P(BackendOps, CutsWhatIsBelowSomeDeviationsAboveTheMean) {
  Backend& b = *backend_;
  if (b.family() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  for (const double deviations : {1.6448536, 0.0, -0.5}) {
    const size_t rows = number(1, 9), n = number(1, 300), cols = n + number(0, 40);
    std::vector<float> x = normal(rows * cols);
    for (float& e : x) e += 0.25f;  // a mean that counts
    std::vector<double> want(x.begin(), x.end());
    for (size_t i = 0; i < rows; ++i) {
      double* const row = &want[i * cols];
      double mean = 0, squares = 0;
      for (size_t e = 0; e < n; ++e) mean += row[e] / static_cast<double>(n);
      for (size_t e = 0; e < n; ++e) squares += (row[e] - mean) * (row[e] - mean);
      const double least = mean + deviations * std::sqrt(squares / static_cast<double>(n));
      for (size_t e = 0; e < n; ++e) row[e] = std::max(0.0, row[e] - least);
    }
    const Owned t = make_tensor(x, static_cast<int64_t>(rows), static_cast<int64_t>(cols));
    ASSERT_TRUE(b.family()
                    ->cut(t.tensor, static_cast<uint32_t>(n), static_cast<float>(deviations))
                    .is_ok());
    expect_near(host(t.tensor), want);
  }
  const Owned t = make_tensor(normal(6), 1, 6);
  EXPECT_EQ(b.family()->cut(t.tensor, 7, 1.0f).code(), BLEND_E_INTERNAL);
  EXPECT_EQ(b.family()->cut(t.tensor, 0, 1.0f).code(), BLEND_E_INTERNAL);
}

TEST_P(BackendOps, ScalesAPartOfRows) {
  Backend& b = *backend_;
  if (b.family() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  const std::vector<float> x = normal(4 * 37);
  for (const auto& [first, n] : {std::pair{0u, 37u}, {0u, 5u}, {36u, 1u}, {3u, 17u}, {37u, 0u}}) {
    const Owned rows = make_tensor(x, 4, 37);
    ASSERT_TRUE(b.family()->scale_part(rows.tensor, first, n, 0.75f).is_ok());
    std::vector<double> want(x.begin(), x.end());
    for (size_t i = 0; i < want.size(); ++i) {
      if (i % 37 >= first && i % 37 < first + n) want[i] *= 0.75;
    }
    expect_near(host(rows.tensor), want);
  }
  const Owned rows = make_tensor(x, 4, 37);
  EXPECT_EQ(b.family()->scale_part(rows.tensor, 30, 8, 2).code(), BLEND_E_INTERNAL);
}

// Three layers, of which the second has heads of its own and the last keeps nothing: rows that were
// written, moved with a turn and forked come back.
TEST_P(BackendOps, CachesKeepLayersOfDifferentWidths) {
  Backend& b = *backend_;
  if (b.family() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  ModelConfig c;
  c.n_layers = 3;
  c.d_model = 8;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 6;
  c.layers.resize(3);
  c.layers[1].head_dim = 10;
  c.layers[1].n_kv_heads = 1;
  c.own_kv = 2;
  constexpr uint32_t kSlots = 40;
  auto cache = b.make_kv_cache(c, kSlots);
  ASSERT_TRUE(cache.is_ok());
  std::vector<uint32_t> pos(kSlots);
  for (uint32_t i = 0; i < kSlots; ++i) pos[i] = i;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    const uint32_t width = c.row_dim(layer);
    EXPECT_EQ(width, layer == 0 ? 24u : 20u);
    RopeParams params;
    params.rotary_dim = c.heads(layer).dim;
    auto rope = b.make_rope(params, kSlots);
    ASSERT_TRUE(rope.is_ok());
    const std::vector<float> rows = normal(size_t{kSlots} * width);
    const Owned kv = make_tensor(rows, kSlots, width);
    ASSERT_TRUE(b.write_kv(**cache, layer, **rope, kv.tensor, pos.data()).is_ok());
    const RowMove move{layer, 7, layer, 2, kSlots - 7, -5};
    ASSERT_TRUE(b.move_rows(**cache, **cache, **rope, move).is_ok());
    auto forked = (*cache)->fork(kSlots - 5);
    ASSERT_TRUE(forked.is_ok());
    const KvCache& seen = *forked != nullptr ? **forked : **cache;
    const Owned back = make_empty(kSlots - 5, width);
    ASSERT_TRUE(b.fusion()
                    .read_kv(seen, layer, **rope, slots_from(0, kSlots - 5).data(), back.tensor)
                    .is_ok());
    const auto at = [&](uint32_t row) { return rows.begin() + static_cast<int64_t>(row * width); };
    std::vector<double> want(at(0), at(2));
    want.insert(want.end(), at(7), rows.end());
    expect_near(host(back.tensor), want);
  }
}

}  // namespace blend::test
