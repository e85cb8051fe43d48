#include "store/lmdb/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/files/eintr.h"
#include "base/files/host_page.h"
#include "store/lmdb/error.h"
#include "store/lmdb/files.h"
#include "store/lmdb/page_format.h"
#include "store/lmdb/repair/check_pages.h"

namespace blend {

namespace {

// mkdir -p -m, top down, each new entry made durable in its parent.
Status make_directories(const std::string& path, uint32_t mode) {
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at != path.size() && path[at] != '/') continue;
    if (path[at - 1] == '/') continue;
    const std::string part = path.substr(0, at);
    const bool last = path.find_first_not_of('/', at) == std::string::npos;
    if (mkdir(part.c_str(), last ? 0700 : 0777) == 0) {
      // Past the umask, which may keep a group out.
      if (last && mode != 0700 && chmod(part.c_str(), mode) != 0) {
        return make_errno(BLEND_E_IO, errno, "cannot open '%s' to its group", part.c_str());
      }
      BLEND_RETURN_IF_ERROR(sync_directory(parent_directory(part)));
      continue;
    }
    const int error = errno;
    struct stat st {};
    if (stat(part.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) continue;
    if (error == EEXIST || error == ENOTDIR) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "'%s' is not a directory: give a directory for the store", part.c_str());
    }
    return lmdb_error(error, "create the directory '" + part + "'");
  }
  return Status::ok();
}

// LMDB needs one machine's page cache and its locks: two hosts writing one file destroy it.
const char* network_file_system(const std::string& path) {
  struct statfs fs {};
  if (statfs(path.c_str(), &fs) != 0) return nullptr;
  switch (static_cast<uint32_t>(fs.f_type)) {
    case 0x6969:
      return "NFS";
    case 0x517B:
    case 0xFF534D42:
    case 0xFE534D42:
      return "SMB/CIFS";
    case 0x5346414F:
    case 0x6B414653:
      return "AFS";
    case 0x73757245:
      return "Coda";
    case 0x0BD00BD0:
      return "Lustre";
    case 0x00C36400:
      return "Ceph";
    case 0x01161970:
      return "GFS2";
    case 0x7461636F:
      return "OCFS2";
    case 0x47504653:
      return "GPFS";
    case 0x01021997:
      return "9P";
    default:
      return nullptr;
  }
}

Status judge_directory(const std::string& path) {
  if (const char* name = network_file_system(path); name != nullptr) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "'%s' is on a network file system (%s), where LMDB loses data: use a local "
                      "directory",
                      path.c_str(), name);
  }
  return Status::ok();
}

Status symbolic_link(const std::string& file) {
  return make_error(BLEND_E_FORMAT,
                    "'%s' is a symbolic link, which is not followed inside a store: put the file "
                    "itself there, or make the whole directory a link",
                    file.c_str());
}

// Makes a new empty file; an existing one is not opened: closing a second descriptor of the lock
// file would drop the locks of an environment that this process has open.
Status make_file(const std::string& file, uint32_t mode) {
  const Fd made(retry_interrupted([&] {
    return open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  }));
  if (made.get() < 0 && errno == EEXIST) return Status::ok();
  // Past the umask, which may keep a group out.
  if (made.get() < 0 || (mode != 0600 && fchmod(made.get(), mode) != 0)) {
    return lmdb_error(errno, "make '" + file + "'");
  }
  return Status::ok();
}

// LMDB opens it by name, and would follow a link.
Status prepare_lock_file(const std::string& file, const StoreModes* create) {
  struct stat st {};
  if (lstat(file.c_str(), &st) == 0) {
    if (S_ISLNK(st.st_mode)) return symbolic_link(file);
    if (S_ISREG(st.st_mode)) return Status::ok();
    return make_error(BLEND_E_FORMAT, "'%s' is not a regular file", file.c_str());
  }
  return create == nullptr ? Status::ok() : make_file(file, create->file);
}

}  // namespace

