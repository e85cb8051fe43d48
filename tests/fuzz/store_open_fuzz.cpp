// A store whose data.mdb was changed by an enemy or a failing disk (libFuzzer): opened, read,
// verified, written to, repaired and closed. Nothing but an error may come of it, and never wrong
// rows.
//
// The file is that of a good store, made once. The first two bytes of the input choose the options
// and what is done; each six bytes after them are one change of the file: of a meta page, a page's
// header, a node, a key, a record (sealed again, or not), any byte; or a page in another's place,
// or the file's length.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/wire.h"
#include "store/lmdb/page_format.h"
#include "store/store.h"

namespace {

namespace pf = blend::page_format;

constexpr uint64_t kQuota = 4 << 20;
constexpr uint32_t kRecords = 24;  // their descriptions take more than one leaf

void check(bool right) {
  if (!right) std::abort();
}

std::shared_ptr<blend::ChunkRecord> make_record(uint32_t seed, const blend::ChunkShape& shape) {
  auto r = std::make_shared<blend::ChunkRecord>();
  blend::ChunkMeta& m = r->meta;
  m.shape = shape;
  m.fingerprint.fill(0x5a);
  m.created_unix_s = 1'700'000'000 + seed;
  for (uint32_t i = 0; i < shape.n_tokens; ++i) m.tokens.push_back(static_cast<int32_t>(seed + i));
  if (seed % 3 == 0) m.impact.assign(shape.n_tokens, {0.25f, 0.5f});
  if (seed % 5 == 2) m.name = {"manual.pdf#" + std::to_string(seed), "lang=en"};
  const std::string tenant = seed % 4 == 1 ? "tenant" : "";
  m.tenant = blend::tenant_tag(tenant);
  m.id = blend::chunk_id(m.fingerprint, shape.dtype, {}, tenant, m.tokens);
  r->data = std::move(blend::AlignedBuffer::allocate(shape.total_bytes()).value());
  // Most of a large chunk is zeros, which the file has as holes; small numbers in every dtype.
  std::memset(r->data.data(), 0, r->data.bytes());
  for (size_t at = 0; at + 4 <= r->data.bytes(); at += r->data.bytes() > 65536 ? 65536 : 4) {
    const uint32_t word = 0x3c003c00u + seed;
    std::memcpy(r->data.data() + at, &word, 4);
  }
  r->codec = static_cast<blend::Codec>(seed % 4);
  return r;
}

// A chunk of several pieces and some small ones, of every codec and two tenants.
std::vector<std::shared_ptr<blend::ChunkRecord>> make_records() {
  std::vector<std::shared_ptr<blend::ChunkRecord>> all;
  all.push_back(make_record(0, {17, 16, 1024, blend::DType::f16, 64}));
  for (uint32_t i = 1; i < kRecords; ++i) {
    all.push_back(make_record(i, {2, 4, 16, static_cast<blend::DType>(i % 3), 8}));
  }
  return all;
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Every row, or why not.
blend::Result<std::string> read_chunk(blend::StoreSnapshot& snapshot, const blend::Sha256& id) {
  BLEND_ASSIGN(const auto source, snapshot.open(id));
  const blend::ChunkShape& shape = source->meta().shape;
  BLEND_ASSIGN(const auto layer, blend::AlignedBuffer::allocate(source->stage_bytes()));
  std::string all;
  all.reserve(shape.n_layers * layer.bytes());
  std::vector<blend::RowRun> rows;
  for (uint32_t l = 0; l < shape.n_layers; ++l) {
    source->start_layer(l, layer.data());
    BLEND_RETURN_IF_ERROR(source->finish_layer(l, layer.data(), rows));
    const size_t row = shape.plane_bytes(0) / shape.n_tokens;
    for (const auto plane : {&blend::RowRun::k, &blend::RowRun::v}) {
      for (const blend::RowRun& r : rows) {
        all.append(reinterpret_cast<const char*>(r.*plane), r.n * row);
      }
    }
  }
  return all;
}

// The good store and where things lie in its file.
class Good {
 public:
  struct Value {
    size_t at, bytes;
  };
  std::string dir, file, copy_dir;
  std::string bytes;      // of data.mdb
  size_t page_bytes = 0;  // the machine's, as LMDB makes them
  std::vector<std::shared_ptr<blend::ChunkRecord>> records;
  std::vector<std::string> rows;           // as each record is read back
  std::vector<uint64_t> pages;             // of the trees
  std::vector<std::vector<size_t>> nodes;  // [pages]: where each begins in the file
  std::vector<Value> values;               // sealed records

  Good() : records(make_records()) {
    dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    dir += "/blend-fuzz-XXXXXX";
    check(mkdtemp(dir.data()) != nullptr);
    file = dir + "/data.mdb";
    copy_dir = dir + "/copy";
    auto store = blend::Store::open(dir, options(), {}).value();
    // Twice: the first one's pages are in the list of free pages.
    for (const auto& r : records) check(store->put(*r).is_ok());
    check(store->put(*records[0]).is_ok());
    check(store->pin(records[7]->meta.id, true).is_ok());
    check(store->set_tenant_quota(records[1]->meta.tenant, kQuota).is_ok());
    for (const auto& r : records) {
      rows.push_back(read_chunk(*store->snapshot().value(), r->meta.id).value());
    }
    store.reset();
    bytes = slurp(file);
    page_bytes = pf::Meta::at(reinterpret_cast<const std::byte*>(bytes.data())).page_size;
    const uint64_t newest = std::max(meta(0).txn_id, meta(1).txn_id);
    const pf::Meta m = meta(pf::meta_page_of(newest));
    visit(m.free_pages, false);
    visit(m.main, true);
  }
  ~Good() {
    std::error_code ignored;
    std::filesystem::remove_all(dir, ignored);
  }

  static blend::StoreOptions options() {
    blend::StoreOptions o;
    o.quota_bytes = kQuota;
    o.read_mode = blend::ReadMode::mapped;
    return o;
  }

 private:
  const std::byte* page(uint64_t n) const {
    return reinterpret_cast<const std::byte*>(bytes.data()) + n * page_bytes;
  }
  pf::Meta meta(uint64_t n) const { return pf::Meta::at(page(n)); }

  void visit(const pf::Tree& tree, bool is_main) {
    if (tree.root != pf::kNoPage) visit_page(tree.root, is_main);
  }
  void visit_page(uint64_t number, bool is_main) {
    const std::byte* p = page(number);
    const size_t slot = pages.size();
    pages.push_back(number);
    nodes.emplace_back();
    for (uint32_t i = 0; i < (pf::lower_of(p) - pf::kHeaderBytes) / 2u; ++i) {
      const uint32_t at = pf::node_place(p, i);
      nodes[slot].push_back(number * page_bytes + at);
      if (pf::header_at(p).flags == pf::kBranch) {
        visit_page(pf::node_child(p + at), is_main);
        continue;
      }
      const size_t value = at + pf::kNodeHeaderBytes + pf::node_key_bytes(p + at);
      const uint16_t flags = pf::node_flags(p + at);
      if (is_main && flags == pf::kNodeTree) visit(pf::Tree::at(p + value), false);
      const uint32_t n = pf::node_value_bytes(p + at);
      if (flags != 0 || n <= 8) continue;
      const std::string_view record(bytes.data() + number * page_bytes + value, n);
      uint64_t sum = 0;
      std::memcpy(&sum, record.data() + n - 8, 8);
      if (sum == blend::checksum64(record.data(), n - 8)) {
        values.push_back({number * page_bytes + value, n});
      }
    }
  }
};

// Changes `bytes` as the input says. True: a record was sealed again, so that all in it may be
// lies.
bool change(const Good& good, std::string& bytes, blend::ByteReader& in) {
  static constexpr uint64_t kOdd[] = {0, 1, 2, 0xffff, 0x7fffffff, 0xffffffff, ~0ull, 1ull << 40};
  static constexpr size_t kWidths[] = {1, 2, 4, 8};
  const size_t page_bytes = good.page_bytes;
  bool lies = false;
  for (int i = 0; i < 12 && in.remaining() >= 6; ++i) {
    const auto kind = in.get<uint8_t>();
    const auto which = in.get<uint8_t>();
    const auto at = in.get<uint16_t>();
    const auto how = in.get<uint8_t>();
    const auto what = in.get<uint8_t>();
    const size_t page = which % good.pages.size();
    const auto& nodes = good.nodes[page];
    size_t place = 0;
    const Good::Value* record = nullptr;
    switch (kind % 8) {
      case 0:  // a meta page, or what is in front of its trees' records
        place = which % 2 * page_bytes + at % pf::kMetaBytes;
        break;
      case 1:  // a page's header and the places of its nodes
        place = good.pages[page] * page_bytes + at % (pf::kHeaderBytes + 2 * nodes.size());
        break;
      case 2:  // a node's header, its key, and the bytes after them: the number of a page
      case 3:
        place = nodes[at % nodes.size()] + (at / nodes.size()) % (kind % 8 == 2 ? 8 : 64);
        break;
      case 4:  // a record
      case 5:
        record = &good.values[(which + 256u * (kind >> 7)) % good.values.size()];
        place = record->at + at % record->bytes;
        break;
      case 6:  // any byte
        place = (size_t{which} << 16 | at) % bytes.size();
        break;
      default:  // a page in another's place, or the file's length
        if ((how & 1) != 0 && bytes.size() == good.bytes.size()) {
          const size_t n = bytes.size() / page_bytes;
          std::memcpy(bytes.data() + good.pages[page] * page_bytes,
                      good.bytes.data() + (size_t{what} << 8 | at) % n * page_bytes, page_bytes);
        } else if (at % 16 == 0) {
          bytes.resize(std::max(2 * page_bytes, bytes.size() - size_t{what} * 64));
        }
        continue;
    }
    const size_t width = kWidths[how & 3];
    if (place + width > bytes.size()) continue;
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + place, width);
    switch (how >> 2 & 3) {
      case 0:
        value ^= uint64_t{1} << (what & 63);
        break;
      case 1:
        value += static_cast<uint64_t>(static_cast<int8_t>(what));
        break;
      case 2:
        value = kOdd[what % std::size(kOdd)];
        break;
      default:  // a page's number
        value = what % 3 == 0 ? good.pages[what % good.pages.size()] : what;
    }
    std::memcpy(bytes.data() + place, &value, width);
    if (record != nullptr && kind % 8 == 5 && record->at + record->bytes <= bytes.size()) {
      const uint64_t sum = blend::checksum64(bytes.data() + record->at, record->bytes - 8);
      std::memcpy(bytes.data() + record->at + record->bytes - 8, &sum, 8);
      lies = true;
    }
  }
  return lies;
}

// Pages of zeros become holes: a large chunk's, which are most of the file.
void spill(const Good& good, const std::string& bytes) {
  const size_t page_bytes = good.page_bytes;
  static const std::string zeros(page_bytes, '\0');
  (void)unlink((good.dir + "/lock.mdb").c_str());
  const int fd = open(good.file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  check(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes.size())) == 0);
  for (size_t at = 0; at < bytes.size(); at += page_bytes) {
    const size_t n = std::min(page_bytes, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, zeros.data(), n) == 0) continue;
    check(pwrite(fd, bytes.data() + at, n, static_cast<off_t>(at)) == static_cast<ssize_t>(n));
  }
  close(fd);
}

