#include "store/lmdb/repair/check_pages.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/files/host_page.h"
#include "store/lmdb/page_format.h"

namespace blend {
namespace page_format {
namespace {

Status read_at(int fd, uint64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return make_errno(BLEND_E_IO, errno, "cannot read byte %zu", size_t(offset + done));
    if (n == 0) {
      return make_error(BLEND_E_CORRUPT, "the data file is truncated: it ends before byte %zu",
                        size_t(offset + done));
    }
    done += static_cast<size_t>(n);
  }
  return Status::ok();
}

Result<uint64_t> file_size(int fd) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return make_errno(BLEND_E_IO, errno, "cannot stat the data file");
  return static_cast<uint64_t>(st.st_size);
}

Status damaged(uint64_t page, const char* what) {
  return make_error(BLEND_E_CORRUPT, "page %llu of the data file is damaged: %s",
                    static_cast<unsigned long long>(page), what);
}

// Single use, single thread.
class Walk {
 public:
  Walk(int fd, uint32_t page_size, const Meta& meta, uint64_t file_pages)
      : fd_(fd), page_size_(page_size), meta_(meta), file_pages_(file_pages) {}

  Status run() {
    // Pages in use must be known before the list of free pages is checked.
    used_.resize(std::min(meta_.last_page + 1, file_pages_));
    BLEND_RETURN_IF_ERROR(claim(0, kMetaPages));
    if ((meta_.free_pages.flags & ~kEnvironmentFlags) != kIntegerKey) return damaged(0, "flags");
    if (meta_.main.flags != 0) return damaged(0, "flags of the main database");
    BLEND_RETURN_IF_ERROR(walk(meta_.free_pages, Kind::free_list));
    BLEND_RETURN_IF_ERROR(walk(meta_.main, Kind::main));
    for (const uint64_t page : free_) {
      if (page < used_.size() && used_[page]) return damaged(page, "it is both free and in use");
    }
    std::sort(free_.begin(), free_.end());
    if (std::adjacent_find(free_.begin(), free_.end()) != free_.end()) {
      return damaged(0, "a page is free twice");
    }
    return Status::ok();
  }

 private:
  enum class Kind { free_list, main, data };

  // Marks pages [first, first + n) as in use.
  Status claim(uint64_t first, uint64_t n) {
    if (first > meta_.last_page || n > meta_.last_page + 1 - first) {
      return damaged(first, "it lies after the last page");
    }
    if (first + n > file_pages_) {
      return make_error(BLEND_E_CORRUPT,
                        "the data file is truncated: page %llu is in use and the file has %llu",
                        static_cast<unsigned long long>(first + n - 1),
                        static_cast<unsigned long long>(file_pages_));
    }
    for (uint64_t page = first; page < first + n; ++page) {
      if (used_[page]) return damaged(page, "it is used twice");
      used_[page] = true;
    }
    return Status::ok();
  }

  Status walk(const Tree& tree, Kind kind) {
    if (tree.root == kNoPage) {
      return tree.depth == 0 ? Status::ok() : damaged(0, "a tree without a root has a depth");
    }
    if (tree.depth == 0 || tree.depth > kMostDepth) return damaged(tree.root, "depth of its tree");
    return walk_page(tree.root, tree.depth, kind, {});
  }

  // Bounds of a page's keys, from its parents.
  struct Bounds {
    std::optional<std::string_view> least;  // none: minus infinity
    std::optional<std::string_view> end;    // past the last
  };

