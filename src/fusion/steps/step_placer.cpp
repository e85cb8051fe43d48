#include "fusion/steps/step_placer.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "base/threads/start_thread.h"
#include "base/threads/thread_cap.h"
#include "fusion/load/stored_rows.h"

namespace blend {
namespace {

// How often a waiting call looks at its cancel flag.
constexpr auto kPoll = std::chrono::milliseconds(10);

}  // namespace

StepPlacer::StepPlacer(Backend& backend, std::shared_ptr<const Ropes> ropes, const Prompt& prompt,
                       uint32_t first_stored_layer, uint32_t n_layers, Corrector* corrector,
                       const Stopwatch& clock)
    : backend_(backend),
      ropes_(std::move(ropes)),
      prompt_(prompt),
      n_layers_(n_layers),
      corrector_(corrector),
      clock_(clock),
      feed_(backend, n_layers, clock),
      view_(feed_.subscribe(prompt, first_stored_layer)),
      targets_(n_layers),
      placements_(n_layers) {}

Result<std::unique_ptr<StepPlacer>> StepPlacer::start(
    Backend& backend, std::shared_ptr<const Ropes> ropes, const Prompt& prompt,
    uint32_t first_stored_layer, uint32_t n_layers, uint32_t ring_depth, Corrector* corrector,
    const Stopwatch& clock) {
  std::unique_ptr<StepPlacer> p(new StepPlacer(backend, std::move(ropes), prompt,
                                               first_stored_layer, n_layers, corrector, clock));
  uint32_t first = 0;
  while (first < n_layers && !p->view_->has(first)) ++first;
  {
    const MutexLock lock(p->mutex_);
    p->placed_ = first;
  }
  if (first == n_layers) return p;
  BLEND_RETURN_IF_ERROR(p->feed_.start(ring_depth));
  try {
    p->thread_ = start_thread([placer = p.get(), first, threads = ThreadCap::current()] {
      const ThreadCap cap(threads);
      placer->main(first);
    });
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the placing thread: %s", e.what());
  }
  return p;
}

StepPlacer::~StepPlacer() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StepPlacer::set_target(uint32_t layer, const HostKv& target) {
  {
    const MutexLock lock(mutex_);
    targets_[layer] = target;
  }
  changed_.notify_all();
}

void StepPlacer::decide(std::vector<uint8_t> computed, uint32_t last) {
  {
    const MutexLock lock(mutex_);
    computed_ = std::move(computed);
    held_ = nullptr;
    decided_ = last + 1;
  }
  changed_.notify_all();
}

void StepPlacer::decide_again(std::vector<uint8_t> computed, uint32_t last) {
  {
    const MutexLock lock(mutex_);
    computed_ = std::move(computed);
    decided_ = last + 1;
    if (held_ != nullptr) {
      held_ = nullptr;
      again_ = true;
      --placed_;
      computed_upto_ = placed_;  // the host's rows of the layer are others now
    }
  }
  changed_.notify_all();
}

Status StepPlacer::wait(uint32_t layer, const Watch& watch) {
  if (!thread_.joinable()) return watch.check();
  MutexLock lock(mutex_);
  computed_upto_ = std::max(computed_upto_, layer + 1);
  changed_.notify_all();
  while (placed_ <= layer && error_.is_ok()) {
    BLEND_RETURN_IF_ERROR(watch.check());
    changed_.wait_for(lock, kPoll);
  }
  return error_;
}

Placement StepPlacer::placement(uint32_t layer) const {
  const MutexLock lock(mutex_);
  return placements_[layer];
}

void StepPlacer::fail(const Status& status) {
  {
    const MutexLock lock(mutex_);
    error_ = status;
  }
  changed_.notify_all();
}

Status StepPlacer::place(uint32_t layer, const StagedLayer& staged, Placement& placement) {
  const uint64_t begin = clock_.now_ns();
  const std::vector<StoredRun> runs = stored_runs(prompt_, view_->segments(), staged);
  const Correction* correction = nullptr;
  if (corrector_ != nullptr && corrector_->is_due(layer)) {
    std::unique_ptr<DeviceBuffer> buffer;
    FreshRows fresh;
    std::vector<StoredRun> known;
    std::vector<uint32_t> judges;
    if (corrector_->is_judged(layer)) {
      judges = corrector_->leaves_out(layer) ? recomputed_rows(prompt_, computed_)
                                             : corrector_->judges();
    }
    const auto stored_of = [&](std::span<const uint32_t> rows) {
      return stored_runs_among(prompt_, view_->segments(), staged, rows);
    };
    if (!judges.empty()) {
      known = stored_of(judges);
      BLEND_RETURN_IF_ERROR(read_target(layer, judges, buffer, fresh.kv));
      fresh.runs = known;
      fresh.rows = judges;
    }
    BLEND_ASSIGN(correction, corrector_->at(layer, fresh, stored_of));
    placement.add_correction(*corrector_, clock_.now_ns() - begin);
  }
  BLEND_RETURN_IF_ERROR(backend_.host().scatter(target_of(layer), ropes_->to_host(layer), runs,
                                                computed_.data(), correction));
  placement.rows_placed = rows_to_place(runs, computed_);
  placement.place_ns = clock_.now_ns() - begin;
  return Status::ok();
}

// Reads what decide() left, so it is asked once the layer is decided.
bool StepPlacer::is_judged(uint32_t layer) const {
  return corrector_ != nullptr && corrector_->is_judged(layer);
}

Status StepPlacer::read_target(uint32_t layer, std::span<const uint32_t> rows,
                               std::unique_ptr<DeviceBuffer>& buffer, Tensor& kv) const {
  const HostKv target = target_of(layer);
  const size_t cols = size_t{2} * target.kv_dim();
  const auto n = static_cast<int64_t>(rows.size());
  BLEND_ASSIGN(buffer, backend_.allocate(rows.size() * cols *
                                         static_cast<size_t>(backend_.traits().activation_bytes)));
  kv = {buffer->data(), n, static_cast<int64_t>(cols), backend_.traits().activation_bytes};
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    HostKv part = target;
    const size_t skipped =
        rows[i] * target.row_stride * static_cast<size_t>(dtype_size(target.dtype));
    part.k += skipped;
    part.v += skipped;
    BLEND_RETURN_IF_ERROR(
        backend_.host().read(part, ropes_->from_host(layer), rows.data() + i,
                             kv.slice(static_cast<int64_t>(i), static_cast<int64_t>(end - i))));
    i = end;
  }
  return Status::ok();
}

