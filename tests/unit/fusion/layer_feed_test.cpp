#include "fusion/load/layer_feed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "base/threads/thread_pool.h"

namespace blend {
namespace {

constexpr uint32_t kLayers = 6;
constexpr uint32_t kTokens = 5;

// Counts the reads of every chunk, whichever prompt's source served them.
struct Disk {
  std::mutex mutex;
  std::map<uint8_t, std::vector<uint32_t>> layers_read;  // by tag
  std::map<uint8_t, uint32_t> damaged_at;
  std::set<uint8_t> far;                       // tags that another machine holds
  std::map<uint8_t, uint32_t> in_memory_from;  // layers of a tag that memory holds
};

class DiskSource : public ChunkSource {
 public:
  DiskSource(Disk& disk, uint8_t tag) : disk_(disk), tag_(tag) {
    meta_.shape = {kLayers, kTokens, 4, DType::f16};
    meta_.id.fill(tag);
  }
  const ChunkMeta& meta() const override { return meta_; }
  void prefetch(uint32_t) override {}
  Status read_layer(uint32_t layer, std::byte* out) override {
    std::lock_guard lock(disk_.mutex);
    const auto damage = disk_.damaged_at.find(tag_);
    if (damage != disk_.damaged_at.end() && damage->second == layer) {
      return make_error(BLEND_E_CORRUPT, "layer %u is damaged", layer);
    }
    disk_.layers_read[tag_].push_back(layer);
    std::memset(out, tag_ * 16 + static_cast<int>(layer), meta_.shape.layer_bytes(0));
    const auto held = disk_.in_memory_from.find(tag_);
    origin_ = disk_.far.contains(tag_) ? Origin::remote : Origin::disk;
    if (held != disk_.in_memory_from.end() && layer >= held->second) origin_ = Origin::memory;
    return Status::ok();
  }
  Origin origin() const override { return origin_; }

 private:
  Disk& disk_;
  const uint8_t tag_;
  Origin origin_ = Origin::disk;
  ChunkMeta meta_;
};

class LayerFeedTest : public ::testing::Test {
 protected:
  // A prompt of chunks by their tags; the first may be exact.
  Prompt prompt(const std::vector<uint8_t>& tags, bool first_exact = false) {
    Prompt p;
    for (const uint8_t tag : tags) {
      PromptSegment s;
      s.kind = SegmentKind::chunk;
      s.source = Source::store;
      s.exact = first_exact && p.segments.empty();
      s.first_row = p.n_rows();
      s.n_rows = kTokens;
      s.chunk = std::make_unique<DiskSource>(disk_, tag);
      s.id = s.chunk->meta().id;
      p.segments.push_back(std::move(s));
      p.tokens.resize(p.tokens.size() + kTokens);
    }
    return p;
  }
  static void expect_bytes(const StagedLayer& staged, size_t i, uint8_t tag, uint32_t layer) {
    ASSERT_EQ(staged.chunks[i].size(), 1u);
    for (size_t b = 0; b < layer_bytes_; ++b) {
      ASSERT_EQ(static_cast<uint32_t>(staged.chunks[i][0].k[b]), tag * 16u + layer);
    }
  }

