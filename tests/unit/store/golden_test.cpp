// Stores that were written once and are committed: this release reads them, and names what is wrong
// with the damaged ones. tests/golden-store/make_golden_store.cpp says how they were made.
#include <zstd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <tuple>

#include "../../golden-store/golden_store.h"
#include "base/wire.h"
#include "store/lmdb/catalog/manifest.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

// Hashes of the decoded rows of version-3's chunks.
constexpr const char* kVersionThreeRows =
    "11111175583202359150 10159719153176984280 14358038031653317991 1336056964003745356 "
    "2097068621768855495 4813201581562860572 ";

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
  std::vector<std::byte> layer(shape.most_layer_bytes());
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
    for (size_t at = 0; at < shape.layer_bytes(l); at += size) {
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

TEST(GoldenStore, LayersOfOtherKindsAreReadAndStoredTheSame) {
  TempDir dir;
  unpack("kinds", dir);
  const auto store = open_store(dir.path());
  ASSERT_NE(nullptr, store);
  for (const auto& r : golden_kinds_records()) {
    EXPECT_OK(look(*store, *r));
    if (r->codec == Codec::zstd) continue;
    const auto now = take(encode_chunk(*r, *r->codec));
    EXPECT_EQ(take(store->stored(r->meta.id))->layout().meta.stored_bytes,
              now.manifest.meta.stored_bytes);
  }
}

// This release writes the same manifests for the same chunks, checksums included: nothing
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

// To the bit, whatever decodes them: means, sizes and states are whole numbers. The hash was taken
// when the store was made.
TEST(GoldenStore, VersionThreeIsReadToTheBit) {
  TempDir dir;
  unpack("version-3", dir);
  const auto store = open_store(dir.path());
  ASSERT_NE(nullptr, store);
  const auto snapshot = take(store->snapshot());
  std::string hashes;
  for (const auto& r : golden_rans_records()) {
    const auto source = take(snapshot->open(r->meta.id));
    const ChunkShape& shape = source->meta().shape;
    EXPECT_EQ(Codec::rans, source->meta().codec);
    EXPECT_EQ(r->meta.impact, source->meta().impact);
    std::vector<std::byte> layers(shape.total_bytes());
    for (uint32_t l = 0; l < shape.n_layers; ++l) {
      EXPECT_OK(source->read_layer(l, layers.data() + l * shape.layer_bytes(0)));
    }
    hashes += std::to_string(checksum64(layers.data(), layers.size())) + ' ';
    const auto now = take(encode_chunk(*r, Codec::rans));
    EXPECT_EQ(source->meta().stored_bytes, now.manifest.meta.stored_bytes);
  }
  EXPECT_EQ(hashes, kVersionThreeRows);
}

// How often a data file has a format record of a version, of now or of before.
size_t format_records(const TempDir& dir, char version) {
  std::ifstream in(dir.file("data.mdb"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::string record = std::string("BLENDKV\n") + version + std::string(3, '\0');
  size_t n = 0;
  for (size_t at = 0; (at = bytes.find(record, at)) != std::string::npos; ++at) ++n;
  return n;
}

// Older builds may have a store until it holds what they do not read.
TEST(GoldenStore, AStoreIsOfVersionTwoUntilARecordNeedsThree) {
  TempDir dir;
  unpack("good", dir);
  const auto rans = golden_rans_records()[1];
  {
    const auto store = open_store(dir.path());
    EXPECT_OK(store->put(*make_record(99)));
    EXPECT_EQ(format_records(dir, 3), 0u);
    EXPECT_OK(store->put(*rans));
    EXPECT_GT(format_records(dir, 3), 0u);
  }
  const auto store = open_store(dir.path());
  for (const auto& r : golden_records()) EXPECT_OK(look(*store, *r));
  EXPECT_EQ(take(store->stat()).codecs[4].n_chunks, 1u);
  EXPECT_EQ(take(store->stat()).n_chunks, golden_records().size() + 2);
  // Its record says so too: one that claims less is damaged.
  std::string bytes = encode_manifest(take(encode_chunk(*rans, Codec::rans)).manifest);
  EXPECT_EQ(bytes[4], 3);
  EXPECT_EQ(encode_manifest(take(encode_chunk(*rans, Codec::int4)).manifest)[4], 2);
  // Counters of version 2 end with int4.
  EXPECT_EQ(encode_counters({}).size(), (4 + 3 * 4) * 8 + 8u);
  StoreCounters counters;
  counters.codecs[4].n_chunks = 7;
  EXPECT_EQ(encode_counters(counters).size(), (4 + 3 * 5) * 8 + 8u);
  const std::string both[] = {encode_counters(counters), encode_counters({})};
  EXPECT_TRUE(take(decode_counters(std::as_bytes(std::span(both[0])))) == counters);
  EXPECT_TRUE(take(decode_counters(std::as_bytes(std::span(both[1])))) == StoreCounters{});
  // Sealed, but of the other version.
  const auto resealed = [](std::string record) {
    ByteWriter out;
    out.bytes(record.data(), record.size() - 8);
    out.put<uint64_t>(checksum64(record.data(), record.size() - 8));
    return out.take();
  };
  std::string none = both[0];
  none.replace((4 + 3 * 4) * 8, 8, 8, '\0');
  EXPECT_CODE(BLEND_E_CORRUPT,
              decode_counters(std::as_bytes(std::span(none = resealed(none)))).status());
  bytes[4] = 2;
  EXPECT_CODE(
      BLEND_E_CORRUPT,
      decode_manifest(std::as_bytes(std::span(bytes = resealed(bytes))), rans->meta.id).status());
}

TEST(GoldenStore, AFlippedBitInAPieceCostsOneLayerOfOneChunk) {
  TempDir dir;
  unpack("flipped-piece", dir);
  int events = 0;
  const auto store = open_store(
      dir.path(), {}, [&](int32_t code, const std::string&) { events += code < 0 ? 1 : 0; });
  const auto all = golden_records();
  const Status s = look(*store, *all[0]);
  EXPECT_EQ(BLEND_E_CORRUPT, s.code());
  EXPECT_NE(std::string::npos, s.message().find("layer 1")) << s.message();
  for (size_t i = 1; i < all.size(); ++i) EXPECT_OK(look(*store, *all[i]));
  EXPECT_OK(store->put(*all[0]));
  EXPECT_OK(look(*store, *all[0]));
}

TEST(GoldenStore, AFlippedBitInAManifestIsAMissAndLogged) {
  TempDir dir;
  unpack("flipped-manifest", dir);
  int events = 0;
  const auto store = open_store(
      dir.path(), {}, [&](int32_t code, const std::string&) { events += code < 0 ? 1 : 0; });
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
    const Status s = Store::open(dir.path(), {}, {}).status();
    EXPECT_EQ(code, s.code()) << name << ": " << s.message();
    EXPECT_NE(std::string::npos, s.message().find(text)) << s.message();
    std::ifstream after(dir.file("data.mdb"), std::ios::binary);
    EXPECT_TRUE(was == (std::string{std::istreambuf_iterator<char>(after), {}})) << name;
  }
}

}  // namespace
}  // namespace blend::test
