// safetensors files: what is read, and every way in which a header may lie.
#include "model/safetensors.h"

#include <gtest/gtest.h>

#include "support/random_model.h"

namespace blend {
namespace {

std::string file_of(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

Result<SafetensorsReader> parse(const std::string& file) {
  return SafetensorsReader::parse(std::as_bytes(std::span(file)));
}

void expect_error(const std::string& file, const std::string& part, int32_t code = BLEND_E_FORMAT) {
  const auto reader = parse(file);
  ASSERT_FALSE(reader.is_ok()) << part;
  EXPECT_EQ(reader.status().code(), code) << reader.status().message();
  EXPECT_NE(reader.status().message().find(part), std::string::npos) << reader.status().message();
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\": {\"dtype\": \"" + dtype + "\", \"shape\": " + shape +
         ", \"data_offsets\": " + offsets + "}";
}

TEST(Safetensors, TensorsWithTheirPlaces) {
  const std::string header = std::string("{\"__metadata__\": {\"format\": \"pt\"}, ") +
                             entry("b", "F16", "[2, 3]", "[4, 16]") + ", " +
                             entry("a", "F32", "[1]", "[0, 4]") + ", " +
                             entry("none", "BF16", "[0, 7]", "[16, 16]") + "}  ";
  const auto reader = parse(file_of(header, 16));
  ASSERT_TRUE(reader.is_ok()) << reader.status().message();
  EXPECT_EQ(reader.value().tensors().size(), 3u);
  const SafetensorsTensor* b = reader.value().tensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b->dtype, "F16");
  EXPECT_EQ(b->offset, 8 + header.size() + 4);
  EXPECT_EQ(b->bytes, 12u);
  EXPECT_EQ(reader.value().tensor("c"), nullptr);
  EXPECT_TRUE(parse(file_of("{}", 0)).is_ok());
}

TEST(Safetensors, HeadersThatLie) {
  expect_error("", "too few");
  expect_error("1234567", "too few");
  expect_error(std::string(8, '\xff'), "the first eight bytes");
  expect_error(file_of("{}", 0).substr(0, 9), "the first eight bytes");
  expect_error(file_of("[]", 0), "the header is an array");
  expect_error(file_of("{\"a\"", 0), "the header");
  const auto one = [](const std::string& e) { return std::string("{") + e + "}"; };
  expect_error(file_of(one(entry("a", "F32", "[2]", "[0, 4]")), 4), "tensor 'a' has 4 bytes");
  expect_error(file_of(one(entry("a", "F32", "[1]", "[0, 8]")), 4), "'a' ends at byte 8");
  expect_error(file_of(one(entry("a", "F32", "[1]", "[4, 0]")), 4), "'a'.data_offsets[1]");
  expect_error(file_of(one(entry("a", "F32", "[1]", "[-4, 0]")), 4), "'a'.data_offsets[0]");
  expect_error(file_of(one(entry("a", "F32", "[1]", "[0]")), 4), "'a'.data_offsets");
  expect_error(file_of(one(entry("a", "F32", "[-1]", "[0, 4]")), 4), "'a'.shape[0]");
  expect_error(file_of(one(entry("a", "F32", "1", "[0, 4]")), 4), "'a'.shape");
  expect_error(file_of(one(entry("a", "Q7", "[1]", "[0, 4]")), 4), "'Q7'", BLEND_E_UNSUPPORTED);
  expect_error(file_of("{\"a\": {\"dtype\": \"F32\"}}", 4), "'shape' is missing");
  // Products that overflow, with and without a 0 that would hide it.
  const std::string big = "1099511627776";
  expect_error(file_of(one(entry("a", "F32", "[" + big + ", " + big + "]", "[0, 0]")), 0),
               "more elements");
  expect_error(file_of(one(entry("a", "F32", "[" + big + ", " + big + ", 0]", "[0, 0]")), 0),
               "more elements");
  expect_error(file_of(one(entry("a", "F32", "[99999999999999999999]", "[0, 0]")), 0), "shape[0]");
}

TEST(Safetensors, PlacesThatOverlapOrLeaveHoles) {
  const auto two = [](const std::string& first, const std::string& second) {
    return std::string("{") + entry("a", "F32", "[1]", first) + ", " +
           entry("b", "F32", "[1]", second) + "}";
  };
  EXPECT_TRUE(parse(file_of(two("[0, 4]", "[4, 8]"), 8)).is_ok());
  expect_error(file_of(two("[0, 4]", "[0, 4]"), 8), "tensor 'b' begins");
  expect_error(file_of(two("[0, 4]", "[2, 6]"), 8), "tensor 'b' begins");
  expect_error(file_of(two("[0, 4]", "[8, 12]"), 12), "tensor 'b' begins");
  expect_error(file_of(two("[4, 8]", "[8, 12]"), 12), "tensor 'a' begins");
  expect_error(file_of(two("[0, 4]", "[4, 8]"), 9), "1 bytes after");
  expect_error(file_of(std::string("{") + entry("a", "F32", "[1]", "[0, 4]") + ", " +
                           entry("a", "F32", "[1]", "[4, 8]") + "}",
                       8),
               "'a' stands twice");
}

// Every truncation and thousands of changed bytes: an error, or tensors that lie inside the file.
TEST(Safetensors, Damage) {
  const std::string file =
      file_of(std::string("{") + entry("a.weight", "F32", "[2, 2]", "[0, 16]") + ", " +
                  entry("b", "BF16", "[3]", "[16, 22]") + "}",
              22);
  for (size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(parse(file.substr(0, n)).is_ok());
  test::SplitMix rng(3);
  for (int i = 0; i < 5000; ++i) {
    std::string changed = file;
    for (uint64_t n = 1 + rng.below(3); n > 0; --n) {
      changed[rng.below(changed.size())] =
          static_cast<char>(rng.below(2) ? rng.next() : '0' + rng.below(10));
    }
    const auto reader = parse(changed);
    if (!reader.is_ok()) continue;
    for (const SafetensorsTensor& t : reader.value().tensors()) {
      EXPECT_LE(t.offset, changed.size());
      EXPECT_LE(t.bytes, changed.size() - t.offset);
    }
  }
}

}  // namespace
}  // namespace blend
