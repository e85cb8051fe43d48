#include "engine/chunk_prefill.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "engine/chunk_shape.h"

namespace blend {
namespace {

std::vector<uint32_t> positions(uint32_t first, size_t n) {
  std::vector<uint32_t> pos(n);
  std::iota(pos.begin(), pos.end(), first);
  return pos;
}

Status named(const Status& status, const std::string& name) {
  return name.empty() ? status : status.with_context(name);
}

}  // namespace

struct ChunkPrefill::Work {
  std::shared_ptr<ChunkRecord> record;
  std::string name;
  size_t n_passes = 1;
  std::vector<float> inside;                        // [n_tokens], summed over passes and layers
  std::vector<float> outside;                       // [n_tokens]
  std::vector<std::unique_ptr<DeviceBuffer>> sums;  // of the layers' K | V; of several passes only

  uint32_t n_tokens() const { return record->meta.shape.n_tokens; }
};

struct ChunkPrefill::Lane {
  Lane(Work& of, size_t pass, const ContextPassage* after, uint32_t n_head)
      : work(&of),
        number(pass),
        stored(after == nullptr ? std::span<ChunkSource* const>{} : after->stored),
        before(after == nullptr || !stored.empty() ? std::span<const int32_t>{} : after->tokens),
        n_fresh(static_cast<uint32_t>(before.size())),
        first_slot(n_head + static_cast<uint32_t>(after == nullptr ? 0 : after->tokens.size()) -
                   n_fresh),
        inside(n_fresh, first_slot + n_fresh, of.n_tokens()) {}

  // After others of a sequence, which are in the slots before `slot`.
  Lane(Work& of, size_t pass, uint32_t slot)
      : work(&of), number(pass), n_fresh(0), first_slot(slot), inside(0, slot, of.n_tokens()) {}

  uint32_t n_rows() const { return n_fresh + work->n_tokens(); }

  Work* work;
  size_t number;  // of the work's passes
  std::span<ChunkSource* const> stored;
  std::span<const int32_t> before;  // the passage, where it is computed here
  uint32_t n_fresh;                 // rows of `before`
  uint32_t first_slot;              // of the computed rows
  uint32_t first_row = 0;           // in x
  InsideMass inside;
};

struct ChunkPrefill::Group {
  std::vector<Lane> lanes;
  uint32_t n_rows = 0;
  AlignedBuffer space;  // a layer of a stored passage

  void add(Lane lane) {
    lane.first_row = n_rows;
    n_rows += lane.n_rows();
    lanes.push_back(std::move(lane));
  }
};

size_t ChunkJob::n_rows() const {
  size_t rows = passages.empty() ? meta.tokens.size() : 0;
  for (const ContextPassage& passage : passages) {
    rows += meta.tokens.size() + (passage.stored.empty() ? passage.tokens.size() : 0);
  }
  return rows;
}

Status ChunkPrefill::check_fits(size_t rows) const {
  const size_t context = model_.context_length();
  if (head_.size() > context || rows > context - head_.size()) {
    return make_error(
        BLEND_E_CONTEXT_LENGTH,
        "the chunk has %zu tokens after a chunk prefix of %zu; the model's context is "
        "%u",
        rows, head_.size(), model_.context_length());
  }
  return Status::ok();
}

Status ChunkPrefill::reserve(uint32_t rows, uint32_t together, const Watch& watch) {
  const auto n_head = static_cast<uint32_t>(head_.size());
  if (!outside_.has_value()) {
    const int32_t first = head_.empty() ? model_.tokenizer().bos() : head_[0];
    BLEND_ASSIGN(outside_, OutsideMass::create(model_, first, watch));
  }
  if (forward_ == nullptr || together > together_) {
    forward_.reset();  // frees it before the second one is made
    BLEND_ASSIGN(forward_, Forward::create(model_, std::max(n_head, together)));
    together_ = together;
  }
  if (cache_ != nullptr && rows <= rows_) return Status::ok();
  cache_.reset();
  BLEND_ASSIGN(ropes_, model_.ropes(n_head + rows));
  BLEND_ASSIGN(cache_, model_.backend().make_kv_cache(model_.config(), n_head + rows));
  fresh_slots_.assign(n_head + rows, 0);
  rows_ = rows;
  Status computed = n_head == 0 ? Status::ok() : compute_head(watch);
  if (!computed.is_ok()) cache_.reset();
  return computed;
}

Status ChunkPrefill::compute_head(const Watch& watch) {
  const auto n_head = static_cast<uint32_t>(head_.size());
  const uint32_t n_layers = model_.config().n_kept();
  const std::vector<uint32_t> pos = positions(0, n_head);
  const Tensor x = forward_->x(n_head);
  BLEND_RETURN_IF_ERROR(forward_->embed(head_.data(), x));
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const Tensor kv = forward_->kv(layer, n_head);
    BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x, kv, watch));
    BLEND_RETURN_IF_ERROR(
        model_.backend().write_kv(*cache_, layer, ropes_->keys(layer), kv, pos.data()));
    if (layer + 1 == n_layers) break;  // nothing reads its output
    BLEND_RETURN_IF_ERROR(forward_->finish_layer(layer, *cache_, *ropes_, x, pos.data(), watch));
  }
  return Status::ok();
}

