// Contexts: the compute threads.
#ifndef BLEND_SHIM_CONTEXT_H
#define BLEND_SHIM_CONTEXT_H

#include "call.h"

namespace blendpp {
class Context;
}

namespace blend_shim {

#ifndef SWIG
template <typename T>
class Slot;
#endif

struct ContextOptions {
  ContextOptions() noexcept;
  BLEND_CTX_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  // `log` receives the records of the context, its models and its stores.
  void set_log(const LogQueue& log) noexcept { log_ = log.queue(); }
#ifndef SWIG
  std::shared_ptr<LogQueue::Queue> log_;
#endif
};

// Every function may be called on any thread at any time, close() included: running calls are
// finished first, later ones give BLEND_SHIM_E_CLOSED.
class Context {
 public:
  // Null on failure.
  static Context* create(const ContextOptions& options, Outcome& out) noexcept;
  ~Context();
  std::string backend(Outcome& out) const noexcept;
  void close() noexcept;
#ifndef SWIG
  const Slot<blendpp::Context>& slot() const noexcept { return *slot_; }
#endif

 private:
#ifndef SWIG
  explicit Context(std::shared_ptr<Slot<blendpp::Context>> slot) noexcept;
  std::shared_ptr<Slot<blendpp::Context>> slot_;
#else
  Context();
#endif
};

}  // namespace blend_shim

#endif
