// Q, K and V by one product against loops in double precision, and parts of a stacked matrix.
// Instantiated like BackendOps, for backends with PackedQkv.
#include <cmath>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// x / rms(x) * weight of n heads from `at` on.
void norm_heads(std::vector<double>& x, size_t at, size_t n, const std::vector<float>& weight,
                double eps) {
  const size_t d = weight.size();
  for (size_t h = 0; h < n; ++h, at += d) {
    double squares = 0;
    for (size_t e = 0; e < d; ++e) squares += x[at + e] * x[at + e];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(d) + eps);
    for (size_t e = 0; e < d; ++e) x[at + e] *= scale * static_cast<double>(weight[e]);
  }
}

// One head, turned by `pos`.
void turn(double* x, const RopeParams& rope, uint32_t pos) {
  const size_t half = rope.rotary_dim / 2;
  for (size_t i = 0; i < half; ++i) {
    const bool halves = rope.layout == RopeLayout::half_split;
    const size_t a = halves ? i : 2 * i, b = halves ? i + half : 2 * i + 1;
    const double angle =
        pos * std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.rotary_dim);
    const double c = rope.attention_factor * std::cos(angle),
                 s = rope.attention_factor * std::sin(angle);
    const double va = x[a], vb = x[b];
    x[a] = va * c - vb * s;
    x[b] = va * s + vb * c;
  }
}

// As bf16 has them, so that what is compared is not the rounding of operands.
std::vector<float> rounded(std::vector<float> values) {
  for (float& v : values) v = bf16_to_f32(f32_to_bf16(v));
  return values;
}

}  // namespace

