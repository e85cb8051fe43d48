#include "fusion/load/layer_loader.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "base/threads/start_thread.h"
#include "base/threads/thread_cap.h"

namespace blend {
namespace {

constexpr size_t kSlotAlignment = 4096;  // direct reads write whole pages

// How many layers ahead of the reader the kernel is asked to read.
constexpr uint32_t kPrefetchLayers = 4;

}  // namespace

LayerLoader::LayerLoader(Backend& backend, std::vector<Item> items, uint32_t n_layers,
                         uint32_t depth, const Stopwatch& clock, DeviceTier* tier,
                         ThreadPool* helpers)
    : backend_(backend),
      items_(std::move(items)),
      n_layers_(n_layers),
      depth_(depth),
      clock_(clock),
      tier_(tier),
      helpers_(helpers),
      chunks_(items_.size()) {}

Result<std::unique_ptr<LayerLoader>> LayerLoader::start(Backend& backend, std::vector<Item> items,
                                                        uint32_t n_layers, uint32_t depth,
                                                        const Stopwatch& clock, DeviceTier* tier,
                                                        ThreadPool* helpers) {
  std::unique_ptr<LayerLoader> l(
      new LayerLoader(backend, std::move(items), n_layers, depth, clock, tier, helpers));
  l->first_layer_ = n_layers;
  size_t slot_bytes = 0;
  for (const Item& item : l->items_) {
    l->first_layer_ = std::min(l->first_layer_, item.first_layer);
    if (backend.traits().decodes_packed) item.source->allow_packed();
    l->offsets_.push_back(slot_bytes);
    const size_t bytes = item.source->stage_bytes();
    slot_bytes += (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  }
  l->next_started_ = l->first_layer_;
  {
    const MutexLock lock(l->mutex_);
    l->next_staged_ = l->next_released_ = l->first_layer_;
    l->fences_.resize(depth);
  }
  l->staged_.resize(depth);
  l->keeping_.resize(depth);
  for (uint32_t i = 0; i < depth; ++i) {
    BLEND_ASSIGN(auto slot, backend.allocate_host(slot_bytes));
    l->slots_.push_back(std::move(slot));
  }
  try {
    // A backend may use the compute threads to copy layers that the reader passes to it.
    l->reader_ = start_thread([p = l.get(), threads = ThreadCap::current()] {
      const ThreadCap cap(threads);
      p->reader_main();
    });
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the reader thread: %s", e.what());
  }
  return l;
}

LayerLoader::~LayerLoader() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
  // Rows outside the slots may still be copied to the device.
  for (const auto* const fences : {&fences_, &keeping_}) {
    for (const std::unique_ptr<Fence>& fence : *fences) {
      if (fence != nullptr) fence->wait();
    }
  }
}

Result<const StagedLayer*> LayerLoader::acquire(uint32_t layer) {
  MutexLock lock(mutex_);
  changed_.wait(lock,
                [&]() BLEND_REQUIRES(mutex_) { return next_staged_ > layer || !error_.is_ok(); });
  // Layers staged before a failure are intact, but the fuse cannot be finished with them.
  if (!error_.is_ok()) return error_;
  return &staged_[layer % depth_];
}

void LayerLoader::release(uint32_t layer, std::unique_ptr<Fence> fence) {
  {
    const MutexLock lock(mutex_);
    fences_[layer % depth_] = std::move(fence);
    next_released_ = layer + 1;
  }
  changed_.notify_all();
}

DeviceTier::LayerRef LayerLoader::on_device(size_t item, uint32_t layer) const {
  return chunks_[item] == nullptr ? nullptr : tier_->layer(chunks_[item], layer);
}

// Rows that do not fit into the tier are scattered from host memory, as without a tier.
void LayerLoader::keep(size_t item, uint32_t layer, StagedLayer& staged) {
  const ChunkSource& source = *items_[item].source;
  const ChunkShape& shape = source.meta().shape;
  std::vector<RowRun>& rows = staged.chunks[item];
  DeviceTier::ChunkRef& chunk = chunks_[item];
  if (chunk == nullptr && layer == items_[item].first_layer) {
    chunk = tier_->admit({source.meta().id, source.version()}, n_layers_,
                         DeviceTier::bytes_of(shape, rows));
  }
  if (chunk == nullptr) return;
  staged.kept[item] = tier_->keep(chunk, layer, shape, rows);
  if (staged.kept[item] == nullptr) {
    chunk = nullptr;
  } else {
    rows = staged.kept[item]->rows;
  }
}

// Starts all reads of a layer before it waits for the first.
void LayerLoader::start_layer(uint32_t layer) {
  StagedLayer& staged = staged_[layer % depth_];
  staged.kept.assign(items_.size(), nullptr);
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (layer < item.first_layer) continue;
    staged.kept[i] = on_device(i, layer);
    if (staged.kept[i] != nullptr) continue;
    if (layer + kPrefetchLayers < n_layers_) item.source->prefetch(layer + kPrefetchLayers);
    item.source->start_layer(layer, slot(layer) + offsets_[i]);
  }
}

