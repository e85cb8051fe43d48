#include "support/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace blend::test {
namespace {

// Bytes of one block, written front to back.
class Block {
 public:
  explicit Block(SplitMix& rng) : rng_(rng) {}
  Block& half(double value) {
    const uint16_t h = f32_to_f16(static_cast<float>(value));
    bytes_.push_back(static_cast<char>(h & 255));
    bytes_.push_back(static_cast<char>(h >> 8));
    return *this;
  }
  Block& bits(size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; ++i) bytes_.push_back(static_cast<char>(rng_.below(256)));
    return *this;
  }
  // Eight scales of six bits between 32 and 63, and the same eight as least values.
  Block& part_scales() {
    uint8_t packed[12] = {}, scale[8];
    for (uint8_t& s : scale) s = static_cast<uint8_t>(32 + rng_.below(32));
    for (size_t i = 0; i < 4; ++i) {
      packed[i] = static_cast<uint8_t>(scale[i] | (scale[i + 4] >> 4) << 6);
      packed[i + 4] = packed[i];
      packed[i + 8] = static_cast<uint8_t>((scale[i + 4] & 15) | (scale[i + 4] & 15) << 4);
    }
    bytes_.append(reinterpret_cast<const char*>(packed), sizeof packed);
    return *this;
  }
  // Signed scales of eight bits, 64 to 127 in size.
  Block& signed_scales(size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const auto size = static_cast<int>(64 + rng_.below(64));
      bytes_.push_back(static_cast<char>(rng_.below(2) == 0 ? size : -size));
    }
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  SplitMix& rng_;
  std::string bytes_;
};

// Standard deviation of the integers 0 .. n - 1, all alike.
double spread(double n) { return std::sqrt((n * n - 1) / 12); }

// ---- Types of which only the scale's place is known here: random bits, whose scale is what brings
// the numbers that they decode to at scale 1 to the deviation.

std::vector<size_t> places_of_halves(BlockType type) {
  switch (type) {
    case BlockType::q2_k:
      return {80, 82};
    case BlockType::q3_k:
      return {108};
    case BlockType::tq1_0:
      return {52};
    case BlockType::tq2_0:
      return {64};
    default:
      return {0};
  }
}

void put_scale(BlockType type, double scale, std::string& block) {
  const auto put = [&](size_t at, uint32_t value, uint32_t mask) {
    block[at] = static_cast<char>((static_cast<uint8_t>(block[at]) & ~mask) | (value & mask));
  };
  const uint32_t half = f32_to_f16(static_cast<float>(scale));
  const int exponent = std::ilogb(scale);
  switch (type) {
    case BlockType::mxfp4:
      return put(0, static_cast<uint32_t>(127 + exponent), 255);
    case BlockType::nvfp4:  // four exponents, a power of two each
      for (size_t i = 0; i < 4; ++i) {
        put(i, static_cast<uint32_t>(std::clamp(7 + exponent, 1, 14)) << 3, 255);
      }
      return;
    case BlockType::iq1_m:  // four bits in the upper half of every second byte
      for (size_t i = 0; i < 4; ++i) put(49 + 2 * i, (half >> 4 * i & 15) << 4, 240);
      return;
    default:
      for (const size_t at : places_of_halves(type)) {
        put(at, half & 255, 255);
        put(at + 1, half >> 8, 255);
      }
  }
}

std::string measured_block(BlockType type, double deviation, SplitMix& rng) {
  std::string block = Block(rng).bits(block_bytes(type)).bytes();
  put_scale(type, 1.0, block);
  std::vector<float> values(block_elements(type));
  decode_blocks(type, reinterpret_cast<const std::byte*>(block.data()), values.size(),
                values.data());
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  put_scale(type, deviation / std::sqrt(sum / static_cast<double>(values.size())), block);
  return block;
}

std::string random_block(BlockType type, double deviation, SplitMix& rng) {
  Block b(rng);
  // Scales of parts are uniform in 32 .. 63: their root mean square; 64 .. 127 likewise.
  constexpr double kPart = 48.4, kSigned = 97.3;
  const double d4 = deviation / spread(16), d5 = deviation / spread(32);
  switch (type) {
    case BlockType::none:
      break;
    case BlockType::q4_0:
      b.half(d4).bits(16);
      break;
    case BlockType::q4_1:
      b.half(d4).half(-7.5 * d4).bits(16);
      break;
    case BlockType::q5_0:
      b.half(d5).bits(20);
      break;
    case BlockType::q5_1:
      b.half(d5).half(-15.5 * d5).bits(20);
      break;
    case BlockType::q8_0:
      b.half(deviation / spread(256)).bits(32);
      break;
    case BlockType::q4_k:
      b.half(d4 / kPart).half(7.5 * d4 / kPart).part_scales().bits(128);
      break;
    case BlockType::q5_k:
      b.half(d5 / kPart).half(15.5 * d5 / kPart).part_scales().bits(160);
      break;
    case BlockType::q6_k:
      b.bits(192).signed_scales(16).half(deviation / spread(64) / kSigned);
      break;
    default:
      return measured_block(type, deviation, rng);
  }
  return b.bytes();
}

}  // namespace

std::string random_blocks(BlockType type, uint64_t n, double deviation, SplitMix& rng) {
  std::string data;
  for (uint64_t i = 0; i < n; i += block_elements(type)) data += random_block(type, deviation, rng);
  return data;
}

}  // namespace blend::test
