// LookUps: the chunks that a fuse looks up in the remote tier, side by side, and the time that it
// waits for all of them together: so a slow server costs a fuse that time, not its latency for each
// chunk.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/hash.h"
#include "base/status.h"
#include "base/threads/guarded.h"

namespace blend {

// Thread-safe; expect(), wait() and leave() are one thread's at a time.
class LookUps {
 public:
  // Of all manifests that wait to be taken: what a server says beyond that is no answer.
  static constexpr size_t kMostBytes = 128u << 20;

  // most: the time of all waits together.
  explicit LookUps(std::chrono::nanoseconds most) : left_(most) {}
  LookUps(const LookUps&) = delete;
  LookUps& operator=(const LookUps&) = delete;

  // ---- For who waits

  // False: it is expected already.
  bool expect(const Sha256& id);
  bool expects(const Sha256& id) const;
  // The answer of an id that is expected. A manifest is given once, and is not expected then; what
  // is not there stays so. Empty: the time of all is over.
  std::optional<Result<std::string>> wait(const Sha256& id);
  bool any_answered() const;
  void leave();  // nobody waits from now on

  // ---- For who asks

  bool wanted() const;  // somebody may wait
  // The first answer of an id counts.
  void answer(const Sha256& id, Result<std::string> manifest);

 private:
  mutable Mutex mutex_;
  CondVar answered_;
  // Empty: no answer yet.
  std::unordered_map<Sha256, std::optional<Result<std::string>>, Sha256Hash> ids_
      BLEND_GUARDED_BY(mutex_);
  std::chrono::nanoseconds left_ BLEND_GUARDED_BY(mutex_);
  size_t bytes_ BLEND_GUARDED_BY(mutex_) = 0;  // of manifests in ids_
  bool any_answered_ BLEND_GUARDED_BY(mutex_) = false;
  bool over_ BLEND_GUARDED_BY(mutex_) = false;
};

}  // namespace blend
