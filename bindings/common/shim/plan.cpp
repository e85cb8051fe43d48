#include "plan.h"

#include <optional>
#include <shared_mutex>

#include "detail.h"

namespace blend_shim {

struct PlanState {
  PlanState(const blendpp::Model& model, const blendpp::Store* store, const Prompt& prompt,
            const FuseOptions& options)
      : arguments(options) {
    plan.emplace(model, store, prompt.get(), arguments.c);
    const blendpp::ModelInfo info = model.info();
    n_kv_heads = info.n_kv_heads;
    head_dim = info.head_dim;
    n_rows = plan->tokens().size();
  }
  // Held by every call: shared by those that read. close() waits for it, the others do not.
  std::shared_mutex in_use;
  FuseArguments arguments;            // the plan keeps its cancel token and callbacks
  std::optional<blendpp::Plan> plan;  // empty once closed
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint64_t n_rows = 0;
};

namespace {

// `call(state)` under `Lock`, which is refused rather than waited for.
template <typename Lock, typename Call>
auto holding(const Slot<PlanState>& slot, Outcome& out, Call call) noexcept {
  return guarded(out, [&] {
    const std::shared_ptr<PlanState> state = slot.get();
    const Lock lock(state->in_use, std::try_to_lock);
    if (!lock) {
      throw blendpp::Error(BLEND_SHIM_E_IN_USE, 0, "the plan is in use by another call");
    }
    if (!state->plan) throw blendpp::Error(BLEND_SHIM_E_CLOSED, 0, "the plan is closed");
    return call(*state);
  });
}

template <typename Call>
auto reading(const Slot<PlanState>& slot, Outcome& out, Call call) noexcept {
  return holding<std::shared_lock<std::shared_mutex>>(
      slot, out, [&](const PlanState& state) { return call(*state.plan); });
}

template <typename Call>
auto changing(const Slot<PlanState>& slot, Outcome& out, Call call) noexcept {
  return holding<std::unique_lock<std::shared_mutex>>(slot, out, call);
}

template <typename T>
View copy(blendpp::Span<const T> span) {
  return owned(std::vector<T>(span.begin(), span.end()));
}

}  // namespace

Plan::Plan(std::shared_ptr<Slot<PlanState>> slot) noexcept : slot_(std::move(slot)) {}
Plan::~Plan() = default;

Plan* Plan::create(const Model& model, const Store& store, const Prompt& prompt,
                   const FuseOptions& options, Outcome& out) noexcept {
  return guarded(out, [&] {
    const auto opened = model.slot().get();
    const auto from = store.get();
    return new Plan(
        make_slot("plan", std::make_shared<PlanState>(*opened, from.get(), prompt, options)));
  });
}

void Plan::restart(Outcome& out) noexcept {
  changing(*slot_, out, [](PlanState& state) { state.plan->restart(); });
}
void Plan::fetch(uint32_t layer, const KvView& layer_kv, Outcome& out) noexcept {
  changing(*slot_, out, [&](PlanState& state) {
    state.plan->fetch(layer,
                      kv_view(layer_kv, state.n_rows, state.n_kv_heads, state.head_dim, "fetch"));
  });
}
void Plan::synchronize(uint32_t layer, Outcome& out) noexcept {
  changing(*slot_, out, [&](PlanState& state) { state.plan->synchronize(layer); });
}
View Plan::probe(const float* attention, size_t n_attention, Outcome& out) noexcept {
  return changing(*slot_, out, [&](PlanState& state) {
    return copy(state.plan->probe({attention, n_attention}));
  });
}
View Plan::choose(uint32_t layer, const KvView& fresh, Outcome& out) noexcept {
  return changing(*slot_, out, [&](PlanState& state) {
    const blendpp::KvView view = kv_view(fresh, state.plan->rows().size(), state.n_kv_heads,
                                         state.head_dim, "the fresh K and V of select");
    return copy(state.plan->select(layer, &view));
  });
}
View Plan::choose_unmeasured(uint32_t layer, Outcome& out) noexcept {
  return changing(*slot_, out,
                  [&](PlanState& state) { return copy(state.plan->select(layer, nullptr)); });
}
void Plan::commit(uint32_t layer, Outcome& out) noexcept {
  changing(*slot_, out, [&](PlanState& state) { state.plan->commit(layer); });
}
View Plan::rows(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Plan& plan) { return copy(plan.rows()); });
}
View Plan::tokens(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Plan& plan) { return copy(plan.tokens()); });
}
View Plan::selected(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Plan& plan) { return copy(plan.selected()); });
}
View Plan::deviation(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Plan& plan) { return copy(plan.deviation()); });
}
FusionInfo Plan::info(Outcome& out) const noexcept {
  return reading(*slot_, out,
                 [](const blendpp::Plan& plan) { return shown<FusionInfo>(plan.report()); });
}
LayerInfo Plan::layer(uint32_t layer, Outcome& out) const noexcept {
  return reading(*slot_, out,
                 [&](const blendpp::Plan& plan) { return shown<LayerInfo>(plan.layer(layer)); });
}
SegmentInfo Plan::segment(size_t segment, Outcome& out) const noexcept {
  return reading(*slot_, out, [&](const blendpp::Plan& plan) {
    return shown<SegmentInfo>(plan.segment(segment));
  });
}

void Plan::close() noexcept {
  const std::shared_ptr<PlanState> state = slot_->take();
  if (!state) return;
  const std::lock_guard<std::shared_mutex> lock(state->in_use);
  state->plan.reset();
}

}  // namespace blend_shim
