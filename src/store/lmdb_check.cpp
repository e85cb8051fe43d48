#include "store/lmdb_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/host_page.h"
#include "store/wire.h"

namespace blend {
namespace {

// The 0.9 file format on 64-bit little-endian machines.
constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kDataVersion = 1;
constexpr uint32_t kHeader = 16;  // page number u64, pad u16, flags u16, lower u16, upper u16
constexpr uint16_t kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMeta = 0x08;
constexpr uint16_t kNodeBig = 0x01, kNodeSub = 0x02;
constexpr uint32_t kNodeHeader = 8;  // size or page: lo u16, hi u16, flags u16; key size u16
constexpr uint32_t kTreeBytes = 48;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint16_t kIntegerKey = 0x08;
constexpr uint32_t kMaxKey = 511;
constexpr int kMaxDepth = 30;  // LMDB's cursors hold 32 levels

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// A database's root record (MDB_db).
struct Tree {
  uint16_t flags = 0;
  uint16_t depth = 0;
  uint64_t root = kNoPage;

  static Tree at(const std::byte* p) {
    return {load<uint16_t>(p + 4), load<uint16_t>(p + 6), load<uint64_t>(p + 40)};
  }
};

struct Meta {
  uint32_t magic = 0, version = 0, page_size = 0;
  uint16_t page_flags = 0;
  Tree free_pages, main;
  uint64_t last_page = 0, txn_id = 0;

  static Meta at(const std::byte* page) {
    const std::byte* p = page + kHeader;
    Meta m;
    m.page_flags = load<uint16_t>(page + 10);
    m.magic = load<uint32_t>(p);
    m.version = load<uint32_t>(p + 4);
    m.page_size = load<uint32_t>(p + 24);
    m.free_pages = Tree::at(p + 24);
    m.main = Tree::at(p + 24 + kTreeBytes);
    m.last_page = load<uint64_t>(p + 24 + 2 * kTreeBytes);
    m.txn_id = load<uint64_t>(p + 24 + 2 * kTreeBytes + 8);
    return m;
  }
};
constexpr size_t kMetaBytes = kHeader + 24 + 2 * kTreeBytes + 16;

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
    // What is in use must be known before the list of free pages is judged.
    used_.resize(std::min(meta_.last_page + 1, file_pages_));
    BLEND_RETURN_IF_ERROR(claim(0, 2));
    if ((meta_.free_pages.flags & ~0x4001) != kIntegerKey) return damaged(0, "flags");
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
      return damaged(first, "it lies behind the last page");
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
    if (tree.depth == 0 || tree.depth > kMaxDepth) return damaged(tree.root, "depth of its tree");
    return walk_page(tree.root, tree.depth, kind);
  }