Status reserve_lock_file(const std::string& file, uint64_t bytes) {
  const Fd fd(retry_interrupted(
      [&] { return open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); }));
  if (fd.get() < 0) return Status::ok();  // LMDB reports why
  // The size stays: it tells LMDB whether the table is there. A file that claims to be larger
  // gets no more: readers take its first slots.
  const auto length = static_cast<off_t>(bytes);
  if (retry_interrupted([&] { return fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, length); }) != 0 &&
      (errno == ENOSPC || errno == EDQUOT)) {
    return lmdb_error(errno, "give '" + file + "' its place");
  }
  return Status::ok();
}

Status make_store_directory(const std::string& path, const StoreModes& modes) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return {BLEND_E_INVALID_ARGUMENT, "the path of a store is empty or holds a NUL"};
  }
  BLEND_RETURN_IF_ERROR(make_directories(path, modes.directory));
  return judge_directory(path);
}

Result<StoreDirectory> prepare_store_directory(const std::string& path, const StoreModes* create) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return Status{BLEND_E_INVALID_ARGUMENT, "the path of a store is empty or holds a NUL"};
  }
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) {
    const int error = errno;
    if (error == ENOTDIR) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "a part of '%s' is not a directory: give a directory for the store",
                        path.c_str());
    }
    if (error != ENOENT) return make_errno(BLEND_E_IO, error, "cannot open '%s'", path.c_str());
    if (create == nullptr) {
      return make_error(BLEND_E_NOT_FOUND, "there is no store at '%s': the directory is missing",
                        path.c_str());
    }
    BLEND_RETURN_IF_ERROR(make_directories(path, create->directory));
  } else if (!S_ISDIR(st.st_mode)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is a file: give a directory for the store",
                      path.c_str());
  }
  BLEND_RETURN_IF_ERROR(judge_directory(path));

  StoreDirectory directory;
  directory.data_path = path + "/" + kDataFile;
  const char* data = directory.data_path.c_str();
  constexpr int kRead = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  int raw = retry_interrupted([&] { return open(data, kRead); });
  if (raw < 0 && errno == ENOENT) {
    if (create == nullptr) {
      return make_error(BLEND_E_NOT_FOUND, "there is no store at '%s': it has no %s", path.c_str(),
                        kDataFile);
    }
    BLEND_RETURN_IF_ERROR(make_file(directory.data_path, create->file));
    BLEND_RETURN_IF_ERROR(sync_directory(path));
    raw = retry_interrupted([&] { return open(data, kRead); });
  }
  const Fd fd(raw);
  if (fd.get() < 0 && errno == ELOOP) return symbolic_link(data);
  BLEND_RETURN_IF_ERROR(prepare_lock_file(path + "/" + kLockFile, create));
  if (fd.get() < 0 || fstat(fd.get(), &st) != 0) {
    return make_errno(BLEND_E_IO, errno, "cannot open '%s'", data);
  }
  if (!S_ISREG(st.st_mode)) {
    return make_error(BLEND_E_FORMAT, "'%s' is not a store: its %s is not a regular file",
                      path.c_str(), kDataFile);
  }
  directory.identity = identity_of(st);
  if (st.st_size == 0) {
    if (create != nullptr) return directory;
    return make_error(BLEND_E_NOT_FOUND, "there is no store at '%s': its %s is empty", path.c_str(),
                      kDataFile);
  }
  // Another process may be writing the first pages just now: give it a moment before judging.
  for (int attempt = 0;; ++attempt) {
    auto page_size = check_lmdb_header(fd.get());
    if (page_size.is_ok()) {
      directory.page_size = page_size.value();
      return directory;
    }
    const bool last = attempt == 2;
    if (last && create != nullptr && lmdb_file_was_never_begun(fd.get()) &&
        retry_interrupted([&] { return truncate(data, 0); }) == 0) {
      return directory;
    }
    if (last || fstat(fd.get(), &st) != 0 ||
        static_cast<size_t>(st.st_size) >= page_format::kMetaPages * host_page_bytes()) {
      return page_size.status().with_context("'" + path + "' is not a usable store");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace blend
