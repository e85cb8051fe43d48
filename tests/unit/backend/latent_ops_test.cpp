// Latent rows: the operations around attention, and a cache that keeps a row as one key whose last
// part is its value, against plain loops.
#include <cmath>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// Matrices [rows, cols] of heads, and views of them.
struct OfHeads {
  std::vector<std::unique_ptr<StoredTensor>> kept;
  std::vector<TensorView> views;

  OfHeads(size_t n, size_t rows, size_t cols, DType dtype,
          const std::function<std::vector<float>(size_t)>& values) {
    for (size_t h = 0; h < n; ++h) {
      kept.push_back(make_stored("head", values(rows * cols),
                                 {static_cast<int64_t>(rows), static_cast<int64_t>(cols)}, dtype));
      views.push_back(kept.back()->view);
    }
  }
  // to += W from.
  void multiply(size_t head, const double* from, double* to) const {
    const std::vector<float>& w = kept[head]->values;
    const size_t rows = static_cast<size_t>(views[head].shape[0]), cols = w.size() / rows;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < cols; ++c) to[r] += static_cast<double>(w[r * cols + c]) * from[c];
    }
  }
};

}  // namespace

TEST_P(BackendOps, AsksLatentRowsAndTakesHeadsValues) {
  Backend& b = *backend_;
  if (b.latent() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  const auto values = [&](size_t n) { return normal(n); };
  for (int round = 0; round < rounds(20); ++round) {
    const size_t rows = number(1, 40), n_heads = number(1, 9);
    Latent l;
    l.rank = static_cast<uint32_t>(number(1, 90));
    l.rope = static_cast<uint32_t>(number(1, 20));
    l.nope = static_cast<uint32_t>(number(1, 70));
    l.value = static_cast<uint32_t>(number(1, 70));
    const DType dtype = kDTypes[number(0, 2)];
    const WeightForm form = number(0, 1) == 0 ? WeightForm::packed : WeightForm::mapped;
    const OfHeads a(n_heads, l.rank, l.nope, dtype, values),
        v(n_heads, l.value, l.rank, dtype, values);
    auto keys = b.latent()->load(a.views, form), heads_values = b.latent()->load(v.views, form);
    ASSERT_TRUE(keys.is_ok() && heads_values.is_ok());

    const std::vector<float> heads = normal(rows * n_heads * l.q_dim());
    std::vector<double> want(rows * n_heads * l.row());
    for (size_t i = 0; i < rows * n_heads; ++i) {
      const std::vector<double> head(heads.begin() + static_cast<int64_t>(i * l.q_dim()),
                                     heads.begin() + static_cast<int64_t>((i + 1) * l.q_dim()));
      std::copy(head.begin() + l.nope, head.end(),
                want.begin() + static_cast<int64_t>(i * l.row()));
      a.multiply(i % n_heads, head.data(), &want[i * l.row() + l.rope]);
    }
    const auto n = static_cast<int64_t>(rows), h = static_cast<int64_t>(n_heads);
    const Owned given = make_tensor(heads, n, h * l.q_dim()), q = make_empty(n, h * l.row());
    ASSERT_TRUE(b.latent()->ask(l, **keys, given.tensor, q.tensor).is_ok());
    expect_near(host(q.tensor), want);

    // What stands where k is means nothing.
    const std::vector<float> means = normal(rows * n_heads * l.row());
    want.assign(rows * n_heads * l.value, 0);
    for (size_t i = 0; i < rows * n_heads; ++i) {
      const std::vector<double> c(means.begin() + static_cast<int64_t>(i * l.row()) + l.rope,
                                  means.begin() + static_cast<int64_t>((i + 1) * l.row()));
      v.multiply(i % n_heads, c.data(), &want[i * l.value]);
    }
    const Owned mean = make_tensor(means, n, h * l.row()), out = make_empty(n, h * l.value);
    ASSERT_TRUE(b.latent()->values(l, **heads_values, mean.tensor, out.tensor).is_ok());
    expect_near(host(out.tensor), want);
    l.rank += 1;
    EXPECT_EQ(b.latent()->values(l, **heads_values, mean.tensor, out.tensor).code(),
              BLEND_E_INTERNAL);
  }
}

TEST_P(BackendOps, NormsTheLastElementsOfRows) {
  Backend& b = *backend_;
  if (b.latent() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  for (int round = 0; round < rounds(20); ++round) {
    const size_t rows = number(1, 40), n = number(1, 130), before = number(0, 20);
    const auto weight = make_stored("norm", normal(n), {static_cast<int64_t>(n)}, DType::f32);
    const TensorView* const parts[] = {&weight->view};
    auto loaded = b.load_vector(parts, 0);
    ASSERT_TRUE(loaded.is_ok());
    const std::vector<float> x = normal(rows * (before + n));
    std::vector<double> want(x.begin(), x.end());
    for (size_t i = 0; i < rows; ++i) {
      double* const c = &want[i * (before + n) + before];
      double squares = 0;
      for (size_t e = 0; e < n; ++e) squares += c[e] * c[e];
      const double size = std::sqrt(squares / static_cast<double>(n) + 1e-5);
      for (size_t e = 0; e < n; ++e) c[e] *= static_cast<double>(weight->values[e]) / size;
    }
    const Owned t = make_tensor(x, static_cast<int64_t>(rows), static_cast<int64_t>(before + n));
    ASSERT_TRUE(b.latent()->norm(t.tensor, **loaded, 1e-5f).is_ok());
    expect_near(host(t.tensor), want);
  }
}

// Rows that were written, moved with a turn and forked come back, turned as far as they went; and
// their values are what attention weighs: nothing of the keys' first part.
TEST_P(BackendOps, ALatentRowIsKeptOnce) {
  Backend& b = *backend_;
  if (b.latent() == nullptr) GTEST_SKIP() << "the backend has no such operations";
  ModelConfig c;
  c.n_layers = 2;
  c.n_heads = 5;
  c.n_kv_heads = 1;
  c.latent.rank = 20;
  c.latent.rope = 6;
  c.head_dim = c.latent.row() / 2;
  c.rope.rotary_dim = c.latent.rope;
  constexpr uint32_t kSlots = 40;
  const uint32_t width = c.row_dim(1);
  EXPECT_EQ(width, 26u);
  auto cache = b.make_kv_cache(c, kSlots);
  auto rope = b.make_rope(c.rope, kSlots);
  ASSERT_TRUE(cache.is_ok() && rope.is_ok());
  std::vector<uint32_t> pos(kSlots);
  for (uint32_t i = 0; i < kSlots; ++i) pos[i] = i;
  const std::vector<float> rows = normal(size_t{kSlots} * width);
  const Owned kv = make_tensor(rows, kSlots, width);
  ASSERT_TRUE(b.write_kv(**cache, 1, **rope, kv.tensor, pos.data()).is_ok());
  const RowMove move{1, 7, 1, 2, kSlots - 7, -5};
  ASSERT_TRUE(b.move_rows(**cache, **cache, **rope, move).is_ok());
  auto forked = (*cache)->fork(kSlots - 5);
  ASSERT_TRUE(forked.is_ok());
  const KvCache& seen = *forked != nullptr ? **forked : **cache;
  const Owned back = make_empty(kSlots - 5, width);
  ASSERT_TRUE(
      b.fusion().read_kv(seen, 1, **rope, slots_from(0, kSlots - 5).data(), back.tensor).is_ok());
  const auto at = [&](uint32_t row) { return rows.begin() + static_cast<int64_t>(row * width); };
  std::vector<double> want(at(0), at(2));
  want.insert(want.end(), at(7), rows.end());
  expect_near(host(back.tensor), want);

  // Q of zeros puts as much on every row.
  const uint32_t last = 21;
  std::vector<float> q(size_t{c.n_heads} * width, 0.0f);
  const Owned asked = make_tensor(q, 1, static_cast<int64_t>(q.size()));
  AttentionRule rule;
  rule.scale = 1;
  ASSERT_TRUE(b.attention(seen, 1, rule, asked.tensor, &last, asked.tensor).is_ok());
  const std::vector<float> got = host(asked.tensor);
  for (uint32_t h = 0; h < c.n_heads; ++h) {
    for (uint32_t e = c.latent.rope; e < width; ++e) {
      double mean = 0;
      for (uint32_t j = 0; j <= last; ++j) mean += want[j * width + e] / (last + 1.0);
      EXPECT_NEAR(got[h * width + e], mean, 1e-2) << h << " " << e;
    }
  }
}

}  // namespace blend::test