  Status walk_page(uint64_t number, int levels, Kind kind) {
    if (number < 2) return damaged(number, "a meta page inside a tree");
    BLEND_RETURN_IF_ERROR(claim(number, 1));
    std::vector<std::byte> page(page_size_);
    BLEND_RETURN_IF_ERROR(read_at(fd_, number * page_size_, page));
    const bool leaf = levels == 1;
    const auto flags = load<uint16_t>(page.data() + 10);
    const auto lower = load<uint16_t>(page.data() + 12);
    const auto upper = load<uint16_t>(page.data() + 14);
    if (load<uint64_t>(page.data()) != number) return damaged(number, "page number");
    if (flags != (leaf ? kLeaf : kBranch)) return damaged(number, "page flags");
    if (lower < kHeader || lower % 2 != 0 || lower > upper || upper > page_size_) {
      return damaged(number, "bounds of its nodes");
    }
    const uint32_t n_nodes = (lower - kHeader) / 2u;
    // LMDB asserts two nodes on a branch page, and aborts.
    if (n_nodes < (leaf ? 1u : 2u)) return damaged(number, "too few nodes");

    std::string_view previous;
    uint64_t node_bytes = 0;
    for (uint32_t i = 0; i < n_nodes; ++i) {
      const uint32_t at = load<uint16_t>(page.data() + kHeader + 2 * i);
      if (at < upper || at % 2 != 0 || at + kNodeHeader > page_size_) {
        return damaged(number, "place of a node");
      }
      const std::byte* node = page.data() + at;
      const uint32_t key_bytes = load<uint16_t>(node + 6);
      if (key_bytes > kMaxKey || at + kNodeHeader + key_bytes > page_size_) {
        return damaged(number, "length of a key");
      }
      const std::string_view key(reinterpret_cast<const char*>(node + kNodeHeader), key_bytes);
      // The leftmost key of a branch page stands for minus infinity.
      if (leaf || i > 0) {
        if (kind == Kind::free_list ? key_bytes != 8 : key_bytes == 0) {
          return damaged(number, "length of a key");
        }
        if (i > (leaf ? 0u : 1u) && !in_order(previous, key, kind)) {
          return damaged(number, "order of its keys");
        }
        previous = key;
      }
      const bool big = (load<uint16_t>(node + 4) & kNodeBig) != 0;
      const uint64_t data_bytes = !leaf ? 0 : big ? 8 : load<uint32_t>(node);
      node_bytes += (kNodeHeader + key_bytes + data_bytes + 1) / 2 * 2;
      if (leaf) {
        BLEND_RETURN_IF_ERROR(walk_leaf_node(number, page, at, key, kind));
      } else {
        BLEND_RETURN_IF_ERROR(walk_page(child(node), levels - 1, kind));
      }
    }
    // Nodes fill the end of the page without gaps; LMDB moves memory by that when it deletes one.
    if (node_bytes != page_size_ - upper) return damaged(number, "space of its nodes");
    return Status::ok();
  }

  static uint64_t child(const std::byte* node) {
    return uint64_t{load<uint32_t>(node)} | uint64_t{load<uint16_t>(node + 4)} << 32;
  }

  static bool in_order(std::string_view a, std::string_view b, Kind kind) {
    if (kind != Kind::free_list) return a < b;
    return load<uint64_t>(reinterpret_cast<const std::byte*>(a.data())) <
           load<uint64_t>(reinterpret_cast<const std::byte*>(b.data()));
  }