  Status walk_page(uint64_t number, int levels, Kind kind, const Bounds& bounds) {
    if (number < kMetaPages) return damaged(number, "a meta page inside a tree");
    BLEND_RETURN_IF_ERROR(claim(number, 1));
    std::vector<std::byte> page(page_size_);
    BLEND_RETURN_IF_ERROR(read_at(fd_, number * page_size_, page));
    const bool leaf = levels == 1;
    const PageHeader header = header_at(page.data());
    const uint16_t lower = lower_of(page.data());
    const uint16_t upper = upper_of(page.data());
    if (header.number != number) return damaged(number, "page number");
    if (header.flags != (leaf ? kLeaf : kBranch)) return damaged(number, "page flags");
    if (lower < kHeaderBytes || lower % 2 != 0 || lower > upper || upper > page_size_) {
      return damaged(number, "bounds of its nodes");
    }
    const uint32_t n_nodes = (lower - kHeaderBytes) / 2u;
    // LMDB asserts two nodes on a branch page, and aborts.
    if (n_nodes < (leaf ? 1u : 2u)) return damaged(number, "too few nodes");

    std::vector<std::string_view> keys;
    keys.reserve(n_nodes);
    uint64_t node_bytes = 0;
    for (uint32_t i = 0; i < n_nodes; ++i) {
      const uint32_t at = node_place(page.data(), i);
      if (at < upper || at % 2 != 0 || at + kNodeHeaderBytes > page_size_) {
        return damaged(number, "place of a node");
      }
      const std::byte* node = page.data() + at;
      const uint32_t key_bytes = node_key_bytes(node);
      if (key_bytes > kMostKeyBytes || at + kNodeHeaderBytes + key_bytes > page_size_) {
        return damaged(number, "length of a key");
      }
      const std::string_view key(reinterpret_cast<const char*>(node + kNodeHeaderBytes), key_bytes);
      // The leftmost key of a branch page stands for minus infinity.
      if (leaf || i > 0) {
        if (kind == Kind::free_list ? key_bytes != 8 : key_bytes == 0) {
          return damaged(number, "length of a key");
        }
        if (i > (leaf ? 0u : 1u) && !in_order(keys.back(), key, kind)) {
          return damaged(number, "order of its keys");
        }
        // With a key out of bounds LMDB would not find it again, though it lists it.
        if ((bounds.least && in_order(key, *bounds.least, kind)) ||
            (bounds.end && !in_order(key, *bounds.end, kind))) {
          return damaged(number, "order of its keys beside other pages'");
        }
      }
      keys.push_back(key);
      const bool big = (node_flags(node) & kNodeBig) != 0;
      const uint64_t data_bytes = !leaf ? 0 : big ? 8 : node_value_bytes(node);
      node_bytes += (kNodeHeaderBytes + key_bytes + data_bytes + 1) / 2 * 2;
      if (leaf) BLEND_RETURN_IF_ERROR(walk_leaf_node(number, page, at, key, kind));
    }
    // Nodes fill the end of the page without gaps; LMDB moves memory by that when it deletes one.
    if (node_bytes != page_size_ - upper) return damaged(number, "space of its nodes");
    for (uint32_t i = 0; i < n_nodes && !leaf; ++i) {
      const std::byte* node = page.data() + node_place(page.data(), i);
      Bounds below = bounds;
      if (i > 0) below.least = keys[i];
      if (i + 1 < n_nodes) below.end = keys[i + 1];
      BLEND_RETURN_IF_ERROR(walk_page(node_child(node), levels - 1, kind, below));
    }
    return Status::ok();
  }

  static bool in_order(std::string_view a, std::string_view b, Kind kind) {
    if (kind != Kind::free_list) return a < b;
    return load<uint64_t>(reinterpret_cast<const std::byte*>(a.data())) <
           load<uint64_t>(reinterpret_cast<const std::byte*>(b.data()));
  }

  Status walk_leaf_node(uint64_t number, std::span<const std::byte> page, uint32_t at,
                        std::string_view key, Kind kind) {
    const std::byte* node = page.data() + at;
    const uint32_t bytes = node_value_bytes(node);
    const uint16_t flags = node_flags(node);
    const uint64_t data_at = uint64_t{at} + kNodeHeaderBytes + key.size();
    if (flags != 0 && flags != kNodeBig && flags != kNodeTree) {
      return damaged(number, "flags of a node");
    }
    const uint64_t inline_bytes = flags == kNodeBig ? 8 : bytes;
    if (data_at + inline_bytes > page_size_) return damaged(number, "length of a value");
    std::span<const std::byte> value = page.subspan(data_at, inline_bytes);

    std::vector<std::byte> big;
    if (flags == kNodeBig) {
      const auto first = load<uint64_t>(value.data());
      const uint64_t n_pages = overflow_pages(bytes, page_size_);
      BLEND_RETURN_IF_ERROR(claim(first, n_pages));
      if (kind == Kind::free_list) {
        big.resize(bytes + kHeaderBytes);
        BLEND_RETURN_IF_ERROR(read_at(fd_, first * page_size_, big));
        if (!is_overflow_header(header_at(big.data()), first, bytes, page_size_)) {
          return damaged(first, "its header");
        }
        value = std::span(big).subspan(kHeaderBytes);
      }
    }
    if (kind == Kind::free_list) {
      // The transaction that freed them. At 0 LMDB reads the list again and again, and aborts
      // where it has a page twice.
      const auto freed_by = load<uint64_t>(reinterpret_cast<const std::byte*>(key.data()));
      if (freed_by == 0 || freed_by > meta_.txn_id)
        return damaged(number, "key of a list of free pages");
      return read_free_list(number, value);
    }
    if (kind == Kind::data) {
      return flags == kNodeTree ? damaged(number, "a database inside a database") : Status::ok();
    }
    if (flags != kNodeTree) return Status::ok();
    if (value.size() != kTreeBytes) return damaged(number, "length of a database record");
    // Databases of other programs, or of later formats, are refused by name or version afterwards.
    static constexpr std::string_view kOurs[] = {"chunks", "meta",    "info", "uses",
                                                 "order",  "tenants", "texts"};
    if (std::find(std::begin(kOurs), std::end(kOurs), key) == std::end(kOurs)) return Status::ok();
    const Tree tree = Tree::at(value.data());
    if (tree.flags != 0) return damaged(number, "flags of a database");
    return walk(tree, Kind::data);
  }