// Codes that a damaged store may give, whatever is asked of it.
bool allowed(const blend::Status& s) {
  switch (s.code()) {
    case BLEND_OK:
    case BLEND_E_NOT_FOUND:
    case BLEND_E_FORMAT:
    case BLEND_E_UNSUPPORTED:
    case BLEND_E_MISMATCH:
    case BLEND_E_CORRUPT:
    case BLEND_E_IO:
    case BLEND_E_FULL:
    case BLEND_E_OUT_OF_MEMORY:
      return !s.message().empty() || s.is_ok();
    default:
      return false;
  }
}

int32_t no_stop(const blend::ChunkMeta&, const std::string&) { return 0; }

// The large one is read where all is verified.
void read_all(const Good& good, blend::Store& store, bool lies) {
  auto snapshot = store.snapshot();
  check(allowed(snapshot.status()));
  for (size_t i = 1; snapshot.is_ok() && i < kRecords; ++i) {
    const auto rows = read_chunk(**snapshot, good.records[i]->meta.id);
    check(allowed(rows.status()));
    if (rows.is_ok() && !lies) check(rows.value() == good.rows[i]);
    if (rows.status().code() == BLEND_E_CORRUPT) {
      store.report_damage(good.records[i]->meta.id, rows.status());
    }
  }
}

