// Codec rans: how near its rows are, how small, and that every machine decodes the same.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "cpu/convert.h"
#include "cpu/rans_model.h"
#include "cpu/rans_rows.h"
#include "store/codec/codec.h"
#include "store/codec/row_shifts.h"
#include "store/lmdb/catalog/manifest.h"
#include "support/isa.h"
#include "unit/store/codec_testing.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

// Channels of different size, some far from zero: [2 * n_tokens, kv_dim].
std::vector<float> channels(const ChunkShape& s, uint32_t seed, float size = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scale(s.kv_dim), centre(s.kv_dim), x;
  for (uint32_t c = 0; c < s.kv_dim; ++c) {
    scale[c] = size * std::exp(0.5f * normal(rng));
    centre[c] = c % 7 == 0 ? size * 6 * normal(rng) : 0;
  }
  for (size_t i = 0; i < size_t{2} * s.n_tokens * s.kv_dim; ++i) {
    x.push_back(centre[i % s.kv_dim] + scale[i % s.kv_dim] * normal(rng));
  }
  return x;
}

Bytes encoded(const ChunkShape& shape, const Bytes& layer, const EncodeOptions& options = {}) {
  CodecScratch scratch;
  const size_t most = longest_layer(Codec::rans, shape, 0);
  Bytes out(most + 64, std::byte{0xa5});
  const size_t n =
      take(encode_layer(Codec::rans, shape, 0, layer.data(), out.data(), scratch, options));
  EXPECT_LE(n, most);
  EXPECT_TRUE(std::all_of(out.begin() + static_cast<ptrdiff_t>(most), out.end(),
                          [](std::byte b) { return b == std::byte{0xa5}; }));
  EXPECT_TRUE(layer_length_is_possible(Codec::rans, shape, 0, n)) << n;
  out.resize(n);
  return out;
}

Bytes decoded(const ChunkShape& shape, const Bytes& in) {
  CodecScratch scratch;
  Bytes layer(shape.layer_bytes(0));
  EXPECT_OK(decode_layer(Codec::rans, shape, 0, in, layer.data(), scratch));
  return layer;
}

// Where V begins, by decoding K.
size_t v_offset(const ChunkShape& shape, const Bytes& in) {
  CodecScratch scratch;
  Bytes rows(shape.plane_bytes(0));
  return take(plane_codec(Codec::rans)
                  ->decode(PlaneKind::k, PlaneShape(shape, 0), in, rows.data(), scratch));
}

float step_at(const Bytes& in, size_t at) {
  float step = 0;
  std::memcpy(&step, &in[at], sizeof step);
  return step;
}

// Steps and shifts are where FORMAT.md has them, and no value is farther away than half its row's.
TEST(Rans, ErrorsStayWithinHalfARowsStep) {
  uint32_t seed = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const ChunkShape& shape :
         {ChunkShape{1, 1, 5, dtype, 5}, ChunkShape{1, 37, 64, dtype, 32},
          ChunkShape{1, 300, 257, dtype, 257}, ChunkShape{1, 9, 1000, dtype, 100}}) {
      for (const float size : {1.0f, 1e-3f, 300.0f}) {
        std::vector<uint8_t> shifts(shape.n_tokens);
        for (size_t t = 0; t < shifts.size(); ++t) shifts[t] = static_cast<uint8_t>(t * 7 % 4);
        const Bytes layer = as_layer(shape, channels(shape, ++seed, size));
        const Bytes in = encoded(shape, layer, {0.7, shifts});
        const std::vector<float> x = as_floats(shape, layer);
        const std::vector<float> y = as_floats(shape, decoded(shape, in));
        const float steps[] = {step_at(in, 0), step_at(in, v_offset(shape, in))};
        double most_used = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const size_t row = i / shape.kv_dim;
          const float step =
              steps[row / shape.n_tokens] * static_cast<float>(1 << shifts[row % shape.n_tokens]);
          const float rounding = dtype == DType::bf16  ? std::abs(x[i]) / 250 + step / 250
                                 : dtype == DType::f16 ? std::abs(x[i]) / 2000 + 1e-7f
                                                       : std::abs(x[i]) * 1e-6f;
          ASSERT_LE(std::abs(x[i] - y[i]), step / 2 * 1.001f + rounding)
              << dtype_name(dtype) << ' ' << i << ": " << x[i] << " became " << y[i];
          most_used = std::max(most_used, std::abs(x[i] - y[i]) / double{step});
        }
        // The steps are those that were taken.
        EXPECT_GT(most_used, x.size() > 1000 ? 0.4 : 0.0);
      }
    }
  }
}

