// Packed rows on a device that decodes them itself: what it makes of them is what the host's codec
// decodes them to, on every way that stored rows take. Instantiated like BackendOps, for backends
// with BackendTraits::decodes_packed.
#include <cmath>

#include "cpu/convert.h"
#include "store/codec/codec.h"
#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

constexpr Codec kCodecs4[] = {Codec::int8, Codec::int4};

// One layer of a chunk: encoded, and as the host decodes it.
struct PackedLayer {
  ChunkShape shape;
  std::vector<std::byte> encoded, decoded;
  PackedPlanes planes;

  size_t row_bytes() const { return shape.plane_bytes(0) / shape.n_tokens; }
  // Rows [from, from + n), packed or decoded, that stand at `first`.
  StoredRun packed(uint32_t from, uint32_t n, uint32_t first) const {
    return {encoded.data(), encoded.data() + planes.k_bytes, shape.dtype, n, first, planes, from};
  }
  StoredRun plain(uint32_t from, uint32_t n, uint32_t first) const {
    const std::byte* const at = decoded.data() + from * row_bytes();
    return {at, at + shape.plane_bytes(0), shape.dtype, n, first};
  }
};

PackedLayer pack(Codec codec, const ChunkShape& shape, const std::vector<float>& values) {
  PackedLayer p;
  p.shape = shape;
  std::vector<std::byte> layer(shape.layer_bytes(0));
  EXPECT_TRUE(kernels::encode(values.data(), values.size(), shape.dtype, layer.data()));
  CodecScratch scratch;
  p.encoded.resize(longest_layer(codec, shape, 0));
  auto n = encode_layer(codec, shape, 0, layer.data(), p.encoded.data(), scratch);
  EXPECT_TRUE(n.is_ok()) << n.status().message();
  p.encoded.resize(n.value());
  p.decoded.resize(shape.layer_bytes(0));
  EXPECT_TRUE(decode_layer(codec, shape, 0, p.encoded, p.decoded.data(), scratch).is_ok());
  auto planes = check_packed_layer(codec, shape, 0, p.encoded, scratch);
  EXPECT_TRUE(planes.is_ok()) << planes.status().message();
  p.planes = planes.value();
  return p;
}

// The host may fuse base + step * q or not: of what is rounded to the same type nearly all is the
// same, the rest one step of it away.
void expect_same(const std::vector<float>& got, const std::vector<float>& want, double step) {
  ASSERT_EQ(got.size(), want.size());
  size_t n_other = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    ASSERT_NEAR(g, w, step * (std::abs(w) + 1e-3)) << i;
    n_other += g != w ? 1 : 0;
  }
  if (step == 0) return;
  EXPECT_LE(n_other, got.size() / 20 + 2);
}

}  // namespace

