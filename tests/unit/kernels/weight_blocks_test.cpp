// Quantized weights against what gguf-py makes of the same blocks (golden/weight_blocks.py).
#include "formats/weight_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace blend {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

BlockType type_of(const std::string& name) {
  for (int i = 1; i < kBlockTypes; ++i) {
    if (name == block_type_name(static_cast<BlockType>(i))) return static_cast<BlockType>(i);
  }
  ADD_FAILURE() << name;
  return BlockType::none;
}

TEST(WeightBlocks, DecodeAsGgufPyDoes) {
  std::ifstream file(BLEND_TEST_SOURCE_DIR "/unit/model/golden/weight_blocks.txt");
  ASSERT_TRUE(file);
  std::set<std::string> seen;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, blocks_hex, values_hex;
    words >> name >> blocks_hex >> values_hex;
    SCOPED_TRACE(name);
    seen.insert(name);
    const BlockType type = type_of(name);
    const std::vector<std::byte> value_bytes = from_hex(values_hex);
    std::vector<float> want(value_bytes.size() / sizeof(float)), got(want.size());
    std::memcpy(want.data(), value_bytes.data(), value_bytes.size());
    // At an odd address: files align tensors, but slices of a row need not be.
    std::vector<std::byte> blocks = from_hex("00" + blocks_hex);
    ASSERT_EQ(blocks.size() - 1, want.size() / block_elements(type) * block_bytes(type));
    ASSERT_EQ(weight_row_bytes(DType::f32, type, want.size()), blocks.size() - 1);
    decode_weights(DType::f32, type, blocks.data() + 1, got.size(), got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
          << "element " << i << ": " << got[i] << ", " << want[i];
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kBlockTypes - 1)) << "every type";
}

TEST(WeightBlocks, EveryTypeHasItsNumber) {
  for (int i = 1; i < kBlockTypes; ++i) {
    const auto type = static_cast<BlockType>(i);
    EXPECT_EQ(block_type_of(ggml_type_of(type)), type) << block_type_name(type);
    EXPECT_EQ(256 % block_elements(type), 0u) << "kernels go by parts of 256";
  }
  EXPECT_EQ(block_type_of(0), BlockType::none) << "f32";
  EXPECT_EQ(block_type_of(15), BlockType::none) << "q8_k";
}

TEST(WeightBlocks, PlainTypes) {
  const uint16_t halves[] = {0x3c00, 0xc000};
  const auto* const data = reinterpret_cast<const std::byte*>(halves);
  float out[2];
  decode_weights(DType::f16, BlockType::none, data, 2, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  decode_weights(DType::bf16, BlockType::none, data, 2, out);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(weight_row_bytes(DType::bf16, BlockType::none, 5), 10u);
}

}  // namespace
}  // namespace blend