// Q, K and V of one product, whole and in its parts.
TEST_P(BackendQkv, IsWhatTheOperationsOneByOneAre) {
  ASSERT_NE(backend_->packed_qkv(), nullptr);
  for (int round = 0; round < rounds(60); ++round) {
    ModelConfig c;
    c.n_layers = 2;
    c.n_kv_heads = static_cast<uint32_t>(number(1, 3));
    c.n_heads = c.n_kv_heads * static_cast<uint32_t>(number(1, 4));
    const uint32_t head_dims[] = {8, 9, 10, 64,
                                  128};  // 9: rows of an odd length, which no model has
    c.head_dim = head_dims[round % 5];
    c.rope.layout = round % 2 == 0 ? RopeLayout::interleaved : RopeLayout::half_split;
    c.rope.rotary_dim = round % 3 == 0 ? c.head_dim / 4 * 2 : c.head_dim / 2 * 2;
    RopeParams q_turns = c.rope;  // queries have YaRN's factor, keys do not
    q_turns.attention_factor = 1.25;
    const size_t d_model = number(1, 70), q_dim = c.q_dim(), kv_dim = c.kv_dim(), d = c.head_dim;
    const size_t width = q_dim + 2 * kv_dim, rows = round % 4 == 0 ? 1 : number(1, 40);
    const auto room = static_cast<uint32_t>(rows + number(0, 30));
    const uint32_t layer = static_cast<uint32_t>(number(0, 1));
    const bool biased = round % 2 == 1, normed = round % 3 == 1;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << rows << " rows of " << c.n_heads
                                    << " and " << c.n_kv_heads << " heads of " << d);

    std::vector<std::unique_ptr<StoredTensor>> parts, biases;
    std::vector<const TensorView*> views, bias_views;
    std::vector<float> w, bias;
    for (const size_t n : {q_dim, kv_dim, kv_dim}) {
      const auto out = static_cast<int64_t>(n);
      parts.push_back(
          make_stored("w", normal(n * d_model), {out, static_cast<int64_t>(d_model)}, DType::bf16));
      biases.push_back(make_stored("b", normal(n), {out}, DType::f32));
      w.insert(w.end(), parts.back()->values.begin(), parts.back()->values.end());
      bias.insert(bias.end(), biases.back()->values.begin(), biases.back()->values.end());
      views.push_back(&parts.back()->view);
      bias_views.push_back(&biases.back()->view);
    }
    const auto q_norm = make_stored("q", normal(d), {c.head_dim}, DType::f32),
               k_norm = make_stored("k", normal(d), {c.head_dim}, DType::f32);
    const TensorView *const of_q = &q_norm->view, *const of_k = &k_norm->view;
    auto stacked = backend_->load_matrix(views, WeightForm::packed);
    auto stacked_bias = backend_->load_vector(bias_views, 0);
    auto q_weight = backend_->load_vector({&of_q, 1}, 0),
         k_weight = backend_->load_vector({&of_k, 1}, 0);
    auto q_rope = backend_->make_rope(q_turns, room), k_rope = backend_->make_rope(c.rope, room);
    auto cache = backend_->make_kv_cache(c, room);
    ASSERT_TRUE(stacked.is_ok() && stacked_bias.is_ok() && q_weight.is_ok() && k_weight.is_ok() &&
                q_rope.is_ok() && k_rope.is_ok() && cache.is_ok());

    const auto x = rounded(normal(rows * d_model));
    const Owned tx = make_tensor(x, static_cast<int64_t>(rows), static_cast<int64_t>(d_model));
    const auto pos = positions(rows, room);
    const Owned kv = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(2 * kv_dim));
    const Owned all = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(width));
    auto q_memory =
        backend_->allocate(rows * q_dim * static_cast<size_t>(backend_->traits().operand_bytes));
    ASSERT_TRUE(q_memory.is_ok());
    const Tensor q{(*q_memory)->data(), static_cast<int64_t>(rows), static_cast<int64_t>(q_dim),
                   backend_->traits().operand_bytes};
    const QkvWeights weights{stacked->get(), biased ? stacked_bias->get() : nullptr,
                             normed ? q_weight->get() : nullptr, normed ? k_weight->get() : nullptr,
                             1e-5f};
    const QkvTarget to{cache->get(), layer, q_rope->get(), k_rope->get(),
                       pos.data(),   q,     kv.tensor,     all.tensor};
    const Status status = backend_->packed_qkv()->project(weights, tx.tensor, to);
    ASSERT_TRUE(status.is_ok()) << status.message();

    std::vector<double> want_q, want_kv;
    for (size_t i = 0; i < rows; ++i) {
      std::vector<double> y(width);
      for (size_t j = 0; j < width; ++j) {
        y[j] = biased ? static_cast<double>(bias[j]) : 0.0;
        for (size_t e = 0; e < d_model; ++e) {
          y[j] += static_cast<double>(x[i * d_model + e]) * static_cast<double>(w[j * d_model + e]);
        }
      }
      if (normed) {
        norm_heads(y, 0, c.n_heads, q_norm->values, 1e-5);
        norm_heads(y, q_dim, c.n_kv_heads, k_norm->values, 1e-5);
      }
      want_kv.insert(want_kv.end(), y.begin() + static_cast<ptrdiff_t>(q_dim), y.end());
      for (size_t h = 0; h < c.n_heads; ++h) turn(y.data() + h * d, q_turns, pos[i]);
      want_q.insert(want_q.end(), y.begin(), y.begin() + static_cast<ptrdiff_t>(q_dim));
    }
    expect_within(host(kv.tensor), want_kv, 1e-4);
    expect_near(host(q), want_q);
    // K of the cache, rotated back, in the slots of the rows and in no others.
    for (size_t i = 0; i < rows; ++i) {
      const Owned there = make_empty(1, static_cast<int64_t>(2 * kv_dim));
      ASSERT_TRUE(
          backend_->fusion().read_kv(**cache, layer, **k_rope, &pos[i], there.tensor).is_ok());
      const auto at = want_kv.begin() + static_cast<ptrdiff_t>(i * 2 * kv_dim);
      expect_near(host(there.tensor), {at, at + static_cast<ptrdiff_t>(2 * kv_dim)});
    }
    // A part's product is that part of the product.
    for (const auto& [first, n] : {std::pair{size_t{0}, q_dim}, std::pair{q_dim, 2 * kv_dim},
                                   std::pair{width, size_t{0}}, std::pair{width - 1, size_t{1}}}) {
      auto part = backend_->packed_qkv()->part_of(**stacked, static_cast<int64_t>(first),
                                                  static_cast<int64_t>(n));
      ASSERT_TRUE(part.is_ok()) << part.status().message();
      EXPECT_EQ((*part)->bytes(), 0u) << "the memory is the whole's";
      const Owned y = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(n));
      ASSERT_TRUE(backend_->matmul(**part, tx.tensor, y.tensor, false).is_ok());
      std::vector<double> want;
      for (size_t i = 0; i < rows * n; ++i) {
        double sum = 0;
        for (size_t e = 0; e < d_model; ++e) {
          sum += static_cast<double>(x[i / n * d_model + e]) *
                 static_cast<double>(w[(first + i % n) * d_model + e]);
        }
        want.push_back(sum);
      }
      expect_within(host(y.tensor), want, 1e-4);
    }
  }
}

