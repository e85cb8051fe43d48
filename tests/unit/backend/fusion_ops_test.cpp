// The operations of a Backend that the fusion and the step API add.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

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
    ASSERT_TRUE(backend_->fusion().deviation(tkv.tensor, runs, rule, got.data()).is_ok());
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
    ASSERT_TRUE(backend_->fusion().drift_inputs(fresh.tensor, runs, inputs, out.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));
    const DriftInputs other{!inputs.fresh, inputs.constant};
    EXPECT_EQ(backend_->fusion().drift_inputs(fresh.tensor, runs, other, out.tensor).code(),
              BLEND_E_INTERNAL);
  }
}

TEST_P(BackendOps, StoredInputs) {
  constexpr size_t kScales = StoredFeatures::kScales, kCount = StoredFeatures::kCount;
  for (int round = 0; round < rounds(12); ++round) {
    const size_t rows = number(1, 70), kv_dim = number(1, 200);
    const size_t n_in = DriftInputs::of_stored().size(kv_dim);
    std::vector<StoredFeatures> features(rows);
    for (StoredFeatures& row : features) {
      const auto values = normal(kCount);
      std::copy(values.begin(), values.end(), row.values.begin());
    }
    std::vector<double> want(rows * n_in, -1.0);  // rows of no run keep what they hold
    std::vector<std::unique_ptr<StoredTensor>> stored;
    std::vector<StoredRun> runs;
    for (size_t first = number(0, 3); first < rows;) {
      const size_t n = std::min(rows - first, number(1, 30));
      const DType dtype = kDTypes[number(0, 2)];
      auto k = make_stored("k", normal(n * kv_dim), {}, dtype);
      auto v = make_stored("v", normal(n * kv_dim), {}, dtype);
      for (size_t i = 0; i < n; ++i) {
        double* at = want.data() + (first + i) * n_in;
        for (size_t s = 0; s < kScales; ++s) {
          const float scale = features[first + i].values[s];
          for (size_t e = 0; e < kv_dim; ++e) *at++ = scale * k->values[i * kv_dim + e];
          for (size_t e = 0; e < kv_dim; ++e) *at++ = scale * v->values[i * kv_dim + e];
        }
        for (const float value : features[first + i].values) *at++ = value;
      }
      runs.push_back({k->bytes.data(), v->bytes.data(), dtype, static_cast<uint32_t>(n),
                      static_cast<uint32_t>(first)});
      stored.push_back(std::move(k));
      stored.push_back(std::move(v));
      first += n + number(0, 5);
    }
    Owned out = make_tensor(std::vector<float>(rows * n_in, -1.0f), static_cast<int64_t>(rows),
                            static_cast<int64_t>(n_in));
    ASSERT_TRUE(backend_->fusion().stored_inputs(runs, features.data(), out.tensor).is_ok());
    ASSERT_NO_FATAL_FAILURE(expect_close(host(out.tensor), want));
  }
}

TEST_P(BackendOps, DriftShareAndScale) {
  for (int round = 0; round < rounds(16); ++round) {
    const size_t rows = number(1, 70), kv_dim = number(1, 200);
    auto foretold = normal(rows * 2 * kv_dim);
    std::vector<float> drift = normal(rows * 2 * kv_dim);
    // K goes against the prediction, or a part of it does; V follows it, or more than that.
    const float k_part = round % 2 == 0 ? 0.5f : -1.0f, v_part = round % 4 < 2 ? 0.25f : 4.0f;
    double both[2] = {0, 0}, own[2] = {0, 0};
    for (size_t i = 0; i < drift.size(); ++i) {
      const size_t half = i / kv_dim % 2;
      drift[i] = 0.1f * drift[i] + (half == 0 ? k_part : v_part) * foretold[i];
      both[half] += static_cast<double>(foretold[i]) * static_cast<double>(drift[i]);
      own[half] += static_cast<double>(foretold[i]) * static_cast<double>(foretold[i]);
    }
    const auto n = static_cast<int64_t>(rows), cols = static_cast<int64_t>(2 * kv_dim);
    Owned ty = make_tensor(foretold, n, cols), td = make_tensor(drift, n, cols);
    DriftShare share{-1, -1};
    ASSERT_TRUE(backend_->fusion().drift_share(ty.tensor, td.tensor, &share).is_ok());
    EXPECT_NEAR(static_cast<double>(share.k), std::clamp(both[0] / own[0], 0.0, 1.0), 1e-4);
    EXPECT_NEAR(static_cast<double>(share.v), std::clamp(both[1] / own[1], 0.0, 1.0), 1e-4);
    ASSERT_TRUE(backend_->fusion().scale_kv(ty.tensor, {0.5f, -2.0f}).is_ok());
    for (size_t i = 0; i < foretold.size(); ++i) {
      foretold[i] *= i / kv_dim % 2 == 0 ? 0.5f : -2.0f;
    }
    EXPECT_EQ(host(ty.tensor), foretold);
    EXPECT_EQ(backend_->fusion().drift_share(ty.tensor.slice(0, 0), td.tensor, &share).code(),
              BLEND_E_INTERNAL);
  }
}