  Status walk_leaf_node(uint64_t number, std::span<const std::byte> page, uint32_t at,
                        std::string_view key, Kind kind) {
    const std::byte* node = page.data() + at;
    const uint32_t bytes = load<uint32_t>(node);
    const auto flags = load<uint16_t>(node + 4);
    const uint64_t data_at = uint64_t{at} + kNodeHeader + key.size();
    if (flags != 0 && flags != kNodeBig && flags != kNodeSub) {
      return damaged(number, "flags of a node");
    }
    const uint64_t inline_bytes = flags == kNodeBig ? 8 : bytes;
    if (data_at + inline_bytes > page_size_) return damaged(number, "length of a value");
    std::span<const std::byte> value = page.subspan(data_at, inline_bytes);

    std::vector<std::byte> big;
    if (flags == kNodeBig) {
      const auto first = load<uint64_t>(value.data());
      const uint64_t n_pages = (uint64_t{bytes} + kHeader - 1) / page_size_ + 1;
      BLEND_RETURN_IF_ERROR(claim(first, n_pages));
      if (kind == Kind::free_list) {
        big.resize(bytes + kHeader);
        BLEND_RETURN_IF_ERROR(read_at(fd_, first * page_size_, big));
        if (load<uint64_t>(big.data()) != first || load<uint16_t>(big.data() + 10) != kOverflow ||
            load<uint32_t>(big.data() + 12) != n_pages) {
          return damaged(first, "its header");
        }
        value = std::span(big).subspan(kHeader);
      }
    }
    if (kind == Kind::free_list) return read_free_list(number, value);
    if (kind == Kind::data) {
      return flags == kNodeSub ? damaged(number, "a database inside a database") : Status::ok();
    }
    if (flags != kNodeSub) return Status::ok();
    if (value.size() != kTreeBytes) return damaged(number, "length of a database record");
    // Databases of other programs, or of later formats, are refused by name or version afterwards.
    static constexpr std::string_view kOurs[] = {"chunks", "meta",  "info",
                                                 "uses",   "order", "tenants"};
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
      if (page >= previous || page < 2) return damaged(number, "a list of free pages");
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

Result<uint32_t> check_lmdb_header(int fd) {
  BLEND_ASSIGN(const uint64_t size, file_size(fd));
  std::byte first[kMetaBytes];
  const Status foreign{BLEND_E_FORMAT, "its data.mdb is not an LMDB file"};
  if (size < sizeof first) return foreign;
  BLEND_RETURN_IF_ERROR(read_at(fd, 0, first));
  Meta meta = Meta::at(first);
  if (meta.magic != kMagic || meta.page_flags != kMeta) return foreign;
  for (int i = 0; i < 2; ++i) {
    if (meta.version != kDataVersion) {
      return make_error(BLEND_E_MISMATCH, "its data.mdb has LMDB format %u instead of %u",
                        meta.version, kDataVersion);
    }
    if (meta.page_size < 512 || meta.page_size > 65536 ||
        (meta.page_size & (meta.page_size - 1)) != 0) {
      return damaged(static_cast<uint64_t>(i), "page size");
    }
    // Smaller pages are no trouble. Larger ones might begin anywhere among them in memory, where
    // LMDB's map begins at one of the host's (MapView finds its beginning by that).
    if (meta.page_size > host_page_bytes()) {
      return make_error(
          BLEND_E_UNSUPPORTED,
          "its data.mdb has pages of %u bytes, more than this machine's %zu: export its "
          "chunks where pages are as large, and import them here",
          meta.page_size, host_page_bytes());
    }
    if (size < 2 * uint64_t{meta.page_size}) {
      return Status{BLEND_E_CORRUPT, "the data file is truncated: it ends inside its first pages"};
    }
    if (meta.last_page < 1 || meta.last_page > (1ull << 52) / meta.page_size) {
      return damaged(static_cast<uint64_t>(i), "number of pages");
    }
    if (i == 0) {
      const uint32_t page_size = meta.page_size;
      BLEND_RETURN_IF_ERROR(read_at(fd, page_size, first));
      meta = Meta::at(first);
      if (meta.magic != kMagic || meta.page_flags != kMeta || meta.page_size != page_size) {
        return damaged(1, "it is no meta page");
      }
    }
  }
  return meta.page_size;
}

bool lmdb_file_was_never_begun(int fd) {
  const auto size = file_size(fd);
  std::byte first[kMetaBytes];
  if (!size.is_ok() || size.value() < sizeof first || !read_at(fd, 0, first).is_ok()) return false;
  const Meta meta = Meta::at(first);
  return meta.magic == kMagic && meta.page_flags == kMeta && meta.version == kDataVersion &&
         size.value() < 2 * uint64_t{meta.page_size} && meta.last_page == 1 && meta.txn_id == 0 &&
         meta.main.root == kNoPage;
}

bool lmdb_file_is_long_enough(int fd, uint64_t last_page, uint32_t page_size) {
  const auto size = file_size(fd);
  return size.is_ok() && size.value() / page_size > last_page;
}

Status check_lmdb_pages(int fd, uint32_t page_size, uint64_t txn_id, bool* stale) {
  *stale = false;
  std::byte page[kMetaBytes];
  BLEND_RETURN_IF_ERROR(read_at(fd, (txn_id & 1) * page_size, page));
  const Meta meta = Meta::at(page);
  if (meta.txn_id != txn_id) {
    *stale = true;
    return Status::ok();
  }
  BLEND_ASSIGN(const uint64_t size, file_size(fd));
  return Walk(fd, page_size, meta, size / page_size).run();
}

}  // namespace blend