// Rows that each go to a cache of their own, with tables of their own: what they are in one cache.
TEST_P(BackendQkv, RowsThatEachHaveACacheAreThoseOfOne) {
  for (int round = 0; round < rounds(30); ++round) {
    ModelConfig c;
    c.n_layers = 2;
    c.n_kv_heads = static_cast<uint32_t>(number(1, 3));
    c.n_heads = c.n_kv_heads * static_cast<uint32_t>(number(1, 4));
    const uint32_t head_dims[] = {8, 9, 10, 64, 128};
    c.head_dim = head_dims[round % 5];
    c.rope.layout = round % 2 == 0 ? RopeLayout::interleaved : RopeLayout::half_split;
    c.rope.rotary_dim = c.head_dim / 2 * 2;
    RopeParams q_turns = c.rope;
    q_turns.attention_factor = 1.25;
    const size_t d_model = number(1, 70), q_dim = c.q_dim(), kv_dim = c.kv_dim();
    const size_t width = q_dim + 2 * kv_dim,
                 rows = round % 3 == 0 ? 33 + number(0, 9) : number(1, 9);
    const size_t all_rows = rows + number(0, 5);  // later ones are unused
    const bool biased = round % 2 == 1, normed = round % 3 == 1;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << rows << " rows of " << c.n_heads
                                    << " and " << c.n_kv_heads << " heads of " << c.head_dim);
    const auto wide = static_cast<int64_t>(width);
    const auto w = make_stored("w", normal(width * d_model), {wide, static_cast<int64_t>(d_model)},
                               DType::bf16),
               bias = make_stored("b", normal(width), {wide}, DType::f32),
               q_norm = make_stored("q", normal(c.head_dim), {c.head_dim}, DType::f32),
               k_norm = make_stored("k", normal(c.head_dim), {c.head_dim}, DType::f32);
    const TensorView *const of_w = &w->view, *const of_b = &bias->view, *const of_q = &q_norm->view,
                            *const of_k = &k_norm->view;
    auto stacked = backend_->load_matrix({&of_w, 1}, WeightForm::packed);
    auto b = backend_->load_vector({&of_b, 1}, 0), qn = backend_->load_vector({&of_q, 1}, 0),
         kn = backend_->load_vector({&of_k, 1}, 0);
    ASSERT_TRUE(stacked.is_ok() && b.is_ok() && qn.is_ok() && kn.is_ok());
    const QkvWeights weights{stacked->get(), biased ? b->get() : nullptr,
                             normed ? qn->get() : nullptr, normed ? kn->get() : nullptr, 1e-5f};
    constexpr uint32_t kRoom = 90;
    const auto pos = positions(rows, kRoom);
    auto one_cache = backend_->make_kv_cache(c, kRoom);
    auto q_rope = backend_->make_rope(q_turns, kRoom), k_rope = backend_->make_rope(c.rope, kRoom);
    ASSERT_TRUE(one_cache.is_ok() && q_rope.is_ok() && k_rope.is_ok());
    const Owned x = make_tensor(normal(all_rows * d_model), static_cast<int64_t>(all_rows),
                                static_cast<int64_t>(d_model));
    const Owned kv = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(2 * kv_dim));
    const Owned scratch = make_empty(static_cast<int64_t>(all_rows), wide);
    const auto make_q = [&](std::unique_ptr<DeviceBuffer>& memory) {
      auto made =
          backend_->allocate(rows * q_dim * static_cast<size_t>(backend_->traits().operand_bytes));
      EXPECT_TRUE(made.is_ok());
      memory = std::move(*made);
      return Tensor{memory->data(), static_cast<int64_t>(rows), static_cast<int64_t>(q_dim),
                    backend_->traits().operand_bytes};
    };
    std::unique_ptr<DeviceBuffer> memory, memory_each;
    const Tensor q = make_q(memory), q_each = make_q(memory_each);
    ASSERT_TRUE(backend_->packed_qkv()
                    ->project(weights, x.tensor,
                              {one_cache->get(), 1, q_rope->get(), k_rope->get(), pos.data(), q,
                               kv.tensor, scratch.tensor})
                    .is_ok());

    std::vector<std::unique_ptr<KvCache>> caches;
    std::vector<std::shared_ptr<RopeTable>> ropes;
    std::vector<RowInto> into;
    for (uint32_t i = 0; i < rows; ++i) {
      const auto room = static_cast<uint32_t>(pos[i] + 1 + number(0, 9));
      auto cache = backend_->make_kv_cache(c, room);
      auto mine = backend_->make_rope(q_turns, room), keys = backend_->make_rope(c.rope, room);
      ASSERT_TRUE(cache.is_ok() && mine.is_ok() && keys.is_ok());
      into.push_back({cache->get(), mine->get(), keys->get(), i, pos[i]});
      caches.push_back(std::move(*cache));
      ropes.push_back(*mine);
      ropes.push_back(*keys);
    }
    std::shuffle(into.begin(), into.end(), rng_);
    const Status status =
        backend_->packed_qkv()->project_each(weights, 1, x.tensor, into, q_each, scratch.tensor);
    ASSERT_TRUE(status.is_ok()) << status.message();
    EXPECT_EQ(host(q_each), host(q));
    const auto there = [&](const KvCache& cache, uint32_t slot) {
      const Owned row = make_empty(1, static_cast<int64_t>(2 * kv_dim));
      EXPECT_TRUE(backend_->fusion().read_kv(cache, 1, **k_rope, &slot, row.tensor).is_ok());
      return host(row.tensor);
    };
    for (const RowInto& r : into) {
      ASSERT_EQ(there(*r.cache, r.pos), there(**one_cache, r.pos)) << "row " << r.row;
    }
    into[0].pos = into[0].cache->capacity();
    EXPECT_EQ(backend_->packed_qkv()
                  ->project_each(weights, 1, x.tensor, into, q_each, scratch.tensor)
                  .code(),
              BLEND_E_INTERNAL);
  }
}

