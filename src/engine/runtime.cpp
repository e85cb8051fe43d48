#include "engine/runtime.h"

namespace blend {

Result<std::shared_ptr<Runtime>> Runtime::create(uint32_t n_threads, EventSink events) {
  std::shared_ptr<Runtime> runtime(new Runtime());
  runtime->events_ = std::move(events);
  BLEND_ASSIGN(runtime->pool_, ThreadPool::create(n_threads));
  BLEND_ASSIGN(runtime->backend_, make_cpu_backend(*runtime->pool_));
  return runtime;
}

}  // namespace blend
