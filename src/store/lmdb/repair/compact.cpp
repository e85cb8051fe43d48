#include "store/lmdb/repair/compact.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "base/files/eintr.h"
#include "base/files/file_size_signal.h"
#include "base/threads/start_thread.h"
#include "store/lmdb/directory.h"
#include "store/lmdb/error.h"
#include "store/lmdb/files.h"
#include "store/lmdb/registry.h"
#include "store/store_admin.h"

namespace blend {
namespace {

constexpr char kPart[] = "data.mdb.compact";

// Gives the copy the original's owner and access. Without the right to do so it stays as it is.
Status keep_access(MDB_env* env, int copy) {
  int original = -1;
  mdb_env_get_fd(env, &original);
  struct stat from {};
  struct stat to {};
  if (fstat(original, &from) != 0 || fstat(copy, &to) != 0) {
    return make_errno(BLEND_E_IO, errno, "cannot read who may use the store");
  }
  const bool other_owner = from.st_uid != to.st_uid || from.st_gid != to.st_gid;
  if (other_owner && fchown(copy, from.st_uid, from.st_gid) != 0) return Status::ok();
  if (fchmod(copy, from.st_mode & 0666) != 0) {
    return make_errno(BLEND_E_IO, errno, "cannot open the copy to those who may use the store");
  }
  return Status::ok();
}

// Copies the environment's newest snapshot into `file`, made durable.
Status write_copy(MDB_env* env, const std::string& file) {
  constexpr int kMake = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
  const Fd fd(retry_interrupted([&] { return open(file.c_str(), kMake, 0600); }));
  if (fd.get() < 0) return make_errno(BLEND_E_IO, errno, "cannot write '%s'", file.c_str());
  BLEND_RETURN_IF_ERROR(keep_access(env, fd.get()));
  // LMDB starts a thread for it, which inherits our signal mask.
  int rc = 0;
  try {
    start_thread([&] { rc = mdb_env_copyfd2(env, fd.get(), MDB_CP_COMPACT); }).join();
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start the copying thread: %s", e.what());
  }
  if (rc != 0) return lmdb_error(rc, "write '" + file + "'");
  if (retry_interrupted([&] { return fsync(fd.get()); }) != 0)
    return make_errno(BLEND_E_IO, errno, "cannot sync '%s'", file.c_str());
  return Status::ok();
}

uint64_t size_of(const std::string& file) {
  struct stat st {};
  return stat(file.c_str(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

// Every process that has the environment open holds a shared lock on the first byte of the lock
// file, and waits for that lock when it opens it. So while we hold the lock exclusively, no other
// process has the store open, and one that opens it waits until we are done.
Status lock_alone(int fd, const std::string& path) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 0;
  lock.l_len = 1;
  if (retry_interrupted([&] { return fcntl(fd, F_SETLK, &lock); }) == 0) return Status::ok();
  if (errno == EAGAIN || errno == EACCES) {
    return make_error(BLEND_E_BUSY,
                      "store '%s' is open in another process: close it there, or copy the store to "
                      "another directory",
                      path.c_str());
  }
  return make_errno(BLEND_E_IO, errno, "cannot lock store '%s'", path.c_str());
}

}  // namespace

Status copy_compact(LmdbEnv& env, const std::string& path) {
  BLEND_RETURN_IF_ERROR(env.check_fork());
  const FileSizeSignalHeld held;
  struct stat original {};
  const bool group = fstat(env.data_fd(), &original) == 0 && (original.st_mode & 0060) == 0060;
  BLEND_RETURN_IF_ERROR(make_store_directory(path, StoreModes::of(group)));
  const std::string data = path + "/" + kDataFile;
  if (access(data.c_str(), F_OK) == 0) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "there is a store at '%s': copy to another place",
                      path.c_str());
  }
  const std::string part = path + "/" + kPart;
  Status status = env.copy([&](MDB_env* raw) { return write_copy(raw, part); });
  // Not by rename(): a store that another process makes there at this moment must stay.
  if (status.is_ok() && link(part.c_str(), data.c_str()) != 0) {
    status = make_errno(BLEND_E_IO, errno, "cannot make '%s'", data.c_str());
  }
  unlink(part.c_str());
  if (!status.is_ok()) return status.with_context("copy store '" + env.path() + "'");
  return sync_directory(path);
}

Status compact_store(const std::string& path, uint64_t* before, uint64_t* after) {
  const FileSizeSignalHeld held;
  const std::string data = path + "/" + kDataFile;
  const std::string part = path + "/" + kPart;
  BLEND_ASSIGN(const StoreDirectory directory, prepare_store_directory(path, nullptr));
  // This process first: POSIX locks do not keep out the process that holds them, and closing our
  // descriptor of the lock file would drop those of an open environment.
  BLEND_ASSIGN(const auto reserved,
               EnvRegistry::of_this_process().reserve(directory.identity, path));
  const std::string lock_file = path + "/" + kLockFile;
  const Fd lock(retry_interrupted(
      [&] { return open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); }));
  if (lock.get() < 0) {
    return make_errno(BLEND_E_IO, errno, "cannot open the lock file of store '%s'", path.c_str());
  }
  BLEND_RETURN_IF_ERROR(lock_alone(lock.get(), path));
  *before = size_of(data);
  Status status = LmdbEnv::copy_unlocked(path, directory.page_size,
                                         [&](MDB_env* raw) { return write_copy(raw, part); });
  // The lock file has the number of the last transaction, and the copy counts from the beginning.
  // An empty lock file makes processes that wait for our lock open it again (BUSY, acquire()).
  if (status.is_ok() && retry_interrupted([&] { return ftruncate(lock.get(), 0); }) != 0) {
    status = make_errno(BLEND_E_IO, errno, "cannot clear the lock file");
  }
  if (status.is_ok() && rename(part.c_str(), data.c_str()) != 0) {
    status = make_errno(BLEND_E_IO, errno, "cannot replace '%s'", data.c_str());
  }
  if (!status.is_ok()) {
    unlink(part.c_str());
    return status.with_context("compact store '" + path + "'");
  }
  *after = size_of(data);
  return sync_directory(path);
}

}  // namespace blend
