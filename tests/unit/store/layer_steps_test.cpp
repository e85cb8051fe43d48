// Steps by layer: how finely codec rans rounds each layer of a chunk, as a profile says.
#include <cmath>
#include <cstring>
#include <random>

#include "store/lmdb/catalog/manifest.h"
#include "store/remote/options.h"
#include "store/store.h"
#include "store/transfer.h"
#include "support/temp_dir.h"
#include "unit/store/codec_testing.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr ChunkShape kShape{3, 96, 64, DType::f32, 16};
const std::vector<float> kSteps = {1, 0.25f, 4};

// The same numbers in every layer, so that their errors may be compared.
std::shared_ptr<ChunkRecord> alike_record(uint32_t seed, uint8_t model = 0x5a) {
  auto record = make_record(seed, kShape);
  record->meta.fingerprint.fill(model);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kShape.layer_bytes(0) / sizeof(float));
  for (float& value : x) value = normal(rng);
  for (uint32_t l = 0; l < kShape.n_layers; ++l) {
    std::memcpy(record->k(l), x.data(), kShape.layer_bytes(0));
  }
  return record;
}

float step_of(const EncodedChunk& chunk, uint32_t layer) {
  float step = 0;
  std::memcpy(&step, chunk.stream + chunk.manifest.layers[layer].offset, sizeof step);
  return step;
}

// Root mean square of what a store changed of each layer.
std::vector<double> errors(ChunkStore& store, const ChunkRecord& want) {
  std::vector<double> out;
  const auto snapshot = take(store.snapshot());
  const auto source = take(snapshot->open(want.meta.id));
  Bytes layer(kShape.layer_bytes(0)), exact(kShape.layer_bytes(0));
  for (uint32_t l = 0; l < kShape.n_layers; ++l) {
    EXPECT_OK(source->read_layer(l, layer.data()));
    std::memcpy(exact.data(), want.k(l), exact.size());
    const std::vector<float> x = as_floats(kShape, exact), y = as_floats(kShape, layer);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
    out.push_back(std::sqrt(sum / static_cast<double>(x.size())));
  }
  return out;
}

// Half the usual step, a quarter of that in layer 1, four times that in layer 2.
void expect_split(const std::vector<double>& e) {
  EXPECT_NEAR(e[1] * 4, e[0], 0.1 * e[0]);
  EXPECT_GT(e[2], 2.5 * e[0]);
}
void expect_alike(const std::vector<double>& e) {
  EXPECT_EQ(e[0], e[1]);
  EXPECT_EQ(e[0], e[2]);
}

StoreOptions with_rans() {
  StoreOptions options;
  options.codec = Codec::rans;
  options.codec_step = 0.5;
  return options;
}

TEST(LayerSteps, EachLayerIsRoundedByItsOwn) {
  const auto record = alike_record(1);
  const EncodedChunk alike = take(encode_chunk(*record, Codec::rans, 0.5));
  const EncodedChunk split = take(encode_chunk(*record, Codec::rans, 0.5, kSteps));
  const double elements = static_cast<double>(kShape.layer_bytes(0)) / sizeof(float);
  for (uint32_t l = 0; l < kShape.n_layers; ++l) {
    EXPECT_FLOAT_EQ(step_of(split, l), step_of(alike, l) * kSteps[l]);
    const double bits = 8 *
                        (static_cast<double>(split.manifest.layers[l].length) -
                         static_cast<double>(alike.manifest.layers[l].length)) /
                        elements;
    EXPECT_NEAR(bits, -std::log2(kSteps[l]), 0.5) << "a bit for every halving";
  }
  EXPECT_EQ(split.manifest.meta.id, alike.manifest.meta.id);
}

TEST(LayerSteps, AreNothingToOtherCodecsNorToAnotherNumberOfLayers) {
  const auto record = alike_record(2);
  for (const Codec codec : {Codec::none, Codec::zstd, Codec::int8, Codec::int4}) {
    const EncodedChunk alike = take(encode_chunk(*record, codec));
    const EncodedChunk split = take(encode_chunk(*record, codec, 1, kSteps));
    ASSERT_EQ(split.manifest.meta.stored_bytes, alike.manifest.meta.stored_bytes);
    EXPECT_EQ(std::memcmp(split.stream, alike.stream, alike.manifest.meta.stored_bytes), 0);
  }
  const std::vector<float> two = {1, 0.25f};
  const EncodedChunk other = take(encode_chunk(*record, Codec::rans, 1, two));
  EXPECT_EQ(other.manifest.meta.stored_bytes,
            take(encode_chunk(*record, Codec::rans)).manifest.meta.stored_bytes);
}

TEST(LayerSteps, AStoreHasThemForTheChunksOfTheirModel) {
  const TempDir dir;
  const auto store = open_store(dir.file("store"), with_rans());
  const auto before = alike_record(1), now = alike_record(2), queued = alike_record(3),
             other = alike_record(4, 0x11), after = alike_record(5);
  EXPECT_OK(store->put(*before));
  EXPECT_OK(store->set_layer_steps(now->meta.fingerprint, kSteps));
  EXPECT_OK(store->put(*now));
  EXPECT_OK(store->put_async(queued));
  EXPECT_OK(store->put(*other));
  EXPECT_OK(store->flush());
  expect_alike(errors(*store, *before));
  expect_split(errors(*store, *now));
  expect_split(errors(*store, *queued));
  expect_alike(errors(*store, *other));
  EXPECT_OK(store->set_layer_steps(now->meta.fingerprint, {}));
  EXPECT_OK(store->put(*after));
  expect_alike(errors(*store, *after));
  // Whoever reads them need not know: another opening has no steps.
  const auto again = open_store(dir.file("store"), with_rans());
  expect_split(errors(*again, *now));
}

// Chunks from a file are put like any others.
TEST(LayerSteps, HoldForWhatIsImported) {
  const TempDir dir;
  const auto record = alike_record(7);
  const auto exact = open_store(dir.file("exact"));
  EXPECT_OK(exact->put(*record));
  EXPECT_OK(export_chunks(*exact, {}, dir.file("chunks"), {}).status());
  const auto store = open_store(dir.file("store"), with_rans());
  EXPECT_OK(store->set_layer_steps(record->meta.fingerprint, kSteps));
  Transfer done;
  EXPECT_OK(import_chunks(*store, dir.file("chunks"), false, {}, &done));
  expect_split(errors(*store, *record));
}

// Nobody listens at the server: what is put goes to the disk all the same.
TEST(LayerSteps, ReachTheStoreBelowARemoteTier) {
  const TempDir dir;
  RemoteOptions remote;
  remote.url = take(parse_remote_url("redis://127.0.0.1:1"));
  remote.timeout_ms = 50;
  const auto store = take(Store::open(dir.file("store"), with_rans(), remote, {}));
  const auto record = alike_record(9);
  EXPECT_OK(store->set_layer_steps(record->meta.fingerprint, kSteps));
  EXPECT_OK(store->put(*record));
  expect_split(errors(*store, *record));
}

}  // namespace
}  // namespace blend::test
