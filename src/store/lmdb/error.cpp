#include "store/lmdb/error.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>

namespace blend {

Status lmdb_error(int rc, const std::string& what) {
  const auto with = [&](int32_t code, const char* why) {
    return Status{code, what + ": " + why, rc};
  };
  switch (rc) {
    case 0:
      return Status::ok();
    case MDB_NOTFOUND:
      return with(BLEND_E_NOT_FOUND, "not found");
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_CURSOR_FULL:
    case MDB_BAD_TXN:  // an earlier error made the transaction void: pages contradict each
                       // other
      return with(BLEND_E_CORRUPT, "the data file is damaged");
    case MDB_INVALID:
      return with(BLEND_E_FORMAT, "data.mdb is not an LMDB file");
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
      return with(BLEND_E_MISMATCH, "another version of LMDB wrote it");
    case MDB_MAP_FULL:
      return with(BLEND_E_FULL, "the map is full");
    case MDB_TXN_FULL:
      return with(BLEND_E_FULL, "too many pages for one transaction");
    case MDB_READERS_FULL:
      return with(BLEND_E_IO,
                  "1024 snapshots are open on it, the most that LMDB was set up for: "
                  "close some");
    case MDB_PANIC:
      return with(BLEND_E_IO,
                  "a write failed before in a way that LMDB cannot mend: close the "
                  "store and open it again");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return make_errno(BLEND_E_FULL, rc, "%s", what.c_str());
    case ENOMEM:
      return make_errno(BLEND_E_OUT_OF_MEMORY, rc, "%s", what.c_str());
    case EACCES:
    case EROFS:
    case EPERM:
      return make_errno(BLEND_E_IO, rc, "%s: no permission", what.c_str());
    default:
      break;
  }
  return rc > 0 ? make_errno(BLEND_E_IO, rc, "%s", what.c_str())
                : with(BLEND_E_INTERNAL, mdb_strerror(rc));
}

bool out_of_space(int fd, uint64_t bytes) {
  struct statvfs disk {};
  if (fstatvfs(fd, &disk) == 0 && uint64_t{disk.f_bavail} * disk.f_frsize < bytes) return true;
  struct stat file {};
  struct rlimit limit {};
  return fstat(fd, &file) == 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         limit.rlim_cur != RLIM_INFINITY &&
         static_cast<uint64_t>(file.st_size) + bytes > limit.rlim_cur;
}

int commit_lmdb(MDB_txn* txn) {
  MDB_env* const env = mdb_txn_env(txn);
  const int rc = mdb_txn_commit(txn);
  constexpr uint64_t kTrees = 64 << 10;  // pages of a transaction without a chunk
  int fd = -1;
  const bool full = rc == EIO && mdb_env_get_fd(env, &fd) == 0 && out_of_space(fd, kTrees);
  return full ? ENOSPC : rc;
}

}  // namespace blend
