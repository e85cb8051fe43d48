// The SIMD kernels of single rows and of rows in caches, against their scalar references.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "cpu/block_decode.h"
#include "cpu/convert.h"
#include "cpu/deviation.h"
#include "cpu/drift.h"
#include "cpu/move_keys.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "cpu/scan.h"
#include "cpu/scatter_k.h"
#include "cpu/swiglu.h"
#include "cpu/top_k.h"
#include "formats/half.h"
#include "support/isa.h"
#include "unit/kernels/kernels_case.h"

namespace blend::kernels {
namespace {

TEST_P(Kernels, DecodesEveryHalf) {
  std::vector<uint16_t> all(65536 + 1);
  for (size_t i = 0; i < 65536; ++i) all[i + 1] = static_cast<uint16_t>(i);
  // From an odd address too: tensors in files are where the format puts them.
  std::vector<std::byte> odd(65536 * 2 + 1);
  std::memcpy(odd.data() + 1, all.data() + 1, 65536 * 2);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const std::byte* src : {reinterpret_cast<const std::byte*>(all.data() + 1),
                                 static_cast<const std::byte*>(odd.data() + 1)}) {
      std::vector<float> got(65536), want(65536);
      decode(src, dtype, 65536, got.data());
      decode_ref(src, dtype, 65536, want.data());
      for (size_t i = 0; i < 65536; ++i) {
        if (std::isnan(want[i])) {
          ASSERT_TRUE(std::isnan(got[i])) << dtype_name(dtype) << " " << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
              << dtype_name(dtype) << " " << i;
        }
      }
    }
  }
}

TEST_P(Kernels, DecodesBlocksBitForBit) {
  for (int type = 1; type < kBlockTypes; ++type) {
    const auto blocks = static_cast<BlockType>(type);
    const size_t n = 5 * block_elements(blocks);
    // Bits of every kind, scales that are infinite, subnormal or no number among them.
    std::vector<std::byte> bytes(1 + 5 * block_bytes(blocks));
    for (int round = 0; round < 40; ++round) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(rng_());
      std::vector<float> got(n), want(n);
      kernels::decode_blocks(blocks, bytes.data() + 1, n, got.data());
      blend::decode_blocks(blocks, bytes.data() + 1, n, want.data());
      for (size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(std::memcmp(&got[i], &want[i], sizeof got[i]) == 0 ||
                    (std::isnan(got[i]) && std::isnan(want[i])))
            << block_type_name(blocks) << " " << i << ": " << got[i] << ", " << want[i];
      }
    }
  }
}

TEST_P(Kernels, EncodesBitForBit) {
  std::vector<float> values;
  for (int i = 0; i < 65536; ++i) {  // every half, the midpoints to the next, and their neighbours
    for (const bool f16 : {true, false}) {
      const uint16_t h = static_cast<uint16_t>(i);
      const float v = f16 ? f16_to_f32(h) : bf16_to_f32(h);
      if (!std::isfinite(v)) continue;
      const uint32_t half_step = f16 ? 0x1000u : 0x8000u;
      for (const uint32_t delta : {0u, half_step - 1, half_step, half_step + 1}) {
        values.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(v) + delta));
      }
    }
  }
  for (int i = 0; i < 50000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng_())));
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const size_t size = static_cast<size_t>(dtype_size(dtype));
    std::vector<std::byte> got(values.size() * size), want(values.size() * size);
    (void)encode(values.data(), values.size(), dtype, got.data());
    (void)encode_ref(values.data(), values.size(), dtype, want.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::memcmp(got.data() + i * size, want.data() + i * size, size), 0)
          << dtype_name(dtype) << " of " << values[i];
    }
  }
}

TEST_P(Kernels, EncodeSeesWhatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (size_t n = 1; n <= 70; ++n) {
      std::vector<float> v = normal(n);
      std::vector<std::byte> out(n * 4);
      ASSERT_TRUE(encode(v.data(), n, dtype, out.data()));
      const size_t bad = number(0, n - 1);
      for (const float x : {inf, -inf, std::nanf(""), 65520.0f, 3.4e38f}) {
        v[bad] = x;
        EXPECT_EQ(encode(v.data(), n, dtype, out.data()),
                  encode_ref(v.data(), n, dtype, out.data()))
            << dtype_name(dtype) << " " << x << " at " << bad << " of " << n;
        EXPECT_EQ(find_not_finite(v.data(), n), std::isfinite(x) ? n : bad);
      }
    }
  }
}

