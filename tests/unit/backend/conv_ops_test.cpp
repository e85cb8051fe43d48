// Layers that convolve: u in caches of every type, and the convolution against plain loops.
#include <numeric>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

// A model of one attending layer between two that convolve, and what its caches should hold.
struct Rows {
  ModelConfig config;
  uint32_t capacity = 0;
  std::vector<std::vector<float>> u;  // [layer][capacity * d_model]
};

Rows rows_of(uint32_t d_model, uint32_t taps, uint32_t capacity) {
  Rows r;
  r.config.n_layers = 3;
  r.config.d_model = d_model;
  r.config.n_heads = r.config.n_kv_heads = 1;
  r.config.head_dim = 8;
  r.config.rope.rotary_dim = 8;
  r.config.mixer.kind = RowMixer::Kind::conv;
  r.config.mixer.taps = taps;
  r.config.mixer.layers = {true, false, true};
  r.capacity = capacity;
  r.u.assign(3, std::vector<float>(size_t{capacity} * d_model, 0.0f));
  return r;
}

std::vector<double> convolved(const Rows& r, uint32_t layer, const std::vector<float>& taps,
                              const std::vector<float>& c, const std::vector<uint32_t>& pos) {
  const size_t d = r.config.d_model, n = r.config.mixer.taps;
  std::vector<double> out(c.size());
  for (size_t i = 0; i < pos.size(); ++i) {
    for (size_t e = 0; e < d; ++e) {
      double sum = 0;
      for (size_t j = 0; j < n && j <= pos[i]; ++j) {
        sum += static_cast<double>(taps[e * n + (n - 1 - j)]) *
               static_cast<double>(r.u[layer][(pos[i] - j) * d + e]);
      }
      out[i * d + e] = sum * static_cast<double>(c[i * d + e]);
    }
  }
  return out;
}

}  // namespace

TEST_P(BackendOps, RowsOfAConvolutionInACache) {
  Backend& b = *backend_;
  if (b.conv() == nullptr) GTEST_SKIP() << "the backend runs no layers that convolve";
  for (int round = 0; round < rounds(40); ++round) {
    const auto d = static_cast<uint32_t>(2 * number(1, 300));
    const auto taps = static_cast<uint32_t>(number(1, 5));
    Rows r = rows_of(d, taps, static_cast<uint32_t>(number(8, 60)));
    auto cache = b.make_kv_cache(r.config, r.capacity);
    auto rope = b.make_rope(r.config.rope, r.capacity);
    ASSERT_TRUE(cache.is_ok() && rope.is_ok());
    const uint32_t layer = round % 2 == 0 ? 0 : 2;
    std::vector<float>& u = r.u[layer];
    // Fresh rows: B times X, anywhere.
    const std::vector<uint32_t> fresh = positions(number(1, r.capacity), r.capacity);
    const std::vector<float> bx = normal(fresh.size() * 2 * d);
    const Owned products = make_tensor(bx, static_cast<int64_t>(fresh.size()), 2 * d);
    const Owned gated = make_empty(static_cast<int64_t>(fresh.size()), d);
    ASSERT_TRUE(b.conv()->gate(products.tensor, gated.tensor).is_ok());
    for (size_t i = 0; i < fresh.size(); ++i) {
      for (size_t e = 0; e < d; ++e) {
        u[fresh[i] * d + e] = bx[i * 2 * d + e] * bx[i * 2 * d + d + e];
      }
    }
    // Stored rows, in two planes, at all other slots; those of `fresh` are skipped.
    const std::vector<float> stored = normal(size_t{r.capacity} * d);
    std::vector<uint8_t> skip(r.capacity, 0);
    for (const uint32_t slot : fresh) skip[slot] = 1;
    std::vector<float> planes(stored.size());
    const size_t half = d / 2;
    for (size_t slot = 0; slot < r.capacity; ++slot) {
      for (size_t e = 0; e < d; ++e) {
        const size_t plane = e < half ? 0 : 1;
        planes[plane * r.capacity * half + slot * half + e % half] = stored[slot * d + e];
        if (skip[slot] == 0) u[slot * d + e] = stored[slot * d + e];
      }
    }
    const auto* const first = reinterpret_cast<const std::byte*>(planes.data());
    const StoredRun run{first, first + size_t{r.capacity} * half * sizeof(float), DType::f32,
                        r.capacity, 0};
    ASSERT_TRUE(b.write_kv(**cache, layer, **rope, gated.tensor, fresh.data()).is_ok());
    ASSERT_TRUE(
        b.fusion().scatter(**cache, layer, **rope, {&run, 1}, skip.data(), nullptr).is_ok());
    // Moved without a turn, whatever is asked for: an edit that takes `gap` rows out.
    const auto gap = static_cast<uint32_t>(number(0, r.capacity - 1));
    const RowMove move{layer, gap, layer, 0, r.capacity - gap, -static_cast<int32_t>(gap)};
    ASSERT_TRUE(b.move_rows(**cache, **cache, **rope, move).is_ok());
    std::copy(u.begin() + static_cast<int64_t>(size_t{gap} * d), u.end(), u.begin());
    // A fork keeps its rows when the other is written to.
    auto forked = (*cache)->fork(r.capacity);
    ASSERT_TRUE(forked.is_ok());
    KvCache& seen = *forked != nullptr ? **forked : **cache;
    if (*forked != nullptr) {
      ASSERT_TRUE(b.write_kv(**cache, layer, **rope, gated.tensor, fresh.data()).is_ok());
    }
    const Owned back = make_empty(r.capacity, d);
    ASSERT_TRUE(b.fusion()
                    .read_kv(seen, layer, **rope, slots_from(0, r.capacity).data(), back.tensor)
                    .is_ok());
    expect_near(host(back.tensor), {u.begin(), u.end()});

    const std::vector<float> w = normal(size_t{d} * taps);
    const auto stored_taps = make_stored("taps", w, {static_cast<int64_t>(w.size())}, DType::f32);
    const TensorView* const parts[] = {&stored_taps->view};
    auto weight = b.load_vector(parts, 0);
    ASSERT_TRUE(weight.is_ok());
    const std::vector<uint32_t> pos = positions(number(1, r.capacity), r.capacity);
    const std::vector<float> c = normal(pos.size() * d);
    const std::vector<double> want = convolved(r, layer, w, c, pos);
    Owned out = make_tensor(c, static_cast<int64_t>(pos.size()), d);
    ASSERT_TRUE(b.conv()->convolve(seen, layer, **weight, out.tensor, pos.data()).is_ok());
    const std::vector<float> together = host(out.tensor);
    expect_near(together, want);
    // One by one, bit for bit.
    out = make_tensor(c, static_cast<int64_t>(pos.size()), d);
    std::vector<RowOver> each;
    for (uint32_t i = 0; i < pos.size(); ++i) each.push_back({&seen, i, pos[i]});
    ASSERT_TRUE(b.conv()->convolve_each(layer, **weight, out.tensor, each).is_ok());
    EXPECT_EQ(host(out.tensor), together);
    const uint32_t beyond = r.capacity;
    EXPECT_EQ(b.conv()->convolve(seen, layer, **weight, out.tensor.slice(0, 1), &beyond).code(),
              BLEND_E_INTERNAL);
  }
}

}  // namespace blend::test
