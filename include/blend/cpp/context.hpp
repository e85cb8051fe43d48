// The compute threads.
#ifndef BLEND_CPP_CONTEXT_HPP
#define BLEND_CPP_CONTEXT_HPP

#include <functional>
#include <memory>
#include <utility>

#include "blend/context.h"
#include "blend/cpp/types.hpp"

namespace blendpp {

namespace detail {

inline int32_t on_event(void* user, int32_t code, const char* message) noexcept {
  try {
    (*static_cast<const EventFn*>(user))(code, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): see EventFn
  }
  return 0;
}

}  // namespace detail

// `events` takes the place of the C callback members, which stay null.
struct ContextOptions : detail::Initialised<blend_ctx_options, blend_ctx_options_init> {
  EventFn events;
};

// Owns the compute threads. Thread-safe.
class Context {
 public:
  explicit Context(const ContextOptions& options = ContextOptions()) {
    auto copy = static_cast<const blend_ctx_options&>(options);
    std::shared_ptr<const EventFn> events;
    if (options.events) {
      events = std::make_shared<const EventFn>(options.events);
      copy.on_event = &detail::on_event;
      copy.event_user = const_cast<EventFn*>(events.get());
    }
    detail::Outcome outcome;
    blend_ctx* raw = nullptr;
    outcome.check(blend_ctx_create(&raw, &copy, outcome.out()));
    handle_ = {raw, {std::move(events)}};
  }
  const blend_ctx* get() const noexcept { return handle_.get(); }
  // What computes and with what: "cpu (AVX-512, VNNI)", "cpu (NEON)", or "cuda:0 (NAME)".
  const char* backend() const noexcept { return blend_ctx_backend(handle_.get()); }
  const std::shared_ptr<const EventFn>& events() const noexcept {
    return handle_.get_deleter().events;
  }

 private:
  detail::Handle<blend_ctx, blend_ctx_close> handle_;
};

}  // namespace blendpp

#endif