  // A count, then that many page numbers in falling order.
  Status read_free_list(uint64_t number, std::span<const std::byte> value) {
    if (value.size() < 8) return damaged(number, "length of a list of free pages");
    const auto count = load<uint64_t>(value.data());
    if (count > value.size() / 8 - 1) return damaged(number, "length of a list of free pages");
    uint64_t previous = meta_.last_page + 1;
    for (uint64_t i = 1; i <= count; ++i) {
      const auto page = load<uint64_t>(value.data() + 8 * i);
      if (page >= previous || page < kMetaPages) return damaged(number, "a list of free pages");
      free_.push_back(page);
      previous = page;
    }
    return Status::ok();
  }

  const int fd_;
  const uint32_t page_size_;
  const Meta meta_;
  const uint64_t file_pages_;
  std::vector<bool> used_;
  std::vector<uint64_t> free_;
};

}  // namespace
}  // namespace page_format

Result<uint32_t> check_lmdb_header(int fd) {
  using namespace page_format;
  BLEND_ASSIGN(const uint64_t size, file_size(fd));
  std::byte first[kMetaBytes];
  const Status foreign{BLEND_E_FORMAT, "its data.mdb is not an LMDB file"};
  if (size < sizeof first) return foreign;
  BLEND_RETURN_IF_ERROR(read_at(fd, 0, first));
  Meta meta = Meta::at(first);
  if (meta.magic != kMagic || meta.page_flags != kMeta) return foreign;
  for (uint64_t i = 0; i < kMetaPages; ++i) {
    if (meta.version != kDataVersion) {
      return make_error(BLEND_E_MISMATCH, "its data.mdb has LMDB format %u instead of %u",
                        meta.version, kDataVersion);
    }
    if (meta.page_size < kLeastPageBytes || meta.page_size > kMostPageBytes ||
        (meta.page_size & (meta.page_size - 1)) != 0) {
      return damaged(i, "page size");
    }
    // Not larger than the host's: LMDB's map begins at a page of the host, which must be the
    // beginning of one of the file's too (Txn::map_view() relies on it).
    if (meta.page_size > host_page_bytes()) {
      return make_error(
          BLEND_E_UNSUPPORTED,
          "its data.mdb has pages of %u bytes, more than this machine's %zu: export its "
          "chunks where pages are as large, and import them here",
          meta.page_size, host_page_bytes());
    }
    if (size < kMetaPages * meta.page_size) {
      return Status{BLEND_E_CORRUPT, "the data file is truncated: it ends inside its first pages"};
    }
    if (meta.last_page < 1 || meta.last_page > (1ull << 52) / meta.page_size) {
      return damaged(i, "number of pages");
    }
    if (i == 0) {
      const uint32_t page_size = meta.page_size;
      BLEND_RETURN_IF_ERROR(read_at(fd, page_size, first));
      meta = Meta::at(first);
      if (meta.magic != kMagic || meta.page_flags != kMeta || meta.page_size != page_size) {
        return damaged(1, "it is not a meta page");
      }
    }
  }
  return meta.page_size;
}

bool lmdb_file_was_never_begun(int fd) {
  using namespace page_format;
  const auto size = file_size(fd);
  std::byte first[kMetaBytes];
  if (!size.is_ok() || size.value() < sizeof first || !read_at(fd, 0, first).is_ok()) return false;
  const Meta meta = Meta::at(first);
  return meta.magic == kMagic && meta.page_flags == kMeta && meta.version == kDataVersion &&
         size.value() < kMetaPages * meta.page_size && meta.last_page == 1 && meta.txn_id == 0 &&
         meta.main.root == kNoPage;
}

bool lmdb_file_is_long_enough(int fd, uint64_t last_page, uint32_t page_size) {
  const auto size = page_format::file_size(fd);
  return size.is_ok() && size.value() / page_size > last_page;
}

Status check_lmdb_pages(int fd, uint32_t page_size, uint64_t txn_id, bool* stale) {
  using namespace page_format;
  *stale = false;
  std::byte page[kMetaBytes];
  BLEND_RETURN_IF_ERROR(read_at(fd, meta_page_of(txn_id) * page_size, page));
  const Meta meta = Meta::at(page);
  if (meta.txn_id != txn_id) {
    *stale = true;
    return Status::ok();
  }
  BLEND_ASSIGN(const uint64_t size, file_size(fd));
  return Walk(fd, page_size, meta, size / page_size).run();
}

}  // namespace blend
