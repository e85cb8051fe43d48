// Gated DeltaNets and Mamba-2s: rows in caches of every type against plain loops, and the states
// that a cache keeps of them.
#include <cmath>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// A model of one attending layer between two with states, and a layer's vectors.
struct Deltas {
  ModelConfig config;
  std::vector<float> taps, decay, bias, norm;
  std::vector<float> taps_bias, skip;  // of a Mamba-2
  bool ssm() const { return config.mixer.kind == RowMixer::Kind::ssm; }
};

// Results before the norm of the rows up to the last one, of `kept` rows: [row][value_dim].
std::vector<std::vector<double>> scanned(const Deltas& d, const std::vector<float>& kept,
                                         size_t n_rows) {
  const RowMixer& m = d.config.mixer;
  const bool ssm = d.ssm();
  const size_t width = d.config.mixer_row_dim(), keys = size_t{m.k_heads} * m.k_dim;
  const size_t q_at = ssm ? m.value_dim() + keys : 0, k_at = ssm ? m.value_dim() : keys,
               v_at = ssm ? 0 : 2 * keys;
  const auto mixed = [&](size_t row, size_t column, size_t n, bool unit) {
    std::vector<double> out(n);
    double squares = 1e-6;
    for (size_t e = 0; e < n; ++e) {
      double sum = d.taps_bias.empty() ? 0 : static_cast<double>(d.taps_bias[column + e]);
      for (size_t j = 0; j < m.taps && j <= row; ++j) {
        sum += static_cast<double>(d.taps[(column + e) * m.taps + m.taps - 1 - j]) *
               static_cast<double>(kept[(row - j) * width + column + e]);
      }
      out[e] = sum / (1 + std::exp(-sum));
      squares += out[e] * out[e];
    }
    for (double& e : out) e /= unit ? std::sqrt(squares) : 1;
    return out;
  };
  std::vector<std::vector<double>> out(n_rows, std::vector<double>(m.value_dim()));
  for (size_t h = 0; h < m.v_heads; ++h) {
    const size_t key = m.tiled ? h % m.k_heads : h * m.k_heads / m.v_heads;
    std::vector<double> state(size_t{m.k_dim} * m.v_dim);
    for (size_t row = 0; row < n_rows; ++row) {
      const std::vector<double> q = mixed(row, q_at + key * m.k_dim, m.k_dim, !ssm);
      const std::vector<double> k = mixed(row, k_at + key * m.k_dim, m.k_dim, !ssm);
      const std::vector<double> v = mixed(row, v_at + h * m.v_dim, m.v_dim, false);
      const float* const gates = &kept[row * width + m.qkv_dim()];
      const auto w = static_cast<double>(d.decay[h]);
      const double decay =
          std::exp(ssm ? (m.decay_is_log ? -std::exp(w) : w) * static_cast<double>(gates[h])
                       : static_cast<double>(gates[m.v_heads + h]));
      for (size_t c = 0; c < m.v_dim; ++c) {
        double read = 0, y = 0;
        for (size_t i = 0; i < m.k_dim; ++i) read += k[i] * (state[i * m.v_dim + c] *= decay);
        const double delta = static_cast<double>(gates[h]) * (ssm ? v[c] : v[c] - read);
        for (size_t i = 0; i < m.k_dim; ++i) {
          y += q[i] * (state[i * m.v_dim + c] += k[i] * delta);
        }
        out[row][h * m.v_dim + c] = ssm ? y + static_cast<double>(d.skip[h]) * v[c]
                                        : y / std::sqrt(static_cast<double>(m.k_dim));
      }
    }
  }
  return out;
}

std::vector<double> finished(const Deltas& d, std::vector<double> y, const float* z) {
  const RowMixer& m = d.config.mixer;
  const auto gate = [&](size_t i) {
    const auto x = static_cast<double>(z[i]);
    y[i] *= x / (1 + std::exp(-x));
  };
  const size_t dim = d.ssm() ? m.value_dim() / m.k_heads : m.v_dim;
  const bool gates_first = d.ssm() && m.norm != RowMixer::Norm::before_gate;
  for (size_t i = 0; i < y.size() && gates_first; ++i) gate(i);
  for (size_t at = 0; at < y.size() && !d.norm.empty(); at += dim) {
    double squares = 0;
    for (size_t c = 0; c < dim; ++c) squares += y[at + c] * y[at + c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
    for (size_t c = 0; c < dim; ++c) {
      y[at + c] *= scale * static_cast<double>(d.norm[d.ssm() ? at + c : c]);
    }
  }
  for (size_t i = 0; i < y.size() && !gates_first; ++i) gate(i);
  return y;
}

}  // namespace