Status LayerLoader::finish_chunks(uint32_t layer, size_t& failed) {
  StagedLayer& staged = staged_[layer % depth_];
  std::vector<size_t> wanted;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (layer >= items_[i].first_layer && staged.kept[i] == nullptr) wanted.push_back(i);
  }
  std::vector<Status> status(wanted.size());
  const auto finish = [&](size_t begin, size_t end, uint32_t) {
    for (size_t at = begin; at < end; ++at) {
      const size_t i = wanted[at];
      ChunkSource& source = *items_[i].source;
      const uint64_t begin_ns = clock_.now_ns();
      try {
        status[at] = source.finish_layer(layer, slot(layer) + offsets_[i], staged.chunks[i]);
      } catch (const std::bad_alloc&) {
        status[at] = Status::out_of_memory();
      }
      if (status[at].is_ok()) staged.origins[i] = source.origin();
      staged.read_ns[i] = clock_.now_ns() - begin_ns;
    }
  };
  if (helpers_ != nullptr) {
    helpers_->parallel_for(wanted.size(), 1, finish);
  } else {
    finish(0, wanted.size(), 0);
  }
  for (size_t at = 0; at < wanted.size(); ++at) {
    failed = wanted[at];
    BLEND_RETURN_IF_ERROR(status[at]);
  }
  return Status::ok();
}

Status LayerLoader::finish_layer(uint32_t layer, size_t& failed) {
  StagedLayer& staged = staged_[layer % depth_];
  staged.layer = layer;
  staged.chunks.assign(items_.size(), {});
  staged.origins.assign(items_.size(), Origin::disk);
  staged.read_ns.assign(items_.size(), 0);
  staged.load.bytes = staged.load.device_bytes = 0;
  bool keeps = false;
  staged.load.begin_ns = clock_.now_ns();
  BLEND_RETURN_IF_ERROR(finish_chunks(layer, failed));
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (layer < item.first_layer) continue;
    if (staged.kept[i] != nullptr) {
      staged.chunks[i] = staged.kept[i]->rows;
      staged.origins[i] = Origin::device;
      staged.load.device_bytes += item.source->meta().shape.layer_bytes(layer);
      continue;
    }
    staged.load.bytes += item.source->meta().shape.layer_bytes(layer);
    if (tier_ != nullptr) keep(i, layer, staged);
    keeps = keeps || staged.kept[i] != nullptr;
  }
  // A pass may release a layer that it never read, without a fence.
  if (keeps) {
    BLEND_ASSIGN(keeping_[layer % depth_], backend_.fence());
  }
  staged.load.end_ns = clock_.now_ns();
  return Status::ok();
}

// Starts as many layers as have a free slot, then finishes `layer`.
Status LayerLoader::stage(uint32_t layer, size_t& failed) {
  const uint64_t ready_ns = clock_.now_ns();
  for (;;) {
    std::unique_ptr<Fence> fence;
    {
      MutexLock lock(mutex_);
      const auto free = [&]() BLEND_REQUIRES(mutex_) {
        return next_started_ < next_released_ + depth_;
      };
      // `layer` itself needs a free slot.
      if (next_started_ == layer)
        changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return stop_ || free(); });
      if (stop_) return {BLEND_E_CANCELLED, "the loader ends"};
      if (next_started_ == n_layers_ || !free()) break;
      fence = std::move(fences_[next_started_ % depth_]);
    }
    if (fence != nullptr) fence->wait();
    if (auto keeping = std::move(keeping_[next_started_ % depth_]); keeping != nullptr) {
      keeping->wait();
    }
    // Counts only if the reader had nothing else to read: the ring had no free slot.
    staged_[next_started_ % depth_].load.stall_ns =
        next_started_ == layer ? clock_.now_ns() - ready_ns : 0;
    start_layer(next_started_++);
  }
  return finish_layer(layer, failed);
}

// No read may write to the slots after the reader thread has ended.
void LayerLoader::abandon_all() {
  for (const Item& item : items_) item.source->abandon();
}

void LayerLoader::reader_main() {
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (tier_ != nullptr)
      chunks_[i] = tier_->find({item.source->meta().id, item.source->version()});
    if (chunks_[i] != nullptr) continue;
    const uint32_t end = std::min(n_layers_, item.first_layer + kPrefetchLayers);
    for (uint32_t layer = item.first_layer; layer < end; ++layer) item.source->prefetch(layer);
  }
  Status status;
  for (uint32_t layer = first_layer_; layer < n_layers_ && status.is_ok(); ++layer) {
    size_t failed = 0;
    try {
      status = stage(layer, failed);
    } catch (const std::bad_alloc&) {
      status = Status::out_of_memory();
    }
    // Before the error is published, because the failed source is destroyed then.
    if (!status.is_ok()) abandon_all();
    {
      const MutexLock lock(mutex_);
      if (status.is_ok()) {
        next_staged_ = layer + 1;
      } else {
        failed_item_ = failed;
        error_ = status;
      }
    }
    changed_.notify_all();
  }
  if (status.is_ok()) abandon_all();
}

}  // namespace blend