// What an ideal coder needs that is told every channel's distribution. This one is told nothing.
TEST(Rans, IsNearTheEntropyOfItsNumbers) {
  const ChunkShape shape{1, 512, 512, DType::f32, 64};
  const std::vector<float> x = channels(shape, 3);
  const Bytes in = encoded(shape, as_layer(shape, x));
  const size_t v = v_offset(shape, in);
  double bits = 0;
  for (const size_t plane : {0, 1}) {
    const float step = step_at(in, plane == 0 ? 0 : v);
    for (size_t c = 0; c < shape.kv_dim; ++c) {
      std::map<long, double> counts;
      for (size_t t = 0; t < shape.n_tokens; ++t) {
        counts[std::lround(x[(plane * shape.n_tokens + t) * shape.kv_dim + c] / step)] += 1;
      }
      for (const auto& [number, n] : counts) bits -= n * std::log2(n / shape.n_tokens);
    }
  }
  EXPECT_LT(static_cast<double>(in.size()) * 8, 1.08 * bits);
  EXPECT_LT(in.size() * 5, x.size() * 2);  // five times smaller than 16 bits
}

TEST(Rans, TheStepIsADialAndRowsThatAreReadMoreAreNearer) {
  const ChunkShape shape{1, 256, 256, DType::f32, 64};
  const std::vector<float> x = channels(shape, 4);
  const Bytes layer = as_layer(shape, x);
  std::vector<RowImpact> impact(shape.n_tokens, {0, 0.01f});
  for (size_t t = 0; t < impact.size(); t += 8) impact[t].inside = 0.3f;
  const std::vector<uint8_t> shifts = row_shifts(impact);
  ASSERT_EQ(shifts.size(), shape.n_tokens);
  const auto error = [&](const EncodeOptions& options, size_t first, size_t every) {
    const std::vector<float> y = as_floats(shape, decoded(shape, encoded(shape, layer, options)));
    double sum = 0;
    for (size_t row = first; row < shape.n_tokens; row += every) {
      for (size_t i = row * shape.kv_dim; i < (row + 1) * shape.kv_dim; ++i) {
        sum += (x[i] - y[i]) * (x[i] - y[i]);
      }
    }
    return sum / static_cast<double>(shape.n_tokens / every);
  };
  EXPECT_NEAR(error({0.5, {}}, 0, 1) * 4, error({1, {}}, 0, 1), 0.1 * error({1, {}}, 0, 1));
  EXPECT_GT(encoded(shape, layer, {0.5, {}}).size(), encoded(shape, layer).size() * 5 / 4);
  EXPECT_LT(error({1, shifts}, 0, 8) * 9, error({1, shifts}, 1, 8));
  EXPECT_EQ(row_shifts(std::vector<RowImpact>(5, {0, 0.2f})), std::vector<uint8_t>(5, kUsualShift));
  EXPECT_TRUE(row_shifts({}).empty());
}

// Few numbers that are far larger than all others escape; many make the step coarse.
TEST(Rans, HeavyTailsStayInTheirRoom) {
  for (const uint32_t every : {2u, 3u, 50u, 1000u}) {
    for (const ChunkShape& shape :
         {ChunkShape{1, 100, 300, DType::f32, 300}, ChunkShape{1, 3000, 16, DType::bf16, 16}}) {
      std::mt19937 rng(every);
      std::vector<float> x(size_t{2} * shape.n_tokens * shape.kv_dim);
      for (float& v : x) {
        const float exponent = static_cast<float>(rng() % 60);
        v = rng() % every == 0 ? std::exp2(exponent) * (rng() % 2 == 0 ? 1.0f : -1.0f) : 1e-3f;
      }
      const Bytes layer = as_layer(shape, x);
      const Bytes in = encoded(shape, layer, {0.0625, {}});
      const std::vector<float> y = as_floats(shape, decoded(shape, in));
      const auto far = std::max_element(x.begin(), x.end()) - x.begin();
      EXPECT_NEAR(y[static_cast<size_t>(far)] / x[static_cast<size_t>(far)], 1, 0.02);
    }
  }
}

// Rows of zeros are the smallest that there are: what claims a few times more than they take has no
// bytes to hold it, and nothing is allocated for it.
TEST(Rans, ARecordCannotClaimMoreRowsThanItsBytesHold) {
  for (const ChunkShape& shape : {ChunkShape{1, 1, 1 << 21, DType::f16, 64},
                                  ChunkShape{1, 3, 700'001, DType::f32, 700'001}}) {
    const Bytes in = encoded(shape, Bytes(shape.layer_bytes(0)));
    EXPECT_EQ(Bytes(shape.layer_bytes(0)), decoded(shape, in));
    ChunkShape claimed = shape;
    claimed.kv_dim = claimed.head_dim = 2 * shape.kv_dim;
    EXPECT_FALSE(layer_length_is_possible(Codec::rans, claimed, 0, in.size())) << in.size();
  }
  auto record = make_record(1, {1, 1, 20'000, DType::f16, 20'000});
  std::fill_n(record->data.data(), record->meta.shape.total_bytes(), std::byte{0});
  EncodedChunk chunk = take(encode_chunk(*record, Codec::rans));
  const auto decode = [&] {
    const std::string bytes = encode_manifest(chunk.manifest);
    return decode_manifest(std::as_bytes(std::span(bytes)), record->meta.id).status();
  };
  EXPECT_OK(decode());
  chunk.manifest.meta.shape.kv_dim = chunk.manifest.meta.shape.head_dim = 1 << 30;
  EXPECT_CODE(BLEND_E_CORRUPT, decode());
}

