#include "engine/chunk_prefill.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "engine/context_impact.h"

namespace blend {
namespace {

std::vector<uint32_t> positions(uint32_t first, size_t n) {
  std::vector<uint32_t> pos(n);
  std::iota(pos.begin(), pos.end(), first);
  return pos;
}

}  // namespace

struct ChunkPrefill::Work {
  std::shared_ptr<ChunkRecord> record;
  uint64_t n_passes = 1;
  uint64_t n_done = 0;                              // passes
  std::vector<float> inside;                        // [n_tokens], summed over passes and layers
  std::vector<float> outside;                       // [n_tokens]
  std::vector<std::unique_ptr<DeviceBuffer>> sums;  // of the layers' K | V; of several passes only

  uint32_t n_tokens() const { return record->meta.shape.n_tokens; }
};

Result<std::unique_ptr<ChunkPrefill>> ChunkPrefill::create(const Model& model,
                                                           std::span<const int32_t> head,
                                                           uint32_t rows, const Watch& watch) {
  std::unique_ptr<ChunkPrefill> made(new ChunkPrefill(model, head));
  BLEND_RETURN_IF_ERROR(made->reserve(rows, watch));
  return made;
}

Status ChunkPrefill::reserve(uint32_t rows, const Watch& watch) {
  if (rows <= rows_ && cache_ != nullptr) return Status::ok();
  const size_t context = model_.context_length();
  if (head_.size() > context || rows > context - head_.size()) {
    return make_error(BLEND_E_CONTEXT_LENGTH,
                      "the chunk has %u tokens after a chunk prefix of %zu; the model's context is "
                      "%u",
                      rows, head_.size(), model_.context_length());
  }
  const ModelConfig& c = model_.config();
  const auto n_head = static_cast<uint32_t>(head_.size());
  cache_.reset();  // frees it before the second one is made
  BLEND_ASSIGN(ropes_, model_.ropes(n_head + rows));
  BLEND_ASSIGN(cache_, model_.backend().make_kv_cache(c, n_head + rows));
  BLEND_ASSIGN(forward_, Forward::create(model_, std::max(n_head, rows)));
  fresh_slots_.assign(n_head + rows, 0);
  rows_ = rows;
  if (n_head == 0) return Status::ok();
  const std::vector<uint32_t> pos = positions(0, n_head);
  const Tensor x = forward_->x(n_head), kv = forward_->kv(n_head);
  BLEND_RETURN_IF_ERROR(forward_->embed(head_.data(), x));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x, kv, watch));
    BLEND_RETURN_IF_ERROR(
        model_.backend().write_kv(*cache_, layer, ropes_->keys(layer), kv, pos.data()));
    if (layer + 1 == c.n_layers) break;  // nothing reads its output
    BLEND_RETURN_IF_ERROR(forward_->finish_layer(layer, *cache_, *ropes_, x, pos.data(), watch));
  }
  return Status::ok();
}

Status ChunkPrefill::place(ChunkSource& stored, uint32_t layer, AlignedBuffer& space) {
  const ChunkShape& shape = stored.meta().shape;
  if (layer + 1 < shape.n_layers) stored.prefetch(layer + 1);
  BLEND_RETURN_IF_ERROR(stored.read_layer(layer, space.data()));
  const StoredRun run{space.data(), space.data() + shape.plane_bytes(), shape.dtype, shape.n_tokens,
                      static_cast<uint32_t>(head_.size())};
  BLEND_RETURN_IF_ERROR(model_.backend().fusion().scatter(*cache_, layer, ropes_->keys(layer),
                                                          {&run, 1}, fresh_slots_.data(), nullptr));
  BLEND_ASSIGN(const std::unique_ptr<Fence> done, model_.backend().fence());
  if (done != nullptr) done->wait();  // `space` is read into next
  return Status::ok();
}

Status ChunkPrefill::keep(uint32_t layer, Tensor kv, Work& work) {
  Backend& b = model_.backend();
  Tensor mean = kv;
  if (work.n_passes > 1) {
    if (work.n_done == 0) {
      BLEND_ASSIGN(work.sums[layer], b.allocate(static_cast<size_t>(kv.rows * kv.cols *
                                                                    b.traits().activation_bytes)));
    }
    mean = {work.sums[layer]->data(), kv.rows, kv.cols, b.traits().activation_bytes};
    if (work.n_done == 0) {
      const std::vector<uint32_t> all = positions(0, static_cast<size_t>(kv.rows));
      BLEND_RETURN_IF_ERROR(b.gather(kv, all.data(), mean));
    } else {
      BLEND_RETURN_IF_ERROR(b.add(mean, kv));
    }
    if (work.n_done + 1 < work.n_passes) return Status::ok();
    BLEND_RETURN_IF_ERROR(b.scale(mean, 1.0f / static_cast<float>(work.n_passes)));
  }
  return b.fusion()
      .encode_kv(mean, work.record->meta.shape.dtype, work.record->k(layer), work.record->v(layer))
      .with_context("layer " + std::to_string(layer));
}

