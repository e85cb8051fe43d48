// The GGUF reader: what it reads, and what it says of files that lie.
#include "model/gguf_reader.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/gguf_writer.h"

namespace blend {
namespace {

using test::gguf_bytes;
using test::GgufWriter;

// In a heap block of exactly its size, so that the address sanitizer sees every byte too far.
class Parsed {
 public:
  explicit Parsed(const std::string& bytes)
      : bytes_(bytes.begin(), bytes.end()),
        reader_(GgufReader::parse(std::as_bytes(std::span(bytes_)))) {}
  const Status& status() const { return reader_.status(); }
  GgufReader& operator*() { return reader_.value(); }
  GgufReader* operator->() { return &reader_.value(); }

 private:
  std::vector<char> bytes_;
  Result<GgufReader> reader_;
};

void expect_error(const std::string& bytes, int32_t code, const std::string& part) {
  const Parsed p(bytes);
  EXPECT_EQ(p.status().code(), code) << p.status().message();
  EXPECT_NE(p.status().message().find(part), std::string::npos) << p.status().message();
}

std::string four(float f) { return gguf_bytes(f); }

TEST(GgufReader, ReadsKeysAndTensorsOfBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter w(version);
    w.u32("a", 7).i32("b", -3).u64("c", 1ull << 40).f32("d", 0.5f).boolean("e", true);
    w.string("f", "text").strings("g", {"x", "", "long"}).f32s("h", {1, 2}).i32s("i", {3, -4});
    w.tensor("one", test::kGgmlF32, {3, 2}, std::string(24, 'o'));
    w.tensor("two", test::kGgmlF16, {5}, std::string(10, 't'));
    const std::string bytes = w.bytes();
    Parsed r(bytes);
    ASSERT_TRUE(r.status().is_ok()) << r.status().message();
    EXPECT_EQ(*r->get_u32("a").value(), 7u);
    EXPECT_EQ(r->get_u32("b").status().code(), BLEND_E_FORMAT) << "negative";
    EXPECT_EQ(r->get_u32("c").status().code(), BLEND_E_FORMAT) << "too large";
    EXPECT_EQ(*r->get_float("d").value(), 0.5);
    EXPECT_EQ(*r->get_float("b").value(), -3.0);
    EXPECT_EQ(*r->get_bool("e").value(), true);
    EXPECT_EQ(*r->get_string("f").value(), "text");
    EXPECT_EQ(*r->get_strings("g").value(), (std::vector<std::string>{"x", "", "long"}));
    EXPECT_EQ(*r->get_floats("h").value(), (std::vector<float>{1, 2}));
    EXPECT_EQ(*r->get_ints("i").value(), (std::vector<int32_t>{3, -4}));
    EXPECT_FALSE(r->get_u32("absent").value().has_value());
    EXPECT_EQ(r->get_bool("a").status().code(), BLEND_E_FORMAT);
    EXPECT_EQ(r->get_u32("h").status().code(), BLEND_E_UNSUPPORTED) << "a value per layer";
    EXPECT_EQ(r->get_strings("h").status().code(), BLEND_E_FORMAT);

    const GgufTensor* one = r->tensor("one");
    const GgufTensor* two = r->tensor("two");
    ASSERT_NE(one, nullptr);
    ASSERT_NE(two, nullptr);
    EXPECT_EQ(one->dims, (std::vector<uint64_t>{3, 2}));
    EXPECT_EQ(bytes.substr(one->offset, one->bytes), std::string(24, 'o'));
    EXPECT_EQ(bytes.substr(two->offset, two->bytes), std::string(10, 't'));
    EXPECT_EQ(one->offset % 32, 0u);
    EXPECT_EQ(r->tensor("three"), nullptr);
  }
}

TEST(GgufReader, HonoursTheAlignment) {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufWriter w;
    w.alignment(alignment).tensor("t", test::kGgmlF32, {1}, four(1));
    w.tensor("u", test::kGgmlF32, {1}, four(2));
    const std::string bytes = w.bytes();
    Parsed r(bytes);
    ASSERT_TRUE(r.status().is_ok()) << r.status().message();
    EXPECT_EQ(bytes.substr(r->tensor("u")->offset, 4), four(2)) << alignment;
  }
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 21}) {
    expect_error(GgufWriter().u32("general.alignment", alignment).header(), BLEND_E_FORMAT,
                 "general.alignment");
  }
}