TEST_P(Kernels, RmsNorm) {
  for (size_t d = 1; d < 300; d += 7) {
    const auto x = normal(d, 3.0f), w = normal(d);
    std::vector<float> got(d), want(d);
    rms_norm(x.data(), w.data(), 1e-5f, d, got.data());
    rms_norm_ref(x.data(), w.data(), 1e-5f, d, want.data());
    expect_close(got, want, 1e-6);
  }
}

TEST_P(Kernels, Swiglu) {
  for (size_t n : {1, 3, 16, 17, 100, 5000}) {
    auto gate = normal(n, 20.0f);
    const auto up = normal(n);
    gate[0] = -1000.0f;
    gate[n / 2] = 1000.0f;
    std::vector<float> got(n), want(n);
    swiglu(gate.data(), up.data(), n, got.data());
    swiglu_ref(gate.data(), up.data(), n, want.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i]) + 1e-30) << gate[i];
    }
    gate[n - 1] = std::nanf("");
    swiglu(gate.data(), up.data(), n, got.data());
    EXPECT_TRUE(std::isnan(got[n - 1]));
  }
}

TEST_P(Kernels, ClampedSwiglu) {
  for (size_t n : {1, 3, 16, 17, 100, 5000}) {
    auto gate = normal(n, 6.0f), up = normal(n, 6.0f);
    gate[0] = -1000.0f;
    up[0] = -1000.0f;
    gate[n / 2] = up[n / 2] = 1000.0f;
    std::vector<float> got(n), want(n);
    clamped_swiglu(gate.data(), up.data(), n, got.data());
    clamped_swiglu_ref(gate.data(), up.data(), n, want.data());
    for (size_t i = 0; i < n; ++i) {
      // Where up is about -1, the sum with 1 has few digits left.
      ASSERT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i]) + 1e-6) << gate[i] << " " << up[i];
    }
    for (std::vector<float>* poisoned : {&gate, &up}) {
      const float kept = std::exchange((*poisoned)[n - 1], std::nanf(""));
      clamped_swiglu(gate.data(), up.data(), n, got.data());
      EXPECT_TRUE(std::isnan(got[n - 1]));
      (*poisoned)[n - 1] = kept;
    }
  }
}

TEST_P(Kernels, Reglu) {
  for (size_t n : {1, 3, 16, 17, 100, 5000}) {
    const auto gate = normal(n, 6.0f), up = normal(n, 6.0f);
    std::vector<float> got(n), want(n);
    reglu(gate.data(), up.data(), n, got.data());
    reglu_ref(gate.data(), up.data(), n, want.data());
    EXPECT_EQ(got, want);
    auto squares = up;  // up is its own gate, in place
    squares[n - 1] = std::nanf("");
    reglu(squares.data(), squares.data(), n, squares.data());
    EXPECT_TRUE(std::isnan(squares[n - 1]));
    for (size_t i = 0; i + 1 < n; ++i) {
      ASSERT_EQ(squares[i], up[i] > 0 ? up[i] * up[i] : 0.0f) << up[i];
    }
  }
}

TEST_P(Kernels, SigmoidGate) {
  for (size_t n : {1, 3, 16, 17, 100, 5000}) {
    auto gate = normal(n, 6.0f), up = normal(n, 6.0f);
    gate[0] = -1000.0f;
    gate[n / 2] = 1000.0f;
    std::vector<float> got(n), want(n);
    sigmoid_gate(gate.data(), up.data(), n, got.data());
    sigmoid_gate_ref(gate.data(), up.data(), n, want.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i]) + 1e-30) << gate[i];
    }
    for (std::vector<float>* poisoned : {&gate, &up}) {
      const float kept = std::exchange((*poisoned)[n - 1], std::nanf(""));
      sigmoid_gate(gate.data(), up.data(), n, got.data());
      EXPECT_TRUE(std::isnan(got[n - 1]));
      (*poisoned)[n - 1] = kept;
    }
  }
}

TEST_P(Kernels, ConvSilu) {
  for (const size_t n : {1, 3, 16, 17, 100, 515}) {
    const size_t stride = n + number(0, 5), n_taps = number(1, 6);
    const auto x = normal(n_taps * stride), taps = normal(n_taps * stride), biases = normal(n);
    for (const float* const bias : {static_cast<const float*>(nullptr), biases.data()}) {
      std::vector<float> got(n), want(n);
      conv_silu(x.data(), taps.data(), bias, stride, n_taps, n, got.data());
      conv_silu_ref(x.data(), taps.data(), bias, stride, n_taps, n, want.data());
      expect_close(got, want, 1e-6);
    }
  }
}

