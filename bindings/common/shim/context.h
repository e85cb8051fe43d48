// Contexts: who computes.
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

// Every function may be called on any thread at any time, close() included: what runs is finished
// first, what comes later gives BLEND_SHIM_E_CLOSED.
class Context {
 public:
  // Null on failure. n_threads 0: as many as this process has CPUs. pin: BLEND_CTX_PIN_THREADS.
  // cache_dtype: BLEND_KV_*. backend: "cpu" (also ""), "cuda", "cuda:N" or "auto".
  static Context* create(uint32_t n_threads, bool pin, uint32_t cache_dtype,
                         const std::string& backend, Outcome& out) noexcept;
  // The same, and `events` gets what its models and stores have to tell.
  static Context* create_with_events(uint32_t n_threads, bool pin, uint32_t cache_dtype,
                                     const std::string& backend, const Events& events,
                                     Outcome& out) noexcept;
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
