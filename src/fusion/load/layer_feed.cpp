#include "fusion/load/layer_feed.h"

#include <algorithm>

#include "fusion/load/stored_rows.h"

namespace blend {

// ---- One pass's view

LayerFeed::View::View(LayerFeed& feed, const Prompt& prompt, uint32_t first_stored_layer)
    : feed_(feed) {
  ChunksToLoad chunks = chunks_to_load(prompt, first_stored_layer, feed.n_layers_);
  segments_ = std::move(chunks.segments);
  first_layer_ = chunks.first_layer;
  for (const LayerLoader::Item& item : chunks.items) {
    // Ids are collision-resistant and bind all that a chunk's bytes depend on.
    const auto same =
        std::find_if(feed.items_.begin(), feed.items_.end(), [&](const LayerLoader::Item& known) {
          return known.source->meta().id == item.source->meta().id;
        });
    items_.push_back(static_cast<size_t>(same - feed.items_.begin()));
    first_layers_.push_back(item.first_layer);
    read_.push_back(0);
    from_host_.push_back(0);
    if (same == feed.items_.end()) {
      feed.items_.push_back(item);
    } else {
      same->first_layer = std::min(same->first_layer, item.first_layer);
    }
  }
  feed.views_.push_back(this);
}

LayerFeed::View::~View() {
  std::erase(feed_.views_, this);
  if (feed_.held_ == nullptr) return;
  // A pass that broke off may have left work that reads the layer.
  if (auto fence = feed_.backend_.fence(); fence.is_ok()) feed_.fence_ = std::move(*fence);
  feed_.release_if_done();
}

Result<const StagedLayer*> LayerFeed::View::acquire(uint32_t layer) {
  BLEND_ASSIGN(const StagedLayer* const all, feed_.acquire(layer));
  staged_.layer = layer;
  staged_.load = all->load;
  staged_.load.bytes = staged_.load.shared_bytes = 0;
  staged_.load.memory_bytes = staged_.load.memory_rows = staged_.load.remote_bytes = 0;
  staged_.load.device_bytes = staged_.load.device_rows = 0;
  staged_.chunks.assign(items_.size(), {});
  staged_.kept.assign(items_.size(), nullptr);
  for (size_t i = 0; i < items_.size(); ++i) {
    if (layer < first_layers_[i]) continue;
    const size_t item = items_[i];
    staged_.chunks[i] = all->chunks[item];
    staged_.kept[i] = all->kept[item];
    const ChunkShape& shape = feed_.items_[item].source->meta().shape;
    const Origin origin = all->origins[item];
    if (origin == Origin::device) {
      staged_.load.device_bytes += shape.layer_bytes(layer);
      continue;
    }
    from_host_[i] = 1;
    const bool first = feed_.taken_[item] <= layer;
    (first ? staged_.load.bytes : staged_.load.shared_bytes) += shape.layer_bytes(layer);
    feed_.taken_[item] = layer + 1;
    if (origin != Origin::memory) read_[i] = 1;
    if (first && origin == Origin::memory) staged_.load.memory_bytes += shape.layer_bytes(layer);
    if (first && origin == Origin::remote) staged_.load.remote_bytes += shape.layer_bytes(layer);
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    const bool loaded = first_layers_[i] <= layer;
    if (!loaded || read_[i] != 0) continue;
    const uint32_t n = feed_.items_[items_[i]].source->meta().shape.n_tokens;
    staged_.load.memory_rows += n;
    if (from_host_[i] == 0) staged_.load.device_rows += n;
  }
  return static_cast<const StagedLayer*>(&staged_);
}

void LayerFeed::View::release(uint32_t layer, std::unique_ptr<Fence> fence) {
  released_ = layer + 1;
  feed_.fence_ =
      std::move(fence);  // the work of all passes runs in order: the last one's is enough
  feed_.release_if_done();
}

// ---- All of them

std::vector<uint64_t> LayerFeed::layer_bytes() const {
  std::vector<uint64_t> bytes(n_layers_, 0);
  for (const LayerLoader::Item& item : items_) {
    for (uint32_t layer = item.first_layer; layer < n_layers_; ++layer) {
      bytes[layer] += item.source->meta().shape.layer_bytes(layer);
    }
  }
  return bytes;
}

Status LayerFeed::start(uint32_t depth) {
  if (items_.empty()) return Status::ok();
  taken_.assign(items_.size(), 0);
  BLEND_ASSIGN(loader_,
               LayerLoader::start(backend_, items_, n_layers_, depth, clock_, tier_, helpers_));
  return Status::ok();
}

Result<const StagedLayer*> LayerFeed::acquire(uint32_t layer) {
  if (held_ != nullptr && layer + 1 == next_) return held_;  // another pass has waited for it
  // Layers that only passes wanted which have failed since.
  if (layer > next_) loader_->release(layer - 1);
  next_ = layer + 1;
  const uint64_t begin_ns = clock_.now_ns();
  auto acquired = loader_->acquire(layer);
  if (!acquired.is_ok()) {
    damaged_ = items_[loader_->failed_item()].source->meta().id;
    return acquired.status();
  }
  held_ = *acquired;
  note_reads(*held_, clock_.now_ns() - begin_ns);
  return held_;
}

LayerFeed::Reads& LayerFeed::reads_of(std::vector<Reads>& all, Origin origin, Codec codec) {
  for (Reads& reads : all) {
    if (reads.origin == origin && reads.codec == codec) return reads;
  }
  return all.emplace_back(Reads{origin, codec, {}});
}

void LayerFeed::note_reads(const StagedLayer& staged, uint64_t wait_ns) {
  double sum_ns = 0;
  for (const uint64_t ns : staged.read_ns) sum_ns += static_cast<double>(ns);
  if (sum_ns == 0) return;
  const uint64_t layer_ns = staged.load.end_ns - staged.load.begin_ns;
  // Chunks that are finished side by side took the layer's time together.
  const double share = static_cast<double>(layer_ns) / sum_ns;
  std::vector<Reads> here;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (staged.read_ns[i] == 0) continue;
    Reads& reads = reads_of(here, staged.origins[i], items_[i].source->meta().codec);
    reads.layers.resize(1);
    Read& read = reads.layers[0];
    read.bytes += items_[i].source->meta().shape.layer_bytes(staged.layer);
    read.ns += static_cast<uint64_t>(share * static_cast<double>(staged.read_ns[i]));
    read.waited_for = wait_ns >= layer_ns / 2;
  }
  for (const Reads& reads : here) {
    reads_of(reads_, reads.origin, reads.codec).layers.push_back(reads.layers[0]);
  }
}