TEST_P(Kernels, ToLength) {
  for (const size_t n : {1, 3, 16, 33, 128, 200}) {
    auto got = normal(n);
    auto want = got;
    to_length(got.data(), n, 1e-6f, 0.7f);
    to_length_ref(want.data(), n, 1e-6f, 0.7f);
    expect_close(got, want, 1e-6);
    std::fill(got.begin(), got.end(), 0.0f);
    to_length(got.data(), n, 1e-6f, 1);
    EXPECT_EQ(got, std::vector<float>(n, 0.0f));
  }
}

// Rows of a head, of which some are wanted; in one call, in two, and against plain loops.
TEST_P(Kernels, ScanRows) {
  for (int round = 0; round < 60; ++round) {
    ScanRows rows;
    rows.corrects = round % 3 != 0;
    rows.n = number(1, 40);
    rows.k_dim = round == 0 ? 128 : number(1, 70);
    rows.columns = round % 2 == 0 ? kScanTile : number(1, kScanTile);
    rows.qk_stride = rows.k_dim + number(0, 9);
    rows.v_stride = kScanTile + number(0, 9);
    auto q = normal(rows.n * rows.qk_stride), k = normal(rows.n * rows.qk_stride);
    for (size_t t = 0; t < rows.n; ++t) to_length(&k[t * rows.qk_stride], rows.k_dim, 1e-6f, 1);
    const auto v = normal(rows.n * rows.v_stride);
    std::vector<float> decay(rows.n), beta(rows.n);
    for (size_t t = 0; t < rows.n; ++t) {
      decay[t] = 0.5f + 0.0005f * static_cast<float>(number(0, 999));
      beta[t] = 0.001f * static_cast<float>(number(0, 999));
    }
    rows.q = q.data(), rows.k = k.data(), rows.v = v.data();
    rows.decay = decay.data(), rows.beta = beta.data();
    rows.out_at = number(0, 3);
    std::vector<std::vector<float>> got(rows.n), want(rows.n), parts(rows.n);
    std::vector<float*> to_got(rows.n), to_want(rows.n), to_parts(rows.n);
    for (size_t t = 0; t < rows.n; ++t) {
      for (auto* out : {&got[t], &want[t], &parts[t]}) out->assign(kScanTile + 3, 0.0f);
      if (number(0, 2) == 0 && t + 1 < rows.n) continue;
      to_got[t] = got[t].data(), to_want[t] = want[t].data(), to_parts[t] = parts[t].data();
    }
    const auto start = normal(rows.k_dim * kScanTile);
    const auto run = [&](const ScanRows& some, AlignedBuffer& state) {
      scan_rows(some, state.as<float>());
    };
    AlignedBuffer one = cached(start.data(), start.size(), DType::f32);
    AlignedBuffer two = cached(start.data(), start.size(), DType::f32);
    AlignedBuffer ref = cached(start.data(), start.size(), DType::f32);
    rows.out = to_got.data();
    run(rows, one);
    rows.out = to_want.data();
    scan_rows_ref(rows, ref.as<float>());
    for (size_t t = 0; t < rows.n; ++t) expect_close(got[t], want[t], 3e-5);
    // Columns that are not used may hold anything.
    for (size_t i = 0; i < start.size(); ++i) {
      if (i % kScanTile >= rows.columns) continue;
      ASSERT_NEAR(one.as<float>()[i], ref.as<float>()[i],
                  3e-5 * (1 + std::abs(ref.as<float>()[i])));
    }
    const size_t cut = number(0, rows.n);
    ScanRows head = rows, tail = rows;
    head.n = cut;
    head.out = to_parts.data();
    tail.n = rows.n - cut;
    tail.q += cut * rows.qk_stride, tail.k += cut * rows.qk_stride, tail.v += cut * rows.v_stride;
    tail.decay += cut, tail.beta += cut;
    tail.out = to_parts.data() + cut;
    run(head, two);
    run(tail, two);
    for (size_t t = 0; t < rows.n; ++t) ASSERT_EQ(parts[t], got[t]);
    for (size_t i = 0; i < start.size(); ++i) {
      if (i % kScanTile >= rows.columns) continue;
      ASSERT_EQ(one.as<float>()[i], two.as<float>()[i]);
    }
  }
}

