// Chunks where a layer keeps something else than K and V: rows of another width, or a state of a
// size that does not depend on the chunk's length.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "cpu/convert.h"
#include "store/chunk/description.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/transfer.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

using Keep = LayerShape::Keep;

// Attention, rows of another width, a state, attention with smaller heads.
ChunkShape mixed(uint32_t n_tokens, DType dtype) {
  ChunkShape shape{4, n_tokens, 32, dtype, 16};
  shape.layers = {{Keep::kv, 32, 0}, {Keep::rows, 40, 0}, {Keep::state, 24, 7}, {Keep::kv, 16, 0}};
  return shape;
}

// Numbers that every codec takes.
std::shared_ptr<ChunkRecord> numbers(uint32_t seed, const ChunkShape& shape, Codec codec) {
  auto r = make_record(seed, shape);
  r->codec = codec;
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> x(r->data.bytes() / static_cast<size_t>(dtype_size(shape.dtype)));
  for (float& e : x) e = draw(rng);
  EXPECT_TRUE(kernels::encode(x.data(), x.size(), shape.dtype, r->data.data()));
  return r;
}

TEST(LayersOfOtherKinds, LieOneAfterTheOther) {
  const ChunkShape s = mixed(9, DType::f16);
  EXPECT_EQ(s.layer_bytes(0), size_t{2} * 9 * 32 * 2);
  EXPECT_EQ(s.layer_bytes(1), size_t{2} * 9 * 40 * 2);
  EXPECT_EQ(s.layer_bytes(2), size_t{2} * 7 * 24 * 2);
  EXPECT_EQ(s.layer_at(3), s.layer_bytes(0) + s.layer_bytes(1) + s.layer_bytes(2));
  EXPECT_EQ(s.total_bytes(), s.layer_at(3) + s.layer_bytes(3));
  EXPECT_EQ(s.most_layer_bytes(), s.layer_bytes(1));
  EXPECT_EQ(s.rows(2), 7u);
  EXPECT_TRUE(shape_is_sane(s));
}

TEST(LayersOfOtherKinds, ImpossibleOnesAreRefused) {
  const auto bad = [](const auto& change) {
    ChunkShape s = mixed(9, DType::f16);
    change(s);
    EXPECT_FALSE(shape_is_sane(s));
    auto r = make_record(1);
    r->meta.shape = s;
    EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, check_record(*r));
  };
  bad([](ChunkShape& s) { s.layers.pop_back(); });
  bad([](ChunkShape& s) { s.layers[1].width = 0; });
  bad([](ChunkShape& s) { s.layers[1].n_rows = 3; });  // it has a row a token
  bad([](ChunkShape& s) { s.layers[2].n_rows = 0; });  // a state of nothing
  bad([](ChunkShape& s) { s.layers[2].keep = static_cast<Keep>(3); });
  bad([](ChunkShape& s) { s.layers[2].width = s.layers[2].n_rows = UINT32_MAX; });
}

