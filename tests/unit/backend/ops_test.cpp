#include "unit/backend/ops_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

namespace blend::test {

void BackendOps::SetUp() {
  auto pool = ThreadPool::create(GetParam().n_threads);
  ASSERT_TRUE(pool.is_ok()) << pool.status().message();
  pool_ = std::move(pool.value());
  auto backend = GetParam().make(*pool_);
  ASSERT_TRUE(backend.is_ok()) << backend.status().message();
  backend_ = std::move(backend.value());
}

size_t BackendOps::number(size_t low, size_t high) {
  return std::uniform_int_distribution<size_t>(low, high)(rng_);
}

std::vector<float> BackendOps::normal(size_t n, float scale) {
  std::normal_distribution<float> dist(0.0f, scale);
  std::vector<float> v(n);
  for (float& x : v) x = dist(rng_);
  return v;
}

BackendOps::Owned BackendOps::make_empty(int64_t rows, int64_t cols) {
  auto buffer =
      backend_->allocate(static_cast<size_t>(rows * cols * backend_->traits().activation_bytes));
  EXPECT_TRUE(buffer.is_ok());
  Owned owned{std::move(buffer.value()), {}};
  owned.tensor = {owned.buffer->data(), rows, cols, backend_->traits().activation_bytes};
  return owned;
}

BackendOps::Owned BackendOps::make_tensor(const std::vector<float>& values, int64_t rows,
                                          int64_t cols) {
  Owned owned = make_empty(rows, cols);
  if (values.empty()) return owned;
  // The interface has no upload; what reads a host's K and V comes to the same. Not every test
  // wants numbers that are finite: all are there when that is said.
  const size_t half = values.size() / 2;
  HostKv src;
  src.k = reinterpret_cast<std::byte*>(const_cast<float*>(values.data()));
  src.v = src.k + half * sizeof(float);
  src.rotated = false;
  src.n_kv_heads = 1;
  src.head_dim = static_cast<uint32_t>(half);
  src.row_stride = half;
  const uint32_t pos = 0;
  RopeParams no_turn;
  no_turn.rotary_dim = 2;
  auto rope = backend_->make_rope(no_turn, 1);
  EXPECT_TRUE(rope.is_ok());
  const Tensor kv{owned.tensor.data, half == 0 ? 0 : 1, static_cast<int64_t>(2 * half),
                  owned.tensor.elem_bytes};
  (void)backend_->host().read(src, **rope, &pos, kv);
  if (values.size() % 2 != 0) {  // the last one: as a V beside some K
    float last[2] = {0.0f, values.back()};
    auto two = backend_->allocate(2 * sizeof(float));
    EXPECT_TRUE(two.is_ok());
    src.k = reinterpret_cast<std::byte*>(last);
    src.v = src.k + sizeof(float);
    src.head_dim = 1;
    (void)backend_->host().read(src, **rope, &pos, {(*two)->data(), 1, 2, 4});
    const uint32_t second = 1;
    const Tensor from{(*two)->data(), 2, 1, 4};
    const Tensor to{static_cast<float*>(owned.tensor.data) + values.size() - 1, 1, 1, 4};
    EXPECT_TRUE(backend_->gather(from, &second, to).is_ok());
  }
  return owned;
}

std::vector<float> BackendOps::host(const Tensor& t) {
  std::vector<float> v(static_cast<size_t>(t.rows * t.cols));
  EXPECT_TRUE(backend_->download(t, v.data()).is_ok());
  return v;
}

std::vector<uint32_t> BackendOps::positions(size_t n, size_t limit) {
  std::vector<uint32_t> all(limit);
  std::iota(all.begin(), all.end(), 0u);
  std::shuffle(all.begin(), all.end(), rng_);
  all.resize(n);
  std::sort(all.begin(), all.end());
  return all;
}

void BackendOps::expect_within(const std::vector<float>& got, const std::vector<double>& want,
                               double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 1e-30;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * largest) << "element " << i;
  }
}

