// FusionOps::shift_rows() against the rule as written down, in double precision.
#include <cmath>
#include <numeric>
#include <set>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// Adds to every row of the chunk that did not move what the rule gives it; rows: [.., n_columns].
void shift_by_the_rule(const ShiftedChunk& chunk, const std::vector<uint32_t>& moved,
                       const std::vector<float>& moves, size_t n_columns,
                       std::vector<double>& rows) {
  std::set<uint32_t> own;
  for (uint32_t i = chunk.begin; i < chunk.begin + chunk.n_moved; ++i) own.insert(moved[i]);
  for (uint32_t slot = chunk.first; slot < chunk.first + chunk.n_rows; ++slot) {
    if (own.contains(slot) || own.empty()) continue;
    for (size_t e = 0; e < n_columns; ++e) {
      double sum = 0, weights = 8;
      for (uint32_t i = chunk.begin; i < chunk.begin + chunk.n_moved; ++i) {
        const double distance = std::abs(static_cast<double>(slot) - moved[i]);
        const double weight = 1 + (distance <= 16 ? std::exp(-distance / 4) : 0.0);
        weights += weight;
        sum += weight * static_cast<double>(moves[i * n_columns + e]);
      }
      rows[slot * n_columns + e] += sum / weights;
    }
  }
}

TEST_P(BackendMove, ChunksAreShiftedByTheirRecomputedRows) {
  for (int round = 0; round < rounds(40); ++round) {
    SCOPED_TRACE(round);
    const Shape s = shape(round);
    const size_t n_columns = s.row_floats();
    const uint32_t layer = s.config.n_layers - 1;
    auto cache = backend_->make_kv_cache(s.config, s.capacity);
    auto rope = backend_->make_rope(s.config.rope, s.capacity);
    ASSERT_TRUE(cache.is_ok() && rope.is_ok());
    const std::vector<float> before = normal(s.capacity * n_columns);
    const Owned rows =
        make_tensor(before, static_cast<int64_t>(s.capacity), static_cast<int64_t>(n_columns));
    write(**cache, layer, **rope, rows.tensor, 0);

    // Chunks side by side and apart, of one row and of more than lie near a row; of some no row
    // moved, of others all.
    std::vector<ShiftedChunk> chunks;
    std::vector<uint32_t> moved;
    for (uint32_t at = static_cast<uint32_t>(number(0, 2)); at < s.capacity;) {
      const auto n = static_cast<uint32_t>(number(1, std::min<size_t>(70, s.capacity - at)));
      const size_t in_ten = number(0, 10);
      ShiftedChunk chunk{at, n, static_cast<uint32_t>(moved.size()), 0};
      for (uint32_t slot = at; slot < at + n; ++slot) {
        if (number(0, 9) < in_ten) moved.push_back(slot);
      }
      chunk.n_moved = static_cast<uint32_t>(moved.size()) - chunk.begin;
      chunks.push_back(chunk);
      at += n + static_cast<uint32_t>(number(0, 1) * number(0, 5));
    }
    const std::vector<float> moves = normal(moved.size() * n_columns);
    const Owned by =
        make_tensor(moves, static_cast<int64_t>(moved.size()), static_cast<int64_t>(n_columns));
    std::vector<double> want(before.begin(), before.end());
    for (const ShiftedChunk& chunk : chunks) {
      shift_by_the_rule(chunk, moved, moves, n_columns, want);
    }
    const Status status =
        backend_->fusion().shift_rows(**cache, layer, **rope, {by.tensor, moved.data()}, chunks);
    ASSERT_TRUE(status.is_ok()) << status.message();

    const Owned all = make_empty(static_cast<int64_t>(s.capacity), static_cast<int64_t>(n_columns));
    ASSERT_TRUE(backend_->fusion()
                    .read_kv(**cache, layer, **rope, slots_from(0, s.capacity).data(), all.tensor)
                    .is_ok());
    // A row is rounded twice.
    ASSERT_NO_FATAL_FAILURE(expect_within(host(all.tensor), want, 2 * GetParam().tolerance_16));
    // Rows are read one here and one there as well.
    const std::vector<uint32_t> some = positions(number(1, s.capacity), s.capacity);
    const Owned few =
        make_empty(static_cast<int64_t>(some.size()), static_cast<int64_t>(n_columns));
    ASSERT_TRUE(
        backend_->fusion().read_kv(**cache, layer, **rope, some.data(), few.tensor).is_ok());
    const std::vector<float> of_all = host(all.tensor), of_some = host(few.tensor);
    for (size_t i = 0; i < some.size(); ++i) {
      ASSERT_TRUE(std::equal(of_some.begin() + static_cast<ptrdiff_t>(i * n_columns),
                             of_some.begin() + static_cast<ptrdiff_t>((i + 1) * n_columns),
                             of_all.begin() + static_cast<ptrdiff_t>(some[i] * n_columns)))
          << "slot " << some[i];
    }
  }
}

TEST_P(BackendMove, RowsOutsideACacheAreNotShifted) {
  const Shape s = shape(0);
  auto cache = backend_->make_kv_cache(s.config, s.capacity);
  auto rope = backend_->make_rope(s.config.rope, s.capacity);
  ASSERT_TRUE(cache.is_ok() && rope.is_ok());
  const uint32_t moved = 0;
  const Owned by = make_tensor(normal(s.row_floats()), 1, static_cast<int64_t>(s.row_floats()));
  const Owned out = make_empty(1, static_cast<int64_t>(s.row_floats()));
  const Moves moves{by.tensor, &moved};
  const ShiftedChunk chunk{0, s.capacity + 1, 0, 1};
  EXPECT_EQ(backend_->fusion().shift_rows(**cache, 0, **rope, moves, {&chunk, 1}).code(),
            BLEND_E_INTERNAL);
  EXPECT_TRUE(backend_->fusion().shift_rows(**cache, 0, **rope, moves, {}).is_ok());
  EXPECT_EQ(backend_->fusion().read_kv(**cache, 0, **rope, &s.capacity, out.tensor).code(),
            BLEND_E_INTERNAL);
}

}  // namespace
}  // namespace blend::test