TEST(GgufReader, RefusesOtherVersionsAndByteOrders) {
  expect_error("GGML....", BLEND_E_FORMAT, "GGUF");
  expect_error("GG", BLEND_E_FORMAT, "GGUF");
  expect_error("GGUF", BLEND_E_FORMAT, "byte 4");
  expect_error(GgufWriter(1).header(), BLEND_E_UNSUPPORTED, "version 1");
  expect_error(GgufWriter(4).header(), BLEND_E_UNSUPPORTED, "version 4");
  expect_error(GgufWriter(0).header(), BLEND_E_UNSUPPORTED, "version 0");
  expect_error(GgufWriter(3u << 24).header(), BLEND_E_UNSUPPORTED, "big-endian");
  std::string reversed = GgufWriter().header();
  reversed.replace(0, 4, "FUGG");
  expect_error(reversed, BLEND_E_UNSUPPORTED, "big-endian");
}

TEST(GgufReader, RefusesCountsThatDoNotFit) {
  for (const size_t at : {size_t{8}, size_t{16}}) {  // tensors, keys
    for (const uint64_t n : {uint64_t{2}, uint64_t{1} << 32, ~uint64_t{0}}) {
      std::string bytes = GgufWriter().u32("k", 1).header();
      bytes.replace(at, 8, gguf_bytes(n));
      expect_error(bytes, BLEND_E_FORMAT, n == 2 ? "" : "byte 8");
    }
  }
  // Lengths of a key's name, a string, and arrays.
  const uint64_t huge = ~uint64_t{0};
  std::string name = GgufWriter().u32("key", 1).header();
  name.replace(24, 8, gguf_bytes(huge));
  expect_error(name, BLEND_E_FORMAT, "byte 24");
  const auto key = [](uint32_t type, const std::string& payload) {
    return GgufWriter().value("a key", type, payload).header();
  };
  expect_error(key(8, gguf_bytes(huge)), BLEND_E_FORMAT, "a key");
  expect_error(key(8, gguf_bytes(uint64_t{5}) + "four"), BLEND_E_FORMAT, "a key");
  for (const uint32_t element : {0u, 4u, 8u, 9u, 12u}) {
    for (const uint64_t n : {huge, huge / 8 + 2, uint64_t{1000}}) {
      expect_error(key(9, gguf_bytes(element) + gguf_bytes(n) + std::string(16, '\0')),
                   BLEND_E_FORMAT, "a key");
    }
  }
}

TEST(GgufReader, RefusesUnknownTypesAndDeepNesting) {
  const auto key = [](uint32_t type, const std::string& payload) {
    return GgufWriter().value("a key", type, payload).header();
  };
  expect_error(key(13, std::string(16, '\0')), BLEND_E_FORMAT, "value type 13");
  expect_error(key(9, gguf_bytes(77u) + gguf_bytes(uint64_t{1}) + "x"), BLEND_E_FORMAT,
               "element type 77");
  expect_error(key(7, "\2"), BLEND_E_FORMAT, "neither 0 nor 1");
  const auto nested = [&](int depth) {
    std::string payload = gguf_bytes(0u) + gguf_bytes(uint64_t{1}) + "x";
    for (int i = 1; i < depth; ++i) payload = gguf_bytes(9u) + gguf_bytes(uint64_t{1}) + payload;
    return key(9, payload);
  };
  EXPECT_TRUE(Parsed(nested(4)).status().is_ok());
  expect_error(nested(5), BLEND_E_FORMAT, "nested");
  expect_error(nested(1000), BLEND_E_FORMAT, "nested");
}

