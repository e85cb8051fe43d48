#include "detail.h"

namespace blend_shim {

void Gate::begin_reading() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (changing_) {
    throw blendpp::Error(BLEND_SHIM_E_IN_USE, 0,
                         std::string("the ") + what_ +
                             " is in use: another call changes it, or a stream of its tokens is "
                             "open; close the stream first");
  }
  ++readers_;
}
void Gate::end_reading() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  --readers_;
}
void Gate::begin_changing(bool view_stays) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (changing_ || readers_ > 0) {
    throw blendpp::Error(BLEND_SHIM_E_IN_USE, 0,
                         std::string("the ") + what_ +
                             " is in use by another call, or a stream of its tokens is open");
  }
  if (views_ > 0 && !view_stays) {
    throw blendpp::Error(BLEND_SHIM_E_VIEW_HELD, 0,
                         std::string("a view of the ") + what_ +
                             "'s memory is still held, and this call would change what it shows: "
                             "copy what you need and let the view go first");
  }
  changing_ = true;
}
void Gate::end_changing() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  changing_ = false;
}
void Gate::add_view() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++views_;
}
void Gate::drop_view() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  --views_;
}

namespace {

std::shared_ptr<Slot<FusionState>> fusion_slot(blendpp::Fusion fusion) {
  return make_slot("fusion", std::make_shared<FusionState>(std::move(fusion)));
}

// `call(fusion, state)` while nobody changes the fusion.
template <typename Call>
auto reading(const Slot<FusionState>& slot, Outcome& out, Call call) noexcept {
  return guarded(out, [&] {
    const std::shared_ptr<FusionState> state = slot.get();
    const Reading lock(state->gate);
    return call(state->fusion, state);
  });
}

template <typename Call>
void changing(const Slot<FusionState>& slot, Outcome& out, Call call) noexcept {
  guarded(out, [&] {
    const std::shared_ptr<FusionState> state = slot.get();
    const Changing lock(state->gate);
    call(state->fusion);
  });
}

}  // namespace

Fusion::Fusion(std::shared_ptr<Slot<FusionState>> slot) noexcept : slot_(std::move(slot)) {}
Fusion::~Fusion() = default;

Fusion* Fusion::fuse(const Model& model, const Store& store, const Prompt& prompt,
                     const FuseOptions& options, Outcome& out) noexcept {
  return guarded(out, [&] {
    const FuseArguments arguments(options);
    const auto opened = model.slot().get();
    const auto from = store.get();
    return new Fusion(fusion_slot(blendpp::Fusion(*opened, from.get(), prompt.get(), arguments.c)));
  });
}

Fusion* Fusion::restore(const Model& model, const Store& store, const std::string& id,
                        const std::string& tenant, uint32_t reserve_tokens, const Cancel& cancel,
                        Outcome& out) noexcept {
  return guarded(out, [&] {
    const auto opened = model.slot().get();
    const auto from = store.get();
    if (!from) invalid("restore needs a store");
    return new Fusion(
        fusion_slot(blendpp::Fusion::restore(*opened, *from, blendpp::ChunkId::from_hex(id), tenant,
                                             reserve_tokens, raw(cancel.token()))));
  });
}

void Fusion::extend(const Store& store, const Prompt& prompt, const FuseOptions& options,
                    Outcome& out) noexcept {
  changing(*slot_, out, [&](blendpp::Fusion& fusion) {
    const FuseArguments arguments(options);
    const auto from = store.get();
    fusion.extend(from.get(), prompt.get(), arguments.c);
  });
}

std::string Fusion::save(const Store& store, const std::string& tenant, const Cancel& cancel,
                         Outcome& out) const noexcept {
  return reading(*slot_, out, [&](const blendpp::Fusion& fusion, const auto&) {
    const auto to = store.get();
    if (!to) invalid("save needs a store");
    return fusion.save(*to, tenant, raw(cancel.token())).hex();
  });
}

