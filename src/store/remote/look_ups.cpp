#include "store/remote/look_ups.h"

#include <utility>

namespace blend {

bool LookUps::expect(const Sha256& id) {
  const MutexLock lock(mutex_);
  return ids_.try_emplace(id).second;
}

bool LookUps::expects(const Sha256& id) const {
  const MutexLock lock(mutex_);
  return ids_.contains(id);
}

std::optional<Result<std::string>> LookUps::wait(const Sha256& id) {
  MutexLock lock(mutex_);
  const auto it = ids_.find(id);
  if (it == ids_.end()) return Result<std::string>(Status{BLEND_E_INTERNAL, "nobody asked"});
  std::optional<Result<std::string>>& answer = it->second;
  const auto begin = std::chrono::steady_clock::now();
  answered_.wait_until(lock, begin + left_,
                       [&]() BLEND_REQUIRES(mutex_) { return over_ || answer.has_value(); });
  left_ -= std::min<std::chrono::nanoseconds>(left_, std::chrono::steady_clock::now() - begin);
  if (!answer.has_value()) {
    over_ = true;
    return std::nullopt;
  }
  if (!answer->is_ok()) return *answer;
  Result<std::string> manifest = std::move(*answer);
  bytes_ -= manifest->size();
  ids_.erase(it);
  return manifest;
}

bool LookUps::any_answered() const {
  const MutexLock lock(mutex_);
  return any_answered_;
}

void LookUps::leave() {
  const MutexLock lock(mutex_);
  over_ = true;
}

bool LookUps::wanted() const {
  const MutexLock lock(mutex_);
  return !over_;
}

void LookUps::answer(const Sha256& id, Result<std::string> manifest) {
  {
    const MutexLock lock(mutex_);
    const auto it = ids_.find(id);
    if (it == ids_.end() || it->second.has_value()) return;
    any_answered_ = true;
    if (manifest.is_ok() && manifest->size() > kMostBytes - bytes_) {
      it->second = Status{BLEND_E_CORRUPT, "the manifests of a prompt are too long"};
    } else {
      if (manifest.is_ok()) bytes_ += manifest->size();
      it->second = std::move(manifest);
    }
  }
  answered_.notify_all();
}

}  // namespace blend
