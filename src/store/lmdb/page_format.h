// The file format of LMDB 0.9 on 64-bit little-endian machines: all that the store knows of LMDB's
// pages. Nothing here calls LMDB.
//
// A data file is a run of pages of one size. Pages 0 and 1 are meta pages, written alternately by
// commits. All others are branches and leaves of B+ trees, or the overflow pages of a value that is
// too long for a leaf: a header followed by the value, in as many consecutive pages as it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace blend::page_format {

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// ---- Every page begins with its header (MDB_page); of an overflow value only the first page does.

struct PageHeader {
  uint64_t number;
  uint16_t pad;
  uint16_t flags;
  uint32_t n_pages;  // of an overflow value; of a tree page the bounds of its nodes, two u16
};
inline constexpr size_t kHeaderBytes = 16;
static_assert(sizeof(PageHeader) == kHeaderBytes && offsetof(PageHeader, flags) == 10);

inline PageHeader header_at(const std::byte* page) { return load<PageHeader>(page); }

// PageHeader::flags
inline constexpr uint16_t kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMeta = 0x08;
// Only on the heap: pages that the open transaction has changed, and P_KEEP, "leave this page
// alone": the commit does not write such a page, and frees its memory with the transaction's
// (mdb_page_flush and mdb_txn_end, the same in the patch releases named here).
inline constexpr uint16_t kDirty = 0x10, kKeep = 0x8000;
inline constexpr int kFirstPatchWithKeep = 16, kLastPatchWithKeep = 32;  // of 0.9

inline constexpr uint32_t kLeastPageBytes = 512, kMostPageBytes = 65536;

// Pages of a value that fills pages of its own.
constexpr uint64_t overflow_pages(uint64_t value_bytes, uint64_t page_bytes) {
  return (kHeaderBytes + value_bytes + page_bytes - 1) / page_bytes;
}

// ---- Meta pages: after the header (MDB_meta).

inline constexpr uint64_t kMetaPages = 2;
inline constexpr uint32_t kMagic = 0xBEEFC0DE;
inline constexpr uint32_t kDataVersion = 1;
inline constexpr uint64_t kNoPage = ~uint64_t{0};  // the root of an empty tree
inline constexpr size_t kTreeBytes = 48;

// A tree's root record (MDB_db).
struct Tree {
  uint16_t flags = 0;
  uint16_t depth = 0;
  uint64_t root = kNoPage;

  static Tree at(const std::byte* p) {
    return {load<uint16_t>(p + 4), load<uint16_t>(p + 6), load<uint64_t>(p + 40)};
  }
};
// Tree::flags. The free list's keys are integers (MDB_INTEGERKEY), and its record holds the flags
// of the environment too: MDB_FIXEDMAP and MDB_NOSUBDIR.
inline constexpr uint16_t kIntegerKey = 0x08;
inline constexpr uint16_t kEnvironmentFlags = 0x4001;

struct Meta {
  uint32_t magic = 0, version = 0, page_size = 0;
  uint16_t page_flags = 0;
  Tree free_pages, main;
  uint64_t last_page = 0, txn_id = 0;

  static Meta at(const std::byte* page) {
    const std::byte* p = page + kHeaderBytes;
    Meta m;
    m.page_flags = header_at(page).flags;
    m.magic = load<uint32_t>(p);
    m.version = load<uint32_t>(p + 4);
    m.page_size = load<uint32_t>(p + 24);  // where the free list's record has a field to spare
    m.free_pages = Tree::at(p + 24);
    m.main = Tree::at(p + 24 + kTreeBytes);
    m.last_page = load<uint64_t>(p + 24 + 2 * kTreeBytes);
    m.txn_id = load<uint64_t>(p + 24 + 2 * kTreeBytes + 8);
    return m;
  }
};
inline constexpr size_t kMetaBytes = kHeaderBytes + 24 + 2 * kTreeBytes + 16;
// The part of page 0 that no commit changes: header, magic, version.
inline constexpr size_t kConstantBytes = kHeaderBytes + 8 + 4;

// The meta page that the commit of a transaction writes.
constexpr uint64_t meta_page_of(uint64_t txn_id) { return txn_id % kMetaPages; }

// ---- Tree pages: after the header the offsets of the nodes (u16 each) grow up, and from the
// page's end the nodes grow down; `lower` and `upper` bound the free space between.

inline uint16_t lower_of(const std::byte* page) { return load<uint16_t>(page + 12); }
inline uint16_t upper_of(const std::byte* page) { return load<uint16_t>(page + 14); }
inline uint32_t node_place(const std::byte* page, uint32_t index) {
  return load<uint16_t>(page + kHeaderBytes + 2 * index);
}

// Bytes of a value, or a branch's child page (u16 lo, u16 hi, u16 instead of the flags); u16
// flags; u16 bytes of the key; the key; then in a leaf the value, or the number of its first page.
inline constexpr uint32_t kNodeHeaderBytes = 8;
inline constexpr uint16_t kNodeBig = 0x01, kNodeTree = 0x02;  // F_BIGDATA, F_SUBDATA
inline constexpr uint32_t kMostKeyBytes = 511;
inline constexpr int kMostDepth = 30;  // LMDB's cursors hold 32 levels

inline uint32_t node_value_bytes(const std::byte* node) { return load<uint32_t>(node); }
inline uint16_t node_flags(const std::byte* node) { return load<uint16_t>(node + 4); }
inline uint16_t node_key_bytes(const std::byte* node) { return load<uint16_t>(node + 6); }
inline uint64_t node_child(const std::byte* node) {
  return uint64_t{load<uint32_t>(node)} | uint64_t{load<uint16_t>(node + 4)} << 32;
}

// ---- Positions of values. A node's value begins after the page's header, an offset and the node's
// header, so never where an overflow value does.

constexpr bool begins_overflow(uint64_t offset, uint64_t page_bytes) {
  return offset % page_bytes == kHeaderBytes;
}

// Whether the header before an overflow value is that of `page` and names the value's pages.
inline bool is_overflow_header(const PageHeader& header, uint64_t page, uint64_t value_bytes,
                               uint64_t page_bytes) {
  return header.number == page && header.flags == kOverflow &&
         header.n_pages == overflow_pages(value_bytes, page_bytes);
}

}  // namespace blend::page_format