FusionInfo Fusion::info(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Fusion& fusion, const auto&) {
    return shown<FusionInfo>(fusion.report());
  });
}
LayerInfo Fusion::layer(uint32_t layer, Outcome& out) const noexcept {
  return reading(*slot_, out, [&](const blendpp::Fusion& fusion, const auto&) {
    return shown<LayerInfo>(fusion.layer(layer));
  });
}
SegmentInfo Fusion::segment(size_t segment, Outcome& out) const noexcept {
  return reading(*slot_, out, [&](const blendpp::Fusion& fusion, const auto&) {
    return shown<SegmentInfo>(fusion.segment(segment));
  });
}
View Fusion::selected(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Fusion& fusion, const auto& state) {
    return lend(state, fusion.selected());
  });
}
View Fusion::deviation(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Fusion& fusion, const auto& state) {
    return lend(state, fusion.deviation());
  });
}
View Fusion::tokens(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Fusion& fusion, const auto& state) {
    return lend(state, fusion.tokens());
  });
}
View Fusion::logits(Outcome& out) const noexcept {
  return reading(*slot_, out, [](const blendpp::Fusion& fusion, const auto& state) {
    return lend(state, fusion.logits());
  });
}

void Fusion::decode(const int32_t* tokens, size_t n_tokens, const Cancel& cancel,
                    Outcome& out) noexcept {
  changing(*slot_, out, [&](blendpp::Fusion& fusion) {
    fusion.decode(blendpp::Tokens(tokens, tokens + n_tokens), raw(cancel.token()));
  });
}
size_t Fusion::make_exact(const int32_t* tokens, size_t n_tokens, const Cancel& cancel,
                          Outcome& out) noexcept {
  size_t n_kept = 0;
  changing(*slot_, out, [&](blendpp::Fusion& fusion) {
    n_kept = fusion.make_exact(blendpp::Tokens(tokens, tokens + n_tokens), raw(cancel.token()));
  });
  return n_kept;
}
void Fusion::replace(uint64_t first_row, uint64_t n_rows, const int32_t* tokens, size_t n_tokens,
                     const Cancel& cancel, Outcome& out) noexcept {
  changing(*slot_, out, [&](blendpp::Fusion& fusion) {
    fusion.replace(first_row, n_rows, blendpp::Tokens(tokens, tokens + n_tokens),
                   raw(cancel.token()));
  });
}
void Fusion::erase(uint64_t first_row, uint64_t n_rows, const Cancel& cancel,
                   Outcome& out) noexcept {
  changing(*slot_, out,
           [&](blendpp::Fusion& fusion) { fusion.erase(first_row, n_rows, raw(cancel.token())); });
}

Fusion* Fusion::fork(Outcome& out) noexcept {
  return guarded(out, [&] {
    const std::shared_ptr<FusionState> state = slot_->get();
    const Changing lock(state->gate, true);
    return new Fusion(fusion_slot(state->fusion.fork()));
  });
}

void Fusion::close() noexcept { slot_->take(); }

// ---- Batch

void Batch::add(const Prompt& prompt, const FuseOptions& options) noexcept {
  keep([&] {
    require_complete(prompt);
    Prompt copy = prompt;
    copy.prompt_ = std::make_shared<blendpp::Prompt>(*prompt.prompt_);
    prompts_.push_back(std::move(copy));
    options_.push_back(options);
  });
}

void Batch::fuse(const Model& model, const Store& store, Outcome& out) noexcept {
  guarded(out, [&] {
    require_complete(*this);
    done_.clear();
    const auto opened = model.slot().get();
    const auto from = store.get();
    std::vector<std::unique_ptr<FuseArguments>> arguments;
    blendpp::Batch batch;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      arguments.push_back(std::make_unique<FuseArguments>(options_[i]));
      batch.add(prompts_[i].get(), arguments.back()->c);
    }
    auto outcomes = batch.fuse(*opened, from.get());
    std::vector<Done> done(outcomes.size());
    for (size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i].fusion) {
        done[i].fusion = fusion_slot(std::move(*outcomes[i].fusion));
      } else if (outcomes[i].error) {
        const blendpp::Error& error = *outcomes[i].error;
        done[i].error.set(error.code(), error.detail(), error.what());
      }
    }
    done_.swap(done);
  });
}

Fusion* Batch::take(size_t i, Outcome& out) noexcept {
  return guarded(out, [&]() -> Fusion* {
    if (i >= done_.size()) invalid("no such prompt in the batch, or fuse() was not called");
    Done& done = done_[i];
    if (done.fusion) {
      auto* fusion = new Fusion(done.fusion);
      done.fusion.reset();
      done.error.set(BLEND_E_INVALID_ARGUMENT, 0, "this prompt's fusion was taken before");
      return fusion;
    }
    throw blendpp::Error(done.error.code(), done.error.detail(), done.error.message());
  });
}

}  // namespace blend_shim