TEST_P(BackendPacked, IsPlacedMeasuredAndHandedOutAsTheHostDecodesIt) {
  ASSERT_TRUE(backend_->traits().decodes_packed);
  for (int round = 0; round < rounds(36); ++round) {
    const Codec codec = kCodecs4[round % 2];
    ModelConfig c;
    c.n_layers = 1;
    c.n_heads = c.n_kv_heads = static_cast<uint32_t>(number(1, 3));
    const uint32_t head_dims[] = {8, 10, 34, 64};  // of groups that fit and of others
    c.head_dim = head_dims[number(0, 3)];
    c.rope.layout = round % 3 == 0 ? RopeLayout::interleaved : RopeLayout::half_split;
    c.rope.rotary_dim = round % 4 == 0 ? c.head_dim / 2 / 2 * 2 : c.head_dim;
    const auto tokens = static_cast<uint32_t>(number(1, 75)), kv_dim = c.kv_dim();
    const ChunkShape shape{1, tokens, kv_dim, kDTypes[round % 3], round % 5 == 0 ? 0 : c.head_dim};
    auto values = normal(size_t{2} * tokens * kv_dim);
    // K has channels far from zero. Beyond f16's range int4's steps become bf16.
    for (size_t i = 0; i < values.size() / 2; ++i) {
      if (i % kv_dim == 1) values[i] += 9;
    }
    if (shape.dtype != DType::f16 && round % 7 == 3) values[number(0, values.size() - 1)] = 3e5f;
    const PackedLayer layer = pack(codec, shape, values);
    SCOPED_TRACE(testing::Message() << "round " << round << ", " << codec_name(codec) << ", "
                                    << dtype_name(shape.dtype) << ", " << tokens << " x " << kv_dim
                                    << ", heads of " << c.head_dim);
    // int8 is a product, which has one rounding; a step of the type in the cache or the chunk.
    const double step = codec == Codec::int8 ? 0 : 1.0 / 120;

    // The chunk in two or three parts with gaps, as deviations ask for it; some rows are skipped,
    // some corrected.
    const auto room = tokens + 20;
    auto rope = backend_->make_rope(c.rope, room);
    ASSERT_TRUE(rope.is_ok());
    const auto shift = static_cast<uint32_t>(number(0, 20));
    std::vector<StoredRun> packed, plain;
    for (uint32_t from = 0; from < tokens;) {
      const auto n = static_cast<uint32_t>(number(1, tokens - from));
      packed.push_back(layer.packed(from, n, from + shift));
      plain.push_back(layer.plain(from, n, from + shift));
      from += n + static_cast<uint32_t>(number(0, 2));
    }
    std::vector<uint8_t> skip(room, 0);
    for (uint8_t& s : skip) s = number(0, 4) == 0 ? 1 : 0;
    const auto drift = normal(size_t{room} * 2 * kv_dim, 0.3f);
    std::vector<uint32_t> drift_row(room, Correction::kNone);
    for (uint32_t i = 0; i < room; i += 2) drift_row[i] = room - 1 - i;
    const Owned tdrift = make_tensor(drift, room, 2 * int64_t{kv_dim});
    const Correction correction{tdrift.tensor, drift_row.data()};
    const Correction* const corrects = round % 2 == 0 ? &correction : nullptr;
    std::vector<uint32_t> all(room);
    for (uint32_t i = 0; i < room; ++i) all[i] = i;
    const auto placed = [&](const std::vector<StoredRun>& runs) {
      auto cache = backend_->make_kv_cache(c, room);
      EXPECT_TRUE(cache.is_ok());
      const Owned zeros = make_tensor(std::vector<float>(size_t{room} * 2 * kv_dim, 0.0f), room,
                                      2 * int64_t{kv_dim});
      EXPECT_TRUE(backend_->write_kv(**cache, 0, **rope, zeros.tensor, all.data()).is_ok());
      EXPECT_TRUE(
          backend_->fusion().scatter(**cache, 0, **rope, runs, skip.data(), corrects).is_ok());
      const Owned out = make_empty(room, 2 * int64_t{kv_dim});
      EXPECT_TRUE(backend_->fusion()
                      .read_kv(**cache, 0, **rope, slots_from(0, room).data(), out.tensor)
                      .is_ok());
      return host(out.tensor);
    };
    ASSERT_NO_FATAL_FAILURE(expect_same(placed(packed), placed(plain), step * 4));

    const Owned fresh = make_tensor(normal(size_t{room} * 2 * kv_dim), room, 2 * int64_t{kv_dim});
    const auto measured = [&](const std::vector<StoredRun>& runs) {
      std::vector<float> out(room, -1.0f);
      const DeviationRule rule{DeviationMetric::kv, DeviationNorm::l2, false};
      EXPECT_TRUE(backend_->fusion().deviation(fresh.tensor, runs, rule, out.data()).is_ok());
      return out;
    };
    ASSERT_NO_FATAL_FAILURE(expect_same(measured(packed), measured(plain), step));
    const auto inputs = [&](const std::vector<StoredRun>& runs) {
      const Owned out = make_tensor(std::vector<float>(size_t{room} * 2 * kv_dim, -1.0f), room,
                                    2 * int64_t{kv_dim});
      EXPECT_TRUE(backend_->fusion().drift_inputs(fresh.tensor, runs, {}, out.tensor).is_ok());
      return host(out.tensor);
    };
    const auto got = inputs(packed), want = inputs(plain);
    for (size_t i = 0; i < got.size(); ++i) {
      // A difference of two numbers: what the stored one may be off by.
      ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]), step * 12) << i;
    }

    const auto handed_out = [&](const std::vector<StoredRun>& runs) {
      std::vector<float> out(size_t{room} * 2 * kv_dim, 0.0f);
      HostKv dst;
      dst.k = reinterpret_cast<std::byte*>(out.data());
      dst.v = reinterpret_cast<std::byte*>(out.data() + kv_dim);
      dst.row_stride = size_t{2} * kv_dim;
      dst.head_stride = c.head_dim;
      dst.n_kv_heads = c.n_kv_heads;
      dst.head_dim = c.head_dim;
      EXPECT_TRUE(backend_->host().scatter(dst, **rope, runs, skip.data(), corrects).is_ok());
      return out;
    };
    ASSERT_NO_FATAL_FAILURE(expect_same(handed_out(packed), handed_out(plain), step * 4));
  }
}

}  // namespace blend::test
