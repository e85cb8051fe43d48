#include "base/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "base/files/eintr.h"

namespace blend {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return make_error(BLEND_E_NOT_FOUND, "'%s...' has a NUL in its name; no file can",
                      path.c_str());
  }
  // O_NONBLOCK: a FIFO without a writer must be refused below, not waited for here.
  const FileDescriptor fd(
      retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (fd.get() < 0) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    return make_errno(missing ? BLEND_E_NOT_FOUND : BLEND_E_IO, error, "cannot open '%s'",
                      path.c_str());
  }
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return make_errno(BLEND_E_IO, errno, "cannot examine '%s'", path.c_str());
  }
  if (S_ISDIR(info.st_mode)) {
    return make_errno(BLEND_E_IO, EISDIR, "cannot read '%s' as a file", path.c_str());
  }
  if (!S_ISREG(info.st_mode)) {
    return make_error(BLEND_E_IO, "'%s' is not a regular file, so it cannot be mapped",
                      path.c_str());
  }
  MappedFile file;
  if (info.st_size == 0) return file;  // mmap refuses a length of 0
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > std::numeric_limits<size_t>::max()) {
    return make_error(BLEND_E_IO, "'%s' is larger than this machine's address space", path.c_str());
  }
  void* p = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (p == MAP_FAILED) {
    return make_errno(errno == ENOMEM ? BLEND_E_OUT_OF_MEMORY : BLEND_E_IO, errno,
                      "cannot map '%s'", path.c_str());
  }
  file.data_ = static_cast<const std::byte*>(p);
  file.size_ = static_cast<size_t>(size);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace blend
