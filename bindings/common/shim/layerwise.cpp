#include "layerwise.h"

#include <optional>
#include <shared_mutex>

#include "detail.h"

namespace blend_shim {

struct LayerwiseState {
  LayerwiseState(const blendpp::Model& model, const blendpp::Store* store, const Prompt& prompt,
                 const FuseOptions& options)
      : arguments(options) {
    layerwise.emplace(model, store, prompt.get(), arguments.c);
    const blendpp::ModelInfo info = model.info();
    n_kv_heads = info.n_kv_heads;
    head_dim = info.head_dim;
    n_rows = layerwise->tokens().size();
  }
  // Held by every call: shared by those that read. close() waits for it, the others do not.
  std::shared_mutex in_use;
  FuseArguments arguments;  // the layerwise fuse keeps its cancel token and callbacks
  std::optional<blendpp::Layerwise> layerwise;  // empty once closed
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint64_t n_rows = 0;
};

namespace {

// `call(state)` under `Lock`, which is refused rather than waited for.
template <typename Lock, typename Call>
auto holding(const Slot<LayerwiseState>& slot, Outcome& out, Call call) noexcept {
  return guarded(out, [&] {
    const std::shared_ptr<LayerwiseState> state = slot.get();
    const Lock lock(state->in_use, std::try_to_lock);
    if (!lock) {
      throw blendpp::Error(BLEND_SHIM_E_IN_USE, 0, "the layerwise fuse is in use by another call");
    }
    if (!state->layerwise)
      throw blendpp::Error(BLEND_SHIM_E_CLOSED, 0, "the layerwise fuse is closed");
    return call(*state);
  });
}

template <typename Call>
auto reading(const Slot<LayerwiseState>& slot, Outcome& out, Call call) noexcept {
  return holding<std::shared_lock<std::shared_mutex>>(
      slot, out, [&](const LayerwiseState& state) { return call(*state.layerwise); });
}

template <typename Call>
auto changing(const Slot<LayerwiseState>& slot, Outcome& out, Call call) noexcept {
  return holding<std::unique_lock<std::shared_mutex>>(slot, out, call);
}

template <typename T>
View copy(blendpp::Span<const T> span) {
  return owned(std::vector<T>(span.begin(), span.end()));
}

}  // namespace

Layerwise::Layerwise(std::shared_ptr<Slot<LayerwiseState>> slot) noexcept
    : slot_(std::move(slot)) {}
Layerwise::~Layerwise() = default;

Layerwise* Layerwise::create(const Model& model, const Store& store, const Prompt& prompt,
                             const FuseOptions& options, Outcome& out) noexcept {
  return guarded(out, [&] {
    const auto opened = model.slot().get();
    const auto from = store.get();
    return new Layerwise(make_slot(
        "layerwise fuse", std::make_shared<LayerwiseState>(*opened, from.get(), prompt, options)));
  });
}

void Layerwise::restart(Outcome& out) noexcept {
  changing(*slot_, out, [](LayerwiseState& state) { state.layerwise->restart(); });
}
void Layerwise::fetch_kv(uint32_t layer, const KvView& layer_kv, Outcome& out) noexcept {
  changing(*slot_, out, [&](LayerwiseState& state) {
    state.layerwise->fetch_kv(
        layer, kv_view(layer_kv, state.n_rows, state.n_kv_heads, state.head_dim, "fetch_kv"));
  });
}
void Layerwise::synchronize(uint32_t layer, Outcome& out) noexcept {
  changing(*slot_, out, [&](LayerwiseState& state) { state.layerwise->synchronize(layer); });
}
View Layerwise::probe(const float* attention, size_t n_attention, Outcome& out) noexcept {
  return changing(*slot_, out, [&](LayerwiseState& state) {
    return copy(state.layerwise->probe({attention, n_attention}));
  });
}
View Layerwise::select(uint32_t layer, const KvView& fresh, Outcome& out) noexcept {
  return changing(*slot_, out, [&](LayerwiseState& state) {
    if (fresh.k_ == nullptr) return copy(state.layerwise->select(layer, nullptr));
    const blendpp::KvView view = kv_view(fresh, state.layerwise->rows().size(), state.n_kv_heads,
                                         state.head_dim, "the fresh K and V of select");
    return copy(state.layerwise->select(layer, &view));
  });
}
void Layerwise::commit(uint32_t layer, Outcome& out) noexcept {
  changing(*slot_, out, [&](LayerwiseState& state) { state.layerwise->commit(layer); });
}
View Layerwise::rows(Outcome& out) const noexcept {
  return reading(*slot_, out,
                 [](const blendpp::Layerwise& layerwise) { return copy(layerwise.rows()); });
}
View Layerwise::tokens(Outcome& out) const noexcept {
  return reading(*slot_, out,
                 [](const blendpp::Layerwise& layerwise) { return copy(layerwise.tokens()); });
}
View Layerwise::selected(Outcome& out) const noexcept {
  return reading(*slot_, out,
                 [](const blendpp::Layerwise& layerwise) { return copy(layerwise.selected()); });
}
View Layerwise::deviation(Outcome& out) const noexcept {
  return reading(*slot_, out,
                 [](const blendpp::Layerwise& layerwise) { return copy(layerwise.deviation()); });
}
FusionInfo Layerwise::info(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Layerwise& layerwise) {
    return shown<FusionInfo>(layerwise.report());
  });
}
LayerInfo Layerwise::layer(uint32_t layer, Outcome& out) const noexcept {
  return reading(*slot_, out, [&](const blendpp::Layerwise& layerwise) {
    return shown<LayerInfo>(layerwise.layer(layer));
  });
}
SegmentInfo Layerwise::segment(size_t segment, Outcome& out) const noexcept {
  return reading(*slot_, out, [&](const blendpp::Layerwise& layerwise) {
    return shown<SegmentInfo>(layerwise.segment(segment));
  });
}

void Layerwise::close() noexcept {
  const std::shared_ptr<LayerwiseState> state = slot_->take();
  if (!state) return;
  const std::lock_guard<std::shared_mutex> lock(state->in_use);
  state->layerwise.reset();
}

}  // namespace blend_shim