Status ChunkPrefill::place(Lane& lane, AlignedBuffer& space, uint32_t layer, Tensor kv,
                           const uint32_t* pos) {
  Backend& b = model_.backend();
  if (!lane.stored.empty()) {
    std::vector<StoredRun> runs;
    std::byte* to = space.data();
    auto slot = static_cast<uint32_t>(head_.size());
    for (ChunkSource* const part : lane.stored) {
      const ChunkShape& shape = part->meta().shape;
      if (layer + 1 < shape.n_layers) part->prefetch(layer + 1);
      BLEND_RETURN_IF_ERROR(part->read_layer(layer, to));
      runs.push_back({to, to + shape.plane_bytes(layer), shape.dtype, shape.n_tokens, slot});
      to += shape.layer_bytes(layer);
      slot += shape.n_tokens;
    }
    BLEND_RETURN_IF_ERROR(b.fusion().scatter(*cache_, layer, ropes_->keys(layer), runs,
                                             fresh_slots_.data(), nullptr));
    BLEND_ASSIGN(const std::unique_ptr<Fence> done, b.fence());
    if (done != nullptr) done->wait();  // `space` is read into next
  }
  return b.write_kv(*cache_, layer, ropes_->keys(layer), kv.slice(lane.first_row, lane.n_rows()),
                    pos + lane.first_row);
}

Status ChunkPrefill::keep(Lane& lane, uint32_t layer, Tensor kv) {
  Backend& b = model_.backend();
  Work& work = *lane.work;
  const Tensor fresh = kv.slice(lane.first_row + lane.n_fresh, work.n_tokens());
  Tensor mean = fresh;
  if (work.n_passes > 1) {
    std::unique_ptr<DeviceBuffer>& sum = work.sums[layer];
    const int64_t bytes = b.traits().activation_bytes;
    if (lane.number == 0) {
      BLEND_ASSIGN(sum, b.allocate(static_cast<size_t>(fresh.rows * fresh.cols * bytes)));
    }
    mean = {sum->data(), fresh.rows, fresh.cols, bytes};
    if (lane.number == 0) {
      const std::vector<uint32_t> all = positions(0, static_cast<size_t>(fresh.rows));
      BLEND_RETURN_IF_ERROR(b.gather(fresh, all.data(), mean));
    } else {
      BLEND_RETURN_IF_ERROR(b.add(mean, fresh));
    }
    if (lane.number + 1 < work.n_passes) return Status::ok();
    BLEND_RETURN_IF_ERROR(b.scale(mean, 1.0f / static_cast<float>(work.n_passes)));
  }
  return b.fusion()
      .encode_kv(mean, work.record->meta.shape.dtype, work.record->k(layer), work.record->v(layer))
      .with_context("layer " + std::to_string(layer));
}

