// Runtime: what a context owns: the compute threads, the backend on them, the event sink.
#pragma once

#include <memory>

#include "backend/select.h"
#include "base/cancel.h"
#include "base/foreground.h"
#include "base/thread_pool.h"

namespace blend {

// Safe for concurrent use. Shared by everything opened on the context, so that handles
// may be closed in any order.
class Runtime {
 public:
  // Where an automatic choice falls back to the CPU, the event sink is told why.
  static Result<std::shared_ptr<Runtime>> create(uint32_t n_threads, EventSink events,
                                                 const BackendSpec& backend = {});
  // On a backend of the caller's making.
  using MakeBackend = std::function<Result<std::unique_ptr<Backend>>(ThreadPool&)>;
  static Result<std::shared_ptr<Runtime>> create(uint32_t n_threads, EventSink events,
                                                 const MakeBackend& make);

  ThreadPool& pool() const { return *pool_; }
  Backend& backend() const { return *backend_; }
  const EventSink& events() const { return events_; }
  // Calls that somebody waits for stand here; work in the background asks it.
  Foreground& foreground() const { return foreground_; }

 private:
  Runtime() = default;
  // Destroyed in reverse: the backend goes before its threads.
  EventSink events_;
  mutable Foreground foreground_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace blend
