// Codecs: what comes back, how much room it takes, and that no bytes can hurt.
#include "store/codec/codec.h"

#include <cfloat>
#include <cmath>
#include <random>

#include "cpu/convert.h"
#include "cpu/plane_split.h"
#include "cpu/quantize.h"
#include "support/temp_dir.h"
#include "unit/store/codec_testing.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr Codec kAll[] = {Codec::none, Codec::zstd, Codec::int8, Codec::int4, Codec::rans};
constexpr DType kDtypes[] = {DType::f32, DType::f16, DType::bf16};

// Shapes with no, one, few and many tokens, rows that no vector or group divides, and a plane of
// more than one block of the zstd codec.
std::vector<ChunkShape> shapes(DType dtype) {
  return {{1, 0, 8, dtype, 4},      {1, 1, 1, dtype, 1},    {1, 1, 64, dtype, 0},
          {1, 2, 7, dtype, 7},      {1, 31, 33, dtype, 11}, {1, 32, 32, dtype, 32},
          {1, 33, 96, dtype, 32},   {1, 64, 40, dtype, 20}, {1, 100, 130, dtype, 65},
          {1, 301, 511, dtype, 73}, {1, 5, 300, dtype, 1}};
}

// Bits of all kinds: NaNs with payloads, infinities, zeros of both signs, denormals.
Bytes any_bits(const ChunkShape& shape, uint32_t seed) {
  std::mt19937 rng(seed);
  Bytes layer(shape.layer_bytes(0));
  for (std::byte& b : layer) b = static_cast<std::byte>(rng());
  return layer;
}

// Numbers as K and V have them: channels of different size, some far from zero; a zero row.
std::vector<float> kv_values(const ChunkShape& shape, uint32_t seed, float size = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scale(shape.kv_dim);
  std::vector<float> centre(shape.kv_dim);
  for (uint32_t c = 0; c < shape.kv_dim; ++c) {
    scale[c] = size * std::exp(normal(rng));
    centre[c] = c % 5 == 0 ? size * 8 * normal(rng) : 0;
  }
  std::vector<float> x;
  for (uint32_t row = 0; row < 2 * shape.n_tokens; ++row) {
    for (uint32_t c = 0; c < shape.kv_dim; ++c) {
      x.push_back(row % 17 == 3 ? 0 : centre[c] + scale[c] * normal(rng));
    }
  }
  return x;
}

Bytes encoded(Codec codec, const ChunkShape& shape, const Bytes& layer) {
  CodecScratch scratch;
  // A guard after the promised room.
  const size_t most = longest_layer(codec, shape, 0);
  Bytes out(most + 64, std::byte{0xa5});
  auto n = encode_layer(codec, shape, 0, layer.data(), out.data(), scratch);
  EXPECT_TRUE(n.is_ok()) << n.status().message();
  if (!n.is_ok()) return {};
  EXPECT_TRUE(layer_length_is_possible(codec, shape, 0, *n)) << *n << " of " << most;
  for (size_t i = most; i < out.size(); ++i) EXPECT_EQ(std::byte{0xa5}, out[i]);
  out.resize(*n);
  return out;
}

Result<Bytes> decoded(Codec codec, const ChunkShape& shape, std::span<const std::byte> in) {
  CodecScratch scratch;
  Bytes layer(shape.layer_bytes(0));
  // Exactly as long as it says, for the sanitizer to see.
  const Bytes copy(in.begin(), in.end());
  BLEND_RETURN_IF_ERROR(decode_layer(codec, shape, 0, copy, layer.data(), scratch));
  return layer;
}

TEST(Codec, LosslessOnesKeepEveryBit) {
  uint32_t seed = 1;
  for (const Codec codec : {Codec::none, Codec::zstd}) {
    for (const DType dtype : kDtypes) {
      for (const ChunkShape& shape : shapes(dtype)) {
        for (const Bytes& layer : {any_bits(shape, ++seed), as_layer(shape, kv_values(shape, seed)),
                                   Bytes(shape.layer_bytes(0))}) {
          auto back = decoded(codec, shape, encoded(codec, shape, layer));
          ASSERT_TRUE(back.is_ok()) << back.status().message();
          EXPECT_TRUE(*back == layer) << codec_name(codec) << ' ' << dtype_name(dtype) << ' '
                                      << shape.n_tokens << 'x' << shape.kv_dim;
        }
      }
    }
  }
}

