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

inline int32_t on_log(void* user, const blend_log_record* record) noexcept {
  try {
    (*static_cast<const LogFn*>(user))(*record);
  } catch (...) {  // NOLINT(bugprone-empty-catch): see LogFn
  }
  return 0;
}

}  // namespace detail

// `on_log` takes the place of the C callback members `log` and `log_user`, which stay null.
struct ContextOptions : detail::Initialised<blend_ctx_options, blend_ctx_options_init> {
  LogFn on_log;
};

// Owns the compute threads. Thread-safe.
class Context {
 public:
  explicit Context(const ContextOptions& options = ContextOptions()) {
    auto copy = static_cast<const blend_ctx_options&>(options);
    std::shared_ptr<const LogFn> log;
    if (options.on_log) {
      log = std::make_shared<const LogFn>(options.on_log);
      copy.log = &detail::on_log;
      copy.log_user = const_cast<LogFn*>(log.get());
    }
    detail::Outcome outcome;
    blend_ctx* raw = nullptr;
    outcome.check(blend_ctx_create(&raw, &copy, outcome.out()));
    handle_ = {raw, {std::move(log)}};
  }
  const blend_ctx* get() const noexcept { return handle_.get(); }
  // What computes and with what: "cpu (AVX-512, VNNI)", "cpu (NEON)", or "cuda:0 (NAME)".
  const char* backend() const noexcept { return blend_ctx_backend(handle_.get()); }
  const std::shared_ptr<const LogFn>& log() const noexcept { return handle_.get_deleter().log; }

 private:
  detail::Handle<blend_ctx, blend_ctx_close> handle_;
};

}  // namespace blendpp

#endif