std::unique_ptr<StoredTensor> make_stored(const std::string& name, std::vector<float> values,
                                          std::vector<int64_t> shape, DType dtype) {
  auto t = std::make_unique<StoredTensor>();
  const size_t size = static_cast<size_t>(dtype_size(dtype));
  t->bytes.resize(values.size() * size);
  t->values = std::move(values);
  for (size_t i = 0; i < t->values.size(); ++i) {
    float& v = t->values[i];
    if (dtype == DType::f32) {
      std::memcpy(t->bytes.data() + i * 4, &v, 4);
    } else {
      const uint16_t h = dtype == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
      std::memcpy(t->bytes.data() + i * 2, &h, 2);
      v = dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
  }
  t->view.name = name;
  t->view.dtype = dtype;
  t->view.shape = std::move(shape);
  t->view.data = t->bytes.data();
  return t;
}

namespace {

TEST_P(BackendOps, Matmul) {
  for (int round = 0; round < rounds(40); ++round) {
    const size_t m = round % 4 == 0 ? 1 : number(1, 70), k = number(1, 200);
    std::vector<std::unique_ptr<StoredTensor>> parts;
    std::vector<const TensorView*> views;
    std::vector<float> w;  // [n, k]
    for (size_t p = 0; p < number(1, 3); ++p) {
      const size_t rows = number(1, 150);
      parts.push_back(make_stored("w", normal(rows * k),
                                  {static_cast<int64_t>(rows), static_cast<int64_t>(k)},
                                  kDTypes[number(0, 2)]));
      w.insert(w.end(), parts.back()->values.begin(), parts.back()->values.end());
      views.push_back(&parts.back()->view);
    }
    const size_t n = w.size() / k;
    auto weight = backend_->load_matrix(views, WeightForm::packed);
    ASSERT_TRUE(weight.is_ok()) << weight.status().message();
    const auto x = normal(m * k), y0 = normal(m * n);
    for (const bool accumulate : {false, true}) {
      Owned tx = make_tensor(x, static_cast<int64_t>(m), static_cast<int64_t>(k));
      Owned ty = make_tensor(y0, static_cast<int64_t>(m), static_cast<int64_t>(n));
      ASSERT_TRUE(backend_->matmul(**weight, tx.tensor, ty.tensor, accumulate).is_ok());
      std::vector<double> want(m * n);
      for (size_t i = 0; i < m; ++i) {
        for (size_t j = 0; j < n; ++j) {
          double sum = accumulate ? static_cast<double>(y0[i * n + j]) : 0.0;
          for (size_t e = 0; e < k; ++e) {
            sum += static_cast<double>(x[i * k + e]) * static_cast<double>(w[j * k + e]);
          }
          want[i * n + j] = sum;
        }
      }
      SCOPED_TRACE(testing::Message() << m << " x " << k << " x " << n << " += " << accumulate);
      ASSERT_NO_FATAL_FAILURE(expect_near(host(ty.tensor), want));
    }
  }
}

TEST_P(BackendOps, TakesMatricesInTheFormsOfItsTraits) {
  constexpr size_t kRows = 3, kIn = 64, kOut = 12;
  const auto stored = make_stored("w", normal(kOut * kIn), {kOut, kIn}, DType::f16);
  const TensorView* const part = &stored->view;
  const std::vector<float> x = normal(kRows * kIn);
  std::vector<double> want(kRows * kOut);
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t e = 0; e < kIn; ++e) {
      want[i] += static_cast<double>(x[i / kOut * kIn + e]) *
                 static_cast<double>(stored->values[i % kOut * kIn + e]);
    }
  }
  const BackendTraits& traits = backend_->traits();
  EXPECT_TRUE(traits.takes(WeightForm::packed));
  EXPECT_FALSE(traits.takes(WeightForm::automatic));
  EXPECT_EQ(traits.takes(WeightForm::mapped), traits.mapped_weights);
  EXPECT_EQ(traits.takes(WeightForm::int8), traits.int8_weights);
  for (const WeightForm form : {WeightForm::packed, WeightForm::mapped, WeightForm::int8}) {
    if (!traits.takes(form)) continue;
    auto weight = backend_->load_matrix({&part, 1}, form);
    ASSERT_TRUE(weight.is_ok()) << weight.status().message();
    EXPECT_EQ((*weight)->bytes() == 0, form == WeightForm::mapped);
    const Owned tx = make_tensor(x, kRows, kIn), y = make_empty(kRows, kOut);
    ASSERT_TRUE(backend_->matmul(**weight, tx.tensor, y.tensor, false).is_ok());
    expect_within(host(y.tensor), want, form == WeightForm::int8 ? 3e-2 : GetParam().tolerance_16);
  }
}