TEST_P(Kernels, Rope) {
  for (int round = 0; round < 60; ++round) {
    RopeRow row;
    row.n_heads = number(1, 5);
    row.head_dim = 2 * number(1, 64);
    row.rotary_dim = 2 * number(1, row.head_dim / 2);
    row.pairs = round % 2 == 0 ? RopePairs::adjacent : RopePairs::halves;
    const auto cos = normal(row.rotary_dim / 2), sin = normal(row.rotary_dim / 2);
    row.cos = cos.data();
    row.sin = sin.data();
    auto got = normal(row.n_heads * row.head_dim);
    auto want = got;
    rope(row, got.data());
    rope_ref(row, want.data());
    expect_close(got, want, 1e-6);
  }
}

TEST_P(Kernels, RowDistance) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (size_t n = 1; n < 150; ++n) {
      const auto fresh = normal(n), other = normal(n);
      std::vector<std::byte> stored(n * 4);
      ASSERT_TRUE(encode_ref(other.data(), n, dtype, stored.data()));
      for (const Norm norm : {Norm::squares, Norm::magnitudes}) {
        const float distance = row_distance_ref(fresh.data(), stored.data(), dtype, n, norm);
        EXPECT_NEAR(row_distance(fresh.data(), stored.data(), dtype, n, norm), distance,
                    2e-6f * distance);
        const float size = row_size_ref(stored.data(), dtype, n, norm);
        EXPECT_NEAR(row_size(stored.data(), dtype, n, norm), size, 2e-6f * size);
      }
    }
  }
}

TEST_P(Kernels, DriftIsAddedToAndTakenFromStoredRows) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (int round = 0; round < 40; ++round) {
      const size_t n = number(1, 150);
      const auto values = normal(n), other = normal(n);
      std::vector<std::byte> stored(n * static_cast<size_t>(dtype_size(dtype)) + 1);
      // Off alignment every other time.
      std::byte* const at = stored.data() + (dtype == DType::f32 ? 0 : round % 2);
      ASSERT_TRUE(encode_ref(values.data(), n, dtype, at));
      std::vector<float> got(n), want(n);
      decode_add(at, dtype, n, other.data(), got.data());
      decode_add_ref(at, dtype, n, other.data(), want.data());
      EXPECT_EQ(got, want);
      difference(other.data(), at, dtype, n, got.data());
      difference_ref(other.data(), at, dtype, n, want.data());
      EXPECT_EQ(got, want);
      const DriftSums sums = drift_sums(other.data(), got.data(), n);
      const DriftSums exact = drift_sums_ref(other.data(), got.data(), n);
      EXPECT_NEAR(sums.predicted, exact.predicted, 1e-5f * (1 + exact.predicted));
      EXPECT_NEAR(sums.both, exact.both, 1e-4f * (1 + exact.predicted));
      got = want = values;
      add_scaled(other.data(), 0.37f, n, got.data());
      add_scaled_ref(other.data(), 0.37f, n, want.data());
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], want[i], 1e-6f) << i;
    }
  }
}

TEST_P(Kernels, ScatterK) {
  for (int round = 0; round < 60; ++round) {
    const KvLayout layout{number(1, 3), 2 * number(1, 40), 96};
    const size_t kv_dim = layout.n_kv_heads * layout.head_dim, stride = kv_dim + number(0, 3);
    // A run that covers whole blocks, or scattered slots, or a full block in another order.
    std::vector<uint32_t> slots;
    const uint32_t first = static_cast<uint32_t>(number(0, 40));
    const auto end = first + static_cast<uint32_t>(number(1, 56));
    for (uint32_t s = first; s < end; ++s) {
      if (round % 3 != 1 || number(0, 1) == 0) slots.push_back(s);
    }
    if (round % 3 == 2) {
      slots.resize(16);
      for (uint32_t i = 0; i < 16; ++i) slots[i] = 16 + i;
      std::swap(slots[3], slots[7]);
    }
    auto rows = normal(slots.size() * stride);
    const std::vector<float> before(layout.k_elements(), -1.0f);
    for (const DType dtype : kCacheTypes) {
      const AlignedBuffer got = cached(before.data(), before.size(), dtype);
      const AlignedBuffer want = cached(before.data(), before.size(), dtype);
      const auto put = [&](const AlignedBuffer& k, auto kernel) {
        return kernel(rows.data(), stride, slots.data(), slots.size(), layout, dtype, k.data());
      };
      ASSERT_TRUE(put(got, scatter_k));
      ASSERT_TRUE(put(want, scatter_k_ref));
      ASSERT_EQ(values_of(got, dtype), values_of(want, dtype));
      // One that 16 bits do not hold is told wherever it is; the space between rows is not looked
      // at.
      const size_t row = number(0, slots.size() - 1);
      const size_t e = number(0, 1) == 0 ? kv_dim - 1 : number(0, kv_dim - 1);
      const float kept = std::exchange(rows[row * stride + e], 3.4028e38f);
      if (stride > kv_dim) rows[kv_dim] = std::nanf("");
      ASSERT_EQ(put(got, scatter_k), dtype == DType::f32);
      ASSERT_EQ(put(want, scatter_k_ref), dtype == DType::f32);
      rows[row * stride + e] = kept;
    }
  }
}