  static constexpr size_t layer_bytes_ = 2 * kTokens * 4 * 2;
  std::unique_ptr<ThreadPool> pool_ = std::move(*ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = std::move(*make_cpu_backend(*pool_));
  Disk disk_;
  Stopwatch clock_;
};

// Rows count only while all of their chunk came from memory; bytes count once, where they are.
TEST_F(LayerFeedTest, WhatCameFromMemoryAndFromAfarIsToldApart) {
  disk_.in_memory_from = {{1, 0}, {2, 3}};
  disk_.far = {2};
  const Prompt a = prompt({1, 2, 1, 3}), b = prompt({1, 3});
  LayerFeed feed(*backend_, kLayers, clock_);
  const auto va = feed.subscribe(a, 1), vb = feed.subscribe(b, 1);
  ASSERT_TRUE(feed.start(2).is_ok());
  for (uint32_t layer = 1; layer < kLayers; ++layer) {
    auto first = va->acquire(layer);
    ASSERT_TRUE(first.is_ok());
    EXPECT_EQ((layer >= 3 ? 2 : 1) * layer_bytes_, (*first)->load.memory_bytes);
    EXPECT_EQ((layer >= 3 ? 0 : 1) * layer_bytes_, (*first)->load.remote_bytes);
    EXPECT_EQ(2 * kTokens, (*first)->load.memory_rows) << "both places of 1; 2 began elsewhere";
    va->release(layer);
    auto second = vb->acquire(layer);
    ASSERT_TRUE(second.is_ok());
    EXPECT_EQ(0u, (*second)->load.memory_bytes) << "the first prompt's";
    EXPECT_EQ(kTokens, (*second)->load.memory_rows);
    vb->release(layer);
  }
}

TEST_F(LayerFeedTest, WhatPromptsShareIsReadOnceAndServesEveryPlace) {
  const Prompt a = prompt({1, 2, 1}), b = prompt({3, 2}), c = prompt({2, 1});
  LayerFeed feed(*backend_, kLayers, clock_);
  const auto va = feed.subscribe(a, 1), vb = feed.subscribe(b, 1), vc = feed.subscribe(c, 1);
  EXPECT_EQ(feed.layer_bytes()[0], 0u);
  EXPECT_EQ(feed.layer_bytes()[1], 3 * layer_bytes_);
  ASSERT_TRUE(feed.start(2).is_ok());
  uint64_t bytes = 0, shared = 0;
  for (uint32_t layer = 1; layer < kLayers; ++layer) {
    const auto take = [&](LayerFeed::View& view, const std::vector<uint8_t>& tags) {
      auto staged = view.acquire(layer);
      ASSERT_TRUE(staged.is_ok());
      ASSERT_EQ((*staged)->chunks.size(), tags.size());
      for (size_t i = 0; i < tags.size(); ++i) expect_bytes(**staged, i, tags[i], layer);
      bytes += (*staged)->load.bytes;
      shared += (*staged)->load.shared_bytes;
      view.release(layer);
    };
    take(*va, {1, 2, 1});
    take(*vb, {3, 2});
    take(*vc, {2, 1});
  }
  for (const uint8_t tag : {1, 2, 3}) {
    EXPECT_EQ(disk_.layers_read[tag], (std::vector<uint32_t>{1, 2, 3, 4, 5})) << int{tag};
  }
  EXPECT_EQ(bytes, 5 * 3 * layer_bytes_);
  EXPECT_EQ(shared, 5 * 4 * layer_bytes_);
  // Told by where it lay and how it was stored.
  ReadRates rates;
  feed.tell(rates);
  EXPECT_GT(rates.per_second(), 0.0);
  EXPECT_NEAR(rates.per_second(Origin::disk, Codec::none), rates.per_second(),
              1e-3 * rates.per_second());
  EXPECT_EQ(rates.per_second(Origin::disk, Codec::int4), 0.0);
  EXPECT_EQ(rates.per_second(Origin::memory, Codec::none), 0.0);
}

// Exact in one prompt, so needed from layer 0; in the other from its check layer on.
TEST_F(LayerFeedTest, APromptSeesAChunkFromItsOwnFirstLayerOn) {
  const Prompt a = prompt({1, 2}, true), b = prompt({2, 1});
  LayerFeed feed(*backend_, kLayers, clock_);
  const auto va = feed.subscribe(a, 2), vb = feed.subscribe(b, 3);
  EXPECT_TRUE(va->has(0));
  EXPECT_FALSE(vb->has(2));
  ASSERT_TRUE(feed.start(2).is_ok());
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    auto staged = va->acquire(layer);
    ASSERT_TRUE(staged.is_ok());
    expect_bytes(**staged, 0, 1, layer);
    EXPECT_EQ(!(*staged)->chunks[1].empty(), layer >= 2);
    va->release(layer);
    if (!vb->has(layer)) continue;
    staged = vb->acquire(layer);
    ASSERT_TRUE(staged.is_ok());
    expect_bytes(**staged, 0, 2, layer);
    expect_bytes(**staged, 1, 1, layer);
    EXPECT_EQ((*staged)->load.bytes, 0u);
    vb->release(layer);
  }
}

// The same the other way round: the prompt that needs it sooner comes later.
TEST_F(LayerFeedTest, AChunkIsReadFromTheFirstLayerThatAnyPromptNeeds) {
  const Prompt a = prompt({2, 1}), b = prompt({1}, true);
  LayerFeed feed(*backend_, kLayers, clock_);
  const auto va = feed.subscribe(a, 3), vb = feed.subscribe(b, 3);
  ASSERT_TRUE(feed.start(2).is_ok());
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (LayerFeed::View* view : {va.get(), vb.get()}) {
      if (!view->has(layer)) continue;
      auto staged = view->acquire(layer);
      ASSERT_TRUE(staged.is_ok());
      expect_bytes(**staged, view == va.get() ? 1 : 0, 1, layer);
      view->release(layer);
    }
  }
  EXPECT_EQ(disk_.layers_read[1].size(), kLayers);
}

// A pass that failed is gone: nobody waits for it, and layers that only it wanted are passed over.
TEST_F(LayerFeedTest, ViewsMayGoAtAnyTime) {
  for (uint32_t gone_at = 0; gone_at < kLayers; ++gone_at) {
    for (const bool holding : {false, true}) {
      const Prompt a = prompt({1}, true), b = prompt({2});
      LayerFeed feed(*backend_, kLayers, clock_);
      auto va = feed.subscribe(a, 0);
      const auto vb = feed.subscribe(b, 4);
      ASSERT_TRUE(feed.start(2).is_ok());
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        if (va != nullptr && layer == gone_at) {
          if (holding) {
            ASSERT_TRUE(va->acquire(layer).is_ok());
          }
          va.reset();
        }
        if (va != nullptr) {
          ASSERT_TRUE(va->acquire(layer).is_ok());
          va->release(layer);
        }
        if (!vb->has(layer)) continue;
        auto staged = vb->acquire(layer);  // hangs if the ring is never emptied
        ASSERT_TRUE(staged.is_ok());
        expect_bytes(**staged, 0, 2, layer);
        vb->release(layer);
      }
    }
  }
}