TEST_P(BackendOps, WeightsMustBeFinite) {
  for (const DType dtype : kDTypes) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      auto good = normal(70 * 33), poisoned = good;
      poisoned[69 * 33 + 5] = bad;
      const auto first = make_stored("good.weight", good, {70, 33}, dtype);
      const auto second = make_stored("poisoned.weight", poisoned, {70, 33}, dtype);
      const TensorView* parts[] = {&first->view, &second->view};
      const auto matrix = backend_->load_matrix(parts, WeightForm::packed);
      ASSERT_EQ(matrix.status().code(), BLEND_E_NUMERIC);
      EXPECT_NE(matrix.status().message().find("'poisoned.weight'"), std::string::npos);
      EXPECT_NE(matrix.status().message().find("[69, 5]"), std::string::npos)
          << matrix.status().message();
      EXPECT_EQ(backend_->load_table(second->view, false).status().code(), BLEND_E_NUMERIC);
      EXPECT_TRUE(backend_->load_table(second->view, true).is_ok()) << "it is not looked at";
      const auto vector = make_stored("norm.weight", poisoned, {70 * 33}, dtype);
      EXPECT_EQ(backend_->load_vector(std::array{&vector->view}, 0).status().code(),
                BLEND_E_NUMERIC);
    }
  }
}

TEST_P(BackendOps, EmbedAndGather) {
  for (const DType dtype : kDTypes) {
    const size_t rows = number(1, 70), cols = number(1, 300), vocab = number(2, 50);
    const auto table =
        make_stored("embedding", normal(vocab * cols),
                    {static_cast<int64_t>(vocab), static_cast<int64_t>(cols)}, dtype);
    auto weight = backend_->load_table(table->view, false);
    ASSERT_TRUE(weight.is_ok());
    std::vector<int32_t> tokens(rows);
    std::vector<double> want;
    for (int32_t& t : tokens) {
      t = static_cast<int32_t>(number(0, vocab - 1));
      const auto row = table->values.begin() + t * static_cast<int64_t>(cols);
      want.insert(want.end(), row, row + static_cast<int64_t>(cols));
    }
    Owned out = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(cols));
    ASSERT_TRUE(backend_->embed(**weight, tokens.data(), out.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));

    const auto picked = positions(number(1, rows), rows);
    std::vector<double> gathered;
    for (const uint32_t r : picked) {
      const auto row = want.begin() + static_cast<int64_t>(r * cols);
      gathered.insert(gathered.end(), row, row + static_cast<int64_t>(cols));
    }
    const auto n = static_cast<int64_t>(picked.size());
    Owned other = make_empty(n, static_cast<int64_t>(cols));
    ASSERT_TRUE(backend_->gather(out.tensor, picked.data(), other.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(host(other.tensor), gathered));
    const Tensor in_place = out.tensor.slice(0, n);
    ASSERT_TRUE(backend_->gather(out.tensor, picked.data(), in_place).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(host(in_place), gathered));
  }
}

