// Importing a file of exported chunks, of any content, into a store in memory (libFuzzer). The
// first byte says how the file is made: of the input as it is, or of small chunks that the input
// describes. Of these the input then changes some bytes, before or after the checksums are made:
// after a checksum every field may be hostile.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum_trailer.h"
#include "calibrate/memory_store.h"
#include "store/chunk/layer_shapes.h"
#include "store/chunk/row_impact.h"
#include "store/transfer.h"

namespace {

void check(bool right) {
  if (!right) std::abort();
}

std::span<const std::byte> as_bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

void put_seal(std::string& bytes) {
  const uint64_t sum = blend::checksum64(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
}

// What a file is made of. Sealed parts are written with their length in front, but for the first.
struct Part {
  std::string bytes;  // without the seal
  bool sealed = true;
  bool has_length = true;
  uint64_t more = 0;  // added to the length
};

struct Chunk {
  blend::ChunkMeta meta;
  std::string layers;
};

Chunk describe_chunk(blend::ByteReader& in) {
  Chunk c;
  blend::ChunkMeta& m = c.meta;
  const auto what = in.get<uint8_t>();
  m.shape = {1u + in.get<uint8_t>() % 3, 1u + in.get<uint8_t>() % 5, 1u + in.get<uint8_t>() % 12,
             static_cast<blend::DType>(what % 3), 0};
  if ((what & 4) != 0) m.shape.head_dim = m.shape.kv_dim;
  m.id.fill(what >> 6);  // few, so that some are there twice
  m.fingerprint.fill(in.get<uint8_t>());
  m.n_prefix_tokens = in.get<uint8_t>();
  m.created_unix_s = in.get<int16_t>();
  m.tenant.fill((what & 8) != 0 ? in.get<uint8_t>() : 0);
  for (uint32_t i = 0; i < m.shape.n_tokens; ++i) m.tokens.push_back(in.get<int8_t>());
  if ((what & 16) != 0) {
    for (uint32_t i = 0; i < m.shape.n_tokens; ++i) {
      m.impact.push_back({in.get<uint8_t>() / 255.0f, in.get<uint8_t>() / 255.0f});
    }
  }
  if ((what & 32) != 0) {
    m.name.label = std::string(in.get<uint8_t>() % 8, '#');
    m.name.tags = m.name.label->empty() || (what & 2) != 0 ? "a b=c" : "";
  }
  const auto seed = in.get<uint8_t>();
  if ((in.get<uint8_t>() & 1) != 0) {
    using Keep = blend::LayerShape::Keep;
    for (uint32_t i = 0; i < m.shape.n_layers; ++i) {
      const auto keep = static_cast<Keep>(in.get<uint8_t>() % 3);
      const uint32_t width = keep == Keep::kv ? m.shape.kv_dim : 1u + in.get<uint8_t>() % 8;
      const uint32_t n_rows = keep == Keep::state ? 1u + in.get<uint8_t>() % 3 : 0;
      m.shape.layers.push_back({keep, width, n_rows});
    }
  }
  for (size_t i = 0; i < m.shape.total_bytes(); ++i) {
    c.layers.push_back(static_cast<char>(static_cast<uint8_t>(i * 7 + seed)));
  }
  return c;
}

std::string description_of(const Chunk& c) {
  const blend::ChunkMeta& m = c.meta;
  blend::ByteWriter out;
  out.bytes("BLKC", 4);
  out.put<uint32_t>(static_cast<uint32_t>(m.shape.dtype) | (m.impact.empty() ? 0 : 0x100) |
                    (m.name.is_given() ? 0x200 : 0) | (m.shape.layers.empty() ? 0 : 0x800));
  out.bytes(m.id.data(), m.id.size());
  out.bytes(m.fingerprint.data(), m.fingerprint.size());
  for (const uint32_t n :
       {m.shape.n_layers, m.shape.n_tokens, m.shape.kv_dim, m.shape.head_dim, m.n_prefix_tokens}) {
    out.put<uint32_t>(n);
  }
  out.put<int64_t>(m.created_unix_s);
  out.bytes(m.tenant.data(), m.tenant.size());
  if (m.name.is_given()) {
    for (const std::string& text : {*m.name.label, *m.name.tags}) {
      out.put<uint16_t>(static_cast<uint16_t>(text.size()));
    }
    for (const std::string& text : {*m.name.label, *m.name.tags})
      out.bytes(text.data(), text.size());
  }
  blend::put_layer_shapes(out, m.shape);
  for (const int32_t token : m.tokens) out.put<int32_t>(token);
  for (uint32_t i = 0; i < m.shape.n_layers; ++i) {
    out.put<uint64_t>(
        blend::checksum64(c.layers.data() + m.shape.layer_at(i), m.shape.layer_bytes(i)));
  }
  blend::put_impact(out, m.impact);
  return out.take();
}

std::vector<Part> parts_of(const std::vector<Chunk>& chunks) {
  std::vector<Part> parts;
  parts.push_back({std::string("BLENDCX\n\1\0\0\0", 12), true, false});
  for (const Chunk& c : chunks) {
    parts.push_back({description_of(c)});
    parts.push_back({c.layers, false, false});
  }
  blend::ByteWriter end;
  end.bytes("BLKE", 4);
  end.put<uint64_t>(chunks.size());
  parts.push_back({end.take()});
  return parts;
}

// Each change names a part, and in it a place, a width and a value. False: there was none.
bool change(std::vector<Part>& parts, blend::ByteReader& in) {
  static constexpr uint64_t kOdd[] = {0, 1, 2, 0x100, 0x40000000, 0x7fffffff, 0xffffffff, ~0ull};
  bool changed = false;
  for (int i = 0; i < 6 && in.remaining() >= 5; ++i) {
    Part& part = parts[in.get<uint8_t>() % parts.size()];
    const auto at = in.get<uint16_t>();
    const auto how = in.get<uint8_t>();
    const auto what = in.get<uint8_t>();
    changed = true;
    if ((how & 0xc0) == 0xc0) {
      part.more += static_cast<uint64_t>(static_cast<int8_t>(what)) << (how & 60);
      continue;
    }
    // Half of the changes come after the seal, which then is of the bytes as they were.
    if (part.sealed && (how & 0x40) != 0) {
      put_seal(part.bytes);
      part.sealed = false;
    }
    if ((how & 0xc0) == 0x80 && (how & 0x20) != 0) {
      part.bytes.resize((how & 16) != 0 ? part.bytes.size() + what : at % (part.bytes.size() + 1));
      continue;
    }
    const size_t width = size_t{1} << (how & 3);
    if (part.bytes.size() < width) continue;
    const size_t place = at % (part.bytes.size() - width + 1);
    uint64_t value = 0;
    std::memcpy(&value, part.bytes.data() + place, width);
    value = (how & 4) != 0   ? value ^ (uint64_t{1} << (what & 63))
            : (how & 8) != 0 ? kOdd[what % std::size(kOdd)]
                             : value + static_cast<uint64_t>(static_cast<int8_t>(what));
    std::memcpy(part.bytes.data() + place, &value, width);
  }
  return changed;
}

std::string join(std::vector<Part> parts) {
  std::string file;
  for (Part& part : parts) {
    if (part.sealed) put_seal(part.bytes);
    if (part.has_length) {
      const uint64_t length = part.bytes.size() + part.more;
      file.append(reinterpret_cast<const char*>(&length), sizeof length);
    }
    file += part.bytes;
  }
  return file;
}

// Writes `file` where a path leads to it.
std::string place(const std::string& file) {
  static const int fd = memfd_create("export", MFD_CLOEXEC);
  check(fd >= 0 && ftruncate(fd, 0) == 0 &&
        pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));
  return "/proc/self/fd/" + std::to_string(fd);
}

// Tells a store in memory's records apart and counts what is put.
class Sink final : public blend::ChunkStore {
 public:
  blend::Result<std::unique_ptr<blend::StoreSnapshot>> snapshot() override {
    return memory_.snapshot();
  }
  blend::Result<bool> contains(const blend::Sha256& id) override { return memory_.contains(id); }
  blend::Status put(const blend::ChunkRecord& record) override {
    check(blend::check_record(record).is_ok());
    ++puts[record.meta.id];
    bytes += record.data.bytes();
    return memory_.put(record);
  }
  blend::Status put_async(std::shared_ptr<const blend::ChunkRecord> record) override {
    return memory_.put_async(std::move(record));
  }
  void report_damage(const blend::Sha256&, const blend::Status&) override {}

