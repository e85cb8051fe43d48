// LayerFeed: one reader for the passes of a batch.
//
// A chunk that several prompts have in common, or one prompt has twice, is read, verified and
// decoded once: its staged layer serves every place. The passes take the layers in step, each
// through its own view; a layer leaves the ring when the last of them has placed its rows.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fusion/load/layer_loader.h"
#include "fusion/prompt/prompt.h"
#include "store/read/read_rates.h"

namespace blend {

// The ring's depth as long as nothing is known of reading and computing: two layers hide the load
// behind the compute when both are steady, the third takes up jitter.
inline constexpr uint32_t kUsualRingDepth = 3;

// Used by the thread of one batch. Views must not outlive it, nor it their prompts.
class LayerFeed {
 public:
  // The stored layers of one prompt.
  class View {
   public:
    View(LayerFeed& feed, const Prompt& prompt, uint32_t first_stored_layer);
    ~View();  // the others no longer wait for it
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    bool has(uint32_t layer) const { return layer >= first_layer_; }
    // Index in the prompt of each chunk of a staged layer.
    std::span<const size_t> segments() const { return segments_; }
    // Blocks until `layer` is staged. Layers in order; valid until release(). `bytes` are those
    // that no other place of the batch has taken before, `shared_bytes` the others.
    Result<const StagedLayer*> acquire(uint32_t layer);
    // `fence` (may be null): what still reads the layer.
    void release(uint32_t layer, std::unique_ptr<Fence> fence = nullptr);

   private:
    friend class LayerFeed;
    LayerFeed& feed_;
    std::vector<size_t> items_;           // of the feed, for each entry of segments_
    std::vector<size_t> segments_;        // of the prompt
    std::vector<uint32_t> first_layers_;  // of each
    std::vector<uint8_t> read_;           // of each: a layer so far was not in memory
    std::vector<uint8_t> from_host_;      // of each: one was not in device memory
    uint32_t first_layer_ = 0;            // the least; n_layers: nothing is loaded
    uint32_t released_ = 0;               // layers below are
    StagedLayer staged_;
  };

  // Staged in host memory of `backend`, or where `tier` (may be null) has them; helpers (may be
  // null): as LayerLoader has them.
  LayerFeed(Backend& backend, uint32_t n_layers, const Stopwatch& clock, DeviceTier* tier = nullptr,
            ThreadPool* helpers = nullptr)
      : backend_(backend), n_layers_(n_layers), clock_(clock), tier_(tier), helpers_(helpers) {}

  // Before start().
  std::unique_ptr<View> subscribe(const Prompt& prompt, uint32_t first_stored_layer) {
    return std::make_unique<View>(*this, prompt, first_stored_layer);
  }
  // What the reader will bring of each layer; [n_layers].
  std::vector<uint64_t> layer_bytes() const;
  // Starts the reader with a ring of `depth` layers; nothing happens where nothing is loaded.
  Status start(uint32_t depth);

  // After a view failed with CORRUPT: the chunk.
  const std::optional<Sha256>& damaged() const { return damaged_; }
  // How fast what was read so far came, by where it lay: that of the layers which the compute
  // waited for. If there were none, of those that came fastest, a quarter: the others may have
  // waited for a core, which they will not where loading is what is waited for.
  void tell(ReadRates& rates) const;

 private:
  Result<const StagedLayer*> acquire(uint32_t layer);
  void release_if_done();
  void note_reads(const StagedLayer& staged, uint64_t wait_ns);

  Backend& backend_;
  const uint32_t n_layers_;
  const Stopwatch& clock_;
  DeviceTier* const tier_;
  ThreadPool* const helpers_;
  std::vector<LayerLoader::Item> items_;  // one a chunk
  std::vector<uint32_t> taken_;           // [items] 1 + the last layer that a view was given
  std::vector<View*> views_;
  std::unique_ptr<LayerLoader> loader_;
  uint32_t next_ = 0;                  // layers below are acquired or passed over
  const StagedLayer* held_ = nullptr;  // layer next_ - 1, until it is released
  std::unique_ptr<Fence> fence_;       // of the view that was the last to release it
  std::optional<Sha256> damaged_;
  struct Read {
    uint64_t bytes = 0;
    uint64_t ns = 0;  // of the reader's own time
    bool waited_for = false;
  };
  struct Reads {  // one a layer, of one place and codec
    Origin origin = Origin::disk;
    Codec codec = Codec::none;
    std::vector<Read> layers;
  };
  static Reads& reads_of(std::vector<Reads>& all, Origin origin, Codec codec);
  std::vector<Reads> reads_;
};

}  // namespace blend
