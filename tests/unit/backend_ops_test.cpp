#include "unit/backend_ops_test.h"

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
  auto buffer = backend_->allocate(static_cast<size_t>(rows * cols * backend_->activation_bytes()));
  EXPECT_TRUE(buffer.is_ok());
  Owned owned{std::move(buffer.value()), {}};
  owned.tensor = {owned.buffer->data(), rows, cols, backend_->activation_bytes()};
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
  (void)backend_->read_host(src, **rope, &pos, kv);
  if (values.size() % 2 != 0) {  // the last one: as a V beside some K
    float last[2] = {0.0f, values.back()};
    auto two = backend_->allocate(2 * sizeof(float));
    EXPECT_TRUE(two.is_ok());
    src.k = reinterpret_cast<std::byte*>(last);
    src.v = src.k + sizeof(float);
    src.head_dim = 1;
    (void)backend_->read_host(src, **rope, &pos, {(*two)->data(), 1, 2, 4});
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

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};

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
    auto weight = backend_->load_matrix(views);
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

TEST_P(BackendOps, WeightsMustBeFinite) {
  for (const DType dtype : kDTypes) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      auto good = normal(70 * 33), poisoned = good;
      poisoned[69 * 33 + 5] = bad;
      const auto first = make_stored("good.weight", good, {70, 33}, dtype);
      const auto second = make_stored("poisoned.weight", poisoned, {70, 33}, dtype);
      const TensorView* parts[] = {&first->view, &second->view};
      const auto matrix = backend_->load_matrix(parts);
      ASSERT_EQ(matrix.status().code(), BLEND_E_NUMERIC);
      EXPECT_NE(matrix.status().message().find("'poisoned.weight'"), std::string::npos);
      EXPECT_NE(matrix.status().message().find("[69, 5]"), std::string::npos)
          << matrix.status().message();
      EXPECT_EQ(backend_->load_table(second->view).status().code(), BLEND_E_NUMERIC);
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
    auto weight = backend_->load_table(table->view);
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
    ASSERT_TRUE(backend_->swiglu(tx.tensor, out.tensor).is_ok());
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
    ASSERT_TRUE(backend_->geglu(tx.tensor, out.tensor).is_ok());
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

// Biases of two tensors one behind another, and the offset of norms.
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
    const size_t cols = heads * dim + number(0, 1) * number(1, 200);  // V behind K
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

// ---- RoPE, the cache and attention, together: a model of the cache in double precision.

struct Attention {
  ModelConfig config;
  AttentionRule rule;
  uint32_t capacity = 0;
  std::vector<double> k, v;  // [capacity, kv_dim]; k rotated

  size_t kv_dim() const { return config.kv_dim(); }

  // Angle by the definition (Su et al. 2021; Llama 3.1 for the factors).
  void rotate(double* head, uint32_t pos) const {
    const RopeParams& r = config.rope;
    for (uint32_t i = 0; i < r.rotary_dim / 2; ++i) {
      double f = std::pow(r.theta, -2.0 * i / r.rotary_dim) / r.linear_scale;
      if (!r.freq_factors.empty()) f /= static_cast<double>(r.freq_factors[i]);
      const bool halves = r.layout == RopeLayout::half_split;
      const uint32_t a = halves ? i : 2 * i, b = halves ? i + r.rotary_dim / 2 : 2 * i + 1;
      const double c = std::cos(pos * f), s = std::sin(pos * f), x = head[a], y = head[b];
      head[a] = x * c - y * s;
      head[b] = x * s + y * c;
    }
  }
  void put(uint32_t slot, const float* k_row, const float* v_row) {
    std::copy(k_row, k_row + kv_dim(), k.begin() + static_cast<int64_t>(slot * kv_dim()));
    std::copy(v_row, v_row + kv_dim(), v.begin() + static_cast<int64_t>(slot * kv_dim()));
    for (uint32_t h = 0; h < config.n_kv_heads; ++h) {
      rotate(k.data() + slot * kv_dim() + h * config.head_dim, slot);
    }
  }
  size_t first_key(size_t pos) const {
    return rule.window == 0 || pos < rule.window ? 0 : pos + 1 - rule.window;
  }
  double scored(double dot) const {
    dot *= rule.scale != 0 ? static_cast<double>(rule.scale)
                           : 1 / std::sqrt(static_cast<double>(config.head_dim));
    const auto cap = static_cast<double>(rule.softcap);
    return cap == 0 ? dot : cap * std::tanh(dot / cap);
  }
  std::vector<double> attend(const std::vector<double>& q, const std::vector<uint32_t>& pos) const {
    const size_t d = config.head_dim;
    std::vector<double> out(q.size()), w;
    for (size_t i = 0; i < pos.size(); ++i) {
      for (size_t h = 0; h < config.n_heads; ++h) {
        const size_t at = i * config.q_dim() + h * d, kv = h / config.group() * d;
        w.assign(pos[i] + 1, 0.0);
        double largest = -1e300, sum = 0;
        for (size_t j = first_key(pos[i]); j <= pos[i]; ++j) {
          for (size_t e = 0; e < d; ++e) w[j] += q[at + e] * k[j * kv_dim() + kv + e];
          w[j] = scored(w[j]);
          largest = std::max(largest, w[j]);
        }
        for (size_t j = first_key(pos[i]); j <= pos[i]; ++j) sum += w[j] = std::exp(w[j] - largest);
        for (size_t j = first_key(pos[i]); j <= pos[i]; ++j) {
          for (size_t e = 0; e < d; ++e) out[at + e] += w[j] / sum * v[j * kv_dim() + kv + e];
        }
      }
    }
    return out;
  }
  // attend() where some slots are tempered; mass: what those had of each row, mean over heads.
  std::vector<double> attend_tempered(const std::vector<double>& q,
                                      const std::vector<uint32_t>& pos, const Tempering& how,
                                      std::vector<double>& mass) const {
    const size_t d = config.head_dim;
    std::vector<double> out(q.size()), w;
    mass.assign(pos.size(), 0.0);
    for (size_t i = 0; i < pos.size(); ++i) {
      for (size_t h = 0; h < config.n_heads; ++h) {
        const size_t at = i * config.q_dim() + h * d, kv = h / config.group() * d;
        w.assign(pos[i] + 1, 0.0);
        double tempered = 0, others = 0;
        for (size_t j = 0; j <= pos[i]; ++j) {
          for (size_t e = 0; e < d; ++e) w[j] += q[at + e] * k[j * kv_dim() + kv + e];
          w[j] /= std::sqrt(static_cast<double>(d));
          const bool is_tempered = how.slots[j] != 0;
          w[j] = std::exp(is_tempered ? w[j] / static_cast<double>(how.temperature) : w[j]);
          (is_tempered ? tempered : others) += w[j];
        }
        const double scaled =
            tempered > 0 ? std::pow(tempered, static_cast<double>(how.scale)) : 0.0;
        for (size_t j = 0; j <= pos[i]; ++j) {
          const double p =
              (how.slots[j] != 0 ? w[j] / tempered * scaled : w[j]) / (scaled + others);
          for (size_t e = 0; e < d; ++e) out[at + e] += p * v[j * kv_dim() + kv + e];
        }
        mass[i] += scaled / (scaled + others) / config.n_heads;
      }
    }
    return out;
  }
  // 0.5 + the probabilities that attend() weighs V with, summed over rows and heads.
  std::vector<double> mass(const std::vector<double>& q, const std::vector<uint32_t>& pos) const {
    const size_t d = config.head_dim;
    std::vector<double> sum(pos.back() + 1, 0.5), w;
    for (size_t i = 0; i < pos.size(); ++i) {
      for (size_t h = 0; h < config.n_heads; ++h) {
        w.assign(pos[i] + 1, 0.0);
        double total = 0;
        for (size_t j = first_key(pos[i]); j <= pos[i]; ++j) {
          for (size_t e = 0; e < d; ++e) {
            w[j] +=
                q[i * config.q_dim() + h * d + e] * k[j * kv_dim() + h / config.group() * d + e];
          }
          total += w[j] = std::exp(scored(w[j]));
        }
        for (size_t j = first_key(pos[i]); j <= pos[i]; ++j) sum[j] += w[j] / total;
      }
    }
    return sum;
  }
};

TEST_P(BackendOps, RopeCacheAttention) {
  for (int round = 0; round < rounds(40); ++round) {
    Attention ref;
    ModelConfig& c = ref.config;
    const uint32_t groups[] = {1, 2, 4, 8};
    const uint32_t head_dims[] = {8, 10, 16, 34, 64, 80, 128};
    c.n_layers = 2;
    c.n_kv_heads = static_cast<uint32_t>(number(1, 3));
    c.n_heads = c.n_kv_heads * groups[number(0, 3)];
    c.head_dim = head_dims[number(0, 6)];
    c.rope.layout = round % 2 == 0 ? RopeLayout::interleaved : RopeLayout::half_split;
    c.rope.rotary_dim =
        round % 3 == 0 ? 2 * static_cast<uint32_t>(number(1, c.head_dim / 2)) : c.head_dim;
    c.rope.theta = round % 5 == 0 ? 500000.0 : 10000.0;
    c.rope.linear_scale = round % 4 == 3 ? 4.0 : 1.0;
    if (round % 7 == 2) {
      c.rope.freq_factors.resize(c.rope.rotary_dim / 2);
      for (float& f : c.rope.freq_factors) f = 1.0f + static_cast<float>(number(0, 31)) / 4;
    }
    ref.capacity = static_cast<uint32_t>(number(70, 700));
    if (round % 3 == 1) ref.rule.window = static_cast<uint32_t>(number(1, ref.capacity));
    if (round % 5 == 4) ref.rule.softcap = static_cast<float>(number(1, 30));
    if (round % 5 == 3) ref.rule.scale = 0.07f;
    const size_t kv_dim = ref.kv_dim();
    ref.k.resize(ref.capacity * kv_dim);
    ref.v.resize(ref.capacity * kv_dim);
    SCOPED_TRACE(testing::Message()
                 << "round " << round << ", head_dim " << c.head_dim << ", " << c.n_heads << "/"
                 << c.n_kv_heads << " heads, capacity " << ref.capacity);

    auto rope = backend_->make_rope(c.rope, ref.capacity);
    auto cache = backend_->make_kv_cache(c, ref.capacity);
    ASSERT_TRUE(rope.is_ok() && cache.is_ok());
    const uint32_t layer = static_cast<uint32_t>(number(0, 1));

    // Every slot is placed from stored runs of some dtype, but for those that are skipped; those
    // are then written fresh, with other rows that replace placed ones.
    std::vector<uint8_t> skip(ref.capacity, 0);
    for (uint8_t& s : skip) s = number(0, 4) == 0 ? 1 : 0;
    // Every other round some of the placed rows are corrected on the way, rows in any order.
    const size_t n_corrected = number(1, ref.capacity);
    const auto drift = normal(n_corrected * 2 * kv_dim, 0.3f);
    std::vector<uint32_t> drift_row(ref.capacity, Correction::kNone);
    for (uint32_t& row : drift_row) {
      if (number(0, 2) > 0) row = static_cast<uint32_t>(number(0, n_corrected - 1));
    }
    Owned tdrift =
        make_tensor(drift, static_cast<int64_t>(n_corrected), static_cast<int64_t>(2 * kv_dim));
    const Correction correction{tdrift.tensor, drift_row.data()};
    const bool corrects = round % 2 == 1;
    std::vector<std::unique_ptr<StoredTensor>> stored;
    std::vector<StoredRun> runs;
    for (uint32_t first = 0; first < ref.capacity;) {
      const auto n = static_cast<uint32_t>(std::min<size_t>(ref.capacity - first, number(1, 150)));
      const DType dtype = kDTypes[number(0, 2)];
      auto k = make_stored("k", normal(n * kv_dim), {}, dtype);
      auto v = make_stored("v", normal(n * kv_dim), {}, dtype);
      for (uint32_t i = 0; i < n; ++i) {
        if (skip[first + i] != 0) continue;
        std::vector<float> k_row(k->values.begin() + static_cast<int64_t>(i * kv_dim),
                                 k->values.begin() + static_cast<int64_t>((i + 1) * kv_dim));
        std::vector<float> v_row(v->values.begin() + static_cast<int64_t>(i * kv_dim),
                                 v->values.begin() + static_cast<int64_t>((i + 1) * kv_dim));
        if (corrects && drift_row[first + i] != Correction::kNone) {
          const float* add = drift.data() + drift_row[first + i] * 2 * kv_dim;
          for (size_t e = 0; e < kv_dim; ++e) {
            k_row[e] += add[e];
            v_row[e] += add[kv_dim + e];
          }
        }
        ref.put(first + i, k_row.data(), v_row.data());
      }
      runs.push_back({k->bytes.data(), v->bytes.data(), dtype, n, first});
      stored.push_back(std::move(k));
      stored.push_back(std::move(v));
      first += n;
    }
    std::vector<uint32_t> fresh;
    for (uint32_t s = 0; s < ref.capacity; ++s) {
      if (skip[s] != 0 || (round % 2 == 0 && number(0, 9) == 0)) fresh.push_back(s);
    }
    const auto kv = normal(fresh.size() * 2 * kv_dim);
    Owned tkv =
        make_tensor(kv, static_cast<int64_t>(fresh.size()), static_cast<int64_t>(2 * kv_dim));
    const auto place = [&] {
      return backend_->place(**cache, layer, **rope, runs, skip.data(),
                             corrects ? &correction : nullptr);
    };
    if (round % 4 < 2) {  // place must leave skipped slots alone, whatever the order
      ASSERT_TRUE(place().is_ok());
      ASSERT_TRUE(backend_->write_kv(**cache, layer, **rope, tkv.tensor, fresh.data()).is_ok());
    } else {
      for (const uint32_t s : fresh) skip[s] = 1;
      ASSERT_TRUE(backend_->write_kv(**cache, layer, **rope, tkv.tensor, fresh.data()).is_ok());
      ASSERT_TRUE(place().is_ok());
    }
    for (size_t i = 0; i < fresh.size(); ++i) {
      const float* row = kv.data() + i * 2 * kv_dim;
      ref.put(fresh[i], row, row + kv_dim);
    }

    auto pos = positions(round % 8 == 0 ? 1 : number(1, 70), ref.capacity);
    if (round % 3 == 0) pos.back() = ref.capacity - 1;
    // Few keys average less of 16-bit scores' rounding away.
    const auto q = normal(pos.size() * c.q_dim(), ref.rule.window == 0 ? 1.5f : 1.0f);
    std::vector<double> rotated(q.begin(), q.end());
    for (size_t i = 0; i < pos.size(); ++i) {
      for (uint32_t h = 0; h < c.n_heads; ++h) {
        ref.rotate(rotated.data() + i * c.q_dim() + h * c.head_dim, pos[i]);
      }
    }
    Owned tq = make_tensor(q, static_cast<int64_t>(pos.size()), c.q_dim());
    ASSERT_TRUE(backend_->rope_q(**rope, pos.data(), c.head_dim, tq.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(host(tq.tensor), rotated));
    const auto want = ref.attend(rotated, pos);
    Owned out = make_empty(static_cast<int64_t>(pos.size()), c.q_dim());
    ASSERT_TRUE(
        backend_->attention(**cache, layer, ref.rule, tq.tensor, pos.data(), out.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_near(host(out.tensor), want));
    std::vector<float> mass(pos.back() + 1, 0.5f);  // it is added to
    ASSERT_TRUE(
        backend_->attention_mass(**cache, layer, ref.rule, tq.tensor, pos.data(), mass.data())
            .is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_near(mass, ref.mass(rotated, pos)));
    const bool usual = ref.rule.scale == 0 && ref.rule.window == 0 && ref.rule.softcap == 0;
    if (usual) {  // tempered attention knows no other
      std::vector<uint8_t> tempered(pos.back() + 1);
      for (uint8_t& slot : tempered) slot = number(0, 2) == 0 ? 1 : 0;
      const Tempering how{tempered.data(), 0.8f, 0.9f};
      std::vector<double> want_share;
      const auto want_tempered = ref.attend_tempered(rotated, pos, how, want_share);
      std::vector<float> share(pos.size());
      ASSERT_TRUE(backend_
                      ->attention_tempered(**cache, layer, ref.rule, tq.tensor, pos.data(), how,
                                           out.tensor, round % 2 == 0 ? share.data() : nullptr)
                      .is_ok());
      ASSERT_NO_FATAL_FAILURE(expect_near(host(out.tensor), want_tempered));
      if (round % 2 == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_near(share, want_share));
      }
    }
    ASSERT_TRUE(
        backend_->attention(**cache, layer, ref.rule, tq.tensor, pos.data(), tq.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_near(host(tq.tensor), want));
  }
}

// A table that turns nothing, and one whose cosines and sines are scaled.
TEST_P(BackendOps, RopeOfNothingAndScaled) {
  const auto q = normal(5 * 32);
  const std::vector<uint32_t> pos = {0, 3, 4, 17, 39};
  RopeParams params;
  auto nothing = backend_->make_rope(params, 40);
  ASSERT_TRUE(nothing.is_ok());
  Owned tq = make_tensor(q, 5, 32);
  ASSERT_TRUE(backend_->rope_q(**nothing, pos.data(), 16, tq.tensor).is_ok());
  ASSERT_NO_FATAL_FAILURE(expect_close(host(tq.tensor), {q.begin(), q.end()}));

  params.rotary_dim = 8;
  params.attention_factor = 1.5;
  auto scaled = backend_->make_rope(params, 40);
  ASSERT_TRUE(scaled.is_ok());
  ASSERT_TRUE(backend_->rope_q(**scaled, pos.data(), 16, tq.tensor).is_ok());
  Attention ref;
  ref.config.rope = params;
  std::vector<double> want(q.begin(), q.end());
  for (size_t head = 0; head < 10; ++head) {
    ref.rotate(&want[head * 16], pos[head / 2]);
    for (size_t e = 0; e < 8; ++e) want[head * 16 + e] *= 1.5;
  }
  ASSERT_NO_FATAL_FAILURE(expect_close(host(tq.tensor), want));
}

TEST_P(BackendOps, RowsDoNotSeeTheFuture) {
  // Row i of a full prefill must be the same, bit for bit, whatever the slots behind it hold.
  ModelConfig c;
  c.n_layers = 1;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 32;
  c.rope.rotary_dim = 32;
  const uint32_t n = 67;
  auto rope = backend_->make_rope(c.rope, n);
  auto cache = backend_->make_kv_cache(c, n);
  ASSERT_TRUE(rope.is_ok() && cache.is_ok());
  auto kv = normal(n * 2 * c.kv_dim());
  const auto q = normal(n * c.q_dim());
  std::vector<uint32_t> pos(n);
  std::iota(pos.begin(), pos.end(), 0u);
  std::vector<float> before;
  for (uint32_t poisoned = n; poisoned-- > 0;) {
    std::fill(kv.begin() + poisoned * 2 * c.kv_dim(), kv.begin() + (poisoned + 1) * 2 * c.kv_dim(),
              1e30f);
    if (poisoned % 9 != 0 && poisoned + 2 < n) continue;
    Owned tkv = make_tensor(kv, n, 2 * c.kv_dim()), tq = make_tensor(q, n, c.q_dim());
    ASSERT_TRUE(backend_->write_kv(**cache, 0, **rope, tkv.tensor, pos.data()).is_ok());
    ASSERT_TRUE(backend_->attention(**cache, 0, {}, tq.tensor, pos.data(), tq.tensor).is_ok());
    const auto out = host(tq.tensor);
    if (!before.empty()) {
      for (size_t i = 0; i < poisoned * c.q_dim(); ++i) ASSERT_EQ(out[i], before[i]) << poisoned;
    }
    before = out;
  }
}

TEST_P(BackendOps, Deviation) {
  for (int round = 0; round < rounds(20); ++round) {
    const size_t rows = number(1, 70), kv_dim = number(1, 200);
    const auto kv = normal(rows * 2 * kv_dim);
    const DeviationRule rule{static_cast<DeviationMetric>(1 + round % 3),
                             static_cast<DeviationNorm>(1 + round / 3 % 2), round / 6 % 2 == 1};
    const auto sized = [&](double x) {
      return rule.norm == DeviationNorm::l2 ? x * x : std::abs(x);
    };
    std::vector<double> want(rows, -1.0);
    std::vector<std::unique_ptr<StoredTensor>> stored;
    std::vector<StoredRun> runs;
    for (size_t first = number(0, 3); first < rows;) {
      const size_t n = std::min(rows - first, number(1, 30));
      const DType dtype = kDTypes[number(0, 2)];
      auto k = make_stored("k", normal(n * kv_dim), {}, dtype);
      auto v = make_stored("v", normal(n * kv_dim), {}, dtype);
      for (size_t i = 0; i < n; ++i) {
        double sum = 0, size = 0;
        for (size_t e = 0; e < kv_dim; ++e) {
          const float* row = kv.data() + (first + i) * 2 * kv_dim;
          const auto sk = static_cast<double>(k->values[i * kv_dim + e]);
          const auto sv = static_cast<double>(v->values[i * kv_dim + e]);
          if (rule.metric != DeviationMetric::v) {
            sum += sized(static_cast<double>(row[e]) - sk);
            size += sized(sk);
          }
          if (rule.metric != DeviationMetric::k) {
            sum += sized(static_cast<double>(row[kv_dim + e]) - sv);
            size += sized(sv);
          }
        }
        want[first + i] = rule.relative ? sum / size : sum;
      }
      runs.push_back({k->bytes.data(), v->bytes.data(), dtype, static_cast<uint32_t>(n),
                      static_cast<uint32_t>(first)});
      stored.push_back(std::move(k));
      stored.push_back(std::move(v));
      first += n + number(0, 2);  // rows between runs keep what they had
    }
    Owned tkv = make_tensor(kv, static_cast<int64_t>(rows), static_cast<int64_t>(2 * kv_dim));
    std::vector<float> got(rows, -1.0f);
    ASSERT_TRUE(backend_->deviation(tkv.tensor, runs, rule, got.data()).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(got, want));
  }
}

TEST_P(BackendOps, DriftInputs) {
  for (int round = 0; round < rounds(24); ++round) {
    const size_t rows = number(1, 70), kv_dim = number(1, 200);
    const DriftInputs inputs{round % 2 == 1, round % 4 >= 2};
    const size_t n_in = inputs.size(kv_dim);
    ASSERT_EQ(n_in, 2 * kv_dim * (1 + round % 2) + (round % 4 >= 2 ? 1 : 0));
    const auto kv = normal(rows * 2 * kv_dim);
    std::vector<double> want(rows * n_in, -1.0);  // rows of no run keep what they hold
    std::vector<std::unique_ptr<StoredTensor>> stored;
    std::vector<StoredRun> runs;
    for (size_t first = number(0, 3); first < rows;) {
      const size_t n = std::min(rows - first, number(1, 30));
      const DType dtype = kDTypes[number(0, 2)];
      auto k = make_stored("k", normal(n * kv_dim), {}, dtype);
      auto v = make_stored("v", normal(n * kv_dim), {}, dtype);
      for (size_t i = 0; i < n; ++i) {
        const float* fresh = kv.data() + (first + i) * 2 * kv_dim;
        double* at = want.data() + (first + i) * n_in;
        for (size_t e = 0; e < kv_dim; ++e) {
          at[e] = static_cast<double>(fresh[e] - k->values[i * kv_dim + e]);
          at[kv_dim + e] = static_cast<double>(fresh[kv_dim + e] - v->values[i * kv_dim + e]);
        }
        if (inputs.fresh) std::copy(fresh, fresh + 2 * kv_dim, at + 2 * kv_dim);
        if (inputs.constant) at[n_in - 1] = 1;
      }
      runs.push_back({k->bytes.data(), v->bytes.data(), dtype, static_cast<uint32_t>(n),
                      static_cast<uint32_t>(first)});
      stored.push_back(std::move(k));
      stored.push_back(std::move(v));
      first += n + number(0, 5);
    }
    Owned fresh = make_tensor(kv, static_cast<int64_t>(rows), static_cast<int64_t>(2 * kv_dim));
    Owned out = make_tensor(std::vector<float>(rows * n_in, -1.0f), static_cast<int64_t>(rows),
                            static_cast<int64_t>(n_in));
    ASSERT_TRUE(backend_->drift_inputs(fresh.tensor, runs, inputs, out.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));
    const DriftInputs other{!inputs.fresh, inputs.constant};
    EXPECT_EQ(backend_->drift_inputs(fresh.tensor, runs, other, out.tensor).code(),
              BLEND_E_INTERNAL);
  }
}

TEST_P(BackendOps, RelativeDeviationOfAStoredRowOfZeros) {
  const std::vector<float> fresh = {1, 2, 3, 4, 0, 0, 0, 0};  // [2, 2 * 2]
  const auto zeros = make_stored("k", std::vector<float>(4, 0.0f), {}, DType::f16);
  const StoredRun run{zeros->bytes.data(), zeros->bytes.data(), DType::f16, 2, 0};
  Owned kv = make_tensor(fresh, 2, 4);
  std::vector<float> got(2, -1.0f);
  const DeviationRule rule{DeviationMetric::kv, DeviationNorm::l2, true};
  ASSERT_TRUE(backend_->deviation(kv.tensor, {&run, 1}, rule, got.data()).is_ok());
  EXPECT_GT(got[0], 1e30f) << "without bound, and not a NaN";
  EXPECT_EQ(got[1], 0.0f);
}

TEST_P(BackendOps, TopK) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {1, 5, 5, -0.0f, 0, 5, nan, -inf, inf, 2};
  const std::vector<std::pair<size_t, std::vector<uint32_t>>> cases = {
      {0, {}},
      {1, {6}},
      {2, {6, 8}},
      {3, {1, 6, 8}},
      {4, {1, 2, 6, 8}},
      {6, {1, 2, 5, 6, 8, 9}},
      {8, {0, 1, 2, 3, 5, 6, 8, 9}},
      {10, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}};
  for (const auto& [k, want] : cases) {
    std::vector<uint32_t> got(k);
    ASSERT_TRUE(backend_->top_k(scores, k, got.data()).is_ok());
    EXPECT_EQ(got, want) << k;
  }
  // A NaN may have a sign.
  const std::vector<float> signs = {inf, -nan, 2, std::copysign(nan, 1.0f), inf};
  std::vector<uint32_t> first(2);
  ASSERT_TRUE(backend_->top_k(signs, 2, first.data()).is_ok());
  EXPECT_EQ(first, (std::vector<uint32_t>{1, 3}));
  const auto many = normal(5000);
  std::vector<uint32_t> order(many.size()), got(1234);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return many[a] > many[b]; });
  order.resize(got.size());
  std::sort(order.begin(), order.end());
  ASSERT_TRUE(backend_->top_k(many, got.size(), got.data()).is_ok());
  EXPECT_EQ(got, order);
}