  std::map<blend::Sha256, uint64_t> puts;
  uint64_t bytes = 0;

 private:
  blend::MemoryStore memory_;
};

// Reads a chunk as a fuse does.
std::string read_layers(blend::ChunkSource& source) {
  const blend::ChunkShape& shape = source.meta().shape;
  check(source.meta().tokens.size() == shape.n_tokens);
  check(source.meta().impact.empty() || source.meta().impact.size() == shape.n_tokens);
  std::string all(shape.total_bytes(), '\0');
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    auto* const out = reinterpret_cast<std::byte*>(all.data() + shape.layer_at(layer));
    check(source.read_layer(layer, out).is_ok());
  }
  return all;
}

// Imports the file, gives its status, and looks at all that was put.
blend::Status import(const std::string& file, bool replace, const std::vector<Chunk>* wanted) {
  Sink sink;
  blend::Transfer done;
  const blend::Status status = blend::import_chunks(sink, place(file), replace, {}, &done);
  const int32_t code = status.code();
  check(status.is_ok() || code == BLEND_E_FORMAT || code == BLEND_E_CORRUPT ||
        code == BLEND_E_MISMATCH);
  uint64_t n = 0;
  const auto snapshot = std::move(sink.snapshot().value());
  for (const auto& [id, times] : sink.puts) {
    check(replace || times == 1);
    n += times;
    const auto source = std::move(snapshot->open(id).value());
    const std::string layers = read_layers(*source);
    if (wanted == nullptr) continue;
    // The last of an id stays, or the first.
    const Chunk* want = nullptr;
    for (const Chunk& c : *wanted) {
      if (c.meta.id == id && (want == nullptr || replace)) want = &c;
    }
    const blend::ChunkMeta& m = source->meta();
    check(want != nullptr && layers == want->layers && m.shape == want->meta.shape);
    check(m.tokens == want->meta.tokens && m.impact == want->meta.impact);
    check(m.fingerprint == want->meta.fingerprint && m.tenant == want->meta.tenant);
    check(m.name == want->meta.name);
  }
  check(done.n_chunks == n && done.bytes == sink.bytes);
  if (wanted != nullptr) check(done.n_chunks + done.n_skipped == wanted->size());
  return status;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const bool replace = (data[0] & 1) != 0;
  const std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((data[0] & 2) != 0) {
    (void)import(rest, replace, nullptr);
    return 0;
  }
  blend::ByteReader in(as_bytes(rest));
  std::vector<Chunk> chunks(data[0] >> 6);
  for (Chunk& c : chunks) c = describe_chunk(in);
  std::vector<Part> parts = parts_of(chunks);
  const bool changed = change(parts, in);
  const blend::Status status = import(join(std::move(parts)), replace, changed ? nullptr : &chunks);
  check(changed || status.is_ok());
  return 0;
}
