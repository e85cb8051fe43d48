// Backend::move_rows: rows that were moved are attended to as if they had been written there.
#include <numeric>

#include "unit/backend/ops_test.h"

namespace blend::test {

BackendMove::Shape BackendMove::shape(int round) {
  Shape s;
  ModelConfig& c = s.config;
  c.n_layers = 2;
  c.head_dim = 2 * static_cast<uint32_t>(number(1, 40));
  c.n_kv_heads = static_cast<uint32_t>(number(1, 3));
  c.n_heads = c.n_kv_heads * static_cast<uint32_t>(number(1, 3));
  c.rope.layout = round % 2 == 0 ? RopeLayout::interleaved : RopeLayout::half_split;
  c.rope.rotary_dim =
      round % 3 == 0 ? 2 * static_cast<uint32_t>(number(1, c.head_dim / 2)) : c.head_dim;
  c.rope.linear_scale = round % 4 == 3 ? 4.0 : 1.0;
  if (round % 5 == 2) {
    c.rope.freq_factors.resize(c.rope.rotary_dim / 2);
    for (float& f : c.rope.freq_factors) f = 1.0f + static_cast<float>(number(0, 31)) / 4;
  }
  s.capacity = static_cast<uint32_t>(number(4, 300));
  return s;
}

BackendOps::Owned BackendMove::make_rows(const Shape& shape, uint32_t n) {
  return make_tensor(normal(n * shape.row_floats()), n, static_cast<int64_t>(shape.row_floats()));
}

void BackendMove::write(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor rows,
                        uint32_t first) {
  std::vector<uint32_t> pos(static_cast<size_t>(rows.rows));
  std::iota(pos.begin(), pos.end(), first);
  ASSERT_TRUE(backend_->write_kv(cache, layer, rope, rows, pos.data()).is_ok());
}

std::vector<float> BackendMove::attend(const Shape& shape, const KvCache& cache, uint32_t layer,
                                       const RopeTable& rope, const std::vector<float>& q,
                                       uint32_t filled) {
  const std::vector<uint32_t> pos = {filled / 2, filled - 1};
  Owned t = make_tensor(q, 2, shape.config.q_dim());
  EXPECT_TRUE(backend_->rope_q(rope, pos.data(), shape.config.head_dim, t.tensor).is_ok());
  EXPECT_TRUE(backend_->attention(cache, layer, {}, t.tensor, pos.data(), t.tensor).is_ok());
  return host(t.tensor);
}

namespace {

TEST_P(BackendMove, RowsAreAsIfWrittenAtTheirNewPlace) {
  for (int round = 0; round < rounds(30); ++round) {
    const Shape s = shape(round);
    const auto before = static_cast<uint32_t>(number(1, s.capacity - 1));  // rows that stay
    const auto n = static_cast<uint32_t>(number(1, s.capacity - before));  // rows that move
    const auto other = static_cast<uint32_t>(number(before, s.capacity - n));
    const bool down = round % 2 == 0;
    const uint32_t from = down ? other : before, to = down ? before : other;
    SCOPED_TRACE(testing::Message() << "round " << round << ", head_dim " << s.config.head_dim
                                    << ", " << n << " rows from " << from << " to " << to);
    auto rope = backend_->make_rope(s.config.rope, s.capacity);
    auto moved = backend_->make_kv_cache(s.config, s.capacity);
    auto direct = backend_->make_kv_cache(s.config, s.capacity);
    ASSERT_TRUE(rope.is_ok() && moved.is_ok() && direct.is_ok());

    const Owned head = make_rows(s, before), tail = make_rows(s, n),
                gap = make_rows(s, to - before);
    write(**moved, 1, **rope, head.tensor, 0);
    write(**moved, 1, **rope, tail.tensor, from);
    const auto turn = static_cast<int32_t>(to) - static_cast<int32_t>(from);
    ASSERT_TRUE(backend_->move_rows(**moved, **moved, **rope, {1, from, 1, to, n, turn}).is_ok());
    write(**moved, 1, **rope, gap.tensor, before);  // after the move: it must not reach the tail

    write(**direct, 1, **rope, head.tensor, 0);
    write(**direct, 1, **rope, gap.tensor, before);
    write(**direct, 1, **rope, tail.tensor, to);
    const auto q = normal(size_t{2} * s.config.q_dim());
    const auto want = attend(s, **direct, 1, **rope, q, to + n);
    const auto got = attend(s, **moved, 1, **rope, q, to + n);
    ASSERT_NO_FATAL_FAILURE(expect_near(got, {want.begin(), want.end()}));
  }
}

TEST_P(BackendMove, WithoutATurnRowsGoToAnotherCacheAndBackBitForBit) {
  for (int round = 0; round < rounds(10); ++round) {
    const Shape s = shape(round);
    const uint32_t n = s.capacity / 2, first = s.capacity - n;
    auto rope = backend_->make_rope(s.config.rope, s.capacity);
    auto cache = backend_->make_kv_cache(s.config, s.capacity);
    auto kept = backend_->make_kv_cache(s.config, n);
    ASSERT_TRUE(rope.is_ok() && cache.is_ok() && kept.is_ok());
    write(**cache, 0, **rope, make_rows(s, s.capacity).tensor, 0);
    const auto q = normal(size_t{2} * s.config.q_dim());
    const auto want = attend(s, **cache, 0, **rope, q, s.capacity);
    ASSERT_TRUE(backend_->move_rows(**cache, **kept, **rope, {0, first, 1, 0, n, 0}).is_ok());
    write(**cache, 0, **rope, make_rows(s, n).tensor, first);
    EXPECT_NE(attend(s, **cache, 0, **rope, q, s.capacity), want);
    ASSERT_TRUE(backend_->move_rows(**kept, **cache, **rope, {1, 0, 0, first, n, 0}).is_ok());
    EXPECT_EQ(attend(s, **cache, 0, **rope, q, s.capacity), want);
  }
}

TEST_P(BackendMove, SlotsThatDoNotExistAreRefused) {
  const Shape s = shape(0);
  auto rope = backend_->make_rope(s.config.rope, s.capacity);
  auto cache = backend_->make_kv_cache(s.config, s.capacity);
  ASSERT_TRUE(rope.is_ok() && cache.is_ok());
  const auto refused = [&](const RowMove& rows) {
    return backend_->move_rows(**cache, **cache, **rope, rows).code() == BLEND_E_INTERNAL;
  };
  EXPECT_TRUE(refused({0, s.capacity - 1, 0, 0, 2, 0}));
  EXPECT_TRUE(refused({0, 0, 0, s.capacity - 1, 2, 0}));
  EXPECT_TRUE(refused({0, UINT32_MAX, 0, 0, 2, 0}));
  EXPECT_TRUE(refused({0, 0, 0, 0, 1, static_cast<int32_t>(s.capacity)}));
  EXPECT_TRUE(refused({0, 0, 0, 0, 1, INT32_MIN}));
  EXPECT_FALSE(refused({0, s.capacity, 0, 0, 0, 0}));  // no rows: no work
}

}  // namespace
}  // namespace blend::test