Status ChunkPrefill::compute_layer(Group& group, uint32_t layer, Tensor x, Tensor kv,
                                   const uint32_t* pos, const Watch& watch) {
  const ModelConfig& c = model_.config();
  BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x, kv, watch));
  for (Lane& lane : group.lanes) {
    Work& work = *lane.work;
    BLEND_RETURN_IF_ERROR(named(keep(lane, layer, kv), work.name));
    if (layer != outside_layer(c) || lane.number > 0) continue;
    const int64_t first = lane.first_row + lane.n_fresh, n = work.n_tokens();
    BLEND_ASSIGN(work.outside,
                 outside_->of(*forward_, x.slice(first, n), kv.slice(first, n), watch));
  }
  const auto place_lane = [&](size_t i) {
    Lane& lane = group.lanes[i];
    return named(place(lane, group.space, layer, kv, pos), lane.work->name);
  };
  if (layer + 1 == c.n_kept()) {  // nothing reads its output
    for (size_t i = 0; i < group.lanes.size(); ++i) {
      Lane& lane = group.lanes[i];
      BLEND_RETURN_IF_ERROR(place_lane(i));
      if (c.mixer.has(layer)) continue;
      BLEND_RETURN_IF_ERROR(lane.inside.last_layer(*forward_, layer, *cache_, *ropes_,
                                                   x.slice(lane.first_row, lane.n_rows()),
                                                   pos + lane.first_row, watch));
    }
    return Status::ok();
  }
  // As many lanes at a time as products take rows; one that has more is alone.
  const size_t most = model_.backend().traits().block_rows;
  for (size_t i = 0; i < group.lanes.size();) {
    const size_t first = i;
    const uint32_t row = group.lanes[first].first_row;
    uint32_t n_rows = 0;
    std::vector<Forward::Part> parts;
    for (; i < group.lanes.size(); ++i) {
      Lane& lane = group.lanes[i];
      if (i > first && n_rows + lane.n_rows() > most) break;
      parts.push_back({n_rows, lane.n_rows(), lane.inside.out()});
      n_rows += lane.n_rows();
    }
    BLEND_RETURN_IF_ERROR(forward_->finish_parts(
        layer, *cache_, layer, *ropes_, x.slice(row, n_rows), pos + row, parts,
        [&](size_t part) { return place_lane(first + part); }, watch));
  }
  for (Lane& lane : group.lanes) lane.inside.add();
  return Status::ok();
}

Status ChunkPrefill::compute(Group& group, const Watch& watch) {
  const uint32_t n_layers = model_.config().n_kept();
  std::vector<int32_t> tokens;
  std::vector<uint32_t> pos;
  size_t layer_bytes = 0;
  for (const Lane& lane : group.lanes) {
    const std::vector<int32_t>& chunk = lane.work->record->meta.tokens;
    tokens.insert(tokens.end(), lane.before.begin(), lane.before.end());
    tokens.insert(tokens.end(), chunk.begin(), chunk.end());
    for (uint32_t i = 0; i < lane.n_rows(); ++i) pos.push_back(lane.first_slot + i);
    size_t bytes = 0;
    for (ChunkSource* const part : lane.stored) bytes += part->meta().shape.most_layer_bytes();
    layer_bytes = std::max(layer_bytes, bytes);
  }
  if (layer_bytes > 0) {
    BLEND_ASSIGN(group.space, AlignedBuffer::allocate(layer_bytes));
  }
  const Tensor x = forward_->x(group.n_rows);
  BLEND_RETURN_IF_ERROR(forward_->embed(tokens.data(), x));
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    BLEND_RETURN_IF_ERROR(watch.report(layer, n_layers));
    BLEND_RETURN_IF_ERROR(
        compute_layer(group, layer, x, forward_->kv(layer, group.n_rows), pos.data(), watch));
  }
  for (Lane& lane : group.lanes) {
    std::vector<float>& sum = lane.work->inside;
    sum.resize(lane.work->n_tokens(), 0.0f);
    std::transform(sum.begin(), sum.end(), lane.inside.inside().begin(), sum.begin(),
                   std::plus<>());
  }
  return Status::ok();
}

Result<std::vector<ChunkPrefill::Work>> ChunkPrefill::works_of(std::span<ChunkJob> jobs) const {
  const uint32_t n_layers = model_.config().n_kept();
  std::vector<Work> works(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    Work& work = works[i];
    work.record = std::make_shared<ChunkRecord>();
    BLEND_ASSIGN(work.record->data, AlignedBuffer::allocate(jobs[i].meta.shape.total_bytes()));
    work.record->meta = std::move(jobs[i].meta);
    work.name = std::move(jobs[i].name);
    work.n_passes = std::max<size_t>(1, jobs[i].passages.size());
    work.sums.resize(n_layers);
  }
  return works;
}

std::vector<ChunkPrefill::Group> ChunkPrefill::groups_of(std::span<Work> works,
                                                         std::span<const ChunkJob> jobs) const {
  const auto n_head = static_cast<uint32_t>(head_.size());
  std::vector<Lane> lanes;
  size_t rows = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (size_t pass = 0; pass < works[i].n_passes; ++pass) {
      const ContextPassage* after = jobs[i].passages.empty() ? nullptr : &jobs[i].passages[pass];
      lanes.emplace_back(works[i], pass, after, n_head);
      rows += lanes.back().n_rows();
    }
  }
  // As even as lanes allow.
  const size_t most = model_.backend().traits().block_rows;
  const size_t enough = rows / ((rows + most - 1) / most);
  std::vector<Group> groups;
  for (Lane& lane : lanes) {
    if (groups.empty() || groups.back().n_rows >= enough ||
        groups.back().n_rows + lane.n_rows() > most) {
      groups.emplace_back();
    }
    groups.back().add(std::move(lane));
  }
  return groups;
}

