#include "engine/runtime.h"

namespace blend {

Result<std::shared_ptr<Runtime>> Runtime::create(const PoolOptions& threads, Log log,
                                                 const BackendSpec& backend,
                                                 uint64_t device_bytes) {
  std::vector<BackendNote> notes;
  const auto make = [&](ThreadPool& pool) { return make_backend(backend, pool, &notes); };
  BLEND_ASSIGN(auto runtime, create(threads, std::move(log), MakeBackend(make), device_bytes));
  for (const BackendNote& note : notes) {
    runtime->log_.write(BLEND_LOG_WARNING, note.code, "context",
                        [&](LogRecord& record) { record.message = note.message; });
  }
  return runtime;
}

Result<std::shared_ptr<Runtime>> Runtime::create(const PoolOptions& threads, Log log,
                                                 const MakeBackend& make, uint64_t device_bytes) {
  // In a forked child it is leaked: joining the threads would wait for ever.
  std::shared_ptr<Runtime> runtime(new Runtime(), [](Runtime* r) {
    if (!r->forked()) delete r;
  });
  runtime->log_ = std::move(log);
  BLEND_ASSIGN(runtime->pool_, ThreadPool::create(threads));
  BLEND_ASSIGN(runtime->backend_, make(*runtime->pool_));
  runtime->keep_chunks(device_bytes);
  return runtime;
}

bool Runtime::forked() const { return !process_.is_this_process(); }

Status Runtime::check_fork() const {
  if (!forked()) return Status::ok();
  return {BLEND_E_FORKED,
          "the context was made before fork(), and its threads are in the parent: make a context "
          "and open the model and the store again in this process"};
}

Result<Foreground::Scope> Runtime::begin_call() const {
  BLEND_RETURN_IF_ERROR(check_fork());
  return Foreground::Scope(foreground_);
}

void Runtime::keep_chunks(uint64_t device_bytes) {
  if (DeviceMemory* const memory = backend_->device_memory();
      memory != nullptr && device_bytes > 0) {
    device_tier_ = std::make_unique<DeviceTier>(*memory, device_bytes);
  }
}

}  // namespace blend