TEST(Rans, EveryTableAddsUp) {
  for (const auto& table : kernels::kRansFrequencies) {
    const int sum = std::accumulate(std::begin(table) + 1, std::end(table) - 1, 0);
    EXPECT_EQ(table[0] + 2 * sum + table[kernels::kRansReach + 1], 1 << kernels::kRansBits);
    EXPECT_GT(table[0], 0);
    EXPECT_GT(table[kernels::kRansReach + 1], 0);
  }
}

// Vectors of any width, with words that end anywhere, against one number after the other.
TEST(RansKernels, EveryMachineDecodesAsTheReferenceDoes) {
  std::mt19937 rng(9);
  for (const std::string& isa : machine_simd()) {
    compute_as(isa);
    size_t n_short = 0;
    for (int round = 0; round < 300; ++round) {
      const size_t cols = 1 + rng() % 70;
      std::vector<uint8_t> words(rng() % 600), escapes(2 * (rng() % 40));
      for (uint8_t& b : words) b = static_cast<uint8_t>(rng());
      for (uint8_t& b : escapes) b = static_cast<uint8_t>(rng());
      kernels::RansReader reader;
      reader.words = words.data();
      reader.words_end = words.data() + words.size();
      reader.escapes = escapes.data();
      reader.escapes_end = escapes.data() + escapes.size();
      reader.n_states = size_t{8} << rng() % 3;
      for (uint32_t& state : reader.states) state = kernels::kRansFirst + rng() % 0xfffe0000u;
      std::vector<int32_t> mean(cols), size(cols);
      for (int32_t& s : size) s = kernels::rans_size(rng() % kernels::kRansSizeCodes);
      kernels::RansReader one = reader;
      std::vector<int32_t> mean_one = mean, size_one = size;
      for (size_t row = 0; row < 20; ++row) {
        const uint32_t shift = rng() % 4;
        std::vector<int16_t> out(cols), out_one(cols);
        const bool sound = kernels::rans_decode_row(reader, row, shift, cols, mean.data(),
                                                    size.data(), out.data());
        const bool sound_one = kernels::rans_decode_row_ref(one, row, shift, cols, mean_one.data(),
                                                            size_one.data(), out_one.data());
        ASSERT_EQ(sound, sound_one) << isa << ' ' << round << ' ' << row;
        n_short += sound ? 0 : 1;
        if (!sound) break;
        ASSERT_EQ(out, out_one) << isa << ' ' << round << ' ' << row;
        ASSERT_EQ(mean, mean_one);
        ASSERT_EQ(size, size_one);
        ASSERT_EQ(reader.words, one.words);
        ASSERT_EQ(reader.escapes, one.escapes);
        ASSERT_TRUE(std::equal(reader.states, reader.states + 32, one.states));
      }
    }
    EXPECT_GT(n_short, 50u);
  }
  compute_as(kUncapped);
}

// And rows of every type to the bit.
TEST(RansKernels, EveryMachineGivesTheSameRows) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const ChunkShape shape{1, 130, 515, dtype, 103};
    const Bytes in = encoded(shape, as_layer(shape, channels(shape, 6)));
    const Bytes want = decoded(shape, in);
    for (const std::string& isa : machine_simd()) {
      compute_as(isa);
      EXPECT_TRUE(decoded(shape, in) == want) << isa;
      EXPECT_TRUE(encoded(shape, as_layer(shape, channels(shape, 6))) == in) << isa;
    }
    compute_as(kUncapped);
  }
}

// A plane of several blocks, and of rows that are longer than one.
TEST(Rans, BlocksFollowEachOther) {
  for (const ChunkShape& shape :
       {ChunkShape{1, 700, 200, DType::bf16, 200}, ChunkShape{1, 3, 70000, DType::bf16, 100}}) {
    const Bytes layer = as_layer(shape, channels(shape, 8));
    const Bytes in = encoded(shape, layer);
    const Bytes back = decoded(shape, in);
    const std::vector<float> x = as_floats(shape, layer), y = as_floats(shape, back);
    const float step = step_at(in, v_offset(shape, in));
    const size_t last = x.size() - 1;
    EXPECT_NEAR(x[last], y[last], step / 2 + std::abs(x[last]) / 200);
    // A state that is not where an encoder began says that something was flipped.
    int n_found = 0;
    std::mt19937 rng(2);
    for (int i = 0; i < 40; ++i) {
      Bytes bad = in;
      bad[rng() % bad.size()] ^= static_cast<std::byte>(1 << rng() % 8);
      CodecScratch scratch;
      Bytes rows(shape.layer_bytes(0));
      const Status s = decode_layer(Codec::rans, shape, 0, bad, rows.data(), scratch);
      n_found += s.is_ok() ? 0 : 1;
    }
    EXPECT_GT(n_found, 35);
  }
}

}  // namespace
}  // namespace blend::test