TEST_F(LayerFeedTest, DamageNamesTheChunk) {
  disk_.damaged_at[2] = 1;
  const Prompt a = prompt({1}), b = prompt({1, 2});
  LayerFeed feed(*backend_, kLayers, clock_);
  const auto va = feed.subscribe(a, 0), vb = feed.subscribe(b, 0);
  ASSERT_TRUE(feed.start(3).is_ok());
  EXPECT_FALSE(feed.damaged().has_value());
  Status status;
  for (uint32_t layer = 0; layer < kLayers && status.is_ok(); ++layer) {
    for (LayerFeed::View* view : {va.get(), vb.get()}) {
      auto staged = view->acquire(layer);
      if (status.is_ok()) status = staged.status();
      if (staged.is_ok()) view->release(layer);
    }
  }
  EXPECT_EQ(status.code(), BLEND_E_CORRUPT);
  ASSERT_TRUE(feed.damaged().has_value());
  EXPECT_EQ((*feed.damaged())[0], 2);
}

TEST_F(LayerFeedTest, NothingToLoadStartsNoReader) {
  const Prompt a = prompt({});
  LayerFeed feed(*backend_, kLayers, clock_);
  const auto view = feed.subscribe(a, 0);
  EXPECT_TRUE(feed.start(2).is_ok());
  for (uint32_t layer = 0; layer < kLayers; ++layer) EXPECT_FALSE(view->has(layer));
}

}  // namespace
}  // namespace blend