// All 65,536 values of a 16-bit type, and f32 of every exponent.
TEST(Codec, ZstdKeepsEveryValueThereIs) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const ChunkShape shape{1, 256, 128, dtype, 64};
    Bytes layer(shape.layer_bytes(0));
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto h = static_cast<uint16_t>(i);
      std::memcpy(&layer[2 * size_t{i}], &h, 2);
    }
    EXPECT_TRUE(*decoded(Codec::zstd, shape, encoded(Codec::zstd, shape, layer)) == layer);
  }
}

TEST(Codec, ZstdIsSmallerOnNumbersAndHardlyLargerOnNoise) {
  const ChunkShape shape{1, 512, 512, DType::bf16, 64};
  const Bytes numbers = as_layer(shape, kv_values(shape, 1));
  EXPECT_LT(encoded(Codec::zstd, shape, numbers).size() * 14, numbers.size() * 10);
  const Bytes noise = any_bits(shape, 2);
  EXPECT_LT(encoded(Codec::zstd, shape, noise).size(), noise.size() + 64);
}

TEST(Codec, SizesOfTheQuantizedAreWhatTheFormatSays) {
  const ChunkShape shape{1, 256, 512, DType::f16, 64};
  const Bytes layer = as_layer(shape, kv_values(shape, 1));
  EXPECT_EQ(2u * 256 * 512 + 2 * 512 + 2 * 256 * 8, encoded(Codec::int8, shape, layer).size());
  // 20 bytes for 32 values, and two headers of two bytes, padded.
  EXPECT_EQ(2u * 256 * 512 / 32 * 20 + 16, encoded(Codec::int4, shape, layer).size());
}

// The least and largest of the values that share a step with x[row, c] of plane 0 (K) or 1 (V).
std::pair<float, float> range_of(const ChunkShape& s, const std::vector<float>& x, Codec codec,
                                 uint32_t plane, uint32_t row, uint32_t c) {
  const uint32_t head = s.head_dim == 0 ? s.kv_dim : s.head_dim;
  uint32_t row0 = row, row1 = row + 1, c0 = c, c1 = c + 1;
  if (plane == 0) {
    row0 = codec == Codec::int8 ? 0 : row / 32 * 32;
    row1 = codec == Codec::int8 ? s.n_tokens : std::min(s.n_tokens, row0 + 32);
  } else {
    const uint32_t group = codec == Codec::int8 ? head : 32;
    c0 = c / group * group;
    c1 = std::min(s.kv_dim, c0 + group);
  }
  float lo = FLT_MAX, hi = -FLT_MAX;
  for (uint32_t r = row0; r < row1; ++r) {
    for (uint32_t k = c0; k < c1; ++k) {
      const float v = x[(size_t{plane} * s.n_tokens + r) * s.kv_dim + k];
      lo = std::min(lo, v);
      hi = std::max(hi, v);
    }
  }
  return {lo, hi};
}

// Every value is within half a step of what it was, the step taken from exactly the values that the
// format says share one: a wrong grouping shows as a larger error or as a smaller bound.
TEST(Codec, QuantizedErrorsStayWithinHalfAStep) {
  uint32_t seed = 1;
  for (const Codec codec : {Codec::int8, Codec::int4}) {
    for (const DType dtype : kDtypes) {
      for (const float size : {1.0f, 1e-3f, 300.0f}) {
        for (const ChunkShape& shape : shapes(dtype)) {
          if (shape.n_tokens * shape.kv_dim > 20000) continue;
          const Bytes layer = as_layer(shape, kv_values(shape, ++seed, size));
          const std::vector<float> x = as_floats(shape, layer);
          auto back = decoded(codec, shape, encoded(codec, shape, layer));
          ASSERT_TRUE(back.is_ok()) << back.status().message();
          const std::vector<float> y = as_floats(shape, *back);
          for (uint32_t i = 0; i < x.size(); ++i) {
            const uint32_t plane = i / (shape.n_tokens * shape.kv_dim);
            const uint32_t row = i / shape.kv_dim % shape.n_tokens;
            const auto [lo, hi] = range_of(shape, x, codec, plane, row, i % shape.kv_dim);
            const float most = std::max(std::abs(lo), std::abs(hi));
            // Steps are rounded up by at most 2^-7 (int8: bf16), and bases down by 2^-10 (f16); the
            // smallest f16 is 6e-8; the result is rounded to dtype.
            const float step = codec == Codec::int8 ? most / 127 * 1.008f
                                                    : (hi - lo + most / 900) / 15 * 1.01f + 7e-8f;
            const float rounding = dtype == DType::bf16  ? most / 256
                                   : dtype == DType::f16 ? most / 2048 + 6e-8f
                                                         : 0;
            ASSERT_LE(std::abs(x[i] - y[i]), step / 2 * 1.0001f + rounding + most * 1e-6f)
                << codec_name(codec) << ' ' << dtype_name(dtype) << " plane " << plane << " row "
                << row << " channel " << i % shape.kv_dim << ": " << x[i] << " became " << y[i];
          }
        }
      }
    }
  }
}