TEST_P(BackendOps, RmsNorm) {
  for (int round = 0; round < rounds(20); ++round) {
    const size_t rows = number(1, 70), cols = number(1, 700);
    const auto x = normal(rows * cols, 5.0f);
    const auto w = make_stored("norm", normal(cols), {static_cast<int64_t>(cols)}, DType::f32);
    auto weight = backend_->load_vector(std::array{&w->view}, 0);
    ASSERT_TRUE(weight.is_ok());
    Owned tx = make_tensor(x, static_cast<int64_t>(rows), static_cast<int64_t>(cols));
    Owned out = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(cols));
    ASSERT_TRUE(backend_->rms_norm(tx.tensor, **weight, 1e-5f, out.tensor).is_ok());
    std::vector<double> want(rows * cols);
    for (size_t i = 0; i < rows; ++i) {
      double squares = 0;
      for (size_t e = 0; e < cols; ++e) {
        squares += std::pow(static_cast<double>(x[i * cols + e]), 2);
      }
      for (size_t e = 0; e < cols; ++e) {
        want[i * cols + e] = static_cast<double>(x[i * cols + e]) /
                             std::sqrt(squares / static_cast<double>(cols) + 1e-5) *
                             static_cast<double>(w->values[e]);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));
  }
}

TEST_P(BackendOps, Swiglu) {
  for (int round = 0; round < rounds(10); ++round) {
    const size_t rows = number(1, 70), d_ff = number(1, 300);
    const auto x = normal(rows * 2 * d_ff, 4.0f);
    Owned tx = make_tensor(x, static_cast<int64_t>(rows), static_cast<int64_t>(2 * d_ff));
    Owned out = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(d_ff));
    ASSERT_TRUE(backend_->glu(Activation::silu, tx.tensor, out.tensor).is_ok());
    std::vector<double> want(rows * d_ff);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t e = 0; e < d_ff; ++e) {
        const double g = static_cast<double>(x[i * 2 * d_ff + e]);
        want[i * d_ff + e] =
            g / (1 + std::exp(-g)) * static_cast<double>(x[(i * 2 + 1) * d_ff + e]);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));
  }
}

TEST_P(BackendOps, Geglu) {
  for (int round = 0; round < rounds(10); ++round) {
    const size_t rows = number(1, 70), d_ff = number(1, 300);
    const auto x = normal(rows * 2 * d_ff, 4.0f);
    Owned tx = make_tensor(x, static_cast<int64_t>(rows), static_cast<int64_t>(2 * d_ff));
    Owned out = make_empty(static_cast<int64_t>(rows), static_cast<int64_t>(d_ff));
    ASSERT_TRUE(backend_->glu(Activation::gelu_tanh, tx.tensor, out.tensor).is_ok());
    std::vector<double> want(rows * d_ff);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t e = 0; e < d_ff; ++e) {
        const double g = static_cast<double>(x[i * 2 * d_ff + e]);
        const double z = 0.7978845608028654 * (g + 0.044715 * g * g * g);
        want[i * d_ff + e] =
            0.5 * g * (1 + std::tanh(z)) * static_cast<double>(x[(i * 2 + 1) * d_ff + e]);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));
  }
}

// Biases of two tensors one after another, and the offset of norms.
TEST_P(BackendOps, AddBias) {
  for (int round = 0; round < rounds(10); ++round) {
    const auto rows = static_cast<int64_t>(number(1, 70)),
               first = static_cast<int64_t>(number(1, 300)),
               second = static_cast<int64_t>(number(1, 300)), cols = first + second;
    const auto a = make_stored("a", normal(static_cast<size_t>(first)), {first}, DType::f32);
    const auto b = make_stored("b", normal(static_cast<size_t>(second)), {second}, DType::bf16);
    const float offset = round % 2 == 0 ? 0.0f : 1.0f;
    auto bias = backend_->load_vector(std::array{&a->view, &b->view}, offset);
    ASSERT_TRUE(bias.is_ok());
    const auto x = normal(static_cast<size_t>(rows * cols));
    Owned tx = make_tensor(x, rows, cols);
    ASSERT_TRUE(backend_->add_bias(**bias, tx.tensor).is_ok());
    std::vector<double> want(x.begin(), x.end());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t e = 0; e < cols; ++e) {
        const float add = e < first ? a->values[static_cast<size_t>(e)]
                                    : b->values[static_cast<size_t>(e - first)];
        want[static_cast<size_t>(i * cols + e)] += static_cast<double>(add + offset);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_close(host(tx.tensor), want));
    EXPECT_EQ(backend_->add_bias(**bias, make_tensor(x, rows * cols, 1).tensor).code(),
              BLEND_E_INTERNAL);
  }
}