TEST_P(BackendOps, EncodeKv) {
  for (const DType dtype : kDTypes) {
    const size_t rows = number(1, 70), kv_dim = number(1, 200);
    const size_t bytes = rows * kv_dim * static_cast<size_t>(dtype_size(dtype));
    auto kv = normal(rows * 2 * kv_dim, 10.0f);
    std::vector<float> k_values, v_values;
    for (size_t i = 0; i < rows; ++i) {
      const auto row = kv.begin() + static_cast<int64_t>(i * 2 * kv_dim);
      const auto n = static_cast<int64_t>(kv_dim);
      k_values.insert(k_values.end(), row, row + n);
      v_values.insert(v_values.end(), row + n, row + 2 * n);
    }
    const auto want_k = make_stored("k", k_values, {}, dtype),
               want_v = make_stored("v", v_values, {}, dtype);
    std::vector<std::byte> k(bytes), v(bytes);
    const auto r = static_cast<int64_t>(rows), c = static_cast<int64_t>(2 * kv_dim);
    ASSERT_TRUE(
        backend_->encode_kv(make_tensor(kv, r, c).tensor, dtype, k.data(), v.data()).is_ok());
    EXPECT_EQ(k, want_k->bytes);
    EXPECT_EQ(v, want_v->bytes);

    kv[(rows - 1) * 2 * kv_dim + kv_dim] = dtype == DType::f16 ? 70000.0f : std::nanf("");
    const Status s = backend_->encode_kv(make_tensor(kv, r, c).tensor, dtype, k.data(), v.data());
    EXPECT_EQ(s.code(), BLEND_E_NUMERIC);
    EXPECT_NE(s.message().find("row " + std::to_string(rows - 1)), std::string::npos)
        << s.message();
  }
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
    return std::move(*backend_->load_matrix({&part, 1}));
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
    EXPECT_TRUE(backend_->swiglu(gate_up.tensor, act.tensor).is_ok());
    EXPECT_TRUE(backend_->matmul(*down, act.tensor, sum.tensor, true).is_ok());
    return host(sum.tensor);
  };
  std::vector<float> attended, attended_f32;
  const auto got = layer(backend_->operand_bytes(), attended), want = layer(4, attended_f32);
  ASSERT_NO_FATAL_FAILURE(expect_near(attended, {attended_f32.begin(), attended_f32.end()}));
  ASSERT_NO_FATAL_FAILURE(expect_near(got, {want.begin(), want.end()}));
}