TEST(Codec, QuantizedOnesKeepTheExtremesFinite) {
  for (const Codec codec : {Codec::int8, Codec::int4, Codec::rans}) {
    for (const DType dtype : kDtypes) {
      const float most = dtype == DType::f16 ? 65504.0f : dtype == DType::bf16 ? 1e38f : 1.5e38f;
      const ChunkShape shape{1, 40, 48, dtype, 16};
      std::vector<float> x = kv_values(shape, 1);
      x[5] = most;
      x[6] = -most;
      x[x.size() - 3] = most;
      x[9] = dtype == DType::f16 ? 6e-8f : 1e-40f;  // a denormal
      auto back = decoded(codec, shape, encoded(codec, shape, as_layer(shape, x)));
      ASSERT_TRUE(back.is_ok());
      for (const float y : as_floats(shape, *back)) ASSERT_TRUE(std::isfinite(y));
      EXPECT_NEAR(1, as_floats(shape, *back)[5] / most, 0.01);
    }
    // Denormals alone: a step that has no inverse in f32.
    const ChunkShape tiny{1, 4, 8, DType::f32, 4};
    std::vector<float> x(64, 0.0f);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 1e-40f;
    auto back = decoded(codec, tiny, encoded(codec, tiny, as_layer(tiny, x)));
    ASSERT_TRUE(back.is_ok());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], as_floats(tiny, *back)[i], 1e-7);
  }
}

TEST(Codec, QuantizedOnesRefuseWhatIsNotFinite) {
  for (const Codec codec : {Codec::int8, Codec::int4, Codec::rans}) {
    for (const DType dtype : kDtypes) {
      const ChunkShape shape{1, 40, 48, dtype, 16};
      for (const size_t at : {size_t{0}, size_t{1919}, size_t{1920}, size_t{3839}}) {
        Bytes layer = as_layer(shape, kv_values(shape, 1));
        const size_t size = static_cast<size_t>(dtype_size(dtype));
        std::memset(&layer[at * size], 0xff, size);  // a NaN
        CodecScratch scratch;
        Bytes out(longest_layer(codec, shape, 0));
        auto n = encode_layer(codec, shape, 0, layer.data(), out.data(), scratch);
        EXPECT_EQ(BLEND_E_NUMERIC, n.status().code());
      }
    }
  }
}

// Whatever the bytes are, decoding ends, with rows or CORRUPT, and touches nothing else (this runs
// under the sanitizers too). tests/fuzz/codec_fuzz.cpp goes on where this ends.
TEST(Codec, HostileBytesNeverHurt) {
  std::mt19937 rng(7);
  for (const Codec codec : kAll) {
    for (const ChunkShape& shape :
         {ChunkShape{1, 33, 40, DType::f16, 20}, ChunkShape{1, 300, 250, DType::bf16, 50},
          ChunkShape{1, 5, 7, DType::f32, 7}}) {
      const Bytes good = encoded(codec, shape, as_layer(shape, kv_values(shape, 3)));
      const size_t stride = good.size() > 4000 ? good.size() / 300 : 1;
      for (size_t n = 0; n < good.size(); n += stride) {
        EXPECT_EQ(BLEND_E_CORRUPT, decoded(codec, shape, std::span(good).first(n)).status().code());
      }
      Bytes longer = good;
      longer.resize(good.size() + kLayerAlignment);
      EXPECT_EQ(BLEND_E_CORRUPT, decoded(codec, shape, longer).status().code());
      for (int round = 0; round < 600; ++round) {
        Bytes bad = good;
        const size_t first = round % 3 == 0 ? std::min<size_t>(64, bad.size()) : bad.size();
        for (uint32_t k = 1 + rng() % 4; k > 0; --k) {
          bad[rng() % first] = static_cast<std::byte>(rng());
        }
        if (round % 5 == 0) bad.resize(rng() % bad.size());
        auto back = decoded(codec, shape, bad);
        if (back.is_ok()) continue;
        EXPECT_EQ(BLEND_E_CORRUPT, back.status().code());
        EXPECT_FALSE(back.status().message().empty());
      }
    }
  }
}