TEST_P(BackendOps, LayersWithStatesOverACache) {
  Backend& b = *backend_;
  if (b.scan() == nullptr) GTEST_SKIP() << "the backend runs no layers with states";
  for (int round = 0; round < rounds(40); ++round) {
    const bool ssm = round % 5 < 2;
    Deltas d;
    ModelConfig& c = d.config;
    RowMixer& m = c.mixer;
    c.n_layers = 3;
    c.d_model = c.head_dim = c.rope.rotary_dim = 8;
    c.n_heads = c.n_kv_heads = 1;
    m.kind = ssm ? RowMixer::Kind::ssm : RowMixer::Kind::delta;
    m.taps = static_cast<uint32_t>(number(1, 5));
    m.k_heads = static_cast<uint32_t>(number(1, 3));
    m.v_heads = m.k_heads * static_cast<uint32_t>(number(1, 3));
    m.k_dim = static_cast<uint32_t>(number(1, 37));
    m.v_dim = static_cast<uint32_t>(2 * number(1, 20));
    if (ssm) m.v_dim -= m.v_heads % 2;  // a row is of halves
    if (round == 1) {                   // a key head that is cut within a value head
      m.k_heads = 1;
      m.v_heads = 17;
      m.v_dim = 57;
    }
    m.tiled = !ssm && round % 2 == 0;
    m.taps_bias = ssm && round % 10 < 5;
    m.decay_is_log = round % 4 < 2;
    // A DeltaNet is always normalised before the gate.
    m.norm = static_cast<RowMixer::Norm>(round / 5 % 3);
    m.layers = {true, false, true};
    const uint32_t capacity = static_cast<uint32_t>(number(8, round == 3 ? 200 : 60));
    const size_t width = c.mixer_row_dim(), dim = m.value_dim(), heads = m.v_heads;
    const uint32_t layer = round % 3 == 0 ? 2 : 0;
    d.taps = normal(size_t{m.qkv_dim()} * m.taps, 0.6f);
    d.bias = normal(heads);
    const bool normed = !ssm || m.norm != RowMixer::Norm::none;
    if (normed) d.norm = normal(ssm ? dim : m.v_dim);
    if (m.taps_bias) d.taps_bias = normal(m.qkv_dim(), 0.3f);
    d.skip = normal(heads);
    for (size_t h = 0; h < heads; ++h) {
      d.decay.push_back(m.decay_is_log ? -2.0f - 0.1f * static_cast<float>(h) : -0.2f);
    }
    std::vector<std::unique_ptr<StoredTensor>> stored;
    std::vector<std::unique_ptr<Weight>> weights;
    for (const std::vector<float>* values :
         {&d.taps, &d.decay, &d.bias, &d.norm, &d.skip, &d.taps_bias}) {
      if (values->empty()) {
        weights.push_back(nullptr);
        continue;
      }
      stored.push_back(
          make_stored("w", *values, {static_cast<int64_t>(values->size())}, DType::f32));
      const TensorView* const part = &stored.back()->view;
      auto loaded = b.load_vector({&part, 1}, 0);
      ASSERT_TRUE(loaded.is_ok());
      weights.push_back(std::move(*loaded));
    }
    const ScanLayer vectors{weights[0].get(),
                            weights[1].get(),
                            weights[2].get(),
                            weights[3].get(),
                            1e-6f,
                            weights[5].get(),
                            ssm ? weights[4].get() : nullptr};

    // Projections become rows.
    const std::vector<float> projected = normal(capacity * width);
    Owned rows = make_tensor(projected, capacity, static_cast<int64_t>(width));
    ASSERT_TRUE(b.scan()->prepare(m, vectors, rows.tensor).is_ok());
    std::vector<float> kept = host(rows.tensor);
    std::vector<double> want(projected.begin(), projected.end());
    for (size_t row = 0; row < capacity; ++row) {
      for (size_t h = 0; h < heads; ++h) {
        double& beta = want[row * width + m.qkv_dim() + h];
        if (ssm) {
          beta = std::log(1 + std::exp(beta + static_cast<double>(d.bias[h])));
          continue;
        }
        double& a = want[row * width + m.qkv_dim() + heads + h];
        beta = 1 / (1 + std::exp(-beta));
        const auto w = static_cast<double>(d.decay[h]);
        a = -(m.decay_is_log ? std::exp(w) : -w) *
            std::log(1 + std::exp(a + static_cast<double>(d.bias[h])));
      }
    }
    expect_near(kept, want);

    auto cache = b.make_kv_cache(c, capacity);
    auto rope = b.make_rope(c.rope, capacity);
    ASSERT_TRUE(cache.is_ok() && rope.is_ok());
    std::vector<uint32_t> all(capacity);
    for (uint32_t i = 0; i < capacity; ++i) all[i] = i;
    ASSERT_TRUE(b.write_kv(**cache, layer, **rope, rows.tensor, all.data()).is_ok());

    const auto mix = [&](KvCache& at, const std::vector<uint32_t>& pos,
                         const std::vector<float>& z) {
      Owned out = make_tensor(z, static_cast<int64_t>(pos.size()), static_cast<int64_t>(dim));
      EXPECT_TRUE(b.scan()->mix(m, vectors, at, layer, out.tensor, pos.data(), Watch{}).is_ok());
      return host(out.tensor);
    };
    // Of some rows, of a cache that knows nothing yet and of one that does.
    const std::vector<uint32_t> some = positions(number(1, capacity), capacity);
    const std::vector<float> z = normal(some.size() * dim);
    const auto expect_right = [&](const std::vector<float>& got, const std::vector<uint32_t>& pos,
                                  const std::vector<float>& gates) {
      const auto y = scanned(d, kept, pos.back() + 1);
      std::vector<double> right;
      for (size_t i = 0; i < pos.size(); ++i) {
        const std::vector<double> row = finished(d, y[pos[i]], &gates[i * dim]);
        right.insert(right.end(), row.begin(), row.end());
      }
      // The norm makes small results large, and their errors with them.
      expect_within(got, right, 10 * GetParam().tolerance_16);
    };
    const std::vector<float> first = mix(**cache, some, z);
    expect_right(first, some, z);
    EXPECT_EQ(mix(**cache, some, z), first);
    // One by one, bit for bit, from a state that goes on.
    for (size_t i = 0; i < some.size(); ++i) {
      const std::vector<float> one(z.begin() + static_cast<int64_t>(i * dim),
                                   z.begin() + static_cast<int64_t>((i + 1) * dim));
      const std::vector<float> got = mix(**cache, {some[i]}, one);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), first.begin() + static_cast<int64_t>(i * dim)))
          << i;
    }
    // As a step of several rows in one cache.
    Owned each = make_tensor(z, static_cast<int64_t>(some.size()), static_cast<int64_t>(dim));
    std::vector<RowOver> over;
    for (uint32_t i = 0; i < some.size(); ++i) over.push_back({cache->get(), i, some[i]});
    ASSERT_TRUE(b.scan()->mix_each(m, vectors, layer, each.tensor, over).is_ok());
    EXPECT_EQ(host(each.tensor), first);

    // A fork goes on from the same state, and neither sees what the other writes.
    auto forked = (*cache)->fork(capacity);
    ASSERT_TRUE(forked.is_ok());
    const std::vector<uint32_t> last = {capacity - 1};
    const std::vector<float> last_z = normal(dim);
    const std::vector<float> before = mix(**cache, last, last_z);
    const uint32_t changed = static_cast<uint32_t>(number(0, capacity - 1));
    const std::vector<float> fresh = normal(width, 0.5f);
    std::vector<float> other = fresh;
    for (size_t h = 0; h < heads; ++h) {
      other[m.qkv_dim() + h] = 0.5f;
      if (!ssm) other[m.qkv_dim() + heads + h] = -0.1f;
    }
    const Owned row = make_tensor(other, 1, static_cast<int64_t>(width));
    ASSERT_TRUE(b.write_kv(**cache, layer, **rope, row.tensor, &changed).is_ok());
    if (*forked != nullptr) {
      EXPECT_EQ(mix(**forked, last, last_z), before);
    }
    std::copy(other.begin(), other.end(), kept.begin() + static_cast<int64_t>(changed * width));
    expect_right(mix(**cache, last, last_z), last, last_z);
    // Stored rows, over a state in their midst.
    const std::vector<uint32_t> middle = {capacity / 2};
    (void)mix(**cache, middle, last_z);
    std::vector<float> planes(kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      const size_t slot = i / width, e = i % width, half = width / 2;
      const float value = e < m.qkv_dim() ? 0.5f * kept[i] : kept[i];
      planes[(e < half ? 0 : capacity * half) + slot * half + e % half] = value;
      kept[i] = value;
    }
    const auto* const plane = reinterpret_cast<const std::byte*>(planes.data());
    const StoredRun run{plane, plane + capacity * (width / 2) * sizeof(float), DType::f32, capacity,
                        0};
    ASSERT_TRUE(b.fusion().scatter(**cache, layer, **rope, {&run, 1}, nullptr, nullptr).is_ok());
    expect_right(mix(**cache, last, last_z), last, last_z);
    // Rows that are moved away.
    (void)mix(**cache, middle, last_z);
    const auto gap = static_cast<uint32_t>(number(0, capacity - 1));
    const RowMove move{layer, gap, layer, 0, capacity - gap, -static_cast<int32_t>(gap)};
    ASSERT_TRUE(b.move_rows(**cache, **cache, **rope, move).is_ok());
    std::copy(kept.begin() + static_cast<int64_t>(gap * width), kept.end(), kept.begin());
    expect_right(mix(**cache, last, last_z), last, last_z);
    // Another cache that gets the first rows gets their state too, and is right with other rows.
    auto copy = b.make_kv_cache(c, capacity);
    ASSERT_TRUE(copy.is_ok());
    const uint32_t shared = static_cast<uint32_t>(number(0, capacity));
    ASSERT_TRUE(b.move_rows(**cache, **copy, **rope, {layer, 0, layer, 0, shared, 0}).is_ok());
    const Owned rest = make_tensor(projected, capacity, static_cast<int64_t>(width));
    ASSERT_TRUE(b.scan()->prepare(m, vectors, rest.tensor).is_ok());
    if (shared < capacity) {
      const auto n = static_cast<int64_t>(capacity - shared);
      ASSERT_TRUE(
          b.write_kv(**copy, layer, **rope, rest.tensor.slice(shared, n), all.data() + shared)
              .is_ok());
      const std::vector<float> again = host(rest.tensor);
      std::copy(again.begin() + static_cast<int64_t>(shared * width), again.end(),
                kept.begin() + static_cast<int64_t>(shared * width));
    }
    expect_right(mix(**copy, last, last_z), last, last_z);

    Owned beyond = make_tensor(last_z, 1, static_cast<int64_t>(dim));
    EXPECT_EQ(b.scan()->mix(m, vectors, **cache, layer, beyond.tensor, &capacity, Watch{}).code(),
              BLEND_E_INTERNAL);
    CancelToken cancel;
    cancel.request();
    ASSERT_TRUE(b.write_kv(**cache, layer, **rope, row.tensor, &changed).is_ok());
    EXPECT_EQ(b.scan()
                  ->mix(m, vectors, **cache, layer, beyond.tensor, last.data(), Watch{&cancel, {}})
                  .code(),
              BLEND_E_CANCELLED);
  }
}

TEST_P(BackendOps, AGateMultipliesByItsSigmoid) {
  Backend& b = *backend_;
  if (b.scan() == nullptr) GTEST_SKIP() << "the backend runs no Gated DeltaNets";
  const int64_t n = 5, dim = 33;
  const std::vector<float> x = normal(n * dim), gate = normal(n * dim, 3);
  const Owned to = make_tensor(x, n, dim), by = make_tensor(gate, n, dim);
  ASSERT_TRUE(b.scan()->gate(by.tensor, to.tensor).is_ok());
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) {
    want.push_back(static_cast<double>(x[i]) / (1 + std::exp(-static_cast<double>(gate[i]))));
  }
  expect_near(host(to.tensor), want);
}

}  // namespace blend::test