bool StepPlacer::handle(uint32_t layer) {
  auto acquired = view_->acquire(layer);
  if (!acquired.is_ok()) {
    if (feed_.damaged().has_value()) damaged_ = *feed_.damaged();
    fail(acquired.status());
    return false;
  }
  const StagedLayer& staged = **acquired;
  for (bool again = true; again;) {
    if (!place_and_hold(layer, staged, again)) return false;
  }
  view_->release(layer);
  return true;
}

bool StepPlacer::place_and_hold(uint32_t layer, const StagedLayer& staged, bool& again) {
  Placement placement;
  placement.load = staged.load;
  {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) {
      return stop_ || (targets_[layer].has_value() && layer < decided_ &&
                       (computed_upto_ > layer || !is_judged(layer)));
    });
    if (stop_) return false;
  }
  // Without the lock: the rows change only when this layer is placed.
  if (const Status status = place(layer, staged, placement); !status.is_ok()) {
    fail(status.with_context("layer " + std::to_string(layer)));
    return false;
  }
  {
    MutexLock lock(mutex_);
    placements_[layer] = placement;
    placed_ = layer + 1;
    if (decided_ == layer + 1) held_ = &staged;
    changed_.notify_all();
    changed_.wait(lock,
                  [&]() BLEND_REQUIRES(mutex_) { return stop_ || again_ || decided_ > layer + 1; });
    if (stop_) return false;
    again = std::exchange(again_, false);
  }
  return true;
}

void StepPlacer::main(uint32_t first) {
  try {
    for (uint32_t layer = first; layer < n_layers_; ++layer) {
      if (!handle(layer)) return;
    }
  } catch (const std::bad_alloc&) {
    fail(Status::out_of_memory());
  }
}

}  // namespace blend