TEST_P(BackendOps, HostRowsThereAndBack) {
  // read_host() and place_host(): a host's own layout, rotated or not.
  for (int round = 0; round < rounds(12); ++round) {
    const uint32_t heads = static_cast<uint32_t>(number(1, 3));
    const uint32_t dim = 2 * static_cast<uint32_t>(number(1, 20));
    const size_t n = number(1, 40), kv_dim = size_t{heads} * dim;
    RopeParams params;
    params.layout = round % 2 == 0 ? RopeLayout::interleaved : RopeLayout::half_split;
    params.rotary_dim = round % 3 == 0 ? 2 * static_cast<uint32_t>(number(1, dim / 2)) : dim;
    const auto rope = std::move(*backend_->make_rope(params, 50));
    const DType dtype = kDTypes[number(0, 2)];
    auto k = make_stored("k", normal(n * kv_dim), {}, dtype);
    auto v = make_stored("v", normal(n * kv_dim), {}, dtype);
    HostKv host_kv;  // heads first
    std::vector<std::byte> hk(50 * kv_dim * 4, std::byte{0x55}), hv = hk;
    host_kv.k = hk.data();
    host_kv.v = hv.data();
    host_kv.dtype = DType::f32;
    host_kv.rotated = round % 4 < 2;
    host_kv.n_kv_heads = heads;
    host_kv.head_dim = dim;
    host_kv.row_stride = dim;
    host_kv.head_stride = size_t{50} * dim;
    const auto first = static_cast<uint32_t>(number(0, 50 - n));
    std::vector<uint8_t> skip(50, 0);
    for (uint8_t& s : skip) s = number(0, 4) == 0 ? 1 : 0;
    const StoredRun run{k->bytes.data(), v->bytes.data(), dtype, static_cast<uint32_t>(n), first};
    ASSERT_TRUE(backend_->place_host(host_kv, *rope, {&run, 1}, skip.data(), nullptr).is_ok());
    const auto untouched = [&](size_t row) {
      return hk[row * dim * 4] == std::byte{0x55} && hv[row * dim * 4] == std::byte{0x55};
    };
    for (size_t row = 0; row < 50; ++row) {
      const bool placed = row >= first && row < first + n && skip[row] == 0;
      ASSERT_EQ(untouched(row), !placed) << row;
    }
    std::fill(skip.begin(), skip.end(), uint8_t{0});
    // Every other row with something added, every third of them with the same.
    const size_t n_added = 3;
    const std::vector<float> more = normal(n_added * 2 * kv_dim);
    Owned added =
        make_tensor(more, static_cast<int64_t>(n_added), static_cast<int64_t>(2 * kv_dim));
    std::vector<uint32_t> added_row(50, Correction::kNone);
    for (uint32_t row = 0; row < 50; row += 2) added_row[row] = row / 2 % n_added;
    const Correction correction{added.tensor, added_row.data()};
    const bool corrects = round % 4 == 1 || round % 4 == 2;
    ASSERT_TRUE(
        backend_->place_host(host_kv, *rope, {&run, 1}, nullptr, corrects ? &correction : nullptr)
            .is_ok());
    // Back again: K turned back from its positions.
    HostKv from = host_kv;
    from.k += size_t{first} * dim * 4;
    from.v += size_t{first} * dim * 4;
    std::vector<uint32_t> pos(n);
    std::iota(pos.begin(), pos.end(), first);
    Owned out = make_empty(static_cast<int64_t>(n), static_cast<int64_t>(2 * kv_dim));
    ASSERT_TRUE(backend_->read_host(from, *rope, pos.data(), out.tensor).is_ok());
    std::vector<double> want;
    for (size_t i = 0; i < n; ++i) {
      const auto at = static_cast<int64_t>(i * kv_dim), size = static_cast<int64_t>(kv_dim);
      want.insert(want.end(), k->values.begin() + at, k->values.begin() + at + size);
      want.insert(want.end(), v->values.begin() + at, v->values.begin() + at + size);
      const uint32_t from_row = added_row[first + i];
      for (size_t e = 0; corrects && from_row != Correction::kNone && e < 2 * kv_dim; ++e) {
        want[i * 2 * kv_dim + e] += static_cast<double>(more[from_row * 2 * kv_dim + e]);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));
    if (host_kv.rotated && first > 0) {
      float turned = 0;
      std::memcpy(&turned, from.k, sizeof turned);
      EXPECT_NE(turned, k->values[0]) << "placed without its rotation";
    }
    float bad = std::nanf("");
    std::memcpy(from.v + (n - 1) * dim * 4, &bad, sizeof bad);
    const Status s = backend_->read_host(from, *rope, pos.data(), out.tensor);
    EXPECT_EQ(s.code(), BLEND_E_NUMERIC);
    EXPECT_NE(s.message().find("row " + std::to_string(n - 1)), std::string::npos);
  }
}