// Parts hold the memory that they are of.
TEST_P(BackendQkv, PartsOutliveTheWhole) {
  const auto w = make_stored("w", normal(6 * 8), {6, 8}, DType::bf16);
  const TensorView* const view = &w->view;
  auto whole = backend_->load_matrix({&view, 1}, WeightForm::packed);
  ASSERT_TRUE(whole.is_ok());
  auto part = backend_->packed_qkv()->part_of(**whole, 4, 2);
  ASSERT_TRUE(part.is_ok());
  whole.value().reset();
  const Owned other = make_tensor(normal(6 * 8), 6, 8);  // where it was, had it gone
  std::vector<float> unit(8, 0.0f);
  unit[3] = 1;
  const Owned x = make_tensor(unit, 1, 8), y = make_empty(1, 2);
  ASSERT_TRUE(backend_->matmul(**part, x.tensor, y.tensor, false).is_ok());
  EXPECT_EQ(host(y.tensor), (std::vector<float>{w->values[4 * 8 + 3], w->values[5 * 8 + 3]}));
}

TEST_P(BackendQkv, WhatDoesNotFitIsRefused) {
  const auto w = make_stored("w", normal(12 * 8), {12, 8}, DType::bf16);
  const TensorView* const view = &w->view;
  auto stacked = backend_->load_matrix({&view, 1}, WeightForm::packed);
  ASSERT_TRUE(stacked.is_ok());
  for (const auto& [first, n] :
       {std::pair{-1, 2}, std::pair{0, 13}, std::pair{13, 0}, std::pair{4, -1}}) {
    EXPECT_EQ(backend_->packed_qkv()->part_of(**stacked, first, n).status().code(),
              BLEND_E_INTERNAL)
        << first;
  }
  ModelConfig c;
  c.n_layers = 1;
  c.n_heads = c.n_kv_heads = 1;
  c.head_dim = 4;
  c.rope.rotary_dim = 4;
  auto cache = backend_->make_kv_cache(c, 5);
  auto few = backend_->make_rope(c.rope, 4), many = backend_->make_rope(c.rope, 9);
  ASSERT_TRUE(cache.is_ok() && few.is_ok() && many.is_ok());
  const Owned x = make_tensor(normal(2 * 8), 2, 8), kv = make_empty(2, 8), all = make_empty(2, 12);
  auto q_memory = backend_->allocate(2 * 4 * 4);
  ASSERT_TRUE(q_memory.is_ok());
  const auto run = [&](uint32_t pos, const RopeTable& q_rope, const RopeTable& k_rope, int64_t rows,
                       int64_t wide) {
    const uint32_t at[] = {0, pos};
    Tensor scratch = all.tensor;
    scratch.cols = wide;
    return backend_->packed_qkv()->project(
        {stacked->get()}, x.tensor.slice(0, rows),
        {cache->get(), 0, &q_rope, &k_rope, at,
         Tensor{(*q_memory)->data(), rows, 4, backend_->traits().operand_bytes},
         kv.tensor.slice(0, rows), scratch.slice(0, rows)});
  };
  EXPECT_TRUE(run(4, **many, **many, 2, 12).is_ok());
  EXPECT_TRUE(run(4, **many, **many, 0, 12).is_ok());
  // Beyond the cache, and beyond either table.
  EXPECT_EQ(run(5, **many, **many, 2, 12).code(), BLEND_E_INTERNAL);
  EXPECT_EQ(run(4, **few, **many, 2, 12).code(), BLEND_E_INTERNAL);
  EXPECT_EQ(run(4, **many, **few, 2, 12).code(), BLEND_E_INTERNAL);
  EXPECT_EQ(run(4, **many, **many, 2, 11).code(), BLEND_E_INTERNAL) << "scratch of another width";
}

}  // namespace blend::test