std::vector<ChunkPrefill::Group> ChunkPrefill::groups_of(
    std::span<Work> works, std::span<const Sequence> sequences) const {
  const size_t most = model_.backend().traits().block_rows;
  std::vector<Group> groups;
  std::vector<size_t> passes(works.size(), 0);
  for (const Sequence& sequence : sequences) {
    size_t rows = 0;
    for (const size_t job : sequence) rows += works[job].n_tokens();
    // A sequence is not split: in each layer its rows are where the next ones look for them.
    if (groups.empty() || groups.back().n_rows + rows > most) groups.emplace_back();
    auto slot = static_cast<uint32_t>(head_.size());
    for (const size_t job : sequence) {
      groups.back().add(Lane(works[job], passes[job]++, slot));
      slot += works[job].n_tokens();
    }
  }
  return groups;
}

Result<ChunkPrefill::Records> ChunkPrefill::run(std::span<ChunkJob> jobs, const Watch& watch) {
  if (jobs.empty()) return Records();
  size_t rows = 0;
  for (const ChunkJob& job : jobs) {
    size_t most = job.meta.tokens.size();
    for (const ContextPassage& passage : job.passages) {
      most = std::max(most, job.meta.tokens.size() + passage.tokens.size());
    }
    BLEND_RETURN_IF_ERROR(named(check_fits(most), job.name));
    rows = std::max(rows, most);
  }
  BLEND_ASSIGN(std::vector<Work> works, works_of(jobs));
  return run_groups(works, groups_of(works, jobs), rows, watch);
}

size_t ChunkPrefill::most_in_sequences() const {
  constexpr size_t kMostBytes = 512u << 20;
  const size_t values = chunk_shape(model_.config(), 1, DType::f16).total_bytes() / 2;
  const auto each = static_cast<size_t>(model_.backend().traits().activation_bytes);
  return kMostBytes / (values * each);
}

Result<ChunkPrefill::Records> ChunkPrefill::run_in_sequences(std::span<ChunkJob> jobs,
                                                             std::span<const Sequence> sequences,
                                                             const Watch& watch) {
  if (jobs.empty()) return Records();
  size_t rows = 0;
  std::vector<size_t> n_passes(jobs.size(), 0);
  for (const Sequence& sequence : sequences) {
    size_t n = 0;
    for (const size_t job : sequence) {
      n += jobs[job].meta.tokens.size();
      ++n_passes[job];
      BLEND_RETURN_IF_ERROR(named(check_fits(n), jobs[job].name));
    }
    rows = std::max(rows, n);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (n_passes[i] == 0) {
      return named({BLEND_E_INVALID_ARGUMENT, "the chunk is in no sequence"}, jobs[i].name);
    }
  }
  BLEND_ASSIGN(std::vector<Work> works, works_of(jobs));
  for (size_t i = 0; i < works.size(); ++i) works[i].n_passes = n_passes[i];
  return run_groups(works, groups_of(works, sequences), rows, watch);
}

Result<ChunkPrefill::Records> ChunkPrefill::run_groups(std::span<Work> works,
                                                       std::vector<Group> groups, size_t rows,
                                                       const Watch& watch) {
  Records records;
  uint32_t together = 0;
  uint64_t n_lanes = 0, n_done = 0;
  for (const Group& group : groups) {
    together = std::max(together, group.n_rows);
    n_lanes += group.lanes.size();
  }
  BLEND_RETURN_IF_ERROR(
      reserve(static_cast<uint32_t>(std::max<size_t>(rows, rows_)), together, watch));
  for (Group& group : groups) {
    const Watch part{watch.cancel, [&](uint64_t layer, uint64_t n_layers) {
                       if (!watch.progress) return 0;
                       return watch.progress(n_done * n_layers + layer * group.lanes.size(),
                                             n_lanes * n_layers);
                     }};
    BLEND_RETURN_IF_ERROR(compute(group, part));
    n_done += group.lanes.size();
    group = {};
  }
  const uint32_t n_layers = model_.config().n_kept();
  for (Work& work : works) {
    const float share = 1.0f / static_cast<float>(work.n_passes * model_.config().n_attending());
    for (size_t i = 0; i < work.outside.size(); ++i) {
      work.record->meta.impact.push_back({work.outside[i], work.inside[i] * share});
    }
    records.push_back(std::move(work.record));
  }
  BLEND_RETURN_IF_ERROR(watch.report(n_lanes * n_layers, n_lanes * n_layers));
  return records;
}

}  // namespace blend