TEST_P(BackendOps, NoRowsIsNoWork) {
  ModelConfig c;
  c.n_layers = c.n_heads = c.n_kv_heads = 1;
  c.head_dim = c.rope.rotary_dim = 8;
  auto rope = backend_->make_rope(c.rope, 8);
  auto cache = backend_->make_kv_cache(c, 8);
  const auto w = make_stored("w", normal(64), {8, 8}, DType::f32);
  const TensorView* part = &w->view;
  auto weight = backend_->load_matrix({&part, 1});
  ASSERT_TRUE(rope.is_ok() && cache.is_ok() && weight.is_ok());
  const Tensor none{nullptr, 0, 8, 4}, none16{nullptr, 0, 16, 4};
  EXPECT_TRUE(backend_->matmul(**weight, none, none, true).is_ok());
  EXPECT_TRUE(backend_->rope_q(**rope, nullptr, 8, none).is_ok());
  EXPECT_TRUE(backend_->write_kv(**cache, 0, **rope, none16, nullptr).is_ok());
  EXPECT_TRUE(backend_->place(**cache, 0, **rope, {}, nullptr, nullptr).is_ok());
  EXPECT_TRUE(backend_->attention(**cache, 0, {}, none, nullptr, none).is_ok());
  EXPECT_TRUE(backend_->swiglu(none16, none).is_ok());
  EXPECT_TRUE(backend_->gather(none, nullptr, none).is_ok());
  EXPECT_TRUE(backend_->download(none, nullptr).is_ok());
}

TEST_P(BackendOps, ConcurrentCallers) {
  // Two fuses on one backend: each must get its own results.
  const size_t m = 33, k = 96, n = 130;
  const auto w = make_stored("w", normal(n * k), {static_cast<int64_t>(n), static_cast<int64_t>(k)},
                             DType::f32);
  const TensorView* part = &w->view;
  auto weight = backend_->load_matrix({&part, 1});
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
