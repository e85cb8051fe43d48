// EnvRegistry: the LMDB environments that this process has open, by their data files.
//
// LMDB allows a process one environment a file. Closing a second one would close its descriptor of
// the lock file, and POSIX then drops every lock that the process holds on that file.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/threads/guarded.h"
#include "base/threads/process.h"

namespace blend {

class LmdbEnv;

using FileIdentity = std::pair<uint64_t, uint64_t>;  // device, inode
inline FileIdentity identity_of(const struct stat& st) {
  return {static_cast<uint64_t>(st.st_dev), static_cast<uint64_t>(st.st_ino)};
}

// Thread-safe. A forked child gets an empty one of its own: it may not use what its parent opened,
// and the parent's mutex may be locked by a thread that the child does not have.
class EnvRegistry {
 public:
  // Never destroyed, so that stores closed by static destructors still find it.
  static EnvRegistry& of_this_process();

  // The environment that is open on `file`, or else the one that `open` makes. One is opened at a
  // time; the last owner closes it. Waits while one on the same file is being closed.
  using Open = std::function<Result<std::unique_ptr<LmdbEnv>>()>;
  Result<std::shared_ptr<LmdbEnv>> find_or_open(const FileIdentity& file, const Open& open);
  // Keeps this process from opening `file` while the result lives; callers wait. BUSY: it is open.
  Result<std::shared_ptr<void>> reserve(const FileIdentity& file, const std::string& path);

 private:
  void close(LmdbEnv* env, const FileIdentity& file);

  const ProcessMark process_;
  Mutex mutex_;
  CondVar changed_;
  // An expired entry is an environment that is being closed or is about to be handed out.
  std::map<FileIdentity, std::weak_ptr<LmdbEnv>> open_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
