// The operations of a Backend on RoPE, the KV cache and attention.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// ---- RoPE, the cache and attention, together: a model of the cache in double precision.

struct Attention {
  ModelConfig config;
  AttentionRule rule;
  uint32_t capacity = 0;
  std::vector<double> k, v;  // [capacity, kv_dim]; k rotated
  std::vector<float> sinks;  // of rule.sinks; empty: none

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
  double sink(size_t head) const { return sinks.empty() ? -INFINITY : double{sinks[head]}; }
  std::vector<double> attend(const std::vector<double>& q, const std::vector<uint32_t>& pos) const {
    const size_t d = config.head_dim;
    std::vector<double> out(q.size()), w;
    for (size_t i = 0; i < pos.size(); ++i) {
      for (size_t h = 0; h < config.n_heads; ++h) {
        const size_t at = i * config.q_dim() + h * d, kv = h / config.group() * d;
        w.assign(pos[i] + 1, 0.0);
        double largest = std::max(-1e300, sink(h));
        for (size_t j = first_key(pos[i]); j <= pos[i]; ++j) {
          for (size_t e = 0; e < d; ++e) w[j] += q[at + e] * k[j * kv_dim() + kv + e];
          w[j] = scored(w[j]);
          largest = std::max(largest, w[j]);
        }
        double sum = std::exp(sink(h) - largest);
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
        double tempered = 0, others = std::exp(sink(h));
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
        double total = std::exp(sink(h));
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
    std::unique_ptr<Weight> sinks;
    if (round % 4 > 1) {
      for (uint32_t h = 0; h < c.n_heads; ++h) {
        ref.sinks.push_back(0.75f * static_cast<float>(h % 7) - 1.5f);
      }
      const auto stored = make_stored("sinks", ref.sinks, {c.n_heads}, DType::f32);
      const TensorView* const parts[] = {&stored->view};
      auto loaded = backend_->load_vector(parts, 0);
      ASSERT_TRUE(loaded.is_ok());
      sinks = std::move(*loaded);
      ref.rule.sinks = sinks.get();
    }
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
      return backend_->fusion().scatter(**cache, layer, **rope, runs, skip.data(),
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
    // Rows may see slots after their own, several up to the same one (Forward::attend_both_ways).
    std::vector<uint32_t> ahead = pos;
    for (uint32_t& p : ahead) p = std::min(p + 37, pos.back());
    ASSERT_TRUE(
        backend_->attention(**cache, layer, ref.rule, tq.tensor, ahead.data(), out.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_near(host(out.tensor), ref.attend(rotated, ahead)));
    std::vector<float> mass(pos.back() + 1, 0.5f);  // it is added to
    ASSERT_TRUE(backend_->fusion()
                    .attention_mass(**cache, layer, ref.rule, tq.tensor, pos.data(), mass.data())
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
      ASSERT_TRUE(backend_->fusion()
                      .attention_tempered(**cache, layer, ref.rule, tq.tensor, pos.data(), how,
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
  // Row i of a full prefill must be the same, bit for bit, whatever later slots hold.
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
              3e4f);  // which f16 holds, turned too
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

}  // namespace
}  // namespace blend::test
