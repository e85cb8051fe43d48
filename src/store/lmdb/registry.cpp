#include "store/lmdb/registry.h"

#include <atomic>

#include "store/lmdb/environment.h"

namespace blend {

EnvRegistry& EnvRegistry::of_this_process() {
  static std::atomic<EnvRegistry*> current{nullptr};
  EnvRegistry* r = current.load();
  while (r == nullptr || !r->process_.is_this_process()) {
    auto fresh = std::make_unique<EnvRegistry>();
    if (current.compare_exchange_strong(r, fresh.get())) return *fresh.release();
  }
  return *r;
}

Result<std::shared_ptr<LmdbEnv>> EnvRegistry::find_or_open(const FileIdentity& file,
                                                           const Open& open) {
  MutexLock lock(mutex_);
  for (;;) {
    const auto found = open_.find(file);
    if (found == open_.end()) break;
    if (auto env = found->second.lock()) return env;
    changed_.wait(lock);
  }
  BLEND_ASSIGN(std::unique_ptr<LmdbEnv> fresh, open());
  open_.try_emplace(file);
  // Without the lock: the deleter takes it, which also runs when there is no memory for the shared
  // pointer itself. Meanwhile others wait for the entry.
  lock.unlock();
  std::shared_ptr<LmdbEnv> env(fresh.release(), [this, file](LmdbEnv* e) { close(e, file); });
  lock.lock();
  open_.find(file)->second = env;
  changed_.notify_all();
  return env;
}

void EnvRegistry::close(LmdbEnv* env, const FileIdentity& file) {
  if (env->forked()) return;  // leaked: closing would corrupt the parent's locks
  const MutexLock lock(mutex_);
  delete env;
  open_.erase(file);
  changed_.notify_all();
}

Result<std::shared_ptr<void>> EnvRegistry::reserve(const FileIdentity& file,
                                                   const std::string& path) {
  {
    const MutexLock lock(mutex_);
    if (!open_.try_emplace(file).second) {
      return make_error(BLEND_E_BUSY, "store '%s' is open in this process: close it first",
                        path.c_str());
    }
  }
  // Without the lock, as above.
  return std::shared_ptr<void>(this, [this, file](void*) {
    const MutexLock lock(mutex_);
    open_.erase(file);
    changed_.notify_all();
  });
}

}  // namespace blend
