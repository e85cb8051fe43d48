#include "store/lmdb/files.h"

#include <fcntl.h>

#include <cerrno>

#include "base/files/eintr.h"

namespace blend {

Status sync_directory(const std::string& path) {
  const Fd fd(
      retry_interrupted([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (fd.get() < 0) return make_errno(BLEND_E_IO, errno, "cannot open '%s'", path.c_str());
  // Some file systems cannot sync a directory and report EINVAL; nothing more can be done there.
  if (retry_interrupted([&] { return fsync(fd.get()); }) != 0 && errno != EINVAL) {
    return make_errno(BLEND_E_IO, errno, "cannot sync '%s'", path.c_str());
  }
  return Status::ok();
}

std::string parent_directory(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return "/";
  const size_t slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  const size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

}  // namespace blend