// Whatever decoding finds wrong, the check without decoding does, and nothing else; the planes are
// where the decoder found them.
TEST(Codec, CheckingPackedLayersFindsWhatDecodingFinds) {
  std::mt19937 rng(5);
  CodecScratch scratch;
  int n_bad = 0;
  for (const Codec codec : {Codec::int8, Codec::int4}) {
    for (const ChunkShape& shape : shapes(DType::f16)) {
      const Bytes sound = encoded(codec, shape, as_layer(shape, kv_values(shape, 3)));
      const auto planes = check_packed_layer(codec, shape, 0, sound, scratch);
      ASSERT_TRUE(planes.is_ok()) << planes.status().message();
      EXPECT_EQ(planes.value().n_rows, shape.n_tokens);
      EXPECT_EQ(planes.value().packing, codec == Codec::int8 ? Packing::int8 : Packing::int4);
      EXPECT_EQ(planes.value().head_dim, shape.head_dim == 0 ? shape.kv_dim : shape.head_dim);
      for (int i = 0; i < 60; ++i) {
        Bytes bytes = sound;
        if (i % 3 == 0) bytes.resize(rng() % (sound.size() + 1));
        if (i % 3 == 1 && !bytes.empty()) bytes[rng() % bytes.size()] = std::byte{0xff};
        if (i % 3 == 2) {  // where headers, steps and bases are
          for (size_t n = 0; n < 8 && n < bytes.size(); ++n)
            bytes[n] ^= static_cast<std::byte>(rng());
        }
        const auto got = check_packed_layer(codec, shape, 0, bytes, scratch);
        const auto want = decoded(codec, shape, bytes);
        ASSERT_EQ(got.status().code(), want.status().code()) << got.status().message();
        ASSERT_EQ(got.status().message(), want.status().message());
        n_bad += got.is_ok() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(n_bad, 200);
  EXPECT_FALSE(check_packed_layer(Codec::zstd, {1, 4, 8, DType::f16, 4}, 0, {}, scratch).is_ok());
}

TEST(Codec, NamesAndNumbers) {
  for (const Codec codec : kAll) EXPECT_EQ(codec, codec_from_name(codec_name(codec)));
  EXPECT_FALSE(codec_from_name("gzip").has_value());
  EXPECT_EQ(nullptr, plane_codec(static_cast<Codec>(9)));
  EXPECT_FALSE(layer_length_is_possible(static_cast<Codec>(9), {1, 1, 1, DType::f16}, 0, 4));
}

// ---- The kernels against their references

TEST(CodecKernels, PlanesAreSplitAndMergedAsTheReferenceDoes) {
  std::mt19937 rng(1);
  for (const DType dtype : kDtypes) {
    const auto size = static_cast<size_t>(dtype_size(dtype));
    for (const size_t n : {0u, 1u, 15u, 16u, 63u, 64u, 65u, 200u, 1027u}) {
      // One byte off, as the kernels promise any alignment.
      Bytes src(n * size + 1);
      for (std::byte& b : src) b = static_cast<std::byte>(rng());
      std::vector<uint8_t> high(n), rest(n * (size - 1)), high_ref(n), rest_ref(rest.size());
      kernels::split_planes(src.data() + 1, dtype, n, high.data(), rest.data());
      kernels::split_planes_ref(src.data() + 1, dtype, n, high_ref.data(), rest_ref.data());
      EXPECT_EQ(high_ref, high);
      EXPECT_EQ(rest_ref, rest);
      Bytes out(n * size + 1), out_ref(n * size);
      kernels::merge_planes(high.data(), rest.data(), dtype, n, out.data() + 1);
      kernels::merge_planes_ref(high.data(), rest.data(), dtype, n, out_ref.data());
      EXPECT_TRUE(std::equal(out_ref.begin(), out_ref.end(), out.begin() + 1));
      EXPECT_TRUE(std::equal(out_ref.begin(), out_ref.end(), src.begin() + 1));
    }
  }
}

// The split byte is the exponent, which is what makes it compress.
TEST(CodecKernels, TheSplitByteIsTheExponent) {
  for (const float x : {1.0f, -1.0f, -1.9f, 3.5f, 1e-3f, -1e20f, 0.0f}) {
    uint32_t bits = 0;
    std::memcpy(&bits, &x, 4);
    uint8_t high = 0;
    uint8_t rest[3];
    kernels::split_planes(reinterpret_cast<const std::byte*>(&x), DType::f32, 1, &high, rest);
    EXPECT_EQ(bits >> 23 & 0xff, high);
  }
}

TEST(CodecKernels, QuantizingIsAsTheReferenceDoes) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (const size_t cols : {1u, 7u, 16u, 31u, 32u, 33u, 64u, 100u}) {
    std::vector<float> x(cols), y(cols), base(cols), step(cols);
    for (size_t c = 0; c < cols; ++c) {
      x[c] = normal(rng);
      y[c] = normal(rng);
      base[c] = -3 + normal(rng);
      step[c] = c % 9 == 4 ? 0 : 0.01f + std::abs(normal(rng)) / 3;
    }
    for (const size_t group : {size_t{1}, size_t{7}, size_t{32}, cols}) {
      std::vector<int8_t> q(cols);
      kernels::quantize8(x.data(), cols, step.data(), group, q.data());
      for (size_t c = 0; c < cols; ++c) {
        ASSERT_EQ(kernels::quantize8_ref(x[c], step[c / group]), q[c]) << cols << ' ' << group;
      }
      std::vector<float> back(cols);
      auto* out = reinterpret_cast<std::byte*>(back.data());
      kernels::dequantize8(q.data(), 1, cols, step.data(), 0, group, DType::f32, out);
      for (size_t c = 0; c < cols; ++c) {
        ASSERT_EQ(kernels::dequantize_ref(q[c], 0, step[c / group], DType::f32), back[c]);
      }
    }
    std::vector<uint8_t> q(cols);
    std::vector<float> low(cols), high(cols);
    kernels::quantize4_columns(x.data(), y.data(), cols, base.data(), step.data(), q.data());
    kernels::dequantize4_columns(q.data(), cols, base.data(), step.data(), DType::f32,
                                 reinterpret_cast<std::byte*>(low.data()),
                                 reinterpret_cast<std::byte*>(high.data()));
    for (size_t c = 0; c < cols; ++c) {
      ASSERT_EQ(kernels::quantize4_ref(x[c], base[c], step[c]), q[c] & 15);
      ASSERT_EQ(kernels::quantize4_ref(y[c], base[c], step[c]), q[c] >> 4);
      EXPECT_NEAR(kernels::dequantize_ref(q[c] & 15, base[c], step[c], DType::f32), low[c], 1e-5);
      EXPECT_NEAR(kernels::dequantize_ref(q[c] >> 4, base[c], step[c], DType::f32), high[c], 1e-5);
    }
    std::vector<uint8_t> packed(kernels::nibble_row_bytes(cols) + 1, 0x77);
    kernels::quantize4_groups(x.data(), cols, base.data(), step.data(), packed.data());
    EXPECT_EQ(0x77, packed.back());
    kernels::dequantize4_groups(packed.data(), cols, base.data(), step.data(), DType::f32,
                                reinterpret_cast<std::byte*>(low.data()));
    for (size_t c = 0; c < cols; ++c) {
      const size_t g = c / 32;
      const int want = kernels::quantize4_ref(x[c], base[g], step[g]);
      EXPECT_NEAR(kernels::dequantize_ref(want, base[g], step[g], DType::f32), low[c], 1e-5);
    }
  }
}

// ---- In a store

// As compare(), for codecs that keep only what they can.
void expect_close(ChunkStore& store, const ChunkRecord& want, Codec codec) {
  const auto snapshot = take(store.snapshot());
  const auto source = take(snapshot->open(want.meta.id));
  const ChunkMeta& m = source->meta();
  EXPECT_EQ(codec, m.codec);
  EXPECT_TRUE(m.shape == want.meta.shape);
  Bytes layer(m.shape.layer_bytes(0));
  CodecScratch scratch;
  for (uint32_t l = m.shape.n_layers; l-- > 0;) {
    source->prefetch(l);
    EXPECT_OK(source->read_layer(l, layer.data()));
    const Bytes original(want.k(l), want.k(l) + layer.size());
    EXPECT_TRUE(*decoded(codec, m.shape, encoded(codec, m.shape, original)) == layer) << l;
  }
}

std::shared_ptr<ChunkRecord> kv_record(uint32_t seed, const ChunkShape& shape) {
  auto r = make_record(seed, shape);
  for (uint32_t l = 0; l < shape.n_layers; ++l) {
    const Bytes layer = as_layer(shape, kv_values(shape, seed * 100 + l));
    std::memcpy(r->k(l), layer.data(), layer.size());
  }
  return r;
}

TEST(CodecStore, EveryCodecRoundTripsPerPutAndPerStore) {
  TempDir dir;
  StoreOptions options;
  options.codec = Codec::zstd;
  std::vector<std::pair<std::shared_ptr<ChunkRecord>, Codec>> all;
  uint32_t seed = 1;
  for (const DType dtype : kDtypes) {
    // The last: layers across the borders of pieces.
    for (const ChunkShape& shape : {ChunkShape{3, 5, 48, dtype, 16}, ChunkShape{2, 1, 1, dtype, 0},
                                    ChunkShape{3, 300, 512, dtype, 64}}) {
      for (const Codec codec : kAll) {
        auto r = kv_record(seed++, shape);
        r->codec = codec;
        all.emplace_back(r, codec);
      }
      all.emplace_back(kv_record(seed++, shape), Codec::zstd);  // the store's
    }
  }
  std::array<CodecStat, kCodecs> want{};
  for (int reopened = 0; reopened < 2; ++reopened) {
    auto store = open_store(dir.path(), options);
    if (reopened == 0) {
      for (const auto& [r, codec] : all) EXPECT_OK(store->put(*r));
    }
    for (const auto& [r, codec] : all) {
      expect_close(*store, *r, codec);
      if (is_lossless(codec)) {
        EXPECT_OK(compare(*store, *r));
      }
    }
    want = {};
    EXPECT_OK(store->for_each(true, [&](const ChunkMeta& m, const std::string& problem) {
      EXPECT_EQ("", problem);
      CodecStat& s = want[static_cast<size_t>(m.codec)];
      s.n_chunks += 1;
      s.bytes += m.shape.total_bytes();
      s.stored_bytes += m.stored_bytes;
      return 0;
    }));
    EXPECT_TRUE(take(store->stat()).codecs == want);
  }
  EXPECT_EQ(want[0].bytes, want[0].stored_bytes);
  EXPECT_GT(want[1].bytes, want[1].stored_bytes);
  EXPECT_GT(want[2].bytes, want[2].stored_bytes * 19 / 10);
  EXPECT_GT(want[3].bytes, want[3].stored_bytes * 3);
  EXPECT_GT(want[4].bytes, want[4].stored_bytes * 4);
  // Replaced with another codec and removed: the counters follow.
  auto store = open_store(dir.path(), options);
  all[0].first->codec = Codec::int4;
  for (const auto& [r, codec] : all) {
    EXPECT_OK(r == all[0].first ? store->put(*r) : store->remove(r->meta.id));
  }
  const StoreStat s = take(store->stat());
  EXPECT_EQ(1u, s.codecs[3].n_chunks);
  EXPECT_EQ(all[0].first->data.bytes(), s.codecs[3].bytes);
  for (const int codec : {0, 1, 2, 4}) EXPECT_TRUE(s.codecs[codec] == CodecStat{});
}

TEST(CodecStore, AValueThatTheCodecCannotKeepIsNumericAndStoresNothing) {
  TempDir dir;
  StoreOptions options;
  options.codec = Codec::int8;
  auto store = open_store(dir.path(), options);
  auto r = kv_record(1, {2, 8, 16, DType::f16, 8});
  const uint16_t infinity = 0x7c00;
  std::memcpy(r->v(1) + 6, &infinity, 2);
  const Status s = store->put(*r);
  EXPECT_EQ(BLEND_E_NUMERIC, s.code());
  EXPECT_NE(std::string::npos, s.message().find("layer 1")) << s.message();
  EXPECT_FALSE(take(store->contains(r->meta.id)));
  EXPECT_OK(store->put_async(r));
  EXPECT_CODE(BLEND_E_NUMERIC, store->flush());
  r->codec = Codec::zstd;
  EXPECT_OK(store->put(*r));
  EXPECT_OK(compare(*store, *r));
}

}  // namespace
}  // namespace blend::test