TEST_P(BackendOps, NormHeads) {
  for (int round = 0; round < rounds(10); ++round) {
    const size_t rows = number(1, 40), dim = number(1, 130), heads = number(1, 9);
    const size_t cols = heads * dim + number(0, 1) * number(1, 200);  // V after K
    const auto w = make_stored("norm", normal(dim), {static_cast<int64_t>(dim)}, DType::f32);
    auto weight = backend_->load_vector(std::array{&w->view}, 0);
    ASSERT_TRUE(weight.is_ok());
    const auto x = normal(rows * cols, 3.0f);
    Owned tx = make_tensor(x, static_cast<int64_t>(rows), static_cast<int64_t>(cols));
    ASSERT_TRUE(
        backend_->norm_heads(tx.tensor, static_cast<uint32_t>(heads), **weight, 1e-6f).is_ok());
    std::vector<double> want(x.begin(), x.end());
    for (size_t i = 0; i < rows * heads; ++i) {
      double* const head = &want[i / heads * cols + i % heads * dim];
      double squares = 0;
      for (size_t e = 0; e < dim; ++e) squares += head[e] * head[e];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
      for (size_t e = 0; e < dim; ++e) head[e] *= scale * static_cast<double>(w->values[e]);
    }
    ASSERT_NO_FATAL_FAILURE(expect_close(host(tx.tensor), want));
  }
}

TEST_P(BackendOps, AddAndScale) {
  const auto x = normal(37 * 41), y = normal(37 * 41);
  Owned tx = make_tensor(x, 37, 41), ty = make_tensor(y, 37, 41);
  ASSERT_TRUE(backend_->add(tx.tensor, ty.tensor).is_ok());
  ASSERT_TRUE(backend_->scale(tx.tensor, 0.25f).is_ok());
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) {
    want.push_back((static_cast<double>(x[i]) + static_cast<double>(y[i])) * 0.25);
  }
  ASSERT_NO_FATAL_FAILURE(expect_close(host(tx.tensor), want));
}