// Nothing was predicted, or a NaN: nothing is applied.
TEST_P(BackendOps, DriftShareOfNothingIsNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Owned nothing = make_tensor({0, 0, nan, 1}, 1, 4), drift = make_tensor({1, 2, 3, 4}, 1, 4);
  DriftShare share;
  ASSERT_TRUE(backend_->fusion().drift_share(nothing.tensor, drift.tensor, &share).is_ok());
  EXPECT_EQ(share.k, 0.0f);
  EXPECT_EQ(share.v, 0.0f);
}

TEST_P(BackendOps, RelativeDeviationOfAStoredRowOfZeros) {
  const std::vector<float> fresh = {1, 2, 3, 4, 0, 0, 0, 0};  // [2, 2 * 2]
  const auto zeros = make_stored("k", std::vector<float>(4, 0.0f), {}, DType::f16);
  const StoredRun run{zeros->bytes.data(), zeros->bytes.data(), DType::f16, 2, 0};
  Owned kv = make_tensor(fresh, 2, 4);
  std::vector<float> got(2, -1.0f);
  const DeviationRule rule{DeviationMetric::kv, DeviationNorm::l2, true};
  ASSERT_TRUE(backend_->fusion().deviation(kv.tensor, {&run, 1}, rule, got.data()).is_ok());
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
    ASSERT_TRUE(backend_->fusion().top_k(scores, k, got.data()).is_ok());
    EXPECT_EQ(got, want) << k;
  }
  // A NaN may have a sign.
  const std::vector<float> signs = {inf, -nan, 2, std::copysign(nan, 1.0f), inf};
  std::vector<uint32_t> first(2);
  ASSERT_TRUE(backend_->fusion().top_k(signs, 2, first.data()).is_ok());
  EXPECT_EQ(first, (std::vector<uint32_t>{1, 3}));
  const auto many = normal(5000);
  std::vector<uint32_t> order(many.size()), got(1234);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return many[a] > many[b]; });
  order.resize(got.size());
  std::sort(order.begin(), order.end());
  ASSERT_TRUE(backend_->fusion().top_k(many, got.size(), got.data()).is_ok());
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
    ASSERT_TRUE(backend_->fusion()
                    .encode_kv(make_tensor(kv, r, c).tensor, dtype, k.data(), v.data())
                    .is_ok());
    EXPECT_EQ(k, want_k->bytes);
    EXPECT_EQ(v, want_v->bytes);

    kv[(rows - 1) * 2 * kv_dim + kv_dim] = dtype == DType::f16 ? 70000.0f : std::nanf("");
    const Status s =
        backend_->fusion().encode_kv(make_tensor(kv, r, c).tensor, dtype, k.data(), v.data());
    EXPECT_EQ(s.code(), BLEND_E_NUMERIC);
    EXPECT_NE(s.message().find("row " + std::to_string(rows - 1)), std::string::npos)
        << s.message();
  }
}

TEST_P(BackendOps, HostRowsThereAndBack) {
  // HostOps: a host's own layout, rotated or not.
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
    ASSERT_TRUE(backend_->host().scatter(host_kv, *rope, {&run, 1}, skip.data(), nullptr).is_ok());
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
    ASSERT_TRUE(backend_->host()
                    .scatter(host_kv, *rope, {&run, 1}, nullptr, corrects ? &correction : nullptr)
                    .is_ok());
    // Back again: K turned back from its positions.
    HostKv from = host_kv;
    from.k += size_t{first} * dim * 4;
    from.v += size_t{first} * dim * 4;
    std::vector<uint32_t> pos(n);
    std::iota(pos.begin(), pos.end(), first);
    Owned out = make_empty(static_cast<int64_t>(n), static_cast<int64_t>(2 * kv_dim));
    ASSERT_TRUE(backend_->host().read(from, *rope, pos.data(), out.tensor).is_ok());
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
    const Status s = backend_->host().read(from, *rope, pos.data(), out.tensor);
    EXPECT_EQ(s.code(), BLEND_E_NUMERIC);
    EXPECT_NE(s.message().find("row " + std::to_string(n - 1)), std::string::npos);
  }
}

}  // namespace
}  // namespace blend::test
