#include "calls.h"

#include "detail.h"

namespace blend_shim {

CallReaderOptions::CallReaderOptions() noexcept { show(*this, blendpp::CallReaderOptions()); }

struct CallReaderState {
  CallReaderState(const blendpp::Model& model, const blendpp::CallReaderOptions& options)
      : reader(model, options) {}
  blendpp::CallReader reader;
  Gate gate{"call reader"};
};

CallReader::CallReader(std::shared_ptr<Slot<CallReaderState>> slot) noexcept
    : slot_(std::move(slot)) {}
CallReader::~CallReader() = default;

CallReader* CallReader::open(const Model& model, const CallReaderOptions& options,
                             Outcome& out) noexcept {
  return guarded(out, [&] {
    const CallReaderOptions& s = options;
    // C's text ends at a NUL.
    (void)blendpp::detail::c_string(s.tools, "the list of tools");
    (void)blendpp::detail::c_string(s.template_source, "the template");
    blendpp::CallReaderOptions c;
    give(c, s);
    const auto opened = model.slot().get();
    return new CallReader(make_slot("call reader", std::make_shared<CallReaderState>(*opened, c)));
  });
}

std::string CallReader::add(int32_t token, const std::string& piece, Outcome& out) noexcept {
  return guarded(out, [&] {
    const auto state = slot_->get();
    const Changing changing(state->gate);
    return std::string(state->reader.add(token, piece));
  });
}

std::string CallReader::end(bool is_cut, Outcome& out) noexcept {
  return guarded(out, [&] {
    const auto state = slot_->get();
    const Changing changing(state->gate);
    return std::string(state->reader.end(is_cut));
  });
}

size_t CallReader::n_calls(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto state = slot_->get();
    const Reading reading(state->gate);
    return state->reader.n_calls();
  });
}

CallInfo CallReader::call(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto state = slot_->get();
    const Reading reading(state->gate);
    return shown<CallInfo>(state->reader.call(i));
  });
}

void CallReader::close() noexcept { slot_->take(); }

}  // namespace blend_shim