TEST_P(BackendOps, OperandsOfEitherType) {
  // A layer's operations on operands as the engine has them, against the same on f32.
  const int64_t rows = 37, d = 72, d_ff = 104;
  ModelConfig c;
  c.n_layers = 1;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = c.rope.rotary_dim = 18;
  const auto matrix = [&](int64_t out, int64_t in) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(in));
    const auto w =
        make_stored("w", normal(static_cast<size_t>(out * in), scale), {out, in}, DType::bf16);
    const TensorView* part = &w->view;
    return std::move(*backend_->load_matrix({&part, 1}, WeightForm::packed));
  };
  const auto norm = make_stored("n", normal(static_cast<size_t>(d)), {d}, DType::f32);
  const auto weight = std::move(*backend_->load_vector(std::array{&norm->view}, 0));
  const auto wide = matrix(2 * d_ff, d), down = matrix(d, d_ff), query = matrix(d, d),
             kv = matrix(d, d);
  const auto rope = std::move(*backend_->make_rope(c.rope, 64));
  const auto cache = std::move(*backend_->make_kv_cache(c, 64));
  const auto pos = positions(rows, 64);
  const auto x = normal(static_cast<size_t>(rows * d));
  std::vector<uint32_t> all(64);
  std::iota(all.begin(), all.end(), 0u);
  const Owned fresh = make_tensor(normal(size_t{64} * 72), 64, 72);
  ASSERT_TRUE(backend_->write_kv(*cache, 0, *rope, fresh.tensor, all.data()).is_ok());
  const auto layer = [&](int64_t bytes, std::vector<float>& attended) {
    const auto empty = [&](int64_t cols) {
      auto buffer = backend_->allocate(static_cast<size_t>(rows * cols * bytes));
      Owned owned{std::move(*buffer), {}};
      owned.tensor = {owned.buffer->data(), rows, cols, bytes};
      return owned;
    };
    const Owned sum = make_tensor(x, rows, d), normed = empty(d), q = empty(d),
                gate_up = empty(2 * d_ff), act = empty(d_ff);
    EXPECT_TRUE(backend_->rms_norm(sum.tensor, *weight, 1e-5f, normed.tensor).is_ok());
    EXPECT_TRUE(backend_->matmul(*query, normed.tensor, q.tensor, false).is_ok());
    EXPECT_TRUE(backend_->rope_q(*rope, pos.data(), 18, q.tensor).is_ok());
    EXPECT_TRUE(backend_->attention(*cache, 0, {}, q.tensor, pos.data(), q.tensor).is_ok());
    attended = host(q.tensor);
    EXPECT_TRUE(backend_->matmul(*wide, q.tensor, gate_up.tensor, false).is_ok());
    EXPECT_TRUE(backend_->glu(Activation::silu, gate_up.tensor, act.tensor).is_ok());
    EXPECT_TRUE(backend_->matmul(*down, act.tensor, sum.tensor, true).is_ok());
    return host(sum.tensor);
  };
  std::vector<float> attended, attended_f32;
  const auto got = layer(backend_->traits().operand_bytes, attended), want = layer(4, attended_f32);
  ASSERT_NO_FATAL_FAILURE(expect_near(attended, {attended_f32.begin(), attended_f32.end()}));
  ASSERT_NO_FATAL_FAILURE(expect_near(got, {want.begin(), want.end()}));
}