TEST_P(Kernels, MoveKeys) {
  for (int round = 0; round < 200; ++round) {
    const size_t head_dim = 2 * number(1, 40), slots = 32 * number(1, 4);
    KeyMove move;
    move.turn.head_dim = head_dim;
    move.turn.rotary_dim = 2 * number(1, head_dim / 2);
    move.turn.pairs = round % 2 == 0 ? RopePairs::adjacent : RopePairs::halves;
    const auto cos = normal(move.turn.rotary_dim / 2), sin = normal(move.turn.rotary_dim / 2);
    move.turn.cos = cos.data();
    move.turn.sin = sin.data();
    move.n = number(0, slots);
    move.from = number(0, slots - move.n);
    // By less than a block, to the very same place, by whole blocks, anywhere.
    move.to = number(0, slots - move.n);
    if (round % 4 == 0) move.to = std::min(move.from + number(0, 17), slots - move.n);
    if (round % 4 == 1) move.to = move.from - std::min(move.from, number(0, 17));
    if (round % 4 == 2) move.to = move.from % 16 + 16 * number(0, (slots - move.n) / 16);
    move.to = std::min(move.to, slots - move.n);
    const float sign = round % 3 == 0 ? -1.0f : 1.0f;
    SCOPED_TRACE(testing::Message() << move.n << " slots, " << move.from << " -> " << move.to);

    const auto from = normal(slots * head_dim), to = normal(slots * head_dim);
    for (const DType dtype : kCacheTypes) {
      // A difference in the last bit of f32 may round to the other neighbour.
      const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
      const AlignedBuffer src = cached(from.data(), from.size(), dtype);
      AlignedBuffer got = cached(to.data(), to.size(), dtype);
      AlignedBuffer want = cached(to.data(), to.size(), dtype);
      move_keys(move, sign, dtype, src.data(), got.data());
      move_keys_ref(move, sign, dtype, src.data(), want.data());
      ASSERT_NO_FATAL_FAILURE(
          expect_close(values_of(got, dtype), values_of(want, dtype), tolerance));
      // In place, where the ranges may overlap.
      got = cached(from.data(), from.size(), dtype);
      want = cached(from.data(), from.size(), dtype);
      move_keys(move, sign, dtype, got.data(), got.data());
      move_keys_ref(move, sign, dtype, want.data(), want.data());
      ASSERT_NO_FATAL_FAILURE(
          expect_close(values_of(got, dtype), values_of(want, dtype), tolerance));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Kernels, testing::ValuesIn(test::machine_simd()),
                         [](const auto& tested) { return test::isa_test_name(tested.param); });

TEST(TopK, AgreesWithReference) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    const size_t n = std::uniform_int_distribution<size_t>(1, 60)(rng);
    const size_t k = std::uniform_int_distribution<size_t>(0, n)(rng);
    std::vector<float> scores(n);
    for (float& s : scores) {  // few distinct values: many ties
      const int pick = std::uniform_int_distribution<int>(0, 8)(rng);
      s = pick == 8   ? std::nanf("")
          : pick == 7 ? -0.0f
          : pick == 6 ? INFINITY
                      : static_cast<float>(pick - 3);
    }
    std::vector<uint64_t> keys(n);
    std::vector<uint32_t> got(k), want(k);
    top_k(scores.data(), n, k, keys.data(), got.data());
    top_k_ref(scores.data(), n, k, want.data());
    ASSERT_EQ(got, want);
  }
}

}  // namespace
}  // namespace blend::kernels