TEST(GgufReader, RefusesDuplicates) {
  GgufWriter keys;
  keys.u32("twice", 1).u32("once", 1).add_raw_key("twice", 4, gguf_bytes(2u));
  expect_error(keys.header(), BLEND_E_FORMAT, "key 'twice'");
  GgufWriter tensors;
  for (int i = 0; i < 2; ++i) {
    tensors.add_raw_tensor("same", test::kGgmlF32, {1}, 4, [] { return four(1); });
  }
  expect_error(tensors.bytes(), BLEND_E_FORMAT, "tensor 'same'");
  expect_error(GgufWriter().u32("", 1).header(), BLEND_E_FORMAT, "no name");
}

TEST(GgufReader, ChecksShapesAndSizes) {
  const auto tensor = [](uint32_t type, const std::vector<uint64_t>& dims) {
    return GgufWriter().tensor("a tensor", type, dims, std::string(64, '\0')).bytes();
  };
  const uint64_t big = uint64_t{1} << 32;
  EXPECT_TRUE(Parsed(tensor(0, {2, 2, 2, 2})).status().is_ok());
  expect_error(tensor(0, {}), BLEND_E_FORMAT, "dimensions");
  expect_error(tensor(0, {1, 1, 1, 1, 1}), BLEND_E_FORMAT, "5 dimensions");
  expect_error(tensor(0, {4, 0}), BLEND_E_FORMAT, "dimension 1");
  expect_error(tensor(0, {17}), BLEND_E_FORMAT, "a tensor");
  expect_error(tensor(0, {big, big}), BLEND_E_FORMAT, "overflows");
  expect_error(tensor(0, {big, big, big, big}), BLEND_E_FORMAT, "overflows");
  expect_error(tensor(0, {uint64_t{1} << 62}), BLEND_E_FORMAT, "overflows");
  expect_error(tensor(28, {uint64_t{1} << 61}), BLEND_E_FORMAT, "overflows");
  expect_error(tensor(test::kGgmlQ8_0, {33}), BLEND_E_FORMAT, "Q8_0");
  EXPECT_TRUE(Parsed(tensor(test::kGgmlQ8_0, {32})).status().is_ok());
  expect_error(tensor(test::kGgmlQ8_0, {64}), BLEND_E_FORMAT, "a tensor");
  EXPECT_EQ(ggml_type_name(12), "Q4_K");
  EXPECT_EQ(ggml_type_name(12345), "type 12345");
}

TEST(GgufReader, ChecksOffsets) {
  GgufWriter w;
  w.tensor("first", test::kGgmlF32, {16}, std::string(64, 'a'));
  w.tensor("second", test::kGgmlF32, {16}, std::string(64, 'b'));
  const std::string good = w.bytes();
  ASSERT_TRUE(Parsed(good).status().is_ok());
  const size_t offset_at = w.header().size() - 8;  // the second tensor's
  const auto with_offset = [&](uint64_t offset) {
    std::string bytes = good;
    bytes.replace(offset_at, 8, gguf_bytes(offset));
    return bytes;
  };
  expect_error(with_offset(1), BLEND_E_FORMAT, "multiple of the alignment");
  expect_error(with_offset(32), BLEND_E_FORMAT, "overlap");
  expect_error(with_offset(0), BLEND_E_FORMAT, "overlap");
  expect_error(with_offset(96), BLEND_E_FORMAT, "second");
  expect_error(with_offset(~uint64_t{31}), BLEND_E_FORMAT, "second");
  expect_error(with_offset(uint64_t{1} << 63), BLEND_E_FORMAT, "second");
  expect_error(good.substr(0, good.size() - 1), BLEND_E_FORMAT, "truncated");
  EXPECT_TRUE(Parsed(good + "trailing").status().is_ok());
}

TEST(GgufReader, NamesStayReadableInMessages) {
  GgufWriter w;
  w.add_raw_key("bad\n\xff\0", 99, "");
  const Parsed p(w.header());
  for (const char c : p.status().message()) EXPECT_TRUE(c >= ' ' && c < 127);
}

}  // namespace
}  // namespace blend