Status ChunkPrefill::pass(const ContextPassage* passage, Work& work, const Watch& watch) {
  const ModelConfig& c = model_.config();
  const std::vector<int32_t>& chunk = work.record->meta.tokens;
  const uint32_t n = work.n_tokens();
  const auto n_passage = static_cast<uint32_t>(passage == nullptr ? 0 : passage->tokens.size());
  const auto n_head = static_cast<uint32_t>(head_.size());
  ChunkSource* const stored = passage == nullptr ? nullptr : passage->stored;
  const uint32_t n_fresh = stored == nullptr ? n_passage : 0;  // of the passage, computed here
  std::vector<int32_t> tokens;
  if (n_fresh > 0) tokens.assign(passage->tokens.begin(), passage->tokens.end());
  tokens.insert(tokens.end(), chunk.begin(), chunk.end());
  const std::vector<uint32_t> pos = positions(n_head + n_passage - n_fresh, tokens.size());
  AlignedBuffer space;
  if (stored != nullptr) {
    BLEND_ASSIGN(space, AlignedBuffer::allocate(stored->meta().shape.layer_bytes()));
  }

  const Tensor x = forward_->x(n_fresh + n), kv = forward_->kv(n_fresh + n);
  InsideMass inside(n_fresh, n_head + n_passage, n);
  BLEND_RETURN_IF_ERROR(forward_->embed(tokens.data(), x));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    BLEND_RETURN_IF_ERROR(
        watch.report(work.n_done * c.n_layers + layer, work.n_passes * c.n_layers));
    if (stored != nullptr) BLEND_RETURN_IF_ERROR(place(*stored, layer, space));
    BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x, kv, watch));
    BLEND_RETURN_IF_ERROR(keep(layer, kv.slice(n_fresh, n), work));
    BLEND_RETURN_IF_ERROR(
        model_.backend().write_kv(*cache_, layer, ropes_->keys(layer), kv, pos.data()));
    if (layer == outside_layer(c) && work.n_done == 0) {
      BLEND_ASSIGN(work.outside, outside_mass(model_, chunk, *forward_, x.slice(n_fresh, n),
                                              kv.slice(n_fresh, n), watch));
    }
    if (layer + 1 == c.n_layers) {  // nothing reads its output
      BLEND_RETURN_IF_ERROR(
          inside.last_layer(*forward_, layer, *cache_, *ropes_, x, pos.data(), watch));
      break;
    }
    BLEND_RETURN_IF_ERROR(
        forward_->finish_layer(layer, *cache_, layer, *ropes_, x, pos.data(), watch, inside.out()));
    inside.add();
  }
  work.inside.resize(n, 0.0f);
  std::transform(work.inside.begin(), work.inside.end(), inside.inside().begin(),
                 work.inside.begin(), std::plus<>());
  ++work.n_done;
  return Status::ok();
}

Result<std::shared_ptr<ChunkRecord>> ChunkPrefill::run(std::span<const ContextPassage> passages,
                                                       ChunkMeta meta, const Watch& watch) {
  const ModelConfig& c = model_.config();
  size_t rows = meta.tokens.size();
  for (const ContextPassage& passage : passages) {
    rows = std::max(rows, meta.tokens.size() + passage.tokens.size());
  }
  BLEND_RETURN_IF_ERROR(reserve(static_cast<uint32_t>(rows), watch));

  Work work;
  work.record = std::make_shared<ChunkRecord>();
  BLEND_ASSIGN(work.record->data, AlignedBuffer::allocate(meta.shape.total_bytes()));
  work.record->meta = std::move(meta);
  work.n_passes = std::max<size_t>(1, passages.size());
  work.sums.resize(c.n_layers);
  if (passages.empty()) BLEND_RETURN_IF_ERROR(pass(nullptr, work, watch));
  for (const ContextPassage& passage : passages) {
    BLEND_RETURN_IF_ERROR(pass(&passage, work, watch));
  }
  const float share = 1.0f / static_cast<float>(work.n_passes * c.n_layers);
  std::vector<RowImpact>& impact = work.record->meta.impact;
  for (size_t i = 0; i < work.outside.size(); ++i) {
    impact.push_back({work.outside[i], work.inside[i] * share});
  }
  BLEND_RETURN_IF_ERROR(watch.report(work.n_passes * c.n_layers, work.n_passes * c.n_layers));
  return std::move(work.record);
}

}  // namespace blend
