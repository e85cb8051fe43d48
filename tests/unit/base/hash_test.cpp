#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace blend {
namespace {

// FIPS 180-2's test vectors of SHA-256.
TEST(Sha256, KnownVectors) {
  EXPECT_EQ(to_hex(Sha256Hasher().finish()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  // Numbers are hashed as 8 little-endian bytes and nothing else, so a message of whole words can
  // be fed through them.
  const std::string message = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  Sha256Hasher hasher;
  for (size_t i = 0; i < message.size(); i += 8) {
    uint64_t word = 0;
    for (size_t b = 8; b-- > 0;) word = word << 8 | static_cast<uint8_t>(message[i + b]);
    hasher.field(word);
  }
  EXPECT_EQ(to_hex(hasher.finish()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, FieldsCarryTheirLength) {
  // SHA-256 of the bytes 03 00 00 00 00 00 00 00 'a' 'b' 'c'.
  EXPECT_EQ(to_hex(Sha256Hasher().field("abc").finish()),
            "ce91dc5eec0139adf091900d225971d6ad246a845bad791b5693a9d0d55dd391");
  const auto two = [](std::string_view a, std::string_view b) {
    return Sha256Hasher().field(a).field(b).finish();
  };
  EXPECT_NE(two("ab", "c"), two("a", "bc"));
  EXPECT_NE(two("", "abc"), two("abc", ""));
}

TEST(Sha256, HexBothWays) {
  const Sha256 digest = Sha256Hasher().finish();
  const std::string hex = to_hex(digest);
  ASSERT_TRUE(sha256_from_hex(hex).is_ok());
  EXPECT_EQ(sha256_from_hex(hex).value(), digest);
  std::string upper = hex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(sha256_from_hex(upper).value(), digest);
  for (const std::string& bad : {std::string(), hex.substr(1), hex + "0",
                                 std::string("g").append(hex, 1), std::string(64, '\0')}) {
    EXPECT_EQ(sha256_from_hex(bad).status().code(), BLEND_E_INVALID_ARGUMENT) << bad;
  }
}

// The vectors of xxHash's own sanity check: its buffer, seed 0.
TEST(Checksum64, KnownVectors) {
  std::string buffer;
  uint64_t generator = 2654435761u;
  for (int i = 0; i < 256; ++i) {
    buffer.push_back(static_cast<char>(generator >> 56));
    generator *= 11400714785074694797u;
  }
  const auto of = [&](size_t n) { return checksum64(buffer.data(), n); };
  EXPECT_EQ(of(0), 0x2D06800538D394C2u);
  EXPECT_EQ(of(1), 0xC44BDFF4074EECDBu);
  EXPECT_EQ(of(6), 0x27B56A84CD2D7325u);
  EXPECT_EQ(of(12), 0xA713DAF0DFBB77E7u);
  EXPECT_EQ(of(24), 0xA3FE70BF9D3510EBu);
  EXPECT_EQ(of(48), 0x397DA259ECBA1F11u);
  EXPECT_EQ(of(80), 0xBCDEFBBB2C47C90Au);
  EXPECT_EQ(of(195), 0xCD94217EE362EC3Au);
}

TEST(Checksum64, SeesEveryBit) {
  std::string data(300, 'x');
  const uint64_t before = checksum64(data.data(), data.size());
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
    EXPECT_NE(checksum64(data.data(), data.size()), before) << bit;
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
  }
}

}  // namespace
}  // namespace blend
