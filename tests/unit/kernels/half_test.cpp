// f16 and bf16 against a rule in double precision that shares nothing with formats/half.h: a value
// is sign * mantissa * 2^exponent, rounding is to the nearest representable value, ties to the
// even.
#include "formats/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "support/random_model.h"

namespace blend {
namespace {

struct Format {
  int mantissa_bits;
  int min_exponent;  // of normal numbers
  int max_exponent;
  uint16_t (*encode)(float);
  float (*decode)(uint16_t);
};
constexpr Format kF16 = {10, -14, 15, f32_to_f16, f16_to_f32};
constexpr Format kBf16 = {7, -126, 127, f32_to_bf16, bf16_to_f32};

double rule_decode(const Format& f, uint32_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent_bits = 15 - f.mantissa_bits;
  const auto exponent = static_cast<int>(bits >> f.mantissa_bits & ((1u << exponent_bits) - 1));
  const auto mantissa = static_cast<double>(bits & ((1u << f.mantissa_bits) - 1));
  const double unit = std::ldexp(1.0, -f.mantissa_bits);
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa * unit, f.min_exponent);
  return sign * std::ldexp(1 + mantissa * unit, exponent - 1 + f.min_exponent);
}

// The representable value next to x, as a double; infinity past the last one's upper half.
double rule_round(const Format& f, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  exponent = std::max(exponent - 1, f.min_exponent);
  const double quantum = std::ldexp(1.0, exponent - f.mantissa_bits);
  const double rounded = std::nearbyint(x / quantum) * quantum;  // ties to even by default
  const double limit = std::ldexp(1.0, f.max_exponent + 1);
  return std::abs(rounded) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                    : rounded;
}

void expect_rounds(const Format& f, float x) {
  const double got = rule_decode(f, f.encode(x));
  if (std::isnan(x)) {
    EXPECT_TRUE(std::isnan(got)) << std::hex << std::bit_cast<uint32_t>(x);
    EXPECT_EQ(std::bit_cast<uint32_t>(x) >> 31, f.encode(x) >> 15u);
    return;
  }
  const double want = rule_round(f, x);
  EXPECT_EQ(got, want) << x << " bits " << std::hex << std::bit_cast<uint32_t>(x);
  EXPECT_EQ(std::signbit(got), std::signbit(want)) << x;
}

class HalfTest : public ::testing::TestWithParam<const Format*> {};

TEST_P(HalfTest, DecodesEveryValue) {
  const Format& f = *GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double want = rule_decode(f, bits);
    const float got = f.decode(static_cast<uint16_t>(bits));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
      // A representable value comes back as it went.
      ASSERT_EQ(f.encode(got), bits);
    }
  }
}

// Around every value and every midpoint between two of them.
TEST_P(HalfTest, RoundsToNearestEven) {
  const Format& f = *GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = rule_decode(f, bits);
    if (!std::isfinite(value)) continue;
    const double next = rule_decode(f, bits + 1);
    const auto here = static_cast<float>(value);
    std::vector<float> around = {here};
    if (std::isfinite(next)) {
      // bf16's midpoints need 9 bits of mantissa, f16's 12: floats hold both.
      around.push_back(static_cast<float>((value + next) / 2));
    }
    const float inf = std::numeric_limits<float>::infinity();
    for (const float x : around) {
      expect_rounds(f, x);
      expect_rounds(f, std::nextafter(x, inf));
      expect_rounds(f, std::nextafter(x, -inf));
    }
    if (HasFailure()) return;
  }
}

TEST_P(HalfTest, AwkwardFloats) {
  const Format& f = *GetParam();
  for (const uint32_t bits :
       {0x00000001u, 0x007fffffu, 0x00800000u, 0x80000000u, 0x80000001u, 0x7f7fffffu, 0xff7fffffu,
        0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xff800001u, 0xffffffffu, 0x7f7f7fffu,
        0x7f7f8000u, 0x477fe000u, 0x477fefffu, 0x477ff000u, 0x477ff001u, 0x33000000u, 0x33000001u,
        0x32ffffffu, 0x387fc000u, 0x387fe000u, 0x387fffffu, 0x38800000u}) {
    expect_rounds(f, std::bit_cast<float>(bits));
  }
  test::SplitMix rng(7);
  for (int i = 0; i < 1000000 && !HasFailure(); ++i) {
    expect_rounds(f, std::bit_cast<float>(static_cast<uint32_t>(rng.next())));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest, ::testing::Values(&kF16, &kBf16),
                         [](const auto& p) { return p.param == &kF16 ? "f16" : "bf16"; });

}  // namespace
}  // namespace blend