TEST_P(BackendOps, NoRowsIsNoWork) {
  ModelConfig c;
  c.n_layers = c.n_heads = c.n_kv_heads = 1;
  c.head_dim = c.rope.rotary_dim = 8;
  auto rope = backend_->make_rope(c.rope, 8);
  auto cache = backend_->make_kv_cache(c, 8);
  const auto w = make_stored("w", normal(64), {8, 8}, DType::f32);
  const TensorView* part = &w->view;
  auto weight = backend_->load_matrix({&part, 1}, WeightForm::packed);
  ASSERT_TRUE(rope.is_ok() && cache.is_ok() && weight.is_ok());
  const Tensor none{nullptr, 0, 8, 4}, none16{nullptr, 0, 16, 4};
  EXPECT_TRUE(backend_->matmul(**weight, none, none, true).is_ok());
  EXPECT_TRUE(backend_->rope_q(**rope, nullptr, 8, none).is_ok());
  EXPECT_TRUE(backend_->write_kv(**cache, 0, **rope, none16, nullptr).is_ok());
  EXPECT_TRUE(backend_->fusion().scatter(**cache, 0, **rope, {}, nullptr, nullptr).is_ok());
  EXPECT_TRUE(backend_->attention(**cache, 0, {}, none, nullptr, none).is_ok());
  EXPECT_TRUE(backend_->glu(Activation::silu, none16, none).is_ok());
  EXPECT_TRUE(backend_->gather(none, nullptr, none).is_ok());
  EXPECT_TRUE(backend_->download(none, nullptr).is_ok());
  // Chunks that give no rows, alone and beside some that do.
  const std::vector<float> values = normal(2 * 8);
  const StoredRun nothing{nullptr, nullptr, DType::f32, 0, 3};
  const auto* const at = reinterpret_cast<const std::byte*>(values.data());
  const StoredRun row{at, at + 8 * 4, DType::f32, 1, 3};
  const Owned fresh = make_tensor(normal(5 * 16), 5, 16), out = make_empty(5, 16),
              back = make_empty(1, 16);
  std::vector<float> sums(5, -1.0f);
  for (const auto& runs :
       {std::vector{nothing}, std::vector{nothing, nothing}, std::vector{nothing, row, nothing}}) {
    EXPECT_TRUE(backend_->fusion().scatter(**cache, 0, **rope, runs, nullptr, nullptr).is_ok());
    EXPECT_TRUE(backend_->fusion().deviation(fresh.tensor, runs, {}, sums.data()).is_ok());
    EXPECT_TRUE(backend_->fusion().drift_inputs(fresh.tensor, runs, {}, out.tensor).is_ok());
  }
  EXPECT_EQ(sums[0], -1.0f) << "of no run";
  EXPECT_GT(sums[3], 0.0f);
  ASSERT_TRUE(
      backend_->fusion().read_kv(**cache, 0, **rope, slots_from(3, 1).data(), back.tensor).is_ok());
  expect_near({host(back.tensor)[8]}, {static_cast<double>(values[8])});
  const auto norm = make_stored("n", normal(8), {8}, DType::f32);
  const TensorView* const of_norm = &norm->view;
  auto vector = backend_->load_vector({&of_norm, 1}, 0);
  ASSERT_TRUE(vector.is_ok());
  EXPECT_TRUE(backend_->rms_norm(none, **vector, 1e-5f, none).is_ok());
  EXPECT_TRUE(backend_->norm_heads(none, 1, **vector, 1e-5f).is_ok());
  EXPECT_TRUE(backend_->add_bias(**vector, none).is_ok());
  EXPECT_TRUE(backend_->add(none, none).is_ok());
  EXPECT_TRUE(backend_->scale(none, 2).is_ok());
  EXPECT_TRUE(backend_->glu(Activation::gelu_tanh, none16, none).is_ok());
  DriftShare share;
  EXPECT_TRUE(backend_->fusion().drift_share(none16, none16, &share).is_ok());
  EXPECT_TRUE(backend_->fusion().scale_kv(none16, share).is_ok());
  EXPECT_TRUE(backend_->fusion().top_k({}, 0, nullptr).is_ok());
  EXPECT_TRUE(backend_->fusion().encode_kv(none16, DType::bf16, nullptr, nullptr).is_ok());
  EXPECT_TRUE(backend_->fusion().read_kv(**cache, 0, **rope, nullptr, none16).is_ok());
  EXPECT_TRUE(backend_->move_rows(**cache, **cache, **rope, {0, 8, 0, 0, 0, 0}).is_ok());
}

TEST_P(BackendOps, ConcurrentCallers) {
  // Two fuses on one backend: each must get its own results.
  const size_t m = 33, k = 96, n = 130;
  const auto w = make_stored("w", normal(n * k), {static_cast<int64_t>(n), static_cast<int64_t>(k)},
                             DType::f32);
  const TensorView* part = &w->view;
  auto weight = backend_->load_matrix({&part, 1}, WeightForm::packed);
  ASSERT_TRUE(weight.is_ok());
  struct Caller {
    Owned x, y;
    std::vector<float> want;
    int wrong = 0;
  };
  std::vector<Caller> callers(3);
  for (Caller& c : callers) {
    c.x = make_tensor(normal(m * k), static_cast<int64_t>(m), static_cast<int64_t>(k));
    c.y = make_empty(static_cast<int64_t>(m), static_cast<int64_t>(n));
    ASSERT_TRUE(backend_->matmul(**weight, c.x.tensor, c.y.tensor, false).is_ok());
    c.want = host(c.y.tensor);
  }
  std::vector<std::thread> threads;
  for (Caller& c : callers) {
    threads.emplace_back([this, &c, &weight] {
      for (int i = 0; i < 50; ++i) {
        std::vector<float> got(c.want.size());
        const bool ok = backend_->matmul(**weight, c.x.tensor, c.y.tensor, false).is_ok() &&
                        backend_->download(c.y.tensor, got.data()).is_ok();
        c.wrong += ok && got == c.want ? 0 : 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Caller& c : callers) EXPECT_EQ(c.wrong, 0);
}

}  // namespace
}  // namespace blend::test
