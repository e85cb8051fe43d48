// Runtime: what a context owns: the compute threads, the backend on them, the log.
#pragma once

#include <memory>

#include "backend/select.h"
#include "base/log.h"
#include "base/threads/cancel.h"
#include "base/threads/foreground.h"
#include "base/threads/process.h"
#include "base/threads/thread_pool.h"
#include "engine/device_tier.h"

namespace blend {

// Safe for concurrent use. Shared by everything opened on the context, so that handles
// may be closed in any order.
class Runtime {
 public:
  // Where an automatic choice falls back to the CPU, the log says why.
  static Result<std::shared_ptr<Runtime>> create(const PoolOptions& threads, Log log,
                                                 const BackendSpec& backend = {},
                                                 uint64_t device_bytes = 0);
  // With a backend made by the caller.
  using MakeBackend = std::function<Result<std::unique_ptr<Backend>>(ThreadPool&)>;
  static Result<std::shared_ptr<Runtime>> create(const PoolOptions& threads, Log log,
                                                 const MakeBackend& make,
                                                 uint64_t device_bytes = 0);

  ThreadPool& pool() const { return *pool_; }
  Backend& backend() const { return *backend_; }
  // Chunks kept in the backend's memory, up to device_bytes; null where those are 0 or the backend
  // has no memory of its own.
  DeviceTier* device_tier() const { return device_tier_.get(); }
  const Log& log() const { return log_; }
  // For background work, which makes way for calls that a host waits for.
  Foreground& foreground() const { return foreground_; }
  // Registers such a call as long as the result lives. FORKED, before any lock: see check_fork().
  Result<Foreground::Scope> begin_call() const;
  // FORKED in a child of the process that made the context: its threads are not there, and a lock
  // that another thread held at the fork is held for ever.
  Status check_fork() const;

 private:
  Runtime() = default;
  bool forked() const;
  void keep_chunks(uint64_t device_bytes);
  const ProcessMark process_;
  // Destroyed in reverse: the backend goes before its threads.
  Log log_;
  mutable Foreground foreground_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceTier> device_tier_;
};

}  // namespace blend