void put(const Good& good, blend::Store& store, size_t i) {
  const blend::Status put = store.put(*good.records[i]);
  check(allowed(put));
  if (!put.is_ok()) return;
  auto snapshot = store.snapshot();
  const auto rows = read_chunk(**snapshot, good.records[i]->meta.id);
  check(rows.is_ok() && rows.value() == good.rows[i]);
}

void write(const Good& good, blend::Store& store, uint8_t what) {
  const size_t first = what % kRecords;
  put(good, store, first);
  uint64_t n = 0;
  if ((what & 1) != 0) check(allowed(store.pin(good.records[first]->meta.id, (what & 2) != 0)));
  if ((what & 4) != 0) check(allowed(store.evict(uint64_t{what} << 10, &n)));
  const size_t n_removed = (what & 8) != 0 ? kRecords : 1;
  for (size_t i = 0; i < n_removed; ++i) {
    const blend::Sha256& id = good.records[(first + i) % kRecords]->meta.id;
    const blend::Status removed = store.remove(id);
    check(allowed(removed));
    if (removed.is_ok()) check(!store.contains(id).value());
  }
}

void repair(blend::Store& store) {
  uint64_t n = 0, n_told = 0;
  const blend::Status repaired = store.repair(
      [&](const blend::ChunkMeta&, const std::string& problem) {
        check(!problem.empty());
        ++n_told;
        return 0;
      },
      &n);
  check(allowed(repaired));
  if (!repaired.is_ok()) return;
  check(n == n_told);
  // The rest is sound.
  check(store.for_each(true, no_stop).is_ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Good good;
  if (size < 2) return 0;
  const uint8_t how = data[0];
  const uint8_t what = data[1];
  blend::ByteReader in(std::as_bytes(std::span(data + 2, size - 2)));
  static std::string bytes;  // kept: most of it is the same each time
  bytes.assign(good.bytes);
  const bool lies = change(good, bytes, in);
  spill(good, bytes);

  blend::StoreOptions options = Good::options();
  options.create = (how & 1) != 0;
  options.read_only = (how & 6) == 6;
  if ((how & 8) != 0) options.eviction = blend::Eviction::reuse;
  if ((how & 16) != 0) options.quota_bytes = 1 << 20;
  if ((how & 32) != 0) options.read_mode = blend::ReadMode::best;
  if ((how & 64) != 0) options.ram_bytes = 1 << 20;
  if ((how & 128) != 0) options.ttl_s = 1 << 30;
  const blend::Log log(BLEND_LOG_DEBUG, [](const blend::LogRecord&) {});
  auto opened = blend::Store::open(good.dir, options, log);
  check(allowed(opened.status()));
  if (!opened.is_ok()) return 0;
  blend::Store& store = **opened;
  read_all(good, store, lies);
  check(allowed(store.stat().status()));
  check(allowed(store.for_each(false, no_stop)));
  if ((how & 0x40) != 0 || options.read_only) check(allowed(store.for_each(true, no_stop)));
  if (options.read_only) return 0;
  if ((what & 0xc0) != 0xc0) write(good, store, what);
  if ((what & 0x40) != 0) {
    repair(store);
    if ((what & 0x80) != 0) write(good, store, static_cast<uint8_t>(what + 1));
  }
  if ((what & 0x30) == 0x30) {
    check(allowed(store.copy_to(good.copy_dir)));
    std::error_code ignored;
    std::filesystem::remove_all(good.copy_dir, ignored);
  }
  opened.value().reset();
  if ((what & 0x30) == 0x20) {
    uint64_t before = 0, after = 0;
    check(allowed(blend::compact_store(good.dir, &before, &after)));
  }
  return 0;
}
