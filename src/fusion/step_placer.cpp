#include "fusion/step_placer.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

namespace blend {
namespace {

// Layers staged ahead of the one that is placed.
constexpr uint32_t kRingDepth = 3;

// How often a waiting call looks at its cancel flag.
constexpr auto kPoll = std::chrono::milliseconds(10);

}  // namespace

StepPlacer::StepPlacer(Backend& backend, std::shared_ptr<const RopeTable> rope, const Plan& plan,
                       std::vector<size_t> segments, uint32_t n_layers, const Stopwatch& clock)
    : backend_(backend),
      rope_(std::move(rope)),
      plan_(plan),
      segments_(std::move(segments)),
      n_layers_(n_layers),
      clock_(clock),
      targets_(n_layers),
      accounts_(n_layers) {}

Result<std::unique_ptr<StepPlacer>> StepPlacer::start(Backend& backend,
                                                      std::shared_ptr<const RopeTable> rope,
                                                      const Plan& plan, const ChunksToLoad& chunks,
                                                      uint32_t n_layers, const Stopwatch& clock) {
  std::unique_ptr<StepPlacer> p(
      new StepPlacer(backend, std::move(rope), plan, chunks.segments, n_layers, clock));
  p->first_layer_ = p->placed_ = std::min(chunks.first_layer, n_layers);
  if (chunks.items.empty() || p->first_layer_ == n_layers) return p;
  BLEND_ASSIGN(p->loader_, LayerLoader::start(backend, chunks.items, n_layers, kRingDepth, clock));
  try {
    p->thread_ = std::thread([placer = p.get()] { placer->main(); });
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the placing thread: %s", e.what());
  }
  return p;
}

StepPlacer::~StepPlacer() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StepPlacer::set_target(uint32_t layer, const HostKv& target) {
  {
    std::lock_guard lock(mutex_);
    targets_[layer] = target;
  }
  changed_.notify_all();
}

void StepPlacer::decide(std::vector<uint8_t> computed, uint32_t last) {
  {
    std::lock_guard lock(mutex_);
    computed_ = std::move(computed);
    held_ = nullptr;
    decided_ = last + 1;
  }
  changed_.notify_all();
}

Status StepPlacer::wait(uint32_t layer, const Watch& watch) {
  if (loader_ == nullptr) return watch.check();
  std::unique_lock lock(mutex_);
  while (placed_ <= layer && error_.is_ok()) {
    BLEND_RETURN_IF_ERROR(watch.check());
    changed_.wait_for(lock, kPoll);
  }
  return error_;
}

StepPlacer::Account StepPlacer::account(uint32_t layer) const {
  std::lock_guard lock(mutex_);
  return accounts_[layer];
}

void StepPlacer::fail(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    error_ = status;
  }
  changed_.notify_all();
}

Status StepPlacer::place(uint32_t layer, const StagedLayer& staged, Account& account) {
  const uint64_t begin = clock_.now_ns();
  const std::vector<StoredRun> runs = stored_runs(plan_, segments_, staged);
  BLEND_RETURN_IF_ERROR(backend_.place_host(*targets_[layer], *rope_, runs, computed_.data()));
  for (const StoredRun& run : runs) {
    const auto first = computed_.begin() + run.first;
    account.rows_placed += static_cast<uint64_t>(std::count(first, first + run.n_rows, 0));
  }
  account.place_ns = clock_.now_ns() - begin;
  return Status::ok();
}

bool StepPlacer::handle(uint32_t layer) {
  auto acquired = loader_->acquire(layer);
  if (!acquired.is_ok()) {
    failed_segment_ = segments_[loader_->failed_item()];
    fail(acquired.status());
    return false;
  }
  const StagedLayer& staged = **acquired;
  Account account;
  account.bytes = staged.bytes;
  account.load_begin_ns = staged.load_begin_ns;
  account.load_end_ns = staged.load_end_ns;
  account.stall_ns = staged.stall_ns;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || (targets_[layer].has_value() && layer < decided_); });
    if (stop_) return false;
  }
  // Without the lock: the target is set once, and the rows change only when this layer is placed.
  if (const Status status = place(layer, staged, account); !status.is_ok()) {
    fail(status.with_context("layer " + std::to_string(layer)));
    return false;
  }
  {
    std::unique_lock lock(mutex_);
    accounts_[layer] = account;
    placed_ = layer + 1;
    if (decided_ == layer + 1) held_ = &staged;
    changed_.notify_all();
    changed_.wait(lock, [&] { return stop_ || decided_ > layer + 1; });
    if (stop_) return false;
  }
  loader_->release(layer);
  return true;
}

void StepPlacer::main() {
  try {
    for (uint32_t layer = first_layer_; layer < n_layers_; ++layer) {
      if (!handle(layer)) return;
    }
  } catch (const std::bad_alloc&) {
    fail(Status::out_of_memory());
  }
}

}  // namespace blend