// Put, opened again, exported and imported, by every codec and from memory: byte for byte where the
// codec keeps every byte, and close where it rounds.
TEST(LayersOfOtherKinds, ComeBackFromAStore) {
  for (uint32_t c = 0; c < kCodecs; ++c) {
    const auto codec = static_cast<Codec>(c);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << codec_name(codec) << ' ' << dtype_name(dtype));
      const TempDir dir;
      // Of one token, few, and several pieces.
      std::vector<std::shared_ptr<ChunkRecord>> records;
      for (const uint32_t n : {1u, 9u, 3001u}) {
        records.push_back(
            numbers(static_cast<uint32_t>(records.size()) + 1, mixed(n, dtype), codec));
      }
      std::vector<std::vector<std::byte>> first;  // as they come back
      for (const bool reopened : {false, true}) {
        StoreOptions options;
        options.ram_bytes = reopened ? size_t{64} << 20 : 0;
        const auto store = open_store(dir.file("s"), options);
        for (size_t i = 0; i < records.size(); ++i) {
          const ChunkRecord& want = *records[i];
          if (!reopened) EXPECT_OK(store->put(want));
          const auto snapshot = take(store->snapshot());
          const auto source = take(snapshot->open(want.meta.id));
          ASSERT_EQ(source->meta().shape, want.meta.shape);
          auto back = std::make_shared<ChunkRecord>();
          back->meta = source->meta();
          back->data = take(AlignedBuffer::allocate(want.data.bytes()));
          for (uint32_t l = 0; l < 4; ++l) EXPECT_OK(source->read_layer(l, back->k(l)));
          const std::vector<std::byte> bytes(back->data.data(),
                                             back->data.data() + back->data.bytes());
          if (!reopened) first.push_back(bytes);
          EXPECT_TRUE(bytes == first[i]);
          for (const uint32_t depth : {1u, 3u}) EXPECT_OK(compare_staged(*source, *back, depth));
          if (is_lossless(codec)) EXPECT_OK(compare(*source, want));
          std::vector<float> a(bytes.size() / static_cast<size_t>(dtype_size(dtype))), b(a.size());
          kernels::decode_ref(want.data.data(), dtype, a.size(), a.data());
          kernels::decode_ref(back->data.data(), dtype, b.size(), b.data());
          double error = 0, size = 0;
          for (size_t e = 0; e < a.size(); ++e) {
            error += std::pow(static_cast<double>(a[e]) - static_cast<double>(b[e]), 2);
            size += std::pow(static_cast<double>(a[e]), 2);
          }
          EXPECT_LT(std::sqrt(error / size), codec == Codec::rans ? 0.4 : 0.1);
        }
        EXPECT_OK(store->for_each(true, [](const ChunkMeta&, const std::string& problem) {
          EXPECT_EQ("", problem);
          return 0;
        }));
        if (reopened) continue;
        Transfer out, in;
        out = take(export_chunks(*store, {}, dir.file("x"), {}));
        EXPECT_EQ(out.n_chunks, records.size());
        const auto other = open_store(dir.file("other"));
        EXPECT_OK(import_chunks(*other, dir.file("x"), false, {}, &in));
        const auto snapshot = take(other->snapshot());
        for (size_t i = 0; i < records.size(); ++i) {
          const auto source = take(snapshot->open(records[i]->meta.id));
          auto back = std::make_shared<ChunkRecord>();
          back->meta = records[i]->meta;
          back->data = take(AlignedBuffer::allocate(first[i].size()));
          std::copy(first[i].begin(), first[i].end(), back->data.data());
          EXPECT_OK(compare(*source, *back));
        }
      }
    }
  }
}

// A chunk of plain layers has the bytes that it had before there were others.
TEST(LayersOfOtherKinds, ChangeNoOtherDescription) {
  auto chunk = take(encode_chunk(*make_record(5), Codec::none));
  const std::string plain = encode_description(chunk.manifest);
  EXPECT_EQ(plain.size(), chunk.manifest.description_bytes());
  const auto record = numbers(5, mixed(8, DType::f16), Codec::none);
  auto other = take(encode_chunk(*record, Codec::none));
  const std::string text = encode_description(other.manifest);
  EXPECT_EQ(text.size(), other.manifest.description_bytes());
  const auto bytes = [](const std::string& s) {
    return std::as_bytes(std::span(s.data(), s.size()));
  };
  const StoredLayout back = take(decode_description(bytes(text), record->meta.id));
  EXPECT_EQ(back.meta.shape, record->meta.shape);
  EXPECT_EQ(back.meta.tokens, record->meta.tokens);
  // A forged list, with a checksum that fits.
  for (const auto& change : {+[](ChunkShape& s) { s.layers[2].n_rows = 8; },
                             +[](ChunkShape& s) { s.layers[1].width = 39; },
                             +[](ChunkShape& s) {
                               s.layers[3] = {Keep::state, 16, 8};
                             },
                             +[](ChunkShape& s) { s.layers[0].width = 48; }}) {
    StoredLayout forged = other.manifest;
    change(forged.meta.shape);
    const auto opened = decode_description(bytes(encode_description(forged)), record->meta.id);
    // Eight rows of a state of the width are as long as eight tokens of K and V: that one is sound.
    const bool same_length = forged.meta.shape.layers[3].keep == Keep::state;
    EXPECT_EQ(opened.is_ok(), same_length);
    EXPECT_EQ(opened.status().code(), same_length ? BLEND_OK : BLEND_E_CORRUPT);
  }
}

}  // namespace
}  // namespace blend::test
