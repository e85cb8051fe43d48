#include "backend/cpu/kv_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "backend/cpu/memory.h"
#include "base/files/eintr.h"

namespace blend::cpu {

// An unnamed file; it is freed with the last map and the last memory that may be forked.
class KvMemory::File {
 public:
  static Result<std::shared_ptr<const File>> create(size_t bytes) {
    // Growing a file past this limit would raise SIGXFSZ in the host.
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes) {
      return Status{BLEND_E_UNSUPPORTED, "the limit of a file's size forbids shared memory"};
    }
    auto file = std::make_shared<File>(memfd_create("libblend-kv", MFD_CLOEXEC));
    if (file->fd_ < 0 || ftruncate(file->fd_, static_cast<off_t>(bytes)) != 0) {
      return make_error(BLEND_E_UNSUPPORTED, "no shared memory: %s",
                        std::generic_category().message(errno).c_str());
    }
    // Reserves all of it now: without memory later, writing to a map of it raises SIGBUS.
    const auto reserve = [&] {
      return bytes == 0 ? 0 : fallocate(file->fd_, 0, 0, static_cast<off_t>(bytes));
    };
    if (retry_interrupted(reserve) != 0) {
      const int why = errno;
      const bool full = why == ENOSPC || why == ENOMEM || why == EDQUOT;
      return make_errno(full ? BLEND_E_OUT_OF_MEMORY : BLEND_E_UNSUPPORTED, why,
                        "cannot reserve %zu bytes of shared memory", bytes);
    }
    return std::shared_ptr<const File>(std::move(file));
  }
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) (void)close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

void KvMemory::Unmap::operator()(std::byte* p) const { (void)munmap(p, bytes); }

Result<KvMemory> KvMemory::allocate(size_t bytes) {
  KvMemory memory;
  BLEND_ASSIGN(memory.buffer_, allocate_tensor(bytes));
  memory.bytes_ = bytes;
  return memory;
}

Result<KvMemory::Map> KvMemory::map(const File& file, size_t bytes, bool writes_to_file) {
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       writes_to_file ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE, file.fd(), 0);
  if (p == MAP_FAILED) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot map %zu bytes", bytes);
  }
  return Map(static_cast<std::byte*>(p), Unmap{bytes});
}

Status KvMemory::share(std::span<const Range> ranges) {
  BLEND_ASSIGN(std::shared_ptr<const File> file, File::create(bytes_));
  {
    BLEND_ASSIGN(const Map to, map(*file, bytes_, true));
    for (const Range& r : ranges) std::memcpy(to.get() + r.first, data() + r.first, r.n);
  }
  BLEND_ASSIGN(Map mine, map(*file, bytes_, false));
  map_ = std::move(mine);
  file_ = std::move(file);
  buffer_ = {};
  return Status::ok();
}

Result<KvMemory> KvMemory::fork() const {
  KvMemory other;
  BLEND_ASSIGN(other.map_, map(*file_, bytes_, false));
  other.file_ = file_;
  other.bytes_ = bytes_;
  return other;
}

}  // namespace blend::cpu
