#include "store/lmdb/writer/direct_page_writer.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/files/eintr.h"
#include "store/lmdb/error.h"
#include "store/lmdb/page_format.h"

namespace blend {
namespace {

using page_format::kDirty;
using page_format::kKeep;
using page_format::kOverflow;
using page_format::PageHeader;

// Writes all of it, whatever the number of calls it takes; returns 0 or the errno.
int write_all(int fd, std::span<iovec> parts, uint64_t at) {
  while (!parts.empty()) {
    const ssize_t n =
        pwritev(fd, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? EIO : errno;
    at += static_cast<uint64_t>(n);
    for (auto left = static_cast<size_t>(n); left > 0;) {
      iovec& part = parts.front();
      const size_t done = std::min(left, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + done;
      part.iov_len -= done;
      left -= done;
      if (part.iov_len > 0) break;
      parts = parts.subspan(1);
    }
    while (!parts.empty() && parts.front().iov_len == 0) parts = parts.subspan(1);
  }
  return 0;
}

}  // namespace

bool lmdb_can_place() {
  int major = 0;
  int minor = 0;
  int patch = 0;
  (void)mdb_version(&major, &minor, &patch);
  return major == 0 && minor == 9 && patch >= page_format::kFirstPatchWithKeep &&
         patch <= page_format::kLastPatchWithKeep;
}

Result<uint64_t> place_value(int data_fd, uint32_t page_size, const MDB_val& value,
                             std::span<const std::byte> bytes) {
  auto* heap = static_cast<std::byte*>(value.mv_data) - sizeof(PageHeader);
  PageHeader header = page_format::header_at(heap);
  const uint64_t pages = page_format::overflow_pages(bytes.size(), page_size);
  if (header.flags != (kOverflow | kDirty) || header.n_pages != pages ||
      header.number < page_format::kMetaPages || value.mv_size != bytes.size()) {
    return uint64_t{0};
  }
  header.flags = kOverflow;
  const std::vector<std::byte> rest(pages * page_size - sizeof header - bytes.size());
  std::array<iovec, 3> parts{{
      {&header, sizeof header},
      {const_cast<std::byte*>(bytes.data()), bytes.size()},
      {const_cast<std::byte*>(rest.data()), rest.size()},
  }};
  const uint64_t at = header.number * page_size;
  if (const int error = write_all(data_fd, parts, at); error != 0) {
    return lmdb_error(error, "write");
  }
  // Starts the write to disk. Best effort: the commit's sync waits for it, or does all of it.
  (void)sync_file_range(data_fd, static_cast<off64_t>(at), static_cast<off64_t>(pages * page_size),
                        SYNC_FILE_RANGE_WRITE);
  header.flags = kOverflow | kDirty | kKeep;
  std::memcpy(heap, &header, sizeof header);
  return header.number;
}

Result<bool> placed_as_expected(int data_fd, uint32_t page_size, uint64_t page) {
  const auto at = static_cast<off_t>(page * page_size);
  PageHeader header{};
  if (retry_interrupted([&] { return pread(data_fd, &header, sizeof header, at); }) !=
      sizeof header) {
    return make_errno(BLEND_E_IO, errno, "cannot read the data file");
  }
  // Any other header is from another process, which has reused the page since.
  if (header.number != page || header.flags != (kOverflow | kKeep)) return true;
  constexpr off_t kFlags = offsetof(PageHeader, flags);
  const ssize_t n =
      retry_interrupted([&] { return pwrite(data_fd, &kOverflow, sizeof kOverflow, at + kFlags); });
  if (n != sizeof kOverflow || retry_interrupted([&] { return fdatasync(data_fd); }) != 0) {
    return make_errno(BLEND_E_IO, errno, "cannot write the data file");
  }
  return false;
}

}  // namespace blend
