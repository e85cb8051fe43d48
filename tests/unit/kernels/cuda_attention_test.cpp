// The attention kernels on the emulated device against loops in double precision: results, the
// probabilities summed up by keys, and two kinds of keys. Q, K and V are exact in bf16, so that
// only the probabilities are rounded, to bf16; where they are summed up they are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/attention.h"
#include "cuda/attention_mass.h"
#include "cuda/attention_tempered.h"

namespace blend::kernels::cuda {
namespace {

constexpr float kTolerance = 6e-3f;  // P has 8 bits; of values around 1

struct Shape {
  uint32_t head_dim, group, n_kv_heads, n_rows, n_slots;
  bool bf16;
  uint32_t n_sms;  // many: the keys are split
  uint32_t window = 0;
  float softcap = 0.0f;
  bool sinks = false;
};

class Memory {
 public:
  explicit Memory(size_t bytes) {
    static cudaMemPool_t pool = [] {
      cudaMemPool_t p = nullptr;
      const cudaMemPoolProps props{};
      (void)cudaMemPoolCreate(&p, &props);
      return p;
    }();
    EXPECT_EQ(cudaMallocFromPoolAsync(&data_, bytes, pool, nullptr), cudaSuccess);
  }
  template <typename T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;  // small; the process frees it
};

class CudaAttention : public testing::TestWithParam<simt::Order> {
 protected:
  void SetUp() override {
    simt::set_machine({});
    simt::set_order(GetParam());
    ASSERT_EQ(prepare_attention(), cudaSuccess);
    ASSERT_EQ(prepare_attention_mass(), cudaSuccess);
    ASSERT_EQ(prepare_attention_tempered(), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    simt::set_order(simt::Order::ascending);
    (void)cudaStreamDestroy(stream_);
  }

  float exact() {  // a value that bf16 holds
    return bf16_to_f32(f32_to_bf16(std::normal_distribution<float>()(rng_)));
  }
  void check(const Shape& s);

  std::mt19937 rng_{3};
  cudaStream_t stream_ = nullptr;
};

void CudaAttention::check(const Shape& s) {
  SCOPED_TRACE(testing::Message() << "head_dim " << s.head_dim << " group " << s.group << " heads "
                                  << s.n_kv_heads << " rows " << s.n_rows << " slots " << s.n_slots
                                  << (s.bf16 ? " bf16" : " f32") << " sms " << s.n_sms << " window "
                                  << s.window << " softcap " << s.softcap
                                  << (s.sinks ? " with sinks" : ""));
  // Scattered rows; slots after the last of them are never written.
  std::vector<uint32_t> pos(s.n_slots);
  std::iota(pos.begin(), pos.end(), 0u);
  std::shuffle(pos.begin(), pos.end(), rng_);
  pos.resize(s.n_rows);
  std::sort(pos.begin(), pos.end());
  const size_t n_filled = pos.back() + 1, stride = (s.head_dim + 7) / 8 * 8;
  const size_t n_heads = s.group * s.n_kv_heads, q_dim = n_heads * s.head_dim;

  std::vector<uint16_t> k(s.n_kv_heads * s.n_slots * stride, 0x7fff), v = k;  // NaN
  for (size_t h = 0; h < s.n_kv_heads; ++h) {
    for (size_t j = 0; j < n_filled; ++j) {
      for (size_t d = 0; d < stride; ++d) {
        const size_t at = (h * s.n_slots + j) * stride + d;
        k[at] = d < s.head_dim ? f32_to_bf16(exact()) : 0;
        v[at] = d < s.head_dim ? f32_to_bf16(exact()) : 0;
      }
    }
  }
  std::vector<float> q(s.n_rows * q_dim);
  for (float& x : q) x = exact();
  std::vector<uint16_t> q16;
  for (const float x : q) q16.push_back(f32_to_bf16(x));

  std::vector<float> sinks(n_heads);
  for (float& x : sinks) x = 2 * exact();
  const Memory dsinks(sinks), dk(k), dv(v), dpos(pos), dq = s.bf16 ? Memory(q16) : Memory(q);
  AttentionRows rows;
  rows.q = {dq.as<>(), s.bf16 ? DType::bf16 : DType::f32, s.n_rows, q_dim};
  rows.out = rows.q;  // in place
  rows.pos = dpos.as<uint32_t>();
  rows.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  rows.window = s.window;
  rows.softcap = s.softcap;
  if (s.sinks) rows.sinks = dsinks.as<float>();
  KvView cache;
  cache.k = dk.as<uint16_t>();
  cache.v = dv.as<uint16_t>();
  cache.n_kv_heads = s.n_kv_heads;
  cache.head_dim = s.head_dim;
  cache.stride = static_cast<uint32_t>(stride);
  cache.slots = s.n_slots;
  const AttentionPlan plan =
      plan_attention(s.n_rows, s.group, s.n_kv_heads, s.head_dim, pos.back(), s.n_sms);
  // Before the results take the place of Q.
  std::vector<uint8_t> warm(n_filled);
  for (uint8_t& slot : warm) slot = rng_() % 3 == 0;
  const double temperature = 0.6, sum_scale = 0.8;
  const Memory dwarm(warm), dmass(std::vector<float>(n_filled, 0.5f));
  const Memory dshare(s.n_rows * n_heads * sizeof(float)), dmixed(q.size() * sizeof(float));
  const Memory mass_scratch(mass_scratch_floats(plan, pos.back(), s.n_sms) * sizeof(float));
  attention_mass(rows, cache, plan, pos.back(), s.n_sms, mass_scratch.as<float>(),
                 dmass.as<float>(), stream_);
  AttentionRows mixed_rows = rows;
  mixed_rows.out = {dmixed.as<>(), DType::f32, s.n_rows, q_dim};
  const Tempered tempered{dwarm.as<uint8_t>(), static_cast<float>(temperature),
                          static_cast<float>(sum_scale), dshare.as<float>()};
  const Memory tempered_scratch(tempered_scratch_floats(plan) * sizeof(float));
  attention_tempered(mixed_rows, tempered, cache, plan, tempered_scratch.as<float>(), stream_);
  const Memory scratch(plan.scratch_floats() * sizeof(float));
  attention(rows, cache, plan, scratch.as<float>(), stream_);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);

