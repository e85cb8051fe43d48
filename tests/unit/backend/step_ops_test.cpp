// The operations of a step of several sequences: rows that each see a cache of their own, against
// loops in double precision and, bit for bit, against each row by itself.
#include <cmath>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// A cache, and what it holds, in the slots 0 .. filled-1 of its last layer.
struct Filled {
  std::unique_ptr<KvCache> cache;
  uint32_t filled = 0;
  std::vector<float> kv;  // [filled, 2 * kv_dim], exact in 16 bits
};

// One row of attention over a cache that turns nothing.
std::vector<double> attend_row(const ModelConfig& c, const AttentionRule& rule,
                               const std::vector<float>& sinks, const float* q, const Filled& over,
                               uint32_t pos) {
  const size_t d = c.head_dim, width = size_t{2} * c.kv_dim();
  std::vector<double> out(c.q_dim()), w(pos + 1);
  const size_t begin = rule.window == 0 || pos < rule.window ? 0 : pos + 1 - rule.window;
  for (size_t h = 0; h < c.n_heads; ++h) {
    double sum = sinks.empty() ? 0 : std::exp(double{sinks[h]});
    for (size_t j = begin; j <= pos; ++j) {
      const float* const k = over.kv.data() + j * width + h / c.group() * d;
      w[j] = 0;
      for (size_t e = 0; e < d; ++e) w[j] += static_cast<double>(q[h * d + e]) * double{k[e]};
      w[j] /= std::sqrt(static_cast<double>(d));
      if (rule.softcap != 0) {
        w[j] = double{rule.softcap} * std::tanh(w[j] / double{rule.softcap});
      }
      sum += w[j] = std::exp(w[j]);
    }
    for (size_t j = begin; j <= pos; ++j) {
      const float* const v = over.kv.data() + j * width + c.kv_dim() + h / c.group() * d;
      for (size_t e = 0; e < d; ++e) out[h * d + e] += w[j] / sum * double{v[e]};
    }
  }
  return out;
}

}  // namespace

TEST_P(BackendOps, AttentionOfRowsThatEachSeeTheirOwn) {
  for (int round = 0; round < rounds(30); ++round) {
    ModelConfig c;
    const uint32_t groups[] = {1, 2, 4, 8}, head_dims[] = {8, 10, 34, 64, 96, 128};
    c.n_layers = 2;
    c.n_kv_heads = static_cast<uint32_t>(number(1, 2));
    c.n_heads = c.n_kv_heads * (round % 7 == 6 ? 17 : groups[number(0, 3)]);  // 17: four warps
    c.head_dim = head_dims[number(0, 5)];
    AttentionRule rule;
    if (round % 3 == 1) rule.window = static_cast<uint32_t>(number(1, 90));
    if (round % 4 == 2) rule.softcap = 5;
    std::vector<float> sinks;
    std::unique_ptr<Weight> loaded;
    if (round % 5 > 2) {
      for (uint32_t h = 0; h < c.n_heads; ++h) {
        sinks.push_back(0.75f * static_cast<float>(h % 7) - 1.5f);
      }
      const auto stored = make_stored("sinks", sinks, {c.n_heads}, DType::f32);
      const TensorView* const parts[] = {&stored->view};
      auto vector = backend_->load_vector(parts, 0);
      ASSERT_TRUE(vector.is_ok());
      loaded = std::move(*vector);
      rule.sinks = loaded.get();
    }
    // Few rows over long caches, of which the keys are split, or more than a launch may have.
    const bool longer = round % 2 == 0;
    const size_t n_caches = longer ? number(1, 4) : number(20, 40);
    auto nothing = backend_->make_rope({}, 1000);
    ASSERT_TRUE(nothing.is_ok());
    std::vector<Filled> caches(n_caches);
    std::vector<RowOver> rows;
    for (Filled& f : caches) {
      f.filled = static_cast<uint32_t>(longer ? number(1, 900) : number(1, 40));
      const auto room = static_cast<uint32_t>(f.filled + number(0, 20));
      auto made = backend_->make_kv_cache(c, room);
      ASSERT_TRUE(made.is_ok());
      f.cache = std::move(*made);
      for (const float x : normal(size_t{f.filled} * 2 * c.kv_dim())) {
        f.kv.push_back(bf16_to_f32(f32_to_bf16(x)));
      }
      std::vector<uint32_t> slots(f.filled);
      for (uint32_t i = 0; i < f.filled; ++i) slots[i] = i;
      const Owned kv = make_tensor(f.kv, f.filled, int64_t{2} * c.kv_dim());
      ASSERT_TRUE(backend_->write_kv(*f.cache, 1, **nothing, kv.tensor, slots.data()).is_ok());
      // Some take several, one after another.
      const auto n = static_cast<uint32_t>(std::min<size_t>(f.filled, number(1, 3)));
      for (uint32_t i = 0; i < n; ++i) rows.push_back({f.cache.get(), 0, f.filled - n + i});
    }
    // Every row of q but two is somebody's, in any order.
    std::vector<uint32_t> places(rows.size() + 2);
    for (uint32_t i = 0; i < places.size(); ++i) places[i] = i;
    std::shuffle(places.begin(), places.end(), rng_);
    for (size_t i = 0; i < rows.size(); ++i) rows[i].row = places[i];
    SCOPED_TRACE(testing::Message()
                 << "round " << round << ": " << rows.size() << " rows, " << c.n_heads << " and "
                 << c.n_kv_heads << " heads of " << c.head_dim << ", window " << rule.window);
    std::vector<float> q;
    for (const float x : normal(places.size() * c.q_dim())) {
      q.push_back(bf16_to_f32(f32_to_bf16(x)));
    }
    const auto n_rows = static_cast<int64_t>(places.size());
    const Owned alone = make_tensor(q, n_rows, c.q_dim()), each = make_tensor(q, n_rows, c.q_dim());
    for (const RowOver& r : rows) {
      const Tensor one = alone.tensor.slice(r.row, 1);
      ASSERT_TRUE(backend_->attention(*r.cache, 1, rule, one, &r.pos, one).is_ok());
    }
    const Status status = backend_->attention_each(1, rule, each.tensor, rows);
    ASSERT_TRUE(status.is_ok()) << status.message();
    const std::vector<float> got = host(each.tensor);
    ASSERT_EQ(got, host(alone.tensor)) << "other bits than each by itself";
    for (const RowOver& r : rows) {
      const auto over = std::find_if(caches.begin(), caches.end(),
                                     [&](const Filled& f) { return f.cache.get() == r.cache; });
      const auto at = got.begin() + static_cast<ptrdiff_t>(r.row * c.q_dim());
      ASSERT_NO_FATAL_FAILURE(
          expect_near({at, at + static_cast<ptrdiff_t>(c.q_dim())},
                      attend_row(c, rule, sinks, q.data() + r.row * c.q_dim(), *over, r.pos)));
    }
  }
}

TEST_P(BackendOps, ARowBeyondItsCacheIsRefused) {
  ModelConfig c;
  c.n_layers = 1;
  c.n_heads = c.n_kv_heads = 1;
  c.head_dim = 8;
  auto cache = backend_->make_kv_cache(c, 5);
  ASSERT_TRUE(cache.is_ok());
  const Owned q = make_tensor(normal(8), 1, 8);
  const RowOver beyond{cache->get(), 0, 5};
  EXPECT_EQ(backend_->attention_each(0, {}, q.tensor, {&beyond, 1}).code(), BLEND_E_INTERNAL);
  EXPECT_TRUE(backend_->attention_each(0, {}, q.tensor, {}).is_ok());
}

}  // namespace blend::test
