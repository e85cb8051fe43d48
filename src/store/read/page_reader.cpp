#include "store/read/page_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "base/buffer.h"
#include "base/files/eintr.h"
#include "base/threads/start_thread.h"

namespace blend {
namespace {

// Checks that the file's first bytes, through the reader, are those of a plain read.
Status prove(PageReader& reader, int data_fd, size_t constant_bytes) {
  BLEND_ASSIGN(const AlignedBuffer direct, AlignedBuffer::allocate(kDirectAlignment));
  BLEND_ASSIGN(const AlignedBuffer plain, AlignedBuffer::allocate(kDirectAlignment));
  const ssize_t n =
      retry_interrupted([&] { return pread(data_fd, plain.data(), kDirectAlignment, 0); });
  if (n != static_cast<ssize_t>(kDirectAlignment)) {
    return {BLEND_E_UNSUPPORTED, "the data file cannot be read"};
  }
  const ReadBatch::Read read{0, direct.data(), kDirectAlignment};
  std::memset(direct.data(), 0, constant_bytes);
  ReadBatch batch;
  reader.start(batch, std::span(&read, 1));
  const Status status = reader.wait(batch);
  if (!status.is_ok()) return {BLEND_E_UNSUPPORTED, status.message(), status.detail()};
  if (std::memcmp(direct.data(), plain.data(), constant_bytes) != 0) {
    return {BLEND_E_UNSUPPORTED, "direct reads give other bytes than plain ones"};
  }
  return Status::ok();
}

Result<int> open_direct(const std::string& path, int data_fd) {
  const int fd = retry_interrupted(
      [&] { return open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW); });
  if (fd < 0) {
    return make_errno(BLEND_E_UNSUPPORTED, errno, "'%s' cannot be opened for direct reads",
                      path.c_str());
  }
  struct stat a {};
  struct stat b {};
  if (fstat(fd, &a) == 0 && fstat(data_fd, &b) == 0 && a.st_dev == b.st_dev &&
      a.st_ino == b.st_ino) {
    return fd;
  }
  close(fd);
  return make_error(BLEND_E_UNSUPPORTED, "'%s' was replaced while it was opened", path.c_str());
}

using Maker = Result<std::unique_ptr<PageReader>> (*)(int direct_fd);

Result<std::unique_ptr<PageReader>> try_reader(Maker make, const std::string& path, int data_fd,
                                               size_t constant_bytes) {
  BLEND_ASSIGN(const int fd, open_direct(path, data_fd));
  BLEND_ASSIGN(std::unique_ptr<PageReader> reader, make(fd));
  BLEND_RETURN_IF_ERROR(prove(*reader, data_fd, constant_bytes));
  return reader;
}

// io_uring runs work on the thread that made the ring or submitted reads, and once more when the
// ring is freed, as an interruption without a signal: a recv() with a time limit or an epoll_wait()
// of that thread ends with EINTR. So the host's thread takes no part: one of ours makes the ring,
// and reads are started by threads of ours (LayerLoader).
Result<std::unique_ptr<PageReader>> try_uring(const std::string& path, int data_fd,
                                              size_t constant_bytes) {
  Result<std::unique_ptr<PageReader>> reader{Status::out_of_memory()};
  try {
    start_thread([&] {
      try {
        reader = try_reader(make_uring_reader, path, data_fd, constant_bytes);
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as it stands
      }
    }).join();
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_UNSUPPORTED, "cannot start a thread that reads: %s", e.what());
  }
  return reader;
}

}  // namespace

const char* read_mode_name(ReadMode mode) {
  switch (mode) {
    case ReadMode::best:
      return "best";
    case ReadMode::uring:
      return "io_uring";
    case ReadMode::threads:
      return "threads";
    case ReadMode::mapped:
      return "mapped";
  }
  return "unknown";
}

Result<std::unique_ptr<PageReader>> make_page_reader(const std::string& path, int data_fd,
                                                     size_t constant_bytes, ReadMode mode) {
  const auto uring = [&] { return try_uring(path, data_fd, constant_bytes); };
  const auto threads = [&] {
    return try_reader(make_thread_reader, path, data_fd, constant_bytes);
  };
  if (mode == ReadMode::uring) return uring();
  if (mode == ReadMode::threads) return threads();
  if (mode == ReadMode::best) {
    auto reader = uring();
    if (reader.status().code() == BLEND_E_UNSUPPORTED) reader = threads();
    if (reader.status().code() != BLEND_E_UNSUPPORTED) return reader;
  }
  return std::unique_ptr<PageReader>();
}

}  // namespace blend