  std::vector<double> mass(n_filled, 0.5);
  std::vector<double> w, want(s.head_dim);
  for (size_t i = 0; i < s.n_rows; ++i) {
    for (size_t h = 0; h < n_heads; ++h) {
      const size_t head = h / s.group * s.n_slots * stride;
      w.assign(pos[i] + 1, 0.0);
      const double sink = s.sinks ? double{sinks[h]} : -INFINITY;
      double largest = sink, sum = 0;
      const size_t begin = s.window == 0 || pos[i] < s.window ? 0 : pos[i] + 1 - s.window;
      for (size_t j = begin; j <= pos[i]; ++j) {
        for (size_t d = 0; d < s.head_dim; ++d) {
          w[j] += static_cast<double>(q[i * q_dim + h * s.head_dim + d]) *
                  static_cast<double>(bf16_to_f32(k[head + j * stride + d]));
        }
        w[j] *= static_cast<double>(rows.scale);
        const auto cap = static_cast<double>(s.softcap);
        if (cap != 0) w[j] = cap * std::tanh(w[j] / cap);
        largest = std::max(largest, w[j]);
      }
      // exp(s / T) of the tempered keys and exp(s) of the others, in one unit each.
      double z[2] = {std::exp(sink), 0};
      std::vector<double> parts[2] = {std::vector<double>(s.head_dim),
                                      std::vector<double>(s.head_dim)};
      for (size_t j = begin; j <= pos[i]; ++j) {
        const bool kind = warm[j] != 0;
        const double e = std::exp(kind ? w[j] / temperature : w[j]);
        z[kind ? 1 : 0] += e;
        for (size_t d = 0; d < s.head_dim; ++d) {
          parts[kind ? 1 : 0][d] += e * static_cast<double>(bf16_to_f32(v[head + j * stride + d]));
        }
      }
      const double zt = z[1] == 0 ? 0 : std::pow(z[1], sum_scale), share = zt / (zt + z[0]);
      ASSERT_NEAR(dshare.as<float>()[i * n_heads + h], share, 1e-4) << "row " << i << " head " << h;
      for (size_t d = 0; d < s.head_dim; ++d) {
        const double mixed = (z[1] == 0 ? 0 : share * parts[1][d] / z[1]) +
                             (z[0] == 0 ? 0 : (1 - share) * parts[0][d] / z[0]);
        ASSERT_NEAR(dmixed.as<float>()[i * q_dim + h * s.head_dim + d], mixed,
                    static_cast<double>(kTolerance))
            << "two kinds: row " << i << " head " << h << " element " << d;
      }
      sum = std::exp(sink - largest);
      for (size_t j = begin; j <= pos[i]; ++j) sum += w[j] = std::exp(w[j] - largest);
      for (size_t j = begin; j <= pos[i]; ++j) mass[j] += w[j] / sum;
      std::fill(want.begin(), want.end(), 0.0);
      for (size_t j = 0; j <= pos[i]; ++j) {
        for (size_t d = 0; d < s.head_dim; ++d) {
          want[d] += w[j] / sum * static_cast<double>(bf16_to_f32(v[head + j * stride + d]));
        }
      }
      for (size_t d = 0; d < s.head_dim; ++d) {
        const size_t at = i * q_dim + h * s.head_dim + d;
        const float got = s.bf16 ? bf16_to_f32(dq.as<uint16_t>()[at]) : dq.as<float>()[at];
        const double tolerance =
            static_cast<double>(kTolerance) + (s.bf16 ? 4e-3 * std::abs(want[d]) : 0.0);
        ASSERT_NEAR(got, want[d], tolerance) << "row " << i << " head " << h << " element " << d;
      }
    }
  }
  for (size_t j = 0; j < n_filled; ++j) {
    ASSERT_NEAR(dmass.as<float>()[j], mass[j], 1e-5 * (1 + mass[j])) << "mass of key " << j;
  }
}

TEST_P(CudaAttention, EverySizeOfHead) {
  for (const uint32_t head_dim : {8u, 10u, 31u, 32u, 34u, 64u, 80u, 96u, 112u, 128u, 160u, 256u}) {
    const bool bf16 = head_dim % 3 != 0;
    ASSERT_NO_FATAL_FAILURE(check({head_dim, 2, 2, 33, 75, bf16, 1}));
  }
}

TEST_P(CudaAttention, TheTunedSizesOverManyTiles) {
  ASSERT_NO_FATAL_FAILURE(check({64, 4, 1, 37, 300, true, 1}));
  ASSERT_NO_FATAL_FAILURE(check({128, 4, 1, 35, 260, true, 1}));
  ASSERT_NO_FATAL_FAILURE(check({128, 1, 2, 130, 140, false, 1}));
}

TEST_P(CudaAttention, Decode) {
  for (const uint32_t group : {1u, 4u, 7u, 8u}) {
    ASSERT_NO_FATAL_FAILURE(check({128, group, 2, 1, 130, true, 1}));
    ASSERT_NO_FATAL_FAILURE(check({64, group, 1, 1, 700, true, 16}));  // split
    ASSERT_NO_FATAL_FAILURE(check({128, group, 1, 2, 600, false, 16}));
  }
}

TEST_P(CudaAttention, FewRowsBehindALongPromptAreSplit) {
  ASSERT_NO_FATAL_FAILURE(check({64, 4, 1, 21, 900, true, 12}));
  ASSERT_NO_FATAL_FAILURE(check({80, 3, 2, 9, 520, true, 16}));
}

TEST_P(CudaAttention, Windows) {
  for (const uint32_t window : {1u, 7u, 64u, 65u, 130u}) {
    ASSERT_NO_FATAL_FAILURE(check({64, 2, 1, 70, 300, true, 1, window}));
    ASSERT_NO_FATAL_FAILURE(check({128, 4, 1, 1, 600, true, 16, window}));  // decode
    ASSERT_NO_FATAL_FAILURE(check({64, 4, 2, 9, 700, false, 16, window}));  // split
  }
  ASSERT_NO_FATAL_FAILURE(check({256, 2, 1, 40, 120, true, 1, 33}));
}

TEST_P(CudaAttention, SoftCaps) {
  ASSERT_NO_FATAL_FAILURE(check({64, 2, 2, 40, 130, true, 1, 0, 2.0f}));
  ASSERT_NO_FATAL_FAILURE(check({256, 2, 1, 20, 200, false, 1, 50, 5.0f}));
  ASSERT_NO_FATAL_FAILURE(check({64, 4, 1, 2, 600, true, 16, 300, 1.5f}));
}

TEST_P(CudaAttention, Sinks) {
  ASSERT_NO_FATAL_FAILURE(check({64, 2, 2, 40, 130, true, 1, 0, 0.0f, true}));
  ASSERT_NO_FATAL_FAILURE(check({64, 8, 2, 1, 700, true, 16, 128, 0.0f, true}));  // decode
  ASSERT_NO_FATAL_FAILURE(check({64, 4, 1, 9, 900, false, 12, 0, 0.0f, true}));   // split
  ASSERT_NO_FATAL_FAILURE(check({256, 3, 1, 20, 120, false, 1, 33, 5.0f, true}));
}

TEST_P(CudaAttention, FewKeys) {
  ASSERT_NO_FATAL_FAILURE(check({64, 1, 1, 1, 1, true, 1}));
  ASSERT_NO_FATAL_FAILURE(check({128, 8, 1, 2, 2, true, 64}));
  ASSERT_NO_FATAL_FAILURE(check({64, 2, 1, 64, 64, true, 1}));
  ASSERT_NO_FATAL_FAILURE(check({64, 2, 1, 65, 65, true, 1}));
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaAttention,
                         testing::Values(simt::Order::ascending, simt::Order::descending),
                         [](const auto& tested) {
                           return tested.param == simt::Order::ascending ? "Ascending"
                                                                         : "Descending";
                         });

TEST(AttentionPlan, CoversAllRowsAndKeysOnceAndFitsTheSmallestDevice) {
  std::mt19937 rng(5);
  const auto number = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(rng);
  };
  for (int round = 0; round < 3000; ++round) {
    const uint32_t rows = number(1, 5000), group = number(1, 12), heads = number(1, 16);
    const uint32_t head_dim = number(1, kMostHeadDim), last = number(rows - 1, 40000);
    const uint32_t n_sms = number(1, 160);
    const AttentionPlan p = plan_attention(rows, group, heads, head_dim, last, n_sms);
    const uint32_t blocks = p.m_tiles * heads * p.splits;
    ASSERT_TRUE(p.splits == 1 || blocks <= 2 * n_sms) << blocks << " blocks: a few run alone";
    ASSERT_GE(p.padded, head_dim);
    ASSERT_EQ(p.m_rows, rows * group);
    ASSERT_GE(p.m_tiles * p.tile_rows(), p.m_rows);
    ASSERT_LT((p.m_tiles - 1) * p.tile_rows(), p.m_rows);
    ASSERT_LE(p.shared_bytes(), 99u << 10) << "sm_86 and sm_89 have no more";
    ASSERT_GE(p.splits, 1u);
    ASSERT_EQ(p.scratch_floats() == 0, p.splits == 1);
    for (const uint32_t n_keys : {last + 1, number(1, last + 1), 1u}) {
      const uint32_t first = number(0, 1) * number(0, n_keys - 1);
      uint32_t next = first / p.keys;
      for (uint32_t split = 0; split < p.splits; ++split) {
        const KeyTiles t = key_tiles(first, n_keys, p.keys, split, p.splits);
        ASSERT_LE(t.begin, t.end);
        if (t.begin == t.end) continue;
        ASSERT_EQ(t.begin, next);
        next = t.end;
      }
      ASSERT_EQ(next, (n_keys + p.keys - 1) / p.keys);
    }
  }
  EXPECT_EQ(padded_head_dim(kMostHeadDim + 1), 0u);
}

}  // namespace
}  // namespace blend::kernels::cuda