void LayerFeed::tell(ReadRates& rates) const {
  Read all;
  for (const Reads& reads : reads_) {
    std::vector<Read> layers = reads.layers;
    const auto end = std::stable_partition(layers.begin(), layers.end(),
                                           [](const Read& r) { return r.waited_for; });
    if (end != layers.begin()) {
      layers.erase(end, layers.end());
    } else {
      // By the time of a byte; the products of neither overflow.
      std::sort(layers.begin(), layers.end(), [](const Read& a, const Read& b) {
        return static_cast<double>(a.ns) * static_cast<double>(b.bytes) <
               static_cast<double>(b.ns) * static_cast<double>(a.bytes);
      });
      layers.resize((layers.size() + 3) / 4);
    }
    Read sum;
    for (const Read& layer : layers) {
      sum.bytes += layer.bytes;
      sum.ns += layer.ns;
    }
    rates.add(reads.origin, reads.codec, sum.bytes, sum.ns);
    all.bytes += sum.bytes;
    all.ns += sum.ns;
  }
  rates.add_all(all.bytes, all.ns);
}

void LayerFeed::release_if_done() {
  if (held_ == nullptr) return;
  const uint32_t layer = next_ - 1;
  for (const View* view : views_) {
    if (view->has(layer) && view->released_ <= layer) return;
  }
  held_ = nullptr;
  loader_->release(layer, std::move(fence_));
}

}  // namespace blend
