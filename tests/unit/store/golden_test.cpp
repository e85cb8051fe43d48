// Stores that were written once and are committed: this release reads them, and names what is wrong
// with the damaged ones. tests/golden-store/make_golden_store.cpp says how they were made.
#include <zstd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <tuple>

#include "../../golden-store/golden_store.h"
#include "store/lmdb/manifest.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

// Unpacks a golden store into `dir`.
void unpack(const std::string& name, const TempDir& dir) {
  std::ifstream in(std::string(BLEND_GOLDEN_STORE_DIR) + "/" + name + ".mdb.zst", std::ios::binary);
  ASSERT_TRUE(in) << name;
  const std::string packed{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = ZSTD_getFrameContentSize(packed.data(), packed.size());
  ASSERT_LT(bytes, 10u << 20);
  std::string out(bytes, '\0');
  ASSERT_EQ(bytes, ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size()));
  std::ofstream(dir.file("data.mdb"), std::ios::binary) << out;
}

// As compare(); the rounded codecs within half a step.
Status look(ChunkStore& store, const ChunkRecord& want) {
  const Codec codec = want.codec.value();
  if (is_lossless(codec)) return compare(store, want);
  BLEND_ASSIGN(const auto snapshot, store.snapshot());
  BLEND_ASSIGN(const auto source, snapshot->open(want.meta.id));
  const ChunkShape& shape = source->meta().shape;
  if (source->meta().codec != codec || !(shape == want.meta.shape)) {
    return {BLEND_E_INTERNAL, "another description"};
  }
  std::vector<std::byte> layer(shape.layer_bytes());
  const auto size = static_cast<size_t>(dtype_size(shape.dtype));
  const auto value = [&](const std::byte* p) {
    float x = 0;
    uint16_t h = 0;
    std::memcpy(&x, p, size == 4 ? 4 : 0);
    std::memcpy(&h, p, 2);
    return size == 4 ? x : shape.dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
  };
  // The range of all values is 95 / 64.
  const float step = codec == Codec::int8 ? 1.0f / 127 * 1.01f : 1.5f / 15 * 1.01f;
  for (uint32_t l = 0; l < shape.n_layers; ++l) {
    BLEND_RETURN_IF_ERROR(source->read_layer(l, layer.data()));
    for (size_t at = 0; at < layer.size(); at += size) {
      if (std::abs(value(&layer[at]) - value(want.k(l) + at)) > step / 2 + 0.004f) {
        return {BLEND_E_INTERNAL, "wrong values"};
      }
    }
  }
  return Status::ok();
}

TEST(GoldenStore, TheGoodOneIsReadWholeAndCanBeWrittenTo) {
  TempDir dir;
  unpack("good", dir);
  const auto store = open_store(dir.path());
  ASSERT_NE(nullptr, store);
  for (const auto& r : golden_records()) EXPECT_OK(look(*store, *r));
  EXPECT_OK(store->for_each(true, [](auto&, const std::string& problem) {
    EXPECT_EQ("", problem);
    return 0;
  }));
  EXPECT_EQ(golden_records().size(), take(store->stat()).n_chunks);
  // Older than names: it takes one.
  bool changed = false;
  EXPECT_OK(store->rename(golden_records()[0]->meta.id, ChunkName{"late#1", {}}, &changed));
  EXPECT_TRUE(changed);
  EXPECT_OK(store->put(*make_record(99)));
  EXPECT_OK(store->remove(golden_records()[1]->meta.id));
  EXPECT_OK(look(*store, *golden_records()[0]));
}

TEST(GoldenStore, ChunksOfTheNamedOneHaveTheirNames) {
  TempDir dir;
  unpack("named", dir);
  const auto store = open_store(dir.path());
  ASSERT_NE(nullptr, store);
  EXPECT_OK(look(*store, *golden_records()[0]));
  const ChunkName want{"manual.pdf#1", "draft lang=en"};
  EXPECT_EQ(want, take(store->stored(golden_records()[0]->meta.id))->layout().meta.name);
}

// What this release writes for the same chunks has the same manifests, checksums included: nothing
// about the format has changed by accident. Codec zstd may compress differently with its library.
TEST(GoldenStore, TheSameChunksAreStoredTheSame) {
  TempDir dir;
  unpack("good", dir);
  const auto store = open_store(dir.path());
  std::map<std::string, uint64_t> stored;
  EXPECT_OK(store->for_each(false, [&](const ChunkMeta& m, const std::string&) {
    stored[to_hex(m.id)] = m.stored_bytes;
    return 0;
  }));
  for (const auto& r : golden_records()) {
    if (r->codec == Codec::zstd) continue;
    const auto now = take(encode_chunk(*r, *r->codec));
    EXPECT_EQ(stored[to_hex(r->meta.id)], now.manifest.meta.stored_bytes);
  }
}

TEST(GoldenStore, AFlippedBitInAPieceCostsOneLayerOfOneChunk) {
  TempDir dir;
  unpack("flipped-piece", dir);
  int events = 0;
  const auto store = open_store(dir.path(), {}, [&](int32_t, const std::string&) { ++events; });
  const auto all = golden_records();
  const Status s = look(*store, *all[0]);
  EXPECT_EQ(BLEND_E_CORRUPT, s.code());
  EXPECT_NE(std::string::npos, s.message().find("layer 1")) << s.message();
  for (size_t i = 1; i < all.size(); ++i) EXPECT_OK(look(*store, *all[i]));
  EXPECT_OK(store->put(*all[0]));
  EXPECT_OK(look(*store, *all[0]));
}

TEST(GoldenStore, AFlippedBitInAManifestIsAMissAndAnEvent) {
  TempDir dir;
  unpack("flipped-manifest", dir);
  int events = 0;
  const auto store = open_store(dir.path(), {}, [&](int32_t, const std::string&) { ++events; });
  const auto all = golden_records();
  EXPECT_CODE(BLEND_E_CORRUPT, look(*store, *all[0]));
  EXPECT_EQ(1, events);
  EXPECT_FALSE(take(store->contains(all[0]->meta.id)));
  for (size_t i = 1; i < all.size(); ++i) EXPECT_OK(look(*store, *all[i]));
}

TEST(GoldenStore, TruncatedForeignAndOlderOnesAreRefusedAndLeftAlone) {
  for (const auto& [name, code, text] : {std::tuple{"truncated", BLEND_E_CORRUPT, "truncated"},
                                         std::tuple{"foreign", BLEND_E_FORMAT, "not an LMDB file"},
                                         std::tuple{"version-1", BLEND_E_MISMATCH, "version 1"}}) {
    TempDir dir;
    unpack(name, dir);
    std::ifstream before(dir.file("data.mdb"), std::ios::binary);
    const std::string was{std::istreambuf_iterator<char>(before), {}};
    const Status s = open_lmdb_store(dir.path(), {}, {}).status();
    EXPECT_EQ(code, s.code()) << name << ": " << s.message();
    EXPECT_NE(std::string::npos, s.message().find(text)) << s.message();
    std::ifstream after(dir.file("data.mdb"), std::ios::binary);
    EXPECT_TRUE(was == (std::string{std::istreambuf_iterator<char>(after), {}})) << name;
  }
}

}  // namespace
}  // namespace blend::test
